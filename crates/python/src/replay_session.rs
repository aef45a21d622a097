//! A recorded episode that a node shows, as a Python object, behind `rollhouse.ReplaySession`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use rollhouse_client::{Cluster, Replay, Watch, WatchError};
use rollhouse_core::EpisodeName;
use rollhouse_replay::{SeekBounds, Seeker};
use rollhouse_wire::{EndCause, LaneFrame, RefusalCode, SessionId};

use crate::commands::image;
use crate::envs::{image_size, registry, spec_dict};
use crate::failure::{exception, of_request, of_watch, one_at_a_time};
use crate::fork::Home;

/// A replay session of a cluster. One thread at a time may use it; in a forked child every method raises.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct NativeReplay {
    home: Home,
    cluster: Cluster,
    /// The session; `None` after it was closed.
    open: Mutex<Option<Open>>,
}

struct Open {
    replay: Replay,
    watch: Watch,
    /// The time of the last request to the node: it sends away watchers that ask for nothing.
    asked: Instant,
    shown: Option<LaneFrame>,
}

/// A request to the replay session.
enum ReplayRequest {
    Seek(u64),
    Step(i64),
    Play(f64),
    Pause,
    /// Return the newest frame after that serial number, waiting at most so long.
    Look(u64, Duration),
}

impl NativeReplay {
    /// Opens the episode of that name. Returns the object, the session's name, and the env's spec.
    pub(crate) fn of<'py>(
        py: Python<'py>,
        cluster: Cluster,
        name: &str,
    ) -> PyResult<(Self, String, Bound<'py, PyDict>)> {
        let name: EpisodeName =
            name.parse().map_err(|error| PyValueError::new_err(format!("name={name:?}: {error}")))?;
        let opened = py.detach(|| {
            let replay = cluster.open_replay(name)?;
            let watch = cluster.watch(replay.session())?;
            Ok((replay, watch))
        });
        let (replay, watch) = opened.map_err(|error: WatchError| of_watch(py, &error))?;
        let (session, spec) = (replay.session().to_string(), spec_dict(py, &watch.inner().opened().spec)?);
        let open = Open { replay, watch, asked: Instant::now(), shown: None };
        Ok((Self { home: Home::here(), cluster, open: Mutex::new(Some(open)) }, session, spec))
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<Open>>> {
        if !self.home.is_here() {
            let message = "opened in another process, of which this is a forked child; open it here again";
            return Err(exception(py, "ForkedError", message.to_owned()));
        }
        one_at_a_time(self.open.try_lock())
    }

    fn ask<'py>(&self, py: Python<'py>, asked: ReplayRequest) -> PyResult<Option<Bound<'py, PyDict>>> {
        let mut slot = self.lock(py)?;
        let open = slot.as_mut().ok_or_else(|| closed(py))?;
        let (cluster, session) = (&self.cluster, open.replay.session());
        let answered = py.detach(|| {
            if open.asked.elapsed() >= WATCH_AGAIN {
                open.watch =
                    cluster.watch(session).map_err(|error| (cause_of(cluster, session, &error), error))?;
            }
            open.asked = Instant::now();
            let answered = match asked {
                ReplayRequest::Seek(step) => open.watch.seek(step).map(Some),
                ReplayRequest::Step(by) => open.watch.step(by).map(Some),
                ReplayRequest::Play(speed) => open.watch.play(speed).map(Some),
                ReplayRequest::Pause => open.watch.pause().map(Some),
                ReplayRequest::Look(after, wait) => open.watch.look(0, after, wait),
            };
            answered.map_err(|error| (cause_of(cluster, session, &error), error))
        });
        let frame = answered.map_err(|(cause, error)| match cause {
            Some(cause) => exception(py, "ClusterError", format!("the replay has ended: {}", cause.word())),
            None => of_watch(py, &error),
        })?;
        let Some(frame) = frame else { return Ok(None) };
        let dict = frame_dict(py, &frame, &open.watch)?;
        open.shown = Some(frame);
        Ok(Some(dict))
    }
}

#[pymethods]
impl NativeReplay {
    fn seek<'py>(&self, py: Python<'py>, step: u64) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.ask(py, ReplayRequest::Seek(step))
    }

    fn step<'py>(&self, py: Python<'py>, by: i64) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.ask(py, ReplayRequest::Step(by))
    }

    fn play<'py>(&self, py: Python<'py>, speed: f64) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.ask(py, ReplayRequest::Play(speed))
    }

    fn pause<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.ask(py, ReplayRequest::Pause)
    }

    /// Returns the newest frame after the one with the serial number `after`; None if none comes within `wait` seconds.
    fn look<'py>(&self, py: Python<'py>, after: u64, wait: f64) -> PyResult<Option<Bound<'py, PyDict>>> {
        let wait =
            Duration::try_from_secs_f64(wait).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.ask(py, ReplayRequest::Look(after, wait))
    }

    /// Draws a picture of the last frame here, as an array [height, width, 3].
    fn render<'py>(&self, py: Python<'py>, size: Option<(usize, usize)>) -> PyResult<Bound<'py, PyAny>> {
        let size = size.map(|size| image_size(py, size)).transpose()?;
        let slot = self.lock(py)?;
        let open = slot.as_ref().ok_or_else(|| closed(py))?;
        let unsupported = |what: String| exception(py, "ClusterError", format!("no picture: {what}"));
        let shown = open.shown.as_ref().ok_or_else(|| unsupported("nothing was looked at yet".to_owned()))?;
        let episode = open.watch.inner().shown(0, shown).map_err(|error| of_watch(py, &error))?;
        let seeker = Seeker::new(registry(), Arc::new(episode), &SeekBounds::default());
        let mut seeker = seeker.map_err(|error| unsupported(error.to_string()))?;
        seeker.seek(0).map_err(|error| unsupported(error.to_string()))?;
        let own = seeker.picture_size().ok_or_else(|| unsupported("the env draws none".to_owned()))?;
        let drawn = seeker.render(size.unwrap_or(own)).map_err(|error| unsupported(error.to_string()))?;
        image(py, drawn)
    }

    /// Ends the session, for all that watch it. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(Open { replay, watch, .. }) = self.lock(py)?.take() else { return Ok(()) };
        let closed = py.detach(|| {
            drop(watch);
            replay.close()
        });
        closed.map(drop).map_err(|error| of_request(py, &error))
    }
}

fn frame_dict<'py>(py: Python<'py>, frame: &LaneFrame, watch: &Watch) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("serial", frame.serial)?;
    dict.set_item("step", frame.step)?;
    dict.set_item("reward", frame.reward)?;
    dict.set_item("total_reward", frame.total_reward)?;
    dict.set_item("terminated", frame.terminated)?;
    dict.set_item("truncated", frame.truncated)?;
    dict.set_item("obs", PyBytes::new(py, &frame.obs))?;
    dict.set_item("action", PyBytes::new(py, &frame.action))?;
    if let Some(standing) = watch.inner().standing() {
        dict.set_item("state", standing.state.word())?;
        dict.set_item("length", standing.length)?;
        dict.set_item("speed", standing.speed)?;
    }
    Ok(dict)
}

/// Returns why the session is gone, if an error comes of that and the coordinator knows.
fn cause_of(cluster: &Cluster, session: SessionId, error: &WatchError) -> Option<EndCause> {
    let is_over = matches!(error, WatchError::Over(_) | WatchError::Node(_))
        || matches!(error, WatchError::Request(error) if error.refusal() == Some(RefusalCode::NotFound));
    is_over.then(|| cluster.cause_of_end(session).ok().flatten()).flatten()
}

fn closed(py: Python<'_>) -> PyErr {
    exception(py, "ClosedError", "this replay is closed".to_owned())
}

impl Drop for NativeReplay {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // Its connections are the parent's.
            let open = self.open.get_mut();
            std::mem::forget(open.take());
        }
    }
}

/// Time without a request after which the session is watched anew, as the node may have sent its watcher away.
const WATCH_AGAIN: Duration = Duration::from_secs(10);

//! Lanes as a Python object, behind `EmbeddedVectorEnv` and `ClusterVectorEnv`.

mod lanes_state;
mod results;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use pyo3::exceptions::{PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rollhouse_client::{RequestError, StepError};
use rollhouse_core::Space;
use rollhouse_core::{AutoresetMode, ColumnSpec, EnvSpec, Role};
use rollhouse_engine::{Engine, EngineConfig, Reset, StepError as Refused};

use crate::actions::{column_data, put_actions};
use crate::arrays::{KeepAlive, RowShape};
use crate::attended::Attended;
use crate::commands::{attribute_list, attribute_value, image, lane_options};
use crate::cost::Cost;
use crate::endings::Endings;
use crate::engine::lanes_state::LanesState;
use crate::engine::results::every_row;
use crate::envs::{checked_options, image_size, known_env};
use crate::failure::{exception, of_config, of_method, of_request, of_step, one_at_a_time};
use crate::fork::Home;
use crate::infos::{Channel, Shapes, ShowValid};
use crate::keywords::keywords;
use crate::lanes::{Lanes, Placement};
use crate::noting::{Declared, Noted, note, rows_of, step_columns};
use crate::obs_shape::ObsShape;
use crate::recording::{Recording, RecordingWatch, rule_of};
use crate::statistics::EpisodeStatistics;
use crate::words::FurtherInfos;

/// Lanes, the arrays over their memory, and the rules that Python's side relies on.
///
/// One thread at a time may use it; a second one gets an error instead of waiting. In a forked child every method
/// raises.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct NativeLanes {
    pub(crate) lanes: usize,
    action: RowShape,
    /// Whether arrays of the column's type are converted as well: the env's own type, or that of a part, may not have their
    /// values.
    narrow: bool,
    /// Turns anything array-like into a C-contiguous array of the action's dtype, or raises.
    convert: Py<PyAny>,
    pub(crate) rules: Rules,
    pub(crate) shapes: Shapes,
    home: Home,
    pub(crate) attended: Arc<Attended<LanesState>>,
    /// Reports the news to Python, before lanes are stepped.
    report: OnceLock<Py<PyAny>>,
}

/// The options of a vector env.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) same_step: bool,
    pub(crate) copy: bool,
    pub(crate) show_valid: ShowValid,
    pub(crate) raise_on_loss: bool,
    /// Whether infos tell the returns, lengths and times of episodes that ended.
    pub(crate) statistics: bool,
}

#[pymethods]
impl NativeLanes {
    /// Makes the lanes, without resetting them.
    #[new]
    #[pyo3(signature = (id, **keywords))]
    fn new(py: Python<'_>, id: &str, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let asked = LanesKeywords::of(keywords)?;
        let entry = known_env(py, id)?;
        let spec = entry.spec();
        let autoreset: AutoresetMode = asked
            .autoreset
            .parse()
            .map_err(|error| PyValueError::new_err(format!("autoreset_mode: {error}")))?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let config = EngineConfig {
            threads: asked.threads.unwrap_or_else(|| cores().min(rollhouse_core::limits::MAX_THREADS)),
            autoreset,
            max_episode_steps: asked.max_episode_steps,
            options: checked_options(py, spec, &asked.options)?,
            ..EngineConfig::new(asked.lanes)
        };
        let columns = step_columns(asked.step_columns)?;
        let recording = match &asked.data {
            Some(data) => Some(Recording::begin(py, data, rule_of(&asked.record)?, spec, &config, columns)?),
            None => None,
        };
        let made = py.detach(|| Engine::new(&entry, config, recording.as_ref().map(Recording::run)));
        let engine = made.map_err(|error| of_config(py, &error))?;
        let same_step = autoreset == AutoresetMode::SameStep;
        let show_valid = ShowValid::of(&asked.show_valid)?;
        let LanesKeywords { copy, raise_on_loss, statistics, convert, .. } = asked;
        let rules = Rules { same_step, copy, show_valid, raise_on_loss, statistics };
        Self::of(py, spec, Lanes::Engine(Box::new(engine)), rules, convert, recording)
    }

    /// Returns the number of threads that step, the caller's included.
    #[getter]
    fn threads(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.inner(py)?.threads())
    }

    /// Returns the folder into which this env records, its run and a watch of it, or None.
    #[getter]
    fn recording(&self, py: Python<'_>) -> PyResult<Option<(PathBuf, String, RecordingWatch)>> {
        Ok(self.lock(py)?.recording.as_ref().map(Recording::place))
    }

    /// Has `report` called before lanes are stepped, once there is something new.
    fn report_by(&self, report: Py<PyAny>) {
        // Set once, as the env is made.
        let _set = self.report.set(report);
    }

    /// Returns whether there is something new.
    #[getter]
    fn has_news(&self) -> bool {
        self.attended.news.is_waiting()
    }

    /// Returns what is new: a dict each. It comes once.
    fn take_news<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.attended.news.take(py)
    }

    /// Returns start and end of the engine's memory, for pinning it.
    #[getter]
    fn addresses(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        let addresses = self.lock(py)?.inner(py)?.addresses();
        Ok((addresses.start, addresses.end))
    }

    /// Returns where the lanes of a cluster are now: for each session the node, its first lane, the lane after its
    /// last, and the transport by which it is stepped. The list is empty for other lanes.
    #[getter]
    fn placements(&self, py: Python<'_>) -> PyResult<Vec<Placement>> {
        Ok(self.lock(py)?.inner(py)?.placements())
    }

    /// Returns the column of actions in memory that the node reads, or None if actions are copied on their way.
    #[getter]
    fn actions<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = self.lock(py)?;
        let inner = state.inner(py)?;
        let base = KeepAlive::new(py, inner.memory())?;
        let Some(column) = inner.actions_in_place() else { return Ok(None) };
        // SAFETY: the column lies in the memory of the attached session, which `base` holds, one row per lane. Pools
        // reach actions that lie in place only in `actions`, with the interpreter lock held, and to name one that
        // was refused.
        unsafe { self.action.view_mut(column, self.lanes, base.bind(py)) }.map(Some)
    }

    /// Begins episodes. Returns `(observations, infos)`.
    fn reset<'py>(
        &self,
        py: Python<'py>,
        seeds: Vec<Option<u64>>,
        mask: Vec<bool>,
        options: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let options = lane_options(py, options)?;
        let mut state = self.lock(py)?;
        state.refuse_outstanding(py)?;
        let reset = Reset { seeds, mask, options };
        let inner = state.inner(py)?;
        let done = py.detach(|| inner.reset(&reset));
        done.map_err(|error| of_step(py, &error))?;
        if let Some(statistics) = &mut state.statistics {
            statistics.begin(&reset.mask);
        }
        state.look_for_moves(&self.attended.news);
        state.look_for_losses(py, self)?;
        state.reset_result(py, self)
    }

    /// Steps every lane once. Returns `(observations, rewards, terminations, truncations, infos)`.
    fn step<'py>(&self, py: Python<'py>, actions: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        self.step_as(py, actions, self.rules.copy)
    }

    /// Steps as `step` does, with views whether or not the env makes copies.
    fn step_views<'py>(&self, py: Python<'py>, actions: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        self.step_as(py, actions, false)
    }

    /// Sends actions for some lanes.
    fn send<'py>(&self, py: Python<'py>, actions: &Bound<'py, PyAny>, lanes: Vec<u32>) -> PyResult<()> {
        let converted = self.convert.bind(py).call1((actions, lanes.len()))?;
        let mut state = self.lock(py)?;
        // Copied before the interpreter lock is released: another thread may write to the array then.
        let actions = column_data(&converted, self.action.dtype)?;
        let inner = state.inner(py)?;
        let sent = py.detach(|| inner.send(&lanes, actions.as_ref()));
        sent.map_err(|error| of_step(py, &error))?;
        state.outstanding += lanes.len();
        Ok(())
    }

    /// Waits for lanes that were sent. `timeout` is in seconds.
    fn recv<'py>(
        &self,
        py: Python<'py>,
        least: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut state = self.lock(py)?;
        let least = least.unwrap_or(state.outstanding);
        let began = Instant::now();
        let received = loop {
            let left = timeout.map_or(LOOK_FOR_SIGNALS, |timeout| timeout - began.elapsed().as_secs_f64());
            let slice = Duration::from_secs_f64(left.clamp(0.0, LOOK_FOR_SIGNALS));
            let inner = state.inner(py)?;
            match py.detach(|| inner.recv(least, slice)) {
                Ok(received) => break received,
                Err(StepError::Rules(Refused::TimedOut)) if timeout.is_none() || left > LOOK_FOR_SIGNALS => {
                    py.check_signals()?
                }
                Err(StepError::Rules(Refused::TimedOut)) => {
                    let message = format!(
                        "{least} lanes were not ready within timeout={} s; they stay outstanding",
                        timeout.unwrap_or_default()
                    );
                    return Err(PyTimeoutError::new_err(message));
                }
                Err(error) => {
                    let left = state.inner(py)?.outstanding();
                    state.outstanding = left.unwrap_or(state.outstanding);
                    return Err(of_step(py, &error));
                }
            }
        };
        state.outstanding -= received.lanes.len();
        state.look_for_moves(&self.attended.news);
        let newly_lost = state.look_for_losses(py, self)?;
        self.received(py, &mut state, &received, &newly_lost)
    }

    /// Returns an attribute of every lane; see `rollhouse_engine`'s methods.
    fn get_attr<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let mut state = self.lock(py)?;
        state.refuse_outstanding(py)?;
        let inner = state.inner(py)?;
        let values = py.detach(|| inner.get_attr(name)).map_err(|error| of_method(py, &error))?;
        attribute_list(py, values)
    }

    /// Sets an attribute: one value for all lanes, or one per lane.
    fn set_attr(&self, py: Python<'_>, name: &str, values: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let values: Vec<_> =
            values.iter().map(|value| attribute_value(py, name, value)).collect::<PyResult<_>>()?;
        let mut state = self.lock(py)?;
        state.refuse_outstanding(py)?;
        let inner = state.inner(py)?;
        py.detach(|| inner.set_attr(name, values)).map_err(|error| of_method(py, &error))
    }

    /// Calls a method of the env on a lane, with a text of JSON; returns another.
    fn call(&self, py: Python<'_>, lane: u32, method: &str, payload: &str) -> PyResult<String> {
        let mut state = self.lock(py)?;
        state.refuse_outstanding(py)?;
        let inner = state.inner(py)?;
        py.detach(|| inner.call(lane as usize, method, payload)).map_err(|error| of_method(py, &error))
    }

    /// Says which version of the policy chooses the actions from now on.
    fn set_policy_version(&self, py: Python<'_>, version: u64) -> PyResult<()> {
        let mut state = self.lock(py)?;
        let inner = state.inner(py)?;
        py.detach(|| inner.set_policy_version(version)).map_err(|error| of_method(py, &error))
    }

    /// Notes values of step columns for the next steps of `lanes`, or of all lanes.
    fn note<'py>(&self, py: Python<'py>, lanes: Option<Vec<u32>>, columns: Vec<Noted<'py>>) -> PyResult<()> {
        let mut state = self.lock(py)?;
        match state.inner(py)? {
            Lanes::Engine(engine) => note(py, engine, lanes.as_deref(), columns),
            Lanes::Pool(pool) => {
                let columns = rows_of(pool.step_columns(), columns)?;
                let noted = py.detach(|| pool.note(lanes.as_deref(), &columns));
                noted.map_err(|error| of_method(py, &error))
            }
        }
    }

    /// Returns an image of every lane, uint8 `[height, width, 3]` each. `size` is (width, height); None stands for the
    /// env's own.
    #[pyo3(signature = (size=None))]
    fn render<'py>(&self, py: Python<'py>, size: Option<(usize, usize)>) -> PyResult<Bound<'py, PyList>> {
        let size = size.map(|size| image_size(py, size)).transpose()?;
        let mut state = self.lock(py)?;
        state.refuse_outstanding(py)?;
        let inner = state.inner(py)?;
        let images = py.detach(|| inner.render(size)).map_err(|error| of_method(py, &error))?;
        let list = PyList::empty(py);
        for one in images {
            list.append(image(py, one)?)?;
        }
        Ok(list)
    }

    /// Returns what the lanes have done: one JSON object per session.
    fn statistics(&self, py: Python<'_>) -> PyResult<String> {
        let mut state = self.lock(py)?;
        state.refuse_outstanding(py)?;
        let inner = state.inner(py)?;
        let statistics = py.detach(|| inner.statistics()).map_err(|error| of_method(py, &error))?;
        serde_json::to_string(&statistics).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Returns whether the lanes can draw themselves.
    fn renders(&self, py: Python<'_>) -> PyResult<bool> {
        let mut state = self.lock(py)?;
        let inner = state.inner(py)?;
        let schema = py.detach(|| inner.schema()).map_err(|error| of_method(py, &error))?;
        Ok(schema.renders)
    }

    /// Returns the names that `get_attr` knows, each with whether `set_attr` takes it.
    fn attributes(&self, py: Python<'_>) -> PyResult<Vec<(String, bool)>> {
        let mut state = self.lock(py)?;
        let inner = state.inner(py)?;
        let schema = py.detach(|| inner.schema()).map_err(|error| of_method(py, &error))?;
        Ok(schema.attributes.into_iter().map(|one| (one.name, one.writable)).collect())
    }

    /// Returns the number of lanes that were sent and not received.
    #[getter]
    fn outstanding(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.outstanding)
    }

    /// Ends open episodes as cancelled and waits until the recording is durable. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock(py)?;
        let (inner, recording) = (state.inner.take(), state.recording.take());
        drop(state);
        let closed = py.detach(|| {
            let stepped = match inner {
                Some(Lanes::Engine(engine)) => Closed::Engine(engine.close().map(drop)),
                Some(Lanes::Pool(pool)) => Closed::Pool(pool.close().map(drop)),
                None => Closed::Engine(Ok(())),
            };
            (stepped, recording.map(Recording::finish).transpose())
        });
        match closed.0 {
            Closed::Engine(result) => result.map_err(|error| of_step(py, &error.into()))?,
            Closed::Pool(result) => result.map_err(|error| of_request(py, &error))?,
        }
        closed.1.map_err(|error| exception(py, "RecordingError", crate::failure::chain(&error)))?;
        Ok(())
    }
}

keywords! {
    /// The lanes that are asked for.
    struct LanesKeywords {
        lanes: usize,
        /// Number of threads that step, the caller's included; None for one per core.
        threads: Option<usize>,
        autoreset: String,
        max_episode_steps: Option<u32>,
        /// One dict for all lanes or one per lane.
        options: Vec<Py<PyDict>>,
        copy: bool,
        show_valid: String,
        raise_on_loss: bool,
        statistics: bool,
        convert: Py<PyAny>,
        /// The folder to record into.
        data: Option<PathBuf>,
        /// Which episodes are recorded, in the words of the command line.
        record: String,
        /// What is noted of each step beside that.
        step_columns: Vec<Declared>,
    }
}

/// The result of closing.
enum Closed {
    Engine(Result<(), Refused>),
    Pool(Result<(), RequestError>),
}

impl NativeLanes {
    /// Makes the arrays over the memory of lanes, which are those of `spec`.
    pub(crate) fn of(
        py: Python<'_>,
        spec: &EnvSpec,
        inner: Lanes,
        rules: Rules,
        convert: Py<PyAny>,
        recording: Option<Recording>,
    ) -> PyResult<Self> {
        let lanes = inner.count();
        let row_shape = |dtype, shape: &[usize]| {
            let what = || format!("env {} has columns of {} axes", spec.id, shape.len());
            RowShape::new(dtype, shape).ok_or_else(|| PyValueError::new_err(what()))
        };
        let of_space = |space: &Space| {
            let bits = matches!(space, Space::Box(space) if space.choices);
            Ok(row_shape(space.dtype(), space.shape())?.of_bits(bits).of_own(space.own()))
        };
        let channels = Channel::all(&spec.info_channels, |ColumnSpec { dtype, shape, role, .. }| {
            // As Gymnasium's own envs give masks.
            Ok(row_shape(*dtype, shape)?.of_bits(*role == Role::ActionMask))
        })?;
        let nodes = inner.placements().into_iter().map(|(node, ..)| node).collect();
        let made = Self {
            lanes,
            action: row_shape(spec.action_space.dtype(), spec.action_space.shape())?,
            narrow: matches!(
                &spec.action_space,
                Space::Box(space) if space.own.is_some() || space.parts.is_some()
            ),
            convert,
            rules,
            shapes: Shapes {
                obs: ObsShape::new(&spec.observation_space, of_space)?,
                channels,
                further: FurtherInfos::of(&spec.info_channels),
            },
            home: Home::here(),
            report: OnceLock::new(),
            attended: Attended::new(LanesState {
                memory: KeepAlive::new(py, inner.memory())?,
                in_place: inner.is_in_place(),
                views: [None, None],
                every_row: every_row(py, lanes)?,
                outstanding: 0,
                lost: Vec::new(),
                losses: Vec::new(),
                reasons: Vec::new(),
                endings: Endings::default(),
                statistics: rules.statistics.then(|| EpisodeStatistics::of(lanes)),
                cost: Cost::new(inner.waits()),
                recording,
                nodes,
                inner: Some(inner),
            }),
        };
        if let Some(recording) = &made.attended.lock_last().recording {
            recording.attend(&made.attended);
        }
        Ok(made)
    }

    /// Takes the lanes out, for one who goes on with them: here they are closed then.
    pub(crate) fn take_lanes(&self, py: Python<'_>) -> PyResult<Lanes> {
        let mut state = self.lock(py)?;
        state.refuse_outstanding(py)?;
        state.inner(py)?;
        state.inner.take().ok_or_else(|| lanes_state::closed(py))
    }

    /// Returns the shape of an action.
    pub(crate) const fn action(&self) -> &RowShape {
        &self.action
    }

    #[inline]
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, LanesState>> {
        if !self.home.is_here() {
            let message = "made in another process, of which this is a forked child; make another one here";
            return Err(exception(py, "ForkedError", message.to_owned()));
        }
        one_at_a_time(self.attended.try_lock())
    }

    #[inline]
    fn step_as<'py>(
        &self,
        py: Python<'py>,
        actions: &Bound<'py, PyAny>,
        copy: bool,
    ) -> PyResult<Bound<'py, PyTuple>> {
        if self.attended.news.is_waiting() {
            self.report_news(py)?;
        }
        let mut state = self.lock(py)?;
        state.refuse_outstanding(py)?;
        if self.narrow || !self.put_actions(&mut state, actions)? {
            // Converting runs code of the caller's, which may come back here.
            drop(state);
            let converted = self.convert.bind(py).call1((actions, self.lanes))?;
            state = self.lock(py)?;
            if !self.put_actions(&mut state, &converted)? {
                return Err(PyRuntimeError::new_err("actions were not converted to the column's type"));
            }
        }
        state.step(py)?;
        state.look_for_moves(&self.attended.news);
        let newly_lost = state.look_for_losses(py, self)?;
        state.result(py, self, copy, &newly_lost)
    }

    /// Reports the news to Python. What that raises is the caller's, whose lanes have not moved.
    #[cold]
    fn report_news(&self, py: Python<'_>) -> PyResult<()> {
        self.report.get().map_or(Ok(()), |report| report.call0(py).map(drop))
    }

    /// Copies actions of exactly the column's shape and type. Returns false if they are anything else.
    #[inline]
    fn put_actions(&self, state: &mut LanesState, actions: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = actions.py();
        put_actions(&self.action, self.lanes, actions, || {
            state.inner(py)?.actions().map_err(|error| of_step(py, &error))
        })
    }
}

impl Drop for NativeLanes {
    /// Gives up lanes that were not closed. What was played until now is written, if they are recorded.
    fn drop(&mut self) {
        if !self.home.is_here() {
            // The threads that would have to be ended are the parent's.
            std::mem::forget(Arc::clone(&self.attended));
            return;
        }
        let (inner, recording) = {
            let mut state = self.attended.lock_last();
            (state.inner.take(), state.recording.take())
        };
        match (inner, recording) {
            (Some(Lanes::Engine(engine)), Some(recording)) => {
                // Nobody is left to be told of errors.
                let _closed = engine.close();
                let _finished = recording.finish();
            }
            (inner, _) => drop(inner),
        }
    }
}

/// Seconds between two looks whether Ctrl-C was pressed.
const LOOK_FOR_SIGNALS: f64 = 0.05;

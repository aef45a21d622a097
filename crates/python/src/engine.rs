//! Lanes as a Python object, behind `EmbeddedVectorEnv`, `HostedVectorEnv` and `ClusterVectorEnv`.

mod lanes_state;
mod making;
mod results;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::MutexGuard;
use pyo3::exceptions::{PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rollhouse_core::LaneState;
use rollhouse_engine::{PaceControl, Reset};

use crate::actions::{column_data, put_actions};
use crate::arrays::{KeepAlive, RowShape};
use crate::attended::Attended;
use crate::commands::{attribute_list, attribute_value, image, lane_options};
use crate::engine::lanes_state::LanesState;
use crate::engine::making::LanesKeywords;
use crate::envs::image_size;
use crate::failure::{chain, exception, of_method, of_request, of_step, one_at_a_time};
use crate::fork::Home;
use crate::infos::{Shapes, ShowValid};
use crate::lanes::{CloseError, Lanes, Placement};
use crate::noting::{Noted, note, rows_of};
use crate::recording::{Recording, RecordingWatch};
use crate::waiting::{deadlines, wait};
use crate::worker_link::duration;

pub(crate) use crate::engine::making::autoreset_of;

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
    /// Turns anything array-like into a C-contiguous array of the action's dtype, or raises; None where actions are given as
    /// such arrays.
    convert: Option<Py<PyAny>>,
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

impl Rules {
    /// Returns those of lanes whose columns are all that is shown: rows and infos are the caller's.
    pub(crate) fn of_columns(same_step: bool) -> Self {
        let show_valid = ShowValid::Lost;
        Self { same_step, copy: false, show_valid, raise_on_loss: false, statistics: false }
    }
}

#[pymethods]
impl NativeLanes {
    /// Makes the lanes, without resetting them.
    #[new]
    #[pyo3(signature = (id, **keywords))]
    fn new(py: Python<'_>, id: &str, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        LanesKeywords::of(keywords)?.make(py, id)
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

    /// Returns the column of actions in memory that the node or workers read, or None if actions are copied on their way.
    #[getter]
    fn actions<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = self.lock(py)?;
        let inner = state.inner(py)?;
        let base = KeepAlive::new(py, inner.memory())?;
        let Some(column) = inner.actions_in_place() else { return Ok(None) };
        // SAFETY: the column lies in the memory of the attached session or of the engine, which `base` holds, one row per
        // lane. Pools reach actions that lie in place only in `actions`, with the interpreter lock held, and to name one
        // that was refused. That of an engine is handed to `HostedVectorEnv` alone, which writes to it between calls; no
        // reference into it lives while Python runs.
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

    /// Returns what `step` returns, of the newest rows of live lanes, without waiting for a tick.
    fn latest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let mut state = self.lock(py)?;
        let inner = state.inner(py)?;
        py.detach(|| inner.latest()).map_err(|error| of_step(py, &error))?;
        self.shown(py, state)
    }

    /// Puts actions into the queues of live lanes, and returns what `latest` returns.
    fn act<'py>(
        &self,
        py: Python<'py>,
        actions: &Bound<'py, PyAny>,
        lanes: Vec<u32>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let converted = self.converted(actions, lanes.len())?;
        let mut state = self.lock(py)?;
        let actions = column_data(&converted, self.action.dtype)?;
        let inner = state.inner(py)?;
        py.detach(|| inner.act(&lanes, actions.as_ref())).map_err(|error| of_step(py, &error))?;
        self.shown(py, state)
    }

    /// Has something happen to the clocks of live lanes, of all if `lanes` is empty, and returns the words for their states.
    /// `text` is that with which planning ends.
    fn pace(
        &self,
        py: Python<'_>,
        lanes: Vec<u32>,
        control: &str,
        number: u64,
        text: String,
    ) -> PyResult<Vec<String>> {
        let control = control_of(control, number, text)?;
        let mut state = self.lock(py)?;
        let inner = state.inner(py)?;
        let answers = py.detach(|| inner.control(&lanes, control)).map_err(|error| of_method(py, &error))?;
        Ok(answers.into_iter().flat_map(|answer| answer.states).collect())
    }

    /// Sends actions for some lanes.
    fn send<'py>(&self, py: Python<'py>, actions: &Bound<'py, PyAny>, lanes: Vec<u32>) -> PyResult<()> {
        let converted = self.converted(actions, lanes.len())?;
        let mut state = self.lock(py)?;
        // Copied before the interpreter lock is released: another thread may write to the array then.
        let actions = column_data(&converted, self.action.dtype)?;
        let inner = state.inner(py)?;
        let sent = py.detach(|| inner.send(&lanes, actions.as_ref()));
        sent.map_err(|error| of_step(py, &error))
    }

    /// Waits for lanes that were sent. `timeout` is in seconds.
    fn recv<'py>(
        &self,
        py: Python<'py>,
        least: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut state = self.lock(py)?;
        let least = least.unwrap_or_else(|| state.outstanding());
        let Some(received) = state.receive(py, least, timeout)? else {
            let timeout = timeout.unwrap_or_default();
            let message =
                format!("{least} lanes were not ready within timeout={timeout} s; they stay outstanding");
            return Err(PyTimeoutError::new_err(message));
        };
        state.look_for_moves(&self.attended.news);
        let newly_lost = state.look_for_losses(py, self)?;
        self.received(py, &mut state, &received, &newly_lost)
    }

    /// Begins a step of every lane with the actions in `actions`, the column in memory.
    fn begin_step(&self, py: Python<'_>) -> PyResult<()> {
        self.lock(py)?.engine(py)?.begin_step().map_err(|error| of_step(py, &error.into()))
    }

    /// Begins what `reset` does, of all lanes if `mask` is empty. `given` are bytes for the envs of workers, beside declared
    /// options.
    fn begin_reset(
        &self,
        py: Python<'_>,
        seeds: Vec<Option<u64>>,
        mask: Vec<bool>,
        given: Vec<u8>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let options = lane_options(py, options)?;
        let mut state = self.lock(py)?;
        state.inner(py)?.give(given);
        let begun = state.engine(py)?.begin_reset(&Reset { seeds, mask, options });
        // What was posted has been commanded, unless its worker is busy.
        begun.map_err(|error| of_step(py, &error.into()))
    }

    /// Waits until what was begun has ended, for at most `timeout` seconds. Returns whether it has.
    #[pyo3(signature = (timeout=None))]
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let mut state = self.lock(py)?;
        let engine = state.engine(py)?;
        let finished = wait(py, timeout, |patience| {
            engine.finish(patience).map_err(|error| Python::attach(|py| of_step(py, &error.into())))
        })?;
        if finished {
            state.inner(py)?.give(Vec::new());
        }
        Ok(finished)
    }

    /// Returns views of the newest frame: a list of the observation's columns, rewards, and which lanes terminated, were
    /// truncated, and began an episode.
    fn frame<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.lock(py)?.columns(py, self)
    }

    /// Waits as `recv` does. Returns None if the lanes are not done, else lanes and their rows as `frame` has them.
    #[pyo3(signature = (least, timeout=None))]
    fn recv_columns<'py>(
        &self,
        py: Python<'py>,
        least: usize,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let received = self.lock(py)?.receive(py, least, timeout)?;
        received.map(|rows| self.columns_of(py, &rows)).transpose()
    }

    /// Returns the lanes that are lost.
    fn lost(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        let mut state = self.lock(py)?;
        let inner = state.inner(py)?;
        Ok((0..self.lanes).filter(|&lane| inner.loss(lane).is_some()).collect())
    }

    /// Returns the number of lanes that are lost.
    #[getter]
    fn lost_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.inner(py)?.lost())
    }

    /// Returns the lanes that are lost for good. Results that were not received are dropped.
    fn failed(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        let states = self.lock(py)?.engine(py)?.lane_states().map_err(|error| of_step(py, &error.into()))?;
        Ok((0..self.lanes).filter(|&lane| states[lane] == LaneState::Failed).collect())
    }

    /// Makes lost lanes anew whose back-off is over.
    fn restart_lost(&self, py: Python<'_>) -> PyResult<()> {
        self.lock(py)?.engine(py)?.restart_lost().map_err(|error| of_step(py, &error.into()))
    }

    /// Sets the seconds that a lane may take for a step or a reset; None for ever.
    fn set_deadline(&self, py: Python<'_>, deadline: Option<f64>) -> PyResult<()> {
        let set = self.lock(py)?.engine(py)?.set_lane_deadlines(deadlines(deadline));
        set.map_err(|error| of_step(py, &error.into()))
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
            Lanes::Engine(engine, _) => note(py, engine, lanes.as_deref(), columns),
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
        Ok(self.lock(py)?.outstanding())
    }

    /// Ends open episodes as cancelled and waits until the recording is durable; `patience` is the seconds that envs of workers
    /// have to close themselves, None ends workers at once. Closing again does nothing.
    #[pyo3(signature = (patience=None))]
    fn close(&self, py: Python<'_>, patience: Option<f64>) -> PyResult<()> {
        let mut state = self.lock(py)?;
        let (inner, recording) = (state.inner.take(), state.recording.take());
        drop(state);
        let (closed, recorded) = py.detach(|| {
            let closed = inner.map_or(Ok(()), |inner| inner.close(duration(patience)));
            (closed, recording.map(Recording::finish).transpose())
        });
        closed.map_err(|error| match error {
            CloseError::Engine(error) => of_step(py, &error.into()),
            CloseError::Pool(error) => of_request(py, &error),
        })?;
        recorded.map_err(|error| exception(py, "RecordingError", chain(&error)))?;
        Ok(())
    }
}

impl NativeLanes {
    /// Takes the lanes out, for one who goes on with them: here they are closed then.
    pub(crate) fn take_lanes(&self, py: Python<'_>) -> PyResult<Lanes> {
        let mut state = self.lock(py)?;
        state.refuse_outstanding(py)?;
        state.inner.take().ok_or_else(|| lanes_state::closed(py))
    }

    /// Returns the shape of an action.
    pub(crate) const fn action(&self) -> &RowShape {
        &self.action
    }

    #[inline]
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, LanesState>> {
        self.home.check(py)?;
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
            let converted = self.converted(actions, self.lanes)?;
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

    /// Returns the newest frame as `step` does.
    fn shown<'py>(
        &self,
        py: Python<'py>,
        mut state: MutexGuard<'_, LanesState>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        state.look_for_moves(&self.attended.news);
        let newly_lost = state.look_for_losses(py, self)?;
        state.result(py, self, self.rules.copy, &newly_lost)
    }

    /// Reports the news to Python. What that raises is the caller's, whose lanes have not moved.
    #[cold]
    fn report_news(&self, py: Python<'_>) -> PyResult<()> {
        self.report.get().map_or(Ok(()), |report| report.call0(py).map(drop))
    }

    /// Returns actions of so many lanes as an array of the column's type.
    fn converted<'py>(&self, actions: &Bound<'py, PyAny>, lanes: usize) -> PyResult<Bound<'py, PyAny>> {
        match &self.convert {
            Some(convert) => convert.bind(actions.py()).call1((actions, lanes)),
            None => Ok(actions.clone()),
        }
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
        // Nobody is left to be told of errors.
        match inner {
            Some(inner) if recording.is_some() || inner.has_workers() => {
                let _closed = inner.close(None);
            }
            inner => drop(inner),
        }
        let _finished = recording.map(Recording::finish);
    }
}

/// Returns what happens to clocks by that word; some take a number of ticks or milliseconds.
fn control_of(word: &str, number: u64, text: String) -> PyResult<PaceControl> {
    Ok(match word {
        "look" => PaceControl::Look,
        "pause" => PaceControl::Pause,
        "resume" => PaceControl::Resume,
        "tick" => PaceControl::Tick(u32::try_from(number).unwrap_or(u32::MAX)),
        "plan" => PaceControl::Plan(number),
        "end_plan" => PaceControl::EndPlan(text),
        _ => return Err(PyValueError::new_err(format!("`{word}` is nothing that happens to a clock"))),
    })
}

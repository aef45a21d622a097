//! Lanes in worker processes as a Python object, behind `HostedVectorEnv`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use rollhouse_core::limits::{MAX_ENV_ID_BYTES, MAX_OBS_COLUMNS};
use rollhouse_core::{
    AutoresetMode, ColumnSpec, DeadlineSettings, Determinism, EnvSource, EnvSpec, LaneDeadlines, LaneState,
    MethodSpec, OptionSpec, Space,
};
use rollhouse_engine::{Engine, EngineConfig, Reset, StepError};
use rollhouse_host::{
    Cause, ConnectWatch, Environment, Gone, HostConfig, HostError, Launcher, MAX_MESSAGE_BYTES, Output,
    OwnWorkers, Places, Program, WorkerSocket, WorkerSource, check_options,
};
use rollhouse_replay::Beside;

use crate::actions::column_data;
use crate::arrays::{KeepAlive, RowShape};
use crate::attended::{Attended, HandOver};
use crate::commands::lane_options;
use crate::described::{action_space, info_channel, observation_space};
use crate::envs::checked_options;
use crate::failure::{chain, exception, of_config, of_method, of_step, one_at_a_time};
use crate::fork::Home;
use crate::keywords::keywords;
use crate::lanes::Lanes;
use crate::noting::{Declared, Noted, note, step_columns};
use crate::recording::{Played, Recording, RecordingWatch, rule_of};
use crate::worker_link::duration;
use crate::worker_rows::{received_rows, views};

/// Lanes of an engine that worker processes of this one's own step. What workers are told beside lanes, and what they
/// say beside rows, are bytes of the caller's.
///
/// One thread at a time may use it; a second one gets an error instead of waiting. In a forked child every method
/// raises. All calls that wait look after signals.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct WorkerLanes {
    workers: OwnWorkers,
    lanes: usize,
    home: Home,
    attended: Arc<Attended<Option<HeldEngine>>>,
}

/// The engine and what is made over its memory; it is there once the spaces are known.
struct HeldEngine {
    // Handed over before the recording ends.
    lanes: Lanes,
    recording: Option<Recording>,
    memory: Py<KeepAlive>,
    obs: Vec<RowShape>,
    action: RowShape,
    /// The arrays of the two slots, made when a slot is first shown.
    slots: [Option<Py<PyTuple>>; 2],
    actions: Option<Py<PyAny>>,
}

impl HandOver for Option<HeldEngine> {
    fn hand_over(&mut self, paused: Duration) -> bool {
        let Some(HeldEngine { lanes: Lanes::Engine(engine), recording: Some(recording), .. }) = self else {
            return false;
        };
        // An engine that hangs hands over nothing more.
        recording.run().is_behind() || engine.hand_over(paused).unwrap_or(false)
    }
}

impl HeldEngine {
    fn new(py: Python<'_>, spec: &EnvSpec, engine: Engine, recording: Option<Recording>) -> PyResult<Self> {
        let shape = |space: &Space| {
            let axes = || PyValueError::new_err(format!("columns of {} axes", space.shape().len()));
            RowShape::new(space.dtype(), space.shape()).ok_or_else(axes)
        };
        let obs = spec.observation_space.columns();
        Ok(Self {
            memory: KeepAlive::new(py, engine.memory())?,
            obs: obs.into_iter().map(|(_, space)| shape(space)).collect::<PyResult<_>>()?,
            action: shape(&spec.action_space)?,
            lanes: Lanes::Engine(Box::new(engine)),
            recording,
            slots: [None, None],
            actions: None,
        })
    }
}

keywords! {
    /// The lanes that are laid out.
    struct LayoutKeywords {
        id: String,
        observation: Py<PyAny>,
        action: Py<PyAny>,
        /// Infos that are recorded: name, dtype and shape.
        infos: Vec<(String, String, Vec<usize>)>,
        autoreset: String,
        max_episode_steps: Option<u32>,
        /// Seconds that a lane may take; None for ever.
        deadline: Option<f64>,
        data: Option<PathBuf>,
        record: String,
        frames_every: u64,
        step_columns: Vec<Declared>,
        /// What the env lists as its methods, as JSON.
        methods: String,
        /// Options that the env declares, as JSON.
        declared: String,
        /// Their values: of all lanes, or of each.
        options: Vec<Py<PyDict>>,
    }
}

/// Where workers come from: the executable that runs them and its arguments, or the folder in which they connect.
#[derive(FromPyObject)]
enum ProgramOrFolder {
    Program(Vec<OsString>),
    Folder(PathBuf),
}

/// A worker that ended: its index, "died", "hung", "launch" or "connect", and more about it.
type Lost = (usize, &'static str, String);

#[pymethods]
impl WorkerLanes {
    /// Starts workers. `program` is the executable and its arguments. There is one hello and one range of lanes for each
    /// worker. The `launches` are the number of workers that start now, and the most that start at a time.
    /// The `timeouts` of launching and of connecting are in seconds, None for ever. With `together` the lanes of a worker
    /// step together. A `program` that is one path is a folder, in which workers connect that others start.
    #[new]
    fn new(
        program: ProgramOrFolder,
        hellos: Vec<PyBackedBytes>,
        ranges: Vec<(usize, usize)>,
        launches: (usize, usize),
        timeouts: (Option<f64>, Option<f64>),
        together: bool,
    ) -> PyResult<Self> {
        let (launch_at_start, max_launching) = launches;
        let source = worker_source(program)?;
        if ranges.len() != hellos.len() {
            return Err(PyValueError::new_err(format!(
                "{} ranges for {} hellos",
                ranges.len(),
                hellos.len()
            )));
        }
        let config = HostConfig {
            source,
            hellos: hellos.iter().map(|hello| hello.to_vec()).collect(),
            launch_at_start,
            launch_deadline: duration(timeouts.0),
            connect_deadline: duration(timeouts.1),
            lane_deadlines: LaneDeadlines::default(),
            connect_watch: ConnectWatch::default(),
            launcher: Launcher::new(max_launching),
            max_answer_bytes: MAX_MESSAGE_BYTES,
        };
        let lanes = ranges.last().map_or(0, |&(_, end)| end);
        let ranges = ranges.into_iter().map(|(first, end)| first..end).collect();
        let workers = OwnWorkers::start(config, ranges).map_err(of_host)?;
        if together {
            workers.bind_lanes();
        }
        Ok(Self { workers, lanes, home: Home::here(), attended: Attended::new(None) })
    }

    /// Launches the workers that were not launched yet.
    fn launch_all(&self, py: Python<'_>) -> PyResult<()> {
        let _state = self.lock(py)?;
        self.workers.launch_all().map_err(of_host)
    }

    /// Waits until the workers that were launched have answered. Returns the one that was lost instead, if one was.
    fn made(&self, py: Python<'_>) -> PyResult<Option<Lost>> {
        let _state = self.lock(py)?;
        wait(py, None, |patience| self.workers.made(patience).map_err(of_host))?;
        Ok(self.workers.lost().map(lost))
    }

    /// Returns a worker's answer to its hello.
    fn answer<'py>(&self, py: Python<'py>, worker: usize) -> PyResult<Bound<'py, PyBytes>> {
        let answer = self.workers.answer(worker);
        let none = || PyRuntimeError::new_err(format!("worker {worker} has not answered"));
        answer.map(|answer| PyBytes::new(py, &answer)).ok_or_else(none)
    }

    /// Makes memory and engine for lanes with these spaces, as `described.rs` has them, and begins to record them into
    /// `data`, with pictures of every `frames_every`-th step. Returns for each worker the places of its lanes' records:
    /// a dict of bytes.
    #[pyo3(signature = (**keywords))]
    fn lay_out<'py>(
        &self,
        py: Python<'py>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let asked = LayoutKeywords::of(keywords)?;
        let mut state = self.lock(py)?;
        let max_episode_steps = asked.max_episode_steps;
        let spaces = (asked.observation.bind(py), asked.action.bind(py));
        let infos = asked.infos.into_iter().map(info_channel).collect::<PyResult<_>>()?;
        let spec = spec(asked.id, spaces, infos, max_episode_steps)?;
        let (methods, options) = (methods_of(&asked.methods)?, declared_options(&asked.declared)?);
        let spec = EnvSpec { methods, options, ..spec };
        let autoreset: AutoresetMode = asked
            .autoreset
            .parse()
            .map_err(|error| PyValueError::new_err(format!("autoreset_mode: {error}")))?;
        let config = EngineConfig {
            autoreset,
            // The envs have their own.
            max_episode_steps: Some(0),
            lane_deadlines: deadlines(asked.deadline),
            options: checked_options(py, &spec, &asked.options)?,
            ..EngineConfig::new(self.lanes)
        };
        let options = &config.options[..];
        let played = Played { spec: &spec, lanes: self.lanes, autoreset, options, max_episode_steps };
        let step_columns = step_columns(asked.step_columns)?;
        let beside = Beside { frames_every: asked.frames_every, step_columns, ..Beside::default() };
        let recording = match asked.data {
            Some(data) => Some(Recording::begin_run(py, &data, played, rule_of(&asked.record)?, beside)?),
            None => None,
        };
        let places = self.workers.lay_out(&spec).map_err(of_host)?;
        let entry = Arc::new(self.workers.entry(spec.clone()));
        let engine = Engine::new(&entry, config, recording.as_ref().map(Recording::run))
            .map_err(|error| of_config(py, &error))?;
        if let Some(recording) = &recording {
            recording.attend(&self.attended);
        }
        *state = Some(HeldEngine::new(py, &spec, engine, recording)?);
        places.into_iter().map(|places| places_dict(py, &places)).collect()
    }

    /// Gives workers their first command, and waits until their lanes can be used. Returns the worker that was lost
    /// instead, if one was.
    fn greet(&self, py: Python<'_>, setups: Vec<(usize, PyBackedBytes)>) -> PyResult<Option<Lost>> {
        let _state = self.lock(py)?;
        for (worker, setup) in setups {
            self.workers.greet(worker, setup.to_vec());
        }
        wait(py, None, |patience| self.workers.greeted(patience).map_err(of_host))?;
        Ok(self.workers.lost().map(lost))
    }

    /// Returns the column of actions, to be written before a step.
    #[getter]
    fn actions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut state = self.enter(py)?;
        let HeldEngine { lanes, memory, action, actions, .. } = state.inner(py)?;
        if let Some(actions) = actions {
            return Ok(actions.bind(py).clone());
        }
        let column = lanes.actions().map_err(|error| of_step(py, &error))?;
        // SAFETY: the column lies in the engine's memory, which `memory` holds, with one row per lane. It is handed to
        // `HostedVectorEnv` alone, which writes to it between calls; no reference into it lives while Python runs.
        let array = unsafe { action.view_mut(column, self.lanes, memory.bind(py)) }?;
        *actions = Some(array.clone().unbind());
        Ok(array)
    }

    /// Begins a step of every lane with the actions in `actions`.
    fn begin_step(&self, py: Python<'_>) -> PyResult<()> {
        self.enter(py)?.engine(py)?.begin_step().map_err(|error| of_step(py, &error.into()))
    }

    /// Begins a reset of the lanes of `mask`, of all if it is empty. `given` are bytes for the envs of lanes without declared
    /// options; `options` are declared ones, with a list of one value for all lanes or of one for each.
    fn begin_reset(
        &self,
        py: Python<'_>,
        seeds: Vec<Option<u64>>,
        mask: Vec<bool>,
        given: Vec<u8>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let options = lane_options(py, options)?;
        let mut state = self.enter(py)?;
        self.workers.set_options(given);
        let reset = Reset { seeds, mask, options };
        let begun = state.engine(py)?.begin_reset(&reset);
        // What was posted has been commanded, unless its worker is busy.
        begun.map_err(|error| of_step(py, &error.into()))
    }

    /// Waits until what was begun has ended, for at most `timeout` seconds. Returns whether it has.
    #[pyo3(signature = (timeout=None))]
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let mut state = self.enter(py)?;
        let finished = finish(py, state.engine(py)?, timeout)?;
        if finished {
            self.workers.set_options(Vec::new());
        }
        Ok(finished)
    }

    /// Returns views of the newest frame: a list of the observation's columns, rewards, and as uint8 which lanes
    /// terminated, were truncated, and began an episode.
    fn frame<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let mut state = self.enter(py)?;
        let HeldEngine { lanes, memory, obs, slots, .. } = state.inner(py)?;
        let frame = lanes.frame().map_err(|error| of_step(py, &error))?;
        let slot = &mut slots[frame.slot_index()];
        match slot {
            Some(views) => Ok(views.bind(py).clone()),
            None => {
                let views = views(memory.bind(py), frame, obs)?;
                *slot = Some(views.clone().unbind());
                Ok(views)
            }
        }
    }

    /// Sends lanes with their actions, one row each of an array of the column's type.
    fn send(&self, py: Python<'_>, actions: &Bound<'_, PyAny>, lanes: Vec<u32>) -> PyResult<()> {
        let mut state = self.enter(py)?;
        let rows = column_data(actions, state.inner(py)?.action.dtype)?;
        state.engine(py)?.send(&lanes, rows.as_ref()).map_err(|error| of_step(py, &error.into()))
    }

    /// Waits until `least` lanes that were sent are done, for at most `timeout` seconds. Returns None if they are not, else
    /// lanes, the columns of their observations, rewards and flags as `frame` has them.
    #[pyo3(signature = (least, timeout=None))]
    fn recv<'py>(
        &self,
        py: Python<'py>,
        least: usize,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let mut state = self.enter(py)?;
        let engine = state.engine(py)?;
        let mut received = None;
        wait(py, timeout, |patience| match engine.recv(least, patience) {
            Ok(rows) => {
                received = Some(rows);
                Ok(true)
            }
            Err(StepError::TimedOut) => Ok(false),
            Err(error) => Python::attach(|py| Err(of_step(py, &error.into()))),
        })?;
        let Some(rows) = received else { return Ok(None) };
        let obs = &state.inner(py)?.obs;
        Some(received_rows(py, &rows, obs)).transpose()
    }

    /// Returns what lanes said of their last rows, those of `lanes` or all: (lane, words about a step or None, words about
    /// the beginning of an episode or None). It is told once.
    #[pyo3(signature = (lanes=None))]
    fn said<'py>(&self, py: Python<'py>, lanes: Option<Vec<u32>>) -> PyResult<Bound<'py, PyList>> {
        let _state = self.lock(py)?;
        if let Some(lane) = lanes.iter().flatten().find(|&&lane| lane as usize >= self.lanes) {
            return Err(PyValueError::new_err(format!("lane {lane} of {} lanes", self.lanes)));
        }
        let bytes = |words: Option<Vec<u8>>| words.map(|words| PyBytes::new(py, &words));
        let said = self.workers.take_said(lanes.as_deref());
        PyList::new(py, said.into_iter().map(|one| (one.lane, bytes(one.stepped), bytes(one.begun))))
    }

    /// Gives a lane an action beside its column, for the step that is begun or sent next.
    fn set_item(&self, lane: usize, item: Vec<u8>) -> PyResult<()> {
        self.check_lane(lane)?;
        self.workers.set_item(lane, item);
        Ok(())
    }

    /// Returns the lanes that are lost.
    fn lost(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        let mut state = self.enter(py)?;
        let engine = state.engine(py)?;
        Ok((0..self.lanes).filter(|&lane| engine.is_lost(lane)).collect())
    }

    /// Returns the lanes that are lost for good. Results that were not received are dropped.
    fn failed(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        let states = self.enter(py)?.engine(py)?.lane_states().map_err(|error| of_step(py, &error.into()))?;
        Ok((0..self.lanes).filter(|&lane| states[lane] == LaneState::Failed).collect())
    }

    /// Returns the number of lanes that are lost.
    #[getter]
    fn lost_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.enter(py)?.engine(py)?.lost())
    }

    /// Returns how and why a lane was lost the last time: whether something was late, what is known of its worker's end, and
    /// what the lane said itself.
    fn why<'py>(&self, py: Python<'py>, lane: usize) -> PyResult<(bool, String, Bound<'py, PyBytes>)> {
        self.check_lane(lane)?;
        let why = self.workers.why(lane);
        Ok((why.hung, why.detail, PyBytes::new(py, &why.raised)))
    }

    /// Makes lost lanes anew whose back-off is over.
    fn restart_lost(&self, py: Python<'_>) -> PyResult<()> {
        self.enter(py)?.engine(py)?.restart_lost().map_err(|error| of_step(py, &error.into()))
    }

    /// Waits for a moment in which a worker may come back.
    fn look_after(&self, py: Python<'_>) -> PyResult<()> {
        let _state = self.lock(py)?;
        let coming = self.workers.are_coming();
        py.detach(|| {
            if coming {
                return self.workers.look_after(LOOK_FOR_SIGNALS).map_err(of_host);
            }
            std::thread::sleep(LOOK_FOR_SIGNALS);
            Ok(())
        })?;
        py.check_signals()
    }

    /// Sets the seconds that a lane may take for a step or a reset.
    fn set_deadline(&self, py: Python<'_>, deadline: Option<f64>) -> PyResult<()> {
        let deadlines = deadlines(deadline);
        let mut state = self.enter(py)?;
        state.engine(py)?.set_lane_deadlines(deadlines).map_err(|error| of_step(py, &error.into()))
    }

    /// Waits until no worker has anything to do, for at most `timeout` seconds. Returns whether that is so.
    #[pyo3(signature = (timeout=None))]
    fn quiet(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let _state = self.lock(py)?;
        wait(py, timeout, |patience| self.workers.quiet(patience).map_err(of_host))
    }

    /// Gives each worker a call, to be answered within `timeout` seconds.
    fn call(&self, py: Python<'_>, payloads: Vec<Vec<u8>>, timeout: Option<f64>) -> PyResult<()> {
        let _state = self.lock(py)?;
        self.workers.call(&payloads, duration(timeout)).map_err(of_host)
    }

    /// Waits until each worker has answered its call, for at most `timeout` seconds. Returns None if they have not, else for
    /// each the answer, or how it was lost.
    #[pyo3(signature = (timeout=None))]
    fn answers<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let _state = self.lock(py)?;
        let mut answers = None;
        wait(py, timeout, |patience| {
            answers = self.workers.answers(patience).map_err(of_host)?;
            Ok(answers.is_some())
        })?;
        let of = |answer: Result<Vec<u8>, Gone>| match answer {
            Ok(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
            Err(gone) => Ok(lost(gone).into_pyobject(py)?.into_any()),
        };
        answers.map(|answers| answers.into_iter().map(of).collect()).transpose()
    }

    /// Returns what the lanes have done: one JSON object in a list.
    fn statistics(&self, py: Python<'_>) -> PyResult<String> {
        let mut state = self.enter(py)?;
        let lanes = &mut state.inner(py)?.lanes;
        let statistics = py.detach(|| lanes.statistics()).map_err(|error| of_method(py, &error))?;
        serde_json::to_string(&statistics).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Calls a method of a lane's env, with a text of JSON; returns another.
    fn call_lane(&self, py: Python<'_>, lane: usize, method: &str, payload: &str) -> PyResult<String> {
        let mut state = self.enter(py)?;
        let lanes = &mut state.inner(py)?.lanes;
        py.detach(|| lanes.call(lane, method, payload)).map_err(|error| of_method(py, &error))
    }

    /// Says which version of the policy chooses the actions from now on.
    fn set_policy_version(&self, py: Python<'_>, version: u64) -> PyResult<()> {
        self.enter(py)?.engine(py)?.set_policy_version(version);
        Ok(())
    }

    /// Notes values of step columns for the next steps of `lanes`, or of all lanes.
    fn note<'py>(&self, py: Python<'py>, lanes: Option<Vec<u32>>, columns: Vec<Noted<'py>>) -> PyResult<()> {
        note(py, self.enter(py)?.engine(py)?, lanes.as_deref(), columns)
    }

    /// Returns the folder into which it records, the run's UUID and a watch of it, if it does.
    #[getter]
    fn place(&self, py: Python<'_>) -> PyResult<Option<(PathBuf, String, RecordingWatch)>> {
        let state = self.lock(py)?;
        Ok(state.as_ref().and_then(|state| state.recording.as_ref()).map(Recording::place))
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

    /// Returns the process ids of the workers that have a process.
    fn process_ids(&self) -> Vec<u32> {
        self.workers.process_ids()
    }

    /// Ends the lanes; `patience` is the seconds that envs have to close themselves, None ends the workers at once. Waits
    /// until what was recorded is durable. Closing again does nothing.
    fn close(&self, py: Python<'_>, patience: Option<f64>) -> PyResult<()> {
        let mut state = self.lock(py)?;
        let taken = state.take();
        let ended =
            py.detach(|| end(&self.workers, taken, patience.and_then(|patience| duration(Some(patience)))));
        ended.map_err(|message| exception(py, "RecordingError", message))?;
        Ok(())
    }
}

/// Ends workers, engine and recording.
fn end(
    workers: &OwnWorkers,
    state: Option<HeldEngine>,
    patience: Option<Duration>,
) -> Result<Option<rollhouse_replay::Recorded>, String> {
    let Some(HeldEngine { lanes, recording, .. }) = state else {
        workers.end(patience);
        return Ok(None);
    };
    if patience.is_none() {
        // What is under way fails by it, and is not waited for.
        workers.end(None);
    }
    if let Lanes::Engine(engine) = lanes {
        // It hands over what it has recorded; that lanes are lost is no error.
        let _closed = engine.close();
    }
    workers.end(patience);
    recording.map(Recording::finish).transpose().map_err(|error| chain(&error))
}

impl WorkerLanes {
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<HeldEngine>>> {
        if !self.home.is_here() {
            let message = "made in another process, of which this is a forked child; make another one here";
            return Err(exception(py, "ForkedError", message.to_owned()));
        }
        one_at_a_time(self.attended.try_lock())
    }

    fn enter(&self, py: Python<'_>) -> PyResult<Inside<'_>> {
        self.lock(py).map(Inside)
    }

    fn check_lane(&self, lane: usize) -> PyResult<()> {
        if lane < self.lanes {
            return Ok(());
        }
        Err(PyValueError::new_err(format!("lane {lane} of {} lanes", self.lanes)))
    }
}

/// The state while a thread uses it.
struct Inside<'a>(MutexGuard<'a, Option<HeldEngine>>);

impl Inside<'_> {
    fn inner(&mut self, py: Python<'_>) -> PyResult<&mut HeldEngine> {
        self.0.as_mut().ok_or_else(|| exception(py, "ClosedError", "this vector env is closed".to_owned()))
    }

    fn engine(&mut self, py: Python<'_>) -> PyResult<&mut Engine> {
        match &mut self.inner(py)?.lanes {
            Lanes::Engine(engine) => Ok(engine),
            Lanes::Pool(_) => Err(PyRuntimeError::new_err("lanes of a pool have no workers here")),
        }
    }
}

impl Drop for WorkerLanes {
    /// Ends lanes that were not closed. What was played until now is written, if they are recorded.
    fn drop(&mut self) {
        if self.home.is_here() {
            let state = self.attended.lock_last().take();
            // Nobody is left to be told of errors.
            let _ended = end(&self.workers, state, None);
        } else {
            // What would have to be ended is the parent's.
            std::mem::forget((Arc::clone(&self.attended), self.workers.clone()));
        }
    }
}

/// Returns where workers come from.
fn worker_source(program: ProgramOrFolder) -> PyResult<WorkerSource> {
    let mut program = match program {
        ProgramOrFolder::Program(program) => program.into_iter(),
        ProgramOrFolder::Folder(folder) => {
            let bound = WorkerSocket::bind(&folder);
            let failed = |error| PyOSError::new_err(format!("listen={}: {error}", folder.display()));
            return bound.map(WorkerSource::Socket).map_err(failed);
        }
    };
    let path = program.next().ok_or_else(|| PyValueError::new_err("program: it has no executable"))?;
    Ok(WorkerSource::Program(Program {
        path,
        arguments: program.collect(),
        environment: Environment::Inherited,
        output: Output::Inherited,
        memory: None,
    }))
}

fn spec(
    id: String,
    (observation, action): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    info_channels: Vec<ColumnSpec>,
    max_episode_steps: Option<u32>,
) -> PyResult<EnvSpec> {
    if id.len() > MAX_ENV_ID_BYTES {
        let message = format!("the env id {id:?} is longer than {MAX_ENV_ID_BYTES} bytes");
        return Err(PyValueError::new_err(message));
    }
    let observation_space = observation_space(observation, 0)?;
    let columns = observation_space.columns().len();
    if columns == 0 || columns > MAX_OBS_COLUMNS {
        let message = format!("observations of {columns} columns; 1 to {MAX_OBS_COLUMNS} are possible");
        return Err(PyValueError::new_err(message));
    }
    let action_space = action_space(action)?;
    let action_names = match &action_space {
        Space::Box(carrier) => carrier.part_names(),
        Space::Discrete(_) => Vec::new(),
    };
    Ok(EnvSpec {
        source: EnvSource::of_id(&id),
        id,
        summary: "a Python env".to_owned(),
        observation_space,
        action_space,
        observation_names: Vec::new(),
        action_names,
        max_episode_steps,
        determinism: Determinism::NonDeterministic,
        methods: Vec::new(),
        options: Vec::new(),
        info_channels,
        // Of an env whose dynamics nobody hashes.
        dynamics_hash: 0,
    })
}

/// Reads what an env lists as its methods.
fn methods_of(listed: &str) -> PyResult<Vec<MethodSpec>> {
    let methods: Vec<MethodSpec> =
        serde_json::from_str(listed).map_err(|error| PyValueError::new_err(format!("methods: {error}")))?;
    MethodSpec::check_all(&methods).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(methods)
}

fn declared_options(listed: &str) -> PyResult<Vec<OptionSpec>> {
    let options: Vec<OptionSpec> =
        serde_json::from_str(listed).map_err(|error| PyValueError::new_err(format!("options: {error}")))?;
    check_options(&options)
        .map_err(|error| PyValueError::new_err(format!("metadata['options']: {error}")))?;
    Ok(options)
}

/// Converts the places of a worker's records to a dict.
fn places_dict<'py>(py: Python<'py>, places: &Places) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("stride", places.stride)?;
    dict.set_item("reward", places.reward)?;
    dict.set_item("verdict", places.verdict)?;
    dict.set_item("action", places.action)?;
    dict.set_item("observation", &places.observation)?;
    dict.set_item("infos", &places.infos)?;
    dict.set_item("said", places.said)?;
    dict.set_item("ahead", places.ahead)?;
    Ok(dict)
}

/// Waits until what was begun has ended.
fn finish(py: Python<'_>, engine: &mut Engine, timeout: Option<f64>) -> PyResult<bool> {
    wait(py, timeout, |patience| {
        engine.finish(patience).map_err(|error| Python::attach(|py| of_step(py, &error.into())))
    })
}

/// Calls `attempt` without the interpreter lock, for at most a moment each time, until it returns true or `timeout` seconds
/// are over. Signals are looked after meanwhile. Returns whether it did.
fn wait(
    py: Python<'_>,
    timeout: Option<f64>,
    mut attempt: impl FnMut(Duration) -> PyResult<bool> + Send,
) -> PyResult<bool> {
    let deadline = duration(timeout).map(|timeout| Instant::now() + timeout);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = left.unwrap_or(LOOK_FOR_SIGNALS).min(LOOK_FOR_SIGNALS);
        if py.detach(|| attempt(slice))? {
            return Ok(true);
        }
        py.check_signals()?;
        if left.is_some_and(|left| left <= slice) {
            return Ok(false);
        }
    }
}

fn lost(gone: Gone) -> Lost {
    let cause = match gone.cause {
        Cause::Died => "died",
        Cause::Hung => "hung",
        Cause::LaunchTimedOut => "launch",
        Cause::ConnectTimedOut => "connect",
    };
    (gone.worker, cause, gone.detail)
}

/// Converts a deadline in seconds; None is longer than any process lives.
/// Returns the deadlines of lanes that may take so many seconds for what they do next, a step or a reset.
fn deadlines(seconds: Option<f64>) -> LaneDeadlines {
    let both = LaneDeadlines::both(duration(seconds).unwrap_or(FOR_EVER));
    LaneDeadlines { settings: Some(DeadlineSettings::OF_VECTORIZE), ..both }
}

fn of_host(error: HostError) -> PyErr {
    let message = chain(&error);
    Python::attach(|py| match error {
        HostError::Workers(_) | HostError::TooLong(_) | HostError::TooLarge { .. } => {
            PyValueError::new_err(message)
        }
        HostError::Os(_) => PyOSError::new_err(message),
        HostError::Forked => exception(py, "ForkedError", message),
        HostError::Ended => exception(py, "ClosedError", message),
        HostError::NotIdle(_) => PyRuntimeError::new_err(message),
    })
}

/// Time between two looks whether Ctrl-C was pressed.
const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(50);
const FOR_EVER: Duration = Duration::from_secs(1_000_000_000);

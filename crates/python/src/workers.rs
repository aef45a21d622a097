//! Worker processes as a Python object, and the lanes that they step: behind `HostedVectorEnv`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};
use rollhouse_core::limits::{MAX_ENV_ID_BYTES, MAX_OBS_COLUMNS};
use rollhouse_core::{
    AutoresetMode, ColumnSpec, Determinism, EnvSource, EnvSpec, LaneDeadlines, MethodSpec, OptionSpec, Space,
};
use rollhouse_engine::{Engine, EngineConfig};
use rollhouse_host::{
    Cause, ConnectWatch, Environment, Gone, HostConfig, HostError, Launcher, MAX_MESSAGE_BYTES, Output,
    OwnWorkers, Places, Program, WorkerSocket, WorkerSource, check_options,
};
use rollhouse_replay::Beside;

use crate::described::{action_space, info_channel, observation_space};
use crate::engine::{NativeLanes, Rules, autoreset_of};
use crate::envs::checked_options;
use crate::failure::{chain, exception, of_config, one_at_a_time};
use crate::fork::Home;
use crate::keywords::keywords;
use crate::lanes::Lanes;
use crate::noting::{Declared, step_columns};
use crate::recording::{Played, Recording, rule_of};
use crate::waiting::{LOOK_FOR_SIGNALS, deadlines, wait};
use crate::worker_link::duration;

/// Worker processes of this one's own. What they are told beside lanes, and what they say beside rows, are bytes of the
/// caller's.
///
/// One thread at a time may use it; a second one gets an error instead of waiting. In a forked child every method
/// raises. All calls that wait look after signals.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct NativeWorkers {
    workers: OwnWorkers,
    lanes: usize,
    home: Home,
    turn: Mutex<()>,
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
impl NativeWorkers {
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
        Ok(Self { workers, lanes, home: Home::here(), turn: Mutex::new(()) })
    }

    /// Launches the workers that were not launched yet.
    fn launch_all(&self, py: Python<'_>) -> PyResult<()> {
        let _turn = self.lock(py)?;
        self.workers.launch_all().map_err(of_host)
    }

    /// Waits until the workers that were launched have answered. Returns the one that was lost instead, if one was.
    fn made(&self, py: Python<'_>) -> PyResult<Option<Lost>> {
        let _turn = self.lock(py)?;
        wait(py, None, |patience| self.workers.made(patience).map_err(of_host))?;
        Ok(self.workers.lost().map(lost))
    }

    /// Returns a worker's answer to its hello.
    fn answer<'py>(&self, py: Python<'py>, worker: usize) -> PyResult<Bound<'py, PyBytes>> {
        let answer = self.workers.answer(worker);
        let none = || PyRuntimeError::new_err(format!("worker {worker} has not answered"));
        answer.map(|answer| PyBytes::new(py, &answer)).ok_or_else(none)
    }

    /// Makes lanes with these spaces, as `described.rs` has them, and begins to record them into `data`, with pictures of
    /// every `frames_every`-th step. Returns them, and for each worker the places of its lanes' records: a dict of bytes.
    #[pyo3(signature = (**keywords))]
    fn lay_out<'py>(
        &self,
        py: Python<'py>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<(NativeLanes, Vec<Bound<'py, PyDict>>)> {
        let asked = LayoutKeywords::of(keywords)?;
        let _turn = self.lock(py)?;
        let max_episode_steps = asked.max_episode_steps;
        let spaces = (asked.observation.bind(py), asked.action.bind(py));
        let infos = asked.infos.into_iter().map(info_channel).collect::<PyResult<_>>()?;
        let spec = spec(asked.id, spaces, infos, max_episode_steps)?;
        let (methods, options) = (methods_of(&asked.methods)?, declared_options(&asked.declared)?);
        let spec = EnvSpec { methods, options, ..spec };
        let autoreset = autoreset_of(&asked.autoreset)?;
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
        let inner = Lanes::Engine(Box::new(engine), Some(self.workers.clone()));
        let rules = Rules::of_columns(autoreset == AutoresetMode::SameStep);
        let lanes = NativeLanes::of(py, &spec, inner, rules, None, recording)?;
        let places = places.into_iter().map(|places| places_dict(py, &places)).collect::<PyResult<_>>()?;
        Ok((lanes, places))
    }

    /// Gives workers their first command, and waits until their lanes can be used. Returns the worker that was lost
    /// instead, if one was.
    fn greet(&self, py: Python<'_>, setups: Vec<(usize, PyBackedBytes)>) -> PyResult<Option<Lost>> {
        let _turn = self.lock(py)?;
        for (worker, setup) in setups {
            self.workers.greet(worker, setup.to_vec());
        }
        wait(py, None, |patience| self.workers.greeted(patience).map_err(of_host))?;
        Ok(self.workers.lost().map(lost))
    }

    /// Returns what lanes said of their last rows, those of `lanes` or all: (lane, words about a step or None, words about
    /// the beginning of an episode or None). It is told once.
    #[pyo3(signature = (lanes=None))]
    fn said<'py>(&self, py: Python<'py>, lanes: Option<Vec<u32>>) -> PyResult<Bound<'py, PyList>> {
        let _turn = self.lock(py)?;
        lanes.iter().flatten().try_for_each(|&lane| self.check_lane(lane as usize))?;
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

    /// Returns how and why a lane was lost the last time: whether something was late, what is known of its worker's end, and
    /// what the lane said itself.
    fn why<'py>(&self, py: Python<'py>, lane: usize) -> PyResult<(bool, String, Bound<'py, PyBytes>)> {
        self.check_lane(lane)?;
        let why = self.workers.why(lane);
        Ok((why.hung, why.detail, PyBytes::new(py, &why.raised)))
    }

    /// Waits for a moment in which a worker may come back.
    fn look_after(&self, py: Python<'_>) -> PyResult<()> {
        let _turn = self.lock(py)?;
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

    /// Waits until no worker has anything to do, for at most `timeout` seconds. Returns whether that is so.
    #[pyo3(signature = (timeout=None))]
    fn quiet(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let _turn = self.lock(py)?;
        wait(py, timeout, |patience| self.workers.quiet(patience).map_err(of_host))
    }

    /// Gives each worker a call, to be answered within `timeout` seconds.
    fn call(&self, py: Python<'_>, payloads: Vec<Vec<u8>>, timeout: Option<f64>) -> PyResult<()> {
        let _turn = self.lock(py)?;
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
        let _turn = self.lock(py)?;
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

    /// Returns the process ids of the workers that have a process.
    fn process_ids(&self) -> Vec<u32> {
        self.workers.process_ids()
    }

    /// Ends the workers; `patience` is the seconds that envs have to close themselves, None ends them at once. Ending them again
    /// does nothing.
    fn close(&self, py: Python<'_>, patience: Option<f64>) -> PyResult<()> {
        let _turn = self.lock(py)?;
        py.detach(|| self.workers.end(duration(patience)));
        Ok(())
    }
}

impl NativeWorkers {
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, ()>> {
        self.home.check(py)?;
        one_at_a_time(self.turn.try_lock())
    }

    fn check_lane(&self, lane: usize) -> PyResult<()> {
        if lane < self.lanes {
            return Ok(());
        }
        Err(PyValueError::new_err(format!("lane {lane} of {} lanes", self.lanes)))
    }
}

impl Drop for NativeWorkers {
    fn drop(&mut self) {
        if self.home.is_here() {
            self.workers.end(None);
        } else {
            // What would have to be ended is the parent's.
            std::mem::forget(self.workers.clone());
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

fn lost(gone: Gone) -> Lost {
    let cause = match gone.cause {
        Cause::Died => "died",
        Cause::Hung => "hung",
        Cause::LaunchTimedOut => "launch",
        Cause::ConnectTimedOut => "connect",
    };
    (gone.worker, cause, gone.detail)
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

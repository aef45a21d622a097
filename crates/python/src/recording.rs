//! Records what the lanes of Python's vector envs play.
//!
//! A data folder has one writer at a time, and a training job often has several processes: each process writes
//! to a folder of its own inside the data folder, which all vector envs of the process share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rollhouse_core::{AutoresetMode, EnvSpec, Options, RecordRule, RunId, SeedSchedule, StepColumns};
use rollhouse_engine::EngineConfig;
use rollhouse_replay::{
    Beside, PolicyInfo, RealDisk, RecordError, Recorded, Recorder, RecorderConfig, RecorderWatch, RunHeader,
    RunRecorder, Status,
};

use crate::attended::{Attended, HandOver, Keeper};
use crate::failure::{chain, exception};
use crate::fork::Home;
use crate::news::why_of;

/// The folders this process records into, by data folder.
static FOLDERS: Mutex<BTreeMap<PathBuf, Weak<Folder>>> = Mutex::new(BTreeMap::new());

/// This process's own folder inside a data folder.
#[derive(Debug)]
struct Folder {
    recorder: Recorder,
    path: PathBuf,
    home: Home,
    keeper: Keeper,
}

/// What a recording has come to, at any time and on any thread: of all vector envs of this process that record into its
/// folder.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct RecordingWatch {
    watch: RecorderWatch,
    home: Home,
}

#[pymethods]
impl RecordingWatch {
    /// Returns the counts so far: a dict of numbers, and of what is wrong.
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if !self.home.is_here() {
            let message =
                "made in another process, of which this is a forked child; the recording is that one's";
            return Err(exception(py, "ForkedError", message.to_owned()));
        }
        figures(py, &self.watch.status())
    }
}

/// The recording of one vector env.
#[derive(Debug)]
pub(crate) struct Recording {
    run: RunRecorder,
    folder: Arc<Folder>,
    pub(crate) id: RunId,
}

/// The lanes of a run, and the rules by which they are played.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Played<'a> {
    pub(crate) spec: &'a EnvSpec,
    pub(crate) lanes: usize,
    pub(crate) autoreset: AutoresetMode,
    /// One entry for all lanes or one per lane, none for the defaults.
    pub(crate) options: &'a [Options],
    /// The limit that applies.
    pub(crate) max_episode_steps: Option<u32>,
}

/// Returns the rule by which episodes are recorded, in the words of the command line.
pub(crate) fn rule_of(record: &str) -> PyResult<RecordRule> {
    record.parse().map_err(|error| PyValueError::new_err(format!("record={record:?}: {error}")))
}

impl Recording {
    /// Begins the run of an engine in this process's folder inside `data`, which is made if it is not there.
    pub(crate) fn begin(
        py: Python<'_>,
        data: &Path,
        record: RecordRule,
        spec: &EnvSpec,
        config: &EngineConfig,
        step_columns: StepColumns,
    ) -> PyResult<Self> {
        let limit = match config.max_episode_steps {
            None => spec.max_episode_steps,
            Some(limit) => (limit > 0).then_some(limit),
        };
        let played = Played {
            spec,
            lanes: config.lanes,
            autoreset: config.autoreset,
            options: &config.options,
            max_episode_steps: limit,
        };
        Self::begin_run(py, data, played, record, Beside { step_columns, ..Beside::default() })
    }

    /// Begins a run in this process's folder inside `data`, which is made if it is not there. `beside` says what
    /// is recorded beside steps.
    pub(crate) fn begin_run(
        py: Python<'_>,
        data: &Path,
        played: Played<'_>,
        record: RecordRule,
        beside: Beside,
    ) -> PyResult<Self> {
        let Played { spec, lanes, autoreset, options, max_episode_steps } = played;
        let id = RunId::generate();
        let header = RunHeader {
            run: id,
            options: match options {
                // The defaults of a schema always pass its own check.
                [] => vec![Options::check(&spec.options, &[]).unwrap_or_default()],
                given => given.to_vec(),
            },
            lanes: lanes as u32,
            schedule: SeedSchedule::Continue,
            autoreset: autoreset.name().to_owned(),
            max_episode_steps,
            // The caller chooses; which policy that is, nobody says.
            policy: PolicyInfo { name: "external".to_owned(), version: 0 },
            record,
            program: PROGRAM.to_owned(),
            started_ms: wall_ms(),
            parent: None,
            arguments: String::new(),
            spec: spec.clone(),
        };
        let begun = py.detach(|| {
            let folder = folder(data)?;
            let run = folder.recorder.begin_run_with(header, beside).map_err(|error| chain(&error))?;
            Ok(Self { run, folder, id })
        });
        begun.map_err(|message: String| {
            let message = format!("data={}: cannot record: {message}", data.display());
            exception(py, "RecordingError", message)
        })
    }

    pub(crate) fn run(&self) -> &RunRecorder {
        &self.run
    }

    fn path(&self) -> &Path {
        &self.folder.path
    }

    fn watch(&self) -> RecordingWatch {
        RecordingWatch { watch: self.folder.recorder.watch(), home: self.folder.home }
    }

    /// Returns the folder, the run, and a watch of the recording.
    pub(crate) fn place(&self) -> (PathBuf, String, RecordingWatch) {
        (self.path().into(), self.id.to_string(), self.watch())
    }

    /// Has pauses of what is recorded attended to.
    pub(crate) fn attend<T: HandOver + 'static>(&self, attended: &Arc<Attended<T>>) {
        attended.keep_by(&self.folder.keeper);
    }

    /// Waits until everything that was handed over is durable. Blocks for the disk. What was lost in it is news then.
    pub(crate) fn finish(self) -> Result<Recorded, RecordError> {
        drop(self.run);
        match Arc::try_unwrap(self.folder) {
            Ok(Folder { recorder, keeper, .. }) => {
                let finished = recorder.finish();
                keeper.look_at_disk();
                finished
            }
            // Other vector envs of the process still record there.
            Err(folder) => {
                let synced = folder.recorder.sync();
                folder.keeper.look_at_disk();
                synced
            }
        }
    }
}

/// Converts what was recorded, and what is wrong, to a dict.
fn figures<'py>(py: Python<'py>, status: &Status) -> PyResult<Bound<'py, PyDict>> {
    let recorded = &status.recorded;
    let dict = PyDict::new(py);
    dict.set_item("episodes", recorded.episodes)?;
    dict.set_item("steps", recorded.steps)?;
    dict.set_item("bytes", recorded.bytes)?;
    dict.set_item("raw_bytes", recorded.raw_bytes)?;
    dict.set_item("lost_episodes", recorded.lost_episodes)?;
    dict.set_item("lost_frames", recorded.lost_frames)?;
    dict.set_item("dropped_segments", recorded.dropped_segments)?;
    dict.set_item("stalled_seconds", recorded.stalled.as_secs_f64())?;
    dict.set_item("failing_since", status.failing_since_ms.map(|ms| ms as f64 / 1000.0))?;
    dict.set_item("failure", status.failing.then(|| why_of(status.error.as_ref())))?;
    dict.set_item("free_bytes", status.room.map(|room| room.free))?;
    Ok(dict)
}

/// Returns the folder of this process inside `data`, shared by all envs that record there now.
fn folder(data: &Path) -> Result<Arc<Folder>, String> {
    let data = std::path::absolute(data).map_err(|error| error.to_string())?;
    let mut folders = FOLDERS.lock();
    folders.retain(|_, folder| folder.strong_count() > 0);
    if let Some(folder) = folders.get(&data).and_then(Weak::upgrade)
        && folder.home.is_here()
    {
        return Ok(folder);
    }
    // The time makes names sort by age, the process tells those of one job apart.
    let path = data.join(format!("python-{}-{}", wall_ms(), std::process::id()));
    let recorder = Recorder::open(Arc::new(RealDisk), &path, RecorderConfig::default())
        .map_err(|error| chain(&error))?;
    let keeper = Keeper::start(recorder.watch());
    let folder = Arc::new(Folder { recorder, path, home: Home::here(), keeper });
    folders.insert(data, Arc::downgrade(&folder));
    Ok(folder)
}

/// Returns the wall clock in milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The program's name and version in recordings.
const PROGRAM: &str = concat!("rollhouse-python ", env!("CARGO_PKG_VERSION"));

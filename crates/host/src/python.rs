//! Python envs as lanes of the engine.

use std::ffi::OsString;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollhouse_core::limits::{MAX_ENV_ID_BYTES, MAX_ENV_KWARGS_BYTES};
use rollhouse_core::{Determinism, EnvKind, EnvSpec};
use rollhouse_env::{BatchEnv, EnvEntry, MakeError, spec_hash};
use serde::Serialize;

use crate::census::Census;
use crate::config::{Environment, HostConfig, Output, Program};
use crate::description::{ActionMask, Description, DescriptionError};
use crate::error::HostError;
use crate::hashing::hash_bytes;
use crate::host::{Host, Until, WorkerEvent};
use crate::launcher::Launcher;
use crate::record::{Places, Record};
use crate::spread::spread;
use crate::try_out::{TryOut, TryOutError};
use crate::worker_block::WorkerBlock;
use crate::workforce::Workforce;

/// How a machine hosts Python envs: with which interpreter, what it may import, in how many processes.
#[derive(Debug, Clone)]
pub struct PythonHost {
    /// Interpreter, a path or a name that is looked up in `PATH`. It needs the package `rollhouse`.
    pub interpreter: OsString,
    /// Packages that may be imported. Envs of Gymnasium's registry need `gymnasium`, and the package of their code if
    /// that is another.
    pub allow: Vec<String>,
    /// Number of worker processes of a session, at most one for each lane; `None` for as many as there are cores.
    pub workers: Option<usize>,
    /// Maximum time from the start of a process until its envs are made.
    pub launch_deadline: Duration,
    /// Bound on the number of processes that launch at a time.
    pub launcher: Launcher,
    /// Maximum number of bytes of memory of its own that each process has ([`Program::memory`]).
    pub memory: Option<u64>,
    /// Census in which the processes of sessions are counted; `None` if nobody looks.
    pub census: Option<Census>,
}

/// A Python env that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonEnv {
    /// `gymnasium:ID`, `gymnasium:module:ID`, or a class as `package.module:Class`.
    pub id: String,
    /// Arguments with which it is made.
    pub kwargs: serde_json::Map<String, serde_json::Value>,
    /// Whether it is declared deterministic; `None` leaves that to the `metadata` of its class.
    pub deterministic: Option<bool>,
}

impl PythonEnv {
    /// Returns the env that a run was recorded of, by its spec and arguments. That it is declared deterministic is believed
    /// as it is of anybody who asks: it is tried out.
    ///
    /// # Errors
    /// [`PythonError::Arguments`].
    pub fn recorded(spec: &EnvSpec, arguments: &str) -> Result<Self, PythonError> {
        let fits = arguments.len() <= MAX_ENV_KWARGS_BYTES;
        let kwargs = match arguments {
            "" => Some(serde_json::Map::new()),
            text => fits.then(|| serde_json::from_str(text).ok()).flatten(),
        };
        Ok(Self {
            id: spec.id.clone(),
            kwargs: kwargs.ok_or(PythonError::Arguments { bytes: arguments.len() })?,
            deterministic: Some(spec.determinism == Determinism::Deterministic),
        })
    }
}

/// Reason for which a Python env cannot be hosted.
#[derive(Debug, thiserror::Error)]
pub enum PythonError {
    /// The id is not one of a Python env.
    #[error("`{0}` is no Python env: those are called gymnasium:ID or package.module:Class")]
    Id(String),
    /// The interpreter lacks the package.
    #[error("the interpreter {interpreter} has no package rollhouse")]
    NoPackage {
        /// Interpreter that was started.
        interpreter: String,
    },
    /// A worker was lost before it was ready.
    #[error("a worker of the interpreter {interpreter} was lost before it was ready: {detail}")]
    Lost {
        /// Interpreter that was started.
        interpreter: String,
        /// What is known of its end.
        detail: String,
    },
    /// The worker did not make the env, or described one that cannot be hosted.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The env is declared deterministic, and is not.
    #[error("the env is declared deterministic, and is not taken as such")]
    NotDeterministic(#[from] TryOutError),
    /// The lanes take more memory than there can be.
    #[error("{lanes} lanes of it take more memory than a mapping has")]
    TooLarge {
        /// Number of lanes that were asked for.
        lanes: usize,
    },
    /// The arguments that were recorded with it are none.
    #[error(
        "{bytes} bytes of arguments were recorded, which are no JSON object of at most {MAX_ENV_KWARGS_BYTES} bytes"
    )]
    Arguments {
        /// Number of bytes that were recorded.
        bytes: usize,
    },
    /// The workers could not be started.
    #[error("workers could not be started")]
    Host(#[from] HostError),
}

impl PythonHost {
    /// Learns from a worker what an env is, and returns the entry that makes lanes of it in workers of their own. Blocks
    /// for as long as the worker takes to make one, at most until the launch deadline. An env that is declared
    /// deterministic is tried out, which takes as long once more at most.
    ///
    /// The entry's lanes are late. Making them blocks in the same way, and fails if a worker fails.
    ///
    /// # Errors
    /// [`PythonError`].
    pub fn entry(&self, env: &PythonEnv) -> Result<EnvEntry, PythonError> {
        if !EnvKind::has_id(&env.id) {
            let shown = env.id.floor_char_boundary(MAX_ENV_ID_BYTES);
            return Err(PythonError::Id(env.id[..shown].to_owned()));
        }
        let answer = self.learn(env)?;
        let description = Description::read(&answer)?;
        let mut spec = spec(env, description);
        // The hash is one of the spec and of the arguments, and of what the try-out shows, if there is one.
        let of_spec = spec_hash(&spec);
        let arguments = serde_json::to_string(&env.kwargs).unwrap_or_default();
        spec.dynamics_hash = [&answer[..], arguments.as_bytes()].into_iter().fold(of_spec, hash_bytes);
        if spec.determinism == Determinism::Deterministic {
            let shown = self.try_out(env, &spec, &answer)?;
            spec.dynamics_hash = hash_bytes(spec.dynamics_hash, &shown.to_le_bytes());
        }
        let (host, env, learned) = (self.clone(), env.clone(), spec.clone());
        let told = if env.kwargs.is_empty() { String::new() } else { arguments };
        let entry = EnvEntry::late(spec, move |options| {
            host.blocks(&env, &learned, &answer, options.len())
                .map_err(|error| MakeError::Refused { source: Box::new(error) })
        });
        Ok(entry.with_arguments(told))
    }

    /// Returns what a worker says of the env.
    fn learn(&self, env: &PythonEnv) -> Result<Vec<u8>, PythonError> {
        let mut host = Host::start(self.config(vec![self.hello(env, 0, None, None)]))?;
        loop {
            host.wait(Until::AnyEvent, None)?;
            match host.next_event() {
                Some(WorkerEvent::Ready { answer, .. }) => return Ok(answer),
                Some(WorkerEvent::Lost { detail, .. }) => return Err(self.lost(detail)),
                Some(WorkerEvent::Replied(_)) | None => {}
            }
        }
    }

    /// Tries out an env that is declared deterministic, and returns a hash of what it showed.
    fn try_out(&self, env: &PythonEnv, spec: &EnvSpec, answer: &[u8]) -> Result<u64, PythonError> {
        let deadline = Instant::now() + self.launch_deadline;
        let ranges = TryOut::RANGES.to_vec();
        let workforce = self.workforce(env, spec, answer, ranges)?;
        Ok(TryOut::new(workforce, spec, deadline).run()?)
    }

    /// Makes the blocks of a session, which share its workers.
    fn blocks(
        &self,
        env: &PythonEnv,
        spec: &EnvSpec,
        answer: &[u8],
        lanes: usize,
    ) -> Result<Vec<Box<dyn BatchEnv>>, PythonError> {
        let workforce = self.workforce(env, spec, answer, spread(lanes, self.workers))?;
        Ok(WorkerBlock::all(&Arc::new(Mutex::new(workforce)), lanes))
    }

    /// Starts workers, each of which has one of these ranges of lanes.
    fn workforce(
        &self,
        env: &PythonEnv,
        spec: &EnvSpec,
        answer: &[u8],
        ranges: Vec<Range<usize>>,
    ) -> Result<Workforce, PythonError> {
        let record = Record::of(spec);
        let mask = Description::read(answer)?.action_mask;
        let lanes = ranges.last().map_or(0, |range| range.end);
        let bytes = record.bytes(lanes).ok_or(PythonError::TooLarge { lanes })?;
        let hello = |range: &Range<usize>| {
            self.hello(env, range.len(), Some(record.places(range.start)), mask.as_ref())
        };
        let mut host = Host::start(self.config(ranges.iter().map(hello).collect()))?;
        if let Some(census) = &self.census {
            host.count_by(census.counting(&env.id, ranges.iter().map(Range::len)));
        }
        host.share(bytes)?;
        let mut workforce = Workforce::new(host, record, answer.to_vec(), ranges);
        workforce.begin().map_err(|detail| self.lost(detail))?;
        Ok(workforce)
    }

    /// Returns the first message to a worker, as bytes.
    fn hello(
        &self,
        env: &PythonEnv,
        lanes: usize,
        record: Option<Places>,
        action_mask: Option<&ActionMask>,
    ) -> Vec<u8> {
        let PythonEnv { id: env, kwargs, deterministic } = env;
        let (deterministic, allow) = (*deterministic, &self.allow[..]);
        let hello = Hello { env, kwargs, deterministic, lanes, allow, record, action_mask };
        // Nothing in it can fail to be written: its keys are texts.
        serde_json::to_vec(&hello).unwrap_or_default()
    }

    fn config(&self, hellos: Vec<Vec<u8>>) -> HostConfig {
        let arguments = ["-u", "-m", "rollhouse.env_worker"].map(OsString::from);
        let program = Program {
            path: self.interpreter.clone(),
            arguments: arguments.into_iter().chain([std::process::id().to_string().into()]).collect(),
            environment: Environment::Only(&VARIABLES),
            output: Output::Kept,
            memory: self.memory,
        };
        let (launch_at_start, launch_deadline) = (hellos.len(), Some(self.launch_deadline));
        HostConfig { program, hellos, launch_at_start, launch_deadline, launcher: self.launcher.clone() }
    }

    fn lost(&self, detail: String) -> PythonError {
        let interpreter = self.interpreter.to_string_lossy().into_owned();
        if detail.contains("No module named") && detail.contains("rollhouse") {
            return PythonError::NoPackage { interpreter };
        }
        PythonError::Lost { interpreter, detail }
    }
}

/// First message to a worker. The worker, in `rollhouse/env_worker.py`, has the same names.
#[derive(Serialize)]
struct Hello<'a> {
    env: &'a str,
    kwargs: &'a serde_json::Map<String, serde_json::Value>,
    deterministic: Option<bool>,
    lanes: usize,
    allow: &'a [String],
    record: Option<Places>,
    action_mask: Option<&'a ActionMask>,
}

fn spec(env: &PythonEnv, description: Description) -> EnvSpec {
    EnvSpec {
        id: env.id.clone(),
        summary: format!("a Python env in worker processes, with Gymnasium {}", description.gymnasium),
        observation_space: description.observation,
        action_space: description.action,
        observation_names: Vec::new(),
        action_names: Vec::new(),
        max_episode_steps: description.max_episode_steps,
        determinism: match description.deterministic {
            true => Determinism::Deterministic,
            false => Determinism::NonDeterministic,
        },
        options: Vec::new(),
        info_channels: description.action_mask.iter().map(ActionMask::channel).collect(),
        dynamics_hash: 0,
    }
}

/// Variables that a worker gets of those of this process: what interpreters, their libraries and devices are found by.
/// Whatever else there is, secrets among it, stays here.
const VARIABLES: [&str; 20] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_*",
    "TZ",
    "TMPDIR",
    "PYTHON*",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_CACHE_DIR",
    "MPLCONFIGDIR",
    "MUJOCO_GL",
    "PYOPENGL_PLATFORM",
    "SDL_VIDEODRIVER",
];

//! Python envs as lanes of the engine.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::limits::{LAUNCHES_OF_OPENING, MAX_DEADLINE, MAX_ENV_ID_BYTES};
use rollhouse_core::{Determinism, EnvId, EnvKind, EnvSource, EnvSpec, LaneDeadlines, Options, Role, Space};
use rollhouse_env::{EnvEntry, ImageSize, LateLanes, MakeError, spec_hash};
use serde::Serialize;
use tracing::warn;

use crate::census::{Census, Holder};
use crate::config::{Environment, HostConfig, Output, Program, WorkerSource};
use crate::connect_watch::{Connect, ConnectWatch};
use crate::description::{ActionMask, Description, DescriptionError, MAX_ANSWER_BYTES, RefusalKind};
use crate::error::HostError;
use crate::hashing::hash_bytes;
use crate::host::{Host, Reply, Until, WorkerEvent};
use crate::launcher::Launcher;
use crate::pool::WorkerPool;
use crate::provider::{EnvProvider, EnvRequest, LearnError, LearnReason, LearnedEnv};
use crate::record::{Places, Record};
use crate::remarks::{self, BadInfo, InfoHello, Remarks};
use crate::spread::spread;
use crate::try_out::{TryOut, TryOutError};
use crate::worker_block::WorkerBlock;
use crate::workforce::{LaneProtocol, PythonMessages, PythonPool};

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
    /// Times that lanes may take for what is waited for here, as verifying does: an engine has its own.
    pub lane_deadlines: LaneDeadlines,
    /// Rules by which envs that are clients of something try again to connect to it.
    pub connect: Connect,
    /// Bound on the number of processes that launch at a time.
    pub launcher: Launcher,
    /// Maximum number of bytes of memory of its own that each process has ([`Program::memory`]).
    pub memory: Option<u64>,
    /// Census in which the processes of sessions are counted; `None` if nobody looks.
    pub census: Option<Census>,
    /// Whether envs that can draw themselves are made so that they do (`render_mode="rgb_array"`), unless their arguments say
    /// how. What they are is the same.
    pub draw: bool,
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
    /// The infos that are to be recorded cannot be.
    #[error(transparent)]
    Infos(#[from] BadInfo),
    /// The env is declared deterministic, and is not.
    #[error("the env is declared deterministic, and is not taken as such")]
    NotDeterministic(#[from] TryOutError),
    /// The lanes take more memory than there can be.
    #[error("{lanes} lanes of it take more memory than a mapping has")]
    TooLarge {
        /// Number of lanes that were asked for.
        lanes: usize,
    },
    /// The workers could not be started.
    #[error("workers could not be started")]
    Host(#[from] HostError),
}

/// Returns the arguments as a JSON object; an empty text if there are none.
fn arguments(env: &EnvRequest) -> String {
    // Nothing in them can fail to be written: their keys are texts.
    if env.kwargs.is_empty() { String::new() } else { serde_json::to_string(&env.kwargs).unwrap_or_default() }
}

/// A Python env that a worker has described.
#[derive(Debug)]
struct PythonEnv {
    host: PythonHost,
    env: EnvRequest,
    spec: EnvSpec,
    /// Answer that every worker has to give.
    answer: Vec<u8>,
    /// Size of the pictures that it draws of itself, if it does, and how many make up a second.
    drawn: Option<(ImageSize, u32)>,
}

impl PythonEnv {
    /// Returns the entry that makes lanes of the env in workers of their own, whose connecting shows in `watch`. Its lanes
    /// are late. Making them blocks for as long as workers take to make envs, at most until the launch deadline and, of
    /// those that connect, the connect deadline. It fails if a worker fails. So does trying options
    /// ([`EnvEntry::check_drawn`]), of an env that declares some: a worker begins an episode with each set that is new. Its
    /// workers are a session's: they count as its holder's in the census.
    fn entry(self: &Arc<Self>, watch: &ConnectWatch, holder: Option<Holder>) -> EnvEntry {
        let refused = |error| MakeError::Refused { source: Box::new(error) };
        let (learned, connecting, holder) = (Arc::clone(self), watch.clone(), holder.map(Arc::new));
        let entry = EnvEntry::late(self.spec.clone(), move |options| {
            let PythonEnv { host, env, spec, answer, .. } = &*learned;
            host.blocks((env, spec, answer), options, (&connecting, holder.clone())).map_err(refused)
        });
        let entry = entry.with_deadlines(self.host.lane_deadlines).with_arguments(arguments(&self.env));
        let entry = match self.drawn {
            Some((size, images_per_second)) => entry.drawn(size, images_per_second),
            None => entry,
        };
        if self.spec.options.is_empty() {
            return entry;
        }
        // Defaults are the env's own.
        let tried = Tried::new(Options::check(&self.spec.options, &[]).unwrap_or_default());
        let (learned, watch) = (Arc::clone(self), watch.clone());
        entry.with_tried_options(move |options| {
            let PythonEnv { host, env, .. } = &*learned;
            let begin = |new: &[Options]| {
                Ok(Description::read(&host.describe(env, new, false, &watch)?.0).map(drop)?)
            };
            tried.check(options, begin).map_err(refused)
        })
    }
}

impl EnvProvider for PythonHost {
    fn kinds(&self) -> Vec<EnvKind> {
        self.allow.iter().filter_map(|package| EnvKind::of_package(package)).collect()
    }

    fn has(&self, id: &EnvId) -> bool {
        matches!(id.source(), EnvSource::Python { .. })
    }

    /// Each launch and each connecting has a deadline of its own, and waits for its turn besides.
    fn learn_within(&self) -> Duration {
        LAUNCHES_OF_OPENING * 2 * MAX_DEADLINE
    }

    fn learn(&self, asked: &EnvRequest, watch: &ConnectWatch) -> Result<LearnedEnv, LearnError> {
        let env = Arc::new(self.described(asked, watch)?);
        Ok(LearnedEnv::new(env.spec.clone(), move |watch, holder| env.entry(watch, holder)))
    }

    fn connect_watch(&self) -> ConnectWatch {
        self.census.as_ref().map_or_else(ConnectWatch::default, Census::connect_watch)
    }
}

impl From<PythonError> for LearnError {
    fn from(error: PythonError) -> Self {
        let reason = match &error {
            PythonError::Id(_) => LearnReason::NotFound,
            PythonError::Infos(_) => LearnReason::Request,
            PythonError::Description(DescriptionError::Refused(refused)) => match refused.kind {
                RefusalKind::NotAllowed => LearnReason::NotAllowed,
                RefusalKind::ImportFailed => LearnReason::NotFound,
                RefusalKind::KwargsRefused => LearnReason::Arguments,
                RefusalKind::OptionsRefused => LearnReason::Request,
                RefusalKind::ConnectFailed => LearnReason::NotConnected,
                RefusalKind::MakeFailed
                | RefusalKind::SpaceNotSupported
                | RefusalKind::LanesDiffer
                | RefusalKind::NotDeterministic
                | RefusalKind::MethodsRefused => LearnReason::Unsupported,
            },
            PythonError::Lost { .. } => LearnReason::Lost,
            PythonError::Description(_) | PythonError::TooLarge { .. } | PythonError::NotDeterministic(_) => {
                LearnReason::Unsupported
            }
            PythonError::NoPackage { .. } => LearnReason::NotInstalled,
            PythonError::Host(_) => LearnReason::Internal,
        };
        Self::new(reason, error)
    }
}

impl PythonHost {
    /// Learns from a worker what an env is, as its provider does, and returns the entry that makes lanes of it.
    ///
    /// # Errors
    /// [`PythonError`].
    pub fn entry(&self, env: &EnvRequest, watch: &ConnectWatch) -> Result<EnvEntry, PythonError> {
        Ok(Arc::new(self.described(env, watch)?).entry(watch, None))
    }

    /// Learns from a worker what an env is; `watch` shows its connecting. Blocks for as long as the worker takes to make
    /// one, at most until the launch deadline, and the connect deadline if it connects. An env that is declared
    /// deterministic is tried out, which may take as long twice more: to start the lanes, and to play. One that is to draw
    /// itself does so in a process of its own, which may take as long once more.
    ///
    /// # Errors
    /// [`PythonError`].
    fn described(&self, env: &EnvRequest, watch: &ConnectWatch) -> Result<PythonEnv, PythonError> {
        if !self.has(&env.id) {
            let shown = env.id.floor_char_boundary(MAX_ENV_ID_BYTES);
            return Err(PythonError::Id(env.id[..shown].to_owned()));
        }
        let recorded = remarks::check(env.infos.recorded.clone())?;
        // Others have no booleans that say which infos are there.
        let shows = env.infos.are_learned || !recorded.is_empty();
        let (answer, remarks) = self.describe(env, &[], false, watch)?;
        let description = Description::read(&answer)?;
        let may_draw = self.draw || description.draws;
        let reports = description.reports.clone();
        let mut spec = spec(env, description);
        spec.info_channels.extend(recorded);
        // The hash is one of the spec and of the arguments, and of what the try-out shows, if there is one.
        let of_spec = spec_hash(&spec);
        spec = spec.with_reports(&reports);
        let others = spec.info_channels.iter().filter(|channel| channel.role != Role::ActionMask).count();
        let remarks = remarks.channels(if shows { others } else { 0 }, env.infos.are_learned);
        // Nothing in them can fail to be written: their keys are texts.
        let arguments = serde_json::to_string(&env.kwargs).unwrap_or_default();
        spec.dynamics_hash = [&answer[..], arguments.as_bytes()].into_iter().fold(of_spec, hash_bytes);
        if spec.determinism == Determinism::Deterministic {
            let shown = self.try_out((env, &spec, &answer), watch)?;
            spec.dynamics_hash = hash_bytes(spec.dynamics_hash, &shown.to_le_bytes());
        }
        let drawn = if may_draw { self.drawn(env, watch) } else { None };
        let spec = spec.with_remarks(remarks);
        Ok(PythonEnv { host: self.clone(), env: env.clone(), spec, answer, drawn })
    }

    /// Returns the size of the pictures that the env draws of itself, and how many make up a second; `None` if it draws none.
    /// A process of its own tries it, for a renderer may fail in ways that end it.
    fn drawn(&self, env: &EnvRequest, watch: &ConnectWatch) -> Option<(ImageSize, u32)> {
        let told = self.describe(env, &[], true, watch);
        let told = told.and_then(|(answer, _)| Ok(Description::read(&answer)?));
        if let Err(error) = &told {
            warn!(env = %env.id, %error, "the env does not draw itself");
        }
        told.ok()?.picture
    }

    /// Returns what a worker says of the env, after an episode of it with each of these options, and after a picture if it is
    /// to draw one; and the numbers in its infos, if those are learned and nothing else was wanted.
    fn describe(
        &self,
        env: &EnvRequest,
        options: &[Options],
        picture: bool,
        watch: &ConnectWatch,
    ) -> Result<(Vec<u8>, Remarks), PythonError> {
        let hello = Hello { options, picture, ..self.hello(env, 0) };
        let mut host = Host::start(self.config(vec![hello.bytes()], watch))?;
        loop {
            host.wait(Until::AnyEvent, None)?;
            match host.next_event() {
                Some(WorkerEvent::Ready { answer, .. }) => {
                    let learns = env.infos.are_learned && options.is_empty() && !picture;
                    // An answer that is a refusal has no worker behind it.
                    let remarks = if learns && Description::read(&answer).is_ok() {
                        remarks_of(&mut host, self.launch_deadline.min(INFOS_PATIENCE))?
                    } else {
                        Remarks::default()
                    };
                    return Ok((answer, remarks));
                }
                Some(WorkerEvent::Lost { detail, .. }) => return Err(self.lost(detail)),
                Some(WorkerEvent::Replied(_)) | None => {}
            }
        }
    }

    /// Tries out an env that is declared deterministic, and returns a hash of what it showed.
    fn try_out(&self, known: Known<'_>, watch: &ConnectWatch) -> Result<u64, PythonError> {
        let mut pool = self.pool(known, TryOut::RANGES.to_vec(), (watch, None))?;
        let defaults = Options::check(&known.1.options, &[]).unwrap_or_default();
        TryOut::RANGES.into_iter().flatten().for_each(|lane| pool.protocol.give_options(lane, &defaults));
        Ok(TryOut::new(pool, known.1, self.launch_deadline).run()?)
    }

    /// Makes the blocks of a session, which share its workers.
    fn blocks(
        &self,
        known: Known<'_>,
        options: &[Options],
        (watch, holder): (&ConnectWatch, Option<Arc<Holder>>),
    ) -> Result<Vec<Box<dyn LateLanes>>, PythonError> {
        let lanes = options.len();
        // A vector env has threads of its own.
        let workers = if known.0.id.source().steps_together() { Some(1) } else { self.workers };
        let mut pool = self.pool(known, spread(lanes, workers), (watch, holder))?;
        options.iter().enumerate().for_each(|(lane, options)| pool.protocol.give_options(lane, options));
        Ok(WorkerBlock::all(&Arc::new(Mutex::new(pool)), lanes))
    }

    /// Starts workers, each of which has one of these ranges of lanes.
    fn pool(
        &self,
        (env, spec, answer): Known<'_>,
        ranges: Vec<Range<usize>>,
        (watch, holder): (&ConnectWatch, Option<Arc<Holder>>),
    ) -> Result<PythonPool, PythonError> {
        let record = Record::of(spec);
        let mask = Description::read(answer)?.action_mask;
        let lanes = ranges.iter().map(Range::len).max().unwrap_or(0);
        let bytes = record.bytes(lanes).ok_or(PythonError::TooLarge { lanes })?;
        let infos = InfoHello::of(spec);
        let hello = |range: &Range<usize>| {
            let (record, action_mask) = (Some(record.places(range.start)), mask.as_ref());
            Hello { record, action_mask, infos: infos.as_ref(), ..self.hello(env, range.len()) }.bytes()
        };
        let config = self.config(ranges.iter().map(hello).collect(), watch);
        let counting = self.census.as_ref();
        let counting = counting.map(|census| census.counting(&env.id, ranges.iter().map(Range::len), holder));
        let messages = PythonMessages { expected: answer.to_vec() };
        let protocol = LaneProtocol::new(record, &ranges, env.id.source().steps_together(), messages);
        let mut pool = WorkerPool::start(config, counting, Some(bytes), ranges, protocol)?;
        pool.begin().map_err(|detail| self.lost(detail))?;
        Ok(pool)
    }

    /// Returns the first message to a worker of that many lanes.
    fn hello<'a>(&'a self, env: &'a EnvRequest, lanes: usize) -> Hello<'a> {
        Hello {
            env: &env.id,
            kwargs: &env.kwargs,
            deterministic: env.deterministic,
            lanes,
            allow: &self.allow,
            connect: ConnectHello::of(self.connect),
            record: None,
            action_mask: None,
            infos: None,
            frames_every: env.infos.frames_every,
            options: &[],
            draw: self.draw,
            picture: false,
        }
    }

    fn config(&self, hellos: Vec<Vec<u8>>, watch: &ConnectWatch) -> HostConfig {
        let arguments = ["-u", "-c", BOOT].map(OsString::from);
        let program = Program {
            path: self.interpreter.clone(),
            arguments: arguments.into_iter().chain([std::process::id().to_string().into()]).collect(),
            environment: Environment::Only(&VARIABLES),
            output: Output::Kept,
            memory: self.memory,
        };
        let (launch_at_start, launch_deadline) = (hellos.len(), Some(self.launch_deadline));
        HostConfig {
            source: WorkerSource::Program(program),
            hellos,
            launch_at_start,
            launch_deadline,
            connect_deadline: Some(self.connect.deadline),
            lane_deadlines: self.lane_deadlines,
            connect_watch: watch.clone(),
            launcher: self.launcher.clone(),
            max_answer_bytes: MAX_ANSWER_BYTES,
        }
    }

    fn lost(&self, detail: String) -> PythonError {
        let interpreter = self.interpreter.to_string_lossy().into_owned();
        if detail.contains("No module named") && detail.contains("rollhouse") {
            return PythonError::NoPackage { interpreter };
        }
        PythonError::Lost { interpreter, detail }
    }
}

/// Has the worker that has described an env try a step of it, and returns the numbers in its infos. A step that fails, ends the
/// process or takes too long says nothing: its lanes will tell.
fn remarks_of(host: &mut Host, patience: Duration) -> Result<Remarks, HostError> {
    host.share(0)?;
    host.post(0, LEARN_INFOS, &[], Some(patience))?;
    loop {
        host.wait(Until::AnyEvent, None)?;
        match host.next_event() {
            Some(WorkerEvent::Replied(Reply { payload, .. })) => return Ok(Remarks::read(&payload)),
            Some(WorkerEvent::Lost { detail, .. }) => {
                warn!(detail, "infos are not learned: the step that was tried failed");
                return Ok(Remarks::default());
            }
            Some(WorkerEvent::Ready { .. }) | None => {}
        }
    }
}

/// What is known of an env: how it is asked for, its spec, and what a worker said of it.
type Known<'a> = (&'a EnvRequest, &'a EnvSpec, &'a [u8]);

/// First message to a worker. The worker, in `rollhouse/env_worker.py`, has the same names.
#[derive(Serialize)]
struct Hello<'a> {
    env: &'a str,
    kwargs: &'a serde_json::Map<String, serde_json::Value>,
    deterministic: Option<bool>,
    lanes: usize,
    allow: &'a [String],
    connect: ConnectHello,
    record: Option<Places>,
    action_mask: Option<&'a ActionMask>,
    infos: Option<&'a InfoHello>,
    frames_every: u64,
    options: &'a [Options],
    /// Whether envs that can draw themselves are made so.
    draw: bool,
    /// Whether the answer has the size of a picture.
    picture: bool,
}

impl Hello<'_> {
    fn bytes(&self) -> Vec<u8> {
        // Nothing in it can fail to be written: its keys are texts.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// How often an env of a worker tries again to connect, and for how many seconds.
#[derive(Serialize)]
struct ConnectHello {
    retries: u32,
    within: f64,
}

impl ConnectHello {
    fn of(Connect { retries, deadline }: Connect) -> Self {
        Self { retries, within: deadline.as_secs_f64() }
    }
}

/// Options with which an env has begun an episode, so that they need not be tried again.
struct Tried(Mutex<Vec<u64>>);

impl Tried {
    fn new(defaults: Options) -> Self {
        Self(Mutex::new(vec![hash_of(&defaults)]))
    }

    /// Has those of the options that are new tried by `begin`: at most half as many as are kept.
    fn check(
        &self,
        options: &[Options],
        begin: impl FnOnce(&[Options]) -> Result<(), PythonError>,
    ) -> Result<(), PythonError> {
        let mut known: BTreeSet<_> = self.0.lock().iter().copied().collect();
        let is_new = |options: &&Options| known.insert(hash_of(options));
        let new: Vec<_> = options.iter().filter(is_new).take(MAX_TRIED / 2).cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        begin(&new)?;
        let mut tried = self.0.lock();
        let most = MAX_TRIED.saturating_sub(new.len()).min(tried.len());
        tried.truncate(most);
        tried.extend(new.iter().map(hash_of));
        Ok(())
    }
}

fn hash_of(options: &Options) -> u64 {
    // Nothing in it can fail to be written: its keys are texts.
    hash_bytes(0, &serde_json::to_vec(options).unwrap_or_default())
}

/// Command to a worker that has described an env: a step is tried, and the answer has the numbers in its infos.
const LEARN_INFOS: u64 = 7;

/// Time that such a worker has for a reset and a step, if that is less than a launch may take: a pool waits for it.
const INFOS_PATIENCE: Duration = Duration::from_secs(5);

/// Most sets of options that are known to work.
const MAX_TRIED: usize = 1024;

fn spec(env: &EnvRequest, description: Description) -> EnvSpec {
    let action_names = match &description.action {
        Space::Box(carrier) => carrier.part_names(),
        Space::Discrete(_) => Vec::new(),
    };
    EnvSpec {
        id: env.id.to_string(),
        source: env.id.source().clone(),
        summary: format!("a Python env in worker processes, with Gymnasium {}", description.gymnasium),
        observation_space: description.observation,
        action_space: description.action,
        observation_names: Vec::new(),
        action_names,
        max_episode_steps: description.max_episode_steps,
        determinism: match description.deterministic {
            true => Determinism::Deterministic,
            false => Determinism::NonDeterministic,
        },
        options: description.options,
        methods: description.methods,
        info_channels: description.action_mask.iter().map(ActionMask::channel).collect(),
        dynamics_hash: 0,
    }
}

/// The program of a worker. An interpreter looks for modules in its working folder first, which is the node's and nobody's
/// package; `-P`, which keeps it from that, is not known before 3.11. A folder that `PYTHONPATH` names stays, for envs: what a
/// worker itself imports comes from elsewhere if it can.
const BOOT: &str = r#"
import os, sys
try:
    here = os.path.realpath(os.getcwd())
except OSError:
    here = None
named = [os.path.realpath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
elsewhere = [path for path in sys.path if path and os.path.realpath(path) != here]
whole = [path for path in sys.path if path and (path in elsewhere or here in named)]
sys.path[:] = elsewhere
try:
    import rollhouse
except ModuleNotFoundError:
    sys.path[:] = whole
from rollhouse.env_worker import main
sys.path[:] = whole
main(int(sys.argv[1]))
"#;

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

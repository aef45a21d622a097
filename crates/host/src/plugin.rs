//! Plug-ins in worker processes.

mod blocks;
mod generators;
mod lanes;
mod slot;
mod talk;
mod worker;

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::limits::{BLOCK_LANES, MAX_PLUGINS};
use rollhouse_core::{EnvSpec, LaneDeadlines, Options, Plugin};
use rollhouse_env::{EnvEntry, ImageSize, LateLanes, MakeError, Registry};
use rollhouse_plugin::{PluginError, PluginFault};

use self::blocks::BlockProtocol;
use self::slot::Layout;
use self::talk::{Answer, Described, Hello, Lanes, heard, said};
use crate::census::Census;
use crate::config::{Environment, HostConfig, Output, Program, WorkerSource};
use crate::connect_watch::ConnectWatch;
use crate::error::HostError;
use crate::host::{Host, Until, WorkerEvent};
use crate::launcher::Launcher;
use crate::pool::WorkerPool;
use crate::spread::spread;
use crate::worker_block::WorkerBlock;

pub use self::worker::serve_plugin;

/// Maximum number of bytes of a worker's answer: the bounds of three million elements take 54 MB.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// How a machine hosts plug-ins that are not trusted: in how many processes, and of which program.
#[derive(Debug, Clone)]
pub struct PluginHost {
    /// Program of the workers with its arguments, to which the process id of this process is added: one that calls
    /// [`serve_plugin`] with it, as `rollhouse plugin-worker` does.
    pub command: Vec<OsString>,
    /// Number of worker processes of a session, at most one for each block of 64 lanes; `None` for as many as there are
    /// cores.
    pub workers: Option<usize>,
    /// Maximum time from the start of a process until its lanes are made. The first one tries the envs out.
    pub launch_deadline: Duration,
    /// Times that lanes may take for what is waited for here, as verifying does: an engine has its own.
    pub lane_deadlines: LaneDeadlines,
    /// Bound on the number of processes that launch at a time.
    pub launcher: Launcher,
    /// Census in which the processes of sessions are counted; `None` if nobody looks.
    pub census: Option<Census>,
}

/// Reason for which a worker does not step the lanes of a plug-in.
#[derive(Debug, thiserror::Error)]
enum WorkerFault {
    #[error("{0}")]
    Refused(String),
    #[error("its worker process was lost before it was ready: {0}")]
    Lost(String),
    #[error("its worker process is lost")]
    Gone,
    #[error("its worker process sent what makes no sense: {0}")]
    Nonsense(String),
    #[error("{lanes} lanes of it take more memory than a mapping has")]
    TooLarge { lanes: usize },
    #[error("no worker process can be started: {}", with_cause(.0))]
    Host(#[from] HostError),
}

fn with_cause(error: &HostError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

impl PluginHost {
    /// Loads plug-ins and registers their envs, whose ids it returns: those that are trusted into this process, others
    /// into processes of their own. Blocks until the envs have been tried out.
    ///
    /// # Errors
    /// If one of them cannot be loaded, or an id is taken; what was registered before stays.
    pub fn register(&self, registry: &Registry, plugins: &[Plugin]) -> Result<Vec<String>, PluginError> {
        let mut ids = Vec::new();
        for (number, plugin) in plugins.iter().enumerate() {
            let failed = |fault| PluginError { path: plugin.path.clone(), fault };
            if number == MAX_PLUGINS {
                return Err(failed(PluginFault::TooMany { count: plugins.len() }));
            }
            let entries = match plugin.trusted {
                true => rollhouse_plugin::load(&plugin.path)?,
                false => self.isolated(&plugin.path).map_err(failed)?,
            };
            for entry in entries {
                let id = entry.spec().id.clone();
                registry.register(entry).map_err(|error| failed(PluginFault::Register(error)))?;
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// Learns from a worker what envs a plug-in has, and returns entries that make lanes of them in workers of their
    /// own. Nothing of it is loaded into this process.
    fn isolated(&self, path: &Path) -> Result<Vec<EnvEntry>, PluginFault> {
        // Absolute, because this process may go to another folder before it starts a worker.
        let path = fs::canonicalize(path).map_err(PluginFault::File)?;
        if !fs::metadata(&path).map_err(PluginFault::File)?.is_file() {
            return Err(PluginFault::NotAFile);
        }
        let fault = |fault: WorkerFault| PluginFault::Worker { source: Box::new(fault) };
        let (file, envs) = self.learn(&path).map_err(fault)?;
        let entries = envs.into_iter().enumerate();
        let entries = entries.map(|(env, described)| self.entry(&path, file, env, described));
        entries.collect::<Result<_, _>>().map_err(fault)
    }

    /// Returns what a worker says of a plug-in: a hash of its file, and its envs.
    fn learn(&self, path: &Path) -> Result<(u64, Vec<Described>), WorkerFault> {
        let mut host = Host::start(self.config(vec![said(&Hello::new(path, None))])?)?;
        loop {
            host.wait(Until::AnyEvent, None)?;
            match host.next_event() {
                Some(WorkerEvent::Ready { answer, .. }) => match heard(&answer) {
                    Ok(Answer::Envs { file, envs }) => return Ok((file, envs)),
                    Ok(Answer::Refused(why)) => return Err(WorkerFault::Refused(why)),
                    Ok(Answer::Made { .. }) => {
                        return Err(WorkerFault::Nonsense("it has made lanes".to_owned()));
                    }
                    Err(error) => return Err(WorkerFault::Nonsense(error.to_string())),
                },
                Some(WorkerEvent::Lost { detail, .. }) => return Err(WorkerFault::Lost(detail)),
                Some(WorkerEvent::Replied(_)) | None => {}
            }
        }
    }

    fn entry(
        &self,
        path: &Path,
        file: u64,
        env: usize,
        described: Described,
    ) -> Result<EnvEntry, WorkerFault> {
        let Described { spec, drawn, verdicts, draws_options } = described;
        let untried = Box::new(EnvSpec { dynamics_hash: 0, ..spec.clone() });
        let session =
            Session { host: self.clone(), path: path.to_owned(), file, env, spec: untried, verdicts };
        let entry = EnvEntry::late(spec, move |options| {
            session.blocks(options).map_err(|fault| MakeError::Refused { source: Box::new(fault) })
        });
        let entry = entry.with_deadlines(self.lane_deadlines);
        let entry = if draws_options { entry.with_drawn_options() } else { entry };
        let Some((width, height, images_per_second)) = drawn else { return Ok(entry) };
        let size = ImageSize::new(width, height).map_err(|error| WorkerFault::Nonsense(error.to_string()))?;
        Ok(entry.drawn(size, images_per_second))
    }

    fn config(&self, hellos: Vec<Vec<u8>>) -> Result<HostConfig, HostError> {
        let mut arguments = self.command.iter().cloned();
        let program = Program {
            path: arguments.next().unwrap_or_default(),
            arguments: arguments.chain([std::process::id().to_string().into()]).collect(),
            environment: Environment::Only(&VARIABLES),
            output: Output::Kept,
            memory: None,
        };
        let (launch_at_start, launch_deadline) = (hellos.len(), Some(self.launch_deadline));
        Ok(HostConfig {
            source: WorkerSource::Program(program),
            hellos,
            launch_at_start,
            launch_deadline,
            // Its workers do not connect.
            connect_deadline: None,
            lane_deadlines: self.lane_deadlines,
            connect_watch: ConnectWatch::default(),
            launcher: self.launcher.clone(),
            max_answer_bytes: MAX_ANSWER_BYTES,
        })
    }
}

/// Makes the lanes of sessions of one env.
struct Session {
    host: PluginHost,
    path: PathBuf,
    /// Hash of the plug-in's file when it was tried out.
    file: u64,
    env: usize,
    /// Spec without the dynamics hash.
    spec: Box<EnvSpec>,
    /// Whether its lanes may give an episode a result or a score.
    verdicts: bool,
}

impl Session {
    /// Makes the blocks of a session, which share its workers.
    fn blocks(&self, options: &[Options]) -> Result<Vec<Box<dyn LateLanes>>, WorkerFault> {
        let lanes = options.len();
        let blocks = lanes.div_ceil(BLOCK_LANES);
        let ranges = spread(blocks, self.host.workers);
        let room = ranges.iter().map(Range::len).max().unwrap_or(0);
        let layout = Layout::of(&self.spec, room);
        let bytes = layout.bytes().ok_or(WorkerFault::TooLarge { lanes })?;
        let hello = |range: &Range<usize>| {
            let options = options[range.start * BLOCK_LANES..lanes.min(range.end * BLOCK_LANES)].to_vec();
            let lanes = Lanes { env: self.env, room, options };
            said(&Hello::new(&self.path, Some(lanes)))
        };
        let config = self.host.config(ranges.iter().map(hello).collect())?;
        let of = |range: &Range<usize>| lanes.min(range.end * BLOCK_LANES) - range.start * BLOCK_LANES;
        let counting = self.host.census.as_ref();
        let counting = counting.map(|census| census.counting(&self.spec.id, ranges.iter().map(of), None));
        let expected = Answer::Made { file: self.file, spec: self.spec.clone() };
        let protocol = BlockProtocol::new((&self.spec, layout), expected, &ranges, lanes, self.verdicts);
        let mut pool = WorkerPool::start(config, counting, Some(bytes), ranges, protocol)?;
        pool.begin().map_err(WorkerFault::Refused)?;
        Ok(WorkerBlock::all(&Arc::new(Mutex::new(pool)), lanes))
    }
}

/// Variables that a worker gets of those of this process: what libraries and devices are found by, what the interpreter
/// needs that may run it, and what is meant for plug-ins. Whatever else there is, secrets among it, stays here.
const VARIABLES: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_*",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PYTHON*",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PLUGIN_*",
];

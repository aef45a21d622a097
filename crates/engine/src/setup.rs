//! Makes an engine's crews and starts their threads.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use rollhouse_arena::{Share, Spin};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{EnvSpec, Options};
use rollhouse_env::{EnvEntry, Target};
use rollhouse_replay::RunRecorder;

use crate::block::{Block, BlockParts, BlockStatus};
use crate::config::{EngineConfig, MAX_SUB_BATCHES, MIN_LANES_PER_THREAD};
use crate::crew::{Crew, Orders, work};
use crate::error::ConfigError;
use crate::first_done::{Received, Task, TaskChannels};
use crate::restart::Maker;
use crate::timings::Timings;

/// Thread of a crew, as the owner holds it.
pub(crate) struct Worker {
    pub(crate) range: Range<usize>,
    /// The crew, which its thread steps, or the owner where the thread comes late.
    pub(crate) crew: Arc<Mutex<Crew>>,
    pub(crate) tasks: SyncSender<Option<Task>>,
    pub(crate) thread: Option<JoinHandle<()>>,
}

/// Returns one set of options for each lane: those given, or the env's defaults.
pub(crate) fn options_per_lane(entry: &EnvEntry, config: &EngineConfig) -> Result<Vec<Options>, ConfigError> {
    match config.options.as_slice() {
        [] => {
            let defaults = Options::check(&entry.spec().options, &[]).unwrap_or_default();
            Ok(vec![defaults; config.lanes])
        }
        [one] => Ok(vec![one.clone(); config.lanes]),
        each if each.len() == config.lanes => Ok(each.to_vec()),
        other => Err(ConfigError::Options { given: other.len(), lanes: config.lanes }),
    }
}

/// Returns the time limit; `None` if there is none.
pub(crate) fn time_limit(config: &EngineConfig, spec: &EnvSpec) -> Option<u32> {
    match config.max_episode_steps {
        None => spec.max_episode_steps,
        Some(0) => None,
        Some(limit) => Some(limit),
    }
}

/// Splits the lanes into contiguous runs of whole blocks, one for each thread. None is smaller than
/// [`MIN_LANES_PER_THREAD`], unless it is the only one.
pub(crate) fn split(lanes: usize, threads: usize) -> Vec<Range<usize>> {
    let blocks = lanes.div_ceil(BLOCK_LANES);
    let threads = threads.min(blocks).min((lanes / MIN_LANES_PER_THREAD).max(1));
    let bound = |thread: usize| (thread * blocks / threads * BLOCK_LANES).min(lanes);
    (0..threads).map(|thread| bound(thread)..bound(thread + 1)).collect()
}

/// Makes the crew of one share: its blocks with their envs and recorders.
pub(crate) fn make_crew(
    entry: &Arc<EnvEntry>,
    config: &EngineConfig,
    target: Target,
    options: &[Options],
    statuses: &[Arc<BlockStatus>],
    recording: Option<&RunRecorder>,
    share: Share,
) -> Result<Crew, ConfigError> {
    let limit = time_limit(config, entry.spec());
    let range = share.range();
    let blocks = range
        .clone()
        .step_by(BLOCK_LANES)
        .map(|first| {
            let rows = first..(first + BLOCK_LANES).min(range.end);
            let maker = Maker {
                entry: Arc::clone(entry),
                options: options[rows.clone()].to_vec(),
                set: config.instruction_set,
            };
            Ok(Block::new(BlockParts {
                env: maker.make_first()?,
                maker,
                autoreset: config.autoreset,
                schedule: config.schedule,
                limit: limit.map(u64::from),
                target,
                first_lane: config.first_lane + rows.start as u32,
                recorder: recording.map(|run| run.block(config.first_lane + rows.start as u32, rows.len())),
                status: Arc::clone(&statuses[first / BLOCK_LANES]),
                rows,
            }))
        })
        .collect::<Result<_, ConfigError>>()?;
    Ok(Crew { share, blocks, timings: Timings::default() })
}

pub(crate) type Started = (Crew, Vec<Worker>, Receiver<(usize, Received)>);

/// Starts a thread for every crew but the first, which is the caller's.
pub(crate) fn start_threads(
    crews: Vec<Crew>,
    orders: &Arc<Orders>,
    spin: Spin,
    started: Instant,
) -> Result<Started, ConfigError> {
    let mut crews = crews.into_iter();
    let Some(own) = crews.next() else { return Err(ConfigError::Threads(0)) };
    // The caller's own crew leaves its results with the owner.
    let (send_results, results) = sync_channel(MAX_SUB_BATCHES * crews.len());
    let mut others = Vec::new();
    for (index, crew) in crews.enumerate() {
        // One place more than the owner uses, for the message that closes the channel.
        let (tasks, take_tasks) = sync_channel(MAX_SUB_BATCHES + 1);
        let channels =
            TaskChannels { tasks: Mutex::new(take_tasks), results: send_results.clone(), crew: index + 1 };
        let (range, turns, orders) = (crew.range(), crew.share.turns(), Arc::clone(orders));
        let crew = Arc::new(Mutex::new(crew));
        let its_crew = Arc::clone(&crew);
        // Task: crew.
        let thread = std::thread::Builder::new()
            .name(format!("rollhouse-step-{}", index + 1))
            .spawn(move || work(&its_crew, turns, &orders, &channels, spin, started))
            .map_err(ConfigError::Thread)?;
        others.push(Worker { range, crew, tasks, thread: Some(thread) });
    }
    Ok((own, others, results))
}

//! Makes an engine's crews.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use rollhouse_arena::Share;
use rollhouse_core::limits::{BLOCK_LANES, MAX_LANES, MAX_THREADS};
use rollhouse_core::{EnvSpec, Options, panic_message};
use rollhouse_env::{BlockEnv, EnvEntry, InstructionSet, MakeError, Target};
use rollhouse_replay::RunRecorder;

use crate::block::{Block, BlockLanes, BlockParts, BlockStatus};
use crate::config::{EngineConfig, MIN_LANES_PER_THREAD};
use crate::crew::Crew;
use crate::error::ConfigError;
use crate::options::{OptionsError, cannot_be_made};
use crate::restart::Maker;
use crate::timings::Timings;

/// Refuses more lanes or threads than there can be.
pub(crate) fn check_sizes(config: &EngineConfig) -> Result<(), ConfigError> {
    let lanes = config.lanes;
    if lanes == 0 || lanes > MAX_LANES {
        return Err(ConfigError::Lanes(lanes));
    }
    if u32::try_from(lanes).ok().and_then(|lanes| config.first_lane.checked_add(lanes)).is_none() {
        return Err(ConfigError::FirstLane { first_lane: config.first_lane, lanes });
    }
    if config.threads == 0 || config.threads > MAX_THREADS {
        return Err(ConfigError::Threads(config.threads));
    }
    Ok(())
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
/// [`MIN_LANES_PER_THREAD`], unless it is the only one. Late lanes are all the caller's, who steps none of them.
pub(crate) fn split(lanes: usize, threads: usize, late: bool) -> Vec<Range<usize>> {
    let blocks = lanes.div_ceil(BLOCK_LANES);
    let threads = if late { 1 } else { threads };
    let threads = threads.min(blocks).min((lanes / MIN_LANES_PER_THREAD).max(1));
    let bound = |thread: usize| (thread * blocks / threads * BLOCK_LANES).min(lanes);
    (0..threads).map(|thread| bound(thread)..bound(thread + 1)).collect()
}

/// The parts of which an engine's crews are made.
pub(crate) struct Setup<'a> {
    pub(crate) entry: &'a Arc<EnvEntry>,
    pub(crate) config: &'a EngineConfig,
    pub(crate) target: Target,
    /// Options of each lane.
    pub(crate) options: &'a [Options],
    /// Status of each block.
    pub(crate) status: &'a [Arc<BlockStatus>],
    pub(crate) recording: Option<&'a RunRecorder>,
    /// Envs of the blocks of the only crew, if they were made before.
    pub(crate) envs: Option<Vec<BlockEnv>>,
}

impl Setup<'_> {
    /// Makes the crew of one share: its blocks with their envs and recorders.
    pub(crate) fn crew(&mut self, share: Share) -> Result<Crew, ConfigError> {
        let Self { entry, config, target, options, status, recording, .. } = *self;
        let limit = time_limit(config, entry.spec());
        let range = share.range();
        let envs = match self.envs.take() {
            Some(envs) => envs,
            None => make_envs(entry, config.instruction_set, &options[range.clone()])?,
        };
        let answers = ask_first(&envs)?;
        let blocks = range
            .clone()
            .step_by(BLOCK_LANES)
            .zip(envs.into_iter().zip(answers))
            .map(|(first, (env, (has_verdicts, words_per_reset)))| {
                let rows = first..(first + BLOCK_LANES).min(range.end);
                let first_lane = config.first_lane + rows.start as u32;
                let maker = Maker {
                    entry: Arc::clone(entry),
                    options: options[rows.clone()].to_vec(),
                    set: config.instruction_set,
                };
                Block::new(BlockParts {
                    env,
                    has_verdicts,
                    words_per_reset,
                    maker,
                    autoreset: config.autoreset,
                    schedule: config.schedule,
                    limit: limit.map(u64::from),
                    target,
                    recorder: recording.map(|run| run.block(first_lane, rows.len())),
                    status: Arc::clone(&status[first / BLOCK_LANES]),
                    lanes: BlockLanes::new(rows, first_lane),
                    late: entry.is_late().then(|| (config.lane_deadlines, Instant::now())),
                })
            })
            .collect();
        Ok(Crew { share, blocks, timings: Timings::default(), late: entry.is_late() })
    }
}

/// Asks each env what is asked for once: whether it has verdicts, and how many words a reset draws.
fn ask_first(envs: &[BlockEnv]) -> Result<Vec<(bool, Option<u32>)>, ConfigError> {
    let ask = || envs.iter().map(|env| (env.has_verdicts(), env.words_per_reset())).collect();
    catch_unwind(AssertUnwindSafe(ask)).map_err(|panic| ConfigError::MakePanicked(panic_message(&*panic)))
}

/// Makes the envs of the blocks of as many lanes as `options` has elements.
pub(crate) fn make_envs(
    entry: &EnvEntry,
    set: InstructionSet,
    options: &[Options],
) -> Result<Vec<BlockEnv>, ConfigError> {
    let make = || {
        entry.check_drawn_of(options)?;
        let first: Vec<_> = options.iter().map(Options::before_episodes).collect();
        entry.make_blocks_on(set, &first)
    };
    let envs = match catch_unwind(AssertUnwindSafe(make)) {
        Ok(made) => made.map_err(ConfigError::Make)?,
        Err(panic) => return Err(ConfigError::MakePanicked(panic_message(&*panic))),
    };
    if envs.len() == options.len().div_ceil(BLOCK_LANES) {
        Ok(envs)
    } else {
        Err(ConfigError::Make(MakeError::Lanes { given: options.len() }))
    }
}

/// Tries options of late lanes, whose blocks are made together: in the way that their entry has for it, else by making lanes
/// with each that is new.
pub(crate) fn try_late<'a>(
    entry: &EnvEntry,
    set: InstructionSet,
    options: impl Iterator<Item = &'a Options>,
) -> Result<(), OptionsError> {
    let mut tried: Vec<Options> = Vec::new();
    for options in options {
        // Lanes that are given options together mostly get the same.
        if tried.last() != Some(options) {
            tried.push(options.clone());
        }
    }
    if entry.tries_options() {
        return entry.check_drawn_of(&tried).map_err(|error| cannot_be_made(&error));
    }
    make_envs(entry, set, &tried).map(drop).map_err(|error| cannot_be_made(&error))
}

//! One recorded episode: what a listing says of it, and all of it.

use std::cmp::Ordering;
use std::sync::Arc;

use rollhouse_core::{
    ColumnSpec, EpisodeName, GameResult, Options, Outcome, Parent, RunId, SeedSchedule, Start,
    per_episode_seed,
};

use crate::frame::Frames;
use crate::run::{PolicyInfo, RecordKind};
use crate::run_record::RunInfo;
use rollhouse_core::ColumnData;

/// What a listing says of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeInfo {
    /// Run, lane and number in one; unique in a folder but for runs with the same short id.
    pub name: EpisodeName,
    /// Its run.
    pub run: Arc<RunInfo>,
    /// Where its randomness started.
    pub start: Start,
    /// Steps.
    pub length: u64,
    /// Sum of rewards; not known of an episode whose end was never recorded.
    pub total_reward: Option<f64>,
    /// How it ended; `crashed` also if its recording breaks off.
    pub outcome: Outcome,
    /// Who won, if the env knows.
    pub result: GameResult,
    /// The env's own score, if it has one.
    pub score: Option<f64>,
    /// Wall clock of its first step, to 100 ms, milliseconds since 1970.
    pub started_ms: u64,
    /// Its share of the bytes on disk, estimated from the chunk in which it ended.
    pub bytes: u64,
    pub(crate) place: Place,
}

/// The greater counts: finished, with an end, how long.
pub(crate) type Standing = (bool, bool, u64);

/// Where the last part of an episode stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

impl EpisodeInfo {
    /// The env's id.
    pub fn env(&self) -> &str {
        &self.run.spec.id
    }

    /// Its run's full id.
    pub fn run_id(&self) -> RunId {
        self.run.run()
    }

    /// The number with which reset(seed) alone gives its first state, if there is one.
    pub const fn seed(&self) -> Option<u64> {
        self.start.plain_seed()
    }

    /// Who chose its actions.
    pub fn policy(&self) -> &PolicyInfo {
        &self.run.policy
    }

    /// Hash of the env's dynamics when it was recorded.
    pub fn dynamics(&self) -> u64 {
        self.run.spec.dynamics_hash
    }

    /// The episode it was forked from, if it was, and at which step.
    pub fn parent(&self) -> Option<Parent> {
        self.run.parent
    }

    /// How much of it is kept.
    pub fn recorded(&self) -> RecordKind {
        self.run.recorded
    }

    /// How two episodes of a folder stand on the disk: reading them in this order costs least.
    pub fn compare_places(&self, other: &Self) -> Ordering {
        let place = |info: &Self| (info.place.segment, info.place.offset);
        place(self).cmp(&place(other))
    }

    /// Which of several recordings of one episode counts: one that finished before one that was cut from outside,
    /// which may have gone on elsewhere; then one with an end before one that breaks off; then the longest.
    pub(crate) const fn standing(&self) -> Standing {
        let finished = self.outcome.is_finished();
        (finished, self.total_reward.is_some(), if finished { 0 } else { self.length })
    }

    /// Bytes of memory that its steps take once it is loaded.
    pub fn bytes_in_memory(&self) -> u64 {
        let spec = &self.run.spec;
        let mut row = spec.action_column().row_bytes();
        if self.recorded().has_observations() {
            let columns = spec.obs_columns();
            row += columns.iter().chain(&spec.info_channels).map(ColumnSpec::row_bytes).sum::<usize>();
            row += size_of::<f64>();
        }
        self.length.saturating_mul(row as u64)
    }

    /// Its lane's options.
    pub fn options(&self) -> Options {
        self.run.options(self.name.lane)
    }
}

/// Everything recorded of one episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// What a listing says.
    pub info: EpisodeInfo,
    /// One row per step.
    pub actions: ColumnData,
    /// Hashes of its state by age: (steps taken, hash), ascending.
    pub windows: Vec<(u64, u32)>,
    /// Hash of its last state, if it was recorded.
    pub end_hash: Option<u32>,
    /// Observations, rewards and infos, in traces and full recordings.
    pub steps: Option<Steps>,
    /// The step that stands for step 0, if it is known from there only: of episodes that are watched while they are
    /// played. `None` in recordings, where step 0 is the reset.
    pub from: Option<Box<StepFrom>>,
}

/// All that a lane needs to go on from a step, and what it looked like there.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFrom {
    /// Steps before it.
    pub step: u64,
    /// The sum of their rewards.
    pub total_reward: f64,
    /// Where the lane's generator stood.
    pub position: Start,
    /// The exact state.
    pub state: Vec<f64>,
    /// The hash of that.
    pub hash: u32,
    /// One row of each observation column.
    pub obs: Vec<ColumnData>,
}

impl Episode {
    /// Whether both have the same start, actions and end, whenever and wherever they were recorded.
    pub(crate) fn has_contents_of(&self, other: &Self) -> bool {
        let facts = |info: &EpisodeInfo| {
            let (reward, score) = (info.total_reward.map(f64::to_bits), info.score.map(f64::to_bits));
            (info.run_id(), info.start, info.length, reward, info.outcome, info.result, score)
        };
        facts(&self.info) == facts(&other.info)
            && self.info.options() == other.info.options()
            && self.actions == other.actions
            && self.windows == other.windows
            && self.end_hash == other.end_hash
            && self.steps == other.steps
    }
}

/// Observations, rewards, infos and pictures of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Steps {
    /// One row of each observation column: what the reset gave.
    pub first_obs: Vec<ColumnData>,
    /// Per observation column, one row per step.
    pub obs: Vec<ColumnData>,
    /// One per step.
    pub rewards: Vec<f64>,
    /// Per info column, one row per step.
    pub infos: Vec<ColumnData>,
    /// Pictures that were recorded beside them, of some steps.
    pub frames: Frames,
}

/// Where the randomness of an episode started, given what its chunk says.
pub(crate) fn start_of(run: &RunInfo, lane: u32, number: u64, recorded: Start) -> Start {
    match run.schedule() {
        SeedSchedule::Continue => recorded,
        SeedSchedule::PerEpisode { run_seed } => Start::seeded(per_episode_seed(run_seed, lane, number)),
    }
}

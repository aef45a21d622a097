//! One recorded episode: what a listing says of it, and all of it.

use std::cmp::Ordering;
use std::sync::Arc;

use rollhouse_core::{
    ColumnSpec, EpisodeName, GameResult, Options, Outcome, Parent, RunId, SeedSchedule, Start, Verdict,
    per_episode_seed,
};

use crate::code::agents::agents_of;
use crate::code::calls::{CalledAt, calls_at};
use crate::code::events::UNKNOWN_RETURN;
use crate::code::frame::Frames;
use crate::code::run::{PolicyInfo, RecordKind};
use crate::code::run_record::RunInfo;
use crate::code::versions::PolicyVersions;
use rollhouse_core::ColumnData;

/// An episode as listings show it: name, run, length, return and outcome, without its steps.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeInfo {
    /// Name of the episode: run, lane and number in one. It is unique in a folder, but for runs with the same short id.
    pub name: EpisodeName,
    /// The run that the episode belongs to.
    pub run: Arc<RunInfo>,
    /// State of the lane's random generator at the start of the episode.
    pub start: Start,
    /// Number of steps.
    pub length: u64,
    /// Sum of rewards; `None` for an episode whose end was never recorded.
    pub total_reward: Option<f64>,
    /// Outcome of the episode; `crashed` also if its recording breaks off.
    pub outcome: Outcome,
    /// Result of a game, if the env knows who won.
    pub result: GameResult,
    /// The env's own score, if it has one.
    pub score: Option<f64>,
    /// Returns of the agents, in the order of the env's; `None` if they were not recorded.
    pub(crate) agents: Option<Arc<[f64]>>,
    /// Wall clock of the first step, to 100 ms (to 1 s where images are packed), in milliseconds since 1970.
    pub started_ms: u64,
    /// The episode's share of the bytes on disk, estimated from the chunk in which it ended.
    pub bytes: u64,
    /// How its options differ from those that the run has for its lane; `None` if they do not.
    pub(crate) own_options: Option<Arc<Options>>,
    pub(crate) place: Place,
}

/// The rank of a copy of an episode: whether it finished, whether it has an end, its length. The greatest counts.
pub(crate) type Standing = (bool, bool, u64);

/// The place of the last part of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

impl EpisodeInfo {
    /// Returns the env's id.
    pub fn env(&self) -> &str {
        &self.run.spec.id
    }

    /// Returns about how many bytes of memory its run takes, which the episodes of one run may share.
    pub fn run_memory(&self) -> usize {
        self.run.memory()
    }

    /// Returns the full id of the episode's run.
    pub fn run_id(&self) -> RunId {
        self.run.run()
    }

    /// Returns the number with which reset(seed) alone gives the episode's first state, if there is one.
    pub const fn seed(&self) -> Option<u64> {
        self.start.plain_seed()
    }

    /// Returns the policy that chose the episode's actions.
    pub fn policy(&self) -> &PolicyInfo {
        &self.run.policy
    }

    /// Returns the hash of the env's dynamics when the episode was recorded.
    pub fn dynamics(&self) -> u64 {
        self.run.spec.dynamics_hash
    }

    /// Returns the episode that this one was forked from, and at which step; `None` if it is no fork.
    pub fn parent(&self) -> Option<Parent> {
        self.run.parent
    }

    /// Returns how much of each step is kept.
    pub fn recorded(&self) -> RecordKind {
        self.run.recorded
    }

    /// Returns result and score together.
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::new(self.result, self.score)
    }

    /// Returns each agent's sum of rewards in an episode of several, as it was recorded when the episode ended. There are none
    /// where that is not known: of episodes that break off, of recordings of earlier versions, and of
    /// envs of one agent.
    pub fn agent_returns(&self) -> impl Iterator<Item = (&str, f64)> {
        let known = self.agents.as_deref();
        let names = known.map(|_| agents_of(&self.run.spec)).unwrap_or_default();
        names.into_iter().zip(known.unwrap_or_default().iter().copied())
    }

    /// Returns the bytes of memory of the agents' returns.
    pub fn agents_memory(&self) -> usize {
        self.agents.as_deref().map_or(0, size_of_val)
    }

    /// Compares the places of two episodes of a folder on the disk: reading them in this order costs least.
    pub fn compare_places(&self, other: &Self) -> Ordering {
        let place = |info: &Self| (info.place.segment, info.place.offset);
        place(self).cmp(&place(other))
    }

    /// Returns the rank of this recording among several of one episode. One that finished goes before one that was cut
    /// from outside, which may have gone on elsewhere; then one with an end before one that breaks off; then the
    /// longest.
    pub(crate) const fn standing(&self) -> Standing {
        let finished = self.outcome.is_finished();
        (finished, self.total_reward.is_some(), if finished { 0 } else { self.length })
    }

    /// Returns the bytes of memory that the episode's steps take once it is loaded.
    pub fn bytes_in_memory(&self) -> u64 {
        let spec = &self.run.spec;
        let mut row = spec.action_column().row_bytes() + self.run.step_columns.row_bytes();
        if self.recorded().has_observations() {
            let columns = spec.obs_columns();
            row += columns.iter().chain(&spec.info_channels).map(ColumnSpec::row_bytes).sum::<usize>();
            row += size_of::<f64>();
        }
        self.length.saturating_mul(row as u64)
    }

    /// Returns the options with which the episode began, some of which may be distributions.
    pub fn lane_options(&self) -> Options {
        let of_run = self.run.options(self.name.lane);
        self.own_options.as_ref().map_or_else(|| of_run.clone(), |own| of_run.changed_by(own))
    }

    /// Returns the options that the episode had.
    pub fn options(&self) -> Options {
        self.lane_options().of_episode(self.start)
    }
}

/// An episode with everything that is recorded of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// The episode as listings show it.
    pub info: EpisodeInfo,
    /// Actions, one row per step.
    pub actions: ColumnData,
    /// Hashes of the state by age: (steps taken, hash), ascending.
    pub windows: Vec<(u64, u32)>,
    /// Hash of the last state; `None` if it was not recorded.
    pub end_hash: Option<u32>,
    /// Versions of the policy that chose the actions.
    pub policy_versions: PolicyVersions,
    /// What those who chose the actions noted of each step: for each of the run's step columns, one row per step.
    pub step_columns: Vec<ColumnData>,
    /// Calls that changed the episode's lane, ascending by step.
    pub calls: Vec<CalledAt>,
    /// Observations, rewards and infos; `None` except in traces and full recordings.
    pub steps: Option<Steps>,
    /// The step that stands for step 0, if nothing before it is known: for episodes that are watched while they are
    /// played. `None` in recordings, where step 0 is the reset.
    pub from: Option<Box<StepFrom>>,
}

/// A step in the middle of an episode, with all that a lane needs to go on from it.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFrom {
    /// Number of steps before this one.
    pub step: u64,
    /// Sum of the rewards of the steps before this one.
    pub total_reward: f64,
    /// State of the lane's random generator.
    pub position: Start,
    /// Exact state of the env.
    pub state: Vec<f64>,
    /// Hash of the state.
    pub hash: u32,
    /// Observation at this step: one row of each column.
    pub obs: Vec<ColumnData>,
}

impl Episode {
    /// Returns the calls that changed the lane after `step` steps and before the next one.
    pub fn calls_after(&self, step: u64) -> &[CalledAt] {
        calls_at(&self.calls, step)
    }

    /// Returns whether both have the same start, actions and end, whenever and wherever they were recorded. Versions of
    /// policies and step columns do not count: a lane that goes on elsewhere is played again there by nobody's policy.
    pub(crate) fn has_contents_of(&self, other: &Self) -> bool {
        let facts = |info: &EpisodeInfo| {
            let (reward, score) = (info.total_reward.map(f64::to_bits), info.score.map(f64::to_bits));
            (info.run_id(), info.start, info.length, reward, info.outcome, info.result, score)
        };
        facts(&self.info) == facts(&other.info)
            && self.info.options() == other.info.options()
            && self.actions == other.actions
            && self.calls == other.calls
            && self.windows == other.windows
            && self.end_hash == other.end_hash
            && self.steps == other.steps
    }

    /// Returns whether the same was noted of the steps of both.
    pub(crate) fn has_notes_of(&self, other: &Self) -> bool {
        let (notes, others) = (&self.step_columns, &other.step_columns);
        notes.len() == others.len() && notes.iter().zip(others).all(|(note, other)| note.has_bits_of(other))
    }
}

/// Observations, rewards, infos and pictures of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Steps {
    /// Observation that the reset gave: one row of each column.
    pub first_obs: Vec<ColumnData>,
    /// Observations: for each column, one row per step.
    pub obs: Vec<ColumnData>,
    /// Rewards, one per step.
    pub rewards: Vec<f64>,
    /// Infos: for each column, one row per step.
    pub infos: Vec<ColumnData>,
    /// Pictures of some steps, recorded beside the rest.
    pub frames: Frames,
}

/// Returns the start of an episode's randomness, given the one that its chunk records.
pub(crate) fn start_of(run: &RunInfo, lane: u32, number: u64, recorded: Start) -> Start {
    match run.schedule() {
        SeedSchedule::Continue => recorded,
        SeedSchedule::PerEpisode { run_seed } => Start::seeded(per_episode_seed(run_seed, lane, number)),
    }
}

/// Returns an episode's share of a chunk's bytes.
pub(crate) fn share_of(chunk_bytes: u64, steps: u64, chunk_steps: u64) -> u64 {
    (chunk_bytes as f64 * steps as f64 / chunk_steps.max(1) as f64).ceil() as u64
}

/// Returns the returns of the agents in the episode with that place in a list of those of several.
pub(crate) fn agents_at(all: &[f64], at: usize, episodes: usize) -> Option<Arc<[f64]>> {
    let agents = all.len().checked_div(episodes)?;
    let of_episode = all.get(at * agents..(at + 1) * agents)?;
    let known = !of_episode.is_empty() && of_episode.iter().all(|&total| known_return(total).is_some());
    known.then(|| of_episode.into())
}

/// Returns the return of an episode, as far as it is known: nobody knows the return of an episode that was cut short.
pub(crate) fn known_return(total_reward: f64) -> Option<f64> {
    Some(total_reward).filter(|total| total.to_bits() != UNKNOWN_RETURN.to_bits())
}

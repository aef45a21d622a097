//! Episodes that are not over: the facts about one while it is played.

use std::sync::Arc;

use rollhouse_core::{ColumnData, EpisodeName, GameResult, Interruption, Outcome, Start};

use crate::code::episode::{Episode, EpisodeInfo, Place, StepFrom, Steps};
use crate::code::run::RunHeader;
use crate::code::run_record::RunInfo;
use crate::code::versions::PolicyVersions;

/// An episode as far as it has come. As an [`Episode`], any of its steps can be sought as in one that was recorded; its
/// outcome is `cancelled` until it is over.
#[derive(Debug, Clone)]
pub struct SoFar {
    /// Run that the episode belongs to.
    pub run: RunHeader,
    /// Lane of the episode in the run.
    pub lane: u32,
    /// Number of the episode in the lane.
    pub number: u64,
    /// State of the lane's random generator at the start of the episode.
    pub start: Start,
    /// The step from which the episode is known; `None` if it is known from its reset on.
    pub from: Option<StepFrom>,
    /// Number of steps since then. Actions need not have an element from which they could be counted.
    pub length: u64,
    /// Actions of these steps, one row for each.
    pub actions: ColumnData,
    /// Hash of the state that it has reached; `None` if it is not known.
    pub hash: Option<u32>,
    /// Whether its last step terminated it, and whether it truncated it.
    pub ended: (bool, bool),
    /// Sum of all its rewards.
    pub total_reward: f64,
    /// What its steps have shown, if its env shows no state: then nothing of it is recomputed.
    pub steps: Option<Steps>,
}

impl From<SoFar> for Episode {
    fn from(so_far: SoFar) -> Self {
        let SoFar { mut run, lane, number, start, from, length, actions, hash, ended, total_reward, steps } =
            so_far;
        // From a later step on its start is another: what was drawn of its options has to stay.
        let of_lane = if run.options.len() == 1 { 0 } else { lane as usize };
        run.options = run.options.get(of_lane).map(|options| options.of_episode(start)).into_iter().collect();
        let (terminated, truncated) = ended;
        // From a later step on limits come earlier than they did.
        let over = from.is_none() && (terminated || truncated);
        let outcome = match over {
            true => Outcome::Finished { terminated, truncated },
            false => Outcome::Interrupted(Interruption::Cancelled),
        };
        let info = EpisodeInfo {
            name: EpisodeName { run: run.run.short(), lane, number },
            run: Arc::new(RunInfo::new(&run)),
            start: from.as_ref().map_or(start, |from| from.position),
            length,
            total_reward: over.then_some(total_reward),
            outcome,
            result: GameResult::default(),
            score: None,
            agents: None,
            started_ms: run.started_ms,
            bytes: 0,
            own_options: None,
            place: Place { segment: 0, offset: 0 },
        };
        Self {
            info,
            actions,
            windows: Vec::new(),
            end_hash: hash,
            policy_versions: PolicyVersions::default(),
            step_columns: Vec::new(),
            calls: Vec::new(),
            steps,
            from: from.map(Box::new),
        }
    }
}

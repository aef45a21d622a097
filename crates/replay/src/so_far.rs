//! Episodes that are not over: what is known of one while it is played.

use std::sync::Arc;

use rollhouse_core::{ColumnData, EpisodeName, GameResult, Interruption, Outcome, Start};

use crate::episode::{Episode, EpisodeInfo, Place, StepFrom};
use crate::run::RunHeader;
use crate::run_record::RunInfo;

/// An episode as far as it has come. Turned into an [`Episode`] any of its steps can be come to as of one that was
/// recorded; its outcome is `cancelled` until it is over.
#[derive(Debug, Clone)]
pub struct SoFar {
    /// Its run.
    pub run: RunHeader,
    /// Its lane in the run.
    pub lane: u32,
    /// Its number in the lane.
    pub number: u64,
    /// Where its randomness started.
    pub start: Start,
    /// The step it is known from, if that is not its reset.
    pub from: Option<StepFrom>,
    /// The actions since, one row each.
    pub actions: ColumnData,
    /// The hash of the state it has come to.
    pub hash: Option<u32>,
    /// Whether its last step terminated and truncated it.
    pub ended: (bool, bool),
    /// The sum of all its rewards.
    pub total_reward: f64,
}

impl From<SoFar> for Episode {
    fn from(so_far: SoFar) -> Self {
        let SoFar { run, lane, number, start, from, actions, hash, ended, total_reward } = so_far;
        let elements = run.spec.action_column().elements().max(1);
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
            length: (actions.len() / elements) as u64,
            total_reward: over.then_some(total_reward),
            outcome,
            result: GameResult::default(),
            score: None,
            started_ms: run.started_ms,
            bytes: 0,
            place: Place { segment: 0, offset: 0 },
        };
        Self { info, actions, windows: Vec::new(), end_hash: hash, steps: None, from: from.map(Box::new) }
    }
}

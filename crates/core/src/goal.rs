//! The goal of a rollout.

use serde::{Deserialize, Serialize};

/// The condition at which a rollout ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// The rollout is done after this many batch steps of each session. Episodes that are open then are cancelled.
    Batches(u64),
    /// The rollout is done after exactly this many episodes of the run. Its lane i plays number i, i + N, i + 2N, ... of
    /// them and stops, so that short episodes are not preferred.
    Episodes(u64),
}

impl Goal {
    /// Returns the goal of the whole batches that `steps` steps of `lanes` lanes take.
    pub const fn steps(steps: u64, lanes: usize) -> Self {
        Self::Batches(steps.div_ceil(lanes as u64))
    }
}

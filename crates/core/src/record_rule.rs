//! The rule by which episodes are recorded.

use serde::{Deserialize, Serialize};

/// A choice of which episodes are recorded, and how much of each.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordRule {
    /// Records every episode: as an action log if the env is deterministic, else in full.
    #[default]
    All,
    /// Records nothing.
    None,
    /// Records each episode with this probability, decided by a hash of run, lane and number.
    Sample {
        /// The probability, from 0 to 1.
        probability: f64,
    },
    /// Records every episode with observations, rewards and infos of every step, also of deterministic envs.
    Trace,
}

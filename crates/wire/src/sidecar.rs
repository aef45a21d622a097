//! What a frame's sidecar can say.

use std::collections::BTreeMap;

use rollhouse_core::OptionValue;
use serde::{Deserialize, Serialize};

/// Owner to node: which lanes to reset, and how.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ResetLanes {
    /// One seed (or none) per lane of the session, or empty for none at all.
    #[serde(default)]
    pub seeds: Vec<Option<u64>>,
    /// One byte, 0 or 1, per lane of the session, or empty for all lanes.
    #[serde(default, with = "serde_bytes")]
    pub mask: Vec<u8>,
    /// Options that the lanes have from this reset on: one value for all lanes that are reset, or one per lane of the
    /// session.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Vec<OptionValue>>,
}

/// Node to owner, beside a batch or rows in which something out of the ordinary happened.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Notes {
    /// Lanes whose env failed and is not back yet. Their row is their last observation, reward 0, truncated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostLane>,
}

/// A lane whose env failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostLane {
    /// Lane of the session.
    pub lane: u32,
    /// The outcome of its episode, by [`Outcome::code`](rollhouse_core::Outcome::code).
    pub outcome: u8,
}

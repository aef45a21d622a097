//! Questions that a coordinator answers about the episodes of its store, so that nobody has to fetch them to know.

use rollhouse_core::{Parent, RunId};
use serde::{Deserialize, Serialize};

/// Lists episodes of the store, a page at a time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StoreQuery {
    /// Only of this env.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// Only with an outcome of this word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Also interrupted episodes where the order is by return or length.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_outcomes: bool,
    /// Only with at least this return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_return: Option<f64>,
    /// Only of runs with this short id: the number that stands for a run in the names of its episodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// `return`, `length`, `started` or `name`, with `-` in front for the largest first.
    pub sort: String,
    /// At most so many; at most [`MAX_STORE_EPISODES`](crate::limits::MAX_STORE_EPISODES) are given at a time.
    pub limit: u32,
    /// Only what comes after this place in that order: the `after` of an earlier answer; empty begins with the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u64>,
}

/// Episodes of the store, in the order that was asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StoreEpisodes {
    /// The page.
    pub episodes: Vec<StoreEpisode>,
    /// Place of the last one, to go on after it.
    pub after: Vec<u64>,
    /// Whether more may follow.
    pub more: bool,
}

/// What a listing says of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreEpisode {
    /// Its run.
    #[serde(with = "crate::ids::run_id")]
    pub run: RunId,
    /// Its lane.
    pub lane: u32,
    /// Its number in the lane.
    pub number: u64,
    /// Its env.
    pub env: String,
    /// The number with which reset(seed) alone gives its first state, if there is one.
    pub seed: Option<u64>,
    /// Steps.
    pub length: u64,
    /// Sum of rewards, if it is known.
    #[serde(rename = "return")]
    pub total_reward: Option<f64>,
    /// How it ended.
    pub outcome: String,
    /// Wall clock of its first step, milliseconds since 1970.
    pub started_ms: u64,
    /// Who chose its actions.
    pub policy: String,
    /// Hash of the env's dynamics when it was recorded.
    pub dynamics: u64,
    /// Its share of the bytes on disk.
    pub bytes: u64,
    /// What it was forked from, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
}

/// What a store holds, added up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoreStats {
    /// Episodes by env and outcome.
    pub episodes: Vec<StoreCount>,
    /// Their steps.
    pub steps: u64,
    /// Runs.
    pub runs: u64,
    /// Folders with segments.
    pub folders: u64,
    /// Segments.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Episodes that are not counted because their beginning is gone.
    pub incomplete: u64,
    /// Stretches that are known to be damaged, the first 1,000.
    pub damage: Vec<StoreDamage>,
}

/// Episodes of one env that ended in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreCount {
    /// The env.
    pub env: String,
    /// The outcome's word.
    pub outcome: String,
    /// How many.
    pub episodes: u64,
}

/// A damaged stretch of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreDamage {
    /// The folder in the store.
    pub folder: String,
    /// Number of the segment.
    pub segment: u64,
    /// First bad byte.
    pub from: u64,
    /// Where the next intact record begins.
    pub to: u64,
    /// What is wrong, in a word.
    pub cause: String,
}

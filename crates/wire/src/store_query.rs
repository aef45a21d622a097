//! Questions about the episodes of a store that its coordinator answers, so that nobody has to fetch them.

use std::collections::BTreeMap;

use rollhouse_core::{OptionValue, Parent, RunId};
use serde::{Deserialize, Serialize};

/// Lists episodes of the store, a page at a time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StoreQuery {
    /// Env to which the list is limited, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// Word of the outcome to which the list is limited, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Word of the result to which the list is limited, if any: `win`, `lose` or `draw`. Earlier coordinators do
    /// not look at it, which the results in their answer show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Whether interrupted episodes are listed too where the order is by return or length.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_outcomes: bool,
    /// Smallest return that is listed, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_return: Option<f64>,
    /// Smallest returns of agents that are listed, by their names: episodes without such an agent are left out. Earlier
    /// coordinators do not look at it, which the returns in their answer show.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub min_agent_returns: BTreeMap<String, f64>,
    /// Values of options to which the list is limited: episodes that had others, or no such option, are left out. Earlier
    /// coordinators do not look at it, and do not say so in their answer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, OptionValue>,
    /// Short id of the run to which the list is limited, if any: the number that stands for a run in the names of its
    /// episodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// `return`, `length`, `started` or `name`, with `-` in front for the largest first.
    pub sort: String,
    /// Number of episodes to list at most; at most [`MAX_STORE_EPISODES`](crate::limits::MAX_STORE_EPISODES) are given
    /// at a time.
    pub limit: u32,
    /// Place in the order after which the list begins: the `after` of an earlier answer; empty begins with the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u64>,
}

/// Episodes of the store, in the order that was asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StoreEpisodes {
    /// The episodes of this page.
    pub episodes: Vec<StoreEpisode>,
    /// Place of the last episode, to go on after it.
    pub after: Vec<u64>,
    /// Whether more may follow.
    pub more: bool,
    /// Whether the options of the query were looked at.
    #[serde(default, skip_serializing_if = "crate::session::is_false")]
    pub by_options: bool,
}

/// The facts of an episode that a listing shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoreEpisode {
    /// The run of the episode.
    #[serde(with = "crate::ids::run_id")]
    pub run: RunId,
    /// Number of the lane in the run.
    pub lane: u32,
    /// Number of the episode in the lane.
    pub number: u64,
    /// Id of the env.
    pub env: String,
    /// The number with which reset(seed) alone gives its first state, if there is one.
    pub seed: Option<u64>,
    /// Number of steps.
    pub length: u64,
    /// Sum of rewards, if it is known.
    #[serde(rename = "return")]
    pub total_reward: Option<f64>,
    /// Word of its outcome.
    pub outcome: String,
    /// What there is beside its return.
    #[serde(flatten)]
    pub beside: StoreResult,
    /// Wall-clock time of its first step, milliseconds since 1970.
    pub started_ms: u64,
    /// Name of the policy or program that chose its actions.
    pub policy: String,
    /// Hash of the env's dynamics at the time of recording.
    pub dynamics: u64,
    /// Its share of the bytes on disk.
    pub bytes: u64,
    /// The episode from which it was forked, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
}

/// The question what is in the store, all in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoreStatsRequest {}

/// The results of an episode beside its return, which only some have.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StoreResult {
    /// Word of the result that the env gave it, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Score that the env gave it, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Sum of each agent's rewards, of an episode of several, if they are known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agent_returns: BTreeMap<String, f64>,
}

/// Totals of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoreStats {
    /// Number of episodes by env and outcome.
    pub episodes: Vec<StoreCount>,
    /// Number of steps of these episodes.
    pub steps: u64,
    /// Number of these episodes that finished with a return that is no number.
    #[serde(default, skip_serializing_if = "crate::status::none_counted")]
    pub no_numbers: u64,
    /// Number of runs.
    pub runs: u64,
    /// Number of folders with segments.
    pub folders: u64,
    /// Number of segments.
    pub segments: u64,
    /// Bytes of these segments.
    pub bytes: u64,
    /// Number of episodes that are not counted because their beginning is gone.
    pub incomplete: u64,
    /// Stretches that are known to be damaged, the first 1,000.
    pub damage: Vec<StoreDamage>,
}

/// The number of episodes of one env that ended in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreCount {
    /// Id of the env.
    pub env: String,
    /// The outcome's word.
    pub outcome: String,
    /// Number of these episodes.
    pub episodes: u64,
}

/// A damaged stretch of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreDamage {
    /// Name of the folder in the store.
    pub folder: String,
    /// Number of the segment.
    pub segment: u64,
    /// Offset of the first bad byte.
    pub from: u64,
    /// Offset at which the next intact record begins.
    pub to: u64,
    /// The kind of damage, in a word.
    pub cause: String,
}

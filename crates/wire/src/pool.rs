//! What trainers ask the coordinator for.

use std::collections::BTreeMap;

use rollhouse_core::{EnvSpec, OptionValue, RunId};
use serde::{Deserialize, Serialize};

use crate::ids::run_id;
use crate::session::is_false;
use crate::{Incarnation, ReplayOf, Secret};

/// How the lanes of a pool behave; the same for all of its sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneSettings {
    /// Env id, e.g. `CartPole-v1`.
    pub env: String,
    /// Options of every lane.
    #[serde(default)]
    pub options: BTreeMap<String, OptionValue>,
    /// How the next episode begins.
    #[serde(default)]
    pub autoreset: AutoresetMode,
    /// The time limit in steps: absent is the env's own, 0 lifts it.
    #[serde(default)]
    pub max_episode_steps: Option<u32>,
    /// Where episodes' randomness comes from.
    #[serde(default)]
    pub seeds: SeedRule,
    /// What nodes record.
    #[serde(default)]
    pub record: RecordRule,
    /// If present, nodes choose the actions themselves until the goal is reached.
    #[serde(default)]
    pub collect: Option<Collect>,
    /// If present, the lane is a recorded episode, and the rest says how that was played. Only coordinators set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayOf>,
}

/// Gymnasium's autoreset modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AutoresetMode {
    /// The row after an episode's end begins the next one.
    #[default]
    NextStep,
    /// The row of an episode's end already shows the next one's first observation.
    SameStep,
    /// The caller resets.
    Disabled,
}

/// Where episodes' randomness comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeedRule {
    /// Gymnasium's: autoreset draws on.
    #[default]
    Continue,
    /// Every episode is seeded from run seed, lane of the pool and number.
    PerEpisode {
        /// The run's seed.
        run_seed: u64,
    },
}

/// What nodes record of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordRule {
    /// Every episode.
    #[default]
    All,
    /// Nothing.
    None,
    /// Each episode with this probability.
    Sample {
        /// From 0 to 1.
        probability: f64,
    },
    /// Every episode with the observations and rewards of every step.
    Trace,
}

/// Node-side play.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Collect {
    /// Name of a built-in policy.
    pub policy: String,
    /// Its seed.
    pub seed: u64,
    /// When the pool is done.
    pub goal: CollectGoal,
    /// Whether it ends when its owner is not heard of for the time of a rollout's lease: who asked for it is to ask how it
    /// is doing, with [`PoolStatusRequest::keep`]. Else it goes on until its goal is reached or somebody closes it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub leased: bool,
}

/// When a collecting pool is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectGoal {
    /// After so many batches of each session.
    Batches(u64),
    /// After exactly so many episodes of the pool: lane i plays i, i + N, ...
    Episodes(u64),
}

/// Asks for a pool of lanes. Asking again with the same `pool` gives the same answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenPool {
    /// The pool's id, drawn by the asker: names the run.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Lanes wanted; all of them or a refusal.
    pub lanes: u32,
    /// How they behave.
    pub settings: LaneSettings,
    /// Labels a node must have, each with this value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// How lanes are laid over nodes.
    #[serde(default)]
    pub spread: Spread,
}

/// How a pool's lanes are laid over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// On as few nodes as have room, the emptiest first.
    #[default]
    Pack,
    /// Evenly over all nodes that fit.
    Even,
    /// As one session on one node, however many they are: through shared memory a large batch needs no gathering
    /// then, and one thread steps it.
    Single,
}

/// The pool is open: where its lanes are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolOpened {
    /// The env as the nodes have it.
    pub spec: EnvSpec,
    /// How long the nodes keep the sessions for an owner they do not hear of.
    pub lease_ms: u64,
    /// The sessions in the order of their lanes.
    pub sessions: Vec<Grant>,
}

/// One session of a pool and the right to step it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// Which of the pool's sessions.
    pub index: u32,
    /// Which placement.
    pub incarnation: Incarnation,
    /// To be shown to the node.
    pub secret: Secret,
    /// The node's name.
    pub node: String,
    /// Where it answers: host and port.
    pub address: String,
    /// Path of its attach socket on its own machine; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<String>,
    /// The session's first lane in the pool.
    pub first_lane: u32,
    /// Its lanes.
    pub lanes: u32,
}

/// Asks for another place for a session that has ended, whose node does not answer, or whose node is going away. Says
/// all that is needed to open it, so that a coordinator that has just started can do it too. Asking again, with the
/// placement that the owner had, gives the same answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplaceSession {
    /// As the pool was asked for.
    pub open: OpenPool,
    /// Which of its sessions.
    pub index: u32,
    /// The placement that the owner had.
    pub incarnation: Incarnation,
    /// The session's first lane in the pool.
    pub first_lane: u32,
    /// Its lanes.
    pub lanes: u32,
    /// Of the env as it was when the pool was opened: only nodes with the same dynamics will do.
    pub dynamics: u64,
    /// Whether the session is there and can be stepped: it ends only once it has another place.
    #[serde(default)]
    pub moving: bool,
    /// The node that the owner had it on, for a coordinator that does not know; empty if that is not said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Whether the placement that the owner had took the place of an earlier one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replaces: bool,
}

/// The session has another place; the earlier one is fenced off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionReplaced {
    /// Where it is, and the right to step it.
    pub grant: Grant,
    /// How long the node keeps it for an owner that it does not hear of.
    pub lease_ms: u64,
}

/// Ends a pool: its sessions are closed, open episodes end as `cancelled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosePool {
    /// The pool.
    #[serde(with = "run_id")]
    pub pool: RunId,
}

/// Asks how a pool is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatusRequest {
    /// The pool.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Whether the asker, if the pool is its own and plays by itself, holds its lease: it ends if it is not asked for so
    /// again in time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep: bool,
}

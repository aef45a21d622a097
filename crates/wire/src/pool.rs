//! Pools: the requests of trainers to the coordinator for lanes.

use std::collections::BTreeMap;

use rollhouse_core::limits::MAX_OBS_COLUMNS;
use rollhouse_core::{
    AutoresetMode, ColumnSpec, EnvId, EnvSpec, Goal, OptionValue, Pace, RecordRule, RunId, SeedSchedule,
    StepColumns, bounded_list,
};
use rollhouse_policy::Sampling;
use serde::{Deserialize, Serialize};

use crate::ids::run_id;
use crate::session::is_false;
use crate::{Incarnation, PolicyFile, ReplayOf, Secret};

/// Settings of a pool's lanes; the same for all of its sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneSettings {
    /// Id of the env, e.g. `CartPole-v1`.
    pub env: EnvId,
    /// Arguments with which an env is made that nodes learn when it is asked for: a JSON object as text. Empty stands for
    /// none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub env_kwargs: String,
    /// Whether an env that nodes learn is declared deterministic. Absent leaves that to the env's own `metadata`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<bool>,
    /// Options of every lane.
    #[serde(default)]
    pub options: BTreeMap<String, OptionValue>,
    /// The way in which the next episode begins.
    #[serde(default)]
    pub autoreset: AutoresetMode,
    /// The time limit in steps: absent means the env's own, 0 lifts it.
    #[serde(default)]
    pub max_episode_steps: Option<u32>,
    /// The source of episodes' randomness.
    #[serde(default)]
    pub seeds: SeedSchedule,
    /// The episodes that nodes record.
    #[serde(default)]
    pub record: RecordRule,
    /// If present, nodes choose the actions themselves until the goal is reached.
    #[serde(default)]
    pub collect: Option<Collect>,
    /// If present, the lane is a recorded episode, and the rest says how that was played. Only coordinators set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayOf>,
    /// Columns in which the owner notes something of each step, for recordings.
    #[serde(default, skip_serializing_if = "StepColumns::is_empty")]
    pub step_columns: StepColumns,
    /// What is to be had of the infos and pictures of envs that nodes learn.
    #[serde(default, skip_serializing_if = "InfoSettings::is_default")]
    pub infos: InfoSettings,
    /// If present, the lanes are live: their worlds tick by it, whatever their owner does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
}

/// What is to be had of the infos and pictures of envs that nodes learn.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct InfoSettings {
    /// Whether the numbers in them are columns of the lanes.
    #[serde(default)]
    pub numbers: bool,
    /// Infos that are recorded with each step, by their names, types and shapes.
    #[serde(default, deserialize_with = "bounded_list::<_, MAX_OBS_COLUMNS, _>")]
    pub record: Vec<ColumnSpec>,
    /// Of every how many-th step a picture is recorded; 0 for none.
    #[serde(default)]
    pub frames_every: u64,
}

impl InfoSettings {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl LaneSettings {
    /// Returns the env by which the lanes weigh. A recorded episode that is shown weighs next to nothing, whatever its env:
    /// an empty text stands for it.
    pub fn weighed_env(&self) -> EnvId {
        if self.replay.is_some() { EnvId::from("") } else { self.env.clone() }
    }
}

/// The settings for lanes whose actions the node chooses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Collect {
    /// Name of a built-in policy, or of one that the cluster has.
    pub policy: String,
    /// The version of the cluster's policy; absent for the newest, and of a built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// How it draws actions; absent for what its file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// The file of the cluster's policy, which nodes fetch. Only coordinators set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PolicyFile>,
    /// The seed of the policy.
    pub seed: u64,
    /// The condition under which the pool is done.
    pub goal: Goal,
    /// Whether the pool ends when its owner is not heard of for the time of a rollout's lease. The owner then has to
    /// ask for its status now and then, with [`PoolStatusRequest::keep`]. Otherwise it goes on until its goal is
    /// reached or somebody closes it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub leased: bool,
}

impl Collect {
    /// Returns the settings for a built-in policy, or for the newest version of one that the cluster has, of a pool that is not
    /// leased.
    pub fn new(policy: impl Into<String>, seed: u64, goal: Goal) -> Self {
        Self { policy: policy.into(), version: None, sampling: None, file: None, seed, goal, leased: false }
    }
}

/// Asks for a pool of lanes. Asking again with the same `pool` gives the same answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenPool {
    /// The pool's id, drawn by the asker: it names the run.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Number of lanes wanted; the answer grants all of them or refuses.
    pub lanes: u32,
    /// Settings of the lanes.
    pub settings: LaneSettings,
    /// Labels a node must have, each with this value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The way in which lanes are laid over nodes.
    #[serde(default)]
    pub spread: Spread,
}

/// The way in which a pool's lanes are laid over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Lanes lie on as few nodes as have room, the emptiest first.
    #[default]
    Pack,
    /// Lanes lie evenly over all nodes that fit.
    Even,
    /// Lanes are one session on one node, however many they are: through shared memory a large batch then needs no
    /// gathering, and one thread steps it.
    Single,
}

/// The answer to [`OpenPool`]: the pool is open, and its lanes are in these sessions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolOpened {
    /// The env as the nodes have it.
    pub spec: EnvSpec,
    /// Time for which the nodes keep the sessions when they do not hear of the owner.
    pub lease_ms: u64,
    /// The sessions in the order of their lanes.
    pub sessions: Vec<Grant>,
}

/// One session of a pool and the right to step it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// Index of the session in the pool.
    pub index: u32,
    /// The placement of the session.
    pub incarnation: Incarnation,
    /// The secret to show to the node.
    pub secret: Secret,
    /// The node's name.
    pub node: String,
    /// The address at which the node answers: host and port.
    pub address: String,
    /// Path of its attach socket on its own machine; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<String>,
    /// Number of the session's first lane in the pool.
    pub first_lane: u32,
    /// Number of its lanes.
    pub lanes: u32,
}

/// Asks for another place for a session that has ended, whose node does not answer, or whose node is going away. The
/// request has all that is needed to open the session, so that a coordinator that has just started can do it too.
/// Asking again, with the placement that the owner had, gives the same answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplaceSession {
    /// The request with which the pool was opened.
    pub open: OpenPool,
    /// Index of the session in the pool.
    pub index: u32,
    /// The placement that the owner had.
    pub incarnation: Incarnation,
    /// Number of the session's first lane in the pool.
    pub first_lane: u32,
    /// Number of its lanes.
    pub lanes: u32,
    /// Dynamics hash of the env when the pool was opened: only nodes with the same dynamics can take the session.
    pub dynamics: u64,
    /// Whether the session is still there and can be stepped: it ends only once it has another place.
    #[serde(default)]
    pub moving: bool,
    /// The node on which the owner had it, for a coordinator that does not know; empty if the owner does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Whether the placement that the owner had took the place of an earlier one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replaces: bool,
}

/// The answer to [`ReplaceSession`]: the session has another place, and the earlier one is fenced off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionReplaced {
    /// The new place, and the right to step the session there.
    pub grant: Grant,
    /// Time for which the node keeps the session when it does not hear of the owner.
    pub lease_ms: u64,
}

/// Ends a pool: its sessions are closed, open episodes end as `cancelled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosePool {
    /// The pool.
    #[serde(with = "run_id")]
    pub pool: RunId,
}

/// Asks for the status of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatusRequest {
    /// The pool.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Whether to renew the pool's lease, if the pool is the asker's own and plays by itself: it ends if nobody asks
    /// again in time with this set.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keep: bool,
}

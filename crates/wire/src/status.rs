//! What operators ask.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{EndCause, Incarnation, NodeLoad, SessionCounts, SessionReport, Unfit};

/// The cluster at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Name and version of the coordinator's program.
    pub program: String,
    /// Its term.
    pub term: u64,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Nodes by state.
    pub nodes: BTreeMap<NodeState, u32>,
    /// Lanes all nodes that are alive take.
    pub capacity: u32,
    /// Lanes of open sessions.
    pub lanes: u32,
    /// Open pools.
    pub pools: u32,
    /// Open sessions.
    pub sessions: u32,
    /// Env steps on all nodes since they started.
    pub steps: u64,
    /// Finished episodes on all nodes since they started.
    pub episodes: u64,
    /// Sessions by the transport of their owner.
    pub transports: BTreeMap<String, u32>,
    /// Segments and bytes in the store.
    pub store: StoreStatus,
}

/// What the store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Segments.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments that are set aside as a whole: damaged, or under a number that was taken.
    pub quarantined: u64,
    /// Episodes that are set aside, these segments' included: the store has others of their names.
    #[serde(default, skip_serializing_if = "no_episodes")]
    pub set_aside: u64,
}

/// How a node stands with the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Heard of in time.
    Alive,
    /// Not heard of for a while; gets no new sessions.
    Suspect,
    /// Not heard of for so long that its lanes are given up.
    Lost,
    /// Takes no new sessions and ends when its last has.
    Draining,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// How it stands.
    pub state: NodeState,
    /// Where trainers reach it.
    pub address: String,
    /// Lanes it takes.
    pub capacity: u32,
    /// Threads it steps on.
    pub threads: u32,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Open sessions.
    pub sessions: u32,
    /// Milliseconds since it was last heard of.
    pub silent_ms: u64,
    /// How busy it was then.
    pub load: NodeLoad,
    /// Name and version of its program.
    pub program: String,
    /// What keeps it from taking sessions, if something does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<Unfit>,
}

/// The nodes, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeList {
    /// By name.
    pub nodes: Vec<NodeStatus>,
    /// So many more there are than fit into a message.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u32,
}

/// One session and where it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// The node.
    pub node: String,
    /// As the node sees it.
    pub report: SessionReport,
}

/// The sessions, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionList {
    /// By name.
    pub sessions: Vec<SessionStatus>,
    /// So many more there are than fit into a message.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u32,
}

/// How a pool is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Sessions that are open.
    pub open: u32,
    /// Sessions that ended, by cause.
    pub ended: BTreeMap<EndCause, u32>,
    /// The sessions that are not there any more, and why: those that ended, and those whose node is lost, which come
    /// back if it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<GoneSession>,
    /// Why sessions failed, the first few.
    pub failures: Vec<String>,
    /// What all of them have done.
    pub done: SessionCounts,
    /// Whether everything that ended sessions recorded is in the store; false as long as that is not known, and if
    /// some of it is set aside.
    pub shipped: bool,
    /// Whether nothing of it is on its way any more: it is in the store or set aside there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
    /// Episodes of the pool that are set aside: the store has others of their names, or they came in a segment that is
    /// damaged.
    #[serde(default, skip_serializing_if = "no_episodes")]
    pub set_aside: u64,
}

/// A session of a pool that is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneSession {
    /// Which of the pool's.
    pub index: u32,
    /// Which placement of it.
    pub incarnation: Incarnation,
    /// Why.
    pub cause: EndCause,
}

/// Asks a node to take no new sessions and to end when its last has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// The node's name.
    pub node: String,
}

/// Takes a request to drain back: the node takes new sessions again, unless it has ended meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undrain {
    /// The node's name.
    pub node: String,
}

/// A store that has set nothing aside says nothing of it.
const fn no_episodes(count: &u64) -> bool {
    *count == 0
}

/// Lists that are whole say nothing of it.
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

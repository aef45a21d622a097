//! What operators ask.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{EndCause, Incarnation, NodeLoad, SessionCounts, SessionReport};

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
    /// Segments kept aside because they contradict others.
    pub quarantined: u64,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Episodes recorded by the pool's nodes that are not in the store yet may be missing from it: true once
    /// everything the ended sessions recorded has been shipped.
    pub shipped: bool,
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

/// Lists that are whole say nothing of it.
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

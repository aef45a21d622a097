//! Status of the cluster, its nodes, sessions and pools, for operators.

use std::collections::BTreeMap;
use std::fmt;

use rollhouse_core::Weight;
use serde::{Deserialize, Serialize};

use crate::{EndCause, Incarnation, NodeLoad, SessionCounts, SessionReport, Unfit};

/// The question how the cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StatusRequest {}

/// The cluster at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Name and version of the coordinator's program.
    pub program: String,
    /// The coordinator's term.
    pub term: u64,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Number of nodes in each state.
    pub nodes: BTreeMap<NodeState, u32>,
    /// Number of lanes that all living nodes together take.
    pub capacity: u32,
    /// Number of lanes of open sessions.
    pub lanes: u32,
    /// Number of open pools.
    pub pools: u32,
    /// Number of open sessions.
    pub sessions: u32,
    /// Number of env steps on all nodes since they started.
    pub steps: u64,
    /// Number of episodes finished on all nodes since they started.
    pub episodes: u64,
    /// Number of sessions by the transport of their owner.
    pub transports: BTreeMap<String, u32>,
    /// Contents of the store.
    pub store: StoreStatus,
    /// The nodes that are refused because they have seen a later coordinator; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<BehindStatus>,
}

/// The later coordinator that nodes have seen, which keeps them from taking orders of this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BehindStatus {
    /// The greatest term that one of them has seen.
    pub term: u64,
    /// A node that has seen it.
    pub node: String,
    /// Number of nodes that are refused for that.
    pub nodes: u32,
}

impl BehindStatus {
    /// Returns the least term with which the coordinator is later than all that these nodes have seen.
    pub const fn least_term(&self) -> u64 {
        self.term.saturating_add(1)
    }
}

impl ClusterStatus {
    /// Returns whether pools cannot be expected to open: at least as many nodes are refused as have joined.
    pub fn is_behind(&self) -> bool {
        let alive = self.nodes.get(&NodeState::Alive).copied().unwrap_or_default();
        self.behind.as_ref().is_some_and(|behind| behind.nodes >= alive)
    }
}

/// Says what an operator has to do.
impl fmt::Display for BehindStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { term, node, nodes } = self;
        write!(
            f,
            "node {node} has seen term {term}, of a later coordinator than this one; nodes refused for that: {nodes}. If \
             this folder was restored and no other coordinator runs, start this one with --least-term {least} \
             (ROLLHOUSE_COORDINATOR__LEAST_TERM={least})",
            least = self.least_term()
        )
    }
}

/// The contents of the store, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Number of segments.
    pub segments: u64,
    /// Bytes of these segments.
    pub bytes: u64,
    /// Number of segments that are set aside as a whole: damaged, or under a number that was taken.
    pub quarantined: u64,
    /// Number of episodes that are set aside, those in such segments included: the store has others with their names.
    #[serde(default, skip_serializing_if = "none_counted")]
    pub set_aside: u64,
    /// Bytes of segments above which those that came first leave the store's disk; 0 if that is not known.
    #[serde(default, skip_serializing_if = "none_counted")]
    pub budget: u64,
    /// Bytes of segments that were taken in since the coordinator's start.
    #[serde(default, skip_serializing_if = "none_counted")]
    pub received_bytes: u64,
}

/// The state of a node, as the coordinator sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The node was heard of in time.
    Alive,
    /// The node was not heard of for a while; it gets no new sessions.
    Suspect,
    /// The node was not heard of for so long that its lanes are given up.
    Lost,
    /// The node takes no new sessions and ends when its last has.
    Draining,
}

impl NodeState {
    /// Returns the word in listings, on screens and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Suspect => "suspect",
            Self::Lost => "lost",
            Self::Draining => "draining",
        }
    }
}

/// The status of one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node's name.
    pub node: String,
    /// The node's state.
    pub state: NodeState,
    /// The address at which trainers reach it.
    pub address: String,
    /// Number of lanes that it takes.
    pub capacity: u32,
    /// Number of threads on which it steps.
    pub threads: u32,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Number of its open sessions.
    pub sessions: u32,
    /// Milliseconds since it was last heard of.
    pub silent_ms: u64,
    /// Its load at that time.
    pub load: NodeLoad,
    /// Name and version of its program.
    pub program: String,
    /// Kinds of envs that it learns when one is asked for, e.g. `gymnasium:*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// What it has for lanes, if it says so. Its load has what is taken of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Weight>,
    /// The trouble that keeps it from taking sessions, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<Unfit>,
}

/// A question for a list whose order is that of its items' keys, a page at a time: as many items as fit into a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListAfter<K> {
    /// The key of the last item of the page before; absent for the first page. Earlier coordinators pass over it.
    #[serde(default = "first_page", skip_serializing_if = "Option::is_none")]
    pub after: Option<K>,
}

impl<K> Default for ListAfter<K> {
    fn default() -> Self {
        Self { after: None }
    }
}

const fn first_page<K>() -> Option<K> {
    None
}

/// The key of an offered env: its id, and the hash of its dynamics unless it is a kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EnvPlace {
    /// The env's id, or a kind of envs.
    pub env: String,
    /// The hash of its dynamics; `None` of a kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamics_hash: Option<u64>,
}

impl OfferedEnv {
    /// Returns the env's key in lists.
    pub fn place(&self) -> EnvPlace {
        EnvPlace { env: self.env.clone(), dynamics_hash: self.dynamics_hash }
    }
}

/// The nodes, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeList {
    /// The nodes, by name.
    pub nodes: Vec<NodeStatus>,
    /// Number of further nodes, which are on the pages that follow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u32,
}

/// An env of which pools can be opened. Nodes whose env of one id has other dynamics are told apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedEnv {
    /// The env's id, or a kind of envs that nodes learn when one is asked for: `gymnasium:*`.
    pub env: String,
    /// The hash of its dynamics; `None` of a kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamics_hash: Option<u64>,
    /// Number of nodes that have it and are alive.
    pub nodes: u32,
    /// Number of lanes for which these nodes have room.
    pub free_lanes: u32,
}

/// The envs of which pools can be opened, by id and dynamics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvList {
    /// The envs, and kinds of envs.
    pub envs: Vec<OfferedEnv>,
    /// Number of further ones, which are on the pages that follow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u32,
}

/// One session and the node on which it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// The node's name.
    pub node: String,
    /// The session as the node sees it.
    pub report: SessionReport,
    /// How often its lanes have tried again to connect, while they try; else 0.
    #[serde(default, skip_serializing_if = "is_none")]
    pub connecting: u32,
}

const fn is_none(retries: &u32) -> bool {
    *retries == 0
}

/// The sessions, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionList {
    /// The sessions, by name.
    pub sessions: Vec<SessionStatus>,
    /// Number of further sessions, which are on the pages that follow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u32,
}

/// The status of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Number of its sessions that are open.
    pub open: u32,
    /// Number of its sessions that ended, by cause.
    pub ended: BTreeMap<EndCause, u32>,
    /// Sessions that are gone, and why: those that ended, and those whose node is lost, which come back if the node
    /// does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<GoneSession>,
    /// The reasons why sessions failed, the first few.
    pub failures: Vec<String>,
    /// The steps and episodes of all its sessions together.
    pub done: SessionCounts,
    /// Whether everything that ended sessions recorded is in the store; false as long as that is not known, and if some
    /// of it is set aside.
    pub shipped: bool,
    /// Whether none of its recordings is on its way any more: each is in the store or set aside there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
    /// Number of episodes of the pool that are set aside: the store has others with their names, or they came in a
    /// damaged segment.
    #[serde(default, skip_serializing_if = "none_counted")]
    pub set_aside: u64,
}

impl PoolStatus {
    /// Returns whether the store may get more of its recordings without anybody's doing.
    pub const fn is_on_its_way(&self) -> bool {
        !self.shipped && !self.settled
    }
}

/// A session of a pool that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneSession {
    /// Index of the session in the pool.
    pub index: u32,
    /// The placement of the session.
    pub incarnation: Incarnation,
    /// The reason why it is gone.
    pub cause: EndCause,
}

/// Asks a node to take no new sessions and to end when its last has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// The node's name.
    pub node: String,
}

/// Takes a request to drain back: the node takes new sessions again, unless it has ended in the meantime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undrain {
    /// The node's name.
    pub node: String,
}

/// Returns whether the field is left out: a store that has set nothing aside does not mention it.
pub(crate) const fn none_counted(count: &u64) -> bool {
    *count == 0
}

/// Returns whether the field is left out: lists that are whole do not mention it.
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

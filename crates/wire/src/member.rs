//! Membership: what nodes tell the coordinator.

use std::collections::BTreeMap;
use std::fmt;

use rollhouse_core::Interruption;
use serde::{Deserialize, Serialize};

use crate::session::is_false;
use crate::{Changes, CloseSession, Incarnation, ReplayReport, SessionId};

/// Node to coordinator, after each (re)connection: here I am. What runs here is told by heartbeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Register {
    /// The node's name; must be the one in its certificate.
    pub node: String,
    /// Drawn at the node's start: tells a restarted node from one that was cut off.
    pub boot: u64,
    /// Where trainers reach it: host and port.
    pub address: String,
    /// Path of its attach socket, for trainers on its machine; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<String>,
    /// Lanes it takes.
    pub capacity: u32,
    /// Threads it steps on.
    pub threads: u32,
    /// For placement.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Envs it has, with their dynamics hash.
    pub envs: BTreeMap<String, u64>,
    /// The greatest term of a session that is open here, 0 without any: no older coordinator takes the node in.
    pub term: u64,
    /// Name and version of its program.
    pub program: String,
}

/// The coordinator knows the node now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The coordinator's term.
    pub term: u64,
    /// How often it wants to hear of the node.
    pub heartbeat_ms: u64,
    /// The version of the node's sessions that it has of this boot; 0 if it has to be told everything.
    pub known: u64,
}

/// Node to coordinator, once a second: alive means that its control thread still turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Counts heartbeats of this connection from 1.
    pub number: u64,
    /// How busy it is.
    pub load: NodeLoad,
    /// What changed among its open sessions since the coordinator last took changes in.
    pub changes: Changes,
    /// Sessions that ended and whose end the coordinator has not acknowledged yet.
    pub ended: Vec<SessionEnd>,
    /// What keeps it from taking sessions, if something does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<Unfit>,
    /// Whether it takes no new sessions and ends when its last has.
    #[serde(default, skip_serializing_if = "is_false")]
    pub draining: bool,
}

/// Something is wrong with a node that is alive: its disk, its recorder or its certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfit {
    /// What it takes all the same.
    pub takes: Takes,
    /// What is wrong, in one sentence.
    pub why: String,
}

/// Which new sessions a node takes that is not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Takes {
    /// None.
    Nothing,
    /// Those that record nothing.
    Unrecorded,
    /// Any, but every other node with room goes before it.
    Last,
}

/// What follows the node's name in a sentence.
impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "takes no new sessions",
            Self::Unrecorded => "takes no new sessions that are recorded",
            Self::Last => "is given sessions last",
        })
    }
}

/// The heartbeat with that number was taken in, its `ended` included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatTaken {
    /// The heartbeat's number.
    pub number: u64,
    /// The version of the node's sessions that the coordinator has now.
    pub known: u64,
    /// Sessions the node has to close: they were placed elsewhere or their pool is gone.
    pub close: Vec<CloseSession>,
    /// Whether the node is to take no new sessions and end when the last has.
    pub drain: bool,
    /// Whether a node that drains is to go on instead; one that is stopping does not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undrain: bool,
}

/// How busy a node is. Counters count from the node's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Lanes of its open sessions.
    pub lanes: u32,
    /// Batches waiting for a thread.
    pub queued: u32,
    /// Env steps.
    pub steps: u64,
    /// Finished episodes.
    pub episodes: u64,
    /// Bytes recorded and not yet in the store, buffers included.
    pub spool_bytes: u64,
    /// Bytes that have left the spool: shipped, or dropped because it was full.
    #[serde(default)]
    pub spool_left: u64,
    /// Episodes that were not recorded because the spool was full.
    pub spool_dropped: u64,
}

/// A session as its node sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionReport {
    /// Which session.
    pub session: SessionId,
    /// Which placement of it.
    pub incarnation: Incarnation,
    /// Whose it is.
    pub owner: String,
    /// Its env.
    pub env: String,
    /// Its first lane in the pool.
    pub first_lane: u32,
    /// Its lanes.
    pub lanes: u32,
    /// Lanes of the whole pool.
    pub pool_lanes: u32,
    /// Whether it took the place of an earlier placement.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replaces: bool,
    /// Whether its owner is attached; `None` when the node plays by itself.
    pub attached: Option<bool>,
    /// Transport of the attached owner, e.g. `quic`.
    pub transport: Option<String>,
    /// What it has done.
    pub done: SessionCounts,
    /// The recorded episode that it shows, if it is a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayReport>,
}

/// What a session has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionCounts {
    /// Env steps.
    pub steps: u64,
    /// Finished episodes.
    pub episodes: u64,
    /// Sum of their returns.
    pub return_sum: f64,
    /// Episodes cut from outside.
    pub interrupted: u64,
}

impl SessionCounts {
    /// Adds what another has done. A node may say anything: sums stay at what they can hold.
    pub fn add(&mut self, other: &Self) {
        self.steps = self.steps.saturating_add(other.steps);
        self.episodes = self.episodes.saturating_add(other.episodes);
        self.return_sum += other.return_sum;
        self.interrupted = self.interrupted.saturating_add(other.interrupted);
    }
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// Which session.
    pub session: SessionId,
    /// Which placement of it.
    pub incarnation: Incarnation,
    /// Why.
    pub cause: EndCause,
    /// One sentence when something failed, else empty.
    #[serde(default)]
    pub detail: String,
    /// What it had done.
    pub done: SessionCounts,
    /// What the session was, for a coordinator that never heard of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Box<SessionReport>>,
    /// Whether it waited for an owner who never attached: the node may be out of owners' reach.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unreached: bool,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// It reached its goal.
    Finished,
    /// It was closed by its owner or an operator.
    Closed,
    /// Its owner was not heard of for the time of the lease.
    LeaseEnded,
    /// The node went away in order.
    Drained,
    /// The node was lost or restarted. Only the coordinator says so.
    NodeLost,
    /// Its lanes made no progress.
    Hung,
    /// Something failed.
    Failed,
}

impl EndCause {
    /// The word in messages, listings and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Closed => "closed",
            Self::LeaseEnded => "lease_ended",
            Self::Drained => "drained",
            Self::NodeLost => "node_lost",
            Self::Hung => "hung",
            Self::Failed => "failed",
        }
    }

    /// How the episodes end that were open in the session's lanes, as their owner sees it.
    pub const fn interruption(self) -> Interruption {
        match self {
            Self::Drained => Interruption::Evicted,
            Self::NodeLost => Interruption::NodeLost,
            Self::Hung => Interruption::Hung,
            Self::Failed => Interruption::Crashed,
            Self::LeaseEnded => Interruption::Disconnected,
            Self::Finished | Self::Closed => Interruption::Cancelled,
        }
    }
}

//! Sessions: what the coordinator asks of nodes, and how an owner attaches.

use rollhouse_core::{EnvSpec, RunId};
use serde::{Deserialize, Serialize};

use crate::ids::run_id;
use crate::{Incarnation, LaneSettings, Refusal, Secret, SessionId};

/// Coordinator to node: make the lanes of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenSession {
    /// Which session.
    pub session: SessionId,
    /// Which placement of it; greater than any the node has seen of it.
    pub incarnation: Incarnation,
    /// What its owner will show.
    pub secret: Secret,
    /// Name of the owner's token or certificate, for listings and metrics.
    pub owner: String,
    /// The session's first lane in the pool.
    pub first_lane: u32,
    /// Its lanes.
    pub lanes: u32,
    /// Lanes of the whole pool.
    pub pool_lanes: u32,
    /// Whether it takes the place of an earlier placement.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replaces: bool,
    /// How they behave.
    pub settings: LaneSettings,
}

/// The session is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The env as the node has it: the coordinator passes it on to the owner.
    pub spec: EnvSpec,
    /// How long the node keeps it for an owner it does not hear of.
    pub lease_ms: u64,
    /// Whether it shows the recorded episode of its settings: nodes that know of none would make a lane of its env.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replay: bool,
}

/// Coordinator to node: end a session; its open episodes end as `cancelled`. The answer is its
/// [`SessionEnd`](crate::SessionEnd), which the node reports with its heartbeats as well until one is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseSession {
    /// Which session.
    pub session: SessionId,
    /// Which placement of it.
    pub incarnation: Incarnation,
}

/// Owner to node: the first message of a session's stream. After the answer the stream carries frames.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Attach {
    /// The pool.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Which of its sessions.
    pub index: u32,
    /// Which placement of it.
    pub incarnation: Incarnation,
    /// From the grant.
    pub secret: Secret,
    /// Whether the owner keeps a log of its lanes, so that they can go on elsewhere: answers then say which episodes
    /// began and how states hash, from the first reset on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub log: bool,
}

/// The owner is attached; an earlier stream of the same session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Lanes of the session.
    pub lanes: u32,
    /// Number of the last request the session has answered; 0 if none. The owner may repeat that one, and gets
    /// the same answer, or go on with the next.
    pub last: u32,
    /// Whether answers say what a log needs. Not of sessions with more than
    /// [`MAX_LOGGED_LANES`](crate::limits::MAX_LOGGED_LANES) lanes, and not if nobody asked for it before the first
    /// reset.
    #[serde(default, skip_serializing_if = "is_false")]
    pub logs: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
pub(crate) const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Owner to node, over the node's attach socket: asks for the memory of a session, in place of a stream. The two
/// descriptors of the memory come beside the answer, and the socket carries nothing more: it is open for as long as
/// the owner is attached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AttachMemory {
    /// The version of the protocol that the owner speaks.
    pub version: u16,
    /// The pool.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Which of its sessions.
    pub index: u32,
    /// Which placement of it.
    pub incarnation: Incarnation,
    /// From the grant.
    pub secret: Secret,
    /// As in [`Attach`]: frames and rows then have their notes in the memory.
    #[serde(default, skip_serializing_if = "is_false")]
    pub log: bool,
}

/// The owner is attached by memory; whoever was attached before, by memory or by a stream, is sent away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryAttached {
    /// Lanes of the session.
    pub lanes: u32,
    /// As in [`Attached`].
    pub last: u32,
    /// Counts the attachments by memory of this session; both descriptors' memory carries it.
    pub generation: u64,
    /// As in [`Attached`].
    #[serde(default, skip_serializing_if = "is_false")]
    pub logs: bool,
    /// What the last answer refused, if it was a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
}

impl AttachMemory {
    /// What decides about an attachment, by memory or not.
    pub const fn attach(&self) -> Attach {
        Attach {
            pool: self.pool,
            index: self.index,
            incarnation: self.incarnation,
            secret: self.secret,
            log: self.log,
        }
    }
}

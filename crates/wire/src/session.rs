//! Sessions: the requests of the coordinator to nodes, and those with which an owner attaches.

use rollhouse_core::{EnvSpec, RunId};
use serde::{Deserialize, Serialize};

use crate::ids::run_id;
use crate::{Incarnation, LaneSettings, Refusal, Secret, SessionId, Standing};

/// Asks a node, on behalf of the coordinator, to make the lanes of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenSession {
    /// The session.
    pub session: SessionId,
    /// The placement of the session; greater than any that the node has seen of it.
    pub incarnation: Incarnation,
    /// The secret that its owner will show.
    pub secret: Secret,
    /// Name of the owner's token or certificate, for listings, metrics and shares.
    pub owner: String,
    /// Whether the owner is an admin, who has of the places that nodes reserve.
    #[serde(default, skip_serializing_if = "is_false")]
    pub operates: bool,
    /// Number of the session's first lane in the pool.
    pub first_lane: u32,
    /// Number of its lanes.
    pub lanes: u32,
    /// Number of lanes of the whole pool.
    pub pool_lanes: u32,
    /// Whether it takes the place of an earlier placement.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replaces: bool,
    /// Where the lanes go on, if they play by themselves and stood somewhere else before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Box<Standing>>,
    /// Settings of the lanes.
    pub settings: LaneSettings,
}

/// The answer to [`OpenSession`]: the session is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The env as the node has it: the coordinator passes it on to the owner.
    pub spec: EnvSpec,
    /// Time for which the node keeps the session when it does not hear of the owner.
    pub lease_ms: u64,
    /// Whether it shows the recorded episode of its settings: nodes that know of none would make a lane of its env.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replay: bool,
}

/// Asks a node, on behalf of the coordinator, to end a session; its open episodes end as `cancelled`. The answer is its
/// [`SessionEnd`](crate::SessionEnd), which the node also reports with its heartbeats until one is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseSession {
    /// The session.
    pub session: SessionId,
    /// The placement of the session.
    pub incarnation: Incarnation,
}

/// The first message of a session's stream, from owner to node. After the answer the stream carries frames.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Attach {
    /// The pool of the session.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Index of the session in its pool.
    pub index: u32,
    /// The placement of the session.
    pub incarnation: Incarnation,
    /// The secret from the grant.
    pub secret: Secret,
    /// Whether the owner keeps a log of its lanes, so that they can go on elsewhere. Answers then tell which episodes
    /// began and the hashes of states, from the first reset on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub log: bool,
}

/// The answer to [`Attach`]: the owner is attached, and an earlier stream of the same session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Number of lanes of the session.
    pub lanes: u32,
    /// Number of the last request that the session has answered; 0 if none. The owner may repeat that request, and gets
    /// the same answer, or go on with the next.
    pub last: u32,
    /// Whether answers carry what a log needs. They do not for sessions with more than
    /// [`MAX_LOGGED_LANES`](crate::limits::MAX_LOGGED_LANES) lanes, and not if nobody asked for it before the first
    /// reset.
    #[serde(default, skip_serializing_if = "is_false")]
    pub logs: bool,
    /// Whether a `Send` may have a [`SendLanes`](crate::SendLanes) and be answered with the lanes that are done.
    #[serde(default, skip_serializing_if = "is_false")]
    pub as_done: bool,
    /// Whether its lanes may be sent a policy and play by it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub plays: bool,
    /// Whether its lanes are live: they tick by the pace that was asked for.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paced: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls it with")]
pub(crate) const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Asks a node, over its attach socket, for the memory of a session in place of a stream. The two descriptors of the
/// memory come beside the answer, and the socket carries nothing more: it is open for as long as the owner is attached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AttachMemory {
    /// The version of the protocol that the owner speaks.
    pub version: u16,
    /// The pool of the session.
    #[serde(with = "run_id")]
    pub pool: RunId,
    /// Index of the session in its pool.
    pub index: u32,
    /// The placement of the session.
    pub incarnation: Incarnation,
    /// The secret from the grant.
    pub secret: Secret,
    /// Whether the owner keeps a log, as in [`Attach`]: frames and rows then have their notes in the memory.
    #[serde(default, skip_serializing_if = "is_false")]
    pub log: bool,
}

/// The answer to [`AttachMemory`]: the owner is attached by memory. Any earlier attachment, by memory or by a stream,
/// ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryAttached {
    /// Number of lanes of the session.
    pub lanes: u32,
    /// Number of the last request that the session has answered, as in [`Attached`].
    pub last: u32,
    /// Number of this attachment among those by memory of this session; both descriptors' memory carries it.
    pub generation: u64,
    /// Whether answers carry what a log needs, as in [`Attached`].
    #[serde(default, skip_serializing_if = "is_false")]
    pub logs: bool,
    /// The refusal that was the last answer, if it was a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// Whether its lanes are live, as in [`Attached`]: then their newest rows may be asked for by memory, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paced: bool,
}

impl AttachMemory {
    /// Returns the part of the request that decides about an attachment, by memory or not.
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

//! Sessions: what the coordinator asks of nodes, and how an owner attaches.

use rollhouse_core::{EnvSpec, RunId};
use serde::{Deserialize, Serialize};

use crate::ids::run_id;
use crate::{Incarnation, LaneSettings, Secret, SessionId};

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
}

/// The owner is attached; an earlier stream of the same session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Lanes of the session.
    pub lanes: u32,
    /// Number of the last request the session has answered; 0 if none. The owner may repeat that one, and gets
    /// the same answer, or go on with the next.
    pub last: u32,
}

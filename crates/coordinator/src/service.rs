//! What the tasks of a connection share.

mod enrolling;
mod streaming;

pub(crate) use streaming::{WRITE_STALL, blocking};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use actix::Addr;
use actix::dev::{SendError, ToEnvelope};
use actix::prelude::*;
use rollhouse_wire::{Connection, PeerCertificate, Refusal, RefusalCode, Role, TokenStore};
use tokio::sync::{Semaphore, watch};

use crate::actor::CoordinatorActor;
use crate::certifier::NodeCertifier;
use crate::event::Asker;
use crate::figures::Published;
use crate::store::{Reads, Store};

/// The parts that answering needs; shared by all connections.
pub(crate) struct Service {
    pub(crate) actor: Addr<CoordinatorActor>,
    pub(crate) store: Store,
    pub(crate) tokens: Arc<TokenStore>,
    pub(crate) published: Arc<Published>,
    /// Gives certificates to nodes.
    pub(crate) office: NodeCertifier,
    /// Turns at reading the store's disk.
    pub(crate) reads: Reads,
    /// Permits for questions about the store's episodes that are answered at a time.
    pub(crate) queries: Semaphore,
    /// Episodes that are sent to nodes at a time.
    pub(crate) episodes: Semaphore,
    /// Permits for requests that wait for the archive at a time.
    pub(crate) fetches: Semaphore,
    /// Permits for segments that are read again at a time.
    pub(crate) repairs: Semaphore,
    /// Whether new pools and new segments are refused.
    pub(crate) stopping: AtomicBool,
    pub(crate) links: AtomicU64,
    /// Number of segments that are being received.
    pub(crate) receiving: watch::Sender<usize>,
}

/// Returns the asker of a connection, and the certificate by which it is known.
pub(crate) fn asker(connection: &Connection) -> (Asker, Option<PeerCertificate>) {
    let peer = connection.peer();
    let asker = Asker { owner: peer.owner(), max_lanes: peer.max_lanes, admin: peer.role == Role::Admin };
    (asker, connection.certificate().cloned())
}

pub(crate) fn going_away() -> Refusal {
    Refusal::new(RefusalCode::Draining, "the coordinator is going away")
}

pub(crate) fn no_room<M>(error: &SendError<M>) -> Refusal
where
    M: Message,
    CoordinatorActor: Handler<M>,
    <CoordinatorActor as Actor>::Context: ToEnvelope<CoordinatorActor, M>,
    M::Result: Send,
{
    match error {
        SendError::Full(_) => {
            Refusal::busy("the coordinator has as many requests as it takes", BUSY_RETRY_MS)
        }
        SendError::Closed(_) => going_away(),
    }
}

/// Milliseconds after which to ask again: about as long as a full mailbox takes.
const BUSY_RETRY_MS: u64 = 100;

//! What the tasks of a connection share.

mod auditing;
mod enrolling;
mod policies;
mod streaming;

pub(crate) use streaming::blocking;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use actix::Addr;
use actix::dev::{SendError, ToEnvelope};
use actix::prelude::*;
use rollhouse_core::{Claimant, SharedBound};
use rollhouse_wire::{Connection, PeerCertificate, Refusal, RefusalCode, RequestShares, Role, TokenStore};
use tokio::sync::{Semaphore, watch};

use crate::actor::CoordinatorActor;
use crate::certifier::NodeCertifier;
use crate::event::Asker;
use crate::figures::Published;
use crate::policies::PolicyShelf;
use crate::store::Store;
use crate::turn_line::TurnLine;

/// The parts that answering needs; shared by all connections.
pub(crate) struct Service {
    pub(crate) actor: Addr<CoordinatorActor>,
    pub(crate) store: Store,
    pub(crate) policies: Arc<PolicyShelf>,
    pub(crate) tokens: Arc<TokenStore>,
    pub(crate) published: Arc<Published>,
    /// Gives certificates to nodes.
    pub(crate) office: NodeCertifier,
    /// The places that owners share.
    pub(crate) places: Places,
    /// Permits for segments that are read again at a time.
    pub(crate) repairs: Semaphore,
    /// Whether new pools and new segments are refused.
    pub(crate) stopping: AtomicBool,
    pub(crate) links: AtomicU64,
    /// Number of segments that are being received.
    pub(crate) receiving: watch::Sender<usize>,
}

/// The places at which a coordinator answers, which owners share. A place at the disk is held while a piece is read,
/// never while it is sent: a peer that does not take its answer delays nobody but itself.
pub(crate) struct Places {
    /// Requests that are not answered yet.
    pub(crate) requests: RequestShares,
    /// Questions about the store's episodes that are answered at a time.
    pub(crate) questions: TurnLine,
    /// Reads of the store's disk at a time.
    pub(crate) reads: TurnLine,
    /// Parts of the store that are on their way to readers.
    pub(crate) answers: TurnLine,
    /// Requests that wait for the archive at a time: several may want the same segment.
    pub(crate) fetches: TurnLine,
    /// Episodes that are sent to nodes at a time.
    pub(crate) episodes: TurnLine,
    /// Policies that are received or sent at a time.
    pub(crate) policies: TurnLine,
}

impl Places {
    pub(crate) fn new() -> Self {
        Self {
            requests: RequestShares::default(),
            questions: TurnLine::new(SharedBound::QUESTIONS),
            reads: TurnLine::new(SharedBound::READS),
            answers: TurnLine::new(SharedBound::ANSWERS),
            fetches: TurnLine::new(SharedBound::FETCHES),
            episodes: TurnLine::new(SharedBound::EPISODES),
            policies: TurnLine::new(SharedBound::POLICY_TRANSFERS),
        }
    }
}

/// Who asks on one connection, and the parts of the store that are on their way there.
pub(crate) struct Reader {
    pub(crate) claimant: Claimant,
    pub(crate) answers: Semaphore,
}

impl Reader {
    pub(crate) fn new(connection: &Connection) -> Self {
        Self { claimant: connection.peer().claimant(), answers: Semaphore::new(MAX_ANSWERS) }
    }
}

/// Number of parts of the store that are on their way to one connection.
const MAX_ANSWERS: usize = 4;

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

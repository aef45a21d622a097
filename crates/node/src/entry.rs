//! One session of a node's table: how far it is, who holds it, and what is reported of it.

use rollhouse_wire::{OpenSession, SessionCounts, SessionReport};

use crate::Cancel;
use crate::lease::Lease;

/// A session; `H` is what it is reached by.
#[derive(Debug)]
pub(crate) struct Entry<H> {
    pub(crate) open: OpenSession,
    /// Raised by whatever ends it.
    pub(crate) cancel: Cancel,
    pub(crate) lease: Lease,
    /// By what its owner is attached, or was last.
    pub(crate) transport: Transport,
    pub(crate) stage: Stage<H>,
}

/// How far a session is.
#[derive(Debug)]
pub(crate) enum Stage<H> {
    Opening,
    Open(H),
    Ending(H),
}

/// By what an owner steps its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// A stream.
    Quic,
    /// Memory both have mapped.
    SharedMemory,
}

impl Transport {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Quic, Self::SharedMemory];

    /// The word in reports and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::SharedMemory => "shm",
        }
    }
}

impl<H> Entry<H> {
    /// Whether an owner steps it.
    pub(crate) const fn owned(&self) -> bool {
        self.open.settings.collect.is_none()
    }

    pub(crate) fn report(&self, done: SessionCounts) -> SessionReport {
        let open = &self.open;
        let attached = self.owned().then(|| self.lease.is_held());
        SessionReport {
            session: open.session,
            incarnation: open.incarnation,
            owner: open.owner.clone(),
            env: open.settings.env.clone(),
            first_lane: open.first_lane,
            lanes: open.lanes,
            pool_lanes: open.pool_lanes,
            replaces: open.replaces,
            attached,
            transport: (attached == Some(true)).then(|| self.transport.word().to_owned()),
            done,
            replay: None,
        }
    }
}

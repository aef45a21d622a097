//! One session of a node's table: its stage, its owner, and what is reported of it.

use rollhouse_wire::{OpenSession, SessionCounts, SessionReport};

use crate::Cancel;
use crate::lease::Lease;

/// A session in the table; `H` is the handle by which it is reached.
#[derive(Debug)]
pub(crate) struct Entry<H> {
    pub(crate) open: OpenSession,
    /// The session's token, raised to end it.
    pub(crate) cancel: Cancel,
    pub(crate) lease: Lease,
    /// The transport by which the owner is attached, or was last.
    pub(crate) transport: Transport,
    pub(crate) stage: Stage<H>,
}

/// The stage that a session has come to.
#[derive(Debug)]
pub(crate) enum Stage<H> {
    Opening,
    Open(H),
    Ending(H),
}

/// The way in which an owner steps its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// A stream.
    Quic,
    /// Memory that both have mapped.
    SharedMemory,
}

impl Transport {
    /// Every transport.
    pub const ALL: [Self; 2] = [Self::Quic, Self::SharedMemory];

    /// Returns the word for it in reports and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::SharedMemory => "shm",
        }
    }
}

impl<H> Entry<H> {
    /// Returns whether an owner steps the session.
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

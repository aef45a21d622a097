//! The events of the cluster, and the actions that follow from them.

use std::sync::Arc;

use rollhouse_core::RunId;
use rollhouse_wire::{
    CloseSession, Heartbeat, HeartbeatTaken, Incarnation, OpenPool, OpenSession, PoolOpened, PoolStatus,
    Refusal, Register, Registered, ReplaceSession, SessionEnd, SessionId, SessionOpened, SessionReplaced,
};

use crate::roster::{PortQuestion, Roster};

/// The id of one connection of a node. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// The id of one request that waits for its answer. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The peer that asks for lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Name of its token or certificate, which owns the pools that it asks for.
    pub owner: String,
    /// Number of lanes that it may have at a time; `None` means no bound.
    pub max_lanes: Option<u32>,
    /// Whether it may close pools of others.
    pub admin: bool,
}

/// An event of the cluster.
#[derive(Debug, Clone)]
pub enum Event {
    /// A node asks to register, on a connection whose certificate names it `node`.
    Register {
        /// The connection.
        link: LinkId,
        /// The request that waits for the answer.
        ticket: Ticket,
        /// The name in the certificate.
        node: String,
        /// The node's own description.
        register: Box<Register>,
    },
    /// A node is alive.
    Heartbeat {
        /// The connection.
        link: LinkId,
        /// The request that waits for the answer.
        ticket: Ticket,
        /// The heartbeat.
        heartbeat: Box<Heartbeat>,
    },
    /// A node's connection ended.
    LinkLost {
        /// The connection.
        link: LinkId,
        /// Whether the node has said that its process ends: then everything on it is gone.
        leaving: bool,
    },
    /// A node is not believed any more, and its connection ends.
    LinkRefused {
        /// The connection.
        link: LinkId,
    },
    /// An owner is not admitted any more: its pools end.
    Revoked {
        /// The owner, as in [`Asker::owner`].
        owner: Arc<str>,
        /// The reason in words.
        why: String,
    },
    /// A trainer asks for lanes.
    OpenPool {
        /// The request that waits for the answer.
        ticket: Ticket,
        /// The peer that asks.
        asker: Asker,
        /// The lanes that it asks for.
        request: Box<OpenPool>,
    },
    /// A peer has no more use for a pool.
    ClosePool {
        /// The request that waits for the answer.
        ticket: Ticket,
        /// The peer that asks.
        asker: Asker,
        /// The pool to close.
        pool: RunId,
    },
    /// The owner of a pool that plays by itself still wants it. For any other asker or pool the event does nothing.
    KeepPool {
        /// The peer that asks.
        asker: Asker,
        /// The pool to keep.
        pool: RunId,
    },
    /// An owner wants another place for a session.
    ReplaceSession {
        /// The request that waits for the answer.
        ticket: Ticket,
        /// The peer that asks.
        asker: Asker,
        /// The session, and how it is opened.
        request: Box<ReplaceSession>,
    },
    /// The result of an [`Action::Open`]; exactly one for each.
    Opened {
        /// The session.
        session: SessionId,
        /// The placement of the session.
        incarnation: Incarnation,
        /// The node's answer.
        result: Result<Box<SessionOpened>, CallFailure>,
    },
    /// The result of an [`Action::Close`]; exactly one for each.
    Closed {
        /// The session.
        session: SessionId,
        /// The placement of the session.
        incarnation: Incarnation,
        /// The node's answer.
        result: Result<Box<SessionEnd>, CallFailure>,
    },
    /// An operator wants a node to end in order.
    Drain {
        /// The request that waits for the answer.
        ticket: Ticket,
        /// The node's name.
        node: String,
    },
    /// An operator wants a node that drains to go on.
    Undrain {
        /// The request that waits for the answer.
        ticket: Ticket,
        /// The node's name.
        node: String,
    },
    /// The host of a node, asked by an [`Action::AskPort`], says that nobody listens at the node's port. No such event
    /// means nothing.
    PortClosed(PortQuestion),
    /// Time has passed; expected every [`TICK`](crate::limits::TICK).
    Tick,
}

/// The reason why a node did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFailure {
    /// The node refused, and nothing has changed there.
    Refused(Refusal),
    /// There was no answer: the node may have done it or not.
    Unknown,
}

/// An action that is to be done now.
#[derive(Debug, Clone)]
pub enum Action {
    /// Ask a node to open a session. Answered by one [`Event::Opened`], at a deadline at the latest.
    Open {
        /// The node's connection.
        link: LinkId,
        /// The request to send.
        request: Box<OpenSession>,
    },
    /// Ask a node to close a session. Answered by one [`Event::Closed`], at a deadline at the latest.
    Close {
        /// The node's connection.
        link: LinkId,
        /// The request to send.
        request: CloseSession,
    },
    /// Ask a node's host whether anybody listens at the node's port; answered by an [`Event::PortClosed`] if not.
    AskPort {
        /// The address at which owners reach the node: `host:port`.
        address: String,
        /// The question, to be repeated in the answer.
        asked: PortQuestion,
    },
    /// Save the names and addresses of the nodes for the next coordinator.
    KeepRoster(Roster),
    /// End a connection: its node has another one, or is lost.
    Disconnect {
        /// The connection.
        link: LinkId,
    },
    /// Answer a request.
    Answer {
        /// The request to answer.
        ticket: Ticket,
        /// The answer.
        reply: Reply,
    },
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The answer to [`Event::Register`].
    Registered(Registered),
    /// The answer to [`Event::Heartbeat`].
    HeartbeatTaken(HeartbeatTaken),
    /// The answer to [`Event::OpenPool`].
    PoolOpened(Box<PoolOpened>),
    /// The answer to [`Event::ReplaceSession`].
    SessionReplaced(Box<SessionReplaced>),
    /// The answer to [`Event::ClosePool`]: the pool's status at the end.
    PoolClosed(Box<PoolStatus>),
    /// The answer to [`Event::Drain`] and [`Event::Undrain`].
    Done,
    /// The answer to any request that is refused.
    Refused(Refusal),
}

/// The list to which a handler adds its actions.
#[derive(Debug, Default)]
pub(crate) struct Actions(Vec<Action>);

impl Actions {
    pub(crate) fn push(&mut self, action: Action) {
        self.0.push(action);
    }

    pub(crate) fn answer(&mut self, ticket: Ticket, reply: Reply) {
        self.push(Action::Answer { ticket, reply });
    }

    pub(crate) fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.answer(ticket, Reply::Refused(refusal));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Action> {
        self.0.iter()
    }

    pub(crate) fn into_vec(self) -> Vec<Action> {
        self.0
    }
}

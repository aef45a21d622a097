//! What happens to the cluster, and what is to be done about it.

use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::RunId;
use rollhouse_wire::{
    CloseSession, Heartbeat, HeartbeatTaken, Incarnation, OpenPool, OpenSession, PoolOpened, PoolStatus,
    Refusal, Register, Registered, ReplaceSession, SessionEnd, SessionId, SessionOpened, SessionReplaced,
};

use crate::Roster;

/// One connection of a node. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// One request that waits for its answer. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Who asks for lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Name of the token or certificate: owns the pools it asks for.
    pub owner: String,
    /// Lanes it may have at a time; `None` is as many as there are.
    pub max_lanes: Option<u32>,
    /// Whether it may close pools of others.
    pub admin: bool,
}

/// Something happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// A node asks to be known, on a connection whose certificate names it `node`.
    Register {
        /// The connection.
        link: LinkId,
        /// Awaits the answer.
        ticket: Ticket,
        /// Name in the certificate.
        node: String,
        /// What it says of itself.
        register: Box<Register>,
    },
    /// A node is alive.
    Heartbeat {
        /// The connection.
        link: LinkId,
        /// Awaits the answer.
        ticket: Ticket,
        /// What it says.
        heartbeat: Box<Heartbeat>,
    },
    /// A node's connection ended.
    LinkLost {
        /// The connection.
        link: LinkId,
        /// The node has said that its process ends: what it had is gone.
        leaving: bool,
    },
    /// A node is not believed any more, and its connection ends.
    LinkRefused {
        /// The connection.
        link: LinkId,
    },
    /// An owner is not admitted any more: what it has ends.
    Revoked {
        /// As [`Asker::owner`].
        owner: Arc<str>,
        /// In words.
        why: String,
    },
    /// Someone asks for lanes.
    OpenPool {
        /// Awaits the answer.
        ticket: Ticket,
        /// Who.
        asker: Asker,
        /// For what.
        request: Box<OpenPool>,
    },
    /// Someone has no more use for a pool.
    ClosePool {
        /// Awaits the answer.
        ticket: Ticket,
        /// Who.
        asker: Asker,
        /// Which.
        pool: RunId,
    },
    /// The owner of a pool that plays by itself still wants it; of others' and other pools nothing comes.
    KeepPool {
        /// Who.
        asker: Asker,
        /// Which.
        pool: RunId,
    },
    /// Someone wants another place for a session.
    ReplaceSession {
        /// Awaits the answer.
        ticket: Ticket,
        /// Who.
        asker: Asker,
        /// For which, and how it is opened.
        request: Box<ReplaceSession>,
    },
    /// What came of an [`Action::Open`]; exactly one for each.
    Opened {
        /// Which session.
        session: SessionId,
        /// Which placement of it.
        incarnation: Incarnation,
        /// The node's answer.
        result: Result<Box<SessionOpened>, CallFailure>,
    },
    /// What came of an [`Action::Close`]; exactly one for each.
    Closed {
        /// Which session.
        session: SessionId,
        /// Which placement of it.
        incarnation: Incarnation,
        /// The node's answer.
        result: Result<Box<SessionEnd>, CallFailure>,
    },
    /// An operator wants a node to end in order.
    Drain {
        /// Awaits the answer.
        ticket: Ticket,
        /// The node's name.
        node: String,
    },
    /// An operator wants a node that drains to go on.
    Undrain {
        /// Awaits the answer.
        ticket: Ticket,
        /// The node's name.
        node: String,
    },
    /// The host of a node says that nobody listens at the node's port, asked by an [`Action::AskPort`]. Not being told
    /// so says nothing.
    PortClosed(PortAsked),
    /// Time has passed; expected every [`TICK`](crate::limits::TICK).
    Tick,
}

/// Of which process the port was asked about, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortAsked {
    /// Name of the node.
    pub node: Arc<str>,
    /// Which boot of it; `None` for one that an earlier coordinator knew.
    pub boot: Option<u64>,
    /// When. What was heard of the node since counts for more.
    pub at: Duration,
}

/// Why a node did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFailure {
    /// It said no, and nothing has changed there.
    Refused(Refusal),
    /// There was no answer: it may have been done or not.
    Unknown,
}

/// What is to be done now.
#[derive(Debug, Clone)]
pub enum Action {
    /// Ask a node to open a session. Answered by one [`Event::Opened`], at a deadline at the latest.
    Open {
        /// The node's connection.
        link: LinkId,
        /// What to ask.
        request: Box<OpenSession>,
    },
    /// Ask a node to close a session. Answered by one [`Event::Closed`], at a deadline at the latest.
    Close {
        /// The node's connection.
        link: LinkId,
        /// What to ask.
        request: CloseSession,
    },
    /// Ask a node's host whether anybody listens at the node's port; answered by an [`Event::PortClosed`] if not.
    AskPort {
        /// Where owners reach the node: `host:port`.
        address: String,
        /// To be told with the answer.
        asked: PortAsked,
    },
    /// Keep the names and addresses of the nodes for the coordinator after this one.
    KeepRoster(Roster),
    /// End a connection: its node has another one, or is lost.
    Disconnect {
        /// The connection.
        link: LinkId,
    },
    /// Answer a request.
    Answer {
        /// Whose.
        ticket: Ticket,
        /// The answer.
        reply: Reply,
    },
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To [`Event::Register`].
    Registered(Registered),
    /// To [`Event::Heartbeat`].
    HeartbeatTaken(HeartbeatTaken),
    /// To [`Event::OpenPool`].
    PoolOpened(Box<PoolOpened>),
    /// To [`Event::ReplaceSession`].
    SessionReplaced(Box<SessionReplaced>),
    /// To [`Event::ClosePool`]: as it was at the end.
    PoolClosed(PoolStatus),
    /// To [`Event::Drain`] and [`Event::Undrain`].
    Done,
    /// To any: no.
    Refused(Refusal),
}

/// What a handler adds its actions to.
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

//! How a node's link to its coordinator stands, as the link tells it and the rest of the node sees it.

use std::fmt;
use std::sync::Arc;

use rollhouse_wire::Connection;
use tokio::sync::watch;

/// The standing of a node with its coordinator.
#[derive(Debug, Clone, Default)]
pub enum LinkState {
    /// Not connected yet.
    #[default]
    Dialling,
    /// The coordinator of that term knows the node.
    Joined {
        /// The coordinator's term.
        term: u64,
    },
    /// There is no connection, for that reason; the coordinator is dialled again and again.
    Away {
        /// The reason in words.
        reason: Arc<str>,
    },
}

/// The state of a node's certificate renewal.
#[derive(Debug, Clone, Default)]
pub struct RenewalState {
    /// Number of renewals since the node's start.
    pub renewed: u64,
    /// Why the last renewal failed, if it did.
    pub failed: Option<Arc<str>>,
}

/// What a link tells the rest of the node. A link that is made anew goes on telling it.
#[derive(Debug, Clone)]
pub(crate) struct LinkTeller {
    state: watch::Sender<LinkState>,
    renewal: watch::Sender<RenewalState>,
    /// The connection once the coordinator knows the node; everything else that is sent over it waits for that.
    joined: watch::Sender<Option<Connection>>,
}

/// What the rest of the node sees of its link.
#[derive(Debug)]
pub(crate) struct LinkView {
    state: watch::Receiver<LinkState>,
    renewal: watch::Receiver<RenewalState>,
    joined: watch::Receiver<Option<Connection>>,
}

impl LinkTeller {
    pub(crate) fn new() -> (Self, LinkView) {
        let (state, states) = watch::channel(LinkState::default());
        let (renewal, renewals) = watch::channel(RenewalState::default());
        let (joined, links) = watch::channel(None);
        (Self { state, renewal, joined }, LinkView { state: states, renewal: renewals, joined: links })
    }

    /// Tells that the coordinator of that term knows the node, over that connection.
    pub(crate) fn join(&self, term: u64, connection: Option<Connection>) {
        self.state.send_replace(LinkState::Joined { term });
        self.joined.send_replace(connection);
    }

    /// Tells that nothing is to be sent over the connection any more.
    pub(crate) fn leave(&self) {
        self.joined.send_replace(None);
    }

    /// Tells why there is no connection.
    pub(crate) fn away(&self, reason: &str) {
        self.state.send_replace(LinkState::Away { reason: reason.into() });
    }

    /// Returns the connection over which the coordinator knows the node.
    pub(crate) fn joined(&self) -> Option<Connection> {
        self.joined.borrow().clone()
    }

    /// Tells that the node was given its next certificate.
    pub(crate) fn renewed(&self) {
        self.renewal.send_modify(|state| {
            *state = RenewalState { renewed: state.renewed + 1, failed: None };
        });
    }

    /// Tells why the node was not given its next certificate.
    pub(crate) fn renewal_failed(&self, why: &str) {
        self.renewal.send_modify(|state| state.failed = Some(why.into()));
    }
}

impl LinkView {
    pub(crate) fn state(&self) -> LinkState {
        self.state.borrow().clone()
    }

    pub(crate) fn renewal(&self) -> RenewalState {
        self.renewal.borrow().clone()
    }

    /// Returns the connection over which the coordinator knows the node, as it changes.
    pub(crate) const fn joined(&self) -> &watch::Receiver<Option<Connection>> {
        &self.joined
    }
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dialling => f.write_str("dialling the coordinator"),
            Self::Joined { term } => write!(f, "joined the coordinator (term {term})"),
            Self::Away { reason } => write!(f, "without a coordinator: {reason}"),
        }
    }
}

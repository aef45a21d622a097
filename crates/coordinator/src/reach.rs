//! Whether a node is reached at the address that it advertises.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{ASK_PORT_EVERY, MAX_UNREACHED_OWNERS, MISLED_FOR, UNREACHED_FOR};

/// What is known of whether a node is reached at the address that it advertises.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    pub(crate) unreached: Unreached,
    /// The time at which its host was last asked whether its port is closed.
    port_asked: Option<Duration>,
    /// Whether it is lost because its host says that its port is closed.
    closed: bool,
    /// The time at which its host last said so although the process lives: the node does not listen at the address that
    /// it advertises.
    misled: Option<Duration>,
}

impl Reach {
    /// Returns whether its host said a short time ago that nobody listens at its port, although it lives.
    pub(crate) fn is_misled(&self, now: Duration) -> bool {
        self.misled.is_some_and(|at| now.saturating_sub(at) <= MISLED_FOR)
    }

    /// Returns whether its host is to be asked now whether its port is closed, and notes that it is.
    pub(crate) fn ask_port(&mut self, now: Duration) -> bool {
        let due = self.port_asked.is_none_or(|at| now >= at + ASK_PORT_EVERY);
        if due {
            self.port_asked = Some(now);
        }
        due
    }

    /// Takes in that its host said at that time that its port is closed. Returns whether the node is lost by that: it is
    /// not if it `speaks` and was found to live at another such time.
    pub(crate) fn port_closed(&mut self, at: Duration, speaks: bool) -> bool {
        let lives = self.misled.is_some() && speaks;
        if lives {
            self.misled = Some(at);
        } else {
            self.closed = true;
        }
        !lives
    }

    /// Notes that the node was heard of.
    pub(crate) const fn heard(&mut self) {
        self.closed = false;
    }

    /// Returns what is known once the node has registered again with the same address.
    pub(crate) fn registered_again(self, now: Duration) -> Self {
        let misled = if self.closed { Some(now) } else { self.misled };
        Self { misled, closed: false, ..self }
    }
}

/// Owners that could not reach a node, with the time at which that was noticed last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Unreached {
    pub(crate) owners: BTreeMap<Arc<str>, Duration>,
}

impl Unreached {
    /// Notes that a session of that owner ended without the owner having attached.
    pub(crate) fn note(&mut self, now: Duration, owner: &Arc<str>) {
        if self.owners.len() >= MAX_UNREACHED_OWNERS && !self.owners.contains_key(owner) {
            let oldest = self.owners.iter().min_by_key(|(_, at)| **at).map(|(owner, _)| Arc::clone(owner));
            oldest.map(|oldest| self.owners.remove(&oldest));
        }
        self.owners.insert(Arc::clone(owner), now);
    }

    /// Notes that the owner has reached the node.
    pub(crate) fn clear(&mut self, owner: &str) {
        self.owners.remove(owner);
    }

    /// Returns the owner that noticed last that it does not reach the node, while that counts.
    pub(crate) fn last(&self, now: Duration) -> Option<&Arc<str>> {
        let (owner, &at) = self.owners.iter().max_by_key(|(_, at)| **at)?;
        (now.saturating_sub(at) < UNREACHED_FOR).then_some(owner)
    }

    pub(crate) fn is_by(&self, now: Duration, owner: &str) -> bool {
        self.owners.get(owner).is_some_and(|&at| now.saturating_sub(at) < UNREACHED_FOR)
    }
}

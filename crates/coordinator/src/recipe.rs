//! Another placement of a session, while it is made.

use rollhouse_wire::{Incarnation, OpenPool};

use crate::event::Ticket;
use crate::pool::Session;

/// The way to open a pool's sessions, as its owner has said it.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) open: OpenPool,
    pub(crate) dynamics: u64,
}

/// A session that is being opened in another place.
#[derive(Debug)]
pub(crate) struct Replacing {
    /// Requests that wait for it.
    pub(crate) waiters: Vec<Ticket>,
    /// The session in its earlier place, if it goes on there until the new one is open.
    pub(crate) previous: Option<Box<Session>>,
    /// The earlier placement, if only its owner has named it: an earlier coordinator placed it there.
    pub(crate) earlier: Option<Box<EarlierPlacement>>,
}

/// An earlier placement, as its owner describes it.
#[derive(Debug)]
pub(crate) struct EarlierPlacement {
    pub(crate) node: String,
    pub(crate) incarnation: Incarnation,
    /// Whether it took the place of a placement before it.
    pub(crate) replaces: bool,
}

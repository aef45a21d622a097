//! How a pool was asked for, and where its sessions were before: what another placement of one needs.

use rollhouse_wire::{Incarnation, OpenPool};

/// The way to open a pool's sessions, as its owner has said it.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) open: OpenPool,
    pub(crate) dynamics: u64,
}

/// An earlier placement, as its owner describes it.
#[derive(Debug)]
pub(crate) struct EarlierPlacement {
    pub(crate) node: String,
    pub(crate) incarnation: Incarnation,
    /// Whether it took the place of a placement before it.
    pub(crate) replaces: bool,
}

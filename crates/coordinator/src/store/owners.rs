//! Shares by owner of the store's disk. Pure.
//!
//! A segment counts for the owners whose recordings are in it, by their bytes, and for its node as far as they are
//! nobody's. While there is room an owner may have all of it.

use std::collections::{BTreeMap, BTreeSet};

use rollhouse_core::{Claimant, OwnedBytes, SharedBound, Shares};

/// Whose the segments on the store's disk are. Segments are named by their place in the order in which they came.
#[derive(Debug)]
pub(crate) struct StoreOwners {
    bytes: Shares,
    /// Segments, each of the owner of most of its bytes.
    segments: Shares,
    of: BTreeMap<Claimant, BTreeSet<u64>>,
}

impl Default for StoreOwners {
    fn default() -> Self {
        let (bytes, segments) = (Shares::new(SharedBound::STORE), Shares::new(SharedBound::STORE_SEGMENTS));
        Self { bytes, segments, of: BTreeMap::new() }
    }
}

impl StoreOwners {
    /// Adds a segment of which the owners have those parts.
    pub(crate) fn add(&mut self, order: u64, parts: &OwnedBytes) {
        for (owner, bytes) in parts.iter() {
            self.bytes.add(owner, bytes);
            self.of.entry(owner.clone()).or_default().insert(order);
        }
        if let Some(most) = most_of(parts) {
            self.segments.add(most, 1);
        }
    }

    /// Removes a segment that was added with the same parts.
    pub(crate) fn remove(&mut self, order: u64, parts: &OwnedBytes) {
        for (owner, bytes) in parts.iter() {
            self.bytes.give_back(owner, bytes);
            if let Some(orders) = self.of.get_mut(owner) {
                orders.remove(&order);
                if orders.is_empty() {
                    self.of.remove(owner);
                }
            }
        }
        if let Some(most) = most_of(parts) {
            self.segments.give_back(most, 1);
        }
    }

    /// Returns the segment that goes first of those that `may`, by the owners' shares of the budget of bytes that is
    /// `exceeded`, else of the number of segments.
    pub(crate) fn goes_first(&self, exceeded: Option<u64>, may: impl Fn(u64) -> bool) -> Option<u64> {
        let (shares, bound) = match exceeded {
            Some(budget) => (&self.bytes, SharedBound::STORE.with_limit(budget)),
            None => (&self.segments, SharedBound::STORE_SEGMENTS),
        };
        shares.goes_first(bound, |owner| self.of.get(owner)?.iter().copied().find(|&order| may(order)))
    }
}

/// Returns the owner of most of the bytes.
fn most_of(parts: &OwnedBytes) -> Option<&Claimant> {
    parts.iter().max_by_key(|&(_, bytes)| bytes).map(|(owner, _)| owner)
}

/// Returns the one to whose share those bytes of a node's folder count that are no owner's.
pub(crate) fn node_of(folder: &str) -> Claimant {
    // A spool's name has no `-` in it.
    Claimant::operator(folder.rsplit_once('-').map_or(folder, |(node, _)| node))
}

const _: () = assert!(
    SharedBound::STORE_SEGMENTS.limit == crate::limits::MAX_STORE_SEGMENTS as u64,
    "as many segments are shared as there may be"
);

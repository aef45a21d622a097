//! Shares by owner of a node's spool. Pure.

use std::collections::{BTreeMap, BTreeSet};

use rollhouse_core::{Claimant, OwnedBytes, SharedBound, Shares};

/// Whose the segments of a spool are, and who has more of it than one owner may.
#[derive(Debug)]
pub(crate) struct SpoolOwners {
    shares: Shares,
    segments: BTreeMap<u64, OwnedBytes>,
    open: OwnedBytes,
    held: BTreeSet<Claimant>,
}

impl SpoolOwners {
    /// Makes the value for a spool of at most so many bytes, with nothing in it.
    pub(crate) const fn new(spool_bytes: u64) -> Self {
        let shares = Shares::new(SharedBound::SPOOL.with_limit(spool_bytes));
        let open = OwnedBytes::none();
        Self { shares, segments: BTreeMap::new(), open, held: BTreeSet::new() }
    }

    /// Adds a sealed segment.
    pub(crate) fn add(&mut self, number: u64, owned: OwnedBytes) {
        self.remove(number);
        owned.iter().for_each(|(owner, bytes)| self.shares.add(owner, bytes));
        self.segments.insert(number, owned);
    }

    /// Removes a segment that is not there any more.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(owned) = self.segments.remove(&number) {
            owned.iter().for_each(|(owner, bytes)| self.shares.give_back(owner, bytes));
        }
    }

    /// Sets whose the bytes of the segment are that is being written.
    pub(crate) fn set_open(&mut self, owned: &OwnedBytes) {
        let before = std::mem::replace(&mut self.open, owned.clone());
        before.iter().for_each(|(owner, bytes)| self.shares.give_back(owner, bytes));
        owned.iter().for_each(|(owner, bytes)| self.shares.add(owner, bytes));
    }

    /// Holds whoever has its share, until it has a tenth less.
    pub(crate) fn keep_shares(&mut self) {
        let Self { shares, held, .. } = self;
        held.retain(|owner| shares.taken(owner) > shares.share(owner) / 10 * 9);
        held.extend(shares.over().cloned());
    }

    /// Returns whoever is held.
    pub(crate) const fn held(&self) -> &BTreeSet<Claimant> {
        &self.held
    }

    /// Notes that nobody is held any more.
    pub(crate) fn let_go(&mut self) {
        self.held.clear();
    }

    /// Returns the segment among `numbers`, which are in order, that is dropped first: the oldest with something of the
    /// owner that is furthest beyond its share; else the oldest.
    pub(crate) fn goes_first(&self, numbers: impl Iterator<Item = u64> + Clone) -> Option<u64> {
        let oldest_of = |owner: &Claimant| {
            numbers.clone().find(|number| self.segments.get(number).is_some_and(|owned| owned.has(owner)))
        };
        self.shares.goes_first(self.shares.bound(), oldest_of).or_else(|| numbers.clone().next())
    }
}

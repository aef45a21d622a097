//! The part of the ledger about owners: whose each pool is, and which placements they step.

use std::collections::{BTreeMap, BTreeSet};

use rollhouse_core::RunId;
use rollhouse_wire::{Incarnation, SessionId};

/// The owners of pools, as they themselves know it.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// The owner as which each trainer asks for pools now.
    trainers: Vec<String>,
    /// The owner as which each pool was asked for.
    pools: BTreeMap<RunId, String>,
    /// Owners that are not admitted any more.
    revoked: BTreeSet<String>,
    /// The placement of each session that a trainer has and wants to keep.
    in_use: BTreeMap<SessionId, Incarnation>,
}

impl Owners {
    /// Makes the owners of that many trainers. Two of three share a quota.
    pub(crate) fn new(trainers: usize) -> Self {
        let trainers = (0..trainers).map(|trainer| format!("owner-{}", trainer / 2)).collect();
        Self { trainers, ..Self::default() }
    }

    /// Returns the owner as which a trainer asks for pools now.
    pub(crate) fn now(&self, trainer: usize) -> String {
        self.trainers[trainer].clone()
    }

    /// Notes that a pool is asked for as that owner.
    pub(crate) fn asks(&mut self, pool: RunId, owner: String) {
        self.pools.insert(pool, owner);
    }

    /// Returns the owner as which a pool was asked for.
    pub(crate) fn of(&self, pool: RunId) -> Option<String> {
        self.pools.get(&pool).cloned()
    }

    /// Revokes the token of a trainer's owner; the trainer and those that share the token get another.
    pub(crate) fn revoke(&mut self, trainer: usize) {
        let revoked = self.trainers[trainer].clone();
        for owner in self.trainers.iter_mut().filter(|owner| **owner == revoked) {
            owner.push('+');
        }
        self.revoked.insert(revoked);
    }

    /// Returns whether the token of that owner was revoked.
    pub(crate) fn is_revoked(&self, owner: &str) -> bool {
        self.revoked.contains(owner)
    }

    /// Returns whether the token of any owner was revoked.
    pub(crate) fn is_any_revoked(&self) -> bool {
        !self.revoked.is_empty()
    }

    /// Notes that a trainer was granted a placement, and steps it from now on.
    pub(crate) fn uses(&mut self, session: SessionId, incarnation: Incarnation) {
        self.in_use.insert(session, incarnation);
    }

    /// Notes that a trainer asks for another place of a session, or has given it up.
    pub(crate) fn gives_up(&mut self, session: SessionId) {
        self.in_use.remove(&session);
    }

    /// Notes that a trainer closes a pool, or has ended.
    pub(crate) fn gives_up_pool(&mut self, pool: RunId) {
        self.in_use.retain(|session, _| session.pool != pool);
    }

    /// Notes that the coordinator has a node end a placement, which nobody may be stepping.
    pub(crate) fn closed(&self, session: SessionId, incarnation: Incarnation) {
        let is_owned = self.pools.get(&session.pool).is_some_and(|owner| !self.is_revoked(owner));
        let is_used = self.in_use.get(&session) == Some(&incarnation);
        assert!(!(is_owned && is_used), "{session} {incarnation} is closed while its owner steps it");
    }
}

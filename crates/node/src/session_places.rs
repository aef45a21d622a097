//! Shares by owner of what a node takes of sessions. Pure.

use rollhouse_core::{Claimant, OverShare, SharedBound, Shares};
use rollhouse_wire::{LaneSettings, OpenSession};

/// The parts that owners have of what the node takes of sessions.
#[derive(Debug)]
pub(crate) struct SessionPlaces {
    sessions: Shares,
    rollouts: Shares,
    replays: Shares,
}

impl SessionPlaces {
    pub(crate) const fn new() -> Self {
        Self {
            sessions: Shares::new(SharedBound::SESSIONS),
            rollouts: Shares::new(SharedBound::ROLLOUTS),
            replays: Shares::new(SharedBound::REPLAYS),
        }
    }

    /// Takes the places of a session.
    ///
    /// # Errors
    /// If its owner has its share of one of them; nothing is taken then.
    pub(crate) fn take(&mut self, open: &OpenSession) -> Result<(), OverShare> {
        let claimant = claimant(&open.owner, open.operates);
        self.sessions.take(&claimant, 1)?;
        let kind = self.kind(open).map_or(Ok(()), |shares| shares.take(&claimant, 1));
        kind.inspect_err(|_| self.sessions.give_back(&claimant, 1))
    }

    pub(crate) fn give_back(&mut self, open: &OpenSession) {
        let claimant = claimant(&open.owner, open.operates);
        self.sessions.give_back(&claimant, 1);
        if let Some(shares) = self.kind(open) {
            shares.give_back(&claimant, 1);
        }
    }

    /// Returns the number of sessions of an owner that play by themselves.
    pub(crate) fn rollouts_of(&self, owner: &Claimant) -> u64 {
        self.rollouts.taken(owner)
    }

    /// Returns the places of which sessions of that kind have one besides.
    const fn kind(&mut self, open: &OpenSession) -> Option<&mut Shares> {
        match open.settings {
            LaneSettings { collect: Some(_), .. } => Some(&mut self.rollouts),
            LaneSettings { replay: Some(_), .. } => Some(&mut self.replays),
            _ => None,
        }
    }
}

/// Returns the one of that name to whose share something counts.
pub(crate) fn claimant(owner: &str, operates: bool) -> Claimant {
    if operates { Claimant::operator(owner) } else { Claimant::owner(owner) }
}

const _: () = assert!(
    SharedBound::SESSIONS.limit == rollhouse_replay::limits::MAX_OPEN_RUNS as u64,
    "a node takes as many sessions as it can record at a time"
);

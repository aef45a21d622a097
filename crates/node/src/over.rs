//! Placements of sessions that are over: their ends, until a coordinator has taken them in, and fences, so that a late
//! message does not open them again.
//!
//! Pure, and bounded: the caller that opens sessions asks [`Over::is_full`] first.

use std::collections::{BTreeSet, VecDeque};

use rollhouse_wire::{Attach, EndCause, Incarnation, Secret, SessionEnd, SessionId};

/// Everything that a node remembers of placements that are over.
#[derive(Debug, Default)]
pub(crate) struct Over {
    /// The fences, oldest first.
    fences: VecDeque<Fence>,
    ends: VecDeque<SessionEnd>,
    /// Ends that a coordinator of `told_term` has taken in, oldest first: the next coordinator has to hear of them
    /// again.
    told: VecDeque<SessionEnd>,
    told_term: u64,
}

/// A placement that is over.
#[derive(Debug)]
struct Fence {
    session: SessionId,
    incarnation: Incarnation,
    /// The cause of the end, and the secret of the owner, which alone is told; `None` if the placement never was open.
    ended: Option<(EndCause, Secret)>,
}

impl Over {
    pub(crate) const fn new() -> Self {
        Self { fences: VecDeque::new(), ends: VecDeque::new(), told: VecDeque::new(), told_term: 0 }
    }

    /// Returns how many ends wait, if they are so many that no session is to be opened.
    pub(crate) fn is_full(&self) -> Option<usize> {
        Some(self.ends.len()).filter(|&ends| ends >= MAX_ENDS)
    }

    /// Returns a placement of the session, that one or a newer one, that is over.
    pub(crate) fn fenced(&self, session: SessionId, incarnation: Incarnation) -> Option<Incarnation> {
        let fences = self.fences.iter().rev();
        let mut of_it = fences.filter(|f| f.session == session && f.incarnation >= incarnation);
        of_it.next().map(|fence| fence.incarnation)
    }

    /// Returns why the placement ended to which an owner wants to attach, if the owner shows its secret.
    pub(crate) fn cause_for(&self, attach: &Attach) -> Option<EndCause> {
        let session = SessionId { pool: attach.pool, index: attach.index };
        let mut fences = self.fences.iter().rev();
        let fence = fences.find(|f| f.session == session && f.incarnation == attach.incarnation)?;
        fence.ended.as_ref().filter(|(_, secret)| secret.matches(&attach.secret)).map(|(cause, _)| *cause)
    }

    /// Notes that a placement is not to be opened again. `ended` is as in [`Fence`].
    pub(crate) fn fence_off(
        &mut self,
        session: SessionId,
        incarnation: Incarnation,
        ended: Option<(EndCause, Secret)>,
    ) {
        if self.fences.len() >= MAX_FENCES {
            self.fences.pop_front();
        }
        self.fences.push_back(Fence { session, incarnation, ended });
    }

    /// Notes an end that is to be told. Bounded by what is opened: none is forgotten before it was told.
    pub(crate) fn ended(&mut self, end: SessionEnd) {
        self.ends.push_back(end);
    }

    /// Returns the end of a placement, if it has not been acknowledged yet.
    pub(crate) fn end_of(&self, session: SessionId, incarnation: Incarnation) -> Option<&SessionEnd> {
        self.ends.iter().find(|end| end.session == session && end.incarnation == incarnation)
    }

    /// Returns ends that are to be told, oldest first, at most as many as one message takes, and whether those are all.
    pub(crate) fn ends(&self) -> (Vec<SessionEnd>, bool) {
        (self.ends.iter().take(ENDS_PER_MESSAGE).cloned().collect(), self.ends.len() <= ENDS_PER_MESSAGE)
    }

    /// Notes that the coordinator has taken those ends in.
    pub(crate) fn acknowledge(&mut self, told: &[SessionEnd]) {
        let told: BTreeSet<_> = told.iter().map(|end| (end.session, end.incarnation)).collect();
        let (told, ends) =
            self.ends.drain(..).partition::<Vec<_>, _>(|end| told.contains(&(end.session, end.incarnation)));
        self.ends = ends.into();
        self.told.extend(told);
        self.told.drain(..self.told.len().saturating_sub(MAX_TOLD_ENDS));
    }

    /// Notes that the coordinator of that term knows the node. A newer one than before knows nothing of what ended
    /// under the others: it is told again.
    pub(crate) fn joined(&mut self, term: u64) {
        if term > self.told_term {
            self.told_term = term;
            self.told.append(&mut self.ends);
            std::mem::swap(&mut self.told, &mut self.ends);
        }
    }
}

/// Most placements that ended and are remembered. A coordinator's messages are late by seconds at most.
const MAX_FENCES: usize = 4_096;

/// Most ends that wait for an acknowledgement: with more, no session is opened. Those of all open sessions may join
/// them.
pub(crate) const MAX_ENDS: usize = 4_096;

/// Most ends that were told and are kept for the next coordinator; the oldest are forgotten first.
const MAX_TOLD_ENDS: usize = 4_096;

/// Most ends told in one message, so that it stays within its bound.
const ENDS_PER_MESSAGE: usize = 256;

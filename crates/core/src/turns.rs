//! Turns by owner at what only a bounded number may do at a time. Pure.

use std::collections::{BTreeMap, VecDeque};

use crate::{Claimant, SharedBound, Shares};

/// Claimants that wait for places of a bound. Each has its own queue, and places go round: whoever had one last comes
/// last. So a claimant with a thousand in its queue waits no shorter, and makes others wait no longer, than one with
/// one.
#[derive(Debug)]
pub struct Turns<T> {
    shares: Shares,
    waiting: BTreeMap<Claimant, VecDeque<T>>,
    /// The claimants that wait, the one whose turn is next first.
    order: VecDeque<Claimant>,
    queued: usize,
}

impl<T> Turns<T> {
    /// Makes turns at a bound for which nobody waits.
    pub const fn new(bound: SharedBound) -> Self {
        Self { shares: Shares::new(bound), waiting: BTreeMap::new(), order: VecDeque::new(), queued: 0 }
    }

    /// Queues something for the claimant.
    pub fn push(&mut self, claimant: Claimant, what: T) {
        let queue = self.waiting.entry(claimant.clone()).or_default();
        if queue.is_empty() {
            self.order.push_back(claimant);
        }
        queue.push_back(what);
        self.queued += 1;
    }

    /// Takes a place for the next in turn whose share has room. It holds the place until [`Turns::done`]. Returns `None`
    /// if nobody waits that may have one.
    pub fn pop(&mut self) -> Option<(Claimant, T)> {
        let at = self.order.iter().position(|claimant| self.shares.has_room(claimant, 1))?;
        let claimant = self.order.remove(at)?;
        let queue = self.waiting.get_mut(&claimant)?;
        let what = queue.pop_front()?;
        self.queued -= 1;
        if queue.is_empty() {
            self.waiting.remove(&claimant);
        } else {
            self.order.push_back(claimant.clone());
        }
        self.shares.take(&claimant, 1).ok()?;
        Some((claimant, what))
    }

    /// Gives back a place that was taken for the claimant.
    pub fn done(&mut self, claimant: &Claimant) {
        self.shares.give_back(claimant, 1);
    }

    /// Returns the number that wait.
    pub const fn queued(&self) -> usize {
        self.queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(limit: u64, reserve: u64) -> SharedBound {
        SharedBound { limit, reserve, most: limit, ..SharedBound::QUESTIONS }
    }

    /// Symptom: `ls` took 33 s while one reader asked without a pause. Cause: one queue, in the order of arrival. Fix:
    /// a queue for each owner, and places go round.
    #[test]
    fn one_with_a_thousand_waiting_is_served_by_turns_with_one_that_comes_later() {
        let mut turns = Turns::new(bound(1, 0));
        let (greedy, other) = (Claimant::owner("greedy"), Claimant::owner("other"));
        (0..1000).for_each(|number| turns.push(greedy.clone(), number));
        assert_eq!(turns.pop(), Some((greedy.clone(), 0)));
        turns.push(other.clone(), 7);
        assert_eq!(turns.pop(), None, "the place is taken");
        turns.done(&greedy);
        // One of the greedy's waited before the other came.
        assert_eq!(turns.pop(), Some((greedy.clone(), 1)));
        turns.done(&greedy);
        assert_eq!(turns.pop(), Some((other, 7)));
    }

    #[test]
    fn one_that_has_its_share_of_the_places_waits_while_others_and_operators_find_some() {
        let mut turns = Turns::new(bound(4, 1));
        let (greedy, other) = (Claimant::owner("greedy"), Claimant::owner("other"));
        (0..9).for_each(|number| turns.push(greedy.clone(), number));
        let taken = std::iter::from_fn(|| turns.pop()).count();
        assert_eq!(taken, 2);
        turns.push(other.clone(), 10);
        turns.push(Claimant::operator("admin"), 11);
        assert_eq!(turns.pop(), Some((other, 10)));
        assert_eq!(turns.pop(), Some((Claimant::operator("admin"), 11)));
        assert_eq!((turns.pop(), turns.queued()), (None, 7));
    }
}

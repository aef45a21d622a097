//! Shares by owner of a bound: who has how much, and who may have more. Pure but for [`ShareBook`], which is the same
//! behind a lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::SharedBound;

/// A party that takes a part of a bound.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claimant {
    /// Name of an owner's token or certificate, or of a node.
    name: Arc<str>,
    /// Whether it is a node or an admin.
    operates: bool,
}

impl Claimant {
    /// Returns an owner of pools, or whoever reads or watches: a trainer or a viewer.
    pub fn owner(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), operates: false }
    }

    /// Returns a node or an admin: it may have of the reserve.
    pub fn operator(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), operates: true }
    }

    /// Returns whether it is a node or an admin.
    pub const fn operates(&self) -> bool {
        self.operates
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The parts of a bound that claimants have.
///
/// Owners together leave the reserve free, and each of them has at most half of what the others leave. A node or an
/// admin has at most half of what all others leave, reserve included.
#[derive(Debug, Clone)]
pub struct Shares {
    bound: SharedBound,
    taken: BTreeMap<Claimant, u64>,
    of_owners: u64,
    of_operators: u64,
}

/// A part of a bound is more than a claimant may have now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` has {taken} {}, {share} are as many as one may have while others have {others} of {}; wait until some of \
     them have ended",
    claimant.escape_debug(), bound.what, bound.limit
)]
pub struct OverShare {
    /// The bound.
    pub bound: SharedBound,
    /// The claimant's name.
    pub claimant: Arc<str>,
    /// The claimant's part.
    pub taken: u64,
    /// The part that it may have now.
    pub share: u64,
    /// The part of all others.
    pub others: u64,
}

impl Shares {
    /// Makes shares of a bound of which nobody has anything.
    pub const fn new(bound: SharedBound) -> Self {
        Self { bound, taken: BTreeMap::new(), of_owners: 0, of_operators: 0 }
    }

    /// Returns the bound.
    pub const fn bound(&self) -> SharedBound {
        self.bound
    }

    /// Returns the part that the claimant has.
    pub fn taken(&self, claimant: &Claimant) -> u64 {
        self.taken.get(claimant).copied().unwrap_or(0)
    }

    /// Returns the part that all have together.
    pub const fn total(&self) -> u64 {
        self.of_owners + self.of_operators
    }

    /// Returns the part that the claimant may have while others have theirs.
    pub fn share(&self, claimant: &Claimant) -> u64 {
        self.share_of(self.bound, claimant)
    }

    fn share_of(&self, bound: SharedBound, claimant: &Claimant) -> u64 {
        let own = self.taken(claimant);
        let of_others = |sum: u64, is_own: bool| if is_own { sum - own } else { sum };
        let owners = of_others(self.of_owners, !claimant.operates);
        bound.share(claimant.operates, owners, of_others(self.of_operators, claimant.operates))
    }

    /// Returns whether the claimant may have that much more.
    pub fn has_room(&self, claimant: &Claimant, amount: u64) -> bool {
        self.taken(claimant).saturating_add(amount) <= self.share(claimant)
    }

    /// Takes that much for the claimant, until it is given back.
    ///
    /// # Errors
    /// If it is more than the claimant may have; nothing is taken then.
    pub fn take(&mut self, claimant: &Claimant, amount: u64) -> Result<(), OverShare> {
        if !self.has_room(claimant, amount) {
            let taken = self.taken(claimant);
            return Err(OverShare {
                bound: self.bound,
                claimant: Arc::clone(&claimant.name),
                taken,
                share: self.share(claimant),
                others: self.total() - taken,
            });
        }
        self.add(claimant, amount);
        Ok(())
    }

    /// Adds what the claimant has taken already, whatever it may have.
    pub fn add(&mut self, claimant: &Claimant, amount: u64) {
        *self.taken.entry(claimant.clone()).or_default() += amount;
        *self.sum_of(claimant) += amount;
    }

    /// Passes on what one claimant has taken to another, whatever that one has: nothing is free in between.
    pub fn pass_on(&mut self, from: &Claimant, to: &Claimant, amount: u64) {
        let amount = amount.min(self.taken(from));
        self.give_back(from, amount);
        self.add(to, amount);
    }

    /// Gives back what the claimant has taken. More than that is not given back.
    pub fn give_back(&mut self, claimant: &Claimant, amount: u64) {
        let Some(taken) = self.taken.get_mut(claimant) else { return };
        let amount = amount.min(*taken);
        *taken -= amount;
        if *taken == 0 {
            self.taken.remove(claimant);
        }
        *self.sum_of(claimant) -= amount;
    }

    /// Returns those who have more than they may, the one that is furthest beyond its share first.
    pub fn over(&self) -> impl Iterator<Item = &Claimant> {
        self.beyond(self.bound).into_iter().map(|(_, claimant)| claimant)
    }

    /// Returns what goes first to make room in `bound`: the oldest of whoever is furthest beyond its share, or about as
    /// far, by a sixteenth of the bound. `oldest` gives the age of the oldest that a claimant has and that may go, the
    /// least for the oldest; of a claimant with none, the next is looked at. `None` if nobody is over its share, or
    /// nothing of theirs may go. If all together have more than the limit, somebody is.
    pub fn goes_first<T: Ord>(
        &self,
        bound: SharedBound,
        oldest: impl Fn(&Claimant) -> Option<T>,
    ) -> Option<T> {
        let mut found: Option<(u64, T)> = None;
        for (by, claimant) in self.beyond(bound) {
            if found.as_ref().is_some_and(|(most, _)| by < most - (bound.limit / 16).min(*most)) {
                break;
            }
            if let Some(age) = oldest(claimant) {
                found = Some(match found {
                    Some((most, known)) => (most, known.min(age)),
                    None => (by, age),
                });
            }
        }
        found.map(|(_, age)| age)
    }

    /// Returns those who have more of `bound` than they may, and by how much, the furthest first.
    fn beyond(&self, bound: SharedBound) -> Vec<(u64, &Claimant)> {
        let by = |claimant: &Claimant, taken: u64| taken.saturating_sub(self.share_of(bound, claimant));
        let mut over: Vec<(u64, &Claimant)> =
            self.taken.iter().map(|(claimant, &taken)| (by(claimant, taken), claimant)).collect();
        over.retain(|&(by, _)| by > 0);
        over.sort_by(|a, b| b.cmp(a));
        over
    }

    const fn sum_of(&mut self, claimant: &Claimant) -> &mut u64 {
        if claimant.operates { &mut self.of_operators } else { &mut self.of_owners }
    }
}

/// Shares that several threads take from. Clones are handles to the same.
#[derive(Debug, Clone)]
pub struct ShareBook(Arc<Mutex<Shares>>);

/// A part of a bound; it is given back when this is dropped.
#[derive(Debug)]
pub struct Portion {
    book: ShareBook,
    claimant: Claimant,
    amount: u64,
}

impl ShareBook {
    /// Makes a book of a bound of which nobody has anything.
    pub fn new(bound: SharedBound) -> Self {
        Self(Arc::new(Mutex::new(Shares::new(bound))))
    }

    /// Takes that much for the claimant, until the returned value is dropped. Blocks for no longer than a look-up takes.
    ///
    /// # Errors
    /// If it is more than the claimant may have.
    pub fn take(&self, claimant: Claimant, amount: u64) -> Result<Portion, OverShare> {
        self.shares().take(&claimant, amount)?;
        Ok(Portion { book: self.clone(), claimant, amount })
    }

    /// Returns the part that all have together.
    pub fn total(&self) -> u64 {
        self.shares().total()
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        // Nothing that is done under the lock stops half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Portion {
    /// Returns the claimant.
    pub const fn claimant(&self) -> &Claimant {
        &self.claimant
    }
}

impl Drop for Portion {
    fn drop(&mut self) {
        self.book.shares().give_back(&self.claimant, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bound(limit: u64, reserve: u64, most: u64) -> SharedBound {
        SharedBound { limit, reserve, most, ..SharedBound::LEARNING }
    }

    #[test]
    fn a_refusal_names_the_bound_what_was_taken_and_the_share() {
        let mut shares = Shares::new(bound(16, 2, 16));
        let ada = Claimant::owner("ada");
        shares.take(&Claimant::owner("bob"), 2).unwrap();
        shares.take(&ada, 6).unwrap();
        let over = shares.take(&ada, 1).unwrap_err();
        assert_eq!(
            over.to_string(),
            "`ada` has 6 Python envs that a node starts, 6 are as many as one may have while others have 2 of 16; wait \
             until some of them have ended"
        );
    }

    #[test]
    fn a_portion_is_given_back_when_it_is_dropped() {
        let book = ShareBook::new(bound(4, 0, 4));
        let portion = book.take(Claimant::owner("ada"), 2).unwrap();
        assert!(book.take(Claimant::owner("ada"), 1).is_err());
        drop(portion);
        assert_eq!(book.total(), 0);
        assert!(book.take(Claimant::owner("ada"), 2).is_ok());
    }

    #[test]
    fn an_owner_and_an_operator_of_one_name_are_two() {
        let mut shares = Shares::new(bound(4, 2, 4));
        shares.take(&Claimant::owner("a"), 1).unwrap();
        assert!(shares.take(&Claimant::owner("a"), 1).is_err());
        assert!(shares.take(&Claimant::operator("a"), 2).is_ok());
    }

    proptest! {
        /// Whoever takes and gives back in whichever order: the sums are those of the parts, owners never touch the
        /// reserve, and a newcomer finds a place unless as many others came before as halve what is there to nothing.
        #[test]
        fn the_limit_the_reserve_and_the_shares_hold_whoever_takes(
            (limit, reserve, most) in (1u64..200, 0u64..40, 1u64..200),
            takes in prop::collection::vec((0u8..6, any::<bool>(), 1u64..20, any::<bool>()), 1..200)
        ) {
            let reserve = reserve.min(limit);
            let mut shares = Shares::new(bound(limit, reserve, most));
            for (who, operates, amount, takes) in takes {
                let claimant = Claimant { name: who.to_string().into(), operates };
                if takes {
                    let (before, others) = (shares.taken(&claimant), shares.total() - shares.taken(&claimant));
                    let owners = shares.of_owners;
                    if shares.take(&claimant, amount).is_ok() {
                        let now = shares.taken(&claimant);
                        prop_assert!(now == before + amount && now <= most);
                        prop_assert!(now <= (limit - others).div_ceil(2));
                        prop_assert!(operates || owners + amount <= limit - reserve);
                    }
                } else {
                    shares.give_back(&claimant, amount);
                }
                let sum: u64 = shares.taken.values().sum();
                prop_assert!(sum == shares.total() && sum <= limit);
            }
        }
    }
}

//! Whose the bytes of a recording are.

use crate::Claimant;
use crate::limits::MAX_OWNERS_NAMED;

/// Bytes by the owners whose they are. At most [`MAX_OWNERS_NAMED`] owners are named; the bytes of further ones are
/// nobody's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnedBytes(
    /// Sorted by owner. Millions of these are in memory, most with one owner.
    Vec<(Claimant, u64)>,
);

impl OwnedBytes {
    /// Makes it without an owner.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds bytes of an owner.
    pub fn add(&mut self, owner: &Claimant, bytes: u64) {
        match self.place(owner) {
            Ok(at) => self.0[at].1 = self.0[at].1.saturating_add(bytes),
            Err(at) if bytes > 0 && self.0.len() < MAX_OWNERS_NAMED => {
                self.0.insert(at, (owner.clone(), bytes))
            }
            Err(_) => {}
        }
    }

    /// Adds the bytes of all owners that are named in another one.
    pub fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|(owner, bytes)| self.add(owner, bytes));
    }

    /// Returns the owners that are named, in order, each with its bytes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Claimant, u64)> {
        self.0.iter().map(|(owner, bytes)| (owner, *bytes))
    }

    /// Returns whether an owner has bytes among these.
    pub fn has(&self, owner: &Claimant) -> bool {
        self.place(owner).is_ok()
    }

    /// Returns these as the parts of `whole` bytes: what is nobody's counts for `rest`. If more is named than there is,
    /// each has as much less as it names more.
    #[must_use]
    pub fn parts_of(&self, whole: u64, rest: &Claimant) -> Self {
        let named: u128 = self.0.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
        let scale = |bytes: u64| match named {
            named if named > u128::from(whole) => {
                (u128::from(bytes) * u128::from(whole) / named).try_into().unwrap_or(whole)
            }
            _ => bytes,
        };
        let mut parts = Self(self.0.iter().map(|(owner, bytes)| (owner.clone(), scale(*bytes))).collect());
        let left = whole - parts.0.iter().map(|(_, bytes)| bytes).sum::<u64>();
        match parts.place(rest) {
            Ok(at) => parts.0[at].1 += left,
            Err(at) if left > 0 => parts.0.insert(at, (rest.clone(), left)),
            Err(_) => {}
        }
        parts
    }

    /// Returns these so scaled that they are `cost` together, with a remainder of less than their number missing.
    #[must_use]
    pub fn scaled_to(mut self, cost: u64) -> Self {
        let whole: u128 = self.0.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
        for (_, bytes) in &mut self.0 {
            let part = u128::from(*bytes) * u128::from(cost) / whole.max(1);
            *bytes = part.try_into().unwrap_or(cost);
        }
        self
    }

    fn place(&self, owner: &Claimant) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(owner))
    }
}

impl FromIterator<(Claimant, u64)> for OwnedBytes {
    fn from_iter<T: IntoIterator<Item = (Claimant, u64)>>(parts: T) -> Self {
        let mut owned = Self::default();
        parts.into_iter().for_each(|(owner, bytes)| owned.add(&owner, bytes));
        owned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_whole_whatever_is_named() {
        let (ada, bob, node) = (Claimant::owner("ada"), Claimant::owner("bob"), Claimant::operator("n1"));
        let owned: OwnedBytes =
            [(ada.clone(), 30), (bob.clone(), 10), (ada.clone(), 10)].into_iter().collect();
        let parts = |whole| -> Vec<(Claimant, u64)> {
            owned.parts_of(whole, &node).iter().map(|(owner, bytes)| (owner.clone(), bytes)).collect()
        };
        assert_eq!(parts(60), [(ada.clone(), 40), (bob.clone(), 10), (node.clone(), 10)]);
        assert_eq!(parts(5), [(ada.clone(), 4), (bob.clone(), 1)], "no more than there is");
        let vast: OwnedBytes = [(ada, u64::MAX), (bob, u64::MAX)].into_iter().collect();
        assert_eq!(vast.parts_of(10, &node).iter().map(|(_, bytes)| bytes).sum::<u64>(), 10);
    }

    #[test]
    fn a_small_segment_costs_each_owner_its_part_of_what_it_costs() {
        let (ada, bob) = (Claimant::owner("ada"), Claimant::owner("bob"));
        let owned: OwnedBytes = [(ada, 30), (bob, 10)].into_iter().collect();
        let parts: Vec<u64> = owned.scaled_to(4096).iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(parts, [3072, 1024]);
        assert_eq!(OwnedBytes::none().scaled_to(9), OwnedBytes::none());
    }

    #[test]
    fn more_owners_than_are_named_are_nobody() {
        let mut owned = OwnedBytes::default();
        (0..2 * MAX_OWNERS_NAMED).for_each(|n| owned.add(&Claimant::owner(n.to_string()), 1));
        assert_eq!(owned.iter().len(), MAX_OWNERS_NAMED);
    }
}

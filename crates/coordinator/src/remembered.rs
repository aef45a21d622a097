//! A bounded memory that is shared fairly among owners.
//!
//! When there is no more room, the oldest thing of the owner who has most is forgotten: whatever one owner does, the
//! things of others are kept as long as they are no more than that owner's.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Things by name, each with an owner and a weight. The caller decides how much is too much, and then has things
/// forgotten.
#[derive(Debug)]
pub(crate) struct Remembered<K> {
    all: BTreeMap<K, Item>,
    owners: BTreeMap<Arc<str>, Owned<K>>,
    /// The number of the next thing, in the order in which things come.
    next: u64,
    weight: usize,
}

#[derive(Debug)]
struct Item {
    owner: Arc<str>,
    number: u64,
    weight: usize,
}

#[derive(Debug)]
struct Owned<K> {
    oldest_first: BTreeMap<u64, K>,
    weight: usize,
}

impl<K: Ord + Clone> Remembered<K> {
    /// Adds a thing as the newest; a thing that is there already stays as it is.
    pub(crate) fn insert(&mut self, key: K, owner: &Arc<str>, weight: usize) {
        if self.all.contains_key(&key) {
            return;
        }
        let number = self.next;
        self.next += 1;
        self.weight += weight;
        let owned = self.owners.entry(Arc::clone(owner)).or_default();
        owned.oldest_first.insert(number, key.clone());
        owned.weight += weight;
        self.all.insert(key, Item { owner: Arc::clone(owner), number, weight });
    }

    /// Makes a thing heavier, if it is there.
    pub(crate) fn weigh(&mut self, key: &K, more: usize) {
        let Some(item) = self.all.get_mut(key) else { return };
        item.weight += more;
        self.weight += more;
        if let Some(owned) = self.owners.get_mut(&item.owner) {
            owned.weight += more;
        }
    }

    /// Takes a thing out; false if it is not there.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        let Some(Item { owner, number, weight }) = self.all.remove(key) else { return false };
        self.weight -= weight;
        if let Some(owned) = self.owners.get_mut(&owner) {
            owned.oldest_first.remove(&number);
            owned.weight -= weight;
            if owned.oldest_first.is_empty() {
                self.owners.remove(&owner);
            }
        }
        true
    }

    /// Takes out the oldest thing of the owner whose things weigh most together.
    pub(crate) fn forget(&mut self) -> Option<K> {
        let heaviest = self.owners.values().max_by_key(|owned| owned.weight)?;
        let (_, key) = heaviest.oldest_first.first_key_value()?;
        let key = key.clone();
        self.remove(&key);
        Some(key)
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.all.contains_key(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the weight of all things together.
    pub(crate) const fn weight(&self) -> usize {
        self.weight
    }
}

impl<K> Default for Remembered<K> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), owners: BTreeMap::new(), next: 0, weight: 0 }
    }
}

impl<K> Default for Owned<K> {
    fn default() -> Self {
        Self { oldest_first: BTreeMap::new(), weight: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_has_most_loses_its_oldest_and_others_lose_nothing() {
        let (ada, eve): (Arc<str>, Arc<str>) = ("ada".into(), "eve".into());
        let mut remembered = Remembered::default();
        remembered.insert(0, &ada, 1);
        (1..=3).for_each(|key| remembered.insert(key, &eve, 1));
        assert_eq!((remembered.forget(), remembered.forget()), (Some(1), Some(2)));
        assert!(remembered.contains(&0) && remembered.contains(&3));
        remembered.weigh(&0, 5);
        assert_eq!(remembered.forget(), Some(0), "ada's weighs most now");
        assert_eq!((remembered.len(), remembered.weight()), (1, 1));
    }

    proptest! {
        #[test]
        fn an_owner_within_an_equal_share_of_the_room_never_loses_anything(
            comes in prop::collection::vec((0u32..4, 0u32..200), 1..400)
        ) {
            const ROOM: usize = 40;
            let owners: Vec<Arc<str>> = ["ada", "bob", "cyd", "eve"].map(Arc::from).to_vec();
            let mut remembered = Remembered::default();
            let mut of_ada = Vec::new();
            for (owner, key) in comes {
                let is_ada = owner == 0;
                if is_ada && of_ada.len() == ROOM / owners.len() {
                    prop_assert!(remembered.remove(&of_ada.remove(0)));
                }
                let key = (owner, key);
                if is_ada && !of_ada.contains(&key) {
                    of_ada.push(key);
                }
                remembered.insert(key, &owners[owner as usize], 1);
                while remembered.len() > ROOM {
                    remembered.forget();
                }
                prop_assert!(of_ada.iter().all(|key| remembered.contains(key)));
                prop_assert_eq!(remembered.weight(), remembered.len());
            }
        }
    }
}

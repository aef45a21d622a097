//! Sums of counts by key, in which no key has a count of 0.

use std::collections::BTreeMap;

/// Adds the counts of `more`.
pub(super) fn add_all<K: Ord + Copy>(sum: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
    for (&run, count) in more {
        *sum.entry(run).or_default() += count;
    }
}

/// Takes away the counts of `less`.
pub(super) fn take_all<K: Ord + Copy>(sum: &mut BTreeMap<K, u64>, less: &BTreeMap<K, u64>) {
    for (&run, count) in less {
        let left = sum.get(&run).copied().unwrap_or(0).saturating_sub(*count);
        if left == 0 {
            sum.remove(&run);
        } else {
            sum.insert(run, left);
        }
    }
}

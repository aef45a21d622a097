//! Deciding which segments go, by nothing but their contents.

use std::collections::BTreeSet;

/// The contents of a segment that may go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) bytes: u64,
    /// Episodes with a part in it that are to go.
    pub(crate) going: u64,
    /// About how many bytes the episodes with a part in it that stay take once they are recorded again; of one that lies
    /// in several segments, a share.
    pub(crate) again: u64,
    /// Whether something in it cannot be read, so that it stays whatever is asked for.
    pub(crate) is_damaged: bool,
}

/// Returns whether a segment goes, after the episodes that stay were recorded again: only if that gives at least half
/// of it back, as an episode that is recorded again takes up to eight times the room it had.
pub(crate) const fn goes(contents: &Contents) -> bool {
    contents.going > 0 && !contents.is_damaged && contents.again <= contents.bytes / 2
}

/// Returns the oldest segments without which the others take at most `keep` bytes, by their places in `segments`. These
/// are pairs of how old each is and its bytes.
pub(crate) fn beyond(segments: &[(u64, u64)], keep: u64) -> BTreeSet<usize> {
    let mut order: Vec<usize> = (0..segments.len()).collect();
    order.sort_by_key(|&at| (segments[at].0, at));
    let mut total: u64 = segments.iter().map(|(_, bytes)| bytes).sum();
    let mut taken = BTreeSet::new();
    for at in order {
        if total <= keep {
            break;
        }
        total -= segments[at].1;
        taken.insert(at);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_beyond_a_size_is_the_fewest_of_the_oldest_segments(
            segments in prop::collection::vec((0u64..20, 1u64..100), 0..20),
            keep in 0u64..1500,
        ) {
            let taken = beyond(&segments, keep);
            let left: u64 = (0..segments.len()).filter(|at| !taken.contains(at)).map(|at| segments[at].1).sum();
            prop_assert!(left <= keep);
            let newest = taken.iter().map(|&at| (segments[at].0, at)).max();
            if let Some((_, newest)) = newest {
                prop_assert!(left + segments[newest].1 > keep, "one less would have done");
            }
            for at in (0..segments.len()).filter(|at| !taken.contains(at)) {
                prop_assert!(newest.is_none_or(|newest| (segments[at].0, at) > newest), "an older one stays");
            }
        }

        #[test]
        fn no_segment_goes_that_would_not_give_half_of_itself_back(
            bytes in 0u64..1000, going in 0u64..3, again in 0u64..1000, is_damaged: bool,
        ) {
            let contents = Contents { bytes, going, again, is_damaged };
            if goes(&contents) {
                prop_assert!(going > 0 && !is_damaged && again * 2 <= bytes);
            }
        }
    }
}

//! The memory of worker processes, which owners share. Pure: what they have is measured elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rollhouse_core::{Claimant, SharedBound};
use rollhouse_host::Holder;

/// A session that is to end, because its owner has most beyond its share of a memory of which there is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OverMemory {
    /// The session, the heaviest of its owner.
    pub(crate) holder: Holder,
    /// Bytes that it has.
    bytes: u64,
    /// Bytes that its owner has.
    taken: u64,
    /// Bytes that its owner may have while others have theirs.
    share: u64,
    /// Bytes that all have together, and that there are for owners.
    of_all: (u64, u64),
}

/// Decides which session ends for the memory of its owner's worker processes, and when the next one may.
#[derive(Debug, Default)]
pub(crate) struct MemoryWatch {
    /// The session that was ended last, and when.
    ended: Option<(Holder, Duration)>,
}

impl MemoryWatch {
    /// Returns the session that is to end now, if one is, as [`OverMemory::of`] has it. While the last one has its memory
    /// still, at most [`ENDING`], none is.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        limit: u64,
        seen: &BTreeMap<Holder, u64>,
    ) -> Option<OverMemory> {
        let frees =
            |(holder, at): &(Holder, Duration)| seen.contains_key(holder) && now.saturating_sub(*at) < ENDING;
        if self.ended.as_ref().is_some_and(frees) {
            return None;
        }
        let over = OverMemory::of(limit, seen)?;
        self.ended = Some((over.holder.clone(), now));
        Some(over)
    }
}

impl OverMemory {
    /// Returns the session that is to end, if owners have more of the node's memory than there is for them, or all together
    /// more than there is. `limit` bytes are for worker processes; 0 says that nobody knows.
    fn of(limit: u64, seen: &BTreeMap<Holder, u64>) -> Option<Self> {
        let bound = SharedBound::WORKER_MEMORY.with_limit(limit);
        let mut taken: BTreeMap<&Claimant, u64> = BTreeMap::new();
        for (holder, bytes) in seen {
            *taken.entry(&holder.owner).or_default() += bytes;
        }
        let sum = |operate: bool| -> u64 {
            taken.iter().filter(|(claimant, _)| claimant.operates() == operate).map(|(_, bytes)| bytes).sum()
        };
        let (of_owners, of_operators) = (sum(false), sum(true));
        let most = bound.limit - bound.reserve;
        if limit == 0 || of_owners <= most && of_owners + of_operators <= limit {
            return None;
        }
        let over = taken.into_iter().map(|(claimant, own)| {
            let of_others =
                |sum: u64, operate: bool| if claimant.operates() == operate { sum - own } else { sum };
            let share =
                bound.share(claimant.operates(), of_others(of_owners, false), of_others(of_operators, true));
            (own.saturating_sub(share), claimant, own, share)
        });
        let (beyond, claimant, own, share) = over.max_by_key(|(beyond, ..)| *beyond)?;
        let of_it = seen.iter().filter(|(holder, _)| holder.owner == *claimant);
        let (holder, &bytes) = of_it.max_by_key(|(_, bytes)| **bytes)?;
        let of_all = (of_owners + of_operators, most);
        (beyond > 0).then(|| Self { holder: holder.clone(), bytes, taken: own, share, of_all })
    }
}

impl fmt::Display for OverMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        let Self { holder, bytes, taken, share, of_all: (all, most) } = self;
        write!(
            f,
            "worker processes have {} MiB of the {} MiB of memory that this node has for owners; those of `{}` have {} MiB, \
             of which {} MiB are its share, and this session's, its heaviest, {} MiB",
            mib(*all),
            mib(*most),
            holder.owner.name().escape_debug(),
            mib(*taken),
            mib(*share),
            mib(*bytes)
        )
    }
}

/// Time for which a session that was ended may have its processes before another one is.
const ENDING: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_core::RunId;

    const GIB: u64 = 1 << 30;

    fn seen(sessions: &[(&str, u64)]) -> BTreeMap<Holder, u64> {
        let pool = RunId::from_u128(7);
        let holder = |(index, &(owner, bytes)): (usize, &(&str, u64))| {
            let owner = Claimant::owner(owner);
            (Holder { owner, pool, index: index as u32, placement: (1, 1) }, bytes)
        };
        sessions.iter().enumerate().map(holder).collect()
    }

    /// Symptom: sessions of one owner took a node's memory by their worker processes, and the kernel ended others'. Cause:
    /// nothing was counted by owner. Fix: who has most beyond its share loses its heaviest session.
    #[test]
    fn who_has_most_beyond_its_share_loses_its_heaviest_session_and_nobody_while_there_is_room() {
        let (few, many) =
            ([("ada", 6 * GIB), ("bob", GIB)], [("ada", 5 * GIB), ("ada", 9 * GIB), ("bob", 2 * GIB)]);
        assert_eq!(OverMemory::of(16 * GIB, &seen(&few)), None);
        assert_eq!(OverMemory::of(0, &seen(&many)), None, "nobody knows how much there is");
        let over = OverMemory::of(16 * GIB, &seen(&many)).unwrap();
        assert_eq!((over.holder.owner.name(), over.holder.index, over.bytes), ("ada", 1, 9 * GIB));
        let told = over.to_string();
        assert!(
            told.contains("those of `ada` have 14336 MiB") && told.contains("6656 MiB are its share"),
            "{told}"
        );
        let mut watch = MemoryWatch::default();
        let second = Duration::from_secs(1);
        let mut ended = |at: u32, sessions| {
            watch.look(second * at, 16 * GIB, &seen(sessions)).map(|over| over.holder.index)
        };
        assert_eq!(
            [ended(1, &many[..]), ended(2, &many[..])],
            [Some(1), None],
            "its memory is about to be free"
        );
        assert_eq!(ended(12, &many[..]), Some(1));
        let alone = OverMemory::of(16 * GIB, &seen(&[("ada", 16 * GIB)])).unwrap();
        assert_eq!(alone.holder.index, 0, "the node's own part is nobody's");
    }
}

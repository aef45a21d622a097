//! A segment as a reader knows it.

use crate::stored::aside::SetAside;
use crate::stored::damage::Damage;
use crate::stored::index::SegmentIndex;
use crate::stored::run_table::RunTable;

/// A segment as a reader knows it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) index: SegmentIndex,
    /// Its runs in short; [`Replays::info`](crate::read::replays::Replays::info) has more of each.
    pub(crate) runs: RunTable,
    /// Episodes that ended in the segment and are left out, because others of their names came first.
    pub(crate) aside: SetAside,
    pub(crate) damage: Vec<Damage>,
    pub(crate) torn_bytes: u64,
}

impl Segment {
    /// Returns whether no damage of the segment is known.
    pub(crate) fn is_intact(&self) -> bool {
        self.damage.is_empty()
    }
}

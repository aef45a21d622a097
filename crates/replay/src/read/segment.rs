//! A segment as a reader knows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::code::run_record::RunInfo;
use crate::stored::aside::SetAside;
use crate::stored::index::SegmentIndex;
use crate::stored::scan::Damage;

/// A segment as a reader knows it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) index: SegmentIndex,
    pub(crate) runs: BTreeMap<u32, Arc<RunInfo>>,
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

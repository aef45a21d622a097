//! The sealed segments of a folder, with contents and bytes, for carrying them elsewhere.

use std::collections::BTreeSet;

use rollhouse_core::RunId;

use crate::disk::read_all;
use crate::read::read_error::ReadError;
use crate::read::replays::Replays;
use crate::read::run_filter::RunFilter;
use crate::stored::aside::SetAside;
use crate::stored::run_table::RunKey;

/// A sealed segment of a folder, as the folder was when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedHere {
    /// Number of the segment in the folder.
    pub number: u64,
    /// Length of the segment in bytes.
    pub bytes: u64,
    /// The runs that have records in it.
    pub runs: BTreeSet<RunId>,
    /// Episodes of it that are set aside.
    pub aside: SetAside,
}

impl Replays {
    /// Returns the sealed segments, oldest first. Does not block for the disk.
    pub fn sealed_here(&self) -> impl Iterator<Item = SealedHere> {
        self.segments.values().filter(|segment| segment.index.sealed).map(|segment| SealedHere {
            number: segment.index.number,
            bytes: segment.index.bytes,
            runs: segment.runs.iter().map(RunKey::run).collect(),
            aside: segment.aside.clone(),
        })
    }

    /// Returns whether a segment is intact, as far as is known, and has recordings of runs that pass, and of no others.
    /// Does not block for the disk.
    pub fn is_all_of(&self, number: u64, of: &RunFilter) -> bool {
        self.segments.get(&number).is_some_and(|segment| {
            let mut runs = segment.runs.iter().map(RunKey::run).peekable();
            segment.damage.is_empty() && runs.peek().is_some() && runs.all(|run| of.passes(run))
        })
    }

    /// Returns whether a segment is intact, as far as is known, and has recordings of runs that pass. Does not block for
    /// the disk.
    pub fn has_some_of(&self, number: u64, of: &RunFilter) -> bool {
        self.segments.get(&number).is_some_and(|segment| {
            let whole = segment.index.sealed && segment.damage.is_empty();
            whole && segment.runs.iter().any(|run| of.passes(run.run()))
        })
    }

    /// Returns the numbers of those segments. Does not block for the disk.
    pub fn segments_of(&self, of: &RunFilter) -> impl Iterator<Item = u64> {
        self.segments.keys().copied().filter(move |number| self.has_some_of(*number, of))
    }

    /// Counts the segments without a seal: the one that is being written, and those that a crash has left. Does not
    /// block for the disk.
    pub fn unsealed_here(&self) -> u64 {
        self.segments.values().filter(|segment| !segment.index.sealed).count() as u64
    }

    /// Reads a segment as a whole. Blocks for the disk; takes as much memory as the segment has bytes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn segment_bytes(&self, number: u64) -> Result<Vec<u8>, ReadError> {
        let file = self.file(number)?;
        read_all(&*file).map_err(|error| ReadError::disk("read", &self.path(number), error))
    }
}

//! The index of a segment, gathered while the segment is written, or by scanning it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::code::extent::{ChunkEnds, Extent};
use crate::limits::EXTENT_BYTES;
use crate::stored::followed::Entering;

/// The index of one segment: all that readers know of it without reading it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentIndex {
    pub(crate) number: u64,
    /// Number of the writer session that wrote the segment.
    pub(crate) session: u32,
    pub(crate) bytes: u64,
    pub(crate) sealed: bool,
    pub(crate) runs: Vec<RunEntry>,
    pub(crate) extents: Vec<Extent>,
    /// Last chunk of each block.
    pub(crate) tails: Vec<Tail>,
    /// Blocks in the middle of episodes at their first chunk, or after a gap.
    pub(crate) entering: Vec<Entering>,
    /// Time of the file's last change in nanoseconds since 1970, where a catalogue says it; else 0.
    pub(crate) modified_ns: u64,
    /// Rows of the segment's episodes, packed, until the catalogue takes them.
    #[serde(skip)]
    pub(crate) rows: Vec<u8>,
    /// Payloads of the run records of `runs`, while the segment is written or was just read.
    #[serde(skip)]
    pub(crate) headers: Vec<Arc<[u8]>>,
}

/// A segment that nothing more is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedSegment {
    /// Number of the segment in the folder.
    pub number: u64,
    /// Length of the segment in bytes.
    pub bytes: u64,
    /// Number of episodes that ended in it; `None` for segments that an earlier recorder wrote.
    pub episodes: Option<u64>,
}

/// A run of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunEntry {
    pub(crate) index: u32,
    /// Offset of an intact copy of the run's header.
    pub(crate) offset: u64,
    pub(crate) ended: bool,
}

/// The last chunk of a block in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tail {
    pub(crate) run: u32,
    pub(crate) first_lane: u32,
    pub(crate) offset: u32,
    /// Lanes of the block.
    pub(crate) lanes: u16,
    /// Rows of the block up to the end of the chunk.
    pub(crate) rows: u64,
}

impl SegmentIndex {
    pub(crate) const fn new(number: u64, session: u32) -> Self {
        Self {
            number,
            session,
            bytes: 0,
            sealed: false,
            runs: Vec::new(),
            extents: Vec::new(),
            tails: Vec::new(),
            entering: Vec::new(),
            modified_ns: 0,
            rows: Vec::new(),
            headers: Vec::new(),
        }
    }
}

impl SegmentIndex {
    /// Adds a chunk that lies from `from` to `to`.
    pub(crate) fn add_chunk(&mut self, from: u64, to: u64, run: u32, ms: u64, ends: &ChunkEnds) {
        if self.extents.last().is_none_or(|extent| from - extent.from >= EXTENT_BYTES) {
            self.extents.push(Extent::new(from));
        }
        if let Some(extent) = self.extents.last_mut() {
            extent.to = to;
            extent.add_chunk(run, ms);
            extent.add_ends(ends);
        }
    }
}

/// Returns the blocks' last chunks in the form that an index has.
pub(crate) fn tails_of(tails: &Tails) -> Vec<Tail> {
    let tail = |(&(run, first_lane), last): (&_, &LastChunk)| {
        let LastChunk { offset, lanes, rows } = *last;
        Tail { run, first_lane, offset, lanes, rows }
    };
    tails.iter().map(tail).collect()
}

/// The last chunk of each block, by run and first lane.
pub(crate) type Tails = BTreeMap<(u32, u32), LastChunk>;

/// The last chunk of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastChunk {
    pub(crate) offset: u32,
    pub(crate) lanes: u16,
    /// Rows of the block up to the end of the chunk.
    pub(crate) rows: u64,
}

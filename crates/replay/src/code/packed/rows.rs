//! The rows of a packed column as the stepping thread leaves them in a buffer.

use rollhouse_core::LaneSet;

use crate::code::packed::Packing;
use crate::code::packed::delta;

/// Head of an entry: the row follows as it is.
pub(crate) const WHOLE: u8 = 0;
/// Head of an entry: the difference from the lane's row before follows. Heads from the next one on are of stacks: the
/// frames have moved, and the new frame's difference from the last one before follows.
pub(crate) const CHANGED: u8 = 1;

/// Rows of a packed column in a buffer, each with where it belongs.
#[derive(Debug, Default)]
pub(crate) struct PackedRows {
    pub(crate) entries: Vec<Entry>,
    bytes: Vec<u8>,
}

/// A row of one lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Where its bytes end; they begin where those of the entry before do.
    to: usize,
    /// Row of the chunk; of a first observation, rows before it.
    pub(crate) row: u16,
    pub(crate) lane: u8,
    /// Whether it is what a reset gave.
    pub(crate) is_first: bool,
}

impl PackedRows {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { entries: Vec::new(), bytes: Vec::with_capacity(bytes) }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of memory that it holds.
    pub(crate) const fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    /// Returns the bytes of entry `index`.
    pub(crate) fn of_entry(&self, index: usize) -> &[u8] {
        let from = if index == 0 { 0 } else { self.entries[index - 1].to };
        &self.bytes[from..self.entries[index].to]
    }
}

/// The last rows of a packed column, one for each lane of a block.
#[derive(Debug)]
pub(crate) struct Packer {
    packing: Packing,
    /// Lanes whose row of the chunk is in `last`.
    known: LaneSet,
    last: Vec<u8>,
    /// The new frame, and the last one before it.
    frames: [Vec<u8>; 2],
}

impl Packer {
    pub(crate) fn new(packing: Packing, lanes: usize) -> Self {
        let last = vec![0; packing.row_bytes * lanes];
        Self { packing, known: LaneSet::NONE, last, frames: [Vec::new(), Vec::new()] }
    }

    /// Begins a chunk, whose rows are coded without those of the one before.
    pub(crate) fn begin_chunk(&mut self) {
        self.known = LaneSet::NONE;
    }

    /// Begins an episode of a lane, whose rows are coded without those of others: they may not be kept.
    pub(crate) fn begin_episode(&mut self, lane: usize) {
        self.known.remove(lane);
    }

    /// Appends a lane's row; `row` is its place in the chunk, and `is_first` whether a reset gave it.
    pub(crate) fn push(&mut self, now: &[u8], row: u16, lane: usize, is_first: bool, to: &mut PackedRows) {
        let bytes = self.packing.row_bytes;
        assert_eq!(now.len(), bytes, "bytes of a recorded row");
        let last = &mut self.last[lane * bytes..][..bytes];
        let out = &mut to.bytes;
        if !self.known.has(lane) {
            out.push(WHOLE);
            out.extend_from_slice(now);
            last.copy_from_slice(now);
            self.known.insert(lane);
        } else if let Some(index) = self.packing.stacks.iter().position(|stack| stack.has_moved(now, last)) {
            out.push(CHANGED + 1 + index as u8);
            let stack = self.packing.stacks[index];
            let [new, before] = &mut self.frames;
            new.clear();
            before.clear();
            stack.take_new(now, new);
            stack.take_new(last, before);
            delta::put(new, before, out);
            last.copy_from_slice(now);
        } else {
            out.push(CHANGED);
            delta::put(now, last, out);
        }
        to.entries.push(Entry { to: to.bytes.len(), row, lane: lane as u8, is_first });
    }
}

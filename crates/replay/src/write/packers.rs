//! What packs the rows of a block's packed columns as they are recorded.

use rollhouse_core::{ColumnRef, LaneSet};

use crate::code::codec::append_le;
use crate::code::layout::Layout;
use crate::code::packed::rows::{PackedRows, Packer};
use crate::limits::{PACKED_AGE_MS, PACKED_ROWS};

/// The packers of a block's packed columns.
#[derive(Debug)]
pub(crate) struct Packers {
    each: Vec<Packer>,
    /// Bytes of packed rows at which the chunk is closed.
    target: usize,
    lanes: usize,
    /// A row of a column that is not of bytes.
    scratch: Vec<u8>,
}

impl Packers {
    pub(crate) fn new(layout: &Layout, lanes: usize) -> Self {
        let each = layout.packed().map(|packing| Packer::new(packing.clone(), lanes)).collect();
        Self { each, target: layout.packed_target(lanes), lanes, scratch: Vec::new() }
    }

    /// Begins a chunk, whose rows are packed without those of the one before.
    pub(crate) fn begin_chunk(&mut self) {
        self.each.iter_mut().for_each(Packer::begin_chunk);
    }

    /// Begins an episode of a lane after `row` rows. `first` are the packed observation columns, which come before the packed
    /// infos.
    pub(crate) fn begin_episode<'a, 'b: 'a>(
        &mut self,
        lane: usize,
        row: u32,
        first: impl Iterator<Item = &'a ColumnRef<'b>>,
        to: &mut [PackedRows],
    ) {
        self.each.iter_mut().for_each(|packer| packer.begin_episode(lane));
        for ((packer, column), to) in self.each.iter_mut().zip(first).zip(to) {
            let bytes = row_of(*column, lane, self.lanes, &mut self.scratch);
            packer.push(bytes, row as u16, lane, true, to);
        }
    }

    /// Packs the rows of the lanes that stepped in row `row`. Returns whether the chunk has enough bytes to be closed.
    ///
    /// # Panics
    /// If a column has rows of another length.
    pub(crate) fn step<'a, 'b: 'a>(
        &mut self,
        stepped: LaneSet,
        row: u32,
        columns: impl Iterator<Item = &'a ColumnRef<'b>>,
        to: &mut [PackedRows],
    ) -> bool {
        let mut bytes = 0;
        for ((packer, column), to) in self.each.iter_mut().zip(columns).zip(to) {
            for lane in stepped {
                let now = row_of(*column, lane, self.lanes, &mut self.scratch);
                packer.push(now, row as u16, lane, false, to);
            }
            bytes += to.bytes();
        }
        !self.each.is_empty() && bytes >= self.target
    }

    /// Returns whether a chunk that is old by other chunks' measure waits for more rows, so that its first ones, which
    /// take most of its bytes, are shared by more.
    pub(crate) fn may_wait(&self, rows: u32, age_ms: u64) -> bool {
        !self.each.is_empty() && rows < PACKED_ROWS && age_ms < PACKED_AGE_MS
    }
}

/// Returns the bytes of a lane's row.
fn row_of<'a>(column: ColumnRef<'a>, lane: usize, lanes: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    let elements = column.len() / lanes;
    match column.slice(lane * elements, (lane + 1) * elements) {
        ColumnRef::U8(bytes) => bytes,
        row => {
            scratch.clear();
            append_le(scratch, row);
            scratch
        }
    }
}

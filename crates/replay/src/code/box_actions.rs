//! The actions of a chunk of an env whose actions are a Box, where they take less than their elements. Layout:
//! docs/replay-format.md, columns 12 and 13. The writer thread alone codes them: the stepping thread copies elements.

use rollhouse_core::LaneSet;

use crate::code::packed::Packing;
use crate::code::packed::rows::{PackedRows, Packer};
use crate::code::packed_column::{self, KeptRows};
use crate::code::repeated;

/// The actions of a chunk's kept episodes, row by row.
pub(crate) struct BoxActions<'a> {
    /// Elements of the lanes of `kept`, row by row.
    pub(crate) plain: &'a [u8],
    /// Bytes of one lane's action.
    pub(crate) row_bytes: usize,
    /// Lanes that stepped in each row in a kept episode.
    pub(crate) kept: &'a [u64],
    /// Keys of the ends of episodes.
    pub(crate) ends: &'a [u32],
    /// Lanes of the block.
    pub(crate) lanes: usize,
}

impl BoxActions<'_> {
    /// Writes the actions as runs of equal ones, if they may repeat so, or as packed rows: to the shorter of both columns, and
    /// to none if neither is shorter than the elements. Returns whether it is.
    pub(crate) fn shorten(&self, repeats: bool, runs: &mut Vec<u8>, packed: &mut Vec<u8>) -> bool {
        let repeats = repeats && repeated::put_shorter(self.plain, self.kept, self.row_bytes, runs);
        if self.row_bytes >= LEAST_PACKED && !self.plain.is_empty() {
            self.pack(packed);
        }
        let most = if repeats { runs.len() } else { self.plain.len() };
        if packed.is_empty() || packed.len() >= most {
            packed.clear();
            return repeats;
        }
        runs.clear();
        true
    }

    fn pack(&self, out: &mut Vec<u8>) {
        let packing = Packing { row_bytes: self.row_bytes, stacks: Vec::new() };
        let mut packer = Packer::new(packing.clone(), self.lanes);
        let mut packed = PackedRows::default();
        let mut ends = self.ends.iter().peekable();
        let mut actions = self.plain.chunks_exact(self.row_bytes);
        for (row, kept) in (0u16..).zip(self.kept) {
            while let Some(key) = ends.next_if(|&&key| key >> 6 <= u32::from(row)) {
                packer.begin_episode((key & 63) as usize);
            }
            for (lane, action) in LaneSet::of_bits(*kept).into_iter().zip(&mut actions) {
                packer.push(action, row, lane, false, &mut packed);
            }
        }
        packed_column::put(&packing, &packed, &KeptRows::new(self.kept, &[], &[]), out);
    }
}

/// Bytes of an action from which on actions are packed: those of shorter ones are little more than heads.
const LEAST_PACKED: usize = 64;

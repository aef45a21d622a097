//! Columns with wide rows, such as images: a row is kept as its difference from the lane's row before it, so that a chunk
//! has what changes. Layout: docs/replay-format.md, columns 224 + i and 288 + i.
//!
//! The stepping thread takes the differences ([`rows`]): it has the row at hand, and comparing costs as much as copying.
//! The writer thread gathers each lane's rows and compresses them ([`packed_column`](super::packed_column)). In a chunk the first row of a lane, and the
//! first of an episode, is whole: chunks are read alone, and episodes that are not kept are left out.

pub(crate) mod delta;
pub(crate) mod rows;
pub(crate) mod stack;

use rollhouse_core::ColumnSpec;

use crate::code::packed::stack::Stack;

/// How the rows of a column are packed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Packing {
    pub(crate) row_bytes: usize,
    pub(crate) stacks: Vec<Stack>,
}

impl Packing {
    /// Returns how the rows of a column are packed; `None` if they are recorded as they are.
    pub(crate) fn of(column: &ColumnSpec) -> Option<Self> {
        let row_bytes = column.row_bytes();
        let least = if column.dtype.size() == 1 { LEAST_ROW_OF_BYTES } else { LEAST_ROW };
        (row_bytes >= least)
            .then(|| Self { row_bytes, stacks: Stack::possible(&column.shape, column.dtype.size()) })
    }

    pub(crate) const fn row_bytes(&self) -> usize {
        self.row_bytes
    }
}

/// Bytes of a row from which on a column of bytes is packed.
const LEAST_ROW_OF_BYTES: usize = 64;
/// The same of other columns: of numbers that all change with each step only wide rows are images.
const LEAST_ROW: usize = 4096;

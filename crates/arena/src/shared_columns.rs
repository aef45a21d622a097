//! Columns in memory that other processes map too, for the one process that may write them.

use rollhouse_core::{ColumnMut, DType};

use crate::memory::{Memory, Span};

/// Part of a [`SharedMemory`](crate::SharedMemory) that one process reaches as columns, and no longer as words.
///
/// While it holds slices of them, other processes do not write there: whoever shares the memory has agreed on whose turn
/// it is, and a process takes this view only of what a process that it trusts, such as the one that started it, shares
/// with it.
#[derive(Debug)]
pub struct SharedColumns {
    memory: Memory,
}

/// Place of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnPlace {
    /// Byte of the shared memory at which it begins.
    pub offset: usize,
    /// Number of elements in it.
    pub elements: usize,
    /// Type of its elements.
    pub dtype: DType,
}

impl SharedColumns {
    pub(crate) const fn new(memory: Memory) -> Self {
        Self { memory }
    }

    /// Returns the columns at `places`, which come in the order of their offsets.
    ///
    /// # Panics
    /// If a place is not aligned to its elements, lies outside, or begins before the end of the one before.
    pub fn at<'a>(
        &'a mut self,
        places: impl Iterator<Item = ColumnPlace> + 'a,
    ) -> impl Iterator<Item = ColumnMut<'a>> + 'a {
        let (memory, mut free) = (&self.memory, 0);
        places.map(move |ColumnPlace { offset, elements, dtype }| {
            assert!(offset >= free, "columns come in order and do not overlap");
            free = offset + elements * dtype.size();
            // SAFETY: this view is borrowed exclusively for as long as the slices live, they do not overlap (asserted),
            // words end before it, and other processes do not write there, as the type's contract says.
            unsafe { memory.write(Span { offset, elements, dtype }) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SharedMemory;
    use std::os::fd::AsFd;

    fn place(offset: usize, elements: usize, dtype: DType) -> ColumnPlace {
        ColumnPlace { offset, elements, dtype }
    }

    #[test]
    fn what_is_written_to_columns_is_read_as_words_elsewhere() {
        let here = SharedMemory::create("test", 4096).unwrap();
        let mut there = SharedMemory::attach(here.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let mut columns = there.split_columns(1024);
        let places = [place(1024, 3, DType::F64), place(1088, 5, DType::U8)];
        let mut both: Vec<_> = columns.at(places.into_iter()).collect();
        both[0].as_f64_mut().unwrap()[2] = 1.5;
        both[1].as_u8_mut().unwrap().fill(7);
        assert_eq!(here.read(1088, 6), [7, 7, 7, 7, 7, 0]);
        let mut doubles = [0.0; 3];
        here.read_column(1024, ColumnMut::F64(&mut doubles));
        assert_eq!(doubles, [0.0, 0.0, 1.5]);
        assert_eq!(there.len(), 1024);
    }

    #[test]
    fn places_that_overlap_or_lie_outside_are_refused() {
        for wrong in [
            [place(1024, 3, DType::F64), place(1040, 1, DType::U8)],
            [place(1024, 1, DType::U8), place(4090, 8, DType::U8)],
            [place(1016, 1, DType::U8), place(1088, 1, DType::U8)],
            [place(1024, 1, DType::U8), place(1030, 1, DType::F64)],
        ] {
            let mut columns = SharedMemory::create("test", 4096).unwrap().split_columns(1024);
            let look = std::panic::AssertUnwindSafe(|| columns.at(wrong.into_iter()).count());
            assert!(std::panic::catch_unwind(look).is_err(), "{wrong:?}");
        }
    }
}

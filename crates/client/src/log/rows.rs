//! Rows of bytes, oldest first, in chunks of memory that are used again.
//!
//! A row lies in one chunk and never moves: adding one costs its own bytes, however many there are already. Memory is
//! touched as rows fill it, so that a store which grows takes a few pages with each row instead of many with one.
//! Chunks whose rows are all forgotten are filled again, the last that was emptied first: a cache may have it still.

use std::collections::VecDeque;
use std::ops::Range;

/// A queue of rows, numbered from 0 on; those before some number are forgotten.
#[derive(Debug)]
pub(super) struct Rows {
    chunk_bytes: usize,
    /// The chunks with rows that are kept, oldest first.
    full: VecDeque<Chunk>,
    filling: Chunk,
    spare: Vec<Chunk>,
    /// Bytes of spare chunks beyond which they go back to the system.
    spare_limit: usize,
    /// Number of the first row that is kept.
    first: u64,
    /// Bytes of the rows that are kept.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Chunk {
    /// Number of its first row, which may be forgotten.
    first: u64,
    /// The offset at which each of its rows ends.
    ends: Vec<usize>,
    /// Its bytes, as far as it was ever filled; never more than it began with room for, so that nothing moves.
    bytes: Vec<u8>,
}

impl Rows {
    /// Makes a queue for rows of at most so many bytes. Takes no memory yet.
    pub(super) fn new(row_bytes: usize) -> Self {
        let rows = (CHUNK_BYTES / row_bytes.max(1)).clamp(1, CHUNK_ROWS);
        Self {
            chunk_bytes: rows * row_bytes,
            full: VecDeque::new(),
            filling: Chunk::default(),
            spare: Vec::new(),
            spare_limit: SPARE_BYTES,
            first: 0,
            bytes: 0,
        }
    }

    /// Returns the number of the row that comes next.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.filling.end()
    }

    /// Returns the bytes that it keeps: rows, and the offsets of their ends.
    pub(super) fn size(&self) -> usize {
        self.bytes + (self.end() - self.first) as usize * END_BYTES
    }

    /// Returns room for a row of so many bytes, which is the next row once it is [added](Self::add). What was written
    /// there stays until then; at first it is unspecified.
    ///
    /// # Panics
    /// If that is more than the most that a row of this queue has.
    #[inline]
    pub(super) fn draft(&mut self, bytes: usize) -> &mut [u8] {
        if self.filling.bytes.capacity() - self.filling.filled() < bytes {
            assert!(bytes <= self.chunk_bytes, "no row is longer than was said");
            self.next_chunk();
        }
        self.filling.room(bytes)
    }

    /// Keeps the first bytes of the draft as a row.
    ///
    /// # Panics
    /// If that is more than was drafted.
    #[inline]
    pub(super) fn add(&mut self, bytes: usize) {
        let end = self.filling.filled() + bytes;
        assert!(end <= self.filling.bytes.len(), "a row is drafted before it is added");
        self.filling.ends.push(end);
        self.bytes += bytes;
    }

    /// Returns a row that is kept.
    #[cfg(test)]
    fn get(&self, row: u64) -> Option<&[u8]> {
        self.range(row..row + 1).next()
    }

    /// Returns those of these rows that are kept, in order.
    pub(super) fn range(&self, rows: Range<u64>) -> impl Iterator<Item = &[u8]> {
        let rows = rows.start.max(self.first)..rows.end.min(self.end());
        let from = self.full.partition_point(|chunk| chunk.end() <= rows.start);
        let chunks = self.full.range(from..).chain([&self.filling]);
        let (start, end) = (rows.start, rows.end);
        chunks.take_while(move |chunk| chunk.first < end).flat_map(move |chunk| chunk.range(start..end))
    }

    /// Returns the first number such that the kept rows before it have at least so many bytes, counted as by
    /// [`Rows::size`]; the end if they have fewer.
    pub(super) fn holding(&self, bytes: usize) -> u64 {
        let mut before = 0;
        for chunk in self.full.iter().chain([&self.filling]) {
            let from = self.first.max(chunk.first);
            let size = |row: u64| chunk.bytes_of(from..row) + (row - from) as usize * END_BYTES;
            if before + size(chunk.end()) < bytes {
                before += size(chunk.end());
                continue;
            }
            let (mut low, mut high) = (from, chunk.end());
            while low < high {
                let middle = low + (high - low) / 2;
                if before + size(middle) < bytes { low = middle + 1 } else { high = middle }
            }
            return low;
        }
        self.end()
    }

    /// Forgets the rows before that one, which is at most the next; the draft stays.
    pub(super) fn forget_before(&mut self, row: u64) {
        while let Some(chunk) = self.full.front() {
            self.bytes -= chunk.bytes_of(self.first..row);
            if chunk.end() > row {
                break;
            }
            self.spare.extend(self.full.pop_front().map(Chunk::emptied));
        }
        self.bytes -= self.filling.bytes_of(self.first..row);
        self.first = self.first.max(row);
    }

    #[cold]
    fn next_chunk(&mut self) {
        let first = self.end();
        if self.spare.len() * self.chunk_bytes > self.spare_limit {
            // One at a time, so that no row pays for all; the one that has been out of use the longest.
            self.spare.swap_remove(0);
        }
        let next = self.spare.pop().unwrap_or_else(|| Chunk::new(self.chunk_bytes));
        let full = std::mem::replace(&mut self.filling, Chunk { first, ..next });
        if full.end() > self.first {
            self.full.push_back(full);
        } else if full.bytes.capacity() > 0 {
            self.spare.push(full.emptied());
        }
    }
}

impl Chunk {
    fn new(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    fn emptied(mut self) -> Self {
        self.ends.clear();
        self
    }

    #[inline]
    fn filled(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns the next bytes, so many that there is memory for.
    #[inline]
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let at = self.filled();
        if self.bytes.len() < at + bytes {
            self.bytes.resize(at + bytes, 0);
        }
        &mut self.bytes[at..at + bytes]
    }

    /// Returns the number of the row after its last one.
    #[inline]
    fn end(&self) -> u64 {
        self.first + self.ends.len() as u64
    }

    /// Returns the offset at which a row begins, or the last one ends.
    fn start_of(&self, row: u64) -> usize {
        match row.min(self.end()).checked_sub(self.first + 1) {
            Some(before) => self.ends[before as usize],
            None => 0,
        }
    }

    /// Returns the bytes of those of these rows that it has.
    fn bytes_of(&self, rows: Range<u64>) -> usize {
        self.start_of(rows.end).saturating_sub(self.start_of(rows.start))
    }

    /// Returns those of these rows that it has.
    fn range(&self, rows: Range<u64>) -> impl Iterator<Item = &[u8]> {
        let rows = rows.start.max(self.first)..rows.end.min(self.end());
        rows.map(|row| &self.bytes[self.start_of(row)..self.start_of(row + 1)])
    }
}

/// Bytes of a chunk, unless rows are longer: where much is kept, rows are seldom more than a tenth of it.
const CHUNK_BYTES: usize = 1 << 20;

/// Most rows for which a chunk has room, if all have the greatest length: a session of few lanes is to take little
/// memory.
const CHUNK_ROWS: usize = 256;

/// Bytes of empty chunks that are kept: as many as episodes may have that end together. Any more go back to the system.
const SPARE_BYTES: usize = super::ENDED_LOG_BYTES;

/// Bytes that a row takes beside its own.
const END_BYTES: usize = size_of::<usize>();

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Op {
        Add(usize, u8),
        Draft(usize, u8),
        Forget(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            12 => (0usize..=ROW, any::<u8>()).prop_map(|(bytes, value)| Op::Add(bytes, value)),
            1 => (0usize..=ROW, any::<u8>()).prop_map(|(bytes, value)| Op::Draft(bytes, value)),
            1 => (0u64..600).prop_map(Op::Forget),
        ]
    }

    const ROW: usize = 24;

    proptest! {
        #[test]
        fn it_keeps_what_a_queue_of_rows_would_and_moves_none(ops in prop::collection::vec(op(), 0..2_000)) {
            let mut rows = Rows::new(ROW);
            let (mut model, mut first) = (VecDeque::<(Vec<u8>, usize)>::new(), 0);
            for op in ops {
                match op {
                    Op::Add(bytes, value) => {
                        let draft = rows.draft(ROW);
                        draft[..bytes].fill(value);
                        model.push_back((vec![value; bytes], draft.as_ptr().addr()));
                        rows.add(bytes);
                    }
                    Op::Draft(bytes, value) => {
                        rows.draft(bytes).fill(value);
                        prop_assert_eq!(rows.draft(bytes), vec![value; bytes]);
                    }
                    Op::Forget(count) => {
                        let count = count.min(model.len() as u64);
                        model.drain(..count as usize);
                        first += count;
                        rows.forget_before(first);
                    }
                }
                prop_assert_eq!((rows.first, rows.end()), (first, first + model.len() as u64));
                let size: usize = model.iter().map(|(row, _)| row.len() + END_BYTES).sum();
                prop_assert_eq!(rows.size(), size);
            }
            let kept = rows.range(0..u64::MAX).map(|row| (row.to_vec(), row.as_ptr().addr()));
            prop_assert!(kept.eq(model.iter().cloned()));
            for (row, at) in model.iter().zip(first..) {
                prop_assert_eq!(rows.get(at), Some(&row.0[..]));
            }
            prop_assert_eq!(rows.get(rows.end()), None);
            for bytes in [0, 1, 31, 32, rows.size() / 2, rows.size(), rows.size() + 1] {
                let mut before = 0;
                let fewest = model.iter().take_while(|(row, _)| {
                    let fewer = before < bytes;
                    before += row.len() + END_BYTES;
                    fewer
                });
                prop_assert_eq!(rows.holding(bytes), first + fewest.count() as u64);
            }
        }
    }

    #[test]
    fn memory_of_rows_that_are_forgotten_is_used_again() {
        let mut rows = Rows::new(4_000);
        let mut addresses = std::collections::BTreeSet::new();
        for row in 0..100_000 {
            addresses.insert(rows.draft(4_000).as_ptr().addr());
            rows.add(4_000);
            if row % 64 == 0 {
                rows.forget_before(row);
            }
        }
        assert!(addresses.len() <= 2 * CHUNK_ROWS, "{}", addresses.len());
    }

    #[test]
    fn spare_memory_has_a_limit_and_goes_back_a_chunk_at_a_time() {
        let mut rows = Rows::new(CHUNK_BYTES);
        rows.spare_limit = 8 * CHUNK_BYTES;
        let add = |rows: &mut Rows| {
            rows.draft(CHUNK_BYTES);
            rows.add(CHUNK_BYTES);
        };
        (0..12).for_each(|_| add(&mut rows));
        rows.forget_before(rows.end());
        let mut spare = vec![rows.spare.len()];
        for _ in 0..5 {
            add(&mut rows);
            rows.forget_before(rows.end());
            spare.push(rows.spare.len());
        }
        // One is being filled, beside these.
        assert_eq!(spare, [11, 10, 9, 8, 8, 8]);
        assert_eq!((rows.full.len(), rows.size()), (0, 0));
    }

    #[test]
    fn a_row_may_be_as_long_as_it_likes_and_have_no_bytes_at_all() {
        let mut rows = Rows::new(3 * CHUNK_BYTES);
        rows.draft(3 * CHUNK_BYTES)[3 * CHUNK_BYTES - 1] = 7;
        rows.add(3 * CHUNK_BYTES);
        assert_eq!(rows.get(0).and_then(<[u8]>::last), Some(&7));
        let mut rows = Rows::new(0);
        assert!(rows.draft(0).is_empty());
        rows.add(0);
        assert_eq!((rows.get(0), rows.end()), (Some(&[][..]), 1));
    }
}

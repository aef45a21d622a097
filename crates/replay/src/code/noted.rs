//! The step columns of a chunk: what is noted of each step by those who choose the actions. Layout:
//! docs/replay-format.md, columns 144 + i.

use rollhouse_core::{ColumnRef, LaneSet};

use crate::code::codec::append_le;
use crate::code::coding::repeated::PLAIN;
use crate::code::repeated::Runs;

/// Rows of one step column that a buffer holds. What is noted stays until something else is, so that only rows are kept
/// from which on a lane has another value.
#[derive(Debug, Default)]
pub(crate) struct NotedRows {
    /// Rows from which on a lane has another value, ascending.
    rows: Vec<u32>,
    /// The values of all lanes of the block from each of `rows` on.
    bytes: Vec<u8>,
}

impl NotedRows {
    pub(crate) fn with_capacity(rows: usize, row_bytes: usize) -> Self {
        Self { rows: Vec::with_capacity(rows), bytes: Vec::with_capacity(rows * row_bytes) }
    }

    /// Returns the bytes of memory that it holds.
    pub(crate) const fn memory(&self) -> usize {
        self.rows.capacity() * size_of::<u32>() + self.bytes.capacity()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.bytes.clear();
    }

    /// Notes that from row `row` on all lanes have these values.
    pub(crate) fn set(&mut self, row: u32, values: &[u8]) {
        if self.rows.last() == Some(&row) {
            self.bytes.truncate(self.bytes.len() - values.len());
        } else {
            self.rows.push(row);
        }
        self.bytes.extend_from_slice(values);
    }

    /// Appends the column of a chunk: the rows of the lanes that `kept` has for each row of the chunk, of a block of so many
    /// lanes and bytes a lane; as runs where they are shorter, if `repeats`. Nothing is appended if there are none, or nobody
    /// has said what a column has.
    pub(crate) fn put(
        &self,
        kept: &[u64],
        (lanes, row_bytes): (usize, usize),
        repeats: bool,
        out: &mut Vec<u8>,
    ) {
        let total: usize = kept.iter().map(|row| row.count_ones() as usize).sum();
        if total == 0 || self.rows.is_empty() {
            return;
        }
        let steps = Steps { noted: self, kept, lane_bytes: row_bytes, block_bytes: row_bytes * lanes };
        let from = out.len();
        if !repeats || !steps.put_runs(total, out) {
            out.truncate(from);
            steps.put_plain(out);
        }
    }
}

/// The recorded steps of a chunk, with the values of one column.
struct Steps<'a> {
    noted: &'a NotedRows,
    kept: &'a [u64],
    lane_bytes: usize,
    block_bytes: usize,
}

impl<'a> Steps<'a> {
    /// Returns the values of the block that stand at place `at`.
    fn block(&self, at: usize) -> &'a [u8] {
        &self.noted.bytes[at * self.block_bytes..(at + 1) * self.block_bytes]
    }

    /// Returns a lane's value among those of the block.
    fn of_lane(&self, block: &'a [u8], lane: usize) -> &'a [u8] {
        &block[lane * self.lane_bytes..(lane + 1) * self.lane_bytes]
    }

    /// Appends the values as runs of equal ones, lane by lane. Returns false if that gets longer than row by row.
    fn put_runs(&self, total: usize, out: &mut Vec<u8>) -> bool {
        let mut runs = Runs::begin(total * self.lane_bytes, out);
        if let [_] = self.noted.rows[..] {
            let block = self.block(0);
            if block.chunks_exact(self.lane_bytes).all(|value| value == self.of_lane(block, 0)) {
                return runs.push(total, self.of_lane(block, 0)) && runs.finish();
            }
        }
        let lanes = self.kept.iter().fold(0, |lanes, row| lanes | row);
        for lane in LaneSet::of_bits(lanes) {
            let (mut at, mut value) = (0, self.of_lane(self.block(0), lane));
            for (row, kept) in self.kept.iter().enumerate() {
                while self.noted.rows.get(at + 1).is_some_and(|&next| next as usize <= row) {
                    at += 1;
                    value = self.of_lane(self.block(at), lane);
                }
                if kept >> lane & 1 == 1 && !runs.push(1, value) {
                    return false;
                }
            }
        }
        runs.finish()
    }

    /// Appends the values row by row.
    fn put_plain(&self, out: &mut Vec<u8>) {
        out.push(PLAIN);
        let mut at = 0;
        for (row, kept) in self.kept.iter().enumerate() {
            while self.noted.rows.get(at + 1).is_some_and(|&next| next as usize <= row) {
                at += 1;
            }
            let block = self.block(at);
            LaneSet::of_bits(*kept)
                .into_iter()
                .for_each(|lane| out.extend_from_slice(self.of_lane(block, lane)));
        }
    }
}

/// The values that are noted for the next row, as a block's recorder keeps them.
#[derive(Debug, Default)]
pub(crate) struct NotedNow {
    /// For each column the values of all lanes of the block.
    columns: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

impl NotedNow {
    /// Makes the values of `lanes` lanes; `unknown` has a row of each column.
    pub(crate) fn new(unknown: &[Vec<u8>], lanes: usize) -> Self {
        Self { columns: unknown.iter().map(|row| row.repeat(lanes)).collect(), scratch: Vec::new() }
    }

    /// Takes the values of all lanes from row `row` of the buffer on. Returns the bytes of those columns that have
    /// changed.
    ///
    /// # Panics
    /// If a column has another type or length.
    pub(crate) fn note(&mut self, values: &[ColumnRef<'_>], row: u32, to: &mut [NotedRows]) -> usize {
        assert_eq!(values.len(), self.columns.len(), "step columns");
        let mut changed = 0;
        for ((now, column), to) in self.columns.iter_mut().zip(values).zip(to) {
            self.scratch.clear();
            append_le(&mut self.scratch, *column);
            assert_eq!(self.scratch.len(), now.len(), "bytes of a row of a step column");
            if self.scratch != *now {
                std::mem::swap(&mut self.scratch, now);
                to.set(row, now);
                changed += now.len();
            }
        }
        changed
    }

    /// Says in a fresh buffer what its first row has.
    pub(crate) fn begin(&self, to: &mut [NotedRows]) {
        for (now, to) in self.columns.iter().zip(to).filter(|(_, to)| to.is_empty()) {
            to.set(0, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use rollhouse_core::Start;

    use super::*;
    use crate::code::chunk::Part;
    use crate::code::codec::Malformed;
    use crate::code::coding::repeated::RUNS;
    use crate::code::repeated::{TOO_LARGE, WHAT, put_shorter, read};
    use crate::code::walk::Piece;

    /// The part of lane 1 in a chunk of two lanes, of which lane 0 rests in row 1.
    fn part() -> (Part, (Vec<u64>, Vec<usize>)) {
        let piece = Piece {
            lane: 1,
            number: 0,
            start: Start::default(),
            from_row: 0,
            to_row: 3,
            from_age: 0,
            age: 3,
            started_ms: 0,
        };
        (Part { piece, kept: true, end: None, score: None }, (vec![3, 2, 3], vec![0, 2, 3]))
    }

    fn coded(noted: &[(u32, [u8; 2])]) -> Vec<u8> {
        let mut rows = NotedRows::default();
        noted.iter().for_each(|(row, values)| rows.set(*row, values));
        let mut out = Vec::new();
        rows.put(&part().1.0, (2, 1), true, &mut out);
        out
    }

    fn read_back(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
        let (part, rows) = part();
        let (mut left, mut values) = (3, Vec::new());
        read(bytes, 1, &part, &rows, &mut left, &mut values).map(|()| values)
    }

    #[test]
    fn values_that_repeat_take_no_more_memory_than_is_left_to_their_episode() {
        let (part, rows) = part();
        let (mut left, mut values) = (5, Vec::new());
        let repeated = [RUNS, 5, 9];
        assert_eq!(read(&repeated, 1, &part, &rows, &mut left, &mut values), Ok(()));
        assert_eq!((left, &values[..]), (2, &[9, 9, 9][..]));
        assert_eq!(read(&repeated, 1, &part, &rows, &mut left, &mut values), Err(TOO_LARGE));
        assert_eq!(values.len(), 3);
        // What stands row by row takes as much on the disk.
        assert_eq!(read(&[PLAIN, 1, 2, 3, 4, 5], 1, &part, &rows, &mut left, &mut values), Ok(()));
    }

    #[test]
    fn an_episode_that_is_too_long_for_runs_is_written_row_by_row() {
        let mut rows = NotedRows::default();
        rows.set(0, &[5, 5]);
        let mut out = Vec::new();
        rows.put(&part().1.0, (2, 1), false, &mut out);
        assert_eq!(out, [PLAIN, 5, 5, 5, 5, 5]);
    }

    #[test]
    fn the_shorter_coding_is_chosen_and_what_comes_behind_the_last_row_is_left_out() {
        let repeated = coded(&[(0, [5, 5]), (3, [1, 1])]);
        assert_eq!(repeated, [RUNS, 5, 5]);
        assert_eq!(read_back(&repeated), Ok(vec![5, 5, 5]));
        let by_lane = coded(&[(0, [8, 9])]);
        assert_eq!(by_lane, [RUNS, 2, 8, 3, 9]);
        assert_eq!(read_back(&by_lane), Ok(vec![9, 9, 9]));
        let changing = coded(&[(0, [1, 2]), (1, [3, 4]), (2, [5, 6])]);
        assert_eq!(changing, [PLAIN, 1, 2, 4, 5, 6]);
        assert_eq!(read_back(&changing), Ok(vec![2, 4, 6]));
        // The last word on a row counts.
        assert_eq!(coded(&[(0, [1, 2]), (0, [5, 5])]), [RUNS, 5, 5]);
    }

    #[test]
    fn a_column_that_stands_row_by_row_is_coded_as_runs_only_where_that_is_shorter() {
        let kept = part().1.0;
        let put = |plain: &[u8]| {
            let mut out = Vec::new();
            put_shorter(plain, &kept, 1, &mut out).then_some(out)
        };
        assert_eq!(put(&[7, 7, 7, 7, 7]), Some(vec![RUNS, 5, 7]));
        // By lane it is 1, 1, 2, 2, 2: as long as it was.
        assert_eq!(put(&[1, 2, 2, 1, 2]), None);
        assert_eq!(put(&[1, 2, 3, 4, 5]), None);
        assert_eq!(put(&[]), None);
    }

    #[test]
    fn columns_that_are_cut_or_have_runs_of_nothing_are_malformed() {
        for bytes in [&[][..], &[PLAIN, 1, 2, 4, 5], &[RUNS], &[RUNS, 4, 7], &[RUNS, 4], &[RUNS, 0, 7, 5, 7]]
        {
            assert_eq!(read_back(bytes), Err(Malformed(WHAT)), "{bytes:?}");
        }
        let endless = [&[RUNS][..], &[0xFF; 9], &[1, 7]].concat();
        assert_eq!(read_back(&endless), Ok(vec![7; 3]), "more than there are steps");
    }
}

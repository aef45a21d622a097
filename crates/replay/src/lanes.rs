//! The state of a block's lanes between two chunks, and the table in front of every chunk that holds it.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{LaneSet, Start};

use crate::codec::{Cursor, Malformed, put_packed};

/// The state of one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LaneState {
    /// Number of its current episode, or of the next if none is under way.
    pub(crate) number: u64,
    /// Steps of that episode so far.
    pub(crate) age: u64,
    /// Wall clock of the chunk in which its first step lies.
    pub(crate) started_ms: u64,
    /// Start of that episode's randomness; while none is under way, of the last one.
    pub(crate) start: Start,
}

/// The state of the lanes of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockState {
    pub(crate) lanes: usize,
    /// State of each lane.
    pub(crate) table: Vec<LaneState>,
    /// Lanes whose episode has begun and not ended; kept where begins are recorded.
    pub(crate) open: u64,
    /// Lanes whose episode ended after the last row.
    pub(crate) ended: u64,
    /// Lanes that do not step although the autoreset mode does not make them rest.
    pub(crate) parked: u64,
}

impl BlockState {
    /// Makes the state before the first row.
    pub(crate) fn new(lanes: usize) -> Self {
        Self { lanes, table: vec![LaneState::default(); lanes], open: 0, ended: 0, parked: 0 }
    }
}

/// Returns the seed and the words of each lane's last start.
pub(crate) fn last_starts(state: &BlockState) -> [(u64, u64); BLOCK_LANES] {
    let mut starts = [(0, 0); BLOCK_LANES];
    for (start, lane) in starts.iter_mut().zip(&state.table) {
        *start = (lane.start.seed, lane.start.words);
    }
    starts
}

/// Appends the table of the lanes in `present`, as they stand before the chunk's first row at `ms`.
pub(crate) fn put_table(out: &mut Vec<u8>, state: &BlockState, present: u64, ms: u64, starts: bool) {
    out.extend_from_slice(&present.to_le_bytes());
    let lanes = || LaneSet::of_bits(present).into_iter().map(|lane| &state.table[lane]);
    put_column(out, lanes().map(|lane| lane.number));
    put_column(out, lanes().map(|lane| lane.age));
    put_column(out, lanes().map(|lane| if lane.age == 0 { 0 } else { ms.saturating_sub(lane.started_ms) }));
    if !starts {
        return;
    }
    put_column(out, lanes().map(|lane| lane.start.seed));
    put_column(out, lanes().map(|lane| lane.start.words));
    let halves = LaneSet::of_bits(present).into_iter().filter(|&lane| state.table[lane].start.half.is_some());
    let halves = halves.fold(0u64, |mask, lane| mask | 1 << lane);
    out.extend_from_slice(&(state.open & present).to_le_bytes());
    out.extend_from_slice(&halves.to_le_bytes());
    for lane in LaneSet::of_bits(halves) {
        out.extend_from_slice(&state.table[lane].start.half.unwrap_or(0).to_le_bytes());
    }
}

/// Appends one number of each lane.
#[inline]
fn put_column(out: &mut Vec<u8>, values: impl Iterator<Item = u64>) {
    let mut column = [0; BLOCK_LANES];
    let count = column.iter_mut().zip(values).map(|(to, value)| *to = value).count();
    put_packed(out, &column[..count]);
}

/// Reads a table; returns the lanes that are present and their states.
pub(crate) fn read_table(
    bytes: &[u8],
    lanes: usize,
    ms: u64,
    starts: bool,
) -> Result<(u64, BlockState), Malformed> {
    let mut cursor = Cursor::new(bytes);
    let present = cursor.u64("lane table")?;
    if present & !LaneSet::first(lanes).bits() != 0 {
        return Err(Malformed("lane table: a lane beyond the block's"));
    }
    let count = present.count_ones() as usize;
    let mut state = BlockState::new(lanes);
    let mut column = [0; BLOCK_LANES];
    let column = &mut column[..count];
    cursor.packed(column, "lane table: numbers")?;
    for (lane, &value) in LaneSet::of_bits(present).into_iter().zip(&*column) {
        if value > MAX_AGE {
            return Err(Malformed("lane table: number"));
        }
        state.table[lane].number = value;
    }
    cursor.packed(column, "lane table: ages")?;
    for (lane, &value) in LaneSet::of_bits(present).into_iter().zip(&*column) {
        if value > MAX_AGE {
            return Err(Malformed("lane table: age"));
        }
        state.table[lane].age = value;
    }
    cursor.packed(column, "lane table: elapsed")?;
    for (lane, &value) in LaneSet::of_bits(present).into_iter().zip(&*column) {
        state.table[lane].started_ms = ms.saturating_sub(value);
    }
    if starts {
        cursor.packed(column, "lane table: seeds")?;
        for (lane, &value) in LaneSet::of_bits(present).into_iter().zip(&*column) {
            state.table[lane].start.seed = value;
        }
        cursor.packed(column, "lane table: words")?;
        for (lane, &value) in LaneSet::of_bits(present).into_iter().zip(&*column) {
            state.table[lane].start.words = value;
        }
        state.open = cursor.u64("lane table: open")?;
        let halves = cursor.u64("lane table: halves")?;
        if (state.open | halves) & !present != 0 {
            return Err(Malformed("lane table: a lane that is not present"));
        }
        for lane in LaneSet::of_bits(halves) {
            state.table[lane].start.half = Some(cursor.u32("lane table: half")?);
        }
    }
    Ok((present, state))
}

/// Largest age and number that a table may hold, so that adding rows to it never overflows.
pub(crate) const MAX_AGE: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_numbers_to_which_nothing_could_be_added_are_refused() {
        let table_of = |number, age| {
            let mut state = BlockState::new(2);
            state.table[1] = LaneState { number, age, ..LaneState::default() };
            let mut table = Vec::new();
            put_table(&mut table, &state, 0b11, 0, false);
            read_table(&table, 2, 0, false).map(|(_, state)| state.table[1])
        };
        let most = table_of(MAX_AGE, MAX_AGE).unwrap();
        assert_eq!((most.number, most.age), (MAX_AGE, MAX_AGE));
        assert_eq!(table_of(MAX_AGE + 1, 0).unwrap_err().0, "lane table: number");
        assert_eq!(table_of(0, u64::MAX).unwrap_err().0, "lane table: age");
    }
}

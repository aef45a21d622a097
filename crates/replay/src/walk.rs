//! Counting through a chunk: which episode a row of a lane belongs to, and how old it is.
//!
//! The writer and every reader count with this one function, so that numbers, lengths and starts need not
//! stand in the file.

use rollhouse_core::{Lanes, Start, lane_bits};

use crate::codec::Malformed;
use crate::lanes::BlockState;

/// The part of one episode that lies in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) lane: usize,
    pub(crate) number: u64,
    pub(crate) start: Start,
    pub(crate) started_ms: u64,
    /// Age before its first row here; 0 if it begins here.
    pub(crate) from_age: u64,
    /// Age after its last row here.
    pub(crate) age: u64,
    /// Rows of the chunk before its part.
    pub(crate) from_row: usize,
    /// Rows of the chunk up to the end of its part.
    pub(crate) to_row: usize,
}

/// What is met on the way, in order.
pub(crate) trait Visit {
    /// Row `pos - 1`: after it, a lane's age is `pos - base[lane]`.
    fn row(&mut self, _pos: usize, _stepped: u64, _base: &[i64; 64]) {}
    /// Begin `index` of the chunk opens this episode.
    fn begin(&mut self, _index: usize, _lane: usize, _number: u64) {}
    /// End `index` of the chunk closes this episode.
    fn end(&mut self, index: usize, piece: Piece);
    /// Still open, or not yet begun, after the last row.
    fn rest(&mut self, _piece: Piece) {}
}

/// Position and lane of an event as one number: events of a chunk stand in its order.
#[inline]
pub(crate) const fn key(pos: u16, lane: u8) -> u32 {
    (pos as u32) << 6 | lane as u32
}

/// What a chunk's counting needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Events<'a> {
    /// Lanes stepped in each row.
    pub(crate) stepped: &'a [u64],
    /// [`key`]s of ends, ascending.
    pub(crate) ends: &'a [u32],
    /// [`key`]s of begins, ascending; empty where starts follow from the run's seed.
    pub(crate) begins: &'a [u32],
    /// One per begin.
    pub(crate) starts: &'a [Start],
    /// Wall clock of the chunk.
    pub(crate) ms: u64,
}

/// Walks from `state` through the chunk and leaves `state` behind it. `lanes` are those counted.
///
/// At one position of one lane begins and ends alternate, and whether the lane was open says which is first.
pub(crate) fn walk(
    state: &mut BlockState,
    lanes: u64,
    events: Events<'_>,
    visit: &mut impl Visit,
) -> Result<(), Malformed> {
    let lanes = lanes & lane_bits(state.lanes);
    let mut base = [0i64; 64];
    let mut from_age = [0u64; 64];
    let mut from_row = [0usize; 64];
    for lane in Lanes(lanes) {
        let entry = &mut state.table[lane];
        base[lane] = -(entry.age as i64);
        from_age[lane] = entry.age;
        if entry.age == 0 {
            entry.started_ms = events.ms;
        }
    }
    let (mut end, mut begin) = (0, 0);
    for pos in 0..=events.stepped.len() {
        if let Some(&stepped) = pos.checked_sub(1).and_then(|row| events.stepped.get(row)) {
            for lane in Lanes(lanes & !stepped) {
                base[lane] += 1;
            }
            state.ended = 0;
            visit.row(pos, stepped, &base);
        }
        let limit = (pos as u32 + 1) << 6;
        while let Some(is_end) = next_is_end(&events, end, begin, limit, state.open) {
            let key = if is_end { events.ends[end] } else { events.begins[begin] };
            let lane = (key & 63) as usize;
            let Some(entry) = state.table.get_mut(lane) else {
                return Err(Malformed("event of a lane beyond the block's"));
            };
            if is_end {
                let piece = Piece {
                    lane,
                    number: entry.number,
                    start: entry.start,
                    started_ms: entry.started_ms,
                    from_age: from_age[lane],
                    age: (pos as i64 - base[lane]) as u64,
                    from_row: from_row[lane],
                    to_row: pos,
                };
                entry.number = entry.number.wrapping_add(1);
                entry.started_ms = events.ms;
                base[lane] = pos as i64;
                from_age[lane] = 0;
                from_row[lane] = pos;
                state.open &= !(1 << lane);
                state.ended |= 1 << lane;
                visit.end(end, piece);
                end += 1;
            } else {
                entry.start = events.starts.get(begin).copied().ok_or(Malformed("begin without a start"))?;
                state.open |= 1 << lane;
                let number = entry.number;
                visit.begin(begin, lane, number);
                begin += 1;
            }
        }
    }
    if end < events.ends.len() || begin < events.begins.len() {
        return Err(Malformed("event after the last row"));
    }
    let rows = events.stepped.len();
    for lane in Lanes(lanes) {
        let entry = &mut state.table[lane];
        entry.age = (rows as i64 - base[lane]) as u64;
        visit.rest(Piece {
            lane,
            number: entry.number,
            start: entry.start,
            started_ms: entry.started_ms,
            from_age: from_age[lane],
            age: entry.age,
            from_row: from_row[lane],
            to_row: rows,
        });
    }
    Ok(())
}

/// Whether the next event with a key under `limit` is an end; `None` if there is no more.
#[inline(always)]
fn next_is_end(events: &Events<'_>, end: usize, begin: usize, limit: u32, open: u64) -> Option<bool> {
    let next_end = events.ends.get(end).copied().filter(|&key| key < limit);
    if events.begins.is_empty() {
        return next_end.map(|_| true);
    }
    let next_begin = events.begins.get(begin).copied().filter(|&key| key < limit);
    match (next_end, next_begin) {
        (None, None) => None,
        (Some(_), None) => Some(true),
        (None, Some(_)) => Some(false),
        (Some(end), Some(begin)) if end == begin => Some(open >> (end & 63) & 1 == 1),
        (Some(end), Some(begin)) => Some(end < begin),
    }
}

//! Counting through a chunk: which episode a row of a lane belongs to, and how old it is.
//!
//! The writer and every reader count with this one [`Counter`], so that numbers, lengths and starts need not
//! stand in the file.

use rollhouse_core::{LaneSet, Start};

use crate::code::codec::Malformed;
use crate::code::lanes::BlockState;

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
    /// Rows of the chunk before the part.
    pub(crate) from_row: usize,
    /// Rows of the chunk up to the end of the part.
    pub(crate) to_row: usize,
}

/// A counter of the lanes of a block while a chunk's rows and events are read, each lane's in their order.
pub(crate) struct Counter<'a> {
    state: &'a mut BlockState,
    /// Lanes that are counted.
    lanes: u64,
    /// Wall clock of the chunk.
    ms: u64,
    /// Base of each lane's age: after `pos` rows, the age is `pos - base`.
    base: [i64; 64],
    from_age: [u64; 64],
    from_row: [usize; 64],
}

impl<'a> Counter<'a> {
    /// Makes a counter before the chunk's first row; it leaves `state` after the last one.
    pub(crate) fn new(state: &'a mut BlockState, lanes: u64, ms: u64) -> Self {
        let lanes = lanes & LaneSet::first(state.lanes).bits();
        let (mut base, mut from_age) = ([0; 64], [0; 64]);
        for lane in LaneSet::of_bits(lanes) {
            let entry = &mut state.table[lane];
            base[lane] = -(entry.age as i64);
            from_age[lane] = entry.age;
            if entry.age == 0 {
                entry.started_ms = ms;
            }
        }
        Self { state, lanes, ms, base, from_age, from_row: [0; 64] }
    }

    /// Returns the lanes whose episode has begun and not ended; they mean something only where begins are recorded.
    #[inline(always)]
    pub(crate) const fn open(&self) -> u64 {
        self.state.open
    }

    #[inline(always)]
    pub(crate) fn age(&self, lane: usize, pos: usize) -> u64 {
        (pos as i64 - self.base[lane]) as u64
    }

    /// Returns the number of the lane's episode, or of its next one if none is open.
    pub(crate) fn number(&self, lane: usize) -> Result<u64, Malformed> {
        self.state.table.get(lane).map(|entry| entry.number).ok_or(BEYOND)
    }

    /// Counts one more row.
    #[inline(always)]
    pub(crate) const fn row(&mut self) {
        self.state.ended = 0;
    }

    /// Notes that each of `lanes` rests in `rows` rows, or, if that is negative, does not rest where it was said to.
    #[inline(always)]
    pub(crate) fn rest(&mut self, lanes: u64, rows: i64) {
        for lane in LaneSet::of_bits(lanes) {
            self.base[lane] += rows;
        }
    }

    /// Notes that the lane rests in that many of the rows that come next.
    #[inline(always)]
    pub(crate) const fn rest_next(&mut self, lane: usize, rows: i64) {
        self.base[lane] += rows;
    }

    /// Ends the lane's episode after `pos` rows.
    #[inline(always)]
    pub(crate) fn end(&mut self, lane: usize, pos: usize) -> Result<Piece, Malformed> {
        let age = self.age(lane, pos);
        let entry = self.state.table.get_mut(lane).ok_or(BEYOND)?;
        let piece = Piece {
            lane,
            number: entry.number,
            start: entry.start,
            started_ms: entry.started_ms,
            from_age: self.from_age[lane],
            age,
            from_row: self.from_row[lane],
            to_row: pos,
        };
        entry.number = entry.number.wrapping_add(1);
        entry.started_ms = self.ms;
        self.base[lane] = pos as i64;
        self.from_age[lane] = 0;
        self.from_row[lane] = pos;
        self.state.open &= !(1 << lane);
        self.state.ended |= 1 << lane;
        Ok(piece)
    }

    /// Begins an episode in the lane; returns its number.
    #[inline(always)]
    pub(crate) fn begin(&mut self, lane: usize, start: Start) -> Result<u64, Malformed> {
        let entry = self.state.table.get_mut(lane).ok_or(BEYOND)?;
        entry.start = start;
        self.state.open |= 1 << lane;
        Ok(entry.number)
    }

    /// Returns the start of the lane's last episode.
    #[inline(always)]
    pub(crate) fn last_start(&self, lane: usize) -> Result<Start, Malformed> {
        self.state.table.get(lane).map(|entry| entry.start).ok_or(BEYOND)
    }

    /// Ends the count after the last of `rows` rows; passes the part of each lane's episode that is still open, or not
    /// yet begun, to `rest`.
    pub(crate) fn finish(self, rows: usize, mut rest: impl FnMut(Piece)) {
        let Self { state, lanes, base, from_age, from_row, .. } = self;
        for lane in LaneSet::of_bits(lanes) {
            let entry = &mut state.table[lane];
            entry.age = (rows as i64 - base[lane]) as u64;
            rest(Piece {
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
    }
}

/// A visitor of what a reader meets on the way, in order.
pub(crate) trait Visit {
    /// Takes the episode that the chunk's next begin opens.
    fn begin(&mut self, lane: usize, number: u64);
    /// Takes the part of the episode that the chunk's next end closes.
    fn end(&mut self, piece: Piece);
    /// Takes the part of an episode that is still open, or not yet begun, after the last row.
    fn rest(&mut self, piece: Piece);
}

/// Returns position and lane of an event as one number, by which the events of a chunk are ordered.
#[inline]
pub(crate) const fn key(pos: u16, lane: u8) -> u32 {
    (pos as u32) << 6 | lane as u32
}

/// The events of a chunk, as counting needs them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Events<'a> {
    /// Lanes stepped in each row.
    pub(crate) stepped: &'a [u64],
    /// [`key`]s of ends, ascending.
    pub(crate) ends: &'a [u32],
    /// [`key`]s of begins, ascending; empty where starts follow from the run's seed.
    pub(crate) begins: &'a [u32],
    /// Starts, one per begin.
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
    let counter = Counter::new(state, lanes, events.ms);
    let mut walker = Walker::new(counter, events);
    walker.events_at(0, visit)?;
    for (pos, &stepped) in (1..).zip(events.stepped) {
        walker.counter.rest(walker.counter.lanes & !stepped, 1);
        walker.counter.row();
        walker.events_at(pos, visit)?;
    }
    if walker.end < events.ends.len() || walker.begin < events.begins.len() {
        return Err(Malformed("event after the last row"));
    }
    walker.counter.finish(events.stepped.len(), |piece| visit.rest(piece));
    Ok(())
}

/// One pass through the events of a chunk, in their order.
struct Walker<'a, 'b> {
    counter: Counter<'a>,
    events: Events<'b>,
    /// Number of ends that were passed, and of begins.
    end: usize,
    begin: usize,
    /// Keys of the next end and of the next begin.
    next_end: u32,
    next_begin: u32,
}

impl<'a, 'b> Walker<'a, 'b> {
    fn new(counter: Counter<'a>, events: Events<'b>) -> Self {
        let (next_end, next_begin) = (key_at(events.ends, 0), key_at(events.begins, 0));
        Self { counter, events, end: 0, begin: 0, next_end, next_begin }
    }

    /// Visits the events after `pos` rows.
    #[inline(always)]
    fn events_at(&mut self, pos: usize, visit: &mut impl Visit) -> Result<(), Malformed> {
        let limit = (pos as u32 + 1) << 6;
        let alternate = !self.events.begins.is_empty();
        // What happens in one lane does not concern another: ends first, then begins, which a processor foresees
        // better than the two by turns, as far as they are what the lane waits for.
        while self.next_end < limit && (!alternate || self.is_open(self.next_end)) {
            self.take_end(pos, visit)?;
        }
        while self.next_begin < limit && !self.is_open(self.next_begin) {
            self.take_begin(visit)?;
        }
        while self.next_end.min(self.next_begin) < limit {
            let by_turns = self.next_end == self.next_begin;
            if if by_turns { self.is_open(self.next_end) } else { self.next_end < self.next_begin } {
                self.take_end(pos, visit)?;
            } else {
                self.take_begin(visit)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn is_open(&self, key: u32) -> bool {
        self.counter.open() >> (key & 63) & 1 == 1
    }

    #[inline(always)]
    fn take_end(&mut self, pos: usize, visit: &mut impl Visit) -> Result<(), Malformed> {
        visit.end(self.counter.end((self.next_end & 63) as usize, pos)?);
        self.end += 1;
        self.next_end = key_at(self.events.ends, self.end);
        Ok(())
    }

    #[inline(always)]
    fn take_begin(&mut self, visit: &mut impl Visit) -> Result<(), Malformed> {
        let lane = (self.next_begin & 63) as usize;
        let start = *self.events.starts.get(self.begin).ok_or(Malformed("begin without a start"))?;
        visit.begin(lane, self.counter.begin(lane, start)?);
        self.begin += 1;
        self.next_begin = key_at(self.events.begins, self.begin);
        Ok(())
    }
}

const BEYOND: Malformed = Malformed("event of a lane beyond the block's");

/// Returns an event's key; one above all others if there is no such event.
#[inline(always)]
fn key_at(keys: &[u32], index: usize) -> u32 {
    keys.get(index).copied().unwrap_or(u32::MAX)
}

//! Events of a block's lanes, as the words that a stepping thread leaves for the writer.
//!
//! With thousands of lanes the memory that events fill is what recording costs, so the usual ones are one word each, and
//! lanes that by rule step, rest or begin take none:
//!
//! | bits  |      |
//! |-------|------|
//! | 0-2   | kind |
//! | 3-8   | lane |
//! | 9-21  | rows of the chunk before it |
//! | 22-29 | of a long end its code; of begins whether their starts are told in full |
//! | 32-63 | the hash of an end or a window; of begins the words drawn since the last one |
//!
//! Some events have words that follow: a long end its return and its score, begins their lanes, a row the lanes that
//! stepped and the lanes that began. None of this reaches a disk.

use rollhouse_core::Outcome;
use rollhouse_env::fetch_to_write;

use crate::limits::CHUNK_ROWS;

/// Words of events, in the order in which they happened.
#[derive(Debug, Default)]
pub(crate) struct EventWords(Vec<u64>);

/// The first word of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head(u64);

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An episode ended with a return that equals its length, as where every step earns 1.
    End,
    /// An episode ended: its return follows, then its score if the code says so.
    LongEnd,
    /// A lane's age reached a multiple of the hash window.
    Window,
    /// Episodes began in the lanes that follow.
    Begins,
    /// A method was called that changed the lane: the next call of the buffer's list.
    Call,
    /// Other lanes than the rules say stepped or began in the row after the event's position: those that follow.
    Row,
}

/// An episode ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EndEvent {
    pub(crate) total_reward: f64,
    pub(crate) hash: u32,
    pub(crate) pos: u16,
    pub(crate) lane: u8,
    /// Bits 0-3 the outcome's code, 4-5 the result, 6 whether the hash means something, 7 whether there is a
    /// score.
    pub(crate) code: u8,
}

/// A lane's age reached a multiple of the hash window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WindowEvent {
    pub(crate) hash: u32,
    pub(crate) pos: u16,
    pub(crate) lane: u8,
}

/// Episodes began, one in each of `lanes`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BeginEvents {
    pub(crate) lanes: u64,
    /// 64-bit words drawn since each lane's last begin, whose seed it shares; no half is buffered. Means nothing if
    /// `full`.
    pub(crate) drawn: u32,
    pub(crate) pos: u16,
    /// Whether their starts are the next of the full ones instead.
    pub(crate) full: bool,
}

/// The end of an episode that its env or a limit ended, without result and score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finish {
    /// Whether the env ended the episode.
    pub terminated: bool,
    /// Whether a limit ended the episode.
    pub truncated: bool,
    /// Number of rows in which the lane stepped since the episode began.
    pub length: u64,
    /// Sum of the episode's rewards, added in the order in which they came.
    pub total_reward: f64,
    /// Hash of the last state.
    pub hash: u32,
}

impl EventWords {
    /// Makes an empty list with room for that many words.
    pub(crate) fn with_capacity(words: usize) -> Self {
        Self(Vec::with_capacity(words))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the bytes of memory that the list holds.
    pub(crate) const fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }

    /// Has the processor fetch the memory that the first events fill.
    pub(crate) fn fetch_first(&self) {
        for word in [0, 8, FETCHED_AHEAD] {
            fetch_to_write(self.0.as_ptr().wrapping_add(word));
        }
    }

    /// Has the processor fetch the memory that events fill after the next row's.
    #[inline]
    pub(crate) fn fetch_ahead(&self) {
        fetch_to_write(self.0.as_ptr().wrapping_add(self.0.len() + FETCHED_AHEAD));
    }

    /// Adds [`Kind::Row`].
    #[cold]
    pub(crate) fn push_row(&mut self, row: usize, stepped: u64, begun: u64) {
        self.0.extend([ROW | place(row, 0), stepped, begun]);
    }

    /// Adds [`Kind::End`], or [`Kind::LongEnd`] if the return is not the length.
    #[inline(always)]
    pub(crate) fn push_finish(&mut self, pos: usize, lane: usize, finish: Finish) {
        let Finish { terminated, truncated, length, total_reward, hash } = finish;
        let outcome = Outcome::Finished { terminated, truncated }.code();
        debug_assert!(outcome <= LAST_FINISHED);
        // Bits are compared: -0.0 is not 0. Lengths stay far below 2^63, and signed numbers convert faster.
        if total_reward.to_bits() == (length as i64 as f64).to_bits() {
            self.0.push(u64::from(outcome) | place(pos, lane) | u64::from(hash) << HIGH_SHIFT);
        } else {
            let (pos, lane, code) = (pos as u16, lane as u8, outcome | CODE_HASH);
            self.push_end(EndEvent { total_reward, hash, pos, lane, code }, None);
        }
    }

    /// Adds [`Kind::LongEnd`]. `code` says whether there is a score.
    #[cold]
    pub(crate) fn push_end(&mut self, end: EndEvent, score: Option<f64>) {
        let EndEvent { total_reward, hash, pos, lane, code } = end;
        let head = LONG_END | place(usize::from(pos), usize::from(lane)) | u64::from(code) << MIDDLE_SHIFT;
        self.0.extend([head | u64::from(hash) << HIGH_SHIFT, total_reward.to_bits()]);
        self.0.extend(score.map(f64::to_bits));
    }

    /// Adds [`Kind::Window`].
    #[inline]
    pub(crate) fn push_window(&mut self, pos: usize, lane: usize, hash: u32) {
        self.0.push(WINDOW | place(pos, lane) | u64::from(hash) << HIGH_SHIFT);
    }

    /// Adds [`Kind::Begins`].
    pub(crate) fn push_begins(&mut self, begins: BeginEvents) {
        let BeginEvents { lanes, drawn, pos, full } = begins;
        let head = BEGINS | place(usize::from(pos), 0) | u64::from(full) << MIDDLE_SHIFT;
        self.0.extend([head | u64::from(drawn) << HIGH_SHIFT, lanes]);
    }

    /// Adds [`Kind::Call`].
    pub(crate) fn push_call(&mut self, pos: usize, lane: usize) {
        self.0.push(CALL | place(pos, lane));
    }

    /// Returns whether an episode ended. It goes through all events.
    #[cold]
    pub(crate) fn has_ends(&self) -> bool {
        let mut rest = &self.0[..];
        while let Some(&word) = rest.first() {
            let head = Head::new(word);
            let follow = match head.kind() {
                Kind::End | Kind::LongEnd => return true,
                Kind::Window | Kind::Call => 0,
                Kind::Begins => 1,
                Kind::Row => 2,
            };
            rest = rest.get(1 + follow..).unwrap_or_default();
        }
        false
    }

    /// Returns all words. After a [`Head`] come its words.
    pub(crate) fn words(&self) -> &[u64] {
        &self.0
    }
}

impl Head {
    #[inline(always)]
    pub(crate) const fn new(word: u64) -> Self {
        Self(word)
    }

    #[inline(always)]
    pub(crate) const fn kind(self) -> Kind {
        match self.0 & KIND_MASK {
            WINDOW => Kind::Window,
            BEGINS => Kind::Begins,
            ROW => Kind::Row,
            CALL => Kind::Call,
            LONG_END => Kind::LongEnd,
            _ => Kind::End,
        }
    }

    /// Returns the number of rows of the chunk before the event.
    #[inline(always)]
    pub(crate) const fn pos(self) -> u16 {
        (self.0 >> POS_SHIFT) as u16 & POS_MASK
    }

    #[inline(always)]
    pub(crate) const fn lane(self) -> u8 {
        (self.0 >> LANE_SHIFT) as u8 & LANE_MASK
    }

    /// Returns the [`key`](crate::code::walk::key) of the event's position and lane.
    #[inline(always)]
    pub(crate) const fn key(self) -> u32 {
        (self.0 >> LANE_SHIFT) as u32 & KEY_MASK
    }

    /// Returns the end that the word tells of, without its return.
    #[inline(always)]
    pub(crate) const fn end(self) -> EndEvent {
        let code = match self.kind() {
            Kind::LongEnd => (self.0 >> MIDDLE_SHIFT) as u8,
            _ => (self.0 & KIND_MASK) as u8 | CODE_HASH,
        };
        EndEvent { total_reward: 0.0, hash: self.high(), pos: self.pos(), lane: self.lane(), code }
    }

    #[inline(always)]
    pub(crate) const fn window(self) -> WindowEvent {
        WindowEvent { hash: self.high(), pos: self.pos(), lane: self.lane() }
    }

    /// Returns the words that each lane of these begins drew since its last begin.
    #[inline(always)]
    pub(crate) const fn drawn(self) -> u32 {
        self.high()
    }

    /// Returns whether the starts of these begins are the next of the full ones.
    #[inline(always)]
    pub(crate) const fn is_full(self) -> bool {
        self.0 >> MIDDLE_SHIFT & 1 == 1
    }

    #[inline(always)]
    const fn high(self) -> u32 {
        (self.0 >> HIGH_SHIFT) as u32
    }
}

/// Words between those of a row and what is fetched meanwhile: more than a cache line and most rows have.
const FETCHED_AHEAD: usize = 12;

// Kinds. Those up to `LAST_FINISHED` are ends of that outcome.
const KIND_MASK: u64 = 7;
const LAST_FINISHED: u8 = 2;
const WINDOW: u64 = 3;
const BEGINS: u64 = 4;
const ROW: u64 = 5;
const LONG_END: u64 = 6;
const CALL: u64 = 7;

const LANE_SHIFT: u32 = 3;
const LANE_MASK: u8 = 63;
const KEY_MASK: u32 = (1 << (MIDDLE_SHIFT - LANE_SHIFT)) - 1;
const POS_SHIFT: u32 = 9;
const POS_MASK: u16 = 0x1FFF;
const MIDDLE_SHIFT: u32 = 22;
const HIGH_SHIFT: u32 = 32;
const _: () = assert!(CHUNK_ROWS <= POS_MASK as usize);

#[inline(always)]
const fn place(pos: usize, lane: usize) -> u64 {
    (pos as u64) << POS_SHIFT | (lane as u64) << LANE_SHIFT
}

/// The return of an episode that was cut off from those who stepped it: a NaN that no sum of rewards gives.
pub(crate) const UNKNOWN_RETURN: f64 = f64::from_bits(0x7FF8_756E_6B6E_6F77);
/// Bit of an end's code: the hash means something.
pub(crate) const CODE_HASH: u8 = 1 << 6;
/// Bit of an end's code: the episode has a score.
pub(crate) const CODE_SCORE: u8 = 1 << 7;
/// Lowest bit of the result in an end's code.
pub(crate) const CODE_RESULT_SHIFT: u32 = 4;
const _: () = assert!(Outcome::ALL.len() <= 16 && CHUNK_ROWS < u16::MAX as usize);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::code::walk::key;

    proptest! {
        #[test]
        fn every_end_reads_back(
            pos in 0..=CHUNK_ROWS as u16,
            lane in 0u8..64,
            total_reward: u64,
            hash: u32,
            code: u8,
            score: u64,
        ) {
            let total_reward = f64::from_bits(total_reward);
            let end = EndEvent { total_reward, hash, pos, lane, code };
            let score = (code & CODE_SCORE != 0).then(|| f64::from_bits(score));
            let mut words = EventWords::default();
            words.push_end(end, score);
            let head = Head::new(words.0[0]);
            prop_assert_eq!((head.kind(), head.key()), (Kind::LongEnd, key(pos, lane)));
            prop_assert_eq!(head.end(), EndEvent { total_reward: 0.0, ..end });
            prop_assert_eq!(words.0[1], total_reward.to_bits());
            prop_assert_eq!(words.0.get(2).copied(), score.map(f64::to_bits));
        }

        #[test]
        fn every_finish_reads_back(
            pos in 0..=CHUNK_ROWS,
            lane in 0usize..64,
            terminated: bool,
            truncated: bool,
            length in prop_oneof![0u64..600, 0..1u64 << 53],
            total_reward in prop_oneof![Just(None), any::<u64>().prop_map(Some)],
            hash: u32,
        ) {
            let total_reward = total_reward.map_or(length as f64, f64::from_bits);
            let mut words = EventWords::default();
            words.push_finish(pos, lane, Finish { terminated, truncated, length, total_reward, hash });
            let head = Head::new(words.0[0]);
            let read = match head.kind() {
                Kind::End => length as f64,
                Kind::LongEnd => f64::from_bits(words.0[1]),
                kind => panic!("{kind:?}"),
            };
            prop_assert_eq!(read.to_bits(), total_reward.to_bits());
            let code = Outcome::Finished { terminated, truncated }.code() | CODE_HASH;
            let (pos, lane) = (pos as u16, lane as u8);
            prop_assert_eq!(head.end(), EndEvent { total_reward: 0.0, hash, pos, lane, code });
        }

        #[test]
        fn every_other_event_reads_back(
            pos in 0..=CHUNK_ROWS as u16, lane in 0u8..64, high: u32, lanes: u64, stepped: u64, full: bool,
        ) {
            let mut words = EventWords::default();
            words.push_window(usize::from(pos), usize::from(lane), high);
            words.push_begins(BeginEvents { lanes, drawn: high, pos, full });
            words.push_row(usize::from(pos), stepped, lanes);
            let heads = [0, 1, 3].map(|at| Head::new(words.0[at]));
            prop_assert_eq!(heads.map(Head::kind), [Kind::Window, Kind::Begins, Kind::Row]);
            prop_assert_eq!(heads.map(Head::pos), [pos; 3]);
            prop_assert_eq!(heads[0].window(), WindowEvent { hash: high, pos, lane });
            prop_assert_eq!((heads[1].drawn(), heads[1].is_full(), words.0[2]), (high, full, lanes));
            prop_assert_eq!(&words.0[4..], &[stepped, lanes][..]);
        }
    }

    #[test]
    fn an_end_whose_return_is_its_length_is_one_word() {
        let words = |length, total_reward| {
            let mut words = EventWords::default();
            let finish = Finish { terminated: true, truncated: true, length, total_reward, hash: u32::MAX };
            words.push_finish(CHUNK_ROWS, 63, finish);
            words.0.len()
        };
        for (length, total_reward, count) in
            [(500, 500.0, 1), (0, 0.0, 1), (0, -0.0, 2), (500, -500.0, 2), (500, 499.0, 2), (1, f64::NAN, 2)]
        {
            assert_eq!(words(length, total_reward), count, "{length} {total_reward}");
        }
    }
}

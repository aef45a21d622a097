//! What happened to a block's lanes, as the words that a stepping thread leaves for the writer.
//!
//! With thousands of lanes the memory that events fill is what recording costs, so the usual ones are one word each:
//!
//! | bits  |      |
//! |-------|------|
//! | 0-2   | kind |
//! | 3-8   | lane |
//! | 9-21  | rows of the chunk before it |
//! | 22-31 | of an end its return, a signed integer, or its code; of begins whether their starts are told in full |
//! | 32-63 | the hash of an end or a window; of begins the words drawn since the last one |
//!
//! Words that follow: the lanes of begins or of a row; an end's return and its score. None of this reaches a disk.

use rollhouse_env::fetch_to_write;

use crate::buffer::{BeginEvents, CODE_HASH, EndEvent, WindowEvent};
use crate::limits::CHUNK_ROWS;

/// Words of events, in the order in which they happened.
#[derive(Debug, Default)]
pub(crate) struct EventWords(Vec<u64>);

/// The first word of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head(u64);

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An episode ended: one word, see [`Head::end`].
    End,
    /// An episode ended: its return follows, then its score if the code says so.
    LongEnd,
    /// A lane's age reached a multiple of the hash window.
    Window,
    /// Episodes began in the lanes that follow.
    Begins,
    /// Episodes began in the lanes that by rule rested in the last row, and follow from their last starts.
    BeginsOfRested,
    /// Lanes that follow, others than the rule says, stepped in the row after its position.
    Stepped,
}

impl EventWords {
    /// None, with room for as many words.
    pub(crate) fn with_capacity(words: usize) -> Self {
        Self(Vec::with_capacity(words))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Bytes of memory they hold.
    pub(crate) const fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }

    /// Has the processor fetch the memory that events fill after the next row's.
    #[inline]
    pub(crate) fn fetch_ahead(&self) {
        fetch_to_write(self.0.as_ptr().wrapping_add(self.0.len() + FETCHED_AHEAD));
    }

    /// Adds [`Kind::Stepped`].
    #[cold]
    pub(crate) fn push_stepped(&mut self, row: usize, lanes: u64) {
        self.0.extend([STEPPED | place(row, 0), lanes]);
    }

    /// Adds an end with a hash and without result and score, whose outcome's code is 0, 1 or 2: the env ended the
    /// episode, a limit, or both.
    #[inline(always)]
    pub(crate) fn push_finished(
        &mut self,
        pos: usize,
        lane: usize,
        total_reward: f64,
        hash: u32,
        outcome: u8,
    ) {
        debug_assert!(outcome <= LAST_FINISHED);
        match short_return(total_reward) {
            Some(short) => {
                let head = u64::from(outcome) | place(pos, lane);
                self.0.push(head | short << MIDDLE_SHIFT | u64::from(hash) << HIGH_SHIFT);
            }
            None => self.push_long_end(pos, lane, total_reward, hash, outcome | CODE_HASH),
        }
    }

    /// Adds [`Kind::End`]. `code` says whether there is a score.
    pub(crate) fn push_end(&mut self, end: EndEvent, score: Option<f64>) {
        let EndEvent { total_reward, hash, pos, lane, code } = end;
        let (pos, lane) = (usize::from(pos), usize::from(lane));
        if code ^ CODE_HASH <= LAST_FINISHED {
            self.push_finished(pos, lane, total_reward, hash, code ^ CODE_HASH);
        } else {
            self.push_long_end(pos, lane, total_reward, hash, code);
            self.0.extend(score.map(f64::to_bits));
        }
    }

    #[cold]
    fn push_long_end(&mut self, pos: usize, lane: usize, total_reward: f64, hash: u32, code: u8) {
        let head = LONG_END | place(pos, lane) | u64::from(code) << MIDDLE_SHIFT;
        self.0.extend([head | u64::from(hash) << HIGH_SHIFT, total_reward.to_bits()]);
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

    /// Adds [`Kind::BeginsOfRested`].
    #[inline]
    pub(crate) fn push_begins_of_rested(&mut self, pos: usize, drawn: u32) {
        self.0.push(BEGINS_OF_RESTED | place(pos, 0) | u64::from(drawn) << HIGH_SHIFT);
    }

    /// All of them. After a [`Head`] come its words.
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
            BEGINS_OF_RESTED => Kind::BeginsOfRested,
            BEGINS => Kind::Begins,
            STEPPED => Kind::Stepped,
            LONG_END => Kind::LongEnd,
            _ => Kind::End,
        }
    }

    /// Rows of the chunk before it.
    #[inline(always)]
    pub(crate) const fn pos(self) -> u16 {
        (self.0 >> POS_SHIFT) as u16 & POS_MASK
    }

    #[inline(always)]
    pub(crate) const fn lane(self) -> u8 {
        (self.0 >> LANE_SHIFT) as u8 & LANE_MASK
    }

    /// The [`key`](crate::walk::key) of its position and lane.
    #[inline(always)]
    pub(crate) const fn key(self) -> u32 {
        (self.0 >> LANE_SHIFT) as u32 & KEY_MASK
    }

    #[inline(always)]
    pub(crate) const fn end(self) -> EndEvent {
        let code = (self.0 & KIND_MASK) as u8 | CODE_HASH;
        EndEvent {
            total_reward: returned(self.0),
            hash: self.high(),
            pos: self.pos(),
            lane: self.lane(),
            code,
        }
    }

    /// Of a long end, without its return.
    pub(crate) const fn long_end(self) -> EndEvent {
        let code = (self.0 >> MIDDLE_SHIFT) as u8;
        EndEvent { total_reward: 0.0, hash: self.high(), pos: self.pos(), lane: self.lane(), code }
    }

    #[inline(always)]
    pub(crate) const fn window(self) -> WindowEvent {
        WindowEvent { hash: self.high(), pos: self.pos(), lane: self.lane() }
    }

    /// Of begins: words that each of their lanes drew since its last begin.
    #[inline(always)]
    pub(crate) const fn drawn(self) -> u32 {
        self.high()
    }

    /// Of begins: whether their starts are the next of the full ones.
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
const BEGINS_OF_RESTED: u64 = 4;
const BEGINS: u64 = 5;
const STEPPED: u64 = 6;
const LONG_END: u64 = 7;

const LANE_SHIFT: u32 = 3;
const LANE_MASK: u8 = 63;
const KEY_MASK: u32 = (1 << (MIDDLE_SHIFT - LANE_SHIFT)) - 1;
const POS_SHIFT: u32 = 9;
const POS_MASK: u16 = 0x1FFF;
const MIDDLE_SHIFT: u32 = 22;
const HIGH_SHIFT: u32 = 32;
const RETURN_BITS: u32 = HIGH_SHIFT - MIDDLE_SHIFT;
const _: () = assert!(CHUNK_ROWS <= POS_MASK as usize);

#[inline(always)]
const fn place(pos: usize, lane: usize) -> u64 {
    (pos as u64) << POS_SHIFT | (lane as u64) << LANE_SHIFT
}

/// A return in `RETURN_BITS` bits, if it is an integer of so many and not -0.0. Added to [`ROUNDER`], a number stands as
/// an integer in the lowest bits of the sum.
#[inline(always)]
fn short_return(value: f64) -> Option<u64> {
    let sum = value + ROUNDER;
    let above_least = sum.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(1 << (RETURN_BITS - 1));
    let fits = above_least < 1 << RETURN_BITS && (sum - ROUNDER).to_bits() == value.to_bits();
    fits.then_some(sum.to_bits() & ((1 << RETURN_BITS) - 1))
}

/// The inverse, of an end's word.
#[inline]
const fn returned(head: u64) -> f64 {
    (((head as u32) as i32) >> MIDDLE_SHIFT) as f64
}

/// 1.5 * 2^52: doubles near it are the integers.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::buffer::CODE_SCORE;
    use crate::walk::key;

    fn any_return() -> impl Strategy<Value = f64> {
        prop_oneof![
            (-600i16..600).prop_map(f64::from),
            any::<u64>().prop_map(f64::from_bits),
            prop_oneof![Just(-0.0), Just(0.5), Just(f64::NAN), Just(1e300)],
        ]
    }

    proptest! {
        #[test]
        fn every_end_reads_back(
            pos in 0..=CHUNK_ROWS as u16,
            lane in 0u8..64,
            total_reward in any_return(),
            hash: u32,
            code in prop_oneof![any::<u8>(), (0..3u8).prop_map(|outcome| outcome | CODE_HASH)],
            score: u64,
        ) {
            let end = EndEvent { total_reward, hash, pos, lane, code };
            let score = (code & CODE_SCORE != 0).then(|| f64::from_bits(score));
            let mut words = EventWords::default();
            words.push_end(end, score);
            let head = Head::new(words.0[0]);
            prop_assert_eq!(head.key(), key(pos, lane));
            let read = match head.kind() {
                Kind::End => head.end(),
                Kind::LongEnd => EndEvent { total_reward: f64::from_bits(words.0[1]), ..head.long_end() },
                kind => panic!("{kind:?}"),
            };
            prop_assert_eq!(read.total_reward.to_bits(), total_reward.to_bits());
            let apart = EndEvent { total_reward: 0.0, ..end };
            prop_assert_eq!(EndEvent { total_reward: 0.0, ..read }, apart);
            prop_assert_eq!(words.0.get(2).copied(), score.map(f64::to_bits));
        }

        #[test]
        fn every_other_event_reads_back(
            pos in 0..=CHUNK_ROWS as u16, lane in 0u8..64, high: u32, lanes: u64, full: bool,
        ) {
            let mut words = EventWords::default();
            words.push_window(usize::from(pos), usize::from(lane), high);
            words.push_begins(BeginEvents { lanes, drawn: high, pos, full });
            words.push_begins_of_rested(usize::from(pos), high);
            words.push_stepped(usize::from(pos), lanes);
            let heads = [0, 1, 3, 4].map(|at| Head::new(words.0[at]));
            let kinds = [Kind::Window, Kind::Begins, Kind::BeginsOfRested, Kind::Stepped];
            prop_assert_eq!(heads.map(Head::kind), kinds);
            prop_assert_eq!(heads.map(Head::pos), [pos; 4]);
            prop_assert_eq!(heads[0].window(), WindowEvent { hash: high, pos, lane });
            prop_assert_eq!((heads[1].drawn(), heads[1].is_full(), words.0[2]), (high, full, lanes));
            prop_assert_eq!((heads[2].drawn(), words.0[5]), (high, lanes));
        }
    }

    #[test]
    fn an_end_whose_return_is_a_small_integer_is_one_word() {
        let words = |total_reward| {
            let mut words = EventWords::default();
            words.push_finished(CHUNK_ROWS, 63, total_reward, u32::MAX, 2);
            words.0.len()
        };
        for (total_reward, count) in
            [(500.0, 1), (511.0, 1), (-512.0, 1), (512.0, 2), (-513.0, 2), (0.5, 2), (-0.0, 2)]
        {
            assert_eq!(words(total_reward), count, "{total_reward}");
        }
    }
}

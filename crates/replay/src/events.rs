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

use crate::buffer::{BeginEvents, CODE_HASH, CODE_SCORE, EndEvent, WindowEvent};
use crate::limits::CHUNK_ROWS;

/// Words of events, in the order in which they happened.
#[derive(Debug, Default)]
pub(crate) struct EventWords(Vec<u64>);

/// One event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Event {
    /// Other lanes stepped in row `row` than the rule says.
    Stepped { row: u16, lanes: u64 },
    /// An episode ended, with its score if it has one.
    End(EndEvent, Option<f64>),
    /// A lane's age reached a multiple of the hash window.
    Window(WindowEvent),
    /// Episodes began.
    Begins(BeginEvents),
    /// Episodes began in the lanes that by rule rested in the last row, and follow from their last starts.
    BeginsOfRested { drawn: u32, pos: u16 },
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
    pub(crate) fn fetch_ahead(&mut self) {
        if let Some(place) = self.0.spare_capacity_mut().get_mut(FETCHED_AHEAD) {
            fetch_to_write(place);
        }
    }

    /// Adds [`Event::Stepped`].
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

    /// Adds [`Event::End`]. `code` says whether there is a score.
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

    /// Adds [`Event::Window`].
    #[inline]
    pub(crate) fn push_window(&mut self, pos: usize, lane: usize, hash: u32) {
        self.0.push(WINDOW | place(pos, lane) | u64::from(hash) << HIGH_SHIFT);
    }

    /// Adds [`Event::Begins`].
    pub(crate) fn push_begins(&mut self, begins: BeginEvents) {
        let BeginEvents { lanes, drawn, pos, full } = begins;
        let head = BEGINS | place(usize::from(pos), 0) | u64::from(full) << MIDDLE_SHIFT;
        self.0.extend([head | u64::from(drawn) << HIGH_SHIFT, lanes]);
    }

    /// Adds [`Event::BeginsOfRested`].
    #[inline]
    pub(crate) fn push_begins_of_rested(&mut self, pos: usize, drawn: u32) {
        self.0.push(BEGINS_OF_RESTED | place(pos, 0) | u64::from(drawn) << HIGH_SHIFT);
    }

    /// The events.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Event> {
        let mut words = self.0.iter().copied();
        std::iter::from_fn(move || {
            let head = words.next()?;
            // A head and its words are pushed together: what should follow is there.
            let mut next = || words.next().unwrap_or_default();
            let pos = (head >> POS_SHIFT) as u16 & POS_MASK;
            let lane = (head >> LANE_SHIFT) as u8 & LANE_MASK;
            let (code, high) = ((head >> MIDDLE_SHIFT) as u8, (head >> HIGH_SHIFT) as u32);
            Some(match head & KIND_MASK {
                WINDOW => Event::Window(WindowEvent { hash: high, pos, lane }),
                BEGINS_OF_RESTED => Event::BeginsOfRested { drawn: high, pos },
                BEGINS => Event::Begins(BeginEvents { lanes: next(), drawn: high, pos, full: code & 1 == 1 }),
                STEPPED => Event::Stepped { row: pos, lanes: next() },
                LONG_END => {
                    let total_reward = f64::from_bits(next());
                    let score = (code & CODE_SCORE != 0).then(|| f64::from_bits(next()));
                    Event::End(EndEvent { total_reward, hash: high, pos, lane, code }, score)
                }
                outcome => {
                    let code = outcome as u8 | CODE_HASH;
                    Event::End(EndEvent { total_reward: returned(head), hash: high, pos, lane, code }, None)
                }
            })
        })
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

    fn any_return() -> impl Strategy<Value = f64> {
        prop_oneof![
            (-600i16..600).prop_map(f64::from),
            any::<u64>().prop_map(f64::from_bits),
            prop_oneof![Just(-0.0), Just(0.5), Just(f64::NAN), Just(1e300)],
        ]
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let place = || (0..=CHUNK_ROWS as u16, 0u8..64);
        prop_oneof![
            (0..CHUNK_ROWS as u16, any::<u64>()).prop_map(|(row, lanes)| Event::Stepped { row, lanes }),
            (place(), any_return(), any::<u32>(), any::<u8>(), any::<u64>()).prop_map(
                |((pos, lane), total_reward, hash, code, score)| {
                    let score = (code & CODE_SCORE != 0).then(|| f64::from_bits(score));
                    Event::End(EndEvent { total_reward, hash, pos, lane, code }, score)
                }
            ),
            (place(), any_return(), any::<u32>(), 0u8..3).prop_map(
                |((pos, lane), total_reward, hash, code)| {
                    Event::End(EndEvent { total_reward, hash, pos, lane, code: code | CODE_HASH }, None)
                }
            ),
            (place(), any::<u32>()).prop_map(|((pos, lane), hash)| Event::Window(WindowEvent {
                hash,
                pos,
                lane
            })),
            (place(), any::<u64>(), any::<u32>(), any::<bool>()).prop_map(
                |((pos, _), lanes, drawn, full)| { Event::Begins(BeginEvents { lanes, drawn, pos, full }) }
            ),
            (place(), any::<u32>()).prop_map(|((pos, _), drawn)| Event::BeginsOfRested { drawn, pos }),
        ]
    }

    proptest! {
        #[test]
        fn every_event_reads_back(events in prop::collection::vec(any_event(), 0..50)) {
            let mut words = EventWords::default();
            for &event in &events {
                match event {
                    Event::Stepped { row, lanes } => words.push_stepped(usize::from(row), lanes),
                    Event::End(end, score) => words.push_end(end, score),
                    Event::Window(w) => words.push_window(usize::from(w.pos), usize::from(w.lane), w.hash),
                    Event::Begins(begins) => words.push_begins(begins),
                    Event::BeginsOfRested { drawn, pos } => words.push_begins_of_rested(usize::from(pos), drawn),
                }
            }
            // Compared as text, in which NaN equals itself and -0.0 differs from 0.0; NaN's bits are compared apart.
            let read: Vec<Event> = words.iter().collect();
            prop_assert_eq!(format!("{:?}", &read), format!("{:?}", &events));
            for (read, event) in read.iter().zip(&events) {
                if let (Event::End(read, _), Event::End(end, _)) = (read, event) {
                    prop_assert_eq!(read.total_reward.to_bits(), end.total_reward.to_bits());
                }
            }
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

//! What a buffer says that happened to its block's lanes, row by row and event by event.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Lanes, Start, lane_bits};

use crate::buffer::{Buffer, CODE_SCORE, EndEvent, WindowEvent};
use crate::codec::Malformed;
use crate::coding::stepped::Rule;
use crate::events::{Head, Kind};
use crate::lanes::{BlockState, last_starts};
use crate::walk::key;

/// The rows and events of a buffer, one by one.
#[derive(Debug, Default)]
pub(crate) struct Happened {
    /// Lanes stepped in each row.
    pub(crate) stepped: Vec<u64>,
    /// Rows in which other lanes stepped than the buffer's rule says, and by which lanes they differ.
    pub(crate) exceptions: Vec<(usize, u64)>,
    /// The rule after the last row.
    pub(crate) rule: Rule,
    pub(crate) ends: Vec<EndEvent>,
    pub(crate) end_keys: Vec<u32>,
    /// Scores by index of their end.
    pub(crate) scores: Vec<(u32, f64)>,
    pub(crate) begin_keys: Vec<u32>,
    /// One per begin.
    pub(crate) starts: Vec<Start>,
    /// Words that every begin's lane drew since its last one, if they all follow from that and drew equally many.
    pub(crate) all_drew: Option<u32>,
    pub(crate) windows: Vec<WindowEvent>,
    /// Lanes that by rule rested in the last row so far.
    rested: u64,
}

impl Happened {
    /// Takes apart what `buffer` says happened; `state` is that before its first row. Ends and begins are in the order
    /// of their keys then, and so is the buffer's `first_obs`.
    ///
    /// # Errors
    /// If the buffer lacks a start or the words of an event.
    pub(crate) fn take(&mut self, buffer: &mut Buffer, state: &BlockState) -> Result<(), Malformed> {
        self.restart(buffer);
        let all = lane_bits(buffer.lanes);
        let mut known = last_starts(state);
        let mut full = buffer.full_starts.iter();
        let mut words = buffer.events.words().iter();
        while let Some(&word) = words.next() {
            let head = Head::new(word);
            let mut next = || words.next().copied().ok_or(Malformed("event without its words"));
            match head.kind() {
                Kind::End => {
                    self.rows_until(head.pos(), all);
                    self.end(head, head.end());
                }
                Kind::LongEnd => {
                    self.rows_until(head.pos(), all);
                    let end = EndEvent { total_reward: f64::from_bits(next()?), ..head.long_end() };
                    if end.code & CODE_SCORE != 0 {
                        self.scores.push((self.ends.len() as u32, f64::from_bits(next()?)));
                    }
                    self.end(head, end);
                }
                Kind::BeginsOfRested => {
                    self.rows_until(head.pos(), all);
                    self.begin_following(head, self.rested, &mut known);
                }
                Kind::Begins if head.is_full() => {
                    self.all_drew = None;
                    for lane in Lanes(next()?) {
                        let start = *full.next().ok_or(Malformed("begin without a start"))?;
                        known[lane] = (start.seed, start.words);
                        self.starts.push(start);
                        self.begin_keys.push(key(head.pos(), lane as u8));
                    }
                }
                Kind::Begins => self.begin_following(head, next()?, &mut known),
                Kind::Window => self.windows.push(head.window()),
                Kind::Stepped => {
                    self.rows_until(head.pos(), all);
                    let lanes = next()?;
                    let change = (self.rule.expected() ^ lanes) & all;
                    self.exceptions.push((usize::from(head.pos()), change));
                    self.row(lanes, change);
                }
            }
        }
        self.rows_until(buffer.rows as u16, all);
        if !self.end_keys.is_sorted() {
            self.sort_ends();
        }
        if !self.begin_keys.is_sorted() {
            self.sort_begins(&mut buffer.first_obs);
        }
        Ok(())
    }

    fn restart(&mut self, buffer: &Buffer) {
        self.stepped.clear();
        self.exceptions.clear();
        self.rule = buffer.rule;
        self.ends.clear();
        self.end_keys.clear();
        self.scores.clear();
        self.begin_keys.clear();
        self.starts.clear();
        self.all_drew = None;
        self.windows.clear();
        self.rested = 0;
    }

    /// Adds the rows up to `rows`, in which the lanes stepped that the rule says.
    #[inline(always)]
    fn rows_until(&mut self, rows: u16, all: u64) {
        while self.stepped.len() < usize::from(rows) {
            self.row(self.rule.expected() & all, 0);
        }
    }

    #[inline(always)]
    fn row(&mut self, stepped: u64, change: u64) {
        self.stepped.push(stepped);
        self.rested = self.rule.skipped();
        self.rule.after_row(change);
    }

    #[inline(always)]
    fn end(&mut self, head: Head, end: EndEvent) {
        self.rule.ended |= 1 << end.lane;
        self.end_keys.push(head.key());
        self.ends.push(end);
    }

    /// Begins in `lanes` that follow from the lanes' last starts.
    #[inline(always)]
    fn begin_following(&mut self, head: Head, lanes: u64, known: &mut [(u64, u64); BLOCK_LANES]) {
        let drawn = head.drawn();
        if self.starts.is_empty() {
            self.all_drew = Some(drawn);
        } else if self.all_drew != Some(drawn) {
            self.all_drew = None;
        }
        let pos = head.pos();
        let keys = Lanes(lanes).map(|lane| key(pos, lane as u8));
        self.begin_keys.extend(keys);
        self.starts.extend(Lanes(lanes).map(|lane| {
            let (seed, words) = &mut known[lane];
            *words = words.wrapping_add(u64::from(drawn));
            Start { seed: *seed, words: *words, half: None }
        }));
    }

    /// Puts ends of one position into the order of lanes.
    #[cold]
    fn sort_ends(&mut self) {
        let mut order: Vec<usize> = (0..self.ends.len()).collect();
        order.sort_by_key(|&at| self.end_keys[at]);
        self.ends = order.iter().map(|&at| self.ends[at]).collect();
        self.end_keys.sort_unstable();
        for (at, _) in &mut self.scores {
            *at = order.iter().position(|&old| old == *at as usize).unwrap_or(0) as u32;
        }
        self.scores.sort_by_key(|&(at, _)| at);
    }

    /// Puts begins of one position into the order of lanes, with what stands for each of them.
    #[cold]
    fn sort_begins(&mut self, first_obs: &mut [u8]) {
        let bytes = first_obs.len() / self.starts.len();
        let mut order: Vec<usize> = (0..self.starts.len()).collect();
        order.sort_by_key(|&at| self.begin_keys[at]);
        self.starts = order.iter().map(|&at| self.starts[at]).collect();
        let rows: Vec<u8> = order.iter().flat_map(|&at| &first_obs[at * bytes..][..bytes]).copied().collect();
        first_obs.copy_from_slice(&rows);
        self.begin_keys.sort_unstable();
    }
}

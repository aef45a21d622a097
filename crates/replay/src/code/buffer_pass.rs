//! Reading a buffer row by row and event by event: what happened to the block's lanes.

use rollhouse_core::limits::{BLOCK_LANES, HASH_WINDOW_STEPS};
use rollhouse_core::{LaneSet, Start};

use crate::code::buffer::Buffer;
use crate::code::calls::CallPlace;
use crate::code::codec::Malformed;
use crate::code::coding::stepped::Rule;
use crate::code::coding::{ends, windows};
use crate::code::events::{CODE_SCORE, EndEvent, Head, Kind};
use crate::code::extent::{EndFacts, LISTED_CODE};
use crate::code::lanes::{BlockState, last_starts};
use crate::code::run::Sampling;
use crate::code::walk::{Counter, key};

/// The rows and events of a buffer, one by one, with what is kept of them.
#[derive(Debug, Default)]
pub(crate) struct Happened {
    /// Whether rows and begins are written one by one.
    by_row: bool,
    /// Whether observations are written.
    observes: bool,
    /// Lanes stepped in each row.
    pub(crate) stepped: Vec<u64>,
    /// If `by_row`, lanes that stepped in each row in a kept episode.
    pub(crate) kept_rows: Vec<u64>,
    /// Rows in which other lanes stepped than the buffer's rule says, and by which lanes they differ.
    pub(crate) exceptions: Vec<(usize, u64)>,
    /// The rule after the last row.
    pub(crate) rule: Rule,
    pub(crate) ends: Ends,
    pub(crate) begins: Begins,
    pub(crate) windows: Windows,
    /// Calls that changed lanes in kept episodes.
    pub(crate) calls: Vec<CallPlace>,
    /// Lanes with anything of a kept episode.
    pub(crate) present: u64,
    /// Lanes with a kept episode that began, or had its first observation, before the buffer.
    pub(crate) under_way: u64,
}

/// The ends of episodes.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) each: Vec<Ended>,
    /// Keys, one per end.
    pub(crate) keys: Vec<u32>,
    /// Scores by index of their end.
    pub(crate) scores: Vec<(u32, f64)>,
}

/// The begins of episodes.
#[derive(Debug, Default)]
pub(crate) struct Begins {
    /// Keys, one per begin.
    pub(crate) keys: Vec<u32>,
    /// Words that every begin's lane drew since its last start, if all starts follow from the last ones and drew
    /// equally many.
    pub(crate) all_drew: Option<u32>,
    /// Starts, one per begin; empty if `all_drew` is enough to know them.
    pub(crate) starts: Vec<Start>,
    /// If rows and begins are written one by one, whether each begin's episode is kept.
    pub(crate) kept: Vec<bool>,
}

/// The window hashes of kept episodes.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    pub(crate) each: Vec<Window>,
    /// Number of hashes that kept episodes would have, those on an episode's last step included.
    pub(crate) due: u64,
    /// Number of these hashes that are on an episode's last step.
    pub(crate) at_end: u64,
}

/// An episode that ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) event: EndEvent,
    pub(crate) length: u64,
    /// Flags of the end, as the column of ends has them.
    pub(crate) flags: u8,
    /// Number of kept episodes of the buffer that ended before it did.
    pub(crate) kept: u32,
}

/// A window hash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) hash: u32,
    pub(crate) pos: u16,
    pub(crate) lane: u8,
    pub(crate) age: u64,
}

impl Happened {
    pub(crate) fn new(by_row: bool, observes: bool) -> Self {
        Self { by_row, observes, ..Self::default() }
    }

    /// Reads all rows and events of `buffer` and moves `state` behind them; calls `ended` for every kept episode that
    /// ended. On return, ends and begins are in the order of their keys, and so is the buffer's `first_obs`.
    ///
    /// # Errors
    /// If the buffer lacks a start or the words of an event, or has an event of a lane that the block does not have.
    pub(crate) fn take(
        &mut self,
        buffer: &mut Buffer,
        sampling: Sampling,
        state: &mut BlockState,
        ended: impl FnMut(EndFacts),
    ) -> Result<(), Malformed> {
        self.restart();
        let mut taking = BufferPass::new(self, buffer, sampling, state, ended);
        let mut full = buffer.full_starts.iter();
        let mut calls = 0_usize..;
        let mut words = buffer.events.words().iter();
        while let Some(&word) = words.next() {
            let head = Head::new(word);
            let mut next = || words.next().copied().ok_or(Malformed("event without its words"));
            taking.rows_until(head.pos())?;
            match head.kind() {
                Kind::End => taking.end(head, None)?,
                Kind::LongEnd => {
                    let total_reward = f64::from_bits(next()?);
                    if head.end().code & CODE_SCORE != 0 {
                        taking
                            .to
                            .ends
                            .scores
                            .push((taking.to.ends.each.len() as u32, f64::from_bits(next()?)));
                    }
                    taking.end(head, Some(total_reward))?;
                }
                Kind::Begins if head.is_full() => {
                    for lane in LaneSet::of_bits(next()?) {
                        let start = *full.next().ok_or(Malformed("begin without a start"))?;
                        taking.to.begins.spell_out_starts(&taking.before);
                        taking.to.begins.starts.push(start);
                        taking.begin(head.pos(), lane, start)?;
                    }
                }
                Kind::Begins => taking.begin_following(head.pos(), next()?, head.drawn())?,
                Kind::Window => taking.window(head),
                Kind::Call => taking.call(head, calls.next().unwrap_or(usize::MAX))?,
                Kind::Row => {
                    let (stepped, begun) = (next()? & taking.all, next()?);
                    taking.row(stepped, begun)?;
                }
            }
        }
        taking.rows_until(buffer.rows as u16)?;
        taking.finish();
        if !self.ends.keys.is_sorted() {
            self.ends.sort();
        }
        if !self.begins.keys.is_sorted() {
            self.begins.sort(&mut buffer.first_obs);
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.stepped.clear();
        self.kept_rows.clear();
        self.exceptions.clear();
        self.ends.clear();
        self.begins.clear();
        self.windows.clear();
        self.calls.clear();
    }
}

impl Ends {
    fn clear(&mut self) {
        self.each.clear();
        self.keys.clear();
        self.scores.clear();
    }

    /// Sorts the ends of one position by lane.
    #[cold]
    fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.each.len()).collect();
        order.sort_by_key(|&at| self.keys[at]);
        self.each = order.iter().map(|&at| self.each[at]).collect();
        self.keys.sort_unstable();
        for (at, _) in &mut self.scores {
            *at = order.iter().position(|&old| old == *at as usize).unwrap_or(0) as u32;
        }
        self.scores.sort_by_key(|&(at, _)| at);
    }
}

impl Windows {
    fn clear(&mut self) {
        self.each.clear();
        (self.due, self.at_end) = (0, 0);
    }
}

impl Begins {
    fn clear(&mut self) {
        self.keys.clear();
        self.all_drew = None;
        self.starts.clear();
        self.kept.clear();
    }

    /// Begins to note each start one by one, and adds those so far, which follow from the lanes' last ones.
    fn spell_out_starts(&mut self, before: &[(u64, u64); BLOCK_LANES]) {
        let Some(drawn) = self.all_drew.take() else { return };
        let mut known = *before;
        self.starts.extend(self.keys.iter().map(|key| {
            let (seed, words) = &mut known[(key & 63) as usize];
            *words = words.wrapping_add(u64::from(drawn));
            Start { seed: *seed, words: *words, half: None }
        }));
    }

    /// Sorts the begins of one position by lane, with everything that is kept per begin.
    #[cold]
    fn sort(&mut self, first_obs: &mut [u8]) {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        order.sort_by_key(|&at| self.keys[at]);
        self.keys.sort_unstable();
        if self.all_drew.is_none() {
            self.starts = order.iter().map(|&at| self.starts[at]).collect();
        }
        if !self.kept.is_empty() {
            self.kept = order.iter().map(|&at| self.kept[at]).collect();
        }
        let bytes = first_obs.len() / order.len();
        let rows: Vec<u8> = order.iter().flat_map(|&at| &first_obs[at * bytes..][..bytes]).copied().collect();
        first_obs.copy_from_slice(&rows);
    }
}

/// One pass through a buffer.
struct BufferPass<'a, F> {
    to: &'a mut Happened,
    counter: Counter<'a>,
    all: u64,
    /// Rule that says which lanes step in the next row. The rest after an end that it prescribes is counted already.
    rule: Rule,
    /// Lanes that by rule begin an episode in the row in which they rest: all or none.
    begins_by_rule: u64,
    /// Words that every begin draws which is noted by a row or by the rule.
    drawn: u32,
    /// Seed and words of each lane's last start before the first row.
    before: [(u64, u64); BLOCK_LANES],
    /// The run's sampling, and the block's first lane.
    sampling: (Sampling, u32),
    /// Lanes whose current episode is kept.
    keeps: u64,
    /// Number of kept episodes that have ended.
    kept: u32,
    ended: F,
}

impl<'a, F: FnMut(EndFacts)> BufferPass<'a, F> {
    fn new(
        to: &'a mut Happened,
        buffer: &Buffer,
        sampling: Sampling,
        state: &'a mut BlockState,
        ended: F,
    ) -> Self {
        let (mut keeps, mut aged) = (0, 0);
        for (lane, entry) in state.table.iter().enumerate() {
            keeps |= u64::from(sampling.keeps(buffer.lanes.in_run(lane), entry.number)) << lane;
            aged |= u64::from(entry.age > 0) << lane;
        }
        let begun = state.open | aged;
        to.under_way = keeps & if to.observes { begun } else { aged };
        // A kept episode under way is present even if its lane rests, so that a block's last chunk knows every
        // episode that was open.
        to.present = keeps & begun;
        let all = buffer.lanes.all().bits();
        let before = last_starts(state);
        let mut counter = Counter::new(state, all, buffer.opened_ms);
        counter.rest(buffer.rule.skipped() & all, 1);
        let sampling = (sampling, buffer.lanes.first);
        let begins_by_rule = if buffer.begins_by_rule { all } else { 0 };
        let drawn = buffer.drawn;
        Self {
            to,
            counter,
            all,
            rule: buffer.rule,
            begins_by_rule,
            drawn,
            before,
            sampling,
            keeps,
            kept: 0,
            ended,
        }
    }

    /// Adds the rows up to `rows`, in which the lanes stepped and began that the rules say.
    #[inline(always)]
    fn rows_until(&mut self, rows: u16) -> Result<(), Malformed> {
        while self.to.stepped.len() < usize::from(rows) {
            self.row(self.rule.expected() & self.all, self.rule.skipped() & self.begins_by_rule)?;
        }
        Ok(())
    }

    /// Adds a row in which the lanes of `stepped` took a step and those of `begun` began an episode instead.
    #[inline(always)]
    fn row(&mut self, stepped: u64, begun: u64) -> Result<(), Malformed> {
        let skipped = self.rule.skipped();
        let change = (self.rule.expected() ^ stepped) & self.all;
        if change != 0 {
            self.to.exceptions.push((self.to.stepped.len(), change));
        }
        if (skipped ^ !stepped) & self.all != 0 {
            self.counter.rest(self.all & !stepped & !skipped, 1);
            self.counter.rest(self.all & stepped & skipped, -1);
        }
        self.counter.row();
        self.to.stepped.push(stepped);
        self.to.present |= stepped & self.keeps;
        if self.to.by_row {
            self.to.kept_rows.push(stepped & self.keeps);
        }
        self.rule.after_row(change);
        if begun != 0 {
            self.begin_following(self.to.stepped.len() as u16, begun, self.drawn)?;
        }
        Ok(())
    }

    /// Ends an episode; without `total_reward`, its return is its length.
    #[inline(always)]
    fn end(&mut self, head: Head, total_reward: Option<f64>) -> Result<(), Malformed> {
        let event = head.end();
        let (lane, lane_bit) = (usize::from(event.lane), 1 << event.lane);
        if self.rule.skipped() & lane_bit != 0 {
            // It ended before, since the last row; its rest is counted once.
            self.counter.rest(lane_bit, -1);
        }
        let piece = self.counter.end(lane, usize::from(event.pos))?;
        self.counter.rest_next(lane, self.rule.rests_after_end());
        self.rule.ended |= lane_bit;
        let (length, mut flags) = (piece.age, ends::NOT_KEPT);
        let event = EndEvent { total_reward: total_reward.unwrap_or(length as i64 as f64), ..event };
        let (sampling, first_lane) = self.sampling;
        let lane = first_lane + u32::from(event.lane);
        if self.keeps & lane_bit != 0 {
            flags = ends::flags_of(&event, length);
            self.to.present |= lane_bit;
            self.to.windows.due += windows::between(piece.from_age, length);
            if length.is_multiple_of(HASH_WINDOW_STEPS) && length > piece.from_age {
                self.to.windows.at_end += 1;
            }
            let EndEvent { code, total_reward, .. } = event;
            let (number, started_ms, start) = (piece.number, piece.started_ms, piece.start);
            let score = if code & CODE_SCORE != 0 {
                self.to.ends.scores.last().map(|(_, score)| *score)
            } else {
                None
            };
            let code = code & LISTED_CODE;
            (self.ended)(EndFacts { lane, number, code, length, total_reward, started_ms, start, score });
        }
        self.to.ends.keys.push(head.key());
        self.to.ends.each.push(Ended { event, length, flags, kept: self.kept });
        self.kept += u32::from(self.keeps >> event.lane & 1 == 1);
        if sampling.threshold().is_some() {
            let keeps = sampling.keeps(lane, piece.number + 1);
            self.keeps = self.keeps & !lane_bit | u64::from(keeps) << event.lane;
        }
        Ok(())
    }

    #[inline(always)]
    fn begin(&mut self, pos: u16, lane: usize, start: Start) -> Result<(), Malformed> {
        self.counter.begin(lane, start)?;
        self.to.begins.keys.push(key(pos, lane as u8));
        self.to.present |= self.keeps & 1 << lane;
        if self.to.by_row {
            self.to.begins.kept.push(self.keeps >> lane & 1 == 1);
        }
        Ok(())
    }

    /// Begins episodes in `lanes`, each of which drew `drawn` words since its last start.
    #[inline(always)]
    fn begin_following(&mut self, pos: u16, lanes: u64, drawn: u32) -> Result<(), Malformed> {
        if self.to.begins.all_drew != Some(drawn) {
            if self.to.begins.keys.is_empty() {
                self.to.begins.all_drew = Some(drawn);
            } else {
                self.to.begins.spell_out_starts(&self.before);
            }
        }
        for lane in LaneSet::of_bits(lanes) {
            let last = self.counter.last_start(lane)?;
            let start = Start { words: last.words.wrapping_add(u64::from(drawn)), half: None, ..last };
            if self.to.begins.all_drew.is_none() {
                self.to.begins.starts.push(start);
            }
            self.begin(pos, lane, start)?;
        }
        Ok(())
    }

    /// Adds a window hash; if the lane's episode ended in the same row, the hash belongs to that episode.
    fn window(&mut self, head: Head) {
        let event = head.window();
        let lane = usize::from(event.lane);
        let ended = self.to.ends.each.iter().rev().take_while(|end| end.event.pos == event.pos);
        let of_ended = ended.filter(|end| end.event.lane == event.lane).last();
        let (age, kept) = match of_ended {
            Some(end) => (end.length, end.flags & ends::OUTCOME_BITS != ends::NOT_KEPT),
            None => (self.age(lane, event.pos), self.keeps >> lane & 1 == 1),
        };
        if kept {
            self.to.windows.each.push(Window { hash: event.hash, pos: event.pos, lane: event.lane, age });
        }
    }

    /// Adds a call that changed the lane of an episode that has begun.
    fn call(&mut self, head: Head, index: usize) -> Result<(), Malformed> {
        let lane = usize::from(head.lane());
        let (number, age) = (self.counter.number(lane)?, self.age(lane, head.pos()));
        if self.keeps >> lane & 1 == 1 {
            self.to.present |= 1 << lane;
            self.to.calls.push(CallPlace { lane: head.lane(), number, age, index });
        }
        Ok(())
    }

    /// Returns the age of the lane's episode after `pos` rows, without the rest that is counted ahead.
    fn age(&self, lane: usize, pos: u16) -> u64 {
        let foreseen = self.rule.skipped() >> lane & 1;
        self.counter.age(lane, usize::from(pos)).wrapping_add(foreseen)
    }

    /// Ends the pass after the last row.
    fn finish(mut self) {
        self.counter.rest(self.rule.skipped() & self.all, -1);
        let to = self.to;
        to.rule = self.rule;
        self.counter.finish(to.stepped.len(), |piece| {
            if self.keeps >> piece.lane & 1 == 1 {
                to.windows.due += windows::between(piece.from_age, piece.age);
            }
        });
    }
}

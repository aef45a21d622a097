//! Replays what a block's lanes did elsewhere, so that they can go on from there.

use std::collections::{BTreeMap, VecDeque};
use std::slice;

use rollhouse_arena::Rows;
use rollhouse_core::{ColumnData, DType, Interruption, LaneSet, OptionValue, PastEvent, SeedSchedule, Start};

use super::settle;
use super::{Block, Turn, keep_observations, show_rest};
use crate::options::{OptionsError, with_values};
use crate::past::ResumeError;
use crate::stats::Stats;
use crate::timings::Laps;

/// Events in each lane of a block, in order.
#[derive(Debug)]
pub(crate) struct BlockPast {
    lanes: Vec<VecDeque<PastEvent>>,
    /// Number of rows of each lane's first [`PastEvent::Played`] that were taken.
    taken: Vec<usize>,
    dtype: DType,
    /// Number of elements in one action.
    elements: usize,
}

impl BlockPast {
    /// Makes an empty past of `lanes` lanes whose actions have that type and number of elements.
    pub(crate) fn new(lanes: usize, dtype: DType, elements: usize) -> Self {
        Self { lanes: vec![VecDeque::new(); lanes], taken: vec![0; lanes], dtype, elements }
    }

    pub(crate) fn push(&mut self, lane: usize, what: PastEvent) {
        self.lanes[lane].push_back(what);
    }

    /// Takes the options that come before anything else in each lane.
    fn take_first_given(&mut self) -> Vec<(usize, BTreeMap<String, OptionValue>)> {
        let mut given = Vec::new();
        for (lane, events) in self.lanes.iter_mut().enumerate() {
            if let Some(PastEvent::Given(values)) =
                events.pop_front_if(|what| matches!(what, PastEvent::Given(_)))
            {
                given.push((lane, values));
            }
        }
        given
    }

    /// Writes the lane's next action into its row.
    fn take_action(&mut self, lane: usize, actions: &mut ColumnData) {
        let Some(PastEvent::Played(played)) = self.lanes[lane].front() else { return };
        let (elements, row) = (self.elements, self.taken[lane]);
        let action = played.actions.as_ref().slice(row * elements, (row + 1) * elements);
        let set = actions.set_row(lane, elements, action);
        debug_assert!(set, "columns of one type, and a row of the block");
        self.taken[lane] += 1;
        if self.taken[lane] >= played.count {
            self.taken[lane] = 0;
            self.lanes[lane].pop_front();
        }
    }
}

impl Block {
    /// Makes the lanes do again what they did elsewhere, with everything that belongs to it, recording included.
    /// Replayed steps and episodes are not counted. After an error the block is of no further use.
    pub(crate) fn replay(
        &mut self,
        rows: &mut Rows<'_>,
        past: &mut BlockPast,
        turn: Turn,
    ) -> Result<(), ResumeError> {
        let range = self.lanes.rows().clone();
        rows.with_block(&range, |columns| keep_observations(columns, self.lanes.all(), range.len()));
        let mut actions = ColumnData::zeros(past.dtype, range.len() * past.elements);
        self.repeat(true);
        // All lanes at once: an env that has to be made with them can be replaced only while no lane plays.
        self.give_again(&past.take_first_given())?;
        loop {
            let stepped = self.prepare(rows, past, turn)?;
            if stepped.is_empty() {
                break;
            }
            for lane in stepped {
                past.take_action(lane, &mut actions);
            }
            self.step_some(rows, actions.as_ref(), stepped, turn, &mut Laps::start(false));
            if let Some(lane) = self.restarts.lost().lowest() {
                let number = self.episodes.next_number(lane).saturating_sub(1);
                return Err(ResumeError::Crashed { lane: range.start + lane, number });
            }
        }
        self.repeat(false);
        self.stats = Stats::default();
        rows.with_block(&range, |columns| show_rest(columns, LaneSet::NONE));
        self.show();
        Ok(())
    }

    /// Sets whether late lanes that may choose their actions do again what they did.
    fn repeat(&mut self, repeats: bool) {
        if let Some(reports) = self.under_way.as_mut().and_then(|under_way| under_way.reports.as_mut()) {
            reports.repeats = repeats;
        }
    }

    /// Does everything that comes before the lanes' next actions and returns the lanes that have one.
    fn prepare(
        &mut self,
        rows: &mut Rows<'_>,
        past: &mut BlockPast,
        turn: Turn,
    ) -> Result<LaneSet, ResumeError> {
        let mut stepped = LaneSet::NONE;
        for lane in 0..past.lanes.len() {
            while let Some(what) = past.lanes[lane].front() {
                match what {
                    PastEvent::Played(played) if played.count == 0 => {}
                    PastEvent::Played(_) => {
                        self.refuse_idle(lane)?;
                        stepped.insert(lane);
                        break;
                    }
                    PastEvent::Began { number, start } => {
                        self.begin_again(rows, lane, *number, *start, turn)?
                    }
                    PastEvent::Called(call) => self.call_again(lane, call)?,
                    PastEvent::Given(values) => self.give_again(&[(lane, values.clone())])?,
                    PastEvent::Stood(hash) => self.compare(lane, *hash)?,
                    PastEvent::Lost { next, start, held } => self.give_up_past(lane, *next, *start, *held),
                }
                past.lanes[lane].pop_front();
            }
        }
        Ok(stepped)
    }

    /// Gives lanes options for their next episodes as they were given elsewhere.
    fn give_again(&mut self, given: &[(usize, BTreeMap<String, OptionValue>)]) -> Result<(), ResumeError> {
        if given.is_empty() {
            return Ok(());
        }
        let lanes: LaneSet = given.iter().map(|(lane, _)| *lane).collect();
        let mut options = self.maker.options.clone();
        for (lane, values) in given {
            let schema = &self.maker.entry.spec().options;
            options[*lane] = with_values(schema, self.lanes.row(*lane), &options[*lane], values)?;
        }
        self.try_options(lanes, &options, self.recorder.is_some())?;
        if self.maker.entry.draws_options() {
            // Their env has taken them before: one that does not take them here costs the lane.
            self.give_with_episodes(lanes, options);
            return Ok(());
        }
        let Some(env) = self.maker.make_anew(&options) else {
            let message = "its lanes are made together, and none can be replaced alone".to_owned();
            return Err(OptionsError::Make { lane: self.lanes.row(0), message }.into());
        };
        let remade = self.carried(lanes, options, env)?;
        self.adopt(remade);
        Ok(())
    }

    pub(super) fn refuse_idle(&self, lane: usize) -> Result<(), ResumeError> {
        if self.episodes.open().has(lane) {
            return Ok(());
        }
        Err(ResumeError::NotPlaying { lane: self.lanes.row(lane), next: self.episodes.next_number(lane) })
    }

    /// Begins an episode as it began elsewhere, unless SAME_STEP has just begun it.
    fn begin_again(
        &mut self,
        rows: &mut Rows<'_>,
        lane: usize,
        number: u64,
        start: Start,
        turn: Turn,
    ) -> Result<(), ResumeError> {
        let bit = LaneSet::one(lane);
        let open = self.episodes.open().has(lane);
        if open && self.episodes.next_number(lane) == number.wrapping_add(1) && self.episodes.age(lane) == 0 {
            return Ok(());
        }
        self.interrupt(bit, Interruption::Cancelled);
        self.count_from(lane, number);
        match self.starts.schedule {
            SeedSchedule::PerEpisode { .. } => {
                if self.take_starts(bit).is_empty() {
                    return Err(ResumeError::Crashed { lane: self.lanes.row(lane), number });
                }
            }
            SeedSchedule::Continue => {
                self.ask(|env| env.restore(lane, start));
                self.starts.seed(bit);
                self.starts.of[lane] = start;
                let lost = self.draw_options(bit & self.starts.drawing & !self.restarts.lost());
                debug_assert!((lost & !self.restarts.lost()).is_empty(), "which is looked at here");
            }
        }
        if self.restarts.lost().has(lane) {
            return Err(ResumeError::Crashed { lane: self.lanes.row(lane), number });
        }
        rows.with_block(&self.lanes.rows().clone(), |columns| self.reset_env(bit, columns));
        settle(slice::from_mut(self), rows, turn, &mut Laps::start(false), None);
        if !self.restarts.lost().has(lane) {
            return Ok(());
        }
        Err(ResumeError::Crashed { lane: self.lanes.row(lane), number })
    }

    fn compare(&mut self, lane: usize, wanted: u32) -> Result<(), ResumeError> {
        self.refuse_idle(lane)?;
        let found = self.ask(|env| env.state_hash(lane)).unwrap_or_default();
        if self.is_lost(lane) {
            let number = self.episodes.next_number(lane).saturating_sub(1);
            return Err(ResumeError::Crashed { lane: self.lanes.row(lane), number });
        }
        if found == wanted {
            return Ok(());
        }
        Err(ResumeError::Differs {
            lane: self.lanes.row(lane),
            number: self.episodes.next_number(lane).saturating_sub(1),
            step: self.episodes.age(lane),
            wanted,
            found,
        })
    }

    fn give_up_past(&mut self, lane: usize, next: u64, start: Start, held: bool) {
        let bit = LaneSet::one(lane);
        self.interrupt(bit, Interruption::NodeLost);
        self.count_from(lane, next);
        if self.starts.schedule == SeedSchedule::Continue
            && self.ask(|env| env.restore(lane, start)).is_some()
        {
            self.starts.seed(bit);
            self.starts.of[lane] = start;
        }
        self.standing.waiting |= bit & !self.restarts.lost();
        if held {
            self.standing.held |= bit;
        }
    }

    /// Sets the number of the episode with which each lane begins, by its row.
    pub(crate) fn begin_with(&mut self, number: &dyn Fn(usize) -> u64) {
        for lane in self.lanes.all() {
            self.count_from(lane, number(self.lanes.row(lane)));
        }
    }

    /// Sets the number of the lane's next episode.
    fn count_from(&mut self, lane: usize, number: u64) {
        if self.episodes.next_number(lane) == number {
            return;
        }
        self.episodes.number(lane, number);
        if let Some(recorder) = &mut self.recorder {
            recorder.number(lane, number);
        }
    }
}

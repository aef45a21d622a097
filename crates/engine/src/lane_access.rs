//! Access of the owner to single lanes between two steps.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{LaneSet, Options, Start};
use rollhouse_env::{EnvEntry, Image, ImageSize, RenderError, StateError};

use crate::block::Remade;
use crate::engine::Engine;
use crate::error::StepError;
use crate::options::{Change, LaneOptions, OptionsError};
use crate::setup::try_late;

impl Engine {
    /// Returns the env of the lanes.
    pub const fn entry(&self) -> &Arc<EnvEntry> {
        &self.entry
    }

    /// Returns whether episodes are recorded.
    pub const fn is_recording(&self) -> bool {
        self.recording.backlog.is_some()
    }

    /// Returns the present options of those lanes: of those that are drawn, what the newest episode has drawn.
    ///
    /// # Errors
    /// [`StepError::NoSuchLane`], [`StepError::LaneOutstanding`] in first-done mode, [`StepError::Hung`].
    pub fn options(&mut self, lanes: Range<usize>) -> Result<Vec<Options>, StepError> {
        self.each_lane(lanes, |block, lane| block.options(lane))
    }

    /// Gives options to lanes, one value or distribution for all of `lanes` or one for each. Their blocks are made anew;
    /// lanes that play go on in the state they are in, with what is drawn for them.
    ///
    /// # Errors
    /// [`StepError::Options`], and what [`Engine::options`] says. Nothing has changed then, unless an env refuses or fails with
    /// options that it has taken as they were tried: its lane, or block, is lost.
    pub fn set_options(&mut self, lanes: Range<usize>, values: LaneOptions) -> Result<(), StepError> {
        self.check_lanes(&lanes)?;
        Change::check(&values, lanes.len())?;
        let first = lanes.start;
        self.change_options(Change {
            values,
            first,
            wanted: Box::new(move |row| lanes.contains(&row)),
            begins: false,
        })
    }

    /// Gives options to the lanes with a true flag in `mask`, or to all if it is empty: one value for all of them, or
    /// one for each lane of the batch. Lanes of an env that takes options with an episode (`EnvEntry::with_tried_options`) have
    /// them from their next one on. Otherwise it does the same as [`Engine::set_options`]. The log ends.
    ///
    /// # Errors
    /// As [`Engine::set_options`], and [`StepError::Length`].
    pub fn set_options_where(&mut self, mask: Vec<bool>, values: LaneOptions) -> Result<(), StepError> {
        let lanes = self.lanes();
        if !mask.is_empty() && mask.len() != lanes {
            return Err(StepError::Length { what: "mask flags", given: mask.len(), wanted: lanes });
        }
        self.check_lanes(&(0..lanes))?;
        Change::check(&values, lanes)?;
        let wanted = Box::new(move |row: usize| mask.get(row).copied().unwrap_or(true));
        let begins = self.entry.tries_options();
        self.change_options(Change { values, first: 0, wanted, begins })?;
        self.end_log()
    }

    /// Gives options to the lanes with a true flag in `mask`, or to all if it is empty, for their next episodes, as a reset of
    /// them would. The log goes on: whoever keeps it knows the options.
    ///
    /// # Errors
    /// As [`Engine::set_options_where`], and [`OptionsError::TooLarge`] for lanes that are recorded, or will be (`recorded`).
    pub fn give_options(
        &mut self,
        mask: Vec<bool>,
        values: LaneOptions,
        recorded: bool,
    ) -> Result<(), StepError> {
        let lanes = self.lanes();
        if !mask.is_empty() && mask.len() != lanes {
            return Err(StepError::Length { what: "mask flags", given: mask.len(), wanted: lanes });
        }
        self.check_lanes(&(0..lanes))?;
        Change::check(&values, lanes)?;
        let wanted = Box::new(move |row: usize| mask.get(row).copied().unwrap_or(true));
        let change = Change { values, first: 0, wanted, begins: true };
        if recorded && self.entry.draws_options() {
            return self.give_with_episodes(change, true);
        }
        self.change_options(change)
    }

    /// Ends the log, because whoever keeps it does not know what lanes are given.
    ///
    /// # Errors
    /// Only [`StepError::Hung`].
    pub fn spoil_log(&mut self) -> Result<(), StepError> {
        self.lockstep()?;
        self.end_log()
    }

    /// Changes the options of lanes. Those of lanes that are about to begin an episode leave the log as it is.
    pub(crate) fn change_options(&mut self, change: Change) -> Result<(), StepError> {
        if self.is_recording() && !change.begins {
            return Err(OptionsError::Recorded.into());
        }
        if change.begins && self.entry.draws_options() {
            let recorded = self.is_recording();
            return self.give_with_episodes(change, recorded);
        }
        if self.entry.is_late() {
            return self.change_late_options(&change);
        }
        let begins = change.begins;
        let remade: Arc<Mutex<RemadeBlocks>> = Arc::default();
        let made = Arc::clone(&remade);
        self.on_blocks(false, move |block, _| {
            let result = block.remade(&change);
            made.lock().insert(block.rows().start, result);
        })?;
        let mut results = remade.lock();
        let results: Result<BTreeMap<_, _>, OptionsError> =
            std::mem::take(&mut *results).into_iter().map(|(row, result)| Ok((row, result?))).collect();
        let results = Mutex::new(results?);
        if !begins {
            self.end_log()?;
        }
        self.on_blocks(false, move |block, _| {
            let remade = results.lock().remove(&block.rows().start);
            if let Some(remade) = remade.flatten() {
                block.adopt(remade);
            }
        })
    }

    /// Gives lanes the options of a change with the episodes that they begin next, after all have been tried.
    fn give_with_episodes(&mut self, change: Change, recorded: bool) -> Result<(), StepError> {
        let change = Arc::new(change);
        let given: Arc<Mutex<GivenBlocks>> = Arc::default();
        let (asked, found) = (Arc::clone(&change), Arc::clone(&given));
        self.on_blocks(false, move |block, _| {
            let result = block.options_to_give(&asked, recorded);
            found.lock().insert(block.rows().start, result);
        })?;
        let results = std::mem::take(&mut *given.lock());
        let results = results.into_iter().map(|(row, result)| Ok((row, result?)));
        let results: BTreeMap<_, _> = results.collect::<Result<_, OptionsError>>()?;
        if self.entry.is_late() {
            let each = results.values().flat_map(|(lanes, all)| lanes.into_iter().map(|lane| &all[lane]));
            try_late(&self.entry, self.config.instruction_set, each)?;
        }
        let results = Mutex::new(results);
        self.on_blocks(false, move |block, _| {
            if let Some((lanes, options)) = results.lock().remove(&block.rows().start) {
                block.give_with_episodes(lanes, options);
            }
        })
    }

    /// Returns the exact states of those lanes, in an order that the env documents.
    ///
    /// # Errors
    /// [`StepError::State`], and what [`Engine::options`] says.
    pub fn states(&mut self, lanes: Range<usize>) -> Result<Vec<Vec<f64>>, StepError> {
        let first = lanes.start;
        of_lanes(first, self.each_lane(lanes, |block, lane| block.state(lane))?)
    }

    /// Returns the positions of those lanes' generators.
    ///
    /// # Errors
    /// As [`Engine::states`].
    pub fn positions(&mut self, lanes: Range<usize>) -> Result<Vec<Start>, StepError> {
        let first = lanes.start;
        of_lanes(first, self.each_lane(lanes, |block, lane| block.position(lane))?)
    }

    /// Puts lanes into states: row i of `states` is for lane `lanes.start + i`. Observations show it after the next
    /// step; episodes and generators go on.
    ///
    /// # Errors
    /// [`StepError::Options`] of recorded lanes, whose episodes could not be recomputed; [`StepError::Length`];
    /// [`StepError::State`], when lanes before the one that is named have changed; what [`Engine::options`] says.
    pub fn set_states(&mut self, lanes: Range<usize>, states: Vec<Vec<f64>>) -> Result<(), StepError> {
        if states.len() != lanes.len() {
            return Err(StepError::Length { what: "states", given: states.len(), wanted: lanes.len() });
        }
        if self.is_recording() {
            return Err(OptionsError::Recorded.into());
        }
        self.check_lanes(&lanes)?;
        self.end_log()?;
        let first = lanes.start;
        let set = self.each_lane(lanes, move |block, lane| {
            let row = block.rows().start + lane;
            block.set_state(lane, &states[row - first])
        })?;
        match set.into_iter().enumerate().find_map(|(at, set)| Some((at, set.err()?))) {
            Some((at, source)) => Err(StepError::State { lane: first + at, source }),
            None => Ok(()),
        }
    }

    /// Draws an image of a lane as it is now, of that size or of the env's own.
    ///
    /// # Errors
    /// [`StepError::Render`], and what [`Engine::options`] says.
    pub fn render(&mut self, lane: usize, size: Option<ImageSize>) -> Result<Image, StepError> {
        let drawn = self.each_lane(lane..lane + 1, move |block, lane| block.render(lane, size))?;
        let drawn = drawn.into_iter().next().unwrap_or(Err(RenderError::Lost));
        drawn.map_err(|source| StepError::Render { lane, source })
    }

    /// Describes a lane as it is now, in one line of at most `columns` ASCII characters.
    ///
    /// # Errors
    /// As [`Engine::render`].
    pub fn text(&mut self, lane: usize, columns: usize) -> Result<String, StepError> {
        let said = self.each_lane(lane..lane + 1, move |block, lane| block.text(lane, columns))?;
        let said = said.into_iter().next().unwrap_or(Err(RenderError::Lost));
        said.map_err(|source| StepError::Render { lane, source })
    }

    /// Returns the results of `look` for each of those lanes, in their order.
    pub(crate) fn each_lane<T: Send + 'static>(
        &mut self,
        lanes: Range<usize>,
        look: impl Fn(&mut crate::block::Block, usize) -> T + Send + Sync + 'static,
    ) -> Result<Vec<T>, StepError> {
        self.check_lanes(&lanes)?;
        let found: Arc<Mutex<BTreeMap<usize, Vec<T>>>> = Arc::default();
        let collect = Arc::clone(&found);
        self.on_blocks(false, move |block, _| {
            let rows = block.rows().clone();
            let wanted = rows.start.max(lanes.start)..rows.end.min(lanes.end);
            if !wanted.is_empty() {
                let part = wanted.map(|row| look(block, row % BLOCK_LANES)).collect();
                collect.lock().insert(rows.start, part);
            }
        })?;
        let mut found = found.lock();
        Ok(std::mem::take(&mut *found).into_values().flatten().collect())
    }

    /// Refuses lanes that the batch does not have, and all lanes while others are under way: looking between two steps
    /// ends first-done mode, and would drop results that were not received.
    pub(crate) fn check_lanes(&mut self, lanes: &Range<usize>) -> Result<(), StepError> {
        if lanes.start > lanes.end || lanes.end > self.lanes() {
            return Err(StepError::NoSuchLane { lane: lanes.end.max(lanes.start), lanes: self.lanes() });
        }
        self.refuse_outstanding()?;
        self.lockstep()
    }
}

/// Returns the values of the lanes from `first` on, or the error of the first lane that has none.
fn of_lanes<T>(first: usize, found: Vec<Result<T, StateError>>) -> Result<Vec<T>, StepError> {
    let found = found.into_iter().enumerate();
    found.map(|(at, one)| one.map_err(|source| StepError::State { lane: first + at, source })).collect()
}

/// Envs that were made anew, by the first rows of their blocks.
type RemadeBlocks = BTreeMap<usize, Result<Option<Remade>, OptionsError>>;

/// Lanes that are given options, and the options of all lanes of their blocks then, by the first rows of these.
type GivenBlocks = BTreeMap<usize, Result<(LaneSet, Vec<Options>), OptionsError>>;

impl From<OptionsError> for StepError {
    fn from(error: OptionsError) -> Self {
        Self::Options(error)
    }
}

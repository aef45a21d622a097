//! Access to single lanes of a block between two steps: options, states, images.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rollhouse_core::limits::{MAX_EPISODE_OPTIONS_BYTES, MAX_LANE_WORDS_BYTES};
use rollhouse_core::{Interruption, LaneSet, Options, SeedSchedule, Start, panic_message};
use rollhouse_env::{BlockEnv, Image, ImageSize, RenderError, StateError};

use super::Block;
use super::containing::{Called, contain, discard};
use crate::glance::Glance;
use crate::options::{Change, OptionsError};
use crate::words::LaneWords;

/// Env of a block, made anew with other options and not yet in use.
pub(crate) struct Remade {
    options: Vec<Options>,
    /// The new env; `None` while the whole block is lost.
    env: Option<BlockEnv>,
}

impl Block {
    /// Returns the options of a lane: of those that are drawn, what its newest episode has drawn.
    pub(crate) fn options(&self, lane: usize) -> Options {
        self.maker.options[lane].of_episode(self.starts.of[lane])
    }

    /// Notes which lanes have options that are drawn.
    pub(crate) fn note_drawn(&mut self) {
        let options = self.maker.options.iter().enumerate();
        let drawing = options.filter(|(_, options)| options.are_drawn()).map(|(lane, _)| lane);
        self.starts.draw_options(drawing.collect());
    }

    /// Gives lanes options for their next episodes, which have been tried. Recordings have them from there on.
    pub(crate) fn give_with_episodes(&mut self, lanes: LaneSet, options: Vec<Options>) {
        self.maker.options = options;
        self.starts.given |= lanes;
        self.note_drawn();
        self.record_options(lanes);
    }

    /// Returns the lanes of a change and the options of all lanes after it, which the block has been made with once, unless
    /// its lanes are late.
    pub(crate) fn options_to_give(
        &self,
        change: &Change,
        recorded: bool,
    ) -> Result<(LaneSet, Vec<Options>), OptionsError> {
        let lanes = self.wanted(change);
        let options = self.options_after(change)?;
        self.try_options(lanes, &options, recorded)?;
        Ok((lanes, options))
    }

    /// Tries options of lanes, which their recording, if they are `recorded`, has with each episode.
    pub(super) fn try_options(
        &self,
        lanes: LaneSet,
        options: &[Options],
        recorded: bool,
    ) -> Result<(), OptionsError> {
        for lane in lanes.into_iter().filter(|_| recorded) {
            let bytes = options[lane].bytes();
            if bytes > MAX_EPISODE_OPTIONS_BYTES {
                return Err(OptionsError::TooLarge { lane: self.lanes.row(lane), bytes });
            }
        }
        if lanes.is_empty() || self.maker.entry.is_late() {
            return Ok(());
        }
        let tried: Vec<_> = lanes.into_iter().map(|lane| options[lane].clone()).collect();
        let make = || self.maker.make_with(&tried).map(|env| discard(Some(env)));
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(made) => made.map_err(|error| self.cannot_be_made(error.to_string())),
            Err(panic) => Err(self.cannot_be_made(panic_message(&*panic))),
        }
    }

    /// Draws the options of the episodes that begin in `lanes`, or takes those that they were given, and gives them to the env. Returns the lanes that are
    /// lost by it: whose env cannot work with them, though it could with the ends of what is drawn.
    #[inline(never)]
    pub(super) fn draw_options(&mut self, lanes: LaneSet) -> LaneSet {
        let Self { env, starts, maker, .. } = self;
        let called = contain(env, |env| {
            let mut refused = LaneSet::NONE;
            for lane in lanes {
                if starts.schedule == SeedSchedule::Continue {
                    let position = env.position(lane);
                    let drawn = maker.options[lane].are_drawn();
                    let start = if drawn { starts.next(lane, position) } else { position };
                    if start != position {
                        env.restore(lane, start);
                    }
                    starts.of[lane] = start;
                }
                let given = env.set_options(lane, &maker.options[lane].of_episode(starts.of[lane]));
                refused.insert_if(lane, given.is_err());
            }
            starts.fresh &= !lanes;
            refused | env.take_failed()
        });
        let Some(lost) = self.heed(called) else { return lanes };
        self.lose_each(lost, Interruption::Crashed);
        if !(self.starts.given & lanes & !lost).is_empty() {
            self.starts.given &= !(lanes & !lost);
            self.note_drawn();
        }
        lost & lanes
    }

    /// Makes the env with the options of a change, in the state it is in. Returns `None` if nothing changes in this
    /// block. The new env is not in use yet.
    pub(crate) fn remade(&mut self, change: &Change) -> Result<Option<Remade>, OptionsError> {
        let wanted = self.wanted(change);
        if wanted.is_empty() {
            return Ok(None);
        }
        let options = self.options_after(change)?;
        if self.env.is_none() {
            return Ok(Some(Remade { options, env: None }));
        }
        let make = || self.maker.make_with(&options);
        let made = match catch_unwind(AssertUnwindSafe(make)) {
            Ok(made) => made.map_err(|error| self.cannot_be_made(error.to_string())),
            Err(panic) => Err(self.cannot_be_made(panic_message(&*panic))),
        };
        self.carried(self.beginning(change), options, made?).map(Some)
    }

    /// Returns the options of the block's lanes after a change.
    pub(crate) fn options_after(&self, change: &Change) -> Result<Vec<Options>, OptionsError> {
        let mut options = self.maker.options.clone();
        for lane in self.wanted(change) {
            let row = self.lanes.row(lane);
            options[lane] = change.apply(&self.maker.entry.spec().options, row, &options[lane])?;
        }
        Ok(options)
    }

    /// Refuses a change of lanes that play and are not about to begin an episode.
    pub(crate) fn check_between_episodes(&self, change: &Change) -> Result<(), OptionsError> {
        let playing = if change.begins { LaneSet::NONE } else { self.wanted(change) & self.episodes.open() };
        match playing.lowest() {
            None => Ok(()),
            Some(lane) => {
                Err(OptionsError::State { lane: self.lanes.row(lane), source: StateError::Unsupported })
            }
        }
    }

    /// Gives lanes that a change names their options, which have been tried, for their next episodes.
    pub(crate) fn give_options(
        &mut self,
        change: &Change,
        options: Vec<Options>,
    ) -> Result<(), OptionsError> {
        for lane in self.wanted(change) {
            let given = self.ask(|env| env.set_options(lane, &options[lane].before_episodes()));
            if let Some(Err(error)) = given {
                // It has no use with either options before it is made anew.
                self.lose_failed(LaneSet::one(lane));
                return Err(self.cannot_be_made(error.to_string()));
            }
            if self.env.is_none() {
                return Err(self.cannot_be_made("it panicked, or has before".to_owned()));
            }
        }
        self.maker.options = options;
        self.note_drawn();
        Ok(())
    }

    /// Puts a new env, which was made with `options`, into the state of the present one, but for lanes that `begin` an
    /// episode.
    pub(crate) fn carried(
        &mut self,
        begin: LaneSet,
        options: Vec<Options>,
        env: BlockEnv,
    ) -> Result<Remade, OptionsError> {
        if self.env.is_none() {
            return Ok(Remade { options, env: None });
        }
        if let Some(lane) = self.restarts.lost().lowest() {
            return Err(OptionsError::Lost { lane: self.lanes.row(lane) });
        }
        let begun = (self.episodes.open() | self.standing.waiting) & self.lanes.all();
        let kept = begun & !begin;
        let count = self.lanes.count();
        let old = self.ask(|old| {
            let positions: Vec<_> = (0..count).map(|lane| old.position(lane)).collect();
            let states: Vec<_> = kept.into_iter().map(|lane| (lane, old.state(lane))).collect();
            (positions, states)
        });
        let lost = self.restarts.lost().lowest();
        let (Some((positions, states)), None) = (old, lost) else {
            return Err(OptionsError::Lost { lane: self.lanes.row(lost.unwrap_or(0)) });
        };
        let mut env = Some(env);
        let carried = contain(&mut env, |env| {
            for (lane, position) in positions.into_iter().enumerate() {
                env.restore(lane, position);
            }
            for lane in kept.into_iter().filter(|&lane| options[lane].are_drawn()) {
                let given = env.set_options(lane, &options[lane].of_episode(self.starts.of[lane]));
                given.map_err(|error| self.cannot_be_made(error.to_string()))?;
            }
            for (lane, state) in states {
                let carried = state.and_then(|state| env.set_state(lane, &state));
                carried.map_err(|source| OptionsError::State { lane: self.lanes.row(lane), source })?;
            }
            Ok(())
        });
        match carried {
            Called::Answered(carried) => carried?,
            Called::Panicked | Called::Gone => {
                return Err(self.cannot_be_made("it panics with the states of lanes that play".to_owned()));
            }
        }
        Ok(Remade { options, env })
    }

    /// Returns the lanes of a change that begin an episode before they have its options.
    pub(crate) fn beginning(&self, change: &Change) -> LaneSet {
        if change.begins { self.wanted(change) } else { LaneSet::NONE }
    }

    /// Returns the lanes of the block that a change names.
    fn wanted(&self, change: &Change) -> LaneSet {
        self.lanes.in_rows(|row| (change.wanted)(row))
    }

    const fn cannot_be_made(&self, message: String) -> OptionsError {
        OptionsError::Make { lane: self.lanes.row(0), message }
    }

    /// Puts the env that [`Block::remade`] made into use.
    pub(crate) fn adopt(&mut self, remade: Remade) {
        self.maker.options = remade.options;
        self.record_options(self.lanes.all());
        discard(std::mem::replace(&mut self.env, remade.env));
        self.note_drawn();
    }

    /// Takes the env out of a block that has done nothing, whose lanes go on in another engine.
    pub(crate) fn take_env(&mut self) -> Option<BlockEnv> {
        self.env.take()
    }

    /// Sets the lanes whose episodes' starts are noted from now on.
    pub(crate) const fn watch(&mut self, lanes: LaneSet) {
        self.starts.watched = lanes;
    }

    /// Returns a view of a lane between two steps.
    pub(crate) fn glance(&mut self, lane: usize) -> Glance {
        let hash = self.ask_lane(lane, |env| env.state_hash(lane));
        let (position, state) = (self.position(lane).ok(), self.state(lane).ok());
        Glance { position, state, hash, ..self.glance_beside(lane) }
    }

    /// Returns what is known of a lane without asking its env, which may be stepping others in another process.
    pub(crate) fn glance_beside(&self, lane: usize) -> Glance {
        let open = self.episodes.open().has(lane);
        let next = self.episodes.next_number(lane);
        Glance {
            open,
            number: if open { next.wrapping_sub(1) } else { next },
            steps: if open { self.episodes.age(lane) } else { 0 },
            total_reward: if open { self.episodes.returns()[lane] } else { 0.0 },
            last: self.episodes.last(lane).map(|last| (last.length, last.total_reward)),
            start: self.starts.of[lane],
            position: None,
            state: None,
            hash: None,
        }
    }

    /// Returns a lane's exact state.
    pub(crate) fn state(&mut self, lane: usize) -> Result<Vec<f64>, StateError> {
        self.ask_lane(lane, |env| env.state(lane)).unwrap_or(Err(StateError::Lost))
    }

    /// Returns the position of a lane's generator.
    pub(crate) fn position(&mut self, lane: usize) -> Result<Start, StateError> {
        self.ask_lane(lane, |env| env.position(lane)).ok_or(StateError::Lost)
    }

    /// Puts a lane into a state; the lane's observation shows it after the next step.
    pub(crate) fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        self.ask_lane(lane, |env| env.set_state(lane, state)).unwrap_or(Err(StateError::Lost))
    }

    /// Draws an image of a lane, of that size or of the env's own.
    pub(crate) fn render(&mut self, lane: usize, size: Option<ImageSize>) -> Result<Image, RenderError> {
        if self.is_lost(lane) {
            return Err(RenderError::Lost);
        }
        let size = size.or(self.maker.entry.render_size()).ok_or(RenderError::Unsupported)?;
        self.ask_lane(lane, |env| env.render(lane, size)).unwrap_or(Err(RenderError::Lost))
    }

    /// Describes a lane in one line of text.
    pub(crate) fn text(&mut self, lane: usize, columns: usize) -> Result<String, RenderError> {
        self.ask_lane(lane, |env| env.text(lane, columns)).unwrap_or(Err(RenderError::Lost))
    }

    /// Asks the env of a lane for something; returns `None` if the lane is lost, before or by it.
    fn ask_lane<T>(&mut self, lane: usize, ask: impl FnOnce(&mut BlockEnv) -> T) -> Option<T> {
        if self.is_lost(lane) {
            return None;
        }
        let answer = self.ask(ask)?;
        if self.is_lost(lane) { None } else { Some(answer) }
    }

    /// Returns what a lane that is not under way says in words, cut to what is sent of them.
    pub(crate) fn words(&mut self, lane: usize) -> LaneWords {
        let is_lost = self.is_lost(lane);
        let said = self.with_late(|env| if is_lost { env.why_lost(lane) } else { env.further_infos(lane) });
        let mut said = said.flatten();
        if is_lost {
            said.iter_mut().for_each(|why| why.truncate(why.floor_char_boundary(MAX_LANE_WORDS_BYTES)));
            return LaneWords { lost: said, ..LaneWords::default() };
        }
        LaneWords { infos: said.filter(|infos| infos.len() <= MAX_LANE_WORDS_BYTES), ..LaneWords::default() }
    }

    pub(super) const fn is_lost(&self, lane: usize) -> bool {
        self.restarts.lost().has(lane)
    }
}

//! Access to single lanes of a block between two steps: options, states, images.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rollhouse_core::{Interruption, LaneSet, Options, SeedSchedule, Start, panic_message};
use rollhouse_env::{BatchEnv, Image, ImageSize, RenderError, StateError};

use super::Block;
use crate::glance::Glance;
use crate::options::{Change, OptionsError};

/// Env of a block, made anew with other options and not yet in use.
pub(crate) struct Remade {
    options: Vec<Options>,
    /// The new env; `None` while the whole block is lost.
    env: Option<Box<dyn BatchEnv>>,
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

    /// Draws the options of the episodes that begin in `lanes` and gives them to the env. Returns the lanes that are
    /// lost by it: whose env cannot work with them, though it could with the ends of what is drawn.
    #[inline(never)]
    pub(super) fn draw_options(&mut self, lanes: LaneSet) -> LaneSet {
        let mut lost = LaneSet::NONE;
        for lane in lanes {
            let Some(env) = &mut self.env else { break };
            let (starts, options) = (&mut self.starts, &self.maker.options[lane]);
            let given = catch_unwind(AssertUnwindSafe(|| {
                if starts.schedule == SeedSchedule::Continue {
                    let position = env.position(lane);
                    let start = starts.next(lane, position);
                    if start != position {
                        env.restore(lane, start);
                    }
                    starts.of[lane] = start;
                }
                env.set_options(lane, &options.of_episode(starts.of[lane]))
            }));
            match given {
                Ok(Ok(())) => {}
                Ok(Err(_)) => lost.insert(lane),
                Err(_) => {
                    self.env = None;
                    self.lose(self.lanes.all(), Interruption::Crashed);
                    return lanes;
                }
            }
        }
        self.starts.fresh &= !lanes;
        self.lose_each(lost, Interruption::Crashed);
        lost
    }

    /// Makes the env with the options of a change, in the state it is in. Returns `None` if nothing changes in this
    /// block. The new env is not in use yet.
    pub(crate) fn remade(&self, change: &Change) -> Result<Option<Remade>, OptionsError> {
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
        self.carried(change, options, made?).map(Some)
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
        let playing = if change.forget { LaneSet::NONE } else { self.wanted(change) & self.episodes.open() };
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
            let Some(env) = &mut self.env else { break };
            let given = env.set_options(lane, &options[lane].before_episodes());
            given.map_err(|error| self.cannot_be_made(error.to_string()))?;
        }
        self.maker.options = options;
        self.note_drawn();
        Ok(())
    }

    /// Puts a new env, which was made with `options`, into the state of the present one.
    pub(crate) fn carried(
        &self,
        change: &Change,
        options: Vec<Options>,
        mut env: Box<dyn BatchEnv>,
    ) -> Result<Remade, OptionsError> {
        let Some(old) = &self.env else { return Ok(Remade { options, env: None }) };
        if let Some(lane) = self.restarts.lost().lowest() {
            return Err(OptionsError::Lost { lane: self.lanes.row(lane) });
        }
        let begun = (self.episodes.open() | self.standing.waiting) & self.lanes.all();
        let kept = if change.forget { begun & !self.wanted(change) } else { begun };
        let carry = || {
            for lane in 0..self.lanes.count() {
                env.restore(lane, old.position(lane));
            }
            for lane in kept.into_iter().filter(|&lane| options[lane].are_drawn()) {
                let given = env.set_options(lane, &options[lane].of_episode(self.starts.of[lane]));
                given.map_err(|error| self.cannot_be_made(error.to_string()))?;
            }
            for lane in kept {
                let carried = old.state(lane).and_then(|state| env.set_state(lane, &state));
                carried.map_err(|source| OptionsError::State { lane: self.lanes.row(lane), source })?;
            }
            Ok(())
        };
        match catch_unwind(AssertUnwindSafe(carry)) {
            Ok(carried) => carried?,
            Err(panic) => return Err(self.cannot_be_made(panic_message(&*panic))),
        }
        Ok(Remade { options, env: Some(env) })
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
        self.env = remade.env;
        self.note_drawn();
    }

    /// Takes the env out of a block that has done nothing, whose lanes go on in another engine.
    pub(crate) fn take_env(&mut self) -> Option<Box<dyn BatchEnv>> {
        self.env.take()
    }

    /// Sets the lanes whose episodes' starts are noted from now on.
    pub(crate) const fn watch(&mut self, lanes: LaneSet) {
        self.starts.watched = lanes;
    }

    /// Returns a view of a lane between two steps.
    pub(crate) fn glance(&self, lane: usize) -> Glance {
        let env = self.env.as_ref().filter(|_| !self.is_lost(lane));
        // A panic that only reads leaves the env as it was.
        let hash = env.and_then(|env| catch_unwind(AssertUnwindSafe(|| env.state_hash(lane))).ok());
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
            start: self.starts.of[lane],
            position: None,
            state: None,
            hash: None,
        }
    }

    /// Returns a lane's exact state.
    pub(crate) fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        let Some(env) = self.env.as_ref().filter(|_| !self.is_lost(lane)) else {
            return Err(StateError::Lost);
        };
        // A panic that only reads leaves the env as it was.
        catch_unwind(AssertUnwindSafe(|| env.state(lane))).unwrap_or(Err(StateError::Unsupported))
    }

    /// Returns the position of a lane's generator.
    pub(crate) fn position(&self, lane: usize) -> Result<Start, StateError> {
        let Some(env) = self.env.as_ref().filter(|_| !self.is_lost(lane)) else {
            return Err(StateError::Lost);
        };
        catch_unwind(AssertUnwindSafe(|| Ok(env.position(lane)))).unwrap_or(Err(StateError::Unsupported))
    }

    /// Puts a lane into a state; the lane's observation shows it after the next step.
    pub(crate) fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        let lost = self.is_lost(lane);
        let Some(env) = self.env.as_mut().filter(|_| !lost) else { return Err(StateError::Lost) };
        match catch_unwind(AssertUnwindSafe(|| env.set_state(lane, state))) {
            Ok(set) => set,
            Err(_) => {
                self.env = None;
                self.lose(self.lanes.all(), Interruption::Crashed);
                self.show();
                Err(StateError::Lost)
            }
        }
    }

    /// Draws an image of a lane, of that size or of the env's own.
    pub(crate) fn render(&self, lane: usize, size: Option<ImageSize>) -> Result<Image, RenderError> {
        let Some(env) = self.env.as_ref().filter(|_| !self.is_lost(lane)) else {
            return Err(RenderError::Lost);
        };
        let size = size.or(self.maker.entry.render_size()).ok_or(RenderError::Unsupported)?;
        catch_unwind(AssertUnwindSafe(|| env.render(lane, size))).unwrap_or(Err(RenderError::Unsupported))
    }

    /// Describes a lane in one line of text.
    pub(crate) fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        let Some(env) = self.env.as_ref().filter(|_| !self.is_lost(lane)) else {
            return Err(RenderError::Lost);
        };
        catch_unwind(AssertUnwindSafe(|| env.text(lane, columns))).unwrap_or(Err(RenderError::Unsupported))
    }

    pub(super) const fn is_lost(&self, lane: usize) -> bool {
        self.restarts.lost().has(lane)
    }
}

//! An adapter that makes a [`BatchEnv`] of any [`Env`].

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrayvec::ArrayVec;
use rollhouse_core::limits::MAX_OBS_COLUMNS;
use rollhouse_core::{ColumnMut, LaneSet, ObservationSpace, Options, Start, Verdict, panic_message};

use crate::{
    BatchEnv, BlockStep, CallError, Ended, Env, Generator, Image, ImageSize, LaneBlock, MakeError,
    RenderError, StateError,
};

/// A block of separate [`Env`]s, each with its own generator.
///
/// A panic is caught and loses that lane alone: it is reported in [`Ended::lost`] (or by the result of another call, or by
/// [`LaneBlock::take_failed`]), dropped, and not called again until [`LaneBlock::revive`] has made a new one. The
/// generator of a lost lane stays where the panic left it.
pub struct PerLane<E> {
    lanes: Vec<Lane<E>>,
    make: Box<MakeEnv<E>>,
    counts: Arc<[Count]>,
}

/// Column of an observation that says how many items a text or a sequence has: its index and path, and the most that there are.
#[derive(Debug)]
struct Count {
    column: usize,
    path: String,
    most: i64,
}

impl Count {
    /// Panics if the row says another number of items than there can be: whoever reads them would read too many.
    fn check(&self, obs: &[ColumnMut<'_>]) {
        let given = obs.get(self.column).and_then(|column| column.as_ref().as_i64()?.first());
        let (path, most) = (&self.path, self.most);
        let fits = given.is_some_and(|given| (0..=most).contains(given));
        assert!(fits, "observation `{path}` is {given:?}, must be a number of items from 0 to {most}");
    }
}

type MakeEnv<E> = dyn Fn(&Options) -> Result<E, MakeError> + Send + Sync;

struct Lane<E> {
    /// Env of the lane; None while the lane is lost.
    env: Option<E>,
    /// True if the env panicked in a call that could not report it. It is not called again.
    failed: Cell<bool>,
    generator: Generator,
    options: Options,
}

impl<E: Env> PerLane<E> {
    /// Makes one lane for each element of `options`; `make` is kept for reviving lost lanes.
    ///
    /// # Errors
    /// The error of `make`. Its panics are not caught.
    pub fn new(
        options: &[Options],
        make: impl Fn(&Options) -> Result<E, MakeError> + Send + Sync + 'static,
    ) -> Result<Self, MakeError> {
        let lanes = options.iter().enumerate().map(|(lane, options)| {
            let env = make(options).map_err(|error| error.in_lane(lane))?;
            let (generator, options) = (Generator::seeded(0), options.clone());
            Ok(Lane { env: Some(env), failed: Cell::new(false), generator, options })
        });
        Ok(Self { lanes: lanes.collect::<Result<_, _>>()?, make: Box::new(make), counts: Arc::new([]) })
    }

    /// Has the lanes' observations be of this space: a lane that says a wrong number of items of a text or a sequence panics.
    #[must_use]
    pub fn observing(self, space: &ObservationSpace) -> Self {
        let columns = space.columns();
        let count = |(column, most)| Count { column, path: columns[column].0.clone(), most: most as i64 };
        Self { counts: space.counts().into_iter().map(count).collect(), ..self }
    }
}

impl<E: Env> Lane<E> {
    /// Calls the env; returns None if the lane is lost already or by this call.
    fn call<T>(&mut self, call: impl FnOnce(&mut E, &mut Generator) -> T) -> Option<T> {
        let mut env = self.env.take()?;
        if self.failed.replace(false) {
            discard(env);
            return None;
        }
        // Unwind safety: on a panic the env is dropped, and a generator or an output row is never in a state
        // that breaks an invariant; lost lanes' rows mean nothing.
        match catch_unwind(AssertUnwindSafe(|| call(&mut env, &mut self.generator))) {
            Ok(value) => {
                self.env = Some(env);
                Some(value)
            }
            Err(_) => {
                discard(env);
                None
            }
        }
    }

    /// Asks the env for something in a call that cannot report a failure; returns None if the lane is lost already or
    /// by this call.
    fn ask<T>(&self, ask: impl FnOnce(&E) -> T) -> Option<T> {
        let env = self.env.as_ref().filter(|_| !self.failed.get())?;
        let answer = catch_unwind(AssertUnwindSafe(|| ask(env)));
        self.failed.set(answer.is_err());
        answer.ok()
    }
}

/// Drops an env. A destructor that panics must not take the other lanes along.
fn discard<E>(env: E) {
    let _ = catch_unwind(AssertUnwindSafe(move || drop(env)));
}

impl<E: Env> LaneBlock for PerLane<E> {
    fn lanes(&self) -> usize {
        self.lanes.len()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.lanes[lane].generator = Generator::seeded(seed);
    }

    fn position(&self, lane: usize) -> Start {
        self.lanes[lane].generator.position()
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.lanes[lane].generator = Generator::at(start);
    }

    fn set_options(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        let slot = &mut self.lanes[lane];
        slot.failed.set(false);
        slot.env.take().into_iter().for_each(discard);
        let made = catch_unwind(AssertUnwindSafe(|| (self.make)(options)));
        let made =
            made.unwrap_or_else(|panic| Err(MakeError::Refused { source: panic_message(&*panic).into() }));
        slot.env = Some(made.map_err(|error| error.in_lane(lane))?);
        slot.options.clone_from(options);
        Ok(())
    }

    fn state_hash(&self, lane: usize) -> u32 {
        self.lanes[lane].ask(Env::state_hash).unwrap_or(0)
    }

    fn has_verdicts(&self) -> bool {
        true
    }

    fn verdict(&self, lane: usize) -> Verdict {
        let slot = &self.lanes[lane];
        let env = slot.env.as_ref().filter(|_| !slot.failed.get());
        env.and_then(|env| catch_unwind(AssertUnwindSafe(|| env.verdict())).ok()).unwrap_or_default()
    }

    fn take_failed(&mut self) -> LaneSet {
        let mut failed = LaneSet::NONE;
        for (lane, slot) in self.lanes.iter_mut().enumerate().filter(|(_, slot)| slot.failed.get()) {
            slot.failed.set(false);
            slot.env.take().into_iter().for_each(discard);
            failed.insert(lane);
        }
        failed
    }

    fn revive(&mut self, lanes: LaneSet) -> LaneSet {
        let mut revived = LaneSet::NONE;
        for lane in lanes & LaneSet::first(self.lanes.len()) {
            let slot = &mut self.lanes[lane];
            if slot.failed.replace(false) {
                slot.env.take().into_iter().for_each(discard);
            }
            if slot.env.is_some() {
                continue;
            }
            // As in `Lane::call`: a maker that panics leaves nothing behind.
            let made = catch_unwind(AssertUnwindSafe(|| (self.make)(&slot.options)));
            slot.env = made.ok().and_then(Result::ok);
            revived.insert_if(lane, slot.env.is_some());
        }
        revived
    }

    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        self.lanes[lane].ask(Env::state).unwrap_or(Err(StateError::Lost))
    }

    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        let slot = &mut self.lanes[lane];
        let was_there = slot.env.is_some();
        let set = slot.call(|env, _| env.set_state(state));
        slot.failed.set(set.is_none() && was_there);
        set.unwrap_or(Err(StateError::Lost))
    }

    fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, CallError> {
        let called = self.lanes[lane].call(|env, generator| env.call(generator, method, payload));
        called.unwrap_or(Err(CallError::Lost))
    }

    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        self.lanes[lane].ask(|env| env.render(size)).unwrap_or(Err(RenderError::Lost))
    }

    fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        self.lanes[lane].ask(|env| env.text(columns)).unwrap_or(Err(RenderError::Lost))
    }
}

impl<E: Env> BatchEnv for PerLane<E> {
    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
        let count = self.lanes.len();
        let mut lost = LaneSet::NONE;
        for lane in lanes & LaneSet::first(count) {
            let mut obs = Rows::of(obs, lane, count);
            let counts = &self.counts;
            let called = self.lanes[lane].call(|env, generator| {
                env.reset(generator, obs.columns());
                counts.iter().for_each(|count| count.check(obs.columns()));
            });
            lost.insert_if(lane, called.is_none());
        }
        lost
    }

    fn first_infos(&mut self, lanes: LaneSet, infos: &mut [ColumnMut<'_>]) -> LaneSet {
        let count = self.lanes.len();
        let mut lost = LaneSet::NONE;
        for lane in lanes & LaneSet::first(count) {
            let mut infos = Rows::of(infos, lane, count);
            let called = self.lanes[lane].call(|env, _| env.first_infos(infos.columns()));
            lost.insert_if(lane, called.is_none());
        }
        lost
    }

    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        let count = self.lanes.len();
        let mut ended = Ended::default();
        for (lane, slot) in self.lanes.iter_mut().enumerate() {
            step.rewards[lane] = 0.0;
            if step.skip.has(lane) {
                continue;
            }
            let mut obs = Rows::of(step.obs, lane, count);
            if step.reset.has(lane) {
                let begun = slot.call(|env, generator| {
                    env.reset(generator, obs.columns());
                    self.counts.iter().for_each(|count| count.check(obs.columns()));
                });
                if begun.is_none() {
                    ended.lost.insert(lane);
                }
                continue;
            }
            let mut infos = Rows::of(step.infos, lane, count);
            let width = step.actions.len() / count;
            let action = step.actions.slice(lane * width, (lane + 1) * width);
            let stepped = slot.call(|env, generator| {
                let result = env.step(generator, action, obs.columns(), infos.columns());
                self.counts.iter().for_each(|count| count.check(obs.columns()));
                result
            });
            match stepped {
                Some(result) => {
                    step.rewards[lane] = result.reward;
                    ended.terminated.insert_if(lane, result.terminated);
                    ended.truncated.insert_if(lane, result.truncated);
                }
                None => ended.lost.insert(lane),
            }
        }
        ended
    }
}

/// One lane's row of each column, which is held without allocating.
struct Rows<'a> {
    columns: ArrayVec<ColumnMut<'a>, MAX_OBS_COLUMNS>,
}

impl<'a> Rows<'a> {
    /// Returns row `lane` of columns of `lanes` rows.
    fn of(columns: &'a mut [ColumnMut<'_>], lane: usize, lanes: usize) -> Self {
        let row = |column: &'a mut ColumnMut<'_>| {
            let width = column.as_ref().len() / lanes;
            column.slice(lane * width, (lane + 1) * width)
        };
        Self { columns: columns.iter_mut().map(row).collect() }
    }

    fn columns(&mut self) -> &mut [ColumnMut<'a>] {
        &mut self.columns
    }
}

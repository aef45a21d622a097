//! Unrolling many episodes: all their steps are rows of one table, recomputed side by side.
//!
//! An env steps 64 lanes for little more than one, and making it costs more than a short episode. So the episodes share a
//! simulator: each takes a lane as soon as one is free, and its rows have their place in the table from the beginning on.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnData, ColumnSpec, LaneSet, Options};
use rollhouse_env::Registry;

use crate::code::calls::calls_at;
use crate::code::episode::{Episode, Steps};
use crate::play::playback::entry_to_simulate;
use crate::play::recompute::RecomputeError;
use crate::play::simulate::{SimulateError, Simulator};

/// An unroller, which recomputes episodes into an [`Unrolled`] table. It keeps the simulator of the last ones for the
/// next.
#[derive(Debug)]
pub struct Unroller<'a> {
    registry: &'a Registry,
    kept: Option<Kept>,
}

/// A simulator of [`BLOCK_LANES`] lanes, with the env and the options that it was made for.
#[derive(Debug)]
struct Kept {
    env: String,
    dynamics: u64,
    options: Options,
    simulator: Box<Simulator>,
}

/// Observations and rewards of several episodes with the same columns, one after another: for each episode a row of its
/// reset, then one of each step.
#[derive(Debug, Default)]
pub struct Unrolled {
    /// Observation columns, in the spec's order.
    pub obs: Vec<ColumnData>,
    /// Rewards, one per row; 0 in rows of resets.
    pub rewards: Vec<f64>,
    /// First row of each episode.
    pub firsts: Vec<usize>,
    /// Episodes that could not be recomputed, by their place among those that were given; their rows mean nothing.
    pub failed: Vec<(usize, RecomputeError)>,
}

impl<'a> Unroller<'a> {
    /// Makes an unroller, which has no simulator yet.
    pub const fn new(registry: &'a Registry) -> Self {
        Self { registry, kept: None }
    }

    /// Replaces the contents of `table` by all rows of `episodes`, whose observations are the columns `obs`.
    /// Observations that are recorded are copied; others are recomputed, and last state and return of each episode
    /// compared with the recording. Memory is what the rows take: the caller bounds it.
    pub fn unroll(&mut self, obs: &[ColumnSpec], episodes: &[Episode], table: &mut Unrolled) {
        table.lay_out(obs, episodes);
        let mut at = 0;
        while let Some(first) = episodes.get(at) {
            if let Some(steps) = &first.steps {
                table.copy(at, steps, obs);
                at += 1;
                continue;
            }
            let simulator = match self.simulator(first) {
                Ok(simulator) => simulator,
                Err(error) => {
                    table.failed.push((at, error.into()));
                    at += 1;
                    continue;
                }
            };
            let alike = |other: &&Episode| {
                let (one, other) = (&first.info, (&other.info, other.steps.is_none()));
                other.1
                    && other.0.env() == one.env()
                    && other.0.dynamics() == one.dynamics()
                    && other.0.lane_options() == one.lane_options()
            };
            let count = episodes[at..].iter().take_while(alike).count().max(1);
            let lost = Group::new(simulator, at, &episodes[at..at + count], obs).run(table);
            if lost {
                // What panicked is never called again.
                self.kept = None;
            }
            at += count;
        }
        table.failed.sort_by_key(|(at, _)| *at);
    }

    /// Returns the simulator of the episode's env with its options, and makes it if it is not the last one.
    fn simulator(&mut self, episode: &Episode) -> Result<&mut Simulator, SimulateError> {
        let entry = entry_to_simulate(self.registry.into(), episode)?;
        let (info, options) = (&episode.info, episode.info.lane_options());
        let fits = |kept: &Kept| {
            kept.env == info.env() && kept.dynamics == info.dynamics() && kept.options == options
        };
        let kept = match self.kept.take().filter(fits) {
            Some(kept) => kept,
            None => {
                let simulator = Simulator::of(&entry, &info.run.spec, &options, BLOCK_LANES)?;
                let (env, dynamics) = (info.env().to_owned(), info.dynamics());
                Kept { env, dynamics, options, simulator: Box::new(simulator) }
            }
        };
        Ok(&mut self.kept.insert(kept).simulator)
    }
}

impl Unrolled {
    /// Makes a place for each row.
    fn lay_out(&mut self, obs: &[ColumnSpec], episodes: &[Episode]) {
        self.failed.clear();
        self.firsts.clear();
        let mut rows = 0;
        for episode in episodes {
            self.firsts.push(rows);
            rows += episode.info.length as usize + 1;
        }
        let fits = self.obs.len() == obs.len()
            && self.obs.iter().zip(obs).all(|(column, spec)| column.is_of(spec.dtype));
        if !fits {
            self.obs = obs.iter().map(|spec| ColumnData::zeros(spec.dtype, 0)).collect();
        }
        for (column, spec) in self.obs.iter_mut().zip(obs) {
            column.resize(rows * spec.elements());
        }
        self.rewards.clear();
        self.rewards.resize(rows, 0.0);
    }

    /// Copies the rows of a recording that has them.
    fn copy(&mut self, at: usize, steps: &Steps, obs: &[ColumnSpec]) {
        let first = self.firsts[at];
        let parts = self.obs.iter_mut().zip(obs).zip(steps.first_obs.iter().zip(&steps.obs));
        for ((to, spec), (reset, rows)) in parts {
            let elements = spec.elements();
            let from = first * elements;
            let to = &mut to.as_mut();
            // Decoding has checked that there are as many rows as steps.
            let whole = to.slice(from, from + elements).copy_from(reset.as_ref())
                && to.slice(from + elements, from + elements + rows.len()).copy_from(rows.as_ref());
            debug_assert!(whole);
        }
        self.rewards[first + 1..][..steps.rewards.len()].copy_from_slice(&steps.rewards);
    }
}

/// Episodes of one env with the same options, on their way through its lanes.
struct Group<'a> {
    simulator: &'a mut Simulator,
    /// Place of the first of them among all episodes.
    from: usize,
    episodes: &'a [Episode],
    obs: &'a [ColumnSpec],
    next: usize,
    /// Lanes in which an episode is under way.
    busy: LaneSet,
    /// The episode of each lane, the row of its first step, that of its next, and the one after its last.
    lanes: [usize; BLOCK_LANES],
    firsts: [usize; BLOCK_LANES],
    rows: [usize; BLOCK_LANES],
    ends: [usize; BLOCK_LANES],
}

impl<'a> Group<'a> {
    const fn new(
        simulator: &'a mut Simulator,
        from: usize,
        episodes: &'a [Episode],
        obs: &'a [ColumnSpec],
    ) -> Self {
        let none = [0; BLOCK_LANES];
        Self {
            simulator,
            from,
            episodes,
            obs,
            next: 0,
            busy: LaneSet::NONE,
            lanes: none,
            firsts: none,
            rows: none,
            ends: none,
        }
    }

    /// Goes through all episodes of the group; returns true if the env panicked.
    fn run(mut self, table: &mut Unrolled) -> bool {
        loop {
            if !self.fill(table) {
                return true;
            }
            if self.busy.is_empty() {
                if self.next == self.episodes.len() {
                    return false;
                }
                // All that began are over: they have no steps.
                continue;
            }
            if !self.step(table) {
                return true;
            }
        }
    }

    /// Begins waiting episodes in free lanes; returns false if the env panicked.
    fn fill(&mut self, table: &mut Unrolled) -> bool {
        let mut begun = LaneSet::NONE;
        for lane in !self.busy {
            let Some(episode) = self.episodes.get(self.next) else { break };
            self.simulator.restore(lane, episode.info.start);
            let first = table.firsts[self.from + self.next];
            (self.lanes[lane], self.rows[lane]) = (self.next, first);
            (self.firsts[lane], self.ends[lane]) = (first + 1, first + 1 + episode.info.length as usize);
            self.next += 1;
            begun.insert(lane);
        }
        self.busy |= begun;
        if begun.is_empty() {
            return true;
        }
        if self.simulator.reset(begun) != Some(LaneSet::NONE) {
            return self.lose(table);
        }
        self.take_rows(begun, table);
        self.busy &= !self.over(begun);
        true
    }

    /// Steps every lane that has an episode; returns false if the env panicked.
    fn step(&mut self, table: &mut Unrolled) -> bool {
        let elements = self.simulator.action_elements;
        for lane in self.busy {
            let Episode { actions, calls, .. } = &self.episodes[self.lanes[lane]];
            let step = self.rows[lane] - self.firsts[lane];
            match self.simulator.call(lane, calls_at(calls, step as u64)) {
                Ok(()) => {}
                Err(error @ SimulateError::Call { .. }) => {
                    self.busy.remove(lane);
                    table.failed.push((self.from + self.lanes[lane], error.into()));
                    continue;
                }
                Err(_) => return self.lose(table),
            }
            match (&mut self.simulator.actions, actions) {
                (ColumnData::I64(to), ColumnData::I64(from)) if elements == 1 => to[lane] = from[step],
                (to, from) => {
                    to.copy_row(lane, from, step, elements);
                }
            }
        }
        let stepped = self.simulator.step(self.busy);
        for lane in self.simulator.without_action() {
            self.busy.remove(lane);
            let error = self.simulator.bad_action(lane, (self.rows[lane] - self.firsts[lane]) as u64);
            table.failed.push((self.from + self.lanes[lane], error.into()));
        }
        if stepped.is_none_or(|ended| !(ended.lost & self.busy).is_empty()) {
            return self.lose(table);
        }
        for lane in self.busy {
            table.rewards[self.rows[lane]] = self.simulator.rewards[lane];
        }
        self.take_rows(self.busy, table);
        let over = self.over(self.busy);
        if !over.is_empty() {
            self.conclude(over, table);
        }
        true
    }

    /// Copies the observations of lanes to their rows, and goes on to the next ones.
    fn take_rows(&mut self, lanes: LaneSet, table: &mut Unrolled) {
        for ((to, from), spec) in table.obs.iter_mut().zip(&self.simulator.obs).zip(self.obs) {
            scatter(to, from, spec.elements(), lanes, &self.rows);
        }
        for lane in lanes {
            self.rows[lane] += 1;
        }
    }

    /// Returns those of the lanes that have no step left.
    fn over(&self, lanes: LaneSet) -> LaneSet {
        lanes.into_iter().filter(|&lane| self.rows[lane] == self.ends[lane]).collect()
    }

    /// Compares the ends of the episodes of lanes with the recording, and frees the lanes.
    fn conclude(&mut self, lanes: LaneSet, table: &mut Unrolled) {
        self.simulator.hash(lanes);
        self.busy &= !lanes;
        for lane in lanes {
            let at = self.lanes[lane];
            let episode = &self.episodes[at];
            let first = table.firsts[self.from + at] + 1;
            let rewards = &table.rewards[first..first + episode.info.length as usize];
            let state_differs = episode.end_hash.is_some_and(|hash| hash != self.simulator.hashes[lane]);
            let checked = match state_differs {
                true => Err(episode.differs("state", episode.info.length)),
                false => episode.check_return(rewards),
            };
            table.failed.extend(checked.err().map(|error| (self.from + at, error)));
        }
    }

    /// Marks all episodes under way and waiting as failed, because the env has panicked. Returns false.
    #[cold]
    fn lose(&mut self, table: &mut Unrolled) -> bool {
        let steps = |lane: usize| self.rows[lane].saturating_sub(self.firsts[lane]) as u64;
        let under_way = self.busy.into_iter().map(|lane| (self.lanes[lane], steps(lane)));
        let waiting = (self.next..self.episodes.len()).map(|at| (at, 0));
        let failed = under_way
            .chain(waiting)
            .map(|(at, steps)| (self.from + at, RecomputeError::from(SimulateError::Panicked { steps })));
        table.failed.extend(failed);
        false
    }
}

/// Copies the rows of lanes to their places.
fn scatter(
    to: &mut ColumnData,
    from: &ColumnData,
    elements: usize,
    lanes: LaneSet,
    rows: &[usize; BLOCK_LANES],
) {
    match (to, from) {
        (ColumnData::U8(to), ColumnData::U8(from)) => scatter_rows(to, from, elements, lanes, rows),
        (ColumnData::I32(to), ColumnData::I32(from)) => scatter_rows(to, from, elements, lanes, rows),
        (ColumnData::I64(to), ColumnData::I64(from)) => scatter_rows(to, from, elements, lanes, rows),
        (ColumnData::F32(to), ColumnData::F32(from)) => scatter_rows(to, from, elements, lanes, rows),
        (ColumnData::F64(to), ColumnData::F64(from)) => scatter_rows(to, from, elements, lanes, rows),
        _ => debug_assert!(false, "the table was laid out for these columns"),
    }
}

/// Copies the rows of lanes to their places. Rows of few elements are copied as arrays, without a call for each.
fn scatter_rows<V: Copy>(
    to: &mut [V],
    from: &[V],
    elements: usize,
    lanes: LaneSet,
    rows: &[usize; BLOCK_LANES],
) {
    match elements {
        1 => scatter_arrays::<V, 1>(to, from, lanes, rows),
        2 => scatter_arrays::<V, 2>(to, from, lanes, rows),
        3 => scatter_arrays::<V, 3>(to, from, lanes, rows),
        4 => scatter_arrays::<V, 4>(to, from, lanes, rows),
        6 => scatter_arrays::<V, 6>(to, from, lanes, rows),
        _ => {
            for lane in lanes {
                let (at, of) = (rows[lane] * elements, lane * elements);
                to[at..at + elements].copy_from_slice(&from[of..of + elements]);
            }
        }
    }
}

fn scatter_arrays<V: Copy, const N: usize>(
    to: &mut [V],
    from: &[V],
    lanes: LaneSet,
    rows: &[usize; BLOCK_LANES],
) {
    let (to, from) = (to.as_chunks_mut::<N>().0, from.as_chunks::<N>().0);
    for lane in lanes {
        to[rows[lane]] = from[lane];
    }
}

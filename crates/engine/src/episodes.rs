//! The episodes of one block, with their ages, time limits, hash windows and returns, and without a counter for each
//! lane.
//!
//! The block counts its rows; a lane's age is the row minus the row in which its episode began. A table of masks,
//! indexed by the row modulo 64, then has the lanes that reach a multiple of 64 steps, and the time limit is checked
//! only in the first row in which any lane could have reached it. A lockstep row therefore costs one addition per lane
//! (the return) and nothing else; of a row in which some do not step those rewards alone are added. A lane that is left out of a row while its episode is open counts as begun one row
//! later.

use rollhouse_core::LaneSet;
use rollhouse_core::limits::{BLOCK_LANES, HASH_WINDOW_STEPS};
use rollhouse_env::{Kernel, Target};

/// State of the episodes of one block.
#[derive(Debug)]
pub(crate) struct Episodes {
    target: Target,
    row: u64,
    /// Lanes with an episode under way.
    open: LaneSet,
    lanes: [Lane; BLOCK_LANES],
    /// Lanes whose episode ended in row `ended_in`. Their next one is expected to begin in the row after.
    ended: LaneSet,
    ended_in: u64,
    windows: [LaneSet; WINDOW],
    limit: Option<u64>,
    /// Row before which no lane reaches the limit.
    limit_row: u64,
    returns: [f64; BLOCK_LANES],
}

/// Numbers of a lane's episode that are needed together when it ends.
#[derive(Debug, Clone, Copy)]
struct Lane {
    /// Row before the episode's first; where none is open, the row in which one would be expected to begin.
    began: u64,
    /// Number of the open episode, else of the next one.
    number: u64,
    /// The last episode that ended.
    last: Option<Finished>,
}

/// An episode that ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Finished {
    pub(crate) length: u64,
    pub(crate) total_reward: f64,
}

const WINDOW: usize = HASH_WINDOW_STEPS as usize;

impl Episodes {
    /// Makes a block without open episodes. `limit` is the maximum number of steps of an episode.
    pub(crate) const fn new(limit: Option<u64>, target: Target) -> Self {
        Self {
            target,
            row: 0,
            open: LaneSet::NONE,
            lanes: [Lane { began: 0, number: 0, last: None }; BLOCK_LANES],
            ended: LaneSet::NONE,
            ended_in: 0,
            windows: [LaneSet::NONE; WINDOW],
            limit,
            limit_row: u64::MAX,
            returns: [0.0; BLOCK_LANES],
        }
    }

    /// Returns the lanes with an episode under way.
    pub(crate) const fn open(&self) -> LaneSet {
        self.open
    }

    /// Returns the number of the lane's next episode, one more than that of its open or last episode.
    pub(crate) const fn next_number(&self, lane: usize) -> u64 {
        self.lanes[lane].number.wrapping_add(self.open.has(lane) as u64)
    }

    /// Returns the number of steps in the lane's open episode.
    pub(crate) const fn age(&self, lane: usize) -> u64 {
        self.row - self.lanes[lane].began
    }

    /// Returns the lane's last episode that ended.
    pub(crate) const fn last(&self, lane: usize) -> Option<Finished> {
        self.lanes[lane].last
    }

    /// Returns the sums of the rewards of open episodes, each at its lane's place; 0 where none is open.
    pub(crate) const fn returns(&self) -> &[f64; BLOCK_LANES] {
        &self.returns
    }

    /// Sets the number of the next episode of a lane that has none open.
    pub(crate) fn number(&mut self, lane: usize, number: u64) {
        debug_assert!(!self.open.has(lane), "an open episode has its number");
        self.lanes[lane].number = number;
    }

    /// Begins an episode in each of `lanes`, which have none open.
    #[inline]
    pub(crate) fn begin_each(&mut self, lanes: LaneSet) {
        debug_assert!((self.open & lanes).is_empty(), "an episode is already under way");
        if lanes.is_empty() {
            return;
        }
        let row = self.row;
        self.open |= lanes;
        self.windows[window_of(row)] |= lanes;
        if let Some(limit) = self.limit {
            self.limit_row = self.limit_row.min(row + limit);
        }
        let expected = if self.ended_in + 1 == row { self.ended } else { LaneSet::NONE };
        for lane in lanes & !expected {
            self.lanes[lane].began = row;
        }
    }

    /// Ends the lane's open episode.
    pub(crate) fn end(&mut self, lane: usize) -> Finished {
        self.close(LaneSet::one(lane));
        self.finish(lane)
    }

    /// Notes that the open episodes of `lanes` are over. Each is then to be finished by [`Episodes::finish`].
    #[inline]
    pub(crate) fn close(&mut self, lanes: LaneSet) {
        let earlier = if self.ended_in == self.row { self.ended } else { LaneSet::NONE };
        (self.ended, self.ended_in) = (earlier | lanes, self.row);
        self.open &= !lanes;
    }

    /// Returns the length and return of the lane's episode that was closed in this row.
    #[inline]
    pub(crate) fn finish(&mut self, lane: usize) -> Finished {
        let row = self.row;
        let Lane { began, number, .. } = self.lanes[lane];
        let total_reward = std::mem::take(&mut self.returns[lane]);
        let last = Finished { length: row - began, total_reward };
        self.lanes[lane] = Lane { began: row + 1, number: number.wrapping_add(1), last: Some(last) };
        self.windows[window_of(began)].remove(lane);
        last
    }

    /// Accounts for one row in which the lanes of `stepped` took a step and earned their `rewards`; those of others may be
    /// anything. Returns the lanes that have reached the time limit.
    #[inline]
    pub(crate) fn advance(&mut self, stepped: LaneSet, rewards: &[f64]) -> LaneSet {
        self.row += 1;
        let (returns, all) = (&mut self.returns, LaneSet::first(rewards.len()));
        if stepped & all == all {
            self.target.run(AddRewards { returns, rewards });
        } else {
            self.target.run(AddSome { returns, rewards, stepped });
        }
        let idle = self.open & !stepped;
        if !idle.is_empty() {
            self.postpone(idle);
        }
        if self.row >= self.limit_row { self.at_limit() } else { LaneSet::NONE }
    }

    /// Returns the lanes of `stepped` whose age is now a multiple of [`HASH_WINDOW_STEPS`].
    #[inline]
    pub(crate) fn window_due(&self, stepped: LaneSet) -> LaneSet {
        self.windows[window_of(self.row)] & stepped
    }

    /// Moves the beginning of episodes that did not take part in a row on by one row.
    #[cold]
    fn postpone(&mut self, idle: LaneSet) {
        for lane in idle {
            self.windows[window_of(self.lanes[lane].began)].remove(lane);
            self.lanes[lane].began += 1;
            self.windows[window_of(self.lanes[lane].began)].insert(lane);
        }
    }

    /// Returns the lanes whose age is the limit, and computes the next row in which to check.
    #[cold]
    fn at_limit(&mut self) -> LaneSet {
        let Some(limit) = self.limit else { return LaneSet::NONE };
        let mut reached = LaneSet::NONE;
        self.limit_row = u64::MAX;
        for lane in self.open {
            let row = self.lanes[lane].began + limit;
            if row <= self.row {
                reached.insert(lane);
            } else {
                self.limit_row = self.limit_row.min(row);
            }
        }
        reached
    }
}

struct AddRewards<'a> {
    returns: &'a mut [f64; BLOCK_LANES],
    rewards: &'a [f64],
}

impl Kernel for AddRewards<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (sum, reward) in self.returns.iter_mut().zip(self.rewards) {
            *sum += reward;
        }
    }
}

/// Adds the rewards of the lanes that stepped.
struct AddSome<'a> {
    returns: &'a mut [f64; BLOCK_LANES],
    rewards: &'a [f64],
    stepped: LaneSet,
}

impl Kernel for AddSome<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (lane, (sum, reward)) in self.returns.iter_mut().zip(self.rewards).enumerate() {
            // No sum is -0, which adding 0 would change.
            *sum += if self.stepped.has(lane) { *reward } else { 0.0 };
        }
    }
}

const fn window_of(row: u64) -> usize {
    (row % HASH_WINDOW_STEPS) as usize
}

const _: () = assert!(WINDOW.is_power_of_two() && LaneSet::first(BLOCK_LANES).bits() == u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_env::InstructionSet;

    fn target() -> Target {
        Target::new(InstructionSet::best()).unwrap()
    }

    /// The same with a counter per lane.
    #[derive(Default, Clone)]
    struct Model {
        open: bool,
        age: u64,
        total: f64,
    }

    proptest! {
        #[test]
        fn agrees_with_a_counter_per_lane(
            limit in prop::option::of(1u64..200),
            rows in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..400),
        ) {
            let mut episodes = Episodes::new(limit, target());
            let mut model = vec![Model::default(); BLOCK_LANES];
            for (begin, step, end) in rows {
                let [begin, step, end] = [begin, step, end].map(LaneSet::of_bits);
                let begin = begin & !episodes.open();
                episodes.begin_each(begin);
                for lane in begin {
                    model[lane] = Model { open: true, ..Model::default() };
                }
                let stepped = step & episodes.open();
                // What lanes that do not step have there is nobody's.
                let mut rewards = [f64::NAN; BLOCK_LANES];
                for lane in stepped {
                    rewards[lane] = lane as f64 - 3.0;
                    model[lane].age += 1;
                    model[lane].total += rewards[lane];
                }
                let limited = episodes.advance(stepped, &rewards);
                let of_model = |wanted: &dyn Fn(&Model) -> bool| {
                    (0..BLOCK_LANES).filter(|&l| model[l].open && wanted(&model[l])).collect::<LaneSet>()
                };
                prop_assert_eq!(limited, of_model(&|m| limit.is_some_and(|limit| m.age >= limit)));
                prop_assert_eq!(
                    episodes.window_due(stepped),
                    of_model(&|m| m.age % HASH_WINDOW_STEPS == 0) & stepped
                );
                for lane in (end | limited) & episodes.open() {
                    let finished = episodes.end(lane);
                    prop_assert_eq!(finished, Finished { length: model[lane].age, total_reward: model[lane].total });
                    model[lane].open = false;
                }
            }
        }
    }

    #[test]
    fn numbers_count_the_lanes_episodes_from_zero() {
        let mut episodes = Episodes::new(None, target());
        assert_eq!(episodes.next_number(3), 0);
        episodes.begin_each(LaneSet::one(3));
        episodes.end(3);
        episodes.begin_each(LaneSet::one(3));
        assert_eq!(episodes.next_number(3), 2);
    }
}

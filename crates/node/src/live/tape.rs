//! A lane's episode as far as it has come.

use std::sync::Arc;

use rollhouse_core::{ColumnData, ColumnRef, Start};

/// The episode of a watched lane: where the tape begins, and the actions since. Pure.
///
/// ```text
/// begun at its reset, or at a later step --step--> one action longer --over--> stays until the next begins
///                                        --full--> to be begun anew at the step it has come to
/// ```
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tape {
    number: u64,
    begin: Begin,
    actions: ColumnData,
    steps: u64,
    total_reward: f64,
    reward: f64,
    ended: (bool, bool),
    /// What the lane has shown, if its env shows no state: nothing of it can be computed again.
    rows: Option<Rows>,
}

/// What a lane has shown since its tape begins.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Rows {
    /// The observation at the beginning: one row of each column, back to back.
    pub(crate) first_obs: Vec<u8>,
    /// Those after the actions, likewise, one after the other.
    pub(crate) obs: Vec<u8>,
    /// Rewards of the actions.
    pub(crate) rewards: Vec<f64>,
    /// Pictures that were made, by the number of actions before them.
    pub(crate) pictures: Vec<(u64, Arc<[u8]>)>,
}

/// The point at which a tape begins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Begin {
    /// The reset: the engine's note of the episode's start counts.
    Reset,
    /// A later step.
    Step(Box<StepBegin>),
}

/// A step at which a tape begins.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct StepBegin {
    pub(crate) step: u64,
    pub(crate) total_reward: f64,
    pub(crate) position: Start,
    pub(crate) state: Vec<f64>,
    pub(crate) hash: u32,
    /// One row of each observation column, back to back.
    pub(crate) obs: Vec<u8>,
}

/// The result of a step for one lane.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    /// Whether the lane began an episode instead of stepping.
    pub(crate) reset: bool,
    pub(crate) terminated: bool,
    pub(crate) truncated: bool,
    pub(crate) reward: f64,
    pub(crate) action: ColumnRef<'a>,
    /// The observation: the lane's row of each column.
    pub(crate) obs: &'a dyn Fn() -> Vec<u8>,
}

/// A tape as it stood at a moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) tape: Tape,
    /// The start of its episode, if it is known from there.
    pub(crate) start: Start,
    /// The hash of the state that it has come to.
    pub(crate) hash: Option<u32>,
}

impl Tape {
    /// Begins a tape of the episode `number` where `begin` says; actions are of the form of `form`.
    pub(crate) fn new(number: u64, begin: Begin, form: &ColumnData) -> Self {
        let mut actions = form.clone();
        actions.clear();
        let (steps, total_reward) = match &begin {
            Begin::Reset => (0, 0.0),
            Begin::Step(at) => (at.step, at.total_reward),
        };
        Self { number, begin, actions, steps, total_reward, reward: 0.0, ended: (false, false), rows: None }
    }

    /// Makes the tape one of a lane that shows no state: what it shows is kept.
    #[must_use]
    pub(crate) fn keeping_rows(mut self) -> Self {
        let first_obs = match &self.begin {
            Begin::Reset => Vec::new(),
            Begin::Step(at) => at.obs.clone(),
        };
        self.rows = Some(Rows { first_obs, ..Rows::default() });
        self
    }

    /// Adds a step. With SAME_STEP an episode that is over is followed by the next one at once.
    #[inline]
    pub(crate) fn step(&mut self, row: Row<'_>, same_step: bool) {
        let over = row.terminated || row.truncated;
        if row.reset || same_step && over {
            self.restart();
            if let Some(rows) = &mut self.rows {
                *rows = Rows { first_obs: (row.obs)(), ..Rows::default() };
            }
            (self.reward, self.ended) = (row.reward, (row.terminated, row.truncated));
            return;
        }
        // The engine's columns have one type.
        let _appended = self.actions.extend(row.action);
        if let Some(rows) = &mut self.rows {
            rows.obs.extend((row.obs)());
            rows.rewards.push(row.reward);
            if rows.bytes() >= MAX_TAPE_BYTES || self.actions.len() >= MAX_TAPE_ELEMENTS {
                self.forget_half();
            }
        }
        self.steps += 1;
        self.total_reward += row.reward;
        (self.reward, self.ended) = (row.reward, (row.terminated, row.truncated));
    }

    /// Begins the next episode of the lane, at its reset.
    #[cold]
    fn restart(&mut self) {
        self.number += 1;
        self.begin = Begin::Reset;
        self.actions.clear();
        (self.steps, self.total_reward) = (0, 0.0);
    }

    /// Forgets the first half of what the lane has shown. The tape begins later then.
    #[cold]
    fn forget_half(&mut self) {
        let Some(rows) = &mut self.rows else { return };
        let count = rows.rewards.len();
        let gone = count.div_ceil(2);
        let (row, elements) = (rows.obs.len() / count.max(1), self.actions.len() / count.max(1));
        let (step, total_reward) = match &self.begin {
            Begin::Reset => (0, 0.0),
            Begin::Step(at) => (at.step, at.total_reward),
        };
        let rewards: f64 = rows.rewards.drain(..gone).sum();
        rows.first_obs = rows.obs[(gone - 1) * row..gone * row].to_vec();
        rows.obs.drain(..gone * row);
        rows.pictures.retain(|&(at, _)| at >= gone as u64);
        rows.pictures.iter_mut().for_each(|(at, _)| *at -= gone as u64);
        self.begin = Begin::Step(Box::new(StepBegin {
            step: step + gone as u64,
            total_reward: total_reward + rewards,
            obs: rows.first_obs.clone(),
            ..StepBegin::default()
        }));
        let left = self.actions.as_ref().slice(gone * elements, self.actions.len());
        self.actions = left.into();
    }

    /// Keeps a picture of the lane as it is now.
    pub(crate) fn keep_picture(&mut self, picture: &Arc<[u8]>) {
        let Some(rows) = &mut self.rows else { return };
        let at = rows.rewards.len() as u64;
        if rows.pictures.last().is_none_or(|&(last, _)| last < at) {
            rows.pictures.push((at, Arc::clone(picture)));
        }
    }

    /// Returns what the lane has shown, if that is kept.
    pub(crate) const fn rows(&self) -> Option<&Rows> {
        self.rows.as_ref()
    }

    /// Returns whether the tape has as many actions as it may keep: it is to be begun anew at the step it has come to.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.rows.is_none() && self.actions.len() >= MAX_TAPE_ELEMENTS
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) const fn begin(&self) -> &Begin {
        &self.begin
    }

    /// Returns the actions from the tape's beginning on.
    pub(crate) const fn actions(&self) -> &ColumnData {
        &self.actions
    }

    /// Returns the steps of the episode, those before the tape begins included.
    pub(crate) const fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) const fn total_reward(&self) -> f64 {
        self.total_reward
    }

    /// Returns the reward of the last step.
    pub(crate) const fn reward(&self) -> f64 {
        self.reward
    }

    /// Returns whether the last step terminated and whether it truncated the episode.
    pub(crate) const fn ended(&self) -> (bool, bool) {
        self.ended
    }
}

impl Rows {
    fn bytes(&self) -> usize {
        let pictures: usize = self.pictures.iter().map(|(_, picture)| picture.len()).sum();
        self.obs.len() + self.rewards.len() * size_of::<f64>() + pictures
    }
}

/// Most numbers of actions that are kept of a lane: 1 MiB of the widest type.
pub(crate) const MAX_TAPE_ELEMENTS: usize = 1 << 17;

/// Most bytes of observations, rewards and pictures that are kept of a lane whose env shows no state.
pub(crate) const MAX_TAPE_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(action: &[i64], flags: u8) -> Row<'_> {
        Row {
            reset: flags & 1 == 1,
            terminated: flags & 2 == 2,
            truncated: flags & 4 == 4,
            reward: action[0] as f64,
            action: ColumnRef::I64(action),
            obs: &|| Vec::new(),
        }
    }

    proptest! {
        /// Against the plain way of saying it: after the last beginning, so many actions and their sum.
        #[test]
        fn a_tape_is_what_came_since_the_last_episode_began(
            steps in prop::collection::vec((0i64..9, 0u8..8), 0..200),
            same_step: bool,
        ) {
            let mut tape = Tape::new(5, Begin::Reset, &ColumnData::I64(Vec::new()));
            let begins = |flags: u8| flags & 1 == 1 || same_step && flags & 6 != 0;
            for (action, flags) in &steps {
                tape.step(row(&[*action], *flags), same_step);
            }
            let episodes = steps.iter().filter(|(_, flags)| begins(*flags)).count();
            let last = steps.iter().rposition(|(_, flags)| begins(*flags)).map_or(0, |at| at + 1);
            let since: Vec<i64> = steps[last..].iter().map(|(action, _)| *action).collect();
            prop_assert_eq!(tape.number(), 5 + episodes as u64);
            prop_assert_eq!(tape.steps(), since.len() as u64);
            prop_assert_eq!(tape.total_reward(), since.iter().sum::<i64>() as f64);
            prop_assert_eq!(tape.actions(), &ColumnData::I64(since));
        }
    }

    #[test]
    fn a_tape_that_begins_at_a_step_counts_on_from_there() {
        let at = StepBegin {
            step: 40,
            total_reward: 2.5,
            position: Start::seeded(1),
            state: vec![0.5],
            hash: 7,
            obs: Vec::new(),
        };
        let mut tape = Tape::new(1, Begin::Step(Box::new(at)), &ColumnData::I64(Vec::new()));
        tape.step(row(&[3], 0), false);
        assert_eq!((tape.steps(), tape.total_reward(), tape.reward()), (41, 5.5, 3.0));
        tape.step(row(&[4], 1), false);
        assert_eq!((tape.number(), tape.steps(), tape.begin()), (2, 0, &Begin::Reset));
    }

    #[test]
    fn a_tape_of_a_lane_without_a_state_keeps_what_it_showed_within_bounds() {
        let at = StepBegin { step: 7, total_reward: 1.0, obs: vec![9; 1 << 18], ..StepBegin::default() };
        let tape = Tape::new(1, Begin::Step(Box::new(at)), &ColumnData::I64(Vec::new()));
        let mut tape = tape.keeping_rows();
        for step in 0..100_u8 {
            let obs = || vec![step; 1 << 18];
            tape.step(Row { obs: &obs, ..row(&[i64::from(step)], 0) }, false);
            let rows = tape.rows().unwrap();
            assert!(rows.bytes() < MAX_TAPE_BYTES && rows.rewards.len() == tape.actions().len());
            let Begin::Step(at) = tape.begin() else { panic!("begun at a step") };
            let known: f64 = rows.rewards.iter().sum();
            assert_eq!(at.total_reward + known, tape.total_reward());
            assert_eq!(at.step + rows.rewards.len() as u64, tape.steps());
            assert_eq!(rows.obs.last(), Some(&step));
            assert_eq!(rows.first_obs[0], if at.step == 7 { 9 } else { (at.step - 8) as u8 });
        }
        tape.keep_picture(&Arc::from([1_u8]));
        assert_eq!(tape.rows().unwrap().pictures[0].0, tape.rows().unwrap().rewards.len() as u64);
        tape.step(Row { obs: &|| vec![3], ..row(&[0], 1) }, false);
        assert_eq!(tape.rows(), Some(&Rows { first_obs: vec![3], ..Rows::default() }), "a new episode");
    }
}

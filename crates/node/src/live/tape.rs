//! A lane's episode as far as it has come.

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
#[derive(Debug, Clone, PartialEq)]
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
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    /// Whether the lane began an episode instead of stepping.
    pub(crate) reset: bool,
    pub(crate) terminated: bool,
    pub(crate) truncated: bool,
    pub(crate) reward: f64,
    pub(crate) action: ColumnRef<'a>,
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
        Self { number, begin, actions, steps, total_reward, reward: 0.0, ended: (false, false) }
    }

    /// Adds a step. With SAME_STEP an episode that is over is followed by the next one at once.
    #[inline]
    pub(crate) fn step(&mut self, row: Row<'_>, same_step: bool) {
        let over = row.terminated || row.truncated;
        if row.reset || same_step && over {
            self.restart();
            (self.reward, self.ended) = (row.reward, (row.terminated, row.truncated));
            return;
        }
        // The engine's columns have one type.
        let _appended = self.actions.extend(row.action);
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

    /// Returns whether the tape has as many actions as it may keep: it is to be begun anew at the step it has come to.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.actions.len() >= MAX_TAPE_ELEMENTS
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

/// Most numbers of actions that are kept of a lane: 1 MiB of the widest type.
pub(crate) const MAX_TAPE_ELEMENTS: usize = 1 << 17;

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
}

//! The queue of actions of a stream, as a value.

use std::collections::VecDeque;

use rollhouse_codec::openra::Command;

/// Actions that wait for the next tick. Of more than [`MAX_ACTIONS`] the oldest goes.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    waiting: VecDeque<VecDeque<Command>>,
    dropped: u64,
}

/// Maximum number of actions that wait.
pub(crate) const MAX_ACTIONS: usize = 16;

impl Actions {
    pub(crate) fn push(&mut self, commands: Vec<Command>) {
        if self.waiting.len() == MAX_ACTIONS {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(commands.into());
    }

    /// Takes the commands of the next tick, at most `most`; what is left of an action comes with the tick after it.
    pub(crate) fn take(&mut self, most: usize) -> Vec<Command> {
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some(first) = self.waiting.front_mut() else { break };
            match first.pop_front() {
                Some(command) => taken.push(command),
                None => drop(self.waiting.pop_front()),
            }
        }
        taken
    }

    /// Returns how many actions were dropped.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(ids: std::ops::Range<u32>) -> Vec<Command> {
        ids.map(|actor_id| Command { actor_id, ..Command::default() }).collect()
    }

    fn ids(commands: &[Command]) -> Vec<u32> {
        commands.iter().map(|command| command.actor_id).collect()
    }

    #[test]
    fn of_more_than_sixteen_actions_the_oldest_goes_and_is_counted() {
        let mut actions = Actions::default();
        (0..18).for_each(|id| actions.push(action(id..id + 1)));
        assert_eq!(ids(&actions.take(99)), (2..18).collect::<Vec<_>>());
        assert_eq!(actions.dropped(), 2);
        assert!(actions.take(99).is_empty());
    }

    #[test]
    fn all_that_wait_come_with_a_tick_in_their_order_and_what_is_too_much_with_the_next() {
        let mut actions = Actions::default();
        actions.push(action(0..3));
        actions.push(Vec::new());
        actions.push(action(3..20));
        assert_eq!(ids(&actions.take(16)), (0..16).collect::<Vec<_>>());
        assert_eq!(ids(&actions.take(16)), (16..20).collect::<Vec<_>>());
    }
}

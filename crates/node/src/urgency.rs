//! How much of a busy machine's processors a session that plays by itself gets.

use rustix::process::nice;

/// The priority of the threads of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// That of its process.
    Usual,
    /// So many steps of `nice` below that.
    Lower(i32),
}

impl Urgency {
    /// The urgency of threads that step sessions which play by themselves. Nobody waits for their steps, so that they yield to
    /// whoever is waited for.
    pub(crate) const OF_ROLLOUTS: Self = Self::Lower(BELOW_OTHERS);

    /// Returns what the processes of a session that plays by itself have below such threads, the owner's `number`-th on the
    /// node. An owner's n-th has an n-th of what the first one has: one with many sessions takes little more than one with few.
    pub(crate) const fn of_processes(number: u64) -> Self {
        let steps = STEPS_TO_HALVE * number.next_power_of_two().ilog2() as i32;
        Self::Lower(if steps < LOWEST - BELOW_OTHERS { steps } else { LOWEST - BELOW_OTHERS })
    }

    /// Takes it from the thread that calls, and so from all threads and processes that are begun there.
    pub(crate) fn apply(self) {
        if let Self::Lower(steps) = self {
            // Where that is refused, threads stay as urgent as others.
            let _refused = nice(steps);
        }
    }
}

/// With this a thread gets a third of what one of the process's own priority gets.
const BELOW_OTHERS: i32 = 5;
/// Linux halves, to within 3 %, what a thread gets with so many steps: each is worth a factor of 1.25 (sched(7)).
const STEPS_TO_HALVE: i32 = 3;
/// The lowest priority that there is.
const LOWEST: i32 = 19;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_gets_is_halved_as_the_number_of_its_owners_doubles_down_to_the_lowest() {
        let steps = |number| match Urgency::of_processes(number) {
            Urgency::Lower(steps) => steps,
            Urgency::Usual => 0,
        };
        assert_eq!([0, 1, 2, 3, 4, 8, 16].map(steps), [0, 0, 3, 6, 6, 9, 12]);
        assert_eq!([17, 32, 64, 1 << 40].map(steps), [14; 4]);
    }
}

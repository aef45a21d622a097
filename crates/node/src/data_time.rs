//! Shares by owner of the time of the thread that carries requests and steps short batches. Pure: every call is given the
//! time.

use std::time::Duration;

use rollhouse_core::{Claimant, SharedBound, Shares};

/// The time that the data thread has stepped lately, by the owners of what it stepped.
///
/// An owner who is alone has all of it. When there are others, one who has its share of a period has its short batches
/// stepped by the threads for long ones until the next period: there owners have turns.
#[derive(Debug)]
pub(crate) struct DataTime {
    /// The time at which the present period began.
    since: Duration,
    /// The microseconds of the present period and of the one before.
    taken: Shares,
    before: Shares,
}

impl Default for DataTime {
    fn default() -> Self {
        let none = Shares::new(SharedBound::SHORT_STEPS);
        Self { since: Duration::ZERO, taken: none.clone(), before: none }
    }
}

impl DataTime {
    /// Returns whether the data thread steps a short batch of that owner itself.
    pub(crate) fn steps(&mut self, now: Duration, owner: &Claimant) -> bool {
        self.pass(now);
        let is_alone = |shares: &Shares| shares.total() == shares.taken(owner);
        is_alone(&self.taken) && is_alone(&self.before) || self.taken.has_room(owner, 1)
    }

    /// Notes that the thread has stepped for that long.
    pub(crate) fn took(&mut self, now: Duration, owner: &Claimant, time: Duration) {
        self.pass(now);
        // What took no microsecond took a part of one.
        self.taken.add(owner, u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    fn pass(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.since);
        if passed < SharedBound::SHORT_STEPS_PERIOD {
            return;
        }
        let none = Shares::new(SharedBound::SHORT_STEPS);
        let last = std::mem::replace(&mut self.taken, none.clone());
        self.before = if passed < 2 * SharedBound::SHORT_STEPS_PERIOD { last } else { none };
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(20);

    /// Steps on and on from `now` for so many steps. Returns how many the data thread did itself.
    fn step(time: &mut DataTime, now: &mut Duration, owner: &Claimant, steps: u32) -> u32 {
        let mut own = 0;
        for _ in 0..steps {
            if time.steps(*now, owner) {
                *now += STEP;
                time.took(*now, owner, STEP);
                own += 1;
            }
        }
        own
    }

    #[test]
    fn an_owner_who_is_alone_has_all_of_the_data_thread() {
        let (mut time, mut now) = (DataTime::default(), Duration::ZERO);
        assert_eq!(step(&mut time, &mut now, &Claimant::owner("ada"), 5_000), 5_000);
    }

    /// Symptom: a step of one owner's only session waited on the data thread behind one of each of another's 2,000
    /// sessions. Cause: that thread did whatever came, however much it was of one owner. Fix: beyond its share of a
    /// period an owner's steps are others' threads' affair, where owners have turns.
    #[test]
    fn an_owner_with_many_sessions_leaves_half_of_the_data_thread_to_others_while_there_are_any() {
        let (mut time, mut now) = (DataTime::default(), Duration::ZERO);
        let (greedy, other) = (Claimant::owner("greedy"), Claimant::owner("other"));
        assert_eq!(step(&mut time, &mut now, &other, 1), 1);
        let most = SharedBound::SHORT_STEPS.limit as u32 / 2 / STEP.as_micros() as u32;
        for _ in 0..50 {
            let began = now;
            let own = step(&mut time, &mut now, &greedy, 2_000);
            assert!(own <= most, "{own}");
            assert_eq!(step(&mut time, &mut now, &other, 10), 10);
            now = now.max(began + SharedBound::SHORT_STEPS_PERIOD);
        }
        now += 2 * SharedBound::SHORT_STEPS_PERIOD;
        assert_eq!(step(&mut time, &mut now, &greedy, 2_000), 2_000, "it is alone again");
    }
}

//! Tells a session that hangs from one that works.

use std::time::Duration;

use rollhouse_core::limits::HANG_SLACK;

/// Decides whether a session still makes progress. Pure: `now` is any clock that only goes forward.
///
/// Alive means *made progress*: the count moved since the last look, or the session waits for something of the node's
/// own, such as a disk that cannot follow. If its owner looks whenever [`HangWatch::look_at`] says, a hang is found
/// within the deadline and [`HANG_SLACK`].
#[derive(Debug, Clone)]
pub struct HangWatch {
    deadline: Duration,
    last: Option<Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    beats: u64,
    at: Duration,
}

/// The result of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The session makes progress, or has not been still for long enough.
    Alive,
    /// The session has made no progress for this long, which is at least the deadline.
    Hung(Duration),
}

impl HangWatch {
    /// Makes a watch that calls a session hung once it stands still for `deadline`.
    pub const fn new(deadline: Duration) -> Self {
        Self { deadline, last: None }
    }

    /// Looks at the count of signs of life at `now`; `waits` says that the session waits for something of the node's
    /// own.
    pub fn look(&mut self, now: Duration, beats: u64, waits: bool) -> Verdict {
        match self.last {
            Some(seen) if seen.beats == beats && !waits => {
                let still = now.saturating_sub(seen.at);
                if still >= self.deadline { Verdict::Hung(still) } else { Verdict::Alive }
            }
            _ => {
                self.last = Some(Seen { beats, at: now });
                Verdict::Alive
            }
        }
    }

    /// Returns when to look next: when the deadline is over if nothing moves until then, and soon enough to see it if
    /// something does.
    pub fn look_at(&self, now: Duration) -> Duration {
        let period = (self.deadline / 8).clamp(LEAST_PERIOD, HANG_SLACK);
        let over = self.last.map_or(now, |seen| seen.at + self.deadline);
        if over > now { over.min(now + period) } else { now + period }
    }
}

const LEAST_PERIOD: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    #[test]
    fn a_count_that_moves_is_alive_however_slowly() {
        let mut watch = HangWatch::new(DEADLINE);
        for beat in 0..100 {
            assert_eq!(watch.look(Duration::from_secs(59) * beat, u64::from(beat), false), Verdict::Alive);
        }
    }

    #[test]
    fn waiting_for_the_disk_is_no_hang_and_the_deadline_runs_anew_after_it() {
        let mut watch = HangWatch::new(DEADLINE);
        for minute in 0..10 {
            assert_eq!(watch.look(Duration::from_secs(60 * minute), 7, true), Verdict::Alive);
        }
        assert_eq!(watch.look(Duration::from_secs(599), 7, false), Verdict::Alive);
        assert_eq!(watch.look(Duration::from_secs(600), 7, false), Verdict::Hung(DEADLINE));
    }

    #[test]
    fn a_count_that_stands_still_is_hung_at_the_deadline_and_not_before() {
        let mut watch = HangWatch::new(DEADLINE);
        assert_eq!(watch.look(Duration::from_secs(10), 7, false), Verdict::Alive);
        assert_eq!(watch.look(Duration::from_secs(69), 7, false), Verdict::Alive);
        assert_eq!(watch.look(Duration::from_secs(70), 7, false), Verdict::Hung(DEADLINE));
    }

    proptest! {
        #[test]
        fn a_hang_is_found_within_its_deadline_and_the_slack_and_not_before(
            deadline_ms in 8u64..120_000, begins_ms in 0u64..1_000, last_beat_ms in 0u64..200_000
        ) {
            let deadline = Duration::from_millis(deadline_ms);
            let mut watch = HangWatch::new(deadline);
            let last_beat = Duration::from_millis(begins_ms + last_beat_ms);
            let mut now = Duration::from_millis(begins_ms);
            let (found, still) = loop {
                // A beat each millisecond until the last.
                let beats = now.min(last_beat).as_millis() as u64;
                match watch.look(now, beats, false) {
                    Verdict::Alive => {
                        let next = watch.look_at(now);
                        prop_assert!(next > now && next <= now + HANG_SLACK);
                        now = next;
                    }
                    Verdict::Hung(still) => break (now, still),
                }
            };
            prop_assert!(still >= deadline && found >= last_beat + deadline, "{found:?}");
            prop_assert!(found <= last_beat + deadline + HANG_SLACK.min(deadline / 8), "{found:?}");
        }

        #[test]
        fn hung_is_said_exactly_when_the_last_change_is_a_deadline_ago(
            looks in prop::collection::vec((0u64..40, any::<bool>(), prop::bool::weighted(0.2)), 1..60)
        ) {
            let mut watch = HangWatch::new(DEADLINE);
            let (mut now, mut beats, mut changed) = (0, 0, None);
            for (wait, moves, waits) in looks {
                now += wait;
                beats += u64::from(moves);
                if moves || waits || changed.is_none() {
                    changed = Some(now);
                }
                let still = Duration::from_secs(now - changed.unwrap());
                let wanted = if still >= DEADLINE { Verdict::Hung(still) } else { Verdict::Alive };
                prop_assert_eq!(watch.look(Duration::from_secs(now), beats, waits), wanted);
            }
        }
    }
}

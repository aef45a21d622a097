//! Decides when a node asks for its next certificate. Pure.
//!
//! ```text
//! resting --two thirds of its time are over, and there is a coordinator--> asking --given--> resting
//!    ^----------------------------refused, or no answer: after a pause-------'
//! ```

use std::time::Duration;

use rollhouse_core::{Pauses, jitter};
use rollhouse_wire::Validity;

/// The standing of a node with its certificate. `now` is the time since 1970, as certificates have it; if the clock is
/// set, the time that is due moves with it.
#[derive(Debug)]
pub struct Renewal {
    state: Phase,
    validity: Validity,
    failures: u32,
    seed: u64,
    draws: u64,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Resting { due: Duration },
    Asking,
}

/// An event that the renewal is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewalEvent {
    /// Time has passed, and there is a coordinator to ask.
    Tick,
    /// There is another certificate, which was asked for or put there by somebody.
    Given(Validity),
    /// The coordinator refused, or did not answer.
    Failed,
}

/// An action that the renewal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewalAction {
    /// Ask the coordinator for a certificate for a new key.
    Ask,
}

impl Renewal {
    /// Makes the renewal of a certificate with that validity. `seed` decides the jitter.
    pub fn new(seed: u64, validity: Validity) -> Self {
        let mut renewal = Self { state: Phase::Asking, validity, failures: 0, seed, draws: 0 };
        renewal.rest(validity);
        renewal
    }

    /// Takes an event in and returns the action to take.
    pub fn handle(&mut self, now: Duration, event: RenewalEvent) -> Option<RenewalAction> {
        match (self.state, event) {
            (Phase::Resting { due }, RenewalEvent::Tick) if due <= now => {
                self.state = Phase::Asking;
                Some(RenewalAction::Ask)
            }
            (_, RenewalEvent::Given(validity)) => {
                self.failures = 0;
                self.rest(validity);
                // One that is due at once, because clocks differ, is no reason to ask without a pause.
                if let Phase::Resting { due } = &mut self.state {
                    *due = (*due).max(now + LEAST_PAUSE);
                }
                None
            }
            (Phase::Asking, RenewalEvent::Failed) => {
                let pause = self.pause(now);
                self.state = Phase::Resting { due: now + pause };
                None
            }
            _ => None,
        }
    }

    /// Returns when to send a [`RenewalEvent::Tick`] at the latest, if there is a coordinator then; `None` while it is
    /// asked.
    pub const fn wake_at(&self) -> Option<Duration> {
        match self.state {
            Phase::Resting { due } => Some(due),
            Phase::Asking => None,
        }
    }

    /// Returns the validity of the certificate in force, as far as is known here.
    pub const fn validity(&self) -> Validity {
        self.validity
    }

    /// Rests until two thirds of the validity are over, less up to a twelfth of it, so that nodes that joined together
    /// do not ask together.
    fn rest(&mut self, validity: Validity) {
        self.validity = validity;
        let seconds = |at: i64| Duration::from_secs(u64::try_from(at).unwrap_or(0));
        let (from, until) = (seconds(validity.not_before), seconds(validity.not_after));
        let lifetime = until.saturating_sub(from);
        let due = from + lifetime * 2 / 3 - self.jitter(lifetime / 12);
        self.state = Phase::Resting { due };
    }

    /// Returns the next pause. It grows with each failure, so that an outage is not made worse, but is far shorter than
    /// the time that is left.
    fn pause(&mut self, now: Duration) -> Duration {
        let seconds = Duration::from_secs(u64::try_from(self.validity.not_after).unwrap_or(0));
        let left = seconds.saturating_sub(now);
        let longest = (left / 8).clamp(LEAST_PAUSE, LONGEST_PAUSE);
        let pause = Pauses { first: LEAST_PAUSE, longest }.after(self.failures);
        self.failures = self.failures.saturating_add(1);
        (pause - self.jitter(pause / 2)).max(LEAST_PAUSE / 2)
    }

    /// Returns a random duration below `most`.
    fn jitter(&mut self, most: Duration) -> Duration {
        self.draws += 1;
        jitter(most, self.seed ^ self.draws)
    }
}

/// Shortest pause: a certificate of the shortest life is tried for several times.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause: a coordinator that is back is asked within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: u64 = 86_400;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Holds from that day for so many days.
    fn holds(from: u64, days: u64) -> Validity {
        Validity { not_before: (from * DAY) as i64, not_after: ((from + days) * DAY) as i64 }
    }

    #[test]
    fn the_next_certificate_is_asked_for_when_two_thirds_of_the_time_are_almost_over() {
        let dues: Vec<Duration> =
            (0..100).map(|seed| Renewal::new(seed, holds(100, 30)).wake_at().unwrap()).collect();
        assert!(dues.iter().all(|due| (at(117 * DAY + DAY / 2)..=at(120 * DAY)).contains(due)), "{dues:?}");
        let spread = *dues.iter().max().unwrap() - *dues.iter().min().unwrap();
        assert!(spread > at(2 * DAY), "nodes come together: {spread:?}");
        let mut renewal = Renewal::new(1, holds(100, 30));
        let due = renewal.wake_at().unwrap();
        assert_eq!(renewal.handle(due - at(1), RenewalEvent::Tick), None);
        assert_eq!(renewal.handle(due, RenewalEvent::Tick), Some(RenewalAction::Ask));
        assert_eq!(renewal.handle(due + at(9), RenewalEvent::Tick), None, "one at a time");
        assert_eq!(renewal.handle(due + at(9), RenewalEvent::Given(holds(119, 30))), None);
        assert!(renewal.wake_at().unwrap() > at(136 * DAY));
    }

    #[test]
    fn a_coordinator_that_refuses_is_asked_again_many_times_before_the_end_and_never_without_a_pause() {
        let mut renewal = Renewal::new(7, holds(0, 30));
        let (mut now, mut asked, mut last) = (at(0), 0u32, None);
        while now < at(30 * DAY) {
            now = renewal.wake_at().unwrap();
            assert_eq!(renewal.handle(now, RenewalEvent::Tick), Some(RenewalAction::Ask));
            assert!(last.is_none_or(|last| now - last >= LEAST_PAUSE / 2 && now - last <= LONGEST_PAUSE));
            last = Some(now);
            asked += 1;
            renewal.handle(now, RenewalEvent::Failed);
        }
        assert!((1_000..10_000).contains(&asked), "{asked}");
    }

    proptest! {
        /// Whatever validities are given and however the clock jumps, it is never asked for twice at a time or sooner
        /// than half of the least pause after the last, and there is always a next time.
        #[test]
        fn it_always_asks_again_and_never_in_a_hurry(
            events in prop::collection::vec((0u64..4_000_000, 0u8..3, -4_000_000i64..4_000_000, 0i64..4_000_000), 1..200)
        ) {
            let mut renewal = Renewal::new(3, holds(100, 30));
            let (mut now, mut asking) = (at(100 * DAY), false);
            let mut ended: Option<Duration> = None;
            for (wait, event, from, holds) in events {
                now += Duration::from_millis(wait);
                match event {
                    0 => {
                        let asks = renewal.handle(now, RenewalEvent::Tick).is_some();
                        prop_assert!(!(asks && asking));
                        prop_assert!(!asks || ended.is_none_or(|at| now - at >= LEAST_PAUSE / 2));
                        asking |= asks;
                    }
                    1 => {
                        renewal.handle(now, RenewalEvent::Failed);
                        if std::mem::take(&mut asking) {
                            ended = Some(now);
                        }
                    }
                    _ => {
                        let not_before = now.as_secs() as i64 + from;
                        let given = Validity { not_before, not_after: not_before + holds };
                        renewal.handle(now, RenewalEvent::Given(given));
                        (asking, ended) = (false, Some(now));
                    }
                }
                prop_assert_eq!(renewal.wake_at().is_none(), asking);
            }
        }
    }
}

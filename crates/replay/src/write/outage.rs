//! Outages of the disk: when a disk that takes nothing is tried again.
//!
//! ```text
//! working --a write failed--> out --time--> (tried) --there is room--> working
//!                             out <--------- (tried) --there is none
//! ```
//!
//! It is tried for as long as the recorder lives: if room is made an hour later, recording goes on.

use std::time::Duration;

use rollhouse_core::{Pauses, jitter};

/// The state of an outage, which decides when a disk that failed is tried again. It has no clock: `now` is on any that
/// only goes forward.
#[derive(Debug)]
pub(crate) struct Outage {
    /// Time at which the disk is tried again; `None` while it works.
    retry_at: Option<Duration>,
    /// Number of failures since something was made durable.
    failures: u32,
    seed: u64,
    draws: u64,
}

impl Outage {
    /// Makes the state of a disk that works. `seed` decides the jitter.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { retry_at: None, failures: 0, seed, draws: 0 }
    }

    /// Notes that an operation failed.
    pub(crate) fn failed(&mut self, now: Duration) {
        let base = PAUSES.after(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.draws += 1;
        // Jitter takes away up to a quarter, so that recorders that share a disk do not come back together.
        self.retry_at = Some(now + base - jitter(base / 4, self.seed ^ self.draws));
    }

    /// Notes that the disk has room again. If it fails again at once, the pauses go on growing.
    pub(crate) const fn over(&mut self) {
        self.retry_at = None;
    }

    /// Notes that something was made durable: the next failure counts as the first.
    pub(crate) const fn worked(&mut self) {
        self.failures = 0;
    }

    /// Returns whether the disk takes nothing.
    pub(crate) const fn is_on(&self) -> bool {
        self.retry_at.is_some()
    }

    /// Returns whether it is time to try the disk again.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.retry_at.is_some_and(|at| at <= now)
    }
}

/// Pauses between tries: a disk that has room again is used within the longest.
const PAUSES: Pauses = Pauses { first: Duration::from_millis(500), longest: Duration::from_secs(4) };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_failed_is_tried_for_ever_and_at_least_every_four_seconds() {
        let mut outage = Outage::new(3);
        let mut now = Duration::ZERO;
        assert!(!outage.is_on() && !outage.is_due(now));
        for failure in 0..1000 {
            outage.failed(now);
            let pause = outage.retry_at.unwrap() - now;
            assert!(pause <= PAUSES.longest && pause * 4 >= PAUSES.first * 3, "{failure}: {pause:?}");
            assert!(outage.is_on() && !outage.is_due(now) && outage.is_due(now + pause));
            now += pause;
        }
        outage.over();
        outage.worked();
        assert!(!outage.is_on());
        outage.failed(now);
        assert!(outage.is_due(now + PAUSES.first));
    }
}

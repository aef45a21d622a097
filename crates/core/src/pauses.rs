//! Pauses between tries of something that fails.

use std::time::Duration;

use crate::split_mix64;

/// Bounds of pauses that grow with each failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pauses {
    /// Pause after the first failure.
    pub first: Duration,
    /// Longest pause.
    pub longest: Duration,
}

impl Pauses {
    /// Returns the pause after a failure that came after `failures` others: twice that of the one before.
    pub fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.min(MOST_DOUBLINGS)).min(self.longest)
    }
}

/// Returns a duration below `most` that looks random, so that those who failed together do not try again together. The
/// same seed gives the same one.
pub fn jitter(most: Duration, seed: u64) -> Duration {
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(split_mix64(seed) % most.max(1))
}

/// Number of failures after which a pause grows no more, whatever its bound.
const MOST_DOUBLINGS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_double_up_to_their_bound() {
        let pauses = Pauses { first: SECOND, longest: 10 * SECOND };
        let seconds: Vec<u64> = (0..6).map(|failures| pauses.after(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
        assert_eq!(pauses.after(u32::MAX), 10 * SECOND);
        assert_eq!(Pauses { first: Duration::MAX, longest: Duration::MAX }.after(3), Duration::MAX);
    }

    #[test]
    fn jitter_stays_below_its_bound_and_differs_between_seeds() {
        let drawn: Vec<Duration> = (0..100).map(|seed| jitter(SECOND, seed)).collect();
        assert!(drawn.iter().all(|&drawn| drawn < SECOND));
        let least = drawn.iter().min().unwrap();
        assert!(drawn.iter().any(|drawn| *drawn > *least + SECOND / 2));
        assert_eq!(jitter(Duration::ZERO, 7), Duration::ZERO);
    }
}

//! Patience, which polls for a while before the caller sleeps.

use std::time::{Duration, Instant};

use rollhouse_arena::Spin;

/// Polls for a while, then lets the caller sleep.
///
/// A wake-up across cores costs tens of microseconds on a virtual machine. So a party first spins, if it and all others
/// have a core each. Then it yields its core again and again: on a busy core that hands it to the very process that is
/// awaited, at a tenth of the cost of sleep and wake-up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    spin: Duration,
    yields: Duration,
}

impl Patience {
    /// Returns the patience of one of `parties` processes that wait for each other.
    pub(crate) fn among(parties: usize) -> Self {
        Self { spin: Spin::among(parties).time(), yields: YIELD_TIME }
    }

    /// Polls `ready` and returns whether it became true before patience ended.
    pub(crate) fn wait(self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        let start = Instant::now();
        while start.elapsed() < self.spin {
            for _ in 0..SPINS_BETWEEN_CLOCK_READS {
                if ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        while start.elapsed() < self.spin + self.yields {
            std::thread::yield_now();
            if ready() {
                return true;
            }
        }
        false
    }
}

/// Time for which the core is yielded: about twice the cost of a sleep and a wake-up. A party that waits longer loses
/// little by having polled first, and a core that others need is not kept from them.
const YIELD_TIME: Duration = Duration::from_micros(50);
const SPINS_BETWEEN_CLOCK_READS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_and_what_comes_before_is_seen() {
        assert!(!Patience::among(usize::MAX).wait(|| false));
        let mut looks = 0;
        let seen = Patience::among(1).wait(|| {
            looks += 1;
            looks == 3
        });
        assert!(seen && looks == 3);
    }
}

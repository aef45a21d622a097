//! Waits for a number that another thread raises.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a waiter spins before it sleeps.
///
/// A wake-up of a sleeping thread costs tens of microseconds on a virtual machine, that of a spinning one a tenth of
/// one; but a spinner without a core of its own holds up the thread for which it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spin(Duration);

impl Spin {
    /// Never spins: a waiter sleeps at once.
    pub const NEVER: Self = Self(Duration::ZERO);

    /// Returns the spinning that `parties` threads can afford together: 50 µs if the process has a core for each
    /// (affinity and cgroup quota counted), none otherwise.
    pub fn among(parties: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if parties <= cores { Self(SPIN_TIME) } else { Self::NEVER }
    }

    /// Returns the time to spin.
    pub const fn time(self) -> Duration {
        self.0
    }
}

/// Error of a number that did not come in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut;

/// A number that only rises, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Sequence {
    value: AtomicU64,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    raised: Condvar,
}

impl Sequence {
    /// Returns the number. Pairs with the store in [`Sequence::raise`]: what its thread wrote before is visible.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    /// Sets the number and wakes the threads that sleep for it.
    ///
    /// The store is sequentially consistent together with `sleepers` (Dekker's pattern): either this thread
    /// sees the sleeper and takes the lock to wake it, or the sleeper, which counted itself first, sees the
    /// new number and does not sleep.
    #[inline]
    pub(crate) fn raise(&self, value: u64) {
        self.value.store(value, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.raised.notify_all();
        }
    }

    /// Waits until the number is at least `target`; spins, then yields, then sleeps.
    ///
    /// # Errors
    /// When `deadline` passes first.
    pub(crate) fn wait(&self, target: u64, spin: Spin, deadline: Option<Instant>) -> Result<(), TimedOut> {
        if self.get() >= target {
            return Ok(());
        }
        if spin != Spin::NEVER && self.spin(target, spin) {
            return Ok(());
        }
        self.sleep(target, deadline)
    }

    fn spin(&self, target: u64, Spin(time): Spin) -> bool {
        let start = Instant::now();
        loop {
            for _ in 0..SPINS_BETWEEN_CLOCK_READS {
                if self.get() >= target {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= time {
                std::thread::yield_now();
                return self.get() >= target;
            }
        }
    }

    #[cold]
    fn sleep(&self, target: u64, deadline: Option<Instant>) -> Result<(), TimedOut> {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            if self.value.load(Ordering::SeqCst) >= target {
                break Ok(());
            }
            guard = match deadline.map(|d| d.saturating_duration_since(Instant::now())) {
                None => self.raised.wait(guard).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break Err(TimedOut),
                Some(left) => self.raised.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

/// Longest time to spin: about twice the cost of a sleep and a wake-up.
const SPIN_TIME: Duration = Duration::from_micros(50);
const SPINS_BETWEEN_CLOCK_READS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_sleeper_is_woken_by_every_raise() {
        for spin in [Spin::NEVER, Spin(SPIN_TIME)] {
            let (there, back) = (Arc::new(Sequence::default()), Arc::new(Sequence::default()));
            let echo = std::thread::spawn({
                let (there, back) = (Arc::clone(&there), Arc::clone(&back));
                move || {
                    for number in 1..=2_000 {
                        there.wait(number, spin, None).unwrap();
                        back.raise(number);
                    }
                }
            });
            for number in 1..=2_000 {
                there.raise(number);
                back.wait(number, spin, None).unwrap();
            }
            echo.join().unwrap();
        }
    }

    #[test]
    fn a_number_that_never_comes_is_given_up_at_the_deadline() {
        let sequence = Sequence::default();
        let deadline = Instant::now() + Duration::from_millis(5);
        assert_eq!(sequence.wait(1, Spin::NEVER, Some(deadline)), Err(TimedOut));
        assert!(Instant::now() >= deadline);
    }
}

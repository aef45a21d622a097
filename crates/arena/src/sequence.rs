//! A number that one thread raises and others wait for.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::bell::{Bell, Sleeping};
use crate::patience::{Patience, Wait};
use crate::words::{Words, WordsMut, futex_wait, futex_wake};

/// Error of a number that did not come in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut;

/// A number that only rises, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Sequence {
    value: AtomicU64,
    sleepers: AtomicU64,
    wakes: AtomicU32,
}

impl Sequence {
    /// Returns the number. What the thread that raised it wrote before is visible.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.load_acquire(VALUE)
    }

    /// Sets the number and wakes the threads that sleep for it.
    #[inline]
    pub(crate) fn raise(&self, value: u64) {
        raise(self, value);
    }

    /// Waits until the number is at least `target`.
    ///
    /// # Errors
    /// When `deadline` passes first.
    #[inline]
    pub(crate) fn wait(
        &self,
        target: u64,
        patience: &mut Patience,
        deadline: Option<Instant>,
    ) -> Result<(), TimedOut> {
        let wait = Wait { own: self, peer: self, bell: BELL, deadline, slice: Duration::MAX };
        // Threads of one process do not leave each other.
        patience.wait(&wait, || Ok::<_, Infallible>(reached(self, target)), || true).map_err(|_| TimedOut)
    }
}

/// Sets the number in `words` and wakes the threads that sleep for it.
#[inline]
pub(crate) fn raise(words: &impl WordsMut, value: u64) {
    words.store_release(VALUE, value);
    BELL.ring(words, words);
}

/// Returns whether the number in `words` is at least `target`, as what a wait looks for.
#[inline]
pub(crate) fn reached(words: &impl Words, target: u64) -> Option<()> {
    (words.load_acquire(VALUE) >= target).then_some(())
}

impl Words for Sequence {
    #[inline]
    fn load(&self, offset: usize) -> u64 {
        match offset {
            VALUE => self.value.load(Ordering::Relaxed),
            SLEEPERS => self.sleepers.load(Ordering::Relaxed),
            _ => u64::from(self.wakes.load(Ordering::Relaxed)),
        }
    }

    fn sleep_on(&self, _: usize, value: u32, most: Duration) {
        futex_wait(&self.wakes, value, most);
    }
}

impl WordsMut for Sequence {
    #[inline]
    fn store(&self, offset: usize, value: u64) {
        match offset {
            VALUE => self.value.store(value, Ordering::Relaxed),
            SLEEPERS => self.sleepers.store(value, Ordering::Relaxed),
            _ => self.wakes.store(value as u32, Ordering::Relaxed),
        }
    }

    fn wake_on(&self, _: usize) {
        futex_wake(&self.wakes);
    }

    fn enter(&self, _: usize) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self, _: usize) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Places of the three, as if they were words of a memory.
pub(crate) const VALUE: usize = 0;
pub(crate) const SLEEPERS: usize = 8;
pub(crate) const WAKES: usize = 16;
pub(crate) const BELL: Bell = Bell { sleeping: Sleeping(SLEEPERS), wake: WAKES };

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_sleeper_is_woken_by_every_raise() {
        for patience in [Patience::NONE, Patience::among(2)] {
            let (there, back) = (Arc::new(Sequence::default()), Arc::new(Sequence::default()));
            let echo = std::thread::spawn({
                let (there, back) = (Arc::clone(&there), Arc::clone(&back));
                let mut patience = patience;
                move || {
                    for number in 1..=2_000 {
                        there.wait(number, &mut patience, None).unwrap();
                        back.raise(number);
                    }
                }
            });
            let mut patience = patience;
            for number in 1..=2_000 {
                there.raise(number);
                back.wait(number, &mut patience, None).unwrap();
            }
            echo.join().unwrap();
        }
    }

    #[test]
    fn a_number_that_never_comes_is_given_up_at_the_deadline() {
        let sequence = Sequence::default();
        let deadline = Instant::now() + Duration::from_millis(5);
        assert_eq!(sequence.wait(1, &mut { Patience::NONE }, Some(deadline)), Err(TimedOut));
        assert!(Instant::now() >= deadline);
        assert_eq!(sequence.sleepers.load(Ordering::Relaxed), 0, "who gave up is not asleep");
    }
}

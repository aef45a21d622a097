//! The one source of chance in a world.

use std::time::Duration;

use rollhouse_core::split_mix64;

/// A generator of random numbers from one seed.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed: split_mix64(seed), drawn: 0 }
    }

    pub(crate) const fn bits(&mut self) -> u64 {
        self.drawn += 1;
        split_mix64(self.seed ^ split_mix64(self.drawn))
    }

    /// Draws a number from `least` to `most`, both included.
    pub(crate) const fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.bits() % (most - least + 1)
    }

    /// Draws true so many times in a thousand.
    pub(crate) const fn chance(&mut self, per_mille: u64) -> bool {
        self.bits() % 1000 < per_mille
    }

    pub(crate) const fn index(&mut self, of: usize) -> usize {
        (self.bits() % of as u64) as usize
    }

    /// Draws milliseconds from `least` to `most`, in steps of a microsecond.
    pub(crate) const fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.within(least * 1000, most * 1000))
    }
}

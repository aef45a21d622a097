//! What a session shows of itself while it runs.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that the stepping thread writes and anyone reads without stopping it.
///
/// Each is exact by itself; two of them may be a few batches apart.
#[derive(Debug, Default)]
pub struct Progress {
    beats: AtomicU64,
    steps: AtomicU64,
    episodes: AtomicU64,
    mean_return: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProgressSnapshot {
    /// Signs of life: batches stepped, and one for each part of the start and the end.
    pub beats: u64,
    /// Env steps, summed over lanes.
    pub steps: u64,
    /// Finished episodes.
    pub episodes: u64,
    /// Mean return of the finished episodes; `None` before the first.
    pub mean_return: Option<f64>,
}

impl Progress {
    /// The counters now.
    pub fn snapshot(&self) -> ProgressSnapshot {
        let episodes = self.episodes.load(Ordering::Relaxed);
        let mean = f64::from_bits(self.mean_return.load(Ordering::Relaxed));
        ProgressSnapshot {
            beats: self.beats.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
            episodes,
            mean_return: (episodes > 0).then_some(mean),
        }
    }

    /// A sign of life.
    #[inline]
    pub(crate) fn beat(&self) {
        // One writer: a load and a store are an increment.
        self.beats.store(self.beats.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Publishes what a reader wants to see.
    pub(crate) fn publish(&self, steps: u64, episodes: u64, mean_return: Option<f64>) {
        self.steps.store(steps, Ordering::Relaxed);
        self.mean_return.store(mean_return.unwrap_or(0.0).to_bits(), Ordering::Relaxed);
        self.episodes.store(episodes, Ordering::Relaxed);
    }
}

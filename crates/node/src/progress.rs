//! Counters that a session shows while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rollhouse_core::{GameResult, Outcome};
use rollhouse_engine::Stats;
use rollhouse_wire::{Extent, Standing};

use crate::Tally;
use crate::live::Live;

/// Counters that the stepping thread writes and every thread reads without stopping it.
///
/// Each is exact by itself; two of them may be a few batches apart.
#[derive(Debug, Default)]
pub struct Progress {
    beats: AtomicU64,
    steps: AtomicU64,
    episodes: AtomicU64,
    return_sum: AtomicU64,
    /// Bits of the least and the greatest return.
    returns: [AtomicU64; 2],
    length_sum: AtomicU64,
    /// Likewise of the lengths.
    lengths: [AtomicU64; 2],
    outcomes: [AtomicU64; Outcome::ALL.len()],
    results: [AtomicU64; GameResult::ALL.len()],
    scores: AtomicU64,
    score_sum: AtomicU64,
    restarts: AtomicU64,
    /// Whether the lanes' processes are being started.
    launching: AtomicBool,
    /// Where the lanes stand, unless that was taken.
    standing: Mutex<Option<Standing>>,
    /// The place where the stepping thread and the watchers meet.
    live: Arc<Live>,
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
    /// Returns the place where the stepping thread and the watchers meet.
    pub(crate) const fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Returns the counters now.
    pub fn snapshot(&self) -> ProgressSnapshot {
        let episodes = self.episodes.load(Ordering::Relaxed);
        let sum = f64::from_bits(self.return_sum.load(Ordering::Relaxed));
        ProgressSnapshot {
            beats: self.beats.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
            episodes,
            mean_return: (episodes > 0).then(|| sum / episodes as f64),
        }
    }

    /// Returns what was done, as far as it has been published.
    pub(crate) fn tally(&self) -> Tally {
        Tally {
            steps: self.steps.load(Ordering::Relaxed),
            outcomes: std::array::from_fn(|code| self.outcomes[code].load(Ordering::Relaxed)),
            results: std::array::from_fn(|index| self.results[index].load(Ordering::Relaxed)),
            scores: self.scores.load(Ordering::Relaxed),
            score_sum: f64::from_bits(self.score_sum.load(Ordering::Relaxed)),
            return_sum: f64::from_bits(self.return_sum.load(Ordering::Relaxed)),
            returns: self.extent(&self.returns),
            length_sum: f64::from_bits(self.length_sum.load(Ordering::Relaxed)),
            lengths: self.extent(&self.lengths),
            restarts: self.restarts.load(Ordering::Relaxed),
        }
    }

    fn extent(&self, shown: &[AtomicU64; 2]) -> Extent {
        let [least, greatest] = shown.each_ref().map(|bits| f64::from_bits(bits.load(Ordering::Relaxed)));
        let is_known = self.episodes.load(Ordering::Relaxed) > 0 && least <= greatest;
        Extent(is_known.then_some((least, greatest)))
    }

    /// Counts a sign of life.
    #[inline]
    pub(crate) fn beat(&self) {
        // One writer: a load and a store are an increment.
        self.beats.store(self.beats.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Says whether the lanes' processes are being started, which has deadlines of its own.
    pub(crate) fn launch(&self, launching: bool) {
        self.launching.store(launching, Ordering::Relaxed);
    }

    /// Returns whether the lanes' processes are being started.
    pub(crate) fn is_launching(&self) -> bool {
        self.launching.load(Ordering::Relaxed)
    }

    /// Shows where the lanes stand. Everything before was handed to the recorder.
    pub(crate) fn stand(&self, standing: Standing) {
        *self.standing.lock() = Some(standing);
    }

    /// Returns where the lanes stand, if that was shown since the last call.
    pub(crate) fn take_standing(&self) -> Option<Standing> {
        self.standing.lock().take()
    }

    /// Publishes the engine's statistics for readers.
    pub(crate) fn publish(&self, stats: &Stats) {
        self.steps.store(stats.steps, Ordering::Relaxed);
        self.return_sum.store(stats.returns.sum().to_bits(), Ordering::Relaxed);
        self.length_sum.store(stats.lengths.sum().to_bits(), Ordering::Relaxed);
        for (shown, summary) in [(&self.returns, &stats.returns), (&self.lengths, &stats.lengths)] {
            let (least, greatest) = summary.min().zip(summary.max()).unwrap_or((f64::NAN, f64::NAN));
            shown[0].store(least.to_bits(), Ordering::Relaxed);
            shown[1].store(greatest.to_bits(), Ordering::Relaxed);
        }
        self.episodes.store(stats.finished(), Ordering::Relaxed);
        for (shown, count) in self.outcomes.iter().zip(stats.outcomes) {
            shown.store(count, Ordering::Relaxed);
        }
        for (shown, count) in self.results.iter().zip(stats.results) {
            shown.store(count, Ordering::Relaxed);
        }
        self.scores.store(stats.scores.count(), Ordering::Relaxed);
        self.score_sum.store(stats.scores.sum().to_bits(), Ordering::Relaxed);
        self.restarts.store(stats.restarts, Ordering::Relaxed);
    }
}

//! Timings of a batch and of its phases.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Number of batches of which one is timed. Reading the clock around each phase of each block would cost more than
/// stepping a small batch.
pub const SAMPLE_EVERY: u64 = 64;

/// Part of a batch that is timed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Step,
    Reset,
    Record,
}

/// Timings of an engine's batches. `batches` counts all of them; the times come from every
/// [`SAMPLE_EVERY`]th, and those of the phases are sums over threads.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Timings {
    /// Number of batches stepped.
    pub batches: u64,
    /// Time from the call to the frame; of steps that were begun apart from their end it is not taken.
    pub batch: Samples,
    /// Time from handing work to a thread to the thread taking it.
    pub queue_wait: Samples,
    /// Time for stepping envs.
    pub step: Samples,
    /// Time for beginning episodes.
    pub reset: Samples,
    /// Time for handing rows to the recorder, waiting for it included.
    pub record: Samples,
}

/// Durations that were measured in samples.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Samples {
    /// Number of samples.
    pub samples: u64,
    /// Mean of the samples in nanoseconds.
    pub mean_ns: f64,
    /// Longest sample in nanoseconds.
    pub max_ns: u64,
}

impl Samples {
    pub(crate) fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.merge(&Self { samples: 1, mean_ns: ns as f64, max_ns: ns });
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let samples = self.samples + other.samples;
        if samples > 0 {
            let sum = self.mean_ns * self.samples as f64 + other.mean_ns * other.samples as f64;
            *self = Self { samples, mean_ns: sum / samples as f64, max_ns: self.max_ns.max(other.max_ns) };
        }
    }
}

impl Timings {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.batches += other.batches;
        self.batch.merge(&other.batch);
        self.queue_wait.merge(&other.queue_wait);
        self.step.merge(&other.step);
        self.reset.merge(&other.reset);
        self.record.merge(&other.record);
    }
}

/// Stopwatch for the phases of one share's part of a batch; it does nothing in batches that are not sampled.
#[derive(Debug)]
pub(crate) struct Laps {
    last: Option<Instant>,
    phases: [Duration; 3],
}

impl Laps {
    #[inline]
    pub(crate) fn start(sampled: bool) -> Self {
        Self { last: sampled.then(Instant::now), phases: [Duration::ZERO; 3] }
    }

    #[inline]
    pub(crate) const fn sampled(&self) -> bool {
        self.last.is_some()
    }

    /// Counts the time since the last lap to `phase`.
    #[inline]
    pub(crate) fn lap(&mut self, phase: Phase) {
        if let Some(last) = &mut self.last {
            let now = Instant::now();
            self.phases[phase as usize] += now - *last;
            *last = now;
        }
    }

    /// Adds what was measured to `timings`.
    pub(crate) fn finish(self, timings: &mut Timings) {
        if self.last.is_some() {
            timings.step.add(self.phases[Phase::Step as usize]);
            timings.reset.add(self.phases[Phase::Reset as usize]);
            timings.record.add(self.phases[Phase::Record as usize]);
        }
    }
}

//! The clock of an engine: which batches look at it, and what the others are told.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::block::Turn;
use crate::timings::{SAMPLE_EVERY, Timings};

/// The time as batches are told it, with the version of the policy that acts, and how long batches take.
///
/// Reading a clock costs a tenth of a small batch. While batches follow fast, only every sampled one reads it.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// Wall clock at `started`, in milliseconds since 1970.
    started_ms: u64,
    /// Time of the last batch that read the clock.
    turn: Turn,
    last_sample: Duration,
    /// True if batches follow so slowly that each recorded one reads the clock.
    unhurried: bool,
    /// Times of the batches, without those of crews.
    pub(crate) timings: Timings,
}

impl Clock {
    pub(crate) fn start(started: Instant) -> Self {
        let started_ms = wall_ms();
        Self {
            started,
            started_ms,
            turn: Turn { now_ms: started_ms, since_start: Duration::ZERO, policy_version: 0 },
            last_sample: Duration::ZERO,
            unhurried: false,
            timings: Timings::default(),
        }
    }

    /// Reads the clock.
    #[inline]
    pub(crate) fn now(&self) -> Turn {
        let since_start = self.started.elapsed();
        let now_ms = self.started_ms + since_start.as_millis() as u64;
        Turn { now_ms, since_start, policy_version: self.turn.policy_version }
    }

    /// Returns the time that lies so long after the start.
    pub(crate) fn at(&self, since_start: Duration) -> Instant {
        self.started + since_start
    }

    /// Says which version of the policy chooses the actions of the batches from the next one on.
    pub(crate) const fn set_policy_version(&mut self, version: u64) {
        self.turn.policy_version = version;
    }

    /// Counts a batch. Returns its time and whether it is sampled. `recorded` and `exact` batches need a fresher time:
    /// the first where batches follow slowly, the second always.
    #[inline]
    pub(crate) fn begin_batch(&mut self, recorded: bool, exact: bool) -> (Turn, bool) {
        let sampled = self.timings.batches.is_multiple_of(SAMPLE_EVERY);
        self.timings.batches += 1;
        if sampled {
            self.turn = self.now();
            let since = self.turn.since_start.saturating_sub(self.last_sample);
            self.last_sample = self.turn.since_start;
            self.unhurried = since > UNHURRIED * SAMPLE_EVERY as u32;
        } else if (recorded && self.unhurried) || exact {
            self.turn = self.now();
        }
        (self.turn, sampled)
    }

    /// Takes the time of a sampled batch that began at `turn`.
    #[inline]
    pub(crate) fn end_sampled(&mut self, turn: Turn) {
        self.timings.batch.add(self.started.elapsed().saturating_sub(turn.since_start));
    }
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Batches that follow each other faster may be told a time up to [`SAMPLE_EVERY`] batches old, which is at most about 2 ms
/// while they go on so: recordings close their chunks by it, at about 100 ms. After a pause the next sampled batch is the
/// first to see it.
const UNHURRIED: Duration = Duration::from_micros(25);

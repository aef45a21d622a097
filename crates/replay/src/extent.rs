//! What the catalogue knows of about 1 MiB of chunks without reading them.

use rollhouse_core::Outcome;
use serde::{Deserialize, Serialize};

/// What an end adds to an extent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EndFacts {
    pub(crate) lane: u32,
    pub(crate) number: u64,
    /// The outcome's code.
    pub(crate) outcome: u8,
    pub(crate) length: u64,
    pub(crate) total_reward: f64,
}

/// A stretch of one segment, in whole records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Extent {
    /// Offset of its first record.
    pub(crate) from: u64,
    /// Offset after its last record.
    pub(crate) to: u64,
    /// Chunks in it.
    pub(crate) chunks: u64,
    /// Runs with chunks in it, by index in the segment, ascending.
    pub(crate) runs: Vec<u32>,
    /// Episodes that ended in it, by outcome code.
    pub(crate) outcomes: Vec<u64>,
    /// Smallest and largest of those that ended; meaningless if none did.
    pub(crate) returns: (f64, f64),
    pub(crate) lengths: (u64, u64),
    pub(crate) lanes: (u32, u32),
    pub(crate) numbers: (u64, u64),
    /// Earliest and latest wall clock of its chunks.
    pub(crate) ms: (u64, u64),
    /// Whether a return is not a number: such an extent is never left out.
    pub(crate) odd: bool,
}

impl Extent {
    pub(crate) fn new(from: u64) -> Self {
        Self {
            from,
            to: from,
            chunks: 0,
            runs: Vec::new(),
            outcomes: vec![0; Outcome::ALL.len()],
            returns: (f64::INFINITY, f64::NEG_INFINITY),
            lengths: (u64::MAX, 0),
            lanes: (u32::MAX, 0),
            numbers: (u64::MAX, 0),
            ms: (u64::MAX, 0),
            odd: false,
        }
    }

    pub(crate) fn add_chunk(&mut self, run: u32, ms: u64) {
        self.chunks += 1;
        self.ms = (self.ms.0.min(ms), self.ms.1.max(ms));
        if let Err(at) = self.runs.binary_search(&run) {
            self.runs.insert(at, run);
        }
    }

    #[inline]
    pub(crate) fn add_end(&mut self, end: EndFacts) {
        if let Some(count) = self.outcomes.get_mut(usize::from(end.outcome)) {
            *count += 1;
        }
        // Plain comparisons leave NaN out as `f64::min` does, in fewer steps.
        if end.total_reward < self.returns.0 {
            self.returns.0 = end.total_reward;
        }
        if end.total_reward > self.returns.1 {
            self.returns.1 = end.total_reward;
        }
        self.lengths = (self.lengths.0.min(end.length), self.lengths.1.max(end.length));
        self.lanes = (self.lanes.0.min(end.lane), self.lanes.1.max(end.lane));
        self.numbers = (self.numbers.0.min(end.number), self.numbers.1.max(end.number));
        self.odd |= end.total_reward.is_nan();
    }

    /// Episodes that ended in it.
    pub(crate) fn episodes(&self) -> u64 {
        self.outcomes.iter().sum()
    }
}

//! Extents: what the catalogue knows of about 1 MiB of chunks without reading them.

use rollhouse_core::{Outcome, Start};
use serde::{Deserialize, Serialize};

use crate::code::events::CODE_RESULT_SHIFT;

/// The end of an episode as the catalogue is told of it: all that a listing shows of the episode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EndFacts {
    pub(crate) lane: u32,
    pub(crate) number: u64,
    /// Outcome and result, as an [`EndEvent`](crate::code::events::EndEvent) has them.
    pub(crate) code: u8,
    pub(crate) length: u64,
    pub(crate) total_reward: f64,
    pub(crate) started_ms: u64,
    /// Start as it was recorded; the default where it follows from the run.
    pub(crate) start: Start,
    pub(crate) score: Option<f64>,
}

/// Bits of an end's code that listings show: outcome and result.
pub(crate) const LISTED_CODE: u8 = 0x3F;

impl EndFacts {
    /// Returns the outcome's code.
    pub(crate) const fn outcome(&self) -> u8 {
        self.code & 15
    }

    /// Returns the result's code.
    pub(crate) const fn result_code(&self) -> u8 {
        self.code >> CODE_RESULT_SHIFT & 3
    }
}

/// The ends of a chunk: each of them, and what they add to an extent together.
#[derive(Debug)]
pub(crate) struct ChunkEnds {
    /// The ends, in the order in which they happened.
    pub(crate) each: Vec<EndFacts>,
    /// Returns of the agents in each of them; empty of an env of one.
    pub(crate) agents: Vec<f64>,
    /// Lanes of the block with a kept episode that began in an earlier chunk.
    pub(crate) under_way: u64,
    /// Lane-steps of the chunk.
    pub(crate) stepped: u64,
    /// Number of ends that count as lost, because an earlier chunk was lost.
    pub(crate) headless: u64,
    /// Whether an episode of the chunk may have other options than its run.
    pub(crate) have_options: bool,
    outcomes: [u64; Outcome::ALL.len()],
    steps: u64,
    returns: (f64, f64),
    lengths: (u64, u64),
    lanes: (u32, u32),
    numbers: (u64, u64),
    started_ms: (u64, u64),
    odd: bool,
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
    /// Steps of these episodes.
    pub(crate) steps: u64,
    /// Smallest and largest return of these episodes; meaningless if none ended.
    pub(crate) returns: (f64, f64),
    pub(crate) lengths: (u64, u64),
    pub(crate) lanes: (u32, u32),
    pub(crate) numbers: (u64, u64),
    pub(crate) started_ms: (u64, u64),
    /// Earliest and latest wall clock of its chunks.
    pub(crate) ms: (u64, u64),
    /// Whether a return is not a number: such an extent is never left out.
    pub(crate) odd: bool,
    /// Place of the extent's rows, if they are kept.
    pub(crate) rows: Option<RowsPlace>,
    /// Place of the returns of the agents in these rows, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agents: Option<RowsPlace>,
}

/// The place of an extent's rows in the file of their segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RowsPlace {
    pub(crate) at: u64,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

impl Extent {
    pub(crate) fn new(from: u64) -> Self {
        Self {
            from,
            to: from,
            chunks: 0,
            runs: Vec::new(),
            outcomes: vec![0; Outcome::ALL.len()],
            steps: 0,
            returns: (f64::INFINITY, f64::NEG_INFINITY),
            lengths: (u64::MAX, 0),
            lanes: (u32::MAX, 0),
            numbers: (u64::MAX, 0),
            started_ms: (u64::MAX, 0),
            ms: (u64::MAX, 0),
            odd: false,
            rows: None,
            agents: None,
        }
    }

    pub(crate) fn add_chunk(&mut self, run: u32, ms: u64) {
        self.chunks += 1;
        self.ms = (self.ms.0.min(ms), self.ms.1.max(ms));
        if let Err(at) = self.runs.binary_search(&run) {
            self.runs.insert(at, run);
        }
    }

    pub(crate) fn add_ends(&mut self, ends: &ChunkEnds) {
        for (sum, count) in self.outcomes.iter_mut().zip(ends.outcomes) {
            *sum += count;
        }
        widen(&mut self.returns, ends.returns);
        widen(&mut self.lengths, ends.lengths);
        widen(&mut self.lanes, ends.lanes);
        widen(&mut self.numbers, ends.numbers);
        widen(&mut self.started_ms, ends.started_ms);
        self.steps = self.steps.saturating_add(ends.steps);
        self.odd |= ends.odd;
    }

    /// Returns the number of episodes that ended in the extent.
    pub(crate) fn episodes(&self) -> u64 {
        self.outcomes.iter().sum()
    }
}

impl ChunkEnds {
    /// Makes an empty list of ends.
    pub(crate) const fn new() -> Self {
        Self {
            each: Vec::new(),
            agents: Vec::new(),
            under_way: 0,
            stepped: 0,
            headless: 0,
            have_options: false,
            outcomes: [0; Outcome::ALL.len()],
            steps: 0,
            returns: (f64::INFINITY, f64::NEG_INFINITY),
            lengths: (u64::MAX, 0),
            lanes: (u32::MAX, 0),
            numbers: (u64::MAX, 0),
            started_ms: (u64::MAX, 0),
            odd: false,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, end: EndFacts) {
        if let Some(count) = self.outcomes.get_mut(usize::from(end.outcome())) {
            *count += 1;
        }
        widen(&mut self.returns, (end.total_reward, end.total_reward));
        widen(&mut self.lengths, (end.length, end.length));
        widen(&mut self.lanes, (end.lane, end.lane));
        widen(&mut self.numbers, (end.number, end.number));
        widen(&mut self.started_ms, (end.started_ms, end.started_ms));
        // Lengths of a recording come to this only if they were made up.
        self.steps = self.steps.saturating_add(end.length);
        self.odd |= end.total_reward.is_nan();
        self.each.push(end);
    }

    /// Empties the list and keeps its memory.
    pub(crate) fn clear(&mut self) {
        let (mut each, mut agents) = (std::mem::take(&mut self.each), std::mem::take(&mut self.agents));
        each.clear();
        agents.clear();
        *self = Self { each, agents, ..Self::new() };
    }

    /// Returns the number of ends.
    pub(crate) const fn episodes(&self) -> u64 {
        self.each.len() as u64
    }
}

/// Widens `range` to take in another one; NaN changes nothing. Ranges seldom grow, so that this mostly compares and
/// does not write.
#[inline]
fn widen<T: PartialOrd>(range: &mut (T, T), by: (T, T)) {
    if by.0 < range.0 {
        range.0 = by.0;
    }
    if by.1 > range.1 {
        range.1 = by.1;
    }
}

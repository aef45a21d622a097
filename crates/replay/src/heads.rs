//! Episodes whose beginning is gone: dropped to keep a budget, lost while the disk took nothing, or damaged.
//!
//! A block's chunks say how many rows it had before each. Where that number does not continue the chunk before, what
//! stood between them is gone, and the episodes that are under way cannot be read, though their ends are there. They
//! are not listed. Whether the chunk before a segment's first one is there is known only beside the other segments.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::extent::{ChunkEnds, EndFacts};
use crate::replays::Segment;

/// A block in the middle of episodes, at a chunk without the one before it in its segment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entering {
    /// Index of the run in the segment.
    run: u32,
    first_lane: u32,
    /// Rows of the block before the chunk.
    rows: u64,
    /// Lanes with an episode under way.
    lanes: u64,
    /// Whether earlier chunks of the block stand in the segment, so that the one between is certainly gone.
    after_gap: bool,
    /// The ends of those episodes, as far as they stand in the segment.
    ended: Vec<EndFacts>,
}

/// Follows the blocks of a segment from chunk to chunk.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// By run and first lane.
    blocks: BTreeMap<(u32, u32), Followed>,
    pub(crate) entering: Vec<Entering>,
}

#[derive(Debug, Default)]
struct Followed {
    /// Rows of the block so far.
    rows: u64,
    /// Lanes that are still in the episode with which they entered, and where that is noted.
    waiting: u64,
    entering: usize,
}

impl Heads {
    /// Takes the next chunk of a block, which had `before` rows before it; gives its rows so far.
    pub(crate) fn chunk(
        &mut self,
        run: u32,
        first_lane: u32,
        before: u64,
        rows: u32,
        ends: &ChunkEnds,
    ) -> u64 {
        let known = self.blocks.contains_key(&(run, first_lane));
        let block = self.blocks.entry((run, first_lane)).or_default();
        if !known || block.rows != before {
            (block.waiting, block.entering) = (ends.under_way, self.entering.len());
            if ends.under_way != 0 {
                let lanes = ends.under_way;
                let ended = Vec::new();
                self.entering.push(Entering {
                    run,
                    first_lane,
                    rows: before,
                    lanes,
                    after_gap: known,
                    ended,
                });
            }
        }
        if block.waiting != 0
            && let Some(entering) = self.entering.get_mut(block.entering)
        {
            for end in &ends.each {
                let lane = bit(end.lane, first_lane);
                if block.waiting & lane != 0 {
                    block.waiting &= !lane;
                    entering.ended.push(*end);
                }
            }
        }
        block.rows = before + u64::from(rows);
        block.rows
    }
}

/// Run, placement and first lane of a block.
type BlockKey = (u128, u64, u32);

/// Episodes of a folder whose beginning is gone.
#[derive(Debug, Default)]
pub(crate) struct Headless {
    /// Those that ended, by segment: index of the run there, lane and number.
    ended: BTreeMap<u64, BTreeMap<(u32, u32, u64), EndFacts>>,
    /// Lanes of each block whose last episode has not ended.
    open: BTreeMap<BlockKey, u64>,
}

impl Headless {
    /// What the segments' indexes say together; reads nothing.
    pub(crate) fn of(segments: &BTreeMap<u64, Arc<Segment>>) -> Self {
        let mut ended: BTreeMap<u64, BTreeMap<_, _>> = BTreeMap::new();
        // Rows of each block so far, and its lanes that are in the middle of an episode without a beginning.
        let mut blocks: BTreeMap<BlockKey, (u64, u64)> = BTreeMap::new();
        for (&number, segment) in segments {
            let mut still: BTreeMap<BlockKey, u64> = BTreeMap::new();
            for entering in &segment.index.entering {
                let Some(key) = key_of(segment, entering.run, entering.first_lane) else { continue };
                let before =
                    blocks.get(&key).filter(|(rows, _)| !entering.after_gap && *rows == entering.rows);
                let mut lost = before.map_or(entering.lanes, |(_, lost)| lost & entering.lanes);
                for end in &entering.ended {
                    let lane = bit(end.lane, entering.first_lane);
                    if lost & lane != 0 {
                        lost &= !lane;
                        ended.entry(number).or_default().insert((entering.run, end.lane, end.number), *end);
                    }
                }
                still.insert(key, lost);
            }
            for tail in &segment.index.tails {
                if let Some(key) = key_of(segment, tail.run, tail.first_lane) {
                    blocks.insert(key, (tail.rows, still.get(&key).copied().unwrap_or_default()));
                }
            }
        }
        let open = blocks.into_iter().map(|(key, (_, lost))| (key, lost)).filter(|(_, lost)| *lost != 0);
        Self { ended, open: open.collect() }
    }

    /// Whether an episode that ended in a segment is one of them; `run` is its run's index there.
    pub(crate) fn has(&self, segment: u64, run: u32, lane: u32, number: u64) -> bool {
        self.ended.get(&segment).is_some_and(|ended| ended.contains_key(&(run, lane, number)))
    }

    /// Whether any of them ended in a segment.
    pub(crate) fn is_in(&self, segment: u64) -> bool {
        self.ended.contains_key(&segment)
    }

    /// Those that ended in a segment, each with its run's index there.
    pub(crate) fn ended_in(&self, segment: u64) -> impl Iterator<Item = (u32, &EndFacts)> {
        self.ended.get(&segment).into_iter().flatten().map(|((run, ..), end)| (*run, end))
    }

    /// Lanes of a block whose last episode is one of them and has not ended.
    pub(crate) fn open(&self, run: u128, placement: u64, first_lane: u32) -> u64 {
        self.open.get(&(run, placement, first_lane)).copied().unwrap_or_default()
    }

    /// How many of them have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.values().map(|ended| ended.len() as u64).sum()
    }
}

/// The lane's bit in the masks of its block.
const fn bit(lane: u32, first_lane: u32) -> u64 {
    1 << (lane.wrapping_sub(first_lane) & 63)
}

fn key_of(segment: &Segment, run: u32, first_lane: u32) -> Option<BlockKey> {
    let run = segment.runs.get(&run)?;
    Some((run.run().as_u128(), run.placement, first_lane))
}

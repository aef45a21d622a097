//! Episodes whose beginning is gone: dropped to keep a budget, lost while the disk took nothing, or damaged.
//!
//! Each chunk says how many rows its block had before it. Where that number does not continue the chunk before, a chunk
//! between them is gone, and the episodes that are under way cannot be read, though their ends are there. They are not
//! listed. Only a look at the other segments shows whether the chunk before a segment's first one is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::code::extent::{EndFacts, Extent};
use crate::read::read_error::ReadError;
use crate::read::segment::Segment;
use crate::stored::followed::Entering;

/// Visits the ends in an extent of a segment, each with its run's index there, its block's first lane and its chunk's
/// offset.
pub(crate) type EachEnd<'a> =
    dyn Fn(&Segment, &Extent, &mut dyn FnMut(u32, u32, u64, EndFacts)) -> Result<(), ReadError> + 'a;

/// Run, placement and first lane of a block.
type BlockKey = (u128, u64, u32);

/// Episodes of a folder whose beginning is gone.
#[derive(Debug, Default)]
pub(crate) struct Headless {
    /// The episodes that ended, by segment: index of the run there, lane and number.
    ended: BTreeMap<u64, BTreeMap<(u32, u32, u64), EndFacts>>,
    /// Lanes of each block whose last episode has not ended.
    open: BTreeMap<BlockKey, u64>,
}

impl Headless {
    /// Finds them in all segments of the folder together. Reads the rows of only those segments in which such episodes
    /// ended.
    pub(crate) fn of(
        segments: &BTreeMap<u64, Arc<Segment>>,
        each_end: &EachEnd<'_>,
    ) -> Result<Self, ReadError> {
        let mut ended: BTreeMap<u64, BTreeMap<_, _>> = BTreeMap::new();
        // Rows of each block so far, and its lanes that are in the middle of an episode without a beginning.
        let mut blocks: BTreeMap<BlockKey, (u64, u64)> = BTreeMap::new();
        for (&number, segment) in segments {
            let mut still: BTreeMap<BlockKey, u64> = BTreeMap::new();
            let mut waiting = Vec::new();
            for entering in &segment.index.entering {
                let Some(key) = key_of(segment, entering.run, entering.first_lane) else { continue };
                let before =
                    blocks.get(&key).filter(|(rows, _)| !entering.after_gap && *rows == entering.rows);
                let lost = before.map_or(entering.lanes, |(_, lost)| lost & entering.lanes);
                still.insert(key, lost);
                waiting.push(Waiting { entering, key, lost });
            }
            if waiting.iter().any(|block| block.lost != 0) {
                for (run, end) in first_ends(segment, each_end, &mut waiting)? {
                    ended.entry(number).or_default().insert((run, end.lane, end.number), end);
                }
                // The last of a block stands for it; what an earlier one still waits for cannot have ended.
                still.extend(waiting.iter().map(|block| (block.key, block.lost)));
            }
            for tail in &segment.index.tails {
                if let Some(key) = key_of(segment, tail.run, tail.first_lane) {
                    blocks.insert(key, (tail.rows, still.get(&key).copied().unwrap_or_default()));
                }
            }
        }
        let open = blocks.into_iter().map(|(key, (_, lost))| (key, lost)).filter(|(_, lost)| *lost != 0);
        Ok(Self { ended, open: open.collect() })
    }

    /// Returns whether the beginning of an episode that ended in a segment is gone; `run` is its run's index there.
    pub(crate) fn has(&self, segment: u64, run: u32, lane: u32, number: u64) -> bool {
        self.ended.get(&segment).is_some_and(|ended| ended.contains_key(&(run, lane, number)))
    }

    /// Returns whether any of these episodes ended in a segment.
    pub(crate) fn is_in(&self, segment: u64) -> bool {
        self.ended.contains_key(&segment)
    }

    /// Returns those that ended in a segment, each with its run's index there.
    pub(crate) fn ended_in(&self, segment: u64) -> impl Iterator<Item = (u32, &EndFacts)> {
        self.ended.get(&segment).into_iter().flatten().map(|((run, ..), end)| (*run, end))
    }

    /// Returns the lanes of a block whose last episode is one of them and has not ended.
    pub(crate) fn open(&self, run: u128, placement: u64, first_lane: u32) -> u64 {
        self.open.get(&(run, placement, first_lane)).copied().unwrap_or_default()
    }

    /// Returns how many of these episodes have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.values().map(|ended| ended.len() as u64).sum()
    }
}

/// A block that entered a segment without the beginnings of episodes.
struct Waiting<'a> {
    entering: &'a Entering,
    key: BlockKey,
    /// Lanes whose episode has not ended yet.
    lost: u64,
}

/// Returns the ends of the episodes that were under way when their blocks entered a segment, each with its run's index
/// there. Takes their lanes out of `waiting`.
fn first_ends(
    segment: &Segment,
    each_end: &EachEnd<'_>,
    waiting: &mut [Waiting<'_>],
) -> Result<Vec<(u32, EndFacts)>, ReadError> {
    let mut found = Vec::new();
    for extent in &segment.index.extents {
        if waiting.iter().all(|block| block.lost == 0) {
            break;
        }
        each_end(segment, extent, &mut |run, first_lane, offset, end| {
            let of_block = waiting.iter_mut().filter(|block| {
                let Entering { run: of, first_lane: first, offset: from, .. } = *block.entering;
                (of, first) == (run, first_lane) && u64::from(from) <= offset
            });
            // The newest gap before the end is the one that counts.
            if let Some(block) = of_block.last()
                && block.lost & bit(end.lane, first_lane) != 0
            {
                block.lost &= !bit(end.lane, first_lane);
                found.push((run, end));
            }
        })?;
    }
    Ok(found)
}

/// Returns the lane's bit in the masks of its block.
const fn bit(lane: u32, first_lane: u32) -> u64 {
    1 << (lane.wrapping_sub(first_lane) & 63)
}

fn key_of(segment: &Segment, run: u32, first_lane: u32) -> Option<BlockKey> {
    let run = segment.runs.get(run)?;
    Some((run.run().as_u128(), run.placement, first_lane))
}

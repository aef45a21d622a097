//! The blocks of a segment, followed from chunk to chunk, so that it is seen where a chunk between two is gone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A block that is in the middle of episodes at a chunk whose predecessor is not in the same segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entering {
    /// Index of the run in the segment.
    pub(crate) run: u32,
    pub(crate) first_lane: u32,
    /// Offset of the chunk in the segment.
    pub(crate) offset: u32,
    /// Rows of the block before the chunk.
    pub(crate) rows: u64,
    /// Lanes with an episode under way.
    pub(crate) lanes: u64,
    /// Whether the segment has earlier chunks of the block, so that the one between is certainly gone.
    pub(crate) after_gap: bool,
}

impl Entering {
    /// Returns the run's index in the segment, and the lanes with an episode under way.
    pub(crate) fn lanes(&self) -> (u32, impl Iterator<Item = u32>) {
        let (first, mask) = (self.first_lane, self.lanes);
        (
            self.run,
            (0..64).filter(move |lane| mask >> lane & 1 == 1).map(move |lane| first.saturating_add(lane)),
        )
    }
}

/// The blocks of a segment, followed from chunk to chunk.
#[derive(Debug, Default)]
pub(crate) struct FollowedBlocks {
    /// Rows of each block so far, by run and first lane.
    blocks: BTreeMap<(u32, u32), u64>,
    pub(crate) entering: Vec<Entering>,
}

impl FollowedBlocks {
    /// Takes the next chunk of the block with that run and first lane. The block had `before` rows before the chunk,
    /// and episodes under way in `lanes` as it begins. Returns the block's rows so far.
    pub(crate) fn chunk(
        &mut self,
        (run, first_lane): (u32, u32),
        offset: u64,
        before: u64,
        rows: u32,
        lanes: u64,
    ) -> u64 {
        let so_far = before + u64::from(rows);
        let known = self.blocks.insert((run, first_lane), so_far);
        // A gap ends also what was under way before it and is not any more.
        if known != Some(before) && (lanes != 0 || known.is_some()) {
            // Offsets within a segment are 32 bits wide.
            let (offset, after_gap) = (offset as u32, known.is_some());
            self.entering.push(Entering { run, first_lane, offset, rows: before, lanes, after_gap });
        }
        so_far
    }
}

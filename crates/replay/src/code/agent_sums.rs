//! The returns of each agent in episodes of several: sums of the rewards that the lanes of such an env observe, by agent.

use std::collections::BTreeMap;

use rollhouse_core::LaneSet;

use crate::code::agents::AgentRewards;
use crate::code::buffer::BlockLanes;
use crate::code::buffer_pass::Happened;
use crate::code::coding::ends;
use crate::code::events::UNKNOWN_RETURN;

/// What the agents of a run's lanes have got in the episodes that are under way.
#[derive(Debug)]
pub(crate) struct AgentSums {
    of: AgentRewards,
    /// For each lane of a block, by the block's first lane, the sum of each agent.
    blocks: BTreeMap<u32, Vec<f64>>,
    /// Returns of the kept episodes that ended in the chunk that was added last, in the order in which they ended.
    ended: Vec<f64>,
}

impl AgentSums {
    pub(crate) const fn new(of: AgentRewards) -> Self {
        Self { of, blocks: BTreeMap::new(), ended: Vec::new() }
    }

    pub(crate) const fn column(&self) -> usize {
        self.of.column
    }

    pub(crate) fn ended(&self) -> &[f64] {
        &self.ended
    }

    /// Forgets the ends of the chunk before.
    pub(crate) fn begin_chunk(&mut self) {
        self.ended.clear();
    }

    /// Adds the rewards of a chunk, which are rows of the lanes that stepped in kept episodes, and appends the returns of
    /// those that ended to `out`.
    pub(crate) fn chunk(
        &mut self,
        lanes: BlockLanes,
        happened: &Happened,
        rewards: &[u8],
        out: &mut Vec<u8>,
    ) {
        let agents = self.of.agents;
        let sums = self.blocks.entry(lanes.first).or_insert_with(|| vec![0.0; lanes.count * agents]);
        let kept = happened.ends.each.iter().filter(|end| end.flags & ends::OUTCOME_BITS != ends::NOT_KEPT);
        self.ended.resize(kept.clone().count() * agents, 0.0);
        let mut kept = kept.peekable();
        let mut rewards = rewards.as_chunks().0.iter().map(|reward| f64::from_le_bytes(*reward));
        // Behind the last row, those that ended after it.
        let stepped = happened.kept_rows.iter().copied().chain([0]);
        for (row, stepped) in stepped.enumerate() {
            let is_last = row == happened.kept_rows.len();
            while let Some(end) = kept.next_if(|end| usize::from(end.event.pos) <= row || is_last) {
                let sums = &mut sums[usize::from(end.event.lane) * agents..][..agents];
                if end.event.total_reward.to_bits() == UNKNOWN_RETURN.to_bits() {
                    sums.fill(UNKNOWN_RETURN);
                }
                self.ended[end.kept as usize * agents..][..agents].copy_from_slice(sums);
                out.extend(sums.iter().flat_map(|sum| sum.to_le_bytes()));
                sums.fill(0.0);
            }
            for lane in LaneSet::of_bits(stepped) {
                let sums = &mut sums[lane * agents..][..agents];
                sums.iter_mut().zip(&mut rewards).for_each(|(sum, reward)| *sum += reward);
            }
        }
    }
}

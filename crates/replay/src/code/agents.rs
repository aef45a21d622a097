//! The returns of each agent in episodes of several: sums of the rewards that the lanes of such an env observe, by agent.

use std::collections::BTreeMap;

use rollhouse_core::limits::MAX_OBS_COLUMNS;
use rollhouse_core::{CompositeSpace, EnvSpec, LaneSet, ObservationSpace};

use crate::code::buffer::BlockLanes;
use crate::code::buffer_pass::Happened;
use crate::code::codec::Malformed;
use crate::code::coding::ends;
use crate::code::events::UNKNOWN_RETURN;

/// The observation column that has a reward of each agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AgentRewards {
    /// Index of the column among those of observations.
    pub(crate) column: usize,
    pub(crate) agents: usize,
}

impl AgentRewards {
    /// Finds the column of an env of several agents, of which there are fewer than columns.
    pub(crate) fn of(spec: &EnvSpec) -> Option<Self> {
        let agents = agents_of(spec).len();
        let columns = spec.obs_columns();
        let column =
            columns.iter().position(|column| column.path == REWARDS && column.row_bytes() == agents * 8);
        column.filter(|_| (1..MAX_OBS_COLUMNS).contains(&agents)).map(|column| Self { column, agents })
    }
}

/// Returns the agents of an env of several, in their order; none of any other.
pub(crate) fn agents_of(spec: &EnvSpec) -> Vec<&str> {
    let parts = parts_of(&spec.observation_space);
    let part = |name: &str| parts.iter().find(|(part, _)| part == name).map(|(_, space)| space);
    let all = parts.len() == OBSERVED.len() && OBSERVED.iter().all(|name| part(name).is_some());
    let observations = part(OBSERVED[0]).filter(|_| all).map_or(&[][..], parts_of);
    observations.iter().map(|(agent, _)| &**agent).collect()
}

fn parts_of(space: &ObservationSpace) -> &[(String, ObservationSpace)] {
    match space {
        ObservationSpace::Composite(CompositeSpace::Dict { spaces }) => spaces,
        _ => &[],
    }
}

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

/// Reads the returns of the agents in so many episodes; empty where they were not recorded.
pub(crate) fn read(
    bytes: &[u8],
    of: Option<AgentRewards>,
    episodes: impl Iterator,
    out: &mut Vec<f64>,
) -> Result<(), Malformed> {
    out.clear();
    let Some(AgentRewards { agents, .. }) = of.filter(|_| !bytes.is_empty()) else { return Ok(()) };
    if bytes.len() != episodes.count() * agents * size_of::<f64>() {
        return Err(Malformed("returns of agents"));
    }
    out.extend(bytes.as_chunks().0.iter().map(|sum| f64::from_le_bytes(*sum)));
    Ok(())
}

/// The parts of what a lane of several agents observes, as the adapter of the Python package lays it out.
const OBSERVED: [&str; 5] = ["observations", REWARDS, "terminations", "truncations", "alive"];
const REWARDS: &str = "rewards";

#[cfg(test)]
mod tests {
    use rollhouse_core::Space;
    use rollhouse_env::Registry;

    use super::*;

    fn dict(parts: &[(&str, ObservationSpace)]) -> ObservationSpace {
        let spaces = parts.iter().map(|(name, space)| ((*name).to_owned(), space.clone())).collect();
        CompositeSpace::Dict { spaces }.into()
    }

    fn spec(observation_space: ObservationSpace) -> EnvSpec {
        let entry = Registry::builtin().get("CartPole-v1").unwrap();
        EnvSpec { observation_space, ..entry.spec().clone() }
    }

    #[test]
    fn agents_are_those_of_the_observations_in_their_order_and_other_envs_have_none() {
        let flags = ObservationSpace::from(Space::discrete(2));
        let agents = dict(&[("tortoise", flags.clone()), ("a/hare", dict(&[("near", flags.clone())]))]);
        let mut parts = OBSERVED.map(|name| (name, flags.clone()));
        let none: [&str; 0] = [];
        assert_eq!(agents_of(&spec(dict(&parts))), none, "nothing by agent is observed");
        parts[0].1 = agents.clone();
        let known = spec(dict(&parts));
        assert_eq!(agents_of(&known), ["tortoise", "a/hare"]);
        assert_eq!(AgentRewards::of(&known), None, "one reward for two");
        assert_eq!(agents_of(&spec(dict(&parts[..4]))), none, "it says nothing of who is alive");
        assert_eq!(agents_of(&spec(agents)), none);
        assert_eq!(agents_of(&spec(flags)), none);
    }
}

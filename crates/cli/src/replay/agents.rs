//! The returns of each agent in an episode of several, from what was recorded of its steps.

use std::collections::BTreeMap;

use rollhouse_core::{ColumnData, ColumnSpec, CompositeSpace, ObservationSpace};
use rollhouse_replay::LibraryEpisode;

use crate::failure::Failure;
use crate::replay::read_failure;

/// Returns the sum of each agent's rewards; empty for an episode of one agent. Only one of several is read.
pub(super) fn agent_returns(found: &LibraryEpisode) -> Result<BTreeMap<String, f64>, Failure> {
    let spec = &found.info.run.spec;
    let Some(agents) = agents_of(&spec.observation_space) else { return Ok(BTreeMap::new()) };
    let columns = spec.obs_columns();
    let is_rewards = |column: &ColumnSpec| column.path == REWARDS;
    let Some(at) = columns.iter().position(is_rewards) else { return Ok(BTreeMap::new()) };
    if columns[at].elements() != agents.len() {
        return Ok(BTreeMap::new());
    }
    let episode = found.folder.load(&found.info).map_err(read_failure)?;
    let rewards = episode.steps.as_ref().and_then(|steps| steps.obs.get(at));
    Ok(rewards.map(|rewards| sums(rewards, &agents)).unwrap_or_default())
}

/// Returns the agents of a space in their order, if it is that of lanes of several.
fn agents_of(space: &ObservationSpace) -> Option<Vec<&str>> {
    let parts = parts_of(space)?;
    let is_agents = parts.len() == OBSERVED.len() && OBSERVED.iter().all(|name| part(parts, name).is_some());
    let observations = part(parts, OBSERVED[0]).filter(|_| is_agents)?;
    Some(parts_of(observations)?.iter().map(|(agent, _)| &**agent).collect())
}

fn parts_of(space: &ObservationSpace) -> Option<&[(String, ObservationSpace)]> {
    match space {
        ObservationSpace::Composite(CompositeSpace::Dict { spaces }) => Some(spaces),
        _ => None,
    }
}

fn part<'a>(parts: &'a [(String, ObservationSpace)], name: &str) -> Option<&'a ObservationSpace> {
    parts.iter().find(|(part, _)| part == name).map(|(_, space)| space)
}

/// Adds up rows of the agents' rewards.
fn sums(rewards: &ColumnData, agents: &[&str]) -> BTreeMap<String, f64> {
    let of_agent = |at| (at..rewards.len()).step_by(agents.len()).map(|index| rewards.number(index)).sum();
    agents.iter().enumerate().map(|(at, agent)| ((*agent).to_owned(), of_agent(at))).collect()
}

/// The parts of what a lane of several agents observes, as `rollhouse.pettingzoo` lays it out.
const OBSERVED: [&str; 5] = ["observations", REWARDS, "terminations", "truncations", "alive"];
const REWARDS: &str = "rewards";

#[cfg(test)]
mod tests {
    use rollhouse_core::Space;

    use super::*;

    fn dict(parts: &[(&str, ObservationSpace)]) -> ObservationSpace {
        let spaces = parts.iter().map(|(name, space)| ((*name).to_owned(), space.clone())).collect();
        CompositeSpace::Dict { spaces }.into()
    }

    #[test]
    fn agents_are_those_of_the_observations_in_their_order_and_other_envs_have_none() {
        let flags = ObservationSpace::from(Space::discrete(2));
        let agents = dict(&[("tortoise", flags.clone()), ("a/hare", dict(&[("near", flags.clone())]))]);
        let mut parts = OBSERVED.map(|name| (name, flags.clone()));
        assert_eq!(agents_of(&dict(&parts)), None, "nothing by agent is observed");
        parts[0].1 = agents.clone();
        assert_eq!(agents_of(&dict(&parts)), Some(vec!["tortoise", "a/hare"]));
        assert_eq!(agents_of(&dict(&parts[..4])), None, "it says nothing of who is alive");
        assert_eq!(agents_of(&agents), None);
        assert_eq!(agents_of(&flags), None);
    }

    #[test]
    fn rewards_of_each_agent_are_added_up_over_the_steps() {
        let rewards = ColumnData::F64(vec![1.0, -1.0, 0.5, 2.0, 0.0, 4.0]);
        let expected = [("hare".to_owned(), 1.5), ("tortoise".to_owned(), 5.0)];
        assert_eq!(sums(&rewards, &["hare", "tortoise"]), BTreeMap::from(expected));
        assert_eq!(sums(&ColumnData::F64(Vec::new()), &["hare"]), BTreeMap::from([("hare".to_owned(), 0.0)]));
    }
}

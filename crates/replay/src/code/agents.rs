//! The agents of an env of several, and their returns as chunks have them.

use rollhouse_core::limits::MAX_OBS_COLUMNS;
use rollhouse_core::{CompositeSpace, EnvSpec, ObservationSpace};

use crate::code::codec::Malformed;

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

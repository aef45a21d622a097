//! What an env says about itself.

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_ELEMENT_NAMES, MAX_OBS_COLUMNS, MAX_OPTIONS};
use crate::{ColumnSpec, ObservationSpace, OptionSpec, Role, Space, bounded_list};

/// Everything that is known of an env without running it. One per env id, shared by all lanes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnvSpec {
    /// Gymnasium's id where it has one, e.g. `CartPole-v1`.
    pub id: String,
    /// One sentence for listings.
    pub summary: String,
    /// Space of one observation.
    pub observation_space: ObservationSpace,
    /// Space of one action.
    pub action_space: Space,
    /// A name per element of the observation, column by column; none where names would say no more than places, as in an image.
    #[serde(deserialize_with = "bounded_list::<_, MAX_ELEMENT_NAMES, _>")]
    pub observation_names: Vec<String>,
    /// A name per action (Discrete) or per element of the action (Box), or none.
    #[serde(deserialize_with = "bounded_list::<_, MAX_ELEMENT_NAMES, _>")]
    pub action_names: Vec<String>,
    /// The time limit in steps; `None` when episodes end only by themselves.
    pub max_episode_steps: Option<u32>,
    /// Whether start and actions decide everything.
    pub determinism: Determinism,
    /// What it can be made with.
    #[serde(deserialize_with = "bounded_list::<_, MAX_OPTIONS, _>")]
    pub options: Vec<OptionSpec>,
    /// Per-step info columns beside the observation.
    #[serde(deserialize_with = "bounded_list::<_, MAX_OBS_COLUMNS, _>")]
    pub info_channels: Vec<ColumnSpec>,
    /// Hash of the spec and of the states of a fixed 1,000-step run; a constant beside the env that a test
    /// recomputes, so that changed dynamics cannot keep the old hash.
    pub dynamics_hash: u64,
}

/// Whether an episode can be recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Determinism {
    /// Start, options and actions decide every later state, bit by bit: recorded as an action log.
    Deterministic,
    /// Something else plays in: recorded in full.
    NonDeterministic,
}

/// What the env itself says of who won; most envs say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GameResult {
    /// The env knows no winner.
    #[default]
    None,
    /// The policy won.
    Win,
    /// The policy lost.
    Lose,
    /// Neither.
    Draw,
}

impl EnvSpec {
    /// The columns of an observation in the space's own order.
    pub fn obs_columns(&self) -> Vec<ColumnSpec> {
        let mut names = self.observation_names.iter().cloned();
        let spaces = self.observation_space.columns().into_iter();
        let columns = spaces.map(|(path, space)| {
            let names = names.by_ref().take(space.elements()).collect();
            ColumnSpec { path, ..column(space, Role::Obs, names) }
        });
        columns.collect()
    }

    /// The column of an action.
    pub fn action_column(&self) -> ColumnSpec {
        let names = match self.action_space {
            Space::Box(_) => self.action_names.clone(),
            Space::Discrete(_) => Vec::new(),
        };
        column(&self.action_space, Role::Action, names)
    }
}

fn column(space: &Space, role: Role, names: Vec<String>) -> ColumnSpec {
    ColumnSpec { path: String::new(), dtype: space.dtype(), shape: space.shape().to_vec(), names, role }
}

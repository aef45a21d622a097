//! The spec of an env, which is what it says about itself.

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_ELEMENT_NAMES, MAX_OBS_COLUMNS, MAX_OPTIONS};
use crate::{ColumnSpec, ObservationSpace, OptionSpec, Role, Space, bounded_list};

/// Everything that is known of an env without running it. There is one spec for each env id, shared by all lanes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnvSpec {
    /// Id of the env: Gymnasium's where it has one, e.g. `CartPole-v1`.
    pub id: String,
    /// One sentence about the env, for listings.
    pub summary: String,
    /// Space of one observation.
    pub observation_space: ObservationSpace,
    /// Space of one action.
    pub action_space: Space,
    /// Name of each element of the observation, column by column. The list is empty where names would say no more than
    /// positions, as in an image.
    #[serde(deserialize_with = "bounded_list::<_, MAX_ELEMENT_NAMES, _>")]
    pub observation_names: Vec<String>,
    /// Name of each action (Discrete) or of each element of the action (Box). The list may be empty.
    #[serde(deserialize_with = "bounded_list::<_, MAX_ELEMENT_NAMES, _>")]
    pub action_names: Vec<String>,
    /// Time limit in steps; `None` when episodes end only by themselves.
    pub max_episode_steps: Option<u32>,
    /// Whether start and actions decide everything that follows.
    pub determinism: Determinism,
    /// Options with which the env can be made.
    #[serde(deserialize_with = "bounded_list::<_, MAX_OPTIONS, _>")]
    pub options: Vec<OptionSpec>,
    /// Columns of info that each step gives beside the observation.
    #[serde(deserialize_with = "bounded_list::<_, MAX_OBS_COLUMNS, _>")]
    pub info_channels: Vec<ColumnSpec>,
    /// Hash of the spec and of the states of a fixed 1,000-step run. It is a constant beside the env that a test
    /// recomputes, so that changed dynamics cannot keep the old hash.
    pub dynamics_hash: u64,
}

/// Whether an episode can be recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Determinism {
    /// Start, options and actions decide every later state, bit by bit. Episodes are recorded as action logs.
    Deterministic,
    /// Something else has an influence. Episodes are recorded in full.
    NonDeterministic,
}

/// Result that the env itself reports of a game; most envs report none.
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
    /// Nobody won.
    Draw,
}

impl EnvSpec {
    /// Returns the columns of an observation in the space's own order.
    pub fn obs_columns(&self) -> Vec<ColumnSpec> {
        let mut names = self.observation_names.iter().cloned();
        let spaces = self.observation_space.columns().into_iter();
        let columns = spaces.map(|(path, space)| {
            let names = names.by_ref().take(space.elements()).collect();
            ColumnSpec { path, ..column(space, Role::Obs, names) }
        });
        columns.collect()
    }

    /// Returns the column of an action.
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

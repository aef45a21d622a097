//! What policies are made of.

use std::fmt;

use rollhouse_core::{EnvSpec, StepColumns};

use crate::{Builtin, Policy, Random, Sampling, SpaceError};

/// A model: all that is fixed of a way to choose actions. Policies are made of it, one for each part of a run that chooses
/// by itself, and it is shared by all of them.
pub trait Model: fmt::Debug + Send + Sync {
    /// Returns the name that is recorded with every episode that it played.
    fn name(&self) -> &str;

    /// Returns the version that is recorded beside the name.
    fn version(&self) -> u64;

    /// Says in some words what it is.
    fn description(&self) -> String {
        self.name().to_owned()
    }

    /// Returns how it draws actions; `None` if there is nothing to choose about that.
    fn sampling(&self) -> Option<Sampling> {
        None
    }

    /// Returns whether its policies remember in an env what lanes have shown before ([`Policy::is_recurrent`]).
    fn is_recurrent(&self, env: &EnvSpec) -> bool {
        let _ = env;
        false
    }

    /// Returns a column of singles for each state that its policies keep of a lane in an env ([`Policy::memory`]), in that order.
    fn states(&self, env: &EnvSpec) -> StepColumns {
        let _ = env;
        StepColumns::default()
    }

    /// Returns what its policies note of each step in an env ([`Policy::notes`]), in that order.
    fn columns(&self, env: &EnvSpec) -> StepColumns {
        let _ = env;
        StepColumns::default()
    }

    /// Makes a policy for lanes of an env. `run_seed` decides what is random about it.
    ///
    /// # Errors
    /// It cannot play in the env's spaces.
    fn make(&self, env: &EnvSpec, run_seed: u64) -> Result<Box<dyn Policy>, ModelError>;
}

impl Model for Builtin {
    fn name(&self) -> &str {
        Self::name(*self)
    }

    fn version(&self) -> u64 {
        0
    }

    fn make(&self, env: &EnvSpec, run_seed: u64) -> Result<Box<dyn Policy>, ModelError> {
        match self {
            Self::Random => Ok(Box::new(Random::new(&env.action_space, run_seed)?.in_env(env))),
            Self::Noop => Ok(Self::make(*self, &env.action_space, run_seed)?),
        }
    }
}

/// Reason for which a model cannot play in an env.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The built-in policy cannot play in the action space.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The observation has texts or sequences, whose numbers are not always as many.
    #[error("the env's observations have texts or sequences, which a dense net cannot take")]
    Counted,
    /// The action has several parts.
    #[error("the env's actions have several parts, which a dense net cannot choose")]
    Parts,
    /// The observation has another number of inputs.
    #[error("the net takes {net} inputs, the env's observations give {env}")]
    Inputs {
        /// Number of inputs of the net.
        net: usize,
        /// Number that the env's observations give.
        env: usize,
    },
    /// The actions need another number of outputs.
    #[error("the net gives {net} outputs, the env's actions need {env}")]
    Outputs {
        /// Number of outputs of the net.
        net: usize,
        /// Number that the env's actions need.
        env: usize,
    },
    /// The net has another number of standard deviations.
    #[error("the net has {given} standard deviations, an action has {elements} elements")]
    Deviations {
        /// Number of standard deviations.
        given: usize,
        /// Number of elements of an action.
        elements: usize,
    },
    /// The net stretches its actions to bounds, of which there are none.
    #[error("the net's actions are stretched to the bounds of the env's, which are not finite")]
    Unbounded,
    /// Actions are to be drawn alike, and there are not so many of them.
    #[error("epsilon = {epsilon}: the env's actions are quantities, of which none can be drawn alike")]
    Epsilon {
        /// The epsilon that was asked for.
        epsilon: f64,
    },
    /// The net remembers what lanes have shown, and their owner, an earlier version, does not keep it for them.
    #[error(
        "the net has a state of each lane, which this client does not keep: update it to the nodes' version"
    )]
    Forgetful,
    /// The file of ONNX does not fit the env.
    #[cfg(feature = "onnx")]
    #[error(transparent)]
    Onnx(#[from] crate::BindError),
}

//! Forms of ONNX in which other programs take policies.

use std::fmt;
use std::str::FromStr;

use crate::ModelError;

/// A form of ONNX that another program takes: names, shapes and types of inputs and outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Unreal's plug-in: from `obs` [1, N] to `actions` [1, elements], singles.
    Unreal,
    /// Godot RL: from `obs [rows, N]` and `state_ins [1]` to `output [rows, outputs]` and `state_outs [1]`, singles. Outputs are
    /// logits of choices, and quantities as they are.
    Godot,
    /// ML-Agents: from `obs_0` [rows, N] and, where actions are choices, `action_masks` [rows, values] to `discrete_actions` (int64)
    /// or `continuous_actions` (singles), and beside each the likeliest as `deterministic_...`, [rows, elements].
    MlAgents,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 3] = [Self::Unreal, Self::Godot, Self::MlAgents];

    /// Returns the name, as the command line and messages have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreal => "unreal",
            Self::Godot => "godot",
            Self::MlAgents => "mlagents",
        }
    }

    /// Returns whether the form has an input that says which actions are allowed.
    #[cfg(feature = "onnx")]
    pub(crate) const fn has_mask(self) -> bool {
        matches!(self, Self::MlAgents)
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        let known = Self::ALL.into_iter().find(|dialect| dialect.name() == name);
        known.ok_or_else(|| UnknownDialect(name.chars().take(MOST_SHOWN).collect()))
    }
}

/// Error of a name that no dialect has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no dialect; there are unreal, godot and mlagents")]
pub struct UnknownDialect(String);

/// Reason for which a policy is not written in a dialect.
#[derive(Debug, thiserror::Error)]
pub enum DialectError {
    /// The net does not fit the env.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A part of the observation has several axes, as pictures have.
    #[error(
        "{dialect} takes numbers in a row, and `{column}` of the env's observations has the shape {shape:?}, as a picture"
    )]
    Picture {
        /// The dialect.
        dialect: Dialect,
        /// Path of the part's column, "obs" where the observation is one.
        column: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// The net remembers what lanes have shown.
    #[error("the net has a state of each lane, and {dialect} is written of dense layers, which have none")]
    Recurrent {
        /// The dialect.
        dialect: Dialect,
    },
    /// The net is of more than dense layers.
    #[error("{dialect} is written of nets of dense layers in files of safetensors, and the file is {net}")]
    NotDense {
        /// The dialect.
        dialect: Dialect,
        /// What the net is.
        net: String,
    },
    /// The env says which actions are allowed, and the form has no place for that.
    #[error("the env has an action mask, and {dialect} has no input for one")]
    Mask {
        /// The dialect.
        dialect: Dialect,
    },
    /// This program writes no files of ONNX.
    #[cfg(not(feature = "onnx"))]
    #[error("dialects are forms of ONNX, and this program was built without the cargo feature `onnx`")]
    NoOnnx,
}

/// The most characters of an unknown name that a message has.
const MOST_SHOWN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialect_is_known_by_its_name_alone() {
        for dialect in Dialect::ALL {
            assert_eq!(dialect.name().parse(), Ok(dialect));
        }
        let unknown = "unity".parse::<Dialect>().unwrap_err().to_string();
        assert_eq!(unknown, "`unity` is no dialect; there are unreal, godot and mlagents");
    }
}

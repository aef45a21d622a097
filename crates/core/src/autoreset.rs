//! The rule by which the next episode of a lane begins.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The rule by which the next episode of a lane begins, with Gymnasium's names and meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AutoresetMode {
    /// The row after an episode's end begins the next episode. Its action is ignored, its reward is 0, and its reset
    /// flag is set.
    #[default]
    NextStep,
    /// The row of an episode's end already shows the first observation of the next one; the last observation is in the
    /// frame's `final_obs`.
    SameStep,
    /// The caller resets. Stepping a lane whose episode is over is refused.
    Disabled,
}

impl AutoresetMode {
    /// Returns Gymnasium's value of the mode, by which recordings name it as well.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NextStep => "NextStep",
            Self::SameStep => "SameStep",
            Self::Disabled => "Disabled",
        }
    }

    /// Returns the number that stands for the mode in shared memory.
    pub const fn code(self) -> u64 {
        match self {
            Self::NextStep => 0,
            Self::SameStep => 1,
            Self::Disabled => 2,
        }
    }
}

impl FromStr for AutoresetMode {
    type Err = UnknownAutoreset;

    fn from_str(name: &str) -> Result<Self, UnknownAutoreset> {
        [Self::NextStep, Self::SameStep, Self::Disabled]
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| UnknownAutoreset(name.to_owned()))
    }
}

/// A name that is no autoreset mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown autoreset mode `{0}`; known are NextStep, SameStep, Disabled")]
pub struct UnknownAutoreset(String);

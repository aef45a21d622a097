//! The built-in policies, by name.

use std::fmt;
use std::str::FromStr;

use rollhouse_core::Space;

use crate::{Noop, Policy, Random, SpaceError};

/// Built-in policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builtin {
    /// The policy [`Random`].
    Random,
    /// The policy [`Noop`].
    Noop,
}

impl Builtin {
    /// All built-in policies.
    pub const ALL: [Self; 2] = [Self::Random, Self::Noop];

    /// Returns the policy's name, as recorded with the episodes that it played.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Noop => "noop",
        }
    }

    /// Makes the policy for one action space. `run_seed` decides what is random about it.
    ///
    /// # Errors
    /// If the policy cannot play in that space.
    pub fn make(self, space: &Space, run_seed: u64) -> Result<Box<dyn Policy>, SpaceError> {
        Ok(match self {
            Self::Random => Box::new(Random::new(space, run_seed)?),
            Self::Noop => Box::new(Noop::new(space)?),
        })
    }
}

impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Builtin {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

/// Error of a name that no built-in policy has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Builtin::ALL.map(Builtin::name).join(", ");
        write!(f, "unknown policy `{}`; known are {known}", self.0)
    }
}

impl std::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_policy_is_found_by_the_name_it_records() {
        for builtin in Builtin::ALL {
            let policy = builtin.make(&Space::discrete(2), 0).unwrap();
            assert_eq!(policy.name().parse(), Ok(builtin));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let message = "greedy".parse::<Builtin>().unwrap_err().to_string();
        assert_eq!(message, "unknown policy `greedy`; known are random, noop");
    }
}

//! The rule by which episodes are recorded.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A choice of which episodes are recorded, and how much of each.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordRule {
    /// Records every episode: as an action log if the env is deterministic, else in full.
    #[default]
    All,
    /// Records nothing.
    None,
    /// Records each episode with this probability, decided by a hash of run, lane and number.
    Sample {
        /// The probability, from 0 to 1.
        probability: f64,
    },
    /// Records every episode with observations, rewards and infos of every step, also of deterministic envs.
    Trace,
}

/// Error of a text that names no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownRule {
    /// What follows `sample:` is no probability.
    #[error("the probability `{0}` is not a number between 0 and 1")]
    Probability(String),
    /// No rule has that name.
    #[error("known are all, none, sample:P and trace")]
    Name,
}

impl FromStr for RecordRule {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        if let Some(probability) = text.strip_prefix("sample:") {
            let number = probability.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
            let error = || UnknownRule::Probability(probability.to_owned());
            return Ok(Self::Sample { probability: number.ok_or_else(error)? });
        }
        match text {
            "all" => Ok(Self::All),
            "trace" => Ok(Self::Trace),
            "none" => Ok(Self::None),
            _ => Err(UnknownRule::Name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_record_is_parsed_and_bad_probabilities_are_refused() {
        assert_eq!("none".parse(), Ok(RecordRule::None));
        assert_eq!("sample:0.25".parse(), Ok(RecordRule::Sample { probability: 0.25 }));
        for bad in ["sample:", "sample:2", "sample:-0.1", "sample:nan", "sample:inf", "some"] {
            assert!(bad.parse::<RecordRule>().is_err(), "{bad}");
        }
    }
}

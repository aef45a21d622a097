//! How an episode ended.

use std::fmt;
use std::str::FromStr;

/// How an episode ended. An interrupted episode is never passed off as a finished one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The env's own end: at least one flag is set. Both may be, when the goal is reached on the last step
    /// the time limit allows.
    Finished {
        /// The env reached a terminal state.
        terminated: bool,
        /// A time limit or another bound outside the task's own rules cut the episode.
        truncated: bool,
    },
    /// Something outside the env ended it.
    Interrupted(Interruption),
}

/// Why an episode was cut from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Interruption {
    /// The env or its process failed.
    Crashed,
    /// The env missed its deadline.
    Hung,
    /// The node that ran it went away.
    NodeLost,
    /// The node took the lane back.
    Evicted,
    /// Its owner asked for the end, or the run was over.
    Cancelled,
    /// Its owner's connection ended.
    Disconnected,
}

impl Outcome {
    /// Ended by the env's own rules.
    pub const TERMINATED: Self = Self::Finished { terminated: true, truncated: false };
    /// Ended by a limit.
    pub const TRUNCATED: Self = Self::Finished { terminated: false, truncated: true };
    /// Every outcome, in the order of its code.
    pub const ALL: [Self; 9] = [
        Self::TERMINATED,
        Self::TRUNCATED,
        Self::Finished { terminated: true, truncated: true },
        Self::Interrupted(Interruption::Crashed),
        Self::Interrupted(Interruption::Hung),
        Self::Interrupted(Interruption::NodeLost),
        Self::Interrupted(Interruption::Evicted),
        Self::Interrupted(Interruption::Cancelled),
        Self::Interrupted(Interruption::Disconnected),
    ];

    /// The number that stands for it in files and frames: its place in [`Outcome::ALL`].
    pub const fn code(self) -> u8 {
        match self {
            Self::Finished { terminated: true, truncated: false } => 0,
            Self::Finished { terminated: true, truncated: true } => 2,
            Self::Finished { .. } => 1,
            Self::Interrupted(cause) => 3 + cause as u8,
        }
    }

    /// The outcome of a code; `None` for a number no version has used.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The word for listings and metrics. An episode with both flags is called `terminated`: it reached
    /// its end, and its flags are told apart by [`Outcome::flags`].
    pub const fn word(self) -> &'static str {
        match self {
            Self::Finished { terminated: true, .. } => "terminated",
            Self::Finished { .. } => "truncated",
            Self::Interrupted(cause) => match cause {
                Interruption::Crashed => "crashed",
                Interruption::Hung => "hung",
                Interruption::NodeLost => "node_lost",
                Interruption::Evicted => "evicted",
                Interruption::Cancelled => "cancelled",
                Interruption::Disconnected => "disconnected",
            },
        }
    }

    /// (terminated, truncated); both false for an interrupted episode.
    pub const fn flags(self) -> (bool, bool) {
        match self {
            Self::Finished { terminated, truncated } => (terminated, truncated),
            Self::Interrupted(_) => (false, false),
        }
    }

    /// Whether the env itself brought the episode to its end.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Finished { .. })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Outcome {
    type Err = UnknownOutcome;

    fn from_str(word: &str) -> Result<Self, UnknownOutcome> {
        Self::ALL.into_iter().find(|o| o.word() == word).ok_or_else(|| UnknownOutcome(word.to_owned()))
    }
}

/// A word that names no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown outcome `{0}`; known are terminated, truncated, crashed, hung, node_lost, evicted, \
     cancelled, disconnected"
)]
pub struct UnknownOutcome(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_survives_its_code() {
        for (code, outcome) in (0..).zip(Outcome::ALL) {
            assert_eq!(outcome.code(), code);
            assert_eq!(Outcome::from_code(code), Some(outcome));
        }
        assert_eq!(Outcome::from_code(9), None);
    }

    #[test]
    fn words_parse_back_to_an_outcome_of_that_word() {
        for outcome in Outcome::ALL {
            assert_eq!(outcome.word().parse::<Outcome>().unwrap().word(), outcome.word());
        }
        assert!("won".parse::<Outcome>().is_err());
    }

    #[test]
    fn both_flags_are_kept() {
        let both = Outcome::Finished { terminated: true, truncated: true };
        assert_eq!(Outcome::from_code(both.code()).unwrap().flags(), (true, true));
    }
}

//! The outcome of an episode, which says how the episode ended.

use std::fmt;
use std::str::FromStr;

/// Way in which an episode ended. An interrupted episode is never passed off as a finished one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The env ended the episode: at least one flag is set. Both are set when the goal is reached on the last step that
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

/// Cause outside the env that cut an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Interruption {
    /// The env or its process failed.
    Crashed,
    /// The env missed its deadline.
    Hung,
    /// The node that ran the episode went away.
    NodeLost,
    /// The node took the lane back.
    Evicted,
    /// The episode's owner asked for the end, or the run was over.
    Cancelled,
    /// The connection of the episode's owner ended.
    Disconnected,
    /// The policy that played the lane could not choose an action.
    Policy,
}

impl Outcome {
    /// The env's own rules ended the episode.
    pub const TERMINATED: Self = Self::Finished { terminated: true, truncated: false };
    /// A limit ended the episode.
    pub const TRUNCATED: Self = Self::Finished { terminated: false, truncated: true };
    /// All outcomes, each at the index that is its code.
    pub const ALL: [Self; 10] = [
        Self::TERMINATED,
        Self::TRUNCATED,
        Self::Finished { terminated: true, truncated: true },
        Self::Interrupted(Interruption::Crashed),
        Self::Interrupted(Interruption::Hung),
        Self::Interrupted(Interruption::NodeLost),
        Self::Interrupted(Interruption::Evicted),
        Self::Interrupted(Interruption::Cancelled),
        Self::Interrupted(Interruption::Disconnected),
        Self::Interrupted(Interruption::Policy),
    ];

    /// Returns the number that stands for the outcome in files and frames: its place in [`Outcome::ALL`].
    pub const fn code(self) -> u8 {
        match self {
            Self::Finished { terminated: true, truncated: false } => 0,
            Self::Finished { terminated: true, truncated: true } => 2,
            Self::Finished { .. } => 1,
            Self::Interrupted(cause) => 3 + cause as u8,
        }
    }

    /// Returns the outcome of a code; `None` for a number that no version has used.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the word for listings and metrics. An episode with both flags is called `terminated`, because it reached
    /// its end; [`Outcome::flags`] tells the flags apart.
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
                Interruption::Policy => "policy",
            },
        }
    }

    /// Returns the flags (terminated, truncated); both are false for an interrupted episode.
    pub const fn flags(self) -> (bool, bool) {
        match self {
            Self::Finished { terminated, truncated } => (terminated, truncated),
            Self::Interrupted(_) => (false, false),
        }
    }

    /// Returns whether the env itself brought the episode to its end.
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

/// Error of a word that names no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown outcome `{0}`; known are terminated, truncated, crashed, hung, node_lost, evicted, \
     cancelled, disconnected, policy"
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
        assert_eq!(Outcome::from_code(10), None);
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

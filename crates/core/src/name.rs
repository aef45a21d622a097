//! Names of runs and episodes.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::{NoContext, Timestamp, Uuid};

/// Id of one `rollout` or one pool. It is a UUIDv7, so that runs sort by the time at which they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(u128);

impl RunId {
    /// Draws a new run id from the wall clock and the operating system's randomness.
    pub fn generate() -> Self {
        Self::generate_at(SystemTime::now())
    }

    /// Draws an id that says the time 0 where the clock stands before 1970, which no UUIDv7 can say.
    fn generate_at(now: SystemTime) -> Self {
        let uuid = match now.duration_since(UNIX_EPOCH) {
            Ok(_) => Uuid::now_v7(),
            Err(_) => Uuid::new_v7(Timestamp::from_unix(NoContext, 0, 0)),
        };
        Self(uuid.as_u128())
    }

    /// Returns the id that has these 128 bits.
    pub const fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns all 128 bits.
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// Returns the 40 random low bits that stand for the run in an episode's printed name. Two of 1,000 runs in a
    /// folder have the same bits with probability 5e-7; readers then report the name as ambiguous.
    pub const fn short(self) -> u64 {
        (self.0 as u64) & SHORT_MASK
    }
}

/// Prints the full UUID.
impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Uuid::from_u128(self.0).hyphenated(), f)
    }
}

/// Printed name of an episode: `k3f9q2tz-17-203` is episode 203 of lane 17 of the run whose short id is `k3f9q2tz`. The
/// name is fixed when the episode starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EpisodeName {
    /// Short id of the run, as [`RunId::short`] gives it.
    pub run: u64,
    /// Row of the run's batch in which the episode is played.
    pub lane: u32,
    /// Number of the episode in its lane, counted from 0.
    pub number: u64,
}

impl EpisodeName {
    /// Returns the first part of the printed name, which is its run's: `k3f9q2tz`.
    pub fn run_word(&self) -> String {
        self.to_string().split('-').next().unwrap_or_default().to_owned()
    }
}

impl fmt::Display for EpisodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; SHORT_CHARS];
        for (index, out) in text.iter_mut().enumerate() {
            let shift = 5 * (SHORT_CHARS - 1 - index);
            *out = ALPHABET[(self.run >> shift & 31) as usize];
        }
        for byte in text {
            fmt::Write::write_char(f, char::from(byte))?;
        }
        write!(f, "-{}-{}", self.lane, self.number)
    }
}

impl FromStr for EpisodeName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let error = || NameError(text.chars().take(64).collect());
        let mut parts = text.split('-');
        let (Some(run), Some(lane), Some(number), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(error());
        };
        if run.len() != SHORT_CHARS {
            return Err(error());
        }
        let run = run.bytes().try_fold(0u64, |sum, byte| {
            let digit = ALPHABET.iter().position(|&a| a == byte)?;
            Some(sum << 5 | digit as u64)
        });
        Ok(Self {
            run: run.ok_or_else(error)?,
            lane: plain_number(lane).and_then(|n| u32::try_from(n).ok()).ok_or_else(error)?,
            number: plain_number(number).ok_or_else(error)?,
        })
    }
}

/// Parses digits without sign or leading zero, so that every episode has one spelling.
fn plain_number(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (canonical && digits).then(|| text.parse().ok()).flatten()
}

/// Error of a text that is not an episode's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an episode name; one looks like k3f9q2tz-17-203 (run, lane, number)")]
pub struct NameError(String);

/// Digits of Crockford's base 32 in lower case: no i, l, o, u.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const SHORT_CHARS: usize = 8;
const SHORT_MASK: u64 = (1 << 40) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_name_parses_back(run in 0..=SHORT_MASK, lane: u32, number: u64) {
            let name = EpisodeName { run, lane, number };
            prop_assert_eq!(name.to_string().parse::<EpisodeName>(), Ok(name));
        }

        #[test]
        fn any_text_either_fails_or_is_the_one_spelling(text in "[0-9a-z-]{0,24}") {
            if let Ok(name) = text.parse::<EpisodeName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }

    #[test]
    fn near_misses_are_refused() {
        for text in
            ["", "k3f9q2tz", "k3f9q2tz-1", "k3f9q2tz-1-2-3", "k3f9q2tz-01-2", "k3f9q2tz-+1-2", "K3F9Q2TZ-1-2"]
        {
            assert!(text.parse::<EpisodeName>().is_err(), "{text}");
        }
    }

    /// Symptom: a run that began on a machine whose clock stood before 1970 panicked. Cause: what makes UUIDs holds that for
    /// impossible. Fix: such an id says 1970, and is as random as others.
    #[test]
    fn a_run_gets_an_id_at_a_clock_before_1970() {
        let before = UNIX_EPOCH - std::time::Duration::from_secs(1);
        let (one, other) = (RunId::generate_at(before), RunId::generate_at(before));
        assert_eq!((one.as_u128() >> 80, one == other), (0, false));
    }

    #[test]
    fn runs_sort_by_the_time_they_began() {
        let (first, second) = (RunId::generate(), RunId::generate());
        assert!(first <= second || first.as_u128() >> 80 == second.as_u128() >> 80);
    }
}

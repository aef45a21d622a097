//! Calls of an env's methods: what is refused, and how often a lane may be called.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use rollhouse_core::limits::{MAX_ANSWER_BYTES, MAX_CALL_BYTES, MAX_CALLS_OF_STEP};

use crate::error::StepError;

/// Reason for which a call came to nothing. Nothing has changed, unless it says so.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallRefused {
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] StepError),
    /// The env's spec does not list the method.
    #[error("{env} has no method `{name}`{}", listed(.known))]
    Unknown {
        /// Id of the env.
        env: String,
        /// Name that was given, cut to [`MAX_METHOD_NAME_BYTES`](rollhouse_core::limits::MAX_METHOD_NAME_BYTES).
        name: String,
        /// Names of the methods that the env has.
        known: Vec<String>,
    },
    /// The method is given too much.
    #[error("a payload of {bytes} bytes, may have at most {MAX_CALL_BYTES}")]
    Payload {
        /// Number of bytes in the payload.
        bytes: usize,
    },
    /// The method was called too often on the lane.
    #[error("`{method}` may be called {limit} times a second on a lane; try again in {retry_after_ms} ms")]
    TooOften {
        /// Name of the method.
        method: String,
        /// Highest rate per second.
        limit: NonZeroU32,
        /// Time after which the method may be called again.
        retry_after_ms: u64,
    },
    /// The lane does not take the call.
    #[error("`{method}` of lane {lane}: {source}")]
    Lane {
        /// Row of the batch.
        lane: usize,
        /// Name of the method.
        method: String,
        /// Reason.
        source: CallFault,
    },
}

/// Reason for which a lane does not take a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFault {
    /// The env refused.
    #[error(transparent)]
    Env(rollhouse_env::CallError),
    /// The method changes the lane, which has no open episode.
    #[error("the lane has no open episode that it could change; step or reset it first")]
    NoEpisode,
    /// The lane was changed too often since its last step.
    #[error("the lane was changed {MAX_CALLS_OF_STEP} times since its last step, which is the limit")]
    TooMany,
    /// The answer is too long. The lane has done what it was called for.
    #[error("the lane has done it, but its answer has {bytes} bytes, may have at most {MAX_ANSWER_BYTES}")]
    Answer {
        /// Number of bytes in the answer.
        bytes: usize,
    },
    /// The lane is lost, before the call or by it.
    #[error("the lane is lost")]
    Lost,
    /// No method of that name changes lanes of this env.
    #[error("the env has no such method that changes its lanes")]
    NotChanging,
}

fn listed(known: &[String]) -> String {
    if known.is_empty() { String::from("; it has none") } else { format!("; it has {}", known.join(", ")) }
}

/// How often lanes have been called: for each lane and method with a limit, a bucket of a second's calls that fills at the
/// method's rate.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// Time at which the bucket is full again, by lane and method. There are at most as many as lanes and methods with a
    /// limit.
    full: BTreeMap<(usize, usize), Duration>,
}

impl Rates {
    /// Takes a call out of the bucket of a lane and method at `now`, or returns the time until there is one in it.
    pub(crate) fn admit(
        &mut self,
        of: (usize, usize),
        per_second: NonZeroU32,
        now: Duration,
    ) -> Result<(), Duration> {
        let full = self.full.entry(of).or_default();
        let then = (*full).max(now) + SECOND / per_second.get();
        match (then - now).checked_sub(SECOND).filter(|wait| !wait.is_zero()) {
            Some(wait) => Err(wait),
            None => {
                *full = then;
                Ok(())
            }
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_second_has_more_than_twice_the_rate_and_whoever_waits_as_told_is_admitted(
            rate in 1u32..50,
            pauses in prop::collection::vec(0u64..400, 1..300),
        ) {
            let (mut rates, limit) = (Rates::default(), NonZeroU32::new(rate).unwrap());
            let (mut now, mut admitted) = (Duration::from_secs(5), Vec::new());
            for pause in pauses {
                now += Duration::from_millis(pause);
                match rates.admit((3, 1), limit, now) {
                    Ok(()) => admitted.push(now),
                    Err(wait) => {
                        now += wait;
                        prop_assert_eq!(rates.admit((3, 1), limit, now), Ok(()));
                        admitted.push(now);
                    }
                }
                let lately = admitted.iter().filter(|&&at| at + SECOND > now).count();
                prop_assert!(lately <= 2 * rate as usize, "{lately} of {rate}");
            }
        }
    }

    #[test]
    fn a_rate_is_of_one_lane_and_one_method_and_a_second_of_calls_may_come_at_once() {
        let (mut rates, three) = (Rates::default(), NonZeroU32::new(3).unwrap());
        let now = Duration::from_secs(100);
        (0..3).for_each(|_| rates.admit((0, 0), three, now).unwrap());
        let wait = rates.admit((0, 0), three, now).unwrap_err();
        assert!(wait <= SECOND / 3, "{wait:?}");
        rates.admit((0, 1), three, now).unwrap();
        rates.admit((1, 0), three, now).unwrap();
        rates.admit((0, 0), three, now + wait).unwrap();
        (0..3).for_each(|_| rates.admit((0, 0), three, now + 3 * SECOND).unwrap());
    }
}

//! What nodes have shown when they were asked to open sessions.
//!
//! A node states its capacity and its envs' dynamics, and nobody checks that. Its answers tell: a node that refuses the
//! lanes of an env comes last for that env for a while, which doubles with each refusal, and one that has opened some
//! goes before one that has not.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits::{MAX_ENV_RESULTS, REFUSED_FOR, REFUSED_FOR_MOST};

/// The results of one node, by env.
#[derive(Debug, Default)]
pub(crate) struct OpeningResults {
    by_env: BTreeMap<String, EnvResults>,
}

#[derive(Debug, Clone, Copy, Default)]
struct EnvResults {
    /// Whether it has opened a session, and has refused none since.
    opened: bool,
    /// Number of refusals in a row.
    refusals: u32,
    /// The time at which it refused last.
    refused: Duration,
    /// The time of the last result.
    noted: Duration,
}

impl OpeningResults {
    /// Notes that the node has opened a session of that env.
    pub(crate) fn opened(&mut self, now: Duration, env: &str) {
        *self.of(now, env) = EnvResults { opened: true, noted: now, ..EnvResults::default() };
    }

    /// Notes that the node has refused a session of that env. Refusals during the time for which it comes last count
    /// once: they are of one moment.
    pub(crate) fn refused(&mut self, now: Duration, env: &str) {
        if self.comes_last(now, env) {
            return;
        }
        let results = self.of(now, env);
        *results = EnvResults {
            opened: false,
            refusals: results.refusals.saturating_add(1),
            refused: now,
            noted: now,
        };
    }

    /// Returns whether the node comes last for that env.
    pub(crate) fn comes_last(&self, now: Duration, env: &str) -> bool {
        self.by_env.get(env).is_some_and(|results| {
            results.refusals > 0 && now.saturating_sub(results.refused) < lasts(results.refusals)
        })
    }

    /// Returns whether the node has opened a session of that env, and has refused none since.
    pub(crate) fn has_opened(&self, env: &str) -> bool {
        self.by_env.get(env).is_some_and(|results| results.opened)
    }

    /// Returns the results of an env. Those noted longest ago make room.
    fn of(&mut self, now: Duration, env: &str) -> &mut EnvResults {
        if self.by_env.len() >= MAX_ENV_RESULTS && !self.by_env.contains_key(env) {
            let oldest = self.by_env.iter().min_by_key(|(_, results)| results.noted);
            if let Some(oldest) = oldest.map(|(env, _)| env.clone()) {
                self.by_env.remove(&oldest);
            }
        }
        self.by_env.entry(env.to_owned()).or_insert(EnvResults { noted: now, ..EnvResults::default() })
    }
}

/// Returns for how long a node comes last after that many refusals in a row.
fn lasts(refusals: u32) -> Duration {
    let doubled = 2u32.saturating_pow(refusals.saturating_sub(1));
    REFUSED_FOR.saturating_mul(doubled).min(REFUSED_FOR_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_refuses_an_env_comes_last_for_it_longer_each_time_until_it_opens_one() {
        let mut results = OpeningResults::default();
        results.refused(Duration::ZERO, "E");
        results.refused(Duration::ZERO, "E");
        let last = |results: &OpeningResults, now| results.comes_last(now, "E");
        assert!(
            last(&results, REFUSED_FOR - Duration::from_millis(1))
                && !results.comes_last(Duration::ZERO, "F")
        );
        assert!(!last(&results, REFUSED_FOR), "refusals of one moment count once");
        results.refused(REFUSED_FOR, "E");
        assert!(last(&results, REFUSED_FOR * 2) && !last(&results, REFUSED_FOR * 3));
        results.opened(REFUSED_FOR * 2, "E");
        assert!(!last(&results, REFUSED_FOR * 2) && results.has_opened("E"));
        results.refused(REFUSED_FOR * 2, "E");
        assert!(!results.has_opened("E") && !last(&results, REFUSED_FOR * 3));
    }

    #[test]
    fn however_many_envs_there_are_those_noted_longest_ago_make_room() {
        let mut results = OpeningResults::default();
        for number in 0..=MAX_ENV_RESULTS as u64 {
            results.opened(Duration::from_secs(number), &number.to_string());
        }
        assert_eq!(results.by_env.len(), MAX_ENV_RESULTS);
        assert!(!results.has_opened("0") && results.has_opened("1"));
        assert_eq!(lasts(u32::MAX), REFUSED_FOR_MOST);
    }
}

//! The header of a run: what is recorded once per run.

use std::fmt;

use rollhouse_core::{Determinism, EnvSpec, Options, Parent, RecordRule, RunId, SeedSchedule, split_mix64};
use serde::{Deserialize, Serialize};

/// The header of a run: everything that its episodes share.
#[derive(Debug, Clone, PartialEq)]
pub struct RunHeader {
    /// Id of the run, which gives the episodes their names.
    pub run: RunId,
    /// The env as it was when the run began.
    pub spec: EnvSpec,
    /// Checked options: one for all lanes, or one per lane. What an episode has of those that are drawn follows from its
    /// start.
    pub options: Vec<Options>,
    /// Lanes of the run's batch.
    pub lanes: u32,
    /// Schedule that says which seed an episode starts from.
    pub schedule: SeedSchedule,
    /// Gymnasium's name of the autoreset mode: `NextStep`, `SameStep` or `Disabled`.
    pub autoreset: String,
    /// The time limit the engine applies; `None` when it is lifted.
    pub max_episode_steps: Option<u32>,
    /// Policy that chose the actions.
    pub policy: PolicyInfo,
    /// Rule that says which episodes are kept, and how much of each.
    pub record: RecordRule,
    /// Name and version of the program; for people, never compared.
    pub program: String,
    /// Wall clock at the start of the run, milliseconds since 1970.
    pub started_ms: u64,
    /// Episode from which every episode of the run was forked; `None` if they are no forks.
    pub parent: Option<Parent>,
    /// Arguments with which the env of a Python package was made, a JSON object; empty if there are none.
    pub arguments: String,
}

/// A policy that chose actions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInfo {
    /// Name of the policy, e.g. `random`.
    pub name: String,
    /// Version of the policy.
    pub version: u64,
}

/// The kind of a recording: how much of an episode is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// Keep start and actions; the rest is recomputed.
    ActionLog,
    /// Keep everything, of a deterministic env: it can be recomputed and compared.
    Trace,
    /// Keep everything, of an env that cannot be recomputed.
    Full,
}

impl RecordKind {
    /// Returns how much a rule keeps of an env. One that is learned when it is asked for is in no reader's registry, so
    /// that of it everything is kept.
    pub fn of(rule: RecordRule, spec: &EnvSpec) -> Self {
        match (rule, spec.determinism) {
            (_, Determinism::NonDeterministic) => Self::Full,
            (_, Determinism::Deterministic) if spec.source.is_learned() => Self::Trace,
            (RecordRule::Trace, Determinism::Deterministic) => Self::Trace,
            (RecordRule::All | RecordRule::None | RecordRule::Sample { .. }, Determinism::Deterministic) => {
                Self::ActionLog
            }
        }
    }

    /// Returns whether the recording has observations, rewards and infos.
    pub const fn has_observations(self) -> bool {
        matches!(self, Self::Trace | Self::Full)
    }

    /// Returns the word that listings use.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ActionLog => "action_log",
            Self::Trace => "trace",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The rule that says which episodes of a sampled run are kept: those whose hash is below the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sampling {
    run: u64,
    threshold: Option<u64>,
}

impl Sampling {
    /// Makes the rule for a run that is recorded by `rule`.
    pub(crate) fn new(run: RunId, rule: RecordRule) -> Self {
        let threshold = match rule {
            RecordRule::All | RecordRule::Trace => None,
            RecordRule::None => Some(0),
            // The cast saturates: probability 1 keeps everything.
            RecordRule::Sample { probability } if probability < 1.0 => {
                Some((probability * 18_446_744_073_709_551_616.0) as u64)
            }
            RecordRule::Sample { .. } => None,
        };
        Self::with_threshold(run, threshold)
    }

    /// Makes the rule from the threshold in a file.
    pub(crate) const fn with_threshold(run: RunId, threshold: Option<u64>) -> Self {
        let bits = run.as_u128();
        Self { run: split_mix64((bits >> 64) as u64) ^ bits as u64, threshold }
    }

    /// Returns the threshold; `None` when every episode is kept.
    pub(crate) const fn threshold(self) -> Option<u64> {
        self.threshold
    }

    /// Returns whether the episode is kept. This is a part of the replay format.
    #[inline]
    pub(crate) const fn keeps(self, lane: u32, number: u64) -> bool {
        match self.threshold {
            None => true,
            Some(threshold) => {
                split_mix64(split_mix64(self.run ^ split_mix64(lane as u64)) ^ number) < threshold
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_core::EnvSource;

    fn kept(probability: f64) -> usize {
        let sampling = Sampling::new(RunId::from_u128(77 << 70 | 5), RecordRule::Sample { probability });
        (0..64).map(|lane| (0..1000).filter(|&n| sampling.keeps(lane, n)).count()).sum()
    }

    #[test]
    fn a_probability_keeps_about_that_share() {
        let quarter = kept(0.25);
        // 64,000 draws: six standard deviations are 660.
        assert!((15_340..16_660).contains(&quarter), "{quarter}");
    }

    #[test]
    fn probability_zero_keeps_nothing_and_one_everything() {
        assert_eq!(kept(0.0), 0);
        assert_eq!(kept(1.0), 64_000);
    }

    #[test]
    fn only_of_deterministic_envs_that_readers_have_less_than_everything_is_kept() {
        let entry = rollhouse_env::Registry::builtin().get("CartPole-v1").unwrap();
        let mut spec = entry.spec().clone();
        assert_eq!(RecordKind::of(RecordRule::All, &spec), RecordKind::ActionLog);
        spec.source = EnvSource::of_id("gymnasium:CartPole-v1");
        for rule in [RecordRule::All, RecordRule::Trace, RecordRule::Sample { probability: 0.5 }] {
            assert_eq!(RecordKind::of(rule, &spec), RecordKind::Trace);
        }
        spec.determinism = Determinism::NonDeterministic;
        for rule in [RecordRule::All, RecordRule::Trace, RecordRule::Sample { probability: 0.5 }] {
            assert_eq!(RecordKind::of(rule, &spec), RecordKind::Full);
        }
    }
}

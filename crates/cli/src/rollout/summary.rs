//! The object of `rollout --json`: the same keys here, on a cluster, and for a rollout that goes on by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use rollhouse_core::{RecordRule, RunId};
use rollhouse_engine::{Summary, Timings};
use rollhouse_node::{Report, Rollout};
use rollhouse_replay::Recorded;
use rollhouse_wire::{PoolOpened, PoolStatus};
use serde::Serialize;

use super::{outcomes, results};
use crate::args::RolloutArgs;
use crate::json::{Spread, causes};

/// What was asked for and what was done. What is not known is null: nothing has been done yet by what goes on by itself, and
/// how the episodes of a session ended is not known of one whose node was lost or runs an earlier version.
#[derive(Debug, Default, Serialize)]
pub(super) struct RolloutSummary {
    env: String,
    run: String,
    seed: u64,
    policy: String,
    lanes: usize,
    #[serde(flatten)]
    on: On,
    #[serde(flatten)]
    played: Played,
    #[serde(flatten)]
    took: Took,
    #[serde(flatten)]
    kept: Kept,
}

/// What it was stepped on.
#[derive(Debug, Default, Serialize)]
struct On {
    threads: Option<usize>,
    nodes: Option<usize>,
    sessions: Option<usize>,
    /// Number of sessions by how they ended.
    ended: Option<BTreeMap<&'static str, u32>>,
}

#[derive(Debug, Default, Serialize)]
struct Played {
    steps: Option<u64>,
    /// Finished episodes.
    episodes: Option<u64>,
    interrupted: Option<u64>,
    outcomes: Option<BTreeMap<&'static str, u64>>,
    /// Episodes by the result that their env gave them.
    results: Option<BTreeMap<&'static str, u64>>,
    #[serde(rename = "return")]
    total_reward: Spread,
    length: Spread,
}

#[derive(Debug, Default, Serialize)]
struct Took {
    seconds: Option<f64>,
    steps_per_second: Option<f64>,
    timings: Option<Timings>,
}

/// What became of what was recorded; null if nothing was to be.
#[derive(Debug, Default, Serialize)]
struct Kept {
    /// What this process wrote.
    recorded: Option<RecordedHere>,
    /// Whether everything recorded is where it stays: in the folder, or in the cluster's store.
    stored: Option<bool>,
    /// Whether nothing of it is on its way to there any more.
    settled: Option<bool>,
    /// Number of episodes that a store has set aside: it has others with their names.
    set_aside: Option<u64>,
}

#[derive(Debug, Serialize)]
struct RecordedHere {
    episodes: u64,
    bytes: u64,
    segments: u64,
    lost_episodes: u64,
    dropped_segments: u64,
    stalled_seconds: f64,
}

impl RolloutSummary {
    /// Makes the summary of a rollout in this process.
    pub(super) fn here(rollout: &Rollout, run: RunId, report: &Report, recorded: Option<&Recorded>) -> Self {
        let stats = &report.stats;
        let all: u64 = stats.outcomes.iter().sum();
        Self {
            env: rollout.env.spec().id.clone(),
            run: run.to_string(),
            seed: rollout.seed,
            policy: rollout.policy.name().to_owned(),
            lanes: rollout.engine.lanes,
            on: On { threads: Some(report.threads), ..On::default() },
            played: Played {
                steps: Some(stats.steps),
                episodes: Some(stats.finished()),
                interrupted: Some(all - stats.finished()),
                outcomes: Some(outcomes(&stats.outcomes).into_iter().collect()),
                results: Some(results(stats.results).collect()),
                total_reward: Spread::of(&stats.returns),
                length: Spread::of(&stats.lengths),
            },
            took: Took { timings: Some(report.timings), ..Took::of(stats.steps, report.took) },
            kept: Kept {
                recorded: recorded.map(RecordedHere::from),
                stored: recorded.map(|recorded| recorded.lost_episodes == 0),
                settled: recorded.map(|_| true),
                set_aside: recorded.map(|_| 0),
            },
        }
    }

    /// Makes the summary of a rollout that goes on on a cluster without its command.
    pub(super) fn going_on(args: &RolloutArgs, run: RunId, seed: u64, opened: &PoolOpened) -> Self {
        let mut nodes: Vec<&str> = opened.sessions.iter().map(|grant| grant.node.as_str()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Self {
            env: args.env.to_string(),
            run: run.to_string(),
            seed,
            policy: args.policy.policy.to_string(),
            lanes: args.lanes,
            on: On { nodes: Some(nodes.len()), sessions: Some(opened.sessions.len()), ..On::default() },
            ..Self::default()
        }
    }

    /// Adds what the pool did in that time, and what became of its recordings.
    pub(super) fn with(
        self,
        args: &RolloutArgs,
        played: &PoolStatus,
        stored: &PoolStatus,
        took: Duration,
    ) -> Self {
        let done = &played.done;
        // Whole, or nothing of it: part of the episodes would be taken for all.
        let all = done.episodes.saturating_add(done.interrupted);
        let detail = Some(&done.detail).filter(|detail| detail.episodes() == all);
        let is_recorded = args.record != RecordRule::None;
        Self {
            on: On { ended: Some(causes(&played.ended)), ..self.on },
            played: Played {
                steps: Some(done.steps),
                episodes: Some(done.episodes),
                interrupted: Some(done.interrupted),
                total_reward: detail
                    .map_or_else(|| Spread::of_sum(done), |all| Spread::of_sum(done).within(all.returns)),
                outcomes: detail.map(|all| outcomes(&all.outcomes.0).into_iter().collect()),
                results: detail.map(|all| results(all.results.0).collect()),
                length: detail.map_or_else(Spread::default, |all| Spread {
                    mean: (done.episodes > 0).then(|| all.length_sum / done.episodes as f64),
                    ..Spread::default().within(all.lengths)
                }),
            },
            took: Took::of(done.steps, took),
            kept: Kept {
                recorded: None,
                stored: is_recorded.then_some(stored.shipped),
                settled: is_recorded.then_some(stored.settled || stored.shipped),
                set_aside: is_recorded.then_some(stored.set_aside),
            },
            ..self
        }
    }

    /// Returns the number of nodes on which it was opened.
    pub(super) fn nodes(&self) -> usize {
        self.on.nodes.unwrap_or_default()
    }

    /// Returns the mean return of finished episodes.
    pub(super) const fn mean_return(&self) -> Option<f64> {
        self.played.total_reward.mean
    }

    /// Returns how many steps were taken a second.
    pub(super) fn steps_per_second(&self) -> f64 {
        self.took.steps_per_second.unwrap_or_default()
    }

    /// Returns whether everything recorded is in the store; `None` if nothing was to be recorded.
    pub(super) const fn stored(&self) -> Option<bool> {
        self.kept.stored
    }
}

impl Took {
    fn of(steps: u64, took: Duration) -> Self {
        let seconds = took.as_secs_f64();
        let rate = steps as f64 / seconds.max(f64::MIN_POSITIVE);
        Self { seconds: Some(seconds), steps_per_second: Some(rate), timings: None }
    }
}

impl From<&Recorded> for RecordedHere {
    fn from(recorded: &Recorded) -> Self {
        Self {
            episodes: recorded.episodes,
            bytes: recorded.bytes,
            segments: recorded.segments,
            lost_episodes: recorded.lost_episodes,
            dropped_segments: recorded.dropped_segments,
            stalled_seconds: recorded.stalled.as_secs_f64(),
        }
    }
}

impl Spread {
    fn of(summary: &Summary) -> Self {
        Self { mean: summary.mean(), min: summary.min(), max: summary.max() }
    }
}

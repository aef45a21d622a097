//! The counts of what a session has done, as far as they have been reported.

use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_core::{GameResult, Outcome};
use rollhouse_engine::{Stats, Summary};
use rollhouse_wire::{EpisodeCounts, Extent, PlaysReport, SessionCounts, Tallies};

use crate::{EnvFigures, NodeFigures};

/// Steps and episodes of one session.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Tally {
    pub(crate) steps: u64,
    /// Episodes by outcome, in the order of [`Outcome::ALL`].
    pub(crate) outcomes: [u64; Outcome::ALL.len()],
    /// Episodes by the result that their env gave them, in the order of [`GameResult::ALL`].
    pub(crate) results: [u64; GameResult::ALL.len()],
    /// Number of the scores that their env gave episodes.
    pub(crate) scores: u64,
    /// Sum of those scores.
    pub(crate) score_sum: f64,
    /// Sum of the returns of finished episodes.
    pub(crate) return_sum: f64,
    /// Least and greatest of them.
    pub(crate) returns: Extent,
    /// Sum of the lengths of finished episodes.
    pub(crate) length_sum: f64,
    /// Least and greatest of them.
    pub(crate) lengths: Extent,
    /// Number of lanes that were started again.
    pub(crate) restarts: u64,
}

impl Tally {
    /// Returns the counts as they are reported.
    pub(crate) fn counts(&self) -> SessionCounts {
        let finished = |finished: bool| {
            let of = Outcome::ALL.iter().zip(self.outcomes).filter(|(o, _)| o.is_finished() == finished);
            of.map(|(_, count)| count).sum()
        };
        SessionCounts {
            steps: self.steps,
            episodes: finished(true),
            return_sum: self.return_sum,
            interrupted: finished(false),
            detail: EpisodeCounts {
                outcomes: Tallies(self.outcomes),
                results: Tallies(self.results),
                length_sum: self.length_sum,
                lengths: self.lengths,
                returns: self.returns,
            },
        }
    }
}

impl From<&Stats> for Tally {
    fn from(stats: &Stats) -> Self {
        Self {
            steps: stats.steps,
            outcomes: stats.outcomes,
            results: stats.results,
            scores: stats.scores.count(),
            score_sum: stats.scores.sum(),
            return_sum: stats.returns.sum(),
            returns: extent_of(&stats.returns),
            length_sum: stats.lengths.sum(),
            lengths: extent_of(&stats.lengths),
            restarts: stats.restarts,
        }
    }
}

fn extent_of(summary: &Summary) -> Extent {
    Extent(summary.min().zip(summary.max()))
}

/// The newest tally of a session. What an update adds to it is added to the node's figures.
#[derive(Debug, Default)]
pub(crate) struct ReportedTally {
    tally: Mutex<Tally>,
    /// The policy by which it plays for its owner.
    plays: Mutex<Option<PlaysReport>>,
    /// The figures of the session's env; `None` for a session that plays by itself.
    env: Option<Arc<EnvFigures>>,
}

impl ReportedTally {
    /// Makes the tally of a session that an owner steps.
    pub(crate) fn of_owner(env: Arc<EnvFigures>) -> Self {
        Self { env: Some(env), ..Self::default() }
    }

    /// Returns the policy by which the session plays for its owner.
    pub(crate) fn plays(&self) -> Option<PlaysReport> {
        self.plays.lock().clone()
    }

    /// Sets the policy by which the session plays for its owner.
    pub(crate) fn set_plays(&self, plays: Option<PlaysReport>, figures: &NodeFigures) {
        let mut known = self.plays.lock();
        if *known != plays {
            *known = plays;
            figures.tallies.add(1);
        }
    }

    /// Returns the newest tally.
    pub(crate) fn tally(&self) -> Tally {
        *self.tally.lock()
    }

    /// Replaces the tally by a newer one, and adds the difference to the figures.
    pub(crate) fn update(&self, new: Tally, figures: &NodeFigures) {
        let mut old = self.tally.lock();
        let steps = new.steps.saturating_sub(old.steps);
        figures.steps.add(steps);
        if let Some(env) = &self.env {
            env.steps.add(steps);
        }
        for ((counter, new), old) in figures.episodes.iter().zip(new.outcomes).zip(old.outcomes) {
            counter.add(new.saturating_sub(old));
        }
        let verdicts = &figures.verdicts;
        for ((counter, new), old) in verdicts.results.iter().zip(new.results).zip(old.results) {
            counter.add(new.saturating_sub(old));
        }
        verdicts.scores.add(new.scores.saturating_sub(old.scores));
        verdicts.score_sum.add(new.score_sum - old.score_sum);
        figures.lane_restarts.add(new.restarts.saturating_sub(old.restarts));
        if *old != new {
            *old = new;
            figures.tallies.add(1);
        }
    }
}

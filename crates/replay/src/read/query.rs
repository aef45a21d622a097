//! Queries: which episodes a listing shows, and in which order.

use std::collections::BTreeSet;
use std::sync::Arc;

use rollhouse_core::{GameResult, OptionValue, Outcome, RunId};

use crate::code::episode::EpisodeInfo;
use crate::read::order::{Rank, Sort};
use crate::read::run_filter::RunFilter;
use crate::stored::summary::EpisodeKey;

/// A query for episodes. The default lists all, in the order of their names.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Query {
    /// List only episodes of the env with this id.
    pub env: Option<String>,
    /// List only episodes whose outcome has the same word.
    pub outcome: Option<Outcome>,
    /// List only episodes to which their env gave this result.
    pub result: Option<GameResult>,
    /// Whether an order of merit, by return or length, lists interrupted episodes too; merit says nothing about a part
    /// of an episode. Other orders list them anyway, and so does an `outcome` that asks for them.
    pub all_outcomes: bool,
    /// List only episodes that had these values of options, of what is drawn the values that were drawn.
    pub options: Vec<(String, OptionValue)>,
    /// List only episodes with at least this return. Episodes whose return is not known are then left out.
    pub min_return: Option<f64>,
    /// List only episodes of several agents in which each of these has at least that return, and it is known.
    pub min_agent_returns: Vec<(String, f64)>,
    /// List only episodes of runs with this short id, as episode names have it.
    pub run: Option<u64>,
    /// List only episodes of runs that pass.
    pub of: Option<RunFilter>,
    /// List only these episodes.
    pub only: Option<Arc<BTreeSet<EpisodeKey>>>,
    /// Order of the list.
    pub sort: Sort,
    /// Most episodes that are listed: the first in that order.
    pub limit: Option<usize>,
    /// List only episodes after this place in that order. To go on after a limit, give the [`Sort::rank_of`] of the
    /// last episode.
    pub after: Option<Rank>,
}

impl Query {
    pub(crate) fn matches(&self, info: &EpisodeInfo) -> bool {
        self.is_of_run(info.run_id(), info.env())
            && self.is_of_outcome(info.outcome)
            && self.is_of_result(info.result)
            && self.is_among(|| EpisodeKey::of(info))
            && self.has_options(info)
            && self.has_agents(info)
            && self.min_return.is_none_or(|least| info.total_reward.is_some_and(|total| total >= least))
    }

    /// Returns whether the query may ask for episodes of a run.
    pub(crate) fn is_of_run(&self, run: RunId, env: &str) -> bool {
        self.env.as_ref().is_none_or(|wanted| wanted == env)
            && self.run.is_none_or(|wanted| wanted == run.short())
            && self.of.as_ref().is_none_or(|of| of.passes(run))
    }

    /// Returns whether an episode is one of those that the query names, or the query names none.
    pub(crate) fn is_among(&self, key: impl FnOnce() -> EpisodeKey) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&key()))
    }

    /// Returns whether an episode had the options that the query wants.
    pub(crate) fn has_options(&self, info: &EpisodeInfo) -> bool {
        self.options.is_empty() || info.options().have(&self.options)
    }

    /// Returns whether the agents that the query names have got enough in an episode.
    pub(crate) fn has_agents(&self, info: &EpisodeInfo) -> bool {
        let got = |wanted: &(String, f64)| {
            info.agent_returns().any(|(agent, total)| agent == wanted.0 && total >= wanted.1)
        };
        self.min_agent_returns.iter().all(got)
    }

    pub(crate) fn is_of_result(&self, result: GameResult) -> bool {
        self.result.is_none_or(|wanted| wanted == result)
    }

    pub(crate) fn is_of_outcome(&self, outcome: Outcome) -> bool {
        match self.outcome {
            Some(wanted) => wanted.word() == outcome.word(),
            None => outcome.is_finished() || self.all_outcomes || !self.sort.is_of_merit(),
        }
    }
}

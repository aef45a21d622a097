//! Which episodes a listing shows, and in which order.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use rollhouse_core::Outcome;

use crate::copies::Copies;
use crate::episode::EpisodeInfo;
use crate::order::{Facts, Rank};
use crate::read_error::ReadError;
use crate::replays::Replays;
use crate::run_record::RunInfo;
use crate::select::select;
use crate::summary::EpisodeKey;

/// Which episodes to list. The default lists all, in the order of their names.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Query {
    /// Only of this env.
    pub env: Option<String>,
    /// Only with an outcome of the same word.
    pub outcome: Option<Outcome>,
    /// Also interrupted episodes where the order is one of merit, by return or length, which of a part of an episode says
    /// nothing. Other orders have them anyway, and so has an `outcome` that asks for them.
    pub all_outcomes: bool,
    /// Only with at least this return. Episodes without a known return are left out then.
    pub min_return: Option<f64>,
    /// Only of runs with this short id, as it stands in their episodes' names.
    pub run: Option<u64>,
    /// Only these.
    pub only: Option<Arc<BTreeSet<EpisodeKey>>>,
    /// In which order.
    pub sort: Sort,
    /// At most so many, the first in that order.
    pub limit: Option<usize>,
    /// Only what comes after this place in that order: the last one's [`Sort::rank_of`], to go on after a limit.
    pub after: Option<Rank>,
}

/// An order of episodes. Ties are in the order of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sort {
    /// By what.
    pub key: SortKey,
    /// Largest first.
    pub descending: bool,
}

/// What episodes are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortKey {
    /// Run (older first), lane, number.
    #[default]
    Name,
    /// Return; unknown ones count as the smallest.
    Return,
    /// Steps.
    Length,
    /// Wall clock of the first step.
    Started,
}

/// Text that is no order of episodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot sort by `{0}`; known are return, length, started, name, each with - in front")]
pub struct UnknownSort(String);

impl FromStr for Sort {
    type Err = UnknownSort;

    /// A key, with `-` in front for the largest first.
    fn from_str(text: &str) -> Result<Self, UnknownSort> {
        let (descending, key) = match text.strip_prefix('-') {
            Some(key) => (true, key),
            None => (false, text),
        };
        let key = match key {
            "name" | "id" => SortKey::Name,
            "return" => SortKey::Return,
            "length" => SortKey::Length,
            "started" => SortKey::Started,
            _ => return Err(UnknownSort(text.to_owned())),
        };
        Ok(Self { key, descending })
    }
}

impl Replays {
    /// The episodes a query asks for. Extents that cannot contribute are not looked at, and no more episodes are
    /// held in memory than the query's limit.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn list(&self, query: &Query) -> Result<Vec<EpisodeInfo>, ReadError> {
        Ok(select(&[self], query, &Copies::default())?.into_iter().map(|(_, info)| info).collect())
    }
}

impl Query {
    pub(crate) fn matches(&self, info: &EpisodeInfo) -> bool {
        self.is_of_run(&info.run)
            && self.is_of_outcome(info.outcome)
            && self.is_among(|| EpisodeKey::of(info))
            && self.min_return.is_none_or(|least| info.total_reward.is_some_and(|total| total >= least))
    }

    /// Whether episodes of a run may be asked for.
    pub(crate) fn is_of_run(&self, run: &RunInfo) -> bool {
        self.env.as_ref().is_none_or(|wanted| *wanted == run.spec.id)
            && self.run.is_none_or(|wanted| wanted == run.run().short())
    }

    /// Whether an episode is one of those that are asked for by name.
    pub(crate) fn is_among(&self, key: impl FnOnce() -> EpisodeKey) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&key()))
    }

    pub(crate) fn is_of_outcome(&self, outcome: Outcome) -> bool {
        match self.outcome {
            Some(wanted) => wanted.word() == outcome.word(),
            None => outcome.is_finished() || self.all_outcomes || !self.sort.is_of_merit(),
        }
    }
}

impl Sort {
    /// Whether it tells better episodes from worse ones, for which they have to be whole.
    pub fn is_of_merit(self) -> bool {
        matches!(self.key, SortKey::Return | SortKey::Length)
    }

    /// Where an episode stands in this order.
    pub fn rank_of(self, info: &EpisodeInfo) -> Rank {
        self.rank(&Facts::of(info))
    }

    /// How two episodes stand in this order, also when they come from different folders.
    pub fn compare(self, a: &EpisodeInfo, b: &EpisodeInfo) -> Ordering {
        self.rank_of(a).cmp(&self.rank_of(b))
    }
}

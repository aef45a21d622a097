//! Queries: which episodes a listing shows, and in which order.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use rollhouse_core::Outcome;

use crate::code::episode::EpisodeInfo;
use crate::code::run_record::RunInfo;
use crate::read::copies::Copies;
use crate::read::order::{Facts, Rank};
use crate::read::read_error::ReadError;
use crate::read::replays::Replays;
use crate::read::select::select;
use crate::stored::summary::EpisodeKey;

/// A query for episodes. The default lists all, in the order of their names.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Query {
    /// List only episodes of the env with this id.
    pub env: Option<String>,
    /// List only episodes whose outcome has the same word.
    pub outcome: Option<Outcome>,
    /// Whether an order of merit, by return or length, lists interrupted episodes too; merit says nothing about a part
    /// of an episode. Other orders list them anyway, and so does an `outcome` that asks for them.
    pub all_outcomes: bool,
    /// List only episodes with at least this return. Episodes whose return is not known are then left out.
    pub min_return: Option<f64>,
    /// List only episodes of runs with this short id, as episode names have it.
    pub run: Option<u64>,
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

/// An order of episodes. Ties are in the order of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sort {
    /// Property by which episodes are sorted.
    pub key: SortKey,
    /// Whether the largest come first.
    pub descending: bool,
}

/// The property by which episodes are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortKey {
    /// Name: run (older first), lane, number.
    #[default]
    Name,
    /// Return; unknown ones count as the smallest.
    Return,
    /// Number of steps.
    Length,
    /// Wall clock of the first step.
    Started,
}

/// An error: a text is no order of episodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot sort by `{0}`; known are return, length, started, name, each with - in front")]
pub struct UnknownSort(String);

impl FromStr for Sort {
    type Err = UnknownSort;

    /// Reads the word of a key, with `-` in front for the largest first.
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
    /// Lists the episodes that a query asks for. Extents that cannot contribute are not read, and no more episodes are
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

    /// Returns whether the query may ask for episodes of a run.
    pub(crate) fn is_of_run(&self, run: &RunInfo) -> bool {
        self.env.as_ref().is_none_or(|wanted| *wanted == run.spec.id)
            && self.run.is_none_or(|wanted| wanted == run.run().short())
    }

    /// Returns whether an episode is one of those that the query names, or the query names none.
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
    /// Returns whether the key tells better episodes from worse ones; episodes have to be whole for that.
    pub fn is_of_merit(self) -> bool {
        matches!(self.key, SortKey::Return | SortKey::Length)
    }

    /// Returns the place of an episode in this order.
    pub fn rank_of(self, info: &EpisodeInfo) -> Rank {
        self.rank(&Facts::of(info))
    }

    /// Compares two episodes in this order, also when they come from different folders.
    pub fn compare(self, a: &EpisodeInfo, b: &EpisodeInfo) -> Ordering {
        self.rank_of(a).cmp(&self.rank_of(b))
    }
}

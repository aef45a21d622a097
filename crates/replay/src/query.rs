//! Which episodes a listing shows, and in which order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::str::FromStr;

use rollhouse_core::Outcome;

use crate::copies::Copies;
use crate::episode::EpisodeInfo;
use crate::extent::Extent;
use crate::replays::{ReadError, Replays, Segment};

/// Which episodes to list. The default lists all, in the order of their names.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Query {
    /// Only of this env.
    pub env: Option<String>,
    /// Only with an outcome of the same word.
    pub outcome: Option<Outcome>,
    /// Only with at least this return. Episodes without a known return are left out then.
    pub min_return: Option<f64>,
    /// In which order.
    pub sort: Sort,
    /// At most so many, the first in that order.
    pub limit: Option<usize>,
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
#[derive(Debug, Clone, PartialEq, Eq)]
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

impl std::fmt::Display for UnknownSort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "cannot sort by `{}`; known are return, length, started, name, each with - in front",
            self.0
        )
    }
}

impl std::error::Error for UnknownSort {}

impl Replays {
    /// The episodes a query asks for. Extents that cannot contribute are not read, and no more episodes are
    /// held in memory than the query's limit.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn list(&self, query: &Query) -> Result<Vec<EpisodeInfo>, ReadError> {
        Ok(list(&[self], query, &Copies::default())?.into_iter().map(|(_, info)| info).collect())
    }
}

/// The episodes of several folders that a query asks for, each with the place of its folder among `folders`.
/// They share one limit, so that a folder's extents are not read if another's episodes are better. Of episodes
/// that several have, the copy that counts is given.
pub(crate) fn list(
    folders: &[&Replays],
    query: &Query,
    copies: &Copies<'_>,
) -> Result<Vec<(usize, EpisodeInfo)>, ReadError> {
    let limit = query.limit.unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Vec::new());
    }
    let mut extents: Vec<(Bound, usize, &Segment, &Extent)> = Vec::new();
    let mut heap: BinaryHeap<Ranked> = BinaryHeap::new();
    let offer = |heap: &mut BinaryHeap<Ranked>, folder: usize, info: EpisodeInfo| {
        if !query.matches(&info) {
            return;
        }
        let ranked = Ranked { sort: query.sort, folder, info };
        if heap.len() < limit {
            heap.push(ranked);
        } else if let Some(mut worst) = heap.peek_mut()
            && ranked < *worst
        {
            *worst = ranked;
        }
    };
    for (folder, info) in copies.chosen() {
        offer(&mut heap, folder, info.clone());
    }
    for (folder, replays) in folders.iter().enumerate() {
        for segment in replays.segments.values() {
            let candidates = segment.index.extents.iter().filter(|extent| query.may_match(segment, extent));
            extents.extend(candidates.map(|extent| (query.sort.bound(extent), folder, segment, extent)));
        }
        for info in replays.broken_off()?.into_iter().filter(|info| !copies.have(info)) {
            offer(&mut heap, folder, info);
        }
    }
    // Best first, so that the heap is full of good ones early.
    extents.sort_by(|a, b| a.0.cmp(&b.0));
    for (bound, folder, segment, extent) in extents {
        if heap.len() >= limit && heap.peek().is_some_and(|worst| bound > query.sort.bound_of(&worst.info)) {
            continue;
        }
        folders[folder].read_extent(segment, extent, &mut |info| {
            if !copies.have(&info) {
                offer(&mut heap, folder, info);
            }
        })?;
    }
    Ok(heap.into_sorted_vec().into_iter().map(|ranked| (ranked.folder, ranked.info)).collect())
}

impl Query {
    fn matches(&self, info: &EpisodeInfo) -> bool {
        self.env.as_ref().is_none_or(|env| env == info.env())
            && self.outcome.is_none_or(|outcome| outcome.word() == info.outcome.word())
            && self.min_return.is_none_or(|least| info.total_reward.is_some_and(|total| total >= least))
    }

    fn may_match(&self, segment: &Segment, extent: &Extent) -> bool {
        let env = self.env.as_ref().is_none_or(|env| {
            extent.runs.iter().any(|run| segment.runs.get(run).is_some_and(|run| run.spec.id == *env))
        });
        let outcome = self.outcome.is_none_or(|wanted| {
            let counts = Outcome::ALL.iter().zip(&extent.outcomes);
            counts.filter(|(outcome, _)| outcome.word() == wanted.word()).any(|(_, &count)| count > 0)
        });
        let least = self.min_return.is_none_or(|least| extent.returns.1 >= least);
        extent.episodes() > 0 && env && outcome && least
    }
}

/// The best place an episode of an extent could take, smaller is better. Only the sort key counts.
#[derive(Debug, Clone, Copy)]
struct Bound(f64);

impl Bound {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Sort {
    fn bound(self, extent: &Extent) -> Bound {
        let (least, most) = match self.key {
            // Names say nothing about places; and a NaN could rank anywhere.
            SortKey::Name => return Bound(f64::NEG_INFINITY),
            SortKey::Return if extent.odd => return Bound(f64::NEG_INFINITY),
            SortKey::Return => extent.returns,
            SortKey::Length => (extent.lengths.0 as f64, extent.lengths.1 as f64),
            // An episode may have started long before the extent in which it ended.
            SortKey::Started => (f64::NEG_INFINITY, extent.ms.1 as f64),
        };
        Bound(if self.descending { -most } else { least })
    }

    /// On the scale of [`Sort::bound`]: how good this episode is.
    fn bound_of(self, info: &EpisodeInfo) -> Bound {
        let value = match self.key {
            SortKey::Name => return Bound(f64::INFINITY),
            SortKey::Return => info.total_reward.unwrap_or(f64::NEG_INFINITY),
            SortKey::Length => info.length as f64,
            SortKey::Started => info.started_ms as f64,
        };
        if value.is_nan() {
            return Bound(f64::INFINITY);
        }
        Bound(if self.descending { -value } else { value })
    }

    /// How two episodes stand in this order, also when they come from different folders.
    pub fn compare(self, a: &EpisodeInfo, b: &EpisodeInfo) -> Ordering {
        let name = |info: &EpisodeInfo| (info.run_id(), info.name.lane, info.name.number);
        let total = |info: &EpisodeInfo| info.total_reward.unwrap_or(f64::NEG_INFINITY);
        let by_key = match self.key {
            SortKey::Name => name(a).cmp(&name(b)),
            SortKey::Return => total(a).total_cmp(&total(b)),
            SortKey::Length => a.length.cmp(&b.length),
            SortKey::Started => a.started_ms.cmp(&b.started_ms),
        };
        let by_key = if self.descending { by_key.reverse() } else { by_key };
        by_key.then_with(|| name(a).cmp(&name(b)))
    }
}

/// An episode in the query's order; the heap's largest is the worst.
#[derive(Debug)]
struct Ranked {
    sort: Sort,
    /// Tells copies of an episode apart.
    folder: usize,
    info: EpisodeInfo,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sort.compare(&self.info, &other.info).then_with(|| self.folder.cmp(&other.folder))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

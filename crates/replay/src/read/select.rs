//! Selecting the first episodes of a query's order without reading the others.
//!
//! Extents are searched best first, until the worst of the selected episodes is better than any that the rest can have.
//! In an extent the packed rows are searched where there are any ([`rows`](crate::stored::rows)), else its chunks: rows have
//! all that is listed, so that no chunk is decoded.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rollhouse_core::{GameResult, Outcome};

use crate::code::episode::EpisodeInfo;
use crate::code::events::UNKNOWN_RETURN;
use crate::code::extent::Extent;
use crate::read::copies::Copies;
use crate::read::order::{Facts, Rank, SortKey};
use crate::read::query::Query;
use crate::read::read_error::ReadError;
use crate::read::replays::Replays;
use crate::read::segment::Segment;
use crate::stored::rows::{self, RowChunk};
use crate::stored::run_table::RunKey;
use crate::stored::summary::EpisodeKey;

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

/// Selects the episodes of several folders that a query asks for, each with the place of its folder among `folders`. Of
/// episodes that several folders have, the copy that counts is selected.
pub(crate) fn select(
    folders: &[&Replays],
    query: &Query,
    copies: &Copies,
) -> Result<Vec<(usize, EpisodeInfo)>, ReadError> {
    let mut selection = Selection { query, copies, heap: BinaryHeap::new() };
    if query.limit == Some(0) {
        return Ok(Vec::new());
    }
    for (folder, info) in copies.chosen() {
        selection.offer_info(folder, info.clone());
    }
    let mut extents = Vec::new();
    for (folder, replays) in folders.iter().enumerate() {
        for segment in replays.segments.values() {
            let candidates = segment.index.extents.iter().filter(|extent| query.may_match(segment, extent));
            extents
                .extend(candidates.map(|extent| (query.ranks_of(segment, extent), folder, segment, extent)));
        }
        for info in replays.broken_off()?.into_iter().filter(|info| !copies.have(info)) {
            selection.offer_info(folder, info);
        }
    }
    extents.sort_by_key(|(ranks, ..)| ranks.0);
    for ((first, last), folder, segment, extent) in extents {
        if !selection.takes(first) {
            break;
        }
        if query.after.is_none_or(|after| last > after) {
            selection.extent(folder, folders[folder], segment, extent)?;
        }
    }
    let selected = selection.heap.into_sorted_vec().into_iter();
    Ok(selected.map(|selected| (selected.folder, *selected.info)).collect())
}

struct Selection<'a> {
    query: &'a Query,
    copies: &'a Copies,
    /// The selected episodes; the largest is the worst.
    heap: BinaryHeap<Selected>,
}

/// An episode in the query's order.
#[derive(Debug)]
struct Selected {
    rank: Rank,
    /// Place of the folder, which tells copies of an episode apart.
    folder: usize,
    info: Box<EpisodeInfo>,
}

impl Selection<'_> {
    /// Returns whether an episode of that rank would be among the first.
    fn takes(&self, rank: Rank) -> bool {
        self.query.limit.is_none_or(|limit| self.heap.len() < limit)
            || self.heap.peek().is_some_and(|worst| rank <= worst.rank)
    }

    fn offer(&mut self, selected: Selected) {
        if self.query.after.is_some_and(|after| selected.rank <= after) {
            return;
        }
        if self.query.limit.is_none_or(|limit| self.heap.len() < limit) {
            self.heap.push(selected);
        } else if let Some(mut worst) = self.heap.peek_mut()
            && selected < *worst
        {
            *worst = selected;
        }
    }

    fn offer_info(&mut self, folder: usize, info: EpisodeInfo) {
        if self.query.matches(&info) {
            let rank = self.query.sort.rank_of(&info);
            self.offer(Selected { rank, folder, info: Box::new(info) });
        }
    }

    fn extent(
        &mut self,
        folder: usize,
        replays: &Replays,
        segment: &Segment,
        extent: &Extent,
    ) -> Result<(), ReadError> {
        if replays.lists_none(segment) {
            return Ok(());
        }
        let packed = replays.rows(segment, extent);
        match packed.as_ref().map(RowChunk::all) {
            Some(Ok(chunks)) => {
                chunks.iter().for_each(|chunk| self.chunk(folder, replays, segment, chunk));
                Ok(())
            }
            _ => replays.read_extent(segment, extent, &mut |info| {
                if !self.copies.have(&info) {
                    self.offer_info(folder, info);
                }
            }),
        }
    }

    /// Offers the rows of a chunk.
    fn chunk(&mut self, folder: usize, replays: &Replays, segment: &Segment, chunk: &RowChunk<'_>) {
        let Some(key) = segment.runs.get(chunk.run) else { return };
        let Query { min_return, sort, .. } = *self.query;
        let run = key.run().as_u128();
        let matches = |code: u8| Outcome::from_code(code).is_some_and(|o| self.query.is_of_outcome(o));
        let returns = chunk.returns();
        let too_small = min_return.zip(returns).is_some_and(|(least, (_, most))| most < least);
        let resultless = !chunk.has_results() && !self.query.is_of_result(GameResult::None);
        if too_small
            || resultless
            || !self.query.is_of_run(key.run(), key.env())
            || chunk.only_outcome().is_some_and(|o| !matches(o))
        {
            return;
        }
        let (first, last) = sort.ranks_between(&bound(run, chunk, false), &bound(run, chunk, true));
        let unknown = sort.key == SortKey::Return && returns.is_none();
        if !unknown && (!self.takes(first) || self.query.after.is_some_and(|after| last <= after)) {
            return;
        }
        let number_of = segment.index.number;
        let shared = self.copies.has_run(run);
        let headless = replays.headless.is_in(number_of);
        let in_part = replays.lists_a_part(segment);
        for at in 0..chunk.len() {
            let total = chunk.total_reward(at);
            let known = total.to_bits() != UNKNOWN_RETURN.to_bits();
            if min_return.is_some_and(|least| !(known && total >= least)) {
                continue;
            }
            let (lane, number) = (chunk.lane(at), chunk.numbers.get(at));
            let facts = Facts {
                run,
                lane,
                number,
                length: chunk.lengths.get(at),
                total_reward: Some(total).filter(|_| known),
                started_ms: chunk.started.get(at),
            };
            let rank = sort.rank(&facts);
            if !self.takes(rank)
                || !matches(chunk.outcome(at))
                || !self.query.is_of_result(chunk.result(at).0)
                || !self.query.is_among(|| EpisodeKey { run, lane, number })
                || (in_part
                    && !replays.lists_end(segment, chunk.offset(), || EpisodeKey { run, lane, number }))
                || (headless && replays.headless.has(number_of, chunk.run, lane, number))
                || (shared && self.copies.has(run, lane, number))
            {
                continue;
            }
            // A header that is gone meanwhile goes with its segment.
            let Some(info) = replays.info(segment, key) else { return };
            let info = chunk.info(at, &info, number_of);
            if self.query.has_options(&info) && self.query.has_agents(&info) {
                self.offer(Selected { rank, folder, info: Box::new(info) });
            }
        }
    }
}

/// Returns the smallest facts of a chunk's rows, or the largest.
fn bound(run: u128, chunk: &RowChunk<'_>, most: bool) -> Facts {
    let side = |column: &rows::Column<'_>| if most { column.most } else { column.least };
    Facts {
        run,
        lane: chunk.first_lane.saturating_add(if most { 63 } else { 0 }),
        number: side(&chunk.numbers),
        length: side(&chunk.lengths),
        total_reward: chunk.returns().map(|(low, high)| if most { high } else { low }),
        started_ms: side(&chunk.started),
    }
}

impl Query {
    fn may_match(&self, segment: &Segment, extent: &Extent) -> bool {
        let mut runs = extent.runs.iter().filter_map(|run| segment.runs.get(*run));
        let mut outcomes = Outcome::ALL.iter().zip(&extent.outcomes).filter(|(_, count)| **count > 0);
        extent.episodes() > 0
            && runs.any(|run| self.is_of_run(run.run(), run.env()) && self.may_be_among(run, extent))
            && outcomes.any(|(outcome, _)| self.is_of_outcome(*outcome))
            && self.min_return.is_none_or(|least| extent.returns.1 >= least)
    }

    /// Returns whether an extent may have one of a run's episodes that the query names.
    fn may_be_among(&self, run: &RunKey, extent: &Extent) -> bool {
        let run = run.run().as_u128();
        let key = |lane, number| EpisodeKey { run, lane, number };
        let range = key(extent.lanes.0, 0)..=key(extent.lanes.1, u64::MAX);
        let numbers = extent.numbers.0..=extent.numbers.1;
        self.only.as_ref().is_none_or(|only| only.range(range).any(|key| numbers.contains(&key.number)))
    }

    /// Returns bounds of the ranks of an extent's episodes.
    fn ranks_of(&self, segment: &Segment, extent: &Extent) -> (Rank, Rank) {
        let runs = || extent.runs.iter().filter_map(|run| Some(segment.runs.get(*run)?.run().as_u128()));
        let (Some(first), Some(last)) = (runs().min(), runs().max()) else {
            return (Rank::LEAST, Rank::MOST);
        };
        // A return that is not a number could rank anywhere.
        if self.sort.key == SortKey::Return && extent.odd {
            return (Rank::LEAST, Rank::MOST);
        }
        let facts = |run, lane, number, length, total, started_ms| Facts {
            run,
            lane,
            number,
            length,
            total_reward: Some(total),
            started_ms,
        };
        let least = facts(
            first,
            extent.lanes.0,
            extent.numbers.0,
            extent.lengths.0,
            extent.returns.0,
            extent.started_ms.0,
        );
        let most = facts(
            last,
            extent.lanes.1,
            extent.numbers.1,
            extent.lengths.1,
            extent.returns.1,
            extent.started_ms.1,
        );
        self.sort.ranks_between(&least, &most)
    }
}

impl Ord for Selected {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.rank, self.folder).cmp(&(other.rank, other.folder))
    }
}

impl PartialOrd for Selected {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Selected {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Selected {}

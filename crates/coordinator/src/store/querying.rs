//! Answers to questions about the episodes of the store, from the indexes of its segments.
//!
//! Nothing here takes the lock under which segments are placed. The segments' indexes are kept between questions and
//! brought up to date by those that came and went since.
//!
//! A reader that goes on behind a page is about to read a long listing. The coordinator then looks up thousands of
//! episodes at once and keeps them as a window, so that the pages that follow cost no look at the store. The window is
//! only a cache, because the place in the order determines the answer: a reader who stops leaves nothing behind, and a
//! window that was displaced is looked up again.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::MutexGuard;
use rollhouse_core::{GameResult, Outcome};
use rollhouse_replay::{EpisodeInfo, Library, Query, Rank, ReadError};
use rollhouse_wire::limits::{MAX_STORE_DAMAGE, MAX_STORE_EPISODES, MAX_STORE_PAGE_BYTES};
use rollhouse_wire::{
    ReadGrant, StoreCount, StoreDamage, StoreEpisode, StoreEpisodes, StoreQuery, StoreResult, StoreStats,
};

use super::readable::filter_of;
use super::{Store, StoreError};

/// The number of segments that had come, gone, been set aside and been listed again.
type Changes = (u64, u64, u64, u64);

/// The contents of the store, as they were after that many changes.
#[derive(Debug, Default)]
pub(super) struct Known {
    changes: Changes,
    library: Option<Arc<Library>>,
    /// The windows of episodes; the one used last is at the end.
    windows: Vec<Arc<Window>>,
}

/// Episodes that follow each other in a listing.
#[derive(Debug)]
struct Window {
    changes: Changes,
    /// The query; `limit` and `after` are those of the window.
    query: Query,
    episodes: Vec<EpisodeInfo>,
}

impl Window {
    /// Makes a window of the episodes that were found, without the last of them if their runs are too many to be kept.
    fn of(changes: Changes, mut query: Query, mut episodes: Vec<EpisodeInfo>) -> Self {
        let (mut bytes, mut last) = (0, None);
        let too_many = episodes.iter().position(|info| {
            if last.replace(info.run_id()) != Some(info.run_id()) {
                bytes += info.run_memory();
            }
            bytes += info.agents_memory();
            bytes > WINDOW_RUN_BYTES
        });
        if let Some(most) = too_many.map(|at| at.max(1)).filter(|most| *most < episodes.len()) {
            episodes.truncate(most);
            query.limit = Some(most);
        }
        Self { changes, query, episodes }
    }

    /// Returns the index of the first episode behind `after`, if this window has the answer to `query`.
    fn goes_on(&self, query: &Query) -> Option<usize> {
        let mut same = query.clone();
        (same.limit, same.after) = (self.query.limit, self.query.after);
        let (after, from) = (query.after?, self.query.after?);
        if same != self.query || after < from {
            return None;
        }
        let sort = query.sort;
        let at = self.episodes.partition_point(|info| sort.rank_of(info) <= after);
        (at < self.episodes.len() || self.is_last()).then_some(at)
    }

    /// Returns whether nothing comes behind it.
    fn is_last(&self) -> bool {
        self.query.limit.is_none_or(|limit| self.episodes.len() < limit)
    }
}

impl Store {
    /// Returns a page of the episodes that are asked for.
    ///
    /// # Errors
    /// If the question makes no sense, or a file operation fails.
    pub fn episodes(&self, asked: &StoreQuery) -> Result<StoreEpisodes, StoreError> {
        self.episodes_of(&ReadGrant::All, asked)
    }

    /// Returns a page of the episodes that are asked for, of those that may be read.
    ///
    /// # Errors
    /// Those of [`Store::episodes`].
    pub fn episodes_of(&self, reads: &ReadGrant, asked: &StoreQuery) -> Result<StoreEpisodes, StoreError> {
        let query = Query { of: filter_of(reads), ..query_of(asked)? };
        let limit = query.limit.unwrap_or_default();
        let (window, at) = self.window(&query)?;
        let by_options = !query.options.is_empty();
        let (mut page, mut bytes) = (StoreEpisodes { by_options, ..StoreEpisodes::default() }, 0);
        let rest = window.episodes.get(at..).unwrap_or_default();
        page.more = rest.len() >= limit || !window.is_last();
        for info in rest.iter().take(limit) {
            let agent_returns: BTreeMap<_, _> =
                info.agent_returns().map(|(agent, total)| (agent.to_owned(), total)).collect();
            bytes += EPISODE_BYTES + info.env().len() + info.policy().name.len();
            bytes += agent_returns.keys().map(|agent| agent.len() + AGENT_BYTES).sum::<usize>();
            if bytes > MAX_STORE_PAGE_BYTES && !page.episodes.is_empty() {
                page.more = true;
                break;
            }
            page.after = query.sort.rank_of(info).to_words().to_vec();
            page.episodes.push(StoreEpisode {
                run: info.run_id(),
                lane: info.name.lane,
                number: info.name.number,
                env: info.env().to_owned(),
                seed: info.seed(),
                length: info.length,
                total_reward: info.total_reward,
                outcome: info.outcome.word().to_owned(),
                beside: StoreResult {
                    result: info.result.word().map(str::to_owned),
                    score: info.score,
                    agent_returns,
                },
                started_ms: info.started_ms,
                policy: info.policy().name.clone(),
                dynamics: info.dynamics(),
                bytes: info.bytes,
                parent: info.parent(),
            });
        }
        Ok(page)
    }

    /// Returns a window that has the episodes that are asked for, and the index of the first.
    fn window(&self, query: &Query) -> Result<(Arc<Window>, usize), StoreError> {
        let changes = self.changes();
        let look_up = |query: Query| {
            let found = self.asking(|library| library.list(&query))?;
            let episodes = found.into_iter().map(|episode| episode.info).collect();
            Ok(Arc::new(Window::of(changes, query, episodes)))
        };
        if query.after.is_none() || query.limit == Some(0) {
            return Ok((look_up(query.clone())?, 0));
        }
        let kept = {
            let mut known = self.known();
            known.windows.retain(|window| window.changes == changes);
            let found = known.windows.iter().enumerate().rev();
            let found = found.filter_map(|(at, window)| Some((at, window.goes_on(query)?))).next();
            found.map(|(at, first)| {
                let window = known.windows.remove(at);
                known.windows.push(window.clone());
                (window, first)
            })
        };
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let window = look_up(Query { limit: Some(WINDOW_EPISODES), ..query.clone() })?;
        let mut known = self.known();
        if known.windows.len() >= MAX_WINDOWS {
            known.windows.remove(0);
        }
        known.windows.push(window.clone());
        Ok((window, 0))
    }

    fn changes(&self) -> Changes {
        let counts = self.counts();
        (counts.received, counts.dropped_segments, counts.quarantined, counts.adopted)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock()
    }

    /// Returns the totals of the store.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        self.stats_of(&ReadGrant::All)
    }

    /// Returns the totals of what may be read of the store. Damage is reported to those who read everything.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn stats_of(&self, reads: &ReadGrant) -> Result<StoreStats, StoreError> {
        let of = filter_of(reads);
        self.asking(|library| {
            let stats = of.as_ref().map_or_else(|| library.stats(), |of| library.stats_of(of))?;
            let count = |((env, outcome), &episodes): (&(String, &str), &u64)| StoreCount {
                env: env.clone(),
                outcome: (*outcome).to_owned(),
                episodes,
            };
            let reported = if of.is_none() { MAX_STORE_DAMAGE } else { 0 };
            let damage = library.damage().take(reported).map(|(folder, damage)| StoreDamage {
                folder: folder.dir().file_name().unwrap_or_default().to_string_lossy().into_owned(),
                segment: damage.segment,
                from: damage.from,
                to: damage.to,
                cause: damage.cause.word().to_owned(),
            });
            Ok(StoreStats {
                episodes: stats.episodes.iter().map(count).collect(),
                steps: stats.steps,
                no_numbers: stats.no_numbers,
                runs: stats.runs,
                // The first is the store itself.
                folders: library.folders().len() as u64 - 1,
                segments: stats.segments,
                bytes: stats.bytes,
                incomplete: stats.incomplete,
                damage: damage.collect(),
            })
        })
    }

    /// Asks the library of the store's current segments; asks again if a segment was dropped in the meantime.
    pub(super) fn asking<T>(&self, ask: impl Fn(&Library) -> Result<T, ReadError>) -> Result<T, StoreError> {
        let mut attempt = 0;
        loop {
            let library = self.library(attempt > 0)?;
            match ask(&library) {
                Ok(answer) => return Ok(answer),
                Err(_) if attempt < MOST_ATTEMPTS => attempt += 1,
                Err(error) => return Err(failed(error)),
            }
        }
    }

    pub(super) fn library(&self, anew: bool) -> Result<Arc<Library>, StoreError> {
        let changes = self.changes();
        let mut known = self.known();
        let library = match &known.library {
            Some(library) if known.changes == changes && !anew => return Ok(library.clone()),
            Some(library) => library.opened_again(),
            None => Library::open(self.inner.disk.clone(), &self.inner.dir),
        };
        let library = Arc::new(library.map_err(failed)?);
        (known.changes, known.library) = (changes, Some(library.clone()));
        Ok(library)
    }
}

fn query_of(asked: &StoreQuery) -> Result<Query, StoreError> {
    let bad = |what: String| StoreError::Query(what);
    let outcome = asked.outcome.as_deref().map(str::parse::<Outcome>).transpose();
    let result = asked.result.as_deref().map(str::parse::<GameResult>).transpose();
    let after = match asked.after.as_slice() {
        [] => None,
        words => match <[u64; 5]>::try_from(words) {
            Ok(words) => Some(Rank::from_words(words)),
            Err(_) => return Err(bad(format!("a place in an order has 5 numbers, not {}", words.len()))),
        },
    };
    Ok(Query {
        of: None,
        only: None,
        env: asked.env.clone(),
        outcome: outcome.map_err(|error| bad(error.to_string()))?,
        result: result.map_err(|error| bad(error.to_string()))?,
        all_outcomes: asked.all_outcomes,
        options: asked.options.clone().into_iter().collect(),
        min_return: asked.min_return,
        min_agent_returns: asked.min_agent_returns.clone().into_iter().collect(),
        run: asked.run,
        sort: asked.sort.parse().map_err(|error: rollhouse_replay::UnknownSort| bad(error.to_string()))?,
        limit: Some((asked.limit as usize).min(MAX_STORE_EPISODES)),
        after,
    })
}

pub(super) fn failed(error: ReadError) -> StoreError {
    match error {
        ReadError::Disk(error) => StoreError::Disk(error),
        ReadError::NoEpisode(name) => StoreError::NotFound(name.to_string()),
        other => StoreError::Query(other.to_string()),
    }
}

/// Number of episodes that are looked up together for a reader that goes on behind a page.
const WINDOW_EPISODES: usize = 16_384;
/// Bytes of the runs of a window's episodes, which may be of as many runs.
const WINDOW_RUN_BYTES: usize = 16 << 20;
/// Number of windows that are kept: 4 MB each, and their runs.
const MAX_WINDOWS: usize = 3;
/// Number of attempts at a question whose segments are dropped while it is answered.
const MOST_ATTEMPTS: u32 = 3;
/// Bytes of an episode in a page without its texts.
const EPISODE_BYTES: usize = 256;
/// Bytes of an agent's return in a page without its name.
const AGENT_BYTES: usize = 16;

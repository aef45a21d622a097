//! Questions about the episodes of the store, answered from what it knows of its segments.
//!
//! Nothing here takes the lock under which segments are placed. The segments' indexes are kept between questions and
//! brought up to date by those that came and went since.

use std::sync::{Arc, PoisonError};

use rollhouse_core::Outcome;
use rollhouse_replay::{Library, Query, Rank, ReadError};
use rollhouse_wire::limits::{MAX_STORE_DAMAGE, MAX_STORE_EPISODES, MAX_STORE_PAGE_BYTES};
use rollhouse_wire::{StoreCount, StoreDamage, StoreEpisode, StoreEpisodes, StoreQuery, StoreStats};

use super::{Store, StoreError};

/// What the store has, as it was after so many segments had come and gone.
#[derive(Debug, Default)]
pub(super) struct Known {
    changes: (u64, u64, u64),
    library: Option<Arc<Library>>,
}

impl Store {
    /// The episodes that are asked for, a page of them.
    ///
    /// # Errors
    /// If the question makes no sense, or a file operation fails.
    pub fn episodes(&self, asked: &StoreQuery) -> Result<StoreEpisodes, StoreError> {
        let query = query_of(asked)?;
        let limit = query.limit.unwrap_or_default();
        let found = self.asking(|library| library.list(&query))?;
        let (mut page, mut bytes) = (StoreEpisodes::default(), 0);
        page.more = found.len() == limit;
        for info in found.into_iter().map(|episode| episode.info) {
            bytes += EPISODE_BYTES + info.env().len() + info.policy().name.len();
            if bytes > MAX_STORE_PAGE_BYTES && !page.episodes.is_empty() {
                page.more = true;
                break;
            }
            page.after = query.sort.rank_of(&info).to_words().to_vec();
            page.episodes.push(StoreEpisode {
                run: info.run_id(),
                lane: info.name.lane,
                number: info.name.number,
                env: info.env().to_owned(),
                seed: info.seed(),
                length: info.length,
                total_reward: info.total_reward,
                outcome: info.outcome.word().to_owned(),
                started_ms: info.started_ms,
                policy: info.policy().name.clone(),
                dynamics: info.dynamics(),
                bytes: info.bytes,
            });
        }
        Ok(page)
    }

    /// What the store holds, added up.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        self.asking(|library| {
            let stats = library.stats()?;
            let count = |((env, outcome), &episodes): (&(String, &str), &u64)| StoreCount {
                env: env.clone(),
                outcome: (*outcome).to_owned(),
                episodes,
            };
            let damage = library.damage().take(MAX_STORE_DAMAGE).map(|(folder, damage)| StoreDamage {
                folder: folder.dir().file_name().unwrap_or_default().to_string_lossy().into_owned(),
                segment: damage.segment,
                from: damage.from,
                to: damage.to,
                cause: damage.cause.word().to_owned(),
            });
            Ok(StoreStats {
                episodes: stats.episodes.iter().map(count).collect(),
                steps: stats.steps,
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

    /// Asks what the store has now; again if a segment was dropped meanwhile.
    fn asking<T>(&self, ask: impl Fn(&Library) -> Result<T, ReadError>) -> Result<T, StoreError> {
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

    fn library(&self, anew: bool) -> Result<Arc<Library>, StoreError> {
        let counts = self.counts();
        let changes = (counts.received, counts.dropped_segments, counts.quarantined);
        let mut known = self.inner.known.lock().unwrap_or_else(PoisonError::into_inner);
        let library = match &known.library {
            Some(library) if known.changes == changes && !anew => return Ok(library.clone()),
            Some(library) => library.opened_again(),
            None => Library::open(self.inner.disk.clone(), &self.inner.dir),
        };
        let library = Arc::new(library.map_err(failed)?);
        *known = Known { changes, library: Some(library.clone()) };
        Ok(library)
    }
}

fn query_of(asked: &StoreQuery) -> Result<Query, StoreError> {
    let bad = |what: String| StoreError::Query(what);
    let outcome = asked.outcome.as_deref().map(str::parse::<Outcome>).transpose();
    let after = match asked.after.as_slice() {
        [] => None,
        words => match <[u64; 5]>::try_from(words) {
            Ok(words) => Some(Rank::from_words(words)),
            Err(_) => return Err(bad(format!("a place in an order has 5 numbers, not {}", words.len()))),
        },
    };
    Ok(Query {
        env: asked.env.clone(),
        outcome: outcome.map_err(|error| bad(error.to_string()))?,
        min_return: asked.min_return,
        run: asked.run,
        sort: asked.sort.parse().map_err(|error: rollhouse_replay::UnknownSort| bad(error.to_string()))?,
        limit: Some((asked.limit as usize).min(MAX_STORE_EPISODES)),
        after,
    })
}

fn failed(error: ReadError) -> StoreError {
    match error {
        ReadError::Disk(error) => StoreError::Disk(error),
        other => StoreError::Query(other.to_string()),
    }
}

/// Attempts at a question whose segments are dropped while it is answered.
const MOST_ATTEMPTS: u32 = 3;
/// What an episode takes of a page beside its texts.
const EPISODE_BYTES: usize = 256;

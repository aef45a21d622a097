//! What has happened to lanes and their recording, until the thread that steps them takes it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rollhouse_replay::{DiskError, DiskRoom, RecorderWatch, Status};

use crate::failure::chain;

/// The news of one vector env.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Whether there are any; read before each step.
    waiting: AtomicBool,
    items: Mutex<VecDeque<NewsItem>>,
}

/// One of the news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NewsItem {
    /// Lanes were lost, in the way that the word names.
    LanesLost { lanes: Vec<usize>, outcome: &'static str },
    /// A session went from a node to another one.
    Moved { lanes: Vec<usize>, from: String, to: String },
    /// The disk takes nothing.
    DiskFailed { why: String },
    /// The disk is nearly full.
    DiskShort { free: u64, total: u64 },
    /// The disk takes something again.
    DiskRecovered,
    /// The recording has lost so many episodes more, for that reason.
    EpisodesLost { episodes: u64, why: String },
}

/// The last look at a folder's disk, by which what is new is known.
#[derive(Debug)]
pub(crate) struct DiskLook {
    watch: RecorderWatch,
    failing: bool,
    short: bool,
    lost_episodes: u64,
    lost_chunks: u64,
}

impl News {
    /// Adds an item. Beyond [`MOST`] the oldest goes.
    pub(crate) fn push(&self, item: NewsItem) {
        let mut items = self.items.lock();
        if items.len() >= MOST {
            items.pop_front();
        }
        items.push_back(item);
        self.waiting.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Takes all items, each as a dict of what it is.
    pub(crate) fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let items = {
            let mut items = self.items.lock();
            self.waiting.store(false, Ordering::Relaxed);
            std::mem::take(&mut *items)
        };
        items.into_iter().map(|item| item.into_dict(py)).collect()
    }
}

impl NewsItem {
    const fn short(DiskRoom { free, total }: DiskRoom) -> Self {
        Self::DiskShort { free, total }
    }

    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        let kind = match &self {
            Self::LanesLost { .. } | Self::EpisodesLost { .. } => "lost",
            Self::Moved { .. } => "moved",
            Self::DiskFailed { .. } | Self::DiskShort { .. } | Self::DiskRecovered => "disk",
        };
        dict.set_item("kind", kind)?;
        match self {
            Self::LanesLost { lanes, outcome } => {
                dict.set_item("lanes", lanes)?;
                dict.set_item("why", outcome)?;
            }
            Self::Moved { lanes, from, to } => {
                dict.set_item("lanes", lanes)?;
                dict.set_item("source", from)?;
                dict.set_item("target", to)?;
            }
            Self::DiskFailed { why } => {
                dict.set_item("state", "failed")?;
                dict.set_item("why", why)?;
            }
            Self::DiskShort { free, total } => {
                dict.set_item("state", "nearly full")?;
                dict.set_item("why", format!("{free} of its {total} bytes are free"))?;
            }
            Self::DiskRecovered => dict.set_item("state", "recovered")?,
            Self::EpisodesLost { episodes, why } => {
                dict.set_item("episodes", episodes)?;
                dict.set_item("why", why)?;
            }
        }
        Ok(dict)
    }
}

impl DiskLook {
    pub(crate) const fn new(watch: RecorderWatch) -> Self {
        Self { watch, failing: false, short: false, lost_episodes: 0, lost_chunks: 0 }
    }

    /// Returns what was wrong with the disk at the last look.
    pub(crate) fn standing(&self) -> Vec<NewsItem> {
        let Status { error, room, .. } = self.watch.status();
        let short = room.filter(|_| self.short).map(NewsItem::short);
        let failed = self.failing.then(|| NewsItem::DiskFailed { why: why_of(error.as_ref()) });
        short.into_iter().chain(failed).collect()
    }

    /// Returns what is new since the last look. Losses of an outage come as it begins and as it ends.
    pub(crate) fn look(&mut self) -> Vec<NewsItem> {
        let Status { recorded, error, failing, room, .. } = self.watch.status();
        let mut found = Vec::new();
        let short = room.is_some_and(|room| room.is_short());
        if short
            && !self.short
            && let Some(room) = room
        {
            found.push(NewsItem::short(room));
        }
        let (was_failing, is_new) = (self.failing, failing && !self.failing);
        (self.short, self.failing) = (short, failing);
        let why = || why_of(error.as_ref());
        if is_new {
            found.push(NewsItem::DiskFailed { why: why() });
        }
        let lost = recorded.lost_episodes.saturating_sub(self.lost_episodes);
        let lost_chunks = recorded.lost_chunks > self.lost_chunks;
        // While it lasts, each look would find some more.
        if (lost > 0 || lost_chunks) && !(was_failing && failing) {
            found.push(NewsItem::EpisodesLost { episodes: lost, why: why() });
            (self.lost_episodes, self.lost_chunks) = (recorded.lost_episodes, recorded.lost_chunks);
        }
        if was_failing && !failing {
            found.push(NewsItem::DiskRecovered);
        }
        found
    }
}

/// Returns why a recording fails, with the causes.
pub(crate) fn why_of(error: Option<&DiskError>) -> String {
    error.map_or_else(|| "the recorder's writer thread has ended".to_owned(), |error| chain(error))
}

/// News that wait for one vector env at most.
const MOST: usize = 256;

//! The runs of a segment by what tells them apart: all that readers need of a run without its header.

use std::sync::Arc;

use rollhouse_core::{RunId, msgpack};
use serde::Deserialize;

use crate::limits::MAX_RUN_BYTES;
use crate::stored::index::RunEntry;

/// A run of a segment, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunKey {
    /// The run's index in the segment.
    pub(crate) index: u32,
    /// Place of the run among the segment's headers.
    pub(crate) at: u32,
    /// CRC-32C of the header.
    pub(crate) crc: u32,
    run: (u64, u64),
    /// Number of the recording, as in the header.
    pub(crate) placement: u64,
    env: Arc<str>,
}

/// The runs of a segment, in the order of their indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RunTable(Box<[RunKey]>);

/// The runs in the form that entries have: high and low half of the id, placement, place of the env among `envs`, CRC-32C
/// of the header; in the order of the headers.
#[derive(Debug, Default)]
pub(crate) struct StoredRuns {
    pub(crate) keys: Vec<StoredKey>,
    pub(crate) envs: Vec<Arc<str>>,
}

/// See [`StoredRuns`].
pub(crate) type StoredKey = (u64, u64, u64, u32, u32);

impl RunKey {
    /// Returns the run's id.
    pub(crate) const fn run(&self) -> RunId {
        RunId::from_u128((self.run.0 as u128) << 64 | self.run.1 as u128)
    }

    /// Returns the low bits of the run's id, which chunks carry.
    pub(crate) const fn tag(&self) -> u32 {
        self.run.1 as u32
    }

    /// Returns the id of the run's env.
    pub(crate) fn env(&self) -> &str {
        &self.env
    }
}

impl StoredRuns {
    /// Reads the keys of runs from their headers; `None` if a header cannot be read.
    pub(crate) fn of(headers: &[Arc<[u8]>]) -> Option<Self> {
        let mut runs = Self::default();
        for header in headers {
            let head: Head = msgpack::decode(header, MAX_RUN_BYTES).ok()?;
            let known = runs.envs.iter().position(|env| **env == *head.spec.id);
            let env = known.unwrap_or(runs.envs.len());
            if known.is_none() {
                runs.envs.push(head.spec.id.into());
            }
            let env = u32::try_from(env).ok()?;
            runs.keys.push((head.run.0, head.run.1, head.placement, env, crc32c::crc32c(header)));
        }
        Some(runs)
    }

    /// Returns the keys as a table of the runs of an index; `None` if they are not those of its runs.
    pub(crate) fn table(&self, entries: &[RunEntry]) -> Option<RunTable> {
        if entries.len() != self.keys.len() {
            return None;
        }
        let key = |(at, (entry, &(high, low, placement, env, crc))): (usize, (&RunEntry, &StoredKey))| {
            let env = self.envs.get(env as usize)?.clone();
            Some(RunKey { index: entry.index, at: at as u32, crc, run: (high, low), placement, env })
        };
        let mut keys: Vec<RunKey> =
            entries.iter().zip(&self.keys).enumerate().map(key).collect::<Option<_>>()?;
        keys.sort_by_key(|key| key.index);
        Some(RunTable(keys.into()))
    }
}

impl From<&RunTable> for StoredRuns {
    fn from(table: &RunTable) -> Self {
        let mut keys: Vec<&RunKey> = table.iter().collect();
        keys.sort_by_key(|key| key.at);
        let mut runs = Self::default();
        for RunKey { run, placement, env, crc, .. } in keys {
            let known = runs.envs.iter().position(|known| known == env);
            let at = known.unwrap_or(runs.envs.len());
            if known.is_none() {
                runs.envs.push(env.clone());
            }
            runs.keys.push((run.0, run.1, *placement, at as u32, *crc));
        }
        runs
    }
}

impl RunTable {
    /// Returns the run of that index in the segment.
    pub(crate) fn get(&self, index: u32) -> Option<&RunKey> {
        let at = self.0.binary_search_by_key(&index, |key| key.index).ok()?;
        self.0.get(at)
    }

    /// Returns the runs in the order of their indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RunKey> {
        self.0.iter()
    }
}

/// The part of a header that tells runs apart; the rest is passed over.
#[derive(Deserialize)]
struct Head {
    run: (u64, u64),
    spec: SpecHead,
    #[serde(default)]
    placement: u64,
}

#[derive(Deserialize)]
struct SpecHead {
    id: String,
}

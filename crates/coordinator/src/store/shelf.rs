//! What the store knows of its segments without reading them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rollhouse_replay::SegmentSummary;
use rollhouse_wire::StoreStatus;

use super::StoreCounts;

/// The stock.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    folders: BTreeMap<Arc<str>, BTreeMap<u64, Held>>,
    /// All segments, the oldest first.
    ages: BTreeSet<(u64, Arc<str>, u64)>,
    /// Which recorders have recorded lanes of a run.
    runs: BTreeMap<u128, Vec<Writer>>,
    /// Bytes by folder, number and CRC.
    quarantined: BTreeMap<(Arc<str>, u64, u32), u64>,
    bytes: u64,
    quarantined_bytes: u64,
    pub(crate) counts: StoreCounts,
    /// Segments being received, and how many ever were.
    pub(crate) receiving: usize,
    pub(crate) drawn: u64,
}

/// A segment in the store.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    number: u64,
    pub(crate) bytes: u64,
    pub(crate) crc: u32,
    opened_ms: u64,
    session: u32,
    /// Smallest and largest number of an episode that ended in it.
    numbers: Option<(u64, u64)>,
    runs: Vec<u128>,
}

/// A segment that was taken out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) folder: Arc<str>,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// Nothing is left in its folder.
    pub(crate) emptied: bool,
}

/// What one recorder has recorded of a run.
#[derive(Debug)]
struct Writer {
    folder: Arc<str>,
    session: u32,
    /// Lanes: first -> end.
    blocks: BTreeMap<u32, u32>,
    segments: usize,
}

impl Held {
    pub(crate) fn of(summary: &SegmentSummary) -> Self {
        let runs: BTreeSet<u128> = summary.blocks().map(|(run, ..)| run.as_u128()).collect();
        Self {
            number: summary.number(),
            bytes: summary.bytes(),
            crc: summary.crc(),
            opened_ms: summary.opened_ms(),
            session: summary.session(),
            numbers: summary.numbers(),
            runs: runs.into_iter().collect(),
        }
    }
}

impl Shelf {
    /// A folder's name, which is noted if it is new.
    pub(crate) fn folder(&mut self, name: &str) -> Arc<str> {
        if let Some((known, _)) = self.folders.get_key_value(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.folders.insert(name.clone(), BTreeMap::new());
        name
    }

    pub(crate) fn has_folder(&self, name: &str) -> bool {
        self.folders.contains_key(name)
    }

    pub(crate) fn folders(&self) -> impl ExactSizeIterator<Item = &str> {
        self.folders.keys().map(|name| &**name)
    }

    /// The segments of a folder by number; `None` if there is no such folder.
    pub(crate) fn segments(&self, folder: &str) -> Option<&BTreeMap<u64, Held>> {
        self.folders.get(folder)
    }

    pub(crate) fn get(&self, folder: &str, number: u64) -> Option<&Held> {
        self.folders.get(folder)?.get(&number)
    }

    pub(crate) fn add(&mut self, folder: &Arc<str>, held: Held, summary: &SegmentSummary) {
        self.bytes += held.bytes;
        self.ages.insert((held.opened_ms, folder.clone(), held.number));
        for &run in &held.runs {
            let writers = self.runs.entry(run).or_default();
            let known = writers.iter().position(|w| w.folder == *folder && w.session == held.session);
            let at = known.unwrap_or(writers.len());
            if known.is_none() {
                let (folder, session) = (folder.clone(), held.session);
                writers.push(Writer { folder, session, blocks: BTreeMap::new(), segments: 0 });
            }
            let writer = &mut writers[at];
            writer.segments += 1;
            for (_, first, lanes) in summary.blocks().filter(|(of, ..)| of.as_u128() == run) {
                let end = writer.blocks.entry(first).or_default();
                *end = (*end).max(first.saturating_add(lanes));
            }
        }
        self.folders.entry(folder.clone()).or_default().insert(held.number, held);
    }

    /// Segments of other recorders that may have episodes of a new segment: of lanes of its runs that it has too,
    /// with numbers as it has. Normally there are none.
    pub(crate) fn rivals(&self, folder: &str, summary: &SegmentSummary) -> Vec<(Arc<str>, u64)> {
        let Some((least, most)) = summary.numbers() else { return Vec::new() };
        let mut rivals = BTreeSet::new();
        for (run, first, lanes) in summary.blocks() {
            let writers = self.runs.get(&run.as_u128()).into_iter().flatten();
            let others = writers.filter(|w| *w.folder != *folder || w.session != summary.session());
            for writer in others.filter(|w| w.overlaps(first, first.saturating_add(lanes))) {
                let held = self.folders.get(&writer.folder).into_iter().flat_map(BTreeMap::values);
                let of_it = held.filter(|h| h.session == writer.session && h.runs.contains(&run.as_u128()));
                let near = of_it.filter(|h| h.numbers.is_some_and(|(from, to)| from <= most && least <= to));
                rivals.extend(near.map(|h| (writer.folder.clone(), h.number)));
            }
        }
        rivals.into_iter().collect()
    }

    /// Takes the oldest segment out if all together exceed `budget` and it is not the only one; its folder, too, if
    /// that was its last.
    pub(crate) fn take_oldest(&mut self, budget: u64) -> Option<Taken> {
        if self.bytes <= budget || self.ages.len() < 2 {
            return None;
        }
        let (_, folder, number) = self.ages.pop_first()?;
        let segments = self.folders.get_mut(&folder)?;
        let held = segments.remove(&number)?;
        let emptied = segments.is_empty();
        if emptied {
            self.folders.remove(&folder);
        }
        self.bytes -= held.bytes;
        for run in &held.runs {
            if let Some(writers) = self.runs.get_mut(run) {
                for writer in writers.iter_mut().filter(|w| w.folder == folder && w.session == held.session) {
                    writer.segments -= 1;
                }
                writers.retain(|writer| writer.segments > 0);
                if writers.is_empty() {
                    self.runs.remove(run);
                }
            }
        }
        Some(Taken { folder, number, bytes: held.bytes, emptied })
    }

    pub(crate) fn is_quarantined(&self, folder: &str, number: u64, crc: u32) -> bool {
        self.quarantined.contains_key(&(folder.into(), number, crc))
    }

    pub(crate) fn quarantine(&mut self, folder: &str, number: u64, crc: u32, bytes: u64) {
        self.quarantined_bytes += bytes;
        self.quarantined.insert((folder.into(), number, crc), bytes);
    }

    /// Takes the first quarantined segment out if all together exceed `limit`.
    pub(crate) fn take_oldest_quarantined(&mut self, limit: u64) -> Option<(Arc<str>, u64, u32)> {
        if self.quarantined_bytes <= limit {
            return None;
        }
        let (key, bytes) = self.quarantined.pop_first()?;
        self.quarantined_bytes -= bytes;
        Some(key)
    }

    pub(crate) fn status(&self) -> StoreStatus {
        StoreStatus {
            segments: self.ages.len() as u64,
            bytes: self.bytes,
            quarantined: self.quarantined.len() as u64,
        }
    }
}

impl Writer {
    fn overlaps(&self, first: u32, end: u32) -> bool {
        // Blocks of one recorder do not overlap, so the last that begins before `end` is the one that reaches furthest.
        self.blocks.range(..end).next_back().is_some_and(|(_, &until)| until > first)
    }
}

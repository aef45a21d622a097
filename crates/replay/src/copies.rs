//! Episodes that several folders have, so that readers of all of them see each once.
//!
//! Folders that record parts of one run have different lanes of it, so that normally none is found twice and
//! nothing is read to know it. A lane that was recorded in two folders is one that was moved or copied; and one that
//! a folder has in two recordings of the run is one that came back.

use std::collections::BTreeMap;
use std::ops::Range;

use rollhouse_core::limits::BLOCK_LANES;

use crate::episode::EpisodeInfo;
use crate::replays::{ReadError, Replays};

/// Lanes of runs that were recorded more than once: in several folders, or in one under several placements.
#[derive(Debug, Default)]
pub(crate) struct SharedLanes {
    /// By run: ascending and apart.
    runs: BTreeMap<u128, Vec<Range<u32>>>,
}

/// The episodes of shared lanes.
#[derive(Debug, Default)]
pub(crate) struct Copies<'a> {
    shared: Option<&'a SharedLanes>,
    /// By run, lane and number: the folder and the copy of it that counts.
    chosen: BTreeMap<(u128, u32, u64), (usize, EpisodeInfo)>,
    /// The other copies.
    further: Vec<EpisodeInfo>,
}

impl SharedLanes {
    /// What the segments' last chunks say; reads nothing.
    pub(crate) fn of(folders: &[&Replays]) -> Self {
        let mut recordings_of: BTreeMap<u128, Vec<(usize, u64)>> = BTreeMap::new();
        for (folder, replays) in folders.iter().enumerate() {
            for run in replays.segments.values().flat_map(|segment| segment.runs.values()) {
                let known = recordings_of.entry(run.run().as_u128()).or_default();
                if !known.contains(&(folder, run.placement)) {
                    known.push((folder, run.placement));
                }
            }
        }
        recordings_of.retain(|_, known| known.len() > 1);
        let mut blocks: BTreeMap<u128, BTreeMap<(u32, usize), u32>> = BTreeMap::new();
        for (folder, replays) in folders.iter().enumerate() {
            for segment in replays.segments.values() {
                for tail in &segment.index.tails {
                    let Some(run) = segment.runs.get(&tail.run) else { continue };
                    let Some(known) = recordings_of.get(&run.run().as_u128()) else { continue };
                    let at = known.iter().position(|known| *known == (folder, run.placement));
                    let lanes = if tail.lanes == 0 { BLOCK_LANES as u32 } else { u32::from(tail.lanes) };
                    let blocks = blocks.entry(run.run().as_u128()).or_default();
                    let end = blocks.entry((tail.first_lane, at.unwrap_or_default())).or_default();
                    *end = (*end).max(tail.first_lane.saturating_add(lanes));
                }
            }
        }
        let runs = blocks.into_iter().map(|(run, blocks)| (run, overlaps(&blocks)));
        Self { runs: runs.filter(|(_, lanes)| !lanes.is_empty()).collect() }
    }

    fn has(&self, run: u128, lane: u32) -> bool {
        let Some(ranges) = self.runs.get(&run) else { return false };
        let after = ranges.partition_point(|range| range.start <= lane);
        after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|range| range.contains(&lane))
    }
}

/// Lanes that blocks of different recordings both have. `blocks` are (first lane, recording) -> end.
fn overlaps(blocks: &BTreeMap<(u32, usize), u32>) -> Vec<Range<u32>> {
    let mut shared: Vec<Range<u32>> = Vec::new();
    let mut reach: Vec<(usize, u32)> = Vec::new();
    for (&(first, recording), &end) in blocks {
        reach.retain(|&(_, until)| until > first);
        let others = reach.iter().filter(|(other, _)| *other != recording);
        if let Some(until) = others.map(|&(_, until)| until.min(end)).max() {
            match shared.last_mut() {
                Some(last) if last.end >= first => last.end = last.end.max(until),
                _ => shared.push(first..until),
            }
        }
        reach.push((recording, end));
    }
    shared
}

impl<'a> Copies<'a> {
    /// Reads what the folders have of shared lanes. A copy that finished goes before one that was cut from outside,
    /// one that ended before one that broke off, a longer before a shorter one, then the first folder's.
    pub(crate) fn read(folders: &[&Replays], shared: &'a SharedLanes) -> Result<Self, ReadError> {
        let mut copies = Self { shared: Some(shared), ..Self::default() };
        if shared.runs.is_empty() {
            return Ok(copies);
        }
        for (folder, replays) in folders.iter().enumerate() {
            for segment in replays.segments.values() {
                let is_shared = |run: &u32| {
                    segment.runs.get(run).is_some_and(|run| shared.runs.contains_key(&run.run().as_u128()))
                };
                for extent in segment.index.extents.iter().filter(|extent| extent.runs.iter().any(is_shared))
                {
                    replays.read_extent(segment, extent, &mut |info| copies.add(folder, info))?;
                }
            }
            replays.broken_off()?.into_iter().for_each(|info| copies.add(folder, info));
        }
        Ok(copies)
    }

    fn add(&mut self, folder: usize, info: EpisodeInfo) {
        if !self.have(&info) {
            return;
        }
        let key = (info.run_id().as_u128(), info.name.lane, info.name.number);
        match self.chosen.get_mut(&key) {
            None => {
                self.chosen.insert(key, (folder, info));
            }
            Some(known) if known.1.standing() < info.standing() => {
                let (_, other) = std::mem::replace(known, (folder, info));
                self.further.push(other);
            }
            Some(_) => self.further.push(info),
        }
    }

    /// Whether the episode is one of a shared lane, so that the chosen copy stands for it.
    pub(crate) fn have(&self, info: &EpisodeInfo) -> bool {
        self.shared.is_some_and(|shared| shared.has(info.run_id().as_u128(), info.name.lane))
    }

    /// The copies that count, each with its folder.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = (usize, &EpisodeInfo)> {
        self.chosen.values().map(|(folder, info)| (*folder, info))
    }

    /// The other copies.
    pub(crate) fn further(&self) -> &[EpisodeInfo] {
        &self.further
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lanes_that_two_folders_have_are_shared() {
        let blocks = |list: &[(u32, usize, u32)]| -> Vec<(u32, u32)> {
            let shared = overlaps(&list.iter().map(|&(first, folder, end)| ((first, folder), end)).collect());
            shared.into_iter().map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(blocks(&[(0, 0, 64), (64, 1, 128), (128, 0, 192)]), []);
        assert_eq!(blocks(&[(0, 0, 64), (0, 1, 64)]), [(0, 64)]);
        assert_eq!(blocks(&[(0, 0, 64), (10, 0, 20), (30, 1, 80), (64, 0, 70)]), [(30, 70)]);
        assert_eq!(blocks(&[(0, 0, 10), (5, 1, 7), (8, 2, 9), (20, 1, 30)]), [(5, 7), (8, 9)]);
    }
}

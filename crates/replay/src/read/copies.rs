//! Episodes that several folders have, so that readers of all of them see each once.
//!
//! Folders that record parts of one run have different lanes of it, so that normally none is found twice and nothing is
//! read to know it. A lane that two folders have was moved or copied; a lane that one folder has in two recordings of
//! the run came back.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use rollhouse_core::RunId;

use crate::code::episode::EpisodeInfo;
use crate::read::read_error::ReadError;
use crate::read::replays::Replays;

/// Lanes of runs that were recorded more than once: in several folders, or in one under several placements.
#[derive(Debug, Default)]
pub(crate) struct SharedLanes {
    /// Ranges of shared lanes by run, ascending and apart.
    runs: BTreeMap<u128, Vec<Range<u32>>>,
}

/// The episodes of shared lanes.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    shared: Arc<SharedLanes>,
    /// Numbers of episodes of each run's shared lanes that more than one recording has.
    numbers: BTreeMap<u128, RangeInclusive<u64>>,
    /// The copy of each episode that counts, with its folder, by run, lane and number.
    chosen: BTreeMap<(u128, u32, u64), (usize, EpisodeInfo)>,
    /// The other copies, each with its folder.
    further: Vec<(usize, EpisodeInfo)>,
}

impl SharedLanes {
    /// Finds the shared lanes by the last chunks of the segments' blocks; reads nothing from the disk.
    pub(crate) fn of(folders: &[&Replays]) -> Self {
        let mut recordings: Vec<(u128, usize, u64)> = Vec::new();
        for (folder, replays) in folders.iter().enumerate() {
            let of_folder = replays.segments.values().flat_map(|segment| segment.runs.iter());
            recordings.extend(of_folder.map(|run| (run.run().as_u128(), folder, run.placement)));
        }
        recordings.sort_unstable();
        recordings.dedup();
        let mut recordings_of: BTreeMap<u128, Vec<(usize, u64)>> = BTreeMap::new();
        for of_run in recordings.chunk_by(|a, b| a.0 == b.0).filter(|of_run| of_run.len() > 1) {
            let placed = of_run.iter().map(|&(_, folder, placement)| (folder, placement));
            recordings_of.insert(of_run[0].0, placed.collect());
        }
        drop(recordings);
        let mut blocks: BTreeMap<u128, BTreeMap<(u32, usize), u32>> = BTreeMap::new();
        for (folder, replays) in folders.iter().enumerate() {
            for segment in replays.segments.values() {
                for tail in &segment.index.tails {
                    let Some(run) = segment.runs.get(tail.run) else { continue };
                    let Some(known) = recordings_of.get(&run.run().as_u128()) else { continue };
                    let at = known.iter().position(|known| *known == (folder, run.placement));
                    let lanes = u32::from(tail.lanes);
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

/// Returns the lanes that blocks of different recordings both have. `blocks` are (first lane, recording) -> end.
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

/// Smallest and largest number of an episode in each recording: folder and placement.
type NumbersOf = BTreeMap<(usize, u64), (u64, u64)>;

/// Returns for each run a range of numbers in which lies every episode that two recordings have: from the second
/// smallest number with which a recording of shared lanes begins to the second largest with which one ends.
fn shared_numbers(
    folders: &[&Replays],
    shared: &SharedLanes,
    broken_off: &[Vec<EpisodeInfo>],
) -> BTreeMap<u128, RangeInclusive<u64>> {
    let mut recordings: BTreeMap<u128, NumbersOf> = BTreeMap::new();
    let mut add = |(run, placement): (RunId, u64), folder: usize, (least, most): (u64, u64)| {
        if shared.runs.contains_key(&run.as_u128()) {
            let recording = recordings.entry(run.as_u128()).or_default();
            let known = recording.entry((folder, placement)).or_insert((least, most));
            *known = (known.0.min(least), known.1.max(most));
        }
    };
    for (folder, replays) in folders.iter().enumerate() {
        for segment in replays.segments.values() {
            for extent in segment.index.extents.iter().filter(|extent| extent.episodes() > 0) {
                let runs = extent.runs.iter().filter_map(|run| segment.runs.get(*run));
                runs.for_each(|run| add((run.run(), run.placement), folder, extent.numbers));
            }
        }
        for info in broken_off.get(folder).into_iter().flatten() {
            let run = (info.run_id(), info.run.placement);
            add(run, folder, (info.name.number, info.name.number));
        }
    }
    let mut numbers = BTreeMap::new();
    for (run, recordings) in recordings {
        let mut least: Vec<u64> = recordings.values().map(|range| range.0).collect();
        let mut most: Vec<u64> = recordings.values().map(|range| range.1).collect();
        least.sort_unstable();
        most.sort_unstable();
        if let (Some(&from), Some(&to)) = (least.get(1), most.iter().nth_back(1)) {
            numbers.insert(run, from..=to);
        }
    }
    numbers
}

impl Copies {
    /// Reads the episodes that the folders have of shared lanes. A copy that finished goes before one that was cut from
    /// outside, one that ended before one that broke off, a longer before a shorter one, then the first folder's.
    pub(crate) fn read(folders: &[&Replays], shared: &Arc<SharedLanes>) -> Result<Self, ReadError> {
        let mut copies = Self { shared: shared.clone(), ..Self::default() };
        if shared.runs.is_empty() {
            return Ok(copies);
        }
        let broken_off = folders.iter().map(|folder| folder.broken_off()).collect::<Result<Vec<_>, _>>()?;
        copies.numbers = shared_numbers(folders, shared, &broken_off);
        for ((folder, replays), broken_off) in folders.iter().enumerate().zip(broken_off) {
            for segment in replays.segments.values() {
                for extent in &segment.index.extents {
                    let may_have = |run: &u32| {
                        let run = segment.runs.get(*run).map(|run| run.run().as_u128());
                        let numbers = run.and_then(|run| copies.numbers.get(&run));
                        numbers.is_some_and(|numbers| {
                            *numbers.start() <= extent.numbers.1 && extent.numbers.0 <= *numbers.end()
                        })
                    };
                    if extent.runs.iter().any(may_have) {
                        replays.read_extent(segment, extent, &mut |info| copies.add(folder, info))?;
                    }
                }
            }
            broken_off.into_iter().for_each(|info| copies.add(folder, info));
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
                let other = std::mem::replace(known, (folder, info));
                self.further.push(other);
            }
            Some(_) => self.further.push((folder, info)),
        }
    }

    /// Returns whether the episode may be one of several copies, so that the chosen one stands for it.
    pub(crate) fn have(&self, info: &EpisodeInfo) -> bool {
        self.has(info.run_id().as_u128(), info.name.lane, info.name.number)
    }

    pub(crate) fn has(&self, run: u128, lane: u32, number: u64) -> bool {
        self.numbers.get(&run).is_some_and(|numbers| numbers.contains(&number)) && self.shared.has(run, lane)
    }

    /// Returns whether the run has episodes with several copies.
    pub(crate) fn has_run(&self, run: u128) -> bool {
        self.numbers.contains_key(&run)
    }

    /// Returns the copies that count, each with its folder.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = (usize, &EpisodeInfo)> {
        self.chosen.values().map(|(folder, info)| (*folder, info))
    }

    /// Returns whether `info` is the copy of its episode that counts.
    pub(crate) fn is_chosen(&self, folder: usize, info: &EpisodeInfo) -> bool {
        let key = (info.run_id().as_u128(), info.name.lane, info.name.number);
        self.chosen.get(&key).is_some_and(|(of, chosen)| *of == folder && chosen.place == info.place)
    }

    /// Returns the other copies, each with its folder.
    pub(crate) fn further(&self) -> &[(usize, EpisodeInfo)] {
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

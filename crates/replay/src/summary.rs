//! What stands in one sealed segment, kept in a small file beside it.
//!
//! A store that gathers segments makes one of each, so that neither it nor those who read it have to read whole
//! segments to know what is in them. Like the catalogue it is a cache: one that is missing or does not fit costs
//! a scan.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rollhouse_core::msgpack;
use rollhouse_core::{Outcome, RunId, split_mix64};
use serde::{Deserialize, Serialize};

use crate::buffer::EndEvent;
use crate::chunk::Part;
use crate::disk::{Disk, DiskFile};
use crate::episode::{EpisodeInfo, start_of};
use crate::folder::segments_dir;
use crate::index::{Found, Records, SegmentIndex, decoder_of, read_all, scan_bytes_with_rows};
use crate::limits::MAX_SUMMARY_BYTES;
use crate::record::Kind;
use crate::rows;
use crate::run_record::RunInfo;
use crate::segment::segment_name;

/// What stands in one segment.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentSummary {
    kept: Kept,
    /// Whether it is sealed and every byte of it is intact.
    whole: bool,
}

/// The msgpack list in a summary's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    /// CRC-32C over the segment's bytes.
    crc: u32,
    /// Wall clock at which the segment was opened.
    opened_ms: u64,
    index: SegmentIndex,
    runs: Vec<(u32, RunInfo)>,
    /// Smallest and largest number of a finished episode, by run's index and first lane of its block; not known of what
    /// was kept before this was.
    #[serde(default)]
    ranges: Option<Vec<(u32, u32, u64, u64)>>,
}

/// Which episode is meant: run, lane and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EpisodeKey {
    /// Its run.
    pub run: u128,
    /// Its lane.
    pub lane: u32,
    /// Its number in the lane.
    pub number: u64,
}

impl EpisodeKey {
    /// That of a listed episode.
    pub fn of(info: &EpisodeInfo) -> Self {
        Self { run: info.run_id().as_u128(), lane: info.name.lane, number: info.name.number }
    }
}

/// Lanes of one run that have chunks in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRange {
    /// The run.
    pub run: RunId,
    /// Which recording of it: lanes that went on elsewhere are recorded under another placement.
    pub placement: u64,
    /// The first lane.
    pub first_lane: u32,
    /// The lane after the last.
    pub end_lane: u32,
    /// Smallest and largest number of an episode of theirs that finished in the segment, or wider; `None` if none did.
    pub numbers: Option<(u64, u64)>,
}

/// An episode that finished in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedEpisode {
    /// Its name.
    pub key: EpisodeKey,
    /// Offset of the chunk in which it ended.
    pub offset: u64,
    /// Of its start, length, return, outcome, result, score and last state: the same play gives the same digest
    /// whenever and wherever it was recorded.
    pub digest: u64,
}

/// The file of segment `number` in the folder `dir`.
pub fn segment_path(dir: &Path, number: u64) -> PathBuf {
    segments_dir(dir).join(segment_name(number))
}

/// The file of the summary of segment `number` in the folder `dir`.
pub fn summary_path(dir: &Path, number: u64) -> PathBuf {
    summaries_dir(dir).join(format!("{number:010}.sum"))
}

/// Where the summaries of a folder lie.
pub(crate) fn summaries_dir(dir: &Path) -> PathBuf {
    dir.join("summaries")
}

impl SegmentSummary {
    /// Reads a whole segment that should have the number `number`. Blocks for the disk; takes as much memory as
    /// the segment has bytes.
    ///
    /// # Errors
    /// If it cannot be read, or has more bytes than any writer makes. Damage is no error.
    pub fn read(number: u64, file: &dyn DiskFile) -> io::Result<Self> {
        Ok(Self::of(number, &read_all(file)?))
    }

    fn of(number: u64, bytes: &[u8]) -> Self {
        let scan = scan_bytes_with_rows(number, bytes);
        let opened = match Records::new(bytes, 0).next() {
            Some(Found::Record(0, header, _)) if header.kind == Kind::Segment => Some(header),
            _ => None,
        };
        let whole = scan.index.sealed
            && scan.damage.is_empty()
            && opened.is_some_and(|header| header.position == number);
        let kept = Kept {
            crc: crc32c::crc32c(bytes),
            opened_ms: opened.map_or(0, |header| header.ms),
            index: scan.index,
            runs: scan.runs.into_iter().collect(),
            ranges: Some(scan.ranges.into_iter().map(|((run, lane), (a, b))| (run, lane, a, b)).collect()),
        };
        Self { kept, whole }
    }

    /// What is kept beside segment `number` of the folder `dir`; `None` if there is nothing that fits the file.
    /// Blocks for the disk.
    pub fn load(disk: &dyn Disk, dir: &Path, number: u64) -> Option<Self> {
        let file = disk.open(&summary_path(dir, number)).ok()?;
        if file.len().ok()? > MAX_SUMMARY_BYTES {
            return None;
        }
        let bytes = read_all(&*file).ok()?;
        let (crc, list) = bytes.split_first_chunk::<4>()?;
        if crc32c::crc32c(list) != u32::from_le_bytes(*crc) {
            return None;
        }
        let kept: Kept = msgpack::decode(list, MAX_SUMMARY_BYTES as usize).ok()?;
        let len = disk.open(&segment_path(dir, number)).ok()?.len().ok()?;
        (kept.index.number == number && kept.index.bytes == len).then_some(Self { kept, whole: true })
    }

    /// Keeps it beside its segment in the folder `dir`, unless the segment is damaged. Not durable: whoever finds
    /// it torn reads the segment instead. Lets go of the rows of its episodes, which stand beside it from then on, so
    /// that it is as [`SegmentSummary::load`] gives it. Blocks for the disk.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn store(&mut self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let list = rmp_serde::to_vec(&self.kept).map_err(io::Error::other)?;
        let packed = std::mem::take(&mut self.kept.index.rows);
        if !self.whole || list.len() as u64 + 4 > MAX_SUMMARY_BYTES {
            return Ok(());
        }
        if disk.has_real_paths() {
            // Without them queries read the segment's chunks.
            let _cache = rows::store(dir, self.number(), &packed);
        }
        let path = summary_path(dir, self.number());
        let new = path.with_extension("new");
        disk.create_dir(&summaries_dir(dir))?;
        for old in [&new, &path] {
            match disk.remove(old) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let file = disk.create(&new)?;
        file.append_all(&crc32c::crc32c(&list).to_le_bytes())?;
        file.append_all(&list)?;
        disk.rename(&new, &path)
    }

    /// Whether the segment is sealed, has the number it should have, and every byte of it is intact.
    pub const fn is_whole(&self) -> bool {
        self.whole
    }

    /// The segment's number in its folder.
    pub const fn number(&self) -> u64 {
        self.kept.index.number
    }

    /// Its bytes.
    pub const fn bytes(&self) -> u64 {
        self.kept.index.bytes
    }

    /// CRC-32C over its bytes.
    pub const fn crc(&self) -> u32 {
        self.kept.crc
    }

    /// Which recorder wrote it, among those that wrote to its folder.
    pub const fn session(&self) -> u32 {
        self.kept.index.session
    }

    /// Wall clock at which it was opened, milliseconds since 1970.
    pub const fn opened_ms(&self) -> u64 {
        self.kept.opened_ms
    }

    /// Episodes that ended in it.
    pub fn episodes(&self) -> u64 {
        self.kept.index.extents.iter().map(crate::extent::Extent::episodes).sum()
    }

    /// Smallest and largest number of an episode that ended in it; `None` if none did.
    pub fn numbers(&self) -> Option<(u64, u64)> {
        let extents = self.kept.index.extents.iter().filter(|extent| extent.episodes() > 0);
        extents.map(|extent| extent.numbers).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The lanes that have chunks in it, by run, placement and block.
    pub fn blocks(&self) -> impl Iterator<Item = BlockRange> {
        let runs: BTreeMap<u32, &RunInfo> = self.kept.runs.iter().map(|(at, run)| (*at, run)).collect();
        let known = self.kept.ranges.as_ref().map(|ranges| -> BTreeMap<(u32, u32), (u64, u64)> {
            ranges.iter().map(|&(run, lane, least, most)| ((run, lane), (least, most))).collect()
        });
        let all = self.numbers();
        self.kept.index.tails.iter().filter_map(move |tail| {
            let lanes = u32::from(tail.lanes);
            let run = runs.get(&tail.run)?;
            let numbers =
                known.as_ref().map_or(all, |ranges| ranges.get(&(tail.run, tail.first_lane)).copied());
            Some(BlockRange {
                run: run.run(),
                placement: run.placement,
                first_lane: tail.first_lane,
                end_lane: tail.first_lane.saturating_add(lanes),
                numbers,
            })
        })
    }

    /// Reads the segment and gives a digest of each episode that finished in it, as [`FinishedEpisode`] has it; of one
    /// that did twice, the first. Blocks for the disk; takes as much memory as the segment has bytes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn digests(&self, file: &dyn DiskFile) -> io::Result<BTreeMap<EpisodeKey, u64>> {
        let mut digests = BTreeMap::new();
        for episode in self.finished(file)? {
            digests.entry(episode.key).or_insert(episode.digest);
        }
        Ok(digests)
    }

    /// Reads the segment and gives the episodes that finished in it, in the order in which they stand there. One that
    /// was cut from outside is none of them: it may have gone on elsewhere, and says nothing against the whole of it.
    /// Blocks for the disk; takes as much memory as the segment has bytes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn finished(&self, file: &dyn DiskFile) -> io::Result<Vec<FinishedEpisode>> {
        let bytes = read_all(file)?;
        let mut decoders: BTreeMap<u32, _> =
            self.kept.runs.iter().map(|(at, run)| (*at, (run, decoder_of(run)))).collect();
        let mut episodes = Vec::new();
        for found in Records::new(&bytes, 0) {
            let Found::Record(offset, header, payload) = found else { continue };
            let Some((run, decoder)) = decoders.get_mut(&header.run) else { continue };
            if header.kind != Kind::Chunk
                || header.tag != run.tag()
                || decoder.decode(&header, payload).is_err()
            {
                continue;
            }
            let finished = |part: &&Part| part.kept && part.end.is_some_and(is_finished);
            for part in decoder.parts.iter().filter(finished) {
                let lane = header.first_lane + part.piece.lane as u32;
                let key = EpisodeKey { run: run.run().as_u128(), lane, number: part.piece.number };
                episodes.push(FinishedEpisode { key, offset, digest: digest(run, lane, part) });
            }
        }
        Ok(episodes)
    }

    pub(crate) fn into_index(self) -> (SegmentIndex, Vec<(u32, RunInfo)>) {
        (self.kept.index, self.kept.runs)
    }
}

/// Whether the env or the time limit ended the episode.
fn is_finished(end: EndEvent) -> bool {
    Outcome::from_code(end.code & 15).is_some_and(Outcome::is_finished)
}

fn digest(run: &RunInfo, lane: u32, part: &Part) -> u64 {
    let start = start_of(run, lane, part.piece.number, part.piece.start);
    let (reward, end) = part
        .end
        .map_or((0, 0), |end| (end.total_reward.to_bits(), u64::from(end.hash) << 8 | u64::from(end.code)));
    let half = start.half.map_or(0, |half| 1 << 32 | u64::from(half));
    let words = [start.seed, start.words, half, part.piece.age, reward, end];
    let score = part.score.map_or([0, 0], |score| [1, score.to_bits()]);
    words.into_iter().chain(score).fold(run.spec.dynamics_hash, |sum, word| split_mix64(sum ^ word))
}

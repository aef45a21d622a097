//! Summaries of sealed segments: each is an entry of the catalogue, in a small file beside the segment.
//!
//! A process that seals, receives or scans a segment writes an entry, and with it the rows of its episodes
//! ([`rows`](crate::stored::rows)), so that readers need not read segments to know what is in them. Like all of the catalogue,
//! entries are a cache: one that is missing or does not fit its segment costs a scan.
//!
//! ```text
//! file: CRC-32C u32 of the rest, bytes of the list u32, msgpack list, then for each run of it: bytes u32, its header
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::{EpisodeName, msgpack};
use rollhouse_core::{Outcome, RunId, split_mix64};
use serde::{Deserialize, Serialize};

use crate::code::chunk::{Decoder, Part};
use crate::code::codec::Cursor;
use crate::code::episode::{EpisodeInfo, start_of};
use crate::code::events::EndEvent;
use crate::code::record::{Header, Kind};
use crate::code::run_record::{KnownRuns, RunInfo};
use crate::disk::{Disk, DiskFile, read_all};
use crate::limits::MAX_SUMMARY_BYTES;
use crate::stored::index::SegmentIndex;
use crate::stored::names::{segment_name, segments_dir};
use crate::stored::rows;
use crate::stored::scan::{Found, Records, scan_bytes_with_rows};

/// A summary of the contents of one segment.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentSummary {
    entry: Entry,
    received: Received,
    runs: Vec<(u32, Arc<RunInfo>)>,
    /// Whether the segment is sealed and every byte of it is intact.
    whole: bool,
}

/// The msgpack list in an entry's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) index: SegmentIndex,
    /// Facts that a store knows beside the index; `None` for a segment that was recorded here.
    received: Option<Received>,
}

/// The facts that a store knows about a segment beside its index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Received {
    /// CRC-32C over the segment's bytes.
    crc: u32,
    /// Wall clock at which the segment was opened.
    opened_ms: u64,
    /// Smallest and largest number of a finished episode, by run's index and first lane of its block.
    ranges: Vec<(u32, u32, u64, u64)>,
}

impl Entry {
    /// Makes the entry of a segment that was recorded here.
    pub(crate) const fn new(index: SegmentIndex) -> Self {
        Self { index, received: None }
    }

    /// Encodes the list, after its length.
    pub(crate) fn encode_list(&self) -> io::Result<Vec<u8>> {
        let list = rmp_serde::to_vec(self).map_err(io::Error::other)?;
        Ok([&(list.len() as u32).to_le_bytes(), &list[..]].concat())
    }

    /// Decodes the list, without the runs' headers.
    pub(crate) fn decode_list(cursor: &mut Cursor<'_>) -> Option<Self> {
        let bytes = cursor.u32("list").ok()?;
        msgpack::decode(cursor.take(bytes as usize, "list").ok()?, MAX_SUMMARY_BYTES as usize).ok()
    }

    /// Encodes the contents of the entry's file, without the checksum.
    fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = self.encode_list()?;
        for header in &self.index.headers {
            bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
            bytes.extend_from_slice(header);
        }
        Ok(bytes)
    }

    /// Decodes the contents of an entry's file; `None` if they are no entry.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let mut entry = Self::decode_list(&mut cursor)?;
        for _ in 0..entry.index.runs.len() {
            let bytes = cursor.u32("run").ok()?;
            entry.index.headers.push(cursor.take(bytes as usize, "run").ok()?.into());
        }
        (cursor.left() == 0).then_some(entry)
    }

    /// Writes the entry and its rows beside their segment in the folder `dir`, and drops the rows. Not durable: a
    /// reader that finds a torn entry reads the segment instead.
    ///
    /// # Errors
    /// If a file operation fails.
    pub(crate) fn store(&mut self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let number = self.index.number;
        if let Some(modified_ns) = disk.modified_ns(&segment_path(dir, number)) {
            self.index.modified_ns = modified_ns;
            if modified_ns == 0 {
                // The segment was removed, maybe with its folder, which is not to come back.
                return Ok(());
            }
        }
        let packed = std::mem::take(&mut self.index.rows);
        let bytes = self.encode()?;
        if bytes.len() as u64 + 4 > MAX_SUMMARY_BYTES {
            return Ok(());
        }
        // Without them queries read the segment's chunks.
        let _cache = put_file(disk, &rows::rows_path(dir, number), &[&packed]);
        put_file(disk, &summary_path(dir, number), &[&crc32c::crc32c(&bytes).to_le_bytes(), &bytes])
    }

    /// Reads the entry beside segment `number` of the folder `dir`; `None` if there is no entry that fits the segment's
    /// file.
    pub(crate) fn load(disk: &dyn Disk, dir: &Path, number: u64) -> Option<Self> {
        let file = disk.open(&summary_path(dir, number)).ok()?;
        if file.len().ok()? > MAX_SUMMARY_BYTES {
            return None;
        }
        let bytes = read_all(&*file).ok()?;
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        if crc32c::crc32c(rest) != u32::from_le_bytes(*crc) {
            return None;
        }
        Self::decode(rest).filter(|entry| entry.fits(disk, dir, number))
    }

    /// Returns whether the entry belongs to segment `number` of the folder `dir` as it is now. A sealed segment that
    /// was changed since is damaged: a scan says where.
    pub(crate) fn fits(&self, disk: &dyn Disk, dir: &Path, number: u64) -> bool {
        let SegmentIndex { number: of, bytes, modified_ns: at, .. } = self.index;
        let path = segment_path(dir, number);
        let unchanged = || disk.modified_ns(&path).is_none_or(|changed| changed == at);
        let len = || disk.open(&path).and_then(|file| file.len());
        of == number && unchanged() && len().is_ok_and(|len| len == bytes)
    }
}

/// Writes the file of a cache, and replaces one that may be there. Not durable.
fn put_file(disk: &dyn Disk, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let new = path.with_extension("new");
    disk.create_dir(path.parent().unwrap_or(path))?;
    match disk.remove(&new) {
        // Left by an attempt that was cut short.
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(&new)?;
    for part in parts {
        file.append_all(part)?;
    }
    disk.rename(&new, path)
}

/// The key of an episode, which names it exactly: run, lane and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EpisodeKey {
    /// Id of the run.
    pub run: u128,
    /// Lane of the episode in the run.
    pub lane: u32,
    /// Number of the episode in the lane.
    pub number: u64,
}

impl EpisodeKey {
    /// Returns the key of a listed episode.
    pub fn of(info: &EpisodeInfo) -> Self {
        Self { run: info.run_id().as_u128(), lane: info.name.lane, number: info.name.number }
    }

    /// Returns the episode's name, which episodes of other runs may have too.
    pub const fn name(&self) -> EpisodeName {
        EpisodeName { run: RunId::from_u128(self.run).short(), lane: self.lane, number: self.number }
    }
}

/// Lanes of one run that have chunks in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRange {
    /// Id of the run.
    pub run: RunId,
    /// Number of the recording of these lanes: lanes that went on elsewhere are recorded under another placement.
    pub placement: u64,
    /// The first lane.
    pub first_lane: u32,
    /// The lane after the last.
    pub end_lane: u32,
    /// Smallest and largest number of the lanes' episodes that finished in the segment, or a wider range; `None` if
    /// none did.
    pub numbers: Option<(u64, u64)>,
}

/// An episode that finished in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedEpisode {
    /// Key of the episode.
    pub key: EpisodeKey,
    /// Offset of the chunk in which it ended.
    pub offset: u64,
    /// Digest of start, length, return, outcome, result, score and last state: the same play gives the same digest
    /// whenever and wherever it was recorded.
    pub digest: u64,
}

/// Returns the path of segment `number` in the folder `dir`.
pub fn segment_path(dir: &Path, number: u64) -> PathBuf {
    segments_dir(dir).join(segment_name(number))
}

/// Returns the path of the summary of segment `number` in the folder `dir`.
pub fn summary_path(dir: &Path, number: u64) -> PathBuf {
    summaries_dir(dir).join(format!("{number:010}.sum"))
}

/// Returns the folder with the summaries of the folder `dir`.
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

    /// Reads the bytes of a segment that should have the number `number`.
    pub fn of(number: u64, bytes: &[u8]) -> Self {
        let scan = scan_bytes_with_rows(number, bytes);
        let opened = match Records::new(bytes, 0).next() {
            Some(Found::Record(0, header, _)) if header.kind == Kind::Segment => Some(header),
            _ => None,
        };
        let whole = scan.index.sealed
            && scan.damage.is_empty()
            && opened.is_some_and(|header| header.position == number);
        let received = Received {
            crc: crc32c::crc32c(bytes),
            opened_ms: opened.map_or(0, |header| header.ms),
            ranges: scan.ranges.into_iter().map(|((run, lane), (a, b))| (run, lane, a, b)).collect(),
        };
        let runs = scan.runs.into_iter().map(|(at, run)| (at, Arc::new(run))).collect();
        let entry = Entry { index: scan.index, received: Some(received.clone()) };
        Self { entry, received, runs, whole }
    }

    /// Reads the summary beside segment `number` of the folder `dir`; `None` if there is no summary that fits the
    /// segment's file, or no store has put it there. Blocks for the disk.
    pub fn load(disk: &dyn Disk, dir: &Path, number: u64) -> Option<Self> {
        Self::of_entry(Entry::load(disk, dir, number)?, &KnownRuns::default())
    }

    pub(crate) fn of_entry(entry: Entry, known: &KnownRuns) -> Option<Self> {
        let received = entry.received.clone()?;
        let runs = entry.index.runs.iter().zip(&entry.index.headers);
        let runs = runs.map(|(run, header)| Some((run.index, known.info(header)?)));
        Some(Self { runs: runs.collect::<Option<_>>()?, entry, received, whole: true })
    }

    /// Writes the summary beside its segment in the folder `dir`, unless the segment is damaged, and with it the rows
    /// of its episodes, which it drops. Not durable: a reader that finds it torn reads the segment instead. Blocks for
    /// the disk.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn store(&mut self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        if self.whole { self.entry.store(disk, dir) } else { Ok(()) }
    }

    /// Returns whether the segment is sealed, has the number it should have, and every byte of it is intact.
    pub const fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns the segment's number in its folder.
    pub const fn number(&self) -> u64 {
        self.entry.index.number
    }

    /// Returns the length of the segment in bytes.
    pub const fn bytes(&self) -> u64 {
        self.entry.index.bytes
    }

    /// Returns the CRC-32C over the segment's bytes.
    pub const fn crc(&self) -> u32 {
        self.received.crc
    }

    /// Returns the number of the recorder that wrote it, among those that wrote to its folder.
    pub const fn session(&self) -> u32 {
        self.entry.index.session
    }

    /// Returns the wall clock at which it was opened, in milliseconds since 1970.
    pub const fn opened_ms(&self) -> u64 {
        self.received.opened_ms
    }

    /// Returns the number of episodes that ended in it.
    pub fn episodes(&self) -> u64 {
        self.entry.index.extents.iter().map(crate::code::extent::Extent::episodes).sum()
    }

    /// Returns the smallest and the largest number of an episode that ended in it; `None` if none did.
    pub fn numbers(&self) -> Option<(u64, u64)> {
        let extents = self.entry.index.extents.iter().filter(|extent| extent.episodes() > 0);
        extents.map(|extent| extent.numbers).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Returns the runs that have records in it, each once, in the order of their ids.
    pub fn runs(&self) -> BTreeSet<RunId> {
        self.runs.iter().map(|(_, run)| run.run()).collect()
    }

    /// Returns the lanes that have chunks in it, by run, placement and block.
    pub fn blocks(&self) -> impl Iterator<Item = BlockRange> {
        let runs: BTreeMap<u32, &RunInfo> = self.runs.iter().map(|(at, run)| (*at, &**run)).collect();
        let ranges = self.received.ranges.iter();
        let ranges: BTreeMap<_, _> = ranges.map(|&(run, lane, a, b)| ((run, lane), (a, b))).collect();
        self.entry.index.tails.iter().filter_map(move |tail| {
            let lanes = u32::from(tail.lanes);
            let run = runs.get(&tail.run)?;
            let numbers = ranges.get(&(tail.run, tail.first_lane)).copied();
            Some(BlockRange {
                run: run.run(),
                placement: run.placement,
                first_lane: tail.first_lane,
                end_lane: tail.first_lane.saturating_add(lanes),
                numbers,
            })
        })
    }

    /// Reads the segment and returns the digest of each episode that finished in it, as [`FinishedEpisode`] has it; for
    /// one that finished twice, the first. Blocks for the disk; takes as much memory as the segment has bytes.
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

    /// Reads the segment and returns the episodes that finished in it, in the order of their places. An episode that
    /// was cut from outside is not one of them: it may have gone on elsewhere, and does not contradict the whole
    /// episode. Blocks for the disk; takes as much memory as the segment has bytes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn finished(&self, file: &dyn DiskFile) -> io::Result<Vec<FinishedEpisode>> {
        let bytes = read_all(file)?;
        let mut decoders: BTreeMap<u32, _> =
            self.runs.iter().map(|(at, run)| (*at, (run, Decoder::of_run(run)))).collect();
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

    /// Returns the runs that have records in the segment, by the low 32 bits of their ids, also where payloads cannot
    /// be read: a header has a checksum of its own. Blocks for the disk; takes as much memory as the segment has bytes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn run_tags(&self, file: &dyn DiskFile) -> io::Result<BTreeSet<u32>> {
        let bytes = read_all(file)?;
        let header = |found| match found {
            Found::Record(_, header, _) => Some(header),
            Found::Bad { from, .. } => Header::decode(bytes[from as usize..].first_chunk()?),
        };
        let of_runs =
            |header: &Header| matches!(header.kind, Kind::Run | Kind::Chunk | Kind::RunEnd | Kind::Frames);
        Ok(Records::new(&bytes, 0).filter_map(header).filter(of_runs).map(|header| header.tag).collect())
    }
}

/// Returns whether the env or the time limit ended the episode.
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

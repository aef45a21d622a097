//! Summaries of sealed segments: each is an entry of the catalogue, in a small file beside the segment.
//!
//! A process that seals, receives or scans a segment writes an entry, and with it the rows of its episodes
//! ([`rows`](crate::stored::rows)), so that readers need not read segments to know what is in them. Like all of the catalogue,
//! entries are a cache: one that is missing or does not fit its segment costs a scan.
//!
//! ```text
//! file: CRC-32C u32 of what follows up to the end of the list, bytes of the list u32, msgpack list,
//!       then for each run of it: bytes u32, CRC-32C u32, its header
//! ```
//!
//! Where bit 31 of the bytes is set, the place u32 among these headers of a whole one comes first, and the header is coded
//! against that.
//!
//! The list has what tells runs apart ([`run_table`](crate::stored::run_table)), so that most readers pass the headers over. The
//! first checksum of earlier versions covers the whole file, whose headers have none of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use rollhouse_core::{EpisodeName, msgpack};
use rollhouse_core::{Outcome, RunId, split_mix64};
use serde::{Deserialize, Serialize};

use crate::code::chunk::{Decoder, Part};
use crate::code::codec::Cursor;
use crate::code::coded_run::{self, Bases};
use crate::code::episode::{EpisodeInfo, start_of};
use crate::code::events::EndEvent;
use crate::code::record::{Header, Kind};
use crate::code::run_record::RunInfo;
use crate::disk::{Disk, DiskFile, read_all, read_range};
use crate::limits::MAX_SUMMARY_BYTES;
use crate::stored::index::{RunEntry, SegmentIndex};
use crate::stored::names::{segment_name, segments_dir};
use crate::stored::rows;
use crate::stored::run_headers::read_header;
use crate::stored::run_table::{RunKey, RunTable, StoredKey, StoredRuns};
use crate::stored::scan::{Found, Records, scan_bytes_with_rows};

/// A summary of the contents of one segment.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentSummary {
    entry: Entry,
    received: Received,
    /// Whether the segment is sealed and every byte of it is intact.
    whole: bool,
}

/// What is known of a segment without its runs' headers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) index: SegmentIndex,
    /// The runs of the index.
    pub(crate) runs: RunTable,
    /// Facts that a store knows beside the index; `None` for a segment that was recorded here.
    received: Option<Received>,
}

/// The msgpack list in an entry's file, to be read.
#[derive(Debug, Deserialize)]
struct List {
    index: SegmentIndex,
    received: Option<Received>,
    /// The runs of the index, in its order; none in entries of earlier versions.
    #[serde(default)]
    keys: Vec<StoredKey>,
    /// Ids of their envs.
    #[serde(default)]
    envs: Vec<String>,
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
    /// Makes the entry of a segment that was recorded here, or scanned, from an index that has its headers.
    pub(crate) fn new(index: SegmentIndex) -> Self {
        let runs = StoredRuns::of(&index.headers).and_then(|runs| runs.table(&index.runs));
        Self { index, runs: runs.unwrap_or_default(), received: None }
    }

    /// Encodes the list.
    ///
    /// # Errors
    /// If it cannot be encoded: the index has no headers, or is no index.
    fn encode_list(&self, stored: &StoredRuns) -> io::Result<Vec<u8>> {
        let envs: Vec<&str> = stored.envs.iter().map(|env| &**env).collect();
        rmp_serde::to_vec(&(&self.index, &self.received, &stored.keys, envs)).map_err(io::Error::other)
    }

    /// Decodes a list that has the keys of its runs.
    pub(crate) fn decode_list(bytes: &[u8]) -> Option<Self> {
        Self::of_list(msgpack::decode(bytes, MAX_SUMMARY_BYTES as usize).ok()?)
    }

    fn of_list(List { index, received, keys, envs }: List) -> Option<Self> {
        let stored = StoredRuns { keys, envs: envs.into_iter().map(Into::into).collect() };
        let runs = stored.table(&index.runs)?;
        Some(Self { index, runs, received })
    }

    /// Decodes the contents of an entry's file of an earlier version, whose list has no keys.
    fn decode_earlier(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let length = cursor.u32("list").ok()?;
        let list = cursor.take(length as usize, "list").ok()?;
        let mut list: List = msgpack::decode(list, MAX_SUMMARY_BYTES as usize).ok()?;
        let mut headers = Vec::new();
        for _ in 0..list.index.runs.len() {
            let bytes = cursor.u32("run").ok()?;
            headers.push(cursor.take(bytes as usize, "run").ok()?.into());
        }
        let StoredRuns { keys, envs } = StoredRuns::of(&headers).filter(|_| cursor.left() == 0)?;
        (list.keys, list.envs) = (keys, envs.iter().map(|env| env.to_string()).collect());
        Self::of_list(list)
    }

    /// Writes the entry and its rows beside their segment in the folder `dir`, and drops rows and headers. Not durable: a
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
        let headers = std::mem::take(&mut self.index.headers);
        let stored = StoredRuns::from(&self.runs);
        if stored.keys.len() != headers.len() {
            return Ok(());
        }
        let list = self.encode_list(&stored)?;
        let length = (list.len() as u32).to_le_bytes();
        let mut rest = Vec::new();
        let mut bases = Bases::default();
        for (at, (header, key)) in (0..).zip(headers.iter().zip(&stored.keys)) {
            let coded = stored.envs.get(key.3 as usize).and_then(|env| bases.code(at, env, header));
            let (mark, base) =
                coded.as_ref().map_or((0, None), |coded| (CODED, Some(coded.base.to_le_bytes())));
            let (base, header) =
                (base.as_slice().as_flattened(), coded.as_ref().map_or(header, |coded| &coded.bytes));
            rest.extend_from_slice(&((base.len() + header.len()) as u32 | mark).to_le_bytes());
            rest.extend_from_slice(&crc32c::crc32c_append(crc32c::crc32c(base), header).to_le_bytes());
            rest.extend_from_slice(base);
            rest.extend_from_slice(header);
        }
        if (list.len() + rest.len() + HEAD_BYTES) as u64 > MAX_SUMMARY_BYTES {
            return Ok(());
        }
        // Without them queries read the segment's chunks.
        let _cache = put_file(disk, &rows::rows_path(dir, number), &[&packed]);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&length), &list);
        put_file(disk, &summary_path(dir, number), &[&crc.to_le_bytes(), &length, &list, &rest])
    }

    /// Reads the entry beside segment `number` of the folder `dir`; `None` if there is no entry that fits the segment's
    /// file. The headers are not read.
    pub(crate) fn load(disk: &dyn Disk, dir: &Path, number: u64) -> Option<Self> {
        let list = Self::load_list(disk, dir, number);
        let entry = match list {
            Some(list) => Self::decode_list(&list),
            None => Self::load_earlier(disk, dir, number),
        };
        entry.filter(|entry| entry.fits(disk, dir, number))
    }

    /// Reads the list of the entry beside a segment; `None` if there is none, or it is of an earlier version.
    pub(crate) fn load_list(disk: &dyn Disk, dir: &Path, number: u64) -> Option<Vec<u8>> {
        let file = disk.open(&summary_path(dir, number)).ok()?;
        let (crc, list) = read_list(&*file, file.len().ok()?)?;
        let length = (list.len() as u32).to_le_bytes();
        (crc32c::crc32c_append(crc32c::crc32c(&length), &list) == crc).then_some(list)
    }

    fn load_earlier(disk: &dyn Disk, dir: &Path, number: u64) -> Option<Self> {
        let file = disk.open(&summary_path(dir, number)).ok()?;
        if file.len().ok()? > MAX_SUMMARY_BYTES {
            return None;
        }
        let bytes = read_all(&*file).ok()?;
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        if crc32c::crc32c(rest) != u32::from_le_bytes(*crc) {
            return None;
        }
        Self::decode_earlier(rest)
    }

    /// Reads the header of a run from the entry beside segment `number`; `None` if it is not there as the key says.
    pub(crate) fn header(disk: &dyn Disk, dir: &Path, number: u64, key: &RunKey) -> Option<Vec<u8>> {
        let file = disk.open(&summary_path(dir, number)).ok()?;
        let length = file.len().ok()?;
        let list = u64::from(word_at(&*file, 4, length)?);
        let item = |place: u32| {
            let mut at = HEAD_BYTES as u64 + list;
            for _ in 0..place {
                at += 8 + u64::from(word_at(&*file, at, length)? & !CODED);
            }
            let word = word_at(&*file, at, length)?;
            let end = at.checked_add(8 + u64::from(word & !CODED)).filter(|end| *end <= length)?;
            Some((word & CODED != 0, read_range(&*file, at + 8, end).ok()?))
        };
        let (coded, bytes) = item(key.at)?;
        let header = if coded {
            let (base, coded) = bytes.split_first_chunk()?;
            let (_, base) = item(u32::from_le_bytes(*base)).filter(|(coded, _)| !coded)?;
            coded_run::whole(&base, coded).ok()?
        } else {
            bytes
        };
        (crc32c::crc32c(&header) == key.crc).then_some(header)
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

/// Reads the list of an entry's file, with the checksum before it; `None` if the file is too short for what it says.
fn read_list(file: &dyn DiskFile, length: u64) -> Option<(u32, Vec<u8>)> {
    let (crc, bytes) = (word_at(file, 0, length)?, u64::from(word_at(file, 4, length)?));
    let end = (HEAD_BYTES as u64).checked_add(bytes).filter(|end| *end <= length.min(MAX_SUMMARY_BYTES))?;
    Some((crc, read_range(file, HEAD_BYTES as u64, end).ok()?))
}

/// Reads a little-endian number of 32 bits; `None` beyond the end.
fn word_at(file: &dyn DiskFile, at: u64, length: u64) -> Option<u32> {
    let end = at.checked_add(4).filter(|end| *end <= length)?;
    let bytes = read_range(file, at, end).ok()?;
    Some(u32::from_le_bytes(*bytes.first_chunk()?))
}

/// The bit, in the bytes of a header in an entry's file, that says that the header is coded.
const CODED: u32 = 1 << 31;
/// Bytes of an entry's file before its list.
const HEAD_BYTES: usize = 8;

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
        let entry = Entry { received: Some(received.clone()), ..Entry::new(scan.index) };
        Self { entry, received, whole }
    }

    /// Reads the summary beside segment `number` of the folder `dir`; `None` if there is no summary that fits the
    /// segment's file, or no store has put it there. Blocks for the disk.
    pub fn load(disk: &dyn Disk, dir: &Path, number: u64) -> Option<Self> {
        let entry = Entry::load(disk, dir, number)?;
        Some(Self { received: entry.received.clone()?, entry, whole: true })
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
        self.entry.runs.iter().map(RunKey::run).collect()
    }

    /// Returns the lanes that have chunks in it, by run, placement and block.
    pub fn blocks(&self) -> impl Iterator<Item = BlockRange> {
        let ranges = self.received.ranges.iter();
        let ranges: BTreeMap<_, _> = ranges.map(|&(run, lane, a, b)| ((run, lane), (a, b))).collect();
        self.entry.index.tails.iter().filter_map(move |tail| {
            let lanes = u32::from(tail.lanes);
            let run = self.entry.runs.get(tail.run)?;
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
        let runs = &self.entry.index.runs;
        let decoder = |entry: &RunEntry| {
            let run = RunInfo::decode(&read_header(file, runs, entry)?).ok()?;
            Some((entry.index, (Decoder::of_run(&run), run)))
        };
        let mut decoders: BTreeMap<u32, (Decoder, RunInfo)> = runs.iter().filter_map(decoder).collect();
        let mut episodes = Vec::new();
        for found in Records::new(&bytes, 0) {
            let Found::Record(offset, header, payload) = found else { continue };
            let Some((decoder, run)) = decoders.get_mut(&header.run) else { continue };
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

//! The catalogue of recordings: what is known of sealed segments without reading them.
//!
//! Each segment has an *entry* ([`summary`](crate::stored::summary)) and the *rows* of its episodes ([`rows`](crate::stored::rows)),
//! each in a small file beside it. Where there are many, the entries of a folder, or of all folders of a store, are
//! gathered in sled, so that a reader of thousands of segments opens one file and not as many. Rows stay in their
//! files: sled takes 2 to 2.5 times their bytes, and reads its own log when it is opened.
//!
//! All of it may be missing, stale, scrambled or in use at any time. What sled does not have is looked for beside the
//! segment, and a segment without an entry is scanned. sled locks its files, writes to them when they are read, and may
//! panic on files that something else changed; so it is opened only if a checksum of its files, kept beside it, fits,
//! and a process that comes second, or may only read, uses the entries beside the segments. It is a cache: none of
//! sled's operations goes through [`Disk`], and none of its errors is passed on.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::split_mix64;

use crate::code::codec::Cursor;
use crate::code::run_record::KnownRuns;
use crate::disk::Disk;
use crate::limits::{GATHERED_FROM, MAX_CATALOGUE_BYTES};
use crate::stored::index::SegmentIndex;
use crate::stored::rows::rows_path;
use crate::stored::summary::{Entry, SegmentSummary, summary_path};

/// A segment in a folder of recordings or of a store: the folder's name there, empty for the folder itself, and its
/// number.
pub type SegmentPlace = (String, u64);

/// The gathered entries of a folder, or of the folders of a store, and the runs that were met in them.
#[derive(Debug, Default)]
pub struct Catalogue {
    root: PathBuf,
    /// Entries in the form that sled has: the entry's list, then 8 bytes for each of its runs.
    entries: BTreeMap<SegmentPlace, Vec<u8>>,
    headers: BTreeMap<u64, Arc<[u8]>>,
    runs: Arc<KnownRuns>,
}

impl Catalogue {
    /// Reads what is gathered in the folder `root`; the catalogue is empty if that cannot be read. Blocks for the disk.
    pub fn open(disk: &dyn Disk, root: &Path) -> Self {
        Self::open_with(disk, root, Arc::default())
    }

    /// Makes the catalogue of the folder `root`, with nothing gathered.
    pub(crate) fn new(root: &Path, runs: Arc<KnownRuns>) -> Self {
        Self { root: root.to_owned(), runs, ..Self::default() }
    }

    pub(crate) fn open_with(disk: &dyn Disk, root: &Path, runs: Arc<KnownRuns>) -> Self {
        let mut catalogue = Self::new(root, runs);
        if disk.has_real_paths() && is_intact(root) {
            let read = with_sled(root, |db| catalogue.read(db));
            if !matches!(read, Some(Ok(()))) {
                (catalogue.entries, catalogue.headers) = (BTreeMap::new(), BTreeMap::new());
            }
        }
        catalogue
    }

    fn read(&mut self, db: &sled::Db) -> sled::Result<()> {
        for entry in db.iter() {
            let (key, value) = entry?;
            match Key::decode(&key) {
                Some(Key::Entry(place)) => drop(self.entries.insert(place, value.to_vec())),
                Some(Key::Header(hash)) => drop(self.headers.insert(hash, Arc::from(&*value))),
                None => {}
            }
        }
        Ok(())
    }

    /// Returns the entry of segment `number` of the folder at `dir`, which is one of the catalogue's: the gathered one,
    /// or the one beside the segment. `None` if there is no entry that fits the segment.
    pub(crate) fn entry(&self, disk: &dyn Disk, dir: &Path, number: u64) -> Option<Entry> {
        let gathered = self.entries.get(&(self.name_of(dir)?, number));
        let gathered = gathered.and_then(|value| decode(value, |hash| self.headers.get(&hash).cloned()));
        let fitting = gathered.filter(|entry| entry.fits(disk, dir, number));
        fitting.or_else(|| Entry::load(disk, dir, number))
    }

    /// Returns the summary of segment `number` of a store's folder at `dir`. `None` if there is no entry that fits the
    /// segment, or no store has put it there.
    pub fn summary(&self, disk: &dyn Disk, dir: &Path, number: u64) -> Option<SegmentSummary> {
        SegmentSummary::of_entry(self.entry(disk, dir, number)?, &self.runs)
    }

    /// Returns whether the entry of a segment of the folder itself is gathered.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.entries.contains_key(&(String::new(), number))
    }

    /// Returns whether nothing is gathered.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) const fn runs(&self) -> &Arc<KnownRuns> {
        &self.runs
    }

    /// Returns the name of the folder at `dir` in the catalogue.
    fn name_of(&self, dir: &Path) -> Option<String> {
        dir.strip_prefix(&self.root).ok()?.to_str().map(str::to_owned)
    }
}

/// Gathers the entries of the segments in `present`, and no others, in sled in the folder `root`, once there are many
/// of them. Entries are read beside the segments; a segment without one is not gathered. Blocks for the disk, a second
/// or so for thousands.
pub fn gather(disk: &dyn Disk, root: &Path, present: &[SegmentPlace]) {
    if !disk.has_real_paths() || (present.len() < GATHERED_FROM && !sum_path(root).exists()) {
        return;
    }
    if !is_intact(root) {
        forget_gathered(disk, root);
    }
    let _unwritten = with_sled(root, |db| {
        let mut batch = sled::Batch::default();
        let mut missing: BTreeMap<&SegmentPlace, ()> = present.iter().map(|place| (place, ())).collect();
        for key in db.iter().keys() {
            let key = key?;
            match Key::decode(&key) {
                Some(Key::Entry(place)) if missing.remove(&place).is_some() => {}
                // Headers are few and small; those of runs that are gone go when all is gathered anew.
                Some(Key::Header(_)) => {}
                _ => batch.remove(key),
            }
        }
        let mut headers = BTreeMap::new();
        for (folder, number) in missing.keys() {
            let dir = if folder.is_empty() { root.to_owned() } else { root.join(folder) };
            let Some(entry) = Entry::load(disk, &dir, *number) else { continue };
            if let Some(value) = encode(&entry, &mut headers) {
                batch.insert(Key::Entry((folder.clone(), *number)).encode(), value);
            }
        }
        for (hash, header) in &headers {
            let key = Key::Header(*hash).encode();
            match db.get(&key)? {
                // Another header of that hash: nothing is gathered this time.
                Some(known) if *known != **header => return Ok(()),
                Some(_) => {}
                None => batch.insert(key, &**header),
            }
        }
        db.apply_batch(batch)?;
        db.flush().map(drop)
    });
}

/// Writes entries and rows of segments of the folder `dir` beside the segments, and forgets those of segments that are
/// not in `present`, which is ascending.
pub(crate) fn add(disk: &dyn Disk, dir: &Path, add: Vec<SegmentIndex>, present: &[u64]) {
    for index in add {
        let _unwritten = Entry::new(index).store(disk, dir);
    }
    retain(disk, dir, |number| present.binary_search(&number).is_ok());
    if present.len().is_multiple_of(GATHERED_FROM) {
        gather_of(disk, dir, present);
    }
}

/// Gathers the entries of the folder `dir` alone, without other folders of its store.
pub(crate) fn gather_of(disk: &dyn Disk, dir: &Path, present: &[u64]) {
    let places: Vec<SegmentPlace> = present.iter().map(|number| (String::new(), *number)).collect();
    gather(disk, dir, &places);
}

/// Removes the catalogue of the folder `dir`.
pub(crate) fn remove(disk: &dyn Disk, dir: &Path) {
    forget_gathered(disk, dir);
    retain(disk, dir, |_| false);
}

/// Removes what is gathered in the folder `root`. Call this when a segment is found to be not what it was. The files
/// beside the segments stay.
pub fn forget_gathered(disk: &dyn Disk, root: &Path) {
    if !disk.has_real_paths() {
        return;
    }
    // Without its checksum nobody opens it, whatever of it stays.
    let _gone = fs::remove_file(sum_path(root));
    let path = sled_path(root);
    let _gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
}

/// Removes the files beside the segments whose number `keeps` refuses.
fn retain(disk: &dyn Disk, dir: &Path, keeps: impl Fn(u64) -> bool) {
    for inside in [summary_path(dir, 0), rows_path(dir, 0)].iter().filter_map(|path| path.parent()) {
        for name in disk.list(inside).unwrap_or_default() {
            let number = name.split_once('.').and_then(|(number, _)| number.parse().ok());
            if !number.is_some_and(&keeps) {
                // A file more costs its bytes and nothing else.
                let _gone = disk.remove(&inside.join(name));
            }
        }
    }
}

/// A key in sled.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Entry(SegmentPlace),
    /// The header of a run, by its hash: it is the same in each segment of the run.
    Header(u64),
}

impl Key {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Entry((folder, number)) => [b"e", folder.as_bytes(), b"/", &number.to_be_bytes()].concat(),
            Self::Header(hash) => [&b"h"[..], &hash.to_be_bytes()].concat(),
        }
    }

    fn decode(key: &[u8]) -> Option<Self> {
        let (rest, number) = key.split_last_chunk::<8>()?;
        let number = u64::from_be_bytes(*number);
        match rest {
            b"h" => Some(Self::Header(number)),
            [b'e', folder @ .., b'/'] => {
                Some(Self::Entry((std::str::from_utf8(folder).ok()?.to_owned(), number)))
            }
            _ => None,
        }
    }
}

/// Encodes an entry in the form that sled has, and adds its run headers to `headers`. `None` if that has another header
/// with the same hash.
fn encode(entry: &Entry, headers: &mut BTreeMap<u64, Arc<[u8]>>) -> Option<Vec<u8>> {
    let mut value = entry.encode_list().ok()?;
    for header in &entry.index.headers {
        let hash = hash_of(header);
        let known = headers.entry(hash).or_insert_with(|| header.clone());
        if known != header {
            return None;
        }
        value.extend_from_slice(&hash.to_le_bytes());
    }
    Some(value)
}

fn decode(value: &[u8], header: impl Fn(u64) -> Option<Arc<[u8]>>) -> Option<Entry> {
    let mut cursor = Cursor::new(value);
    let mut entry = Entry::decode_list(&mut cursor)?;
    for _ in 0..entry.index.runs.len() {
        entry.index.headers.push(header(cursor.u64("run").ok()?)?);
    }
    (cursor.left() == 0).then_some(entry)
}

fn hash_of(header: &[u8]) -> u64 {
    let words = header.chunks(8).map(|word| word.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)));
    words.fold(header.len() as u64, |sum, word| split_mix64(sum ^ word))
}

/// Opens sled, calls `work` with it, closes it and renews the checksum of its files. `None` if it could not be opened:
/// it is in use, or cannot be made here.
fn with_sled<T>(root: &Path, work: impl FnOnce(&sled::Db) -> T) -> Option<T> {
    let path = sled_path(root);
    let worked = catch_unwind(AssertUnwindSafe(|| {
        let config = sled::Config::new().path(&path).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        let db = config.open().ok()?;
        Some(work(&db))
    }));
    let done = worked.ok().flatten()?;
    if let Ok(sum) = checksum(root) {
        let (new, known) = (sum_path(root).with_extension("new"), sum_path(root));
        let _unwritten = fs::write(&new, sum).and_then(|()| fs::rename(&new, &known));
    }
    Some(done)
}

/// Returns whether sled's files are as they were when sled was last closed in order.
fn is_intact(root: &Path) -> bool {
    fs::read_to_string(sum_path(root)).is_ok_and(|known| checksum(root).is_ok_and(|sum| sum == known))
}

/// Computes the CRC-32C over names, lengths and contents of sled's files.
fn checksum(root: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    collect(&sled_path(root), 0, &mut files)?;
    files.sort();
    let mut crc = 0;
    let mut left = MAX_CATALOGUE_BYTES;
    let mut buffer = vec![0; 1 << 16];
    for path in &files {
        crc = crc32c::crc32c_append(crc, path.as_os_str().as_encoded_bytes());
        let mut file = fs::File::open(path)?;
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            left = left.checked_sub(read as u64).ok_or(io::ErrorKind::FileTooLarge)?;
            crc = crc32c::crc32c_append(crc, &buffer[..read]);
        }
        crc = crc32c::crc32c_append(crc, &[0]);
    }
    Ok(format!("crc32c {crc:08x} of {} files\n", files.len()))
}

fn collect(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && depth < MAX_DEPTH {
            collect(&entry.path(), depth + 1, files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        } else {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(())
}

fn sled_path(root: &Path) -> PathBuf {
    root.join("catalogue")
}

fn sum_path(root: &Path) -> PathBuf {
    root.join("catalogue.sum")
}

/// Levels of folders that sled's files lie in.
const MAX_DEPTH: usize = 2;
/// Bytes sled may keep in memory.
const CACHE_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_folders_and_headers_are_read_as_they_were_written() {
        for place in [(String::new(), 7), ("node-a-aaaaaaaa".to_owned(), u64::MAX), ("h".to_owned(), 0)] {
            let key = Key::Entry(place);
            assert_eq!(Key::decode(&key.encode()), Some(key));
        }
        assert_eq!(Key::decode(&Key::Header(9).encode()), Some(Key::Header(9)));
        assert_eq!(Key::decode(b"short"), None);
    }
}

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

use rollhouse_core::{open_regular, read_regular_text};

use crate::disk::Disk;
use crate::limits::{GATHERED_FROM, MAX_CATALOGUE_BYTES, MAX_GATHERED_BYTES};
use crate::stored::index::SegmentIndex;
use crate::stored::rows::rows_path;
use crate::stored::summary::{Entry, summary_path};

/// A segment in a folder of recordings or of a store: the folder's name there, empty for the folder itself, and its
/// number.
pub type SegmentPlace = (String, u64);

/// The gathered entries of a folder, or of the folders of a store.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    root: PathBuf,
    /// The entries' lists, together of at most [`MAX_GATHERED_BYTES`].
    entries: BTreeMap<SegmentPlace, Vec<u8>>,
}

impl Catalogue {
    /// Reads what is gathered in the folder `root`; the catalogue is empty if that cannot be read. Blocks for the disk.
    pub(crate) fn open(disk: &dyn Disk, root: &Path) -> Self {
        let mut catalogue = Self::new(root);
        if disk.has_real_paths() && is_intact(root) {
            let read = with_sled(root, |db| catalogue.read(db));
            if !matches!(read, Some(Ok(()))) {
                catalogue.entries.clear();
            }
        }
        catalogue
    }

    /// Makes the catalogue of the folder `root`, with nothing gathered.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), ..Self::default() }
    }

    fn read(&mut self, db: &sled::Db) -> sled::Result<()> {
        for entry in db.iter() {
            let (key, value) = entry?;
            if let Some(place) = decode_key(&key) {
                self.entries.insert(place, value.to_vec());
            }
        }
        Ok(())
    }

    /// Returns the entry of segment `number` of the folder at `dir`, which is one of the catalogue's: the gathered one,
    /// or the one beside the segment. `None` if there is no entry that fits the segment.
    pub(crate) fn entry(&self, disk: &dyn Disk, dir: &Path, number: u64) -> Option<Entry> {
        let gathered = self.entries.get(&(self.name_of(dir)?, number));
        let gathered = gathered.and_then(|list| Entry::decode_list(list));
        let fitting = gathered.filter(|entry| entry.fits(disk, dir, number));
        fitting.or_else(|| Entry::load(disk, dir, number))
    }

    /// Returns whether the entry of a segment of the folder itself is gathered.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.entries.contains_key(&(String::new(), number))
    }

    /// Returns whether nothing is gathered.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the name of the folder at `dir` in the catalogue.
    fn name_of(&self, dir: &Path) -> Option<String> {
        dir.strip_prefix(&self.root).ok()?.to_str().map(str::to_owned)
    }
}

/// Gathers the entries of the segments in `present`, and no others, in sled in the folder `root`, once there are many
/// of them and while all together have at most [`MAX_GATHERED_BYTES`]; of more, none is gathered. Entries are read beside the
/// segments; a segment without one is not gathered. Blocks for the disk, a second or so for thousands.
pub fn gather(disk: &dyn Disk, root: &Path, present: &[SegmentPlace]) {
    if !disk.has_real_paths() || (present.len() < GATHERED_FROM && !sum_path(root).exists()) {
        return;
    }
    if !is_intact(root) {
        forget_gathered(disk, root);
    }
    let gathered = with_sled(root, |db| -> sled::Result<bool> {
        let mut missing: BTreeMap<&SegmentPlace, ()> = present.iter().map(|place| (place, ())).collect();
        let (mut batch, mut bytes) = (sled::Batch::default(), 0);
        for item in db.iter() {
            let (key, value) = item?;
            match decode_key(&key) {
                Some(place) if missing.remove(&place).is_some() => bytes += value.len(),
                _ => batch.remove(key),
            }
        }
        for place @ (folder, number) in missing.keys() {
            let dir = if folder.is_empty() { root.to_owned() } else { root.join(folder) };
            let list = Entry::load_list(disk, &dir, *number);
            let Some(list) = list.filter(|list| is_entry_of(list, disk, &dir, *number)) else { continue };
            bytes += list.len();
            if bytes > MAX_GATHERED_BYTES {
                return Ok(false);
            }
            batch.insert(encode_key(place), list);
        }
        db.apply_batch(batch)?;
        db.flush().map(|_| true)
    });
    if let Some(Ok(false)) = gathered {
        forget_gathered(disk, root);
    }
}

fn is_entry_of(list: &[u8], disk: &dyn Disk, dir: &Path, number: u64) -> bool {
    Entry::decode_list(list).is_some_and(|entry| entry.fits(disk, dir, number))
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

/// Returns the key of an entry in sled. The first byte tells them from those of earlier versions, whose entries were others.
fn encode_key((folder, number): &SegmentPlace) -> Vec<u8> {
    [b"l", folder.as_bytes(), b"/", &number.to_be_bytes()].concat()
}

fn decode_key(key: &[u8]) -> Option<SegmentPlace> {
    let (rest, number) = key.split_last_chunk::<8>()?;
    let [b'l', folder @ .., b'/'] = rest else { return None };
    Some((std::str::from_utf8(folder).ok()?.to_owned(), u64::from_be_bytes(*number)))
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
    read_regular_text(sum_path(root), MAX_SUM_BYTES)
        .is_ok_and(|known| checksum(root).is_ok_and(|sum| sum == known))
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
        let mut file = open_regular(path)?;
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
/// Bytes of the file with the checksum of sled's files.
const MAX_SUM_BYTES: u64 = 256;
/// Bytes sled may keep in memory.
const CACHE_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_folders_are_read_as_they_were_written() {
        for place in [(String::new(), 7), ("node-a-aaaaaaaa".to_owned(), u64::MAX), ("l".to_owned(), 0)] {
            assert_eq!(decode_key(&encode_key(&place)), Some(place));
        }
        assert_eq!(decode_key(b"short"), None);
    }
}

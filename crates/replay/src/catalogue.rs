//! The catalogue: what is known of sealed segments, in sled, one entry for each extent.
//!
//! It may be missing, stale, scrambled or in use at any time; whoever reads then scans instead. sled may panic on
//! files that something else changed, so it is opened only if a checksum of its files, kept beside it, fits.
//! It is a cache: none of its operations goes through [`Disk`](crate::Disk), and none of its errors is anyone's.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rollhouse_core::msgpack;

use crate::extent::Extent;
use crate::index::SegmentIndex;
use crate::limits::MAX_CATALOGUE_BYTES;
use crate::rows;
use crate::summary::segment_path;

/// What the catalogue of the folder `dir` knows, by segment number; nothing if it cannot be read.
pub(crate) fn load(dir: &Path) -> BTreeMap<u64, SegmentIndex> {
    if !is_intact(dir) {
        return BTreeMap::new();
    }
    // Reading sled may change its files; the checksum follows them.
    let read = with_sled(dir, read_all);
    read.and_then(Result::ok).unwrap_or_default()
}

/// Adds segments and forgets those not in `present`. A catalogue that is not intact is made anew.
pub(crate) fn store(dir: &Path, add: &[SegmentIndex], present: &[u64]) {
    if !is_intact(dir) {
        remove(dir);
    }
    let _unwritten = with_sled(dir, |db| {
        let mut batch = sled::Batch::default();
        for index in add {
            // First, so that no entry tells of rows that are not there.
            if rows::store(dir, index.number, &index.rows).is_ok() {
                put(&mut batch, index, modified_ns(dir, index.number));
            }
        }
        for key in db.iter().keys() {
            let key = key?;
            let known = number_of(&key).is_some_and(|(number, _)| present.binary_search(&number).is_ok());
            if !known {
                batch.remove(key);
            }
        }
        db.apply_batch(batch)?;
        db.flush().map(drop)
    });
    rows::retain(dir, present);
}

/// Removes the catalogue.
pub(crate) fn remove(dir: &Path) {
    // Without its checksum nobody opens it, whatever of it stays.
    let _gone = fs::remove_file(sum_path(dir));
    let _gone = fs::remove_dir_all(rows::rows_dir(dir));
    let path = sled_path(dir);
    let _gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
}

fn read_all(db: &sled::Db) -> sled::Result<BTreeMap<u64, SegmentIndex>> {
    let mut heads: BTreeMap<u64, SegmentIndex> = BTreeMap::new();
    let mut extents: BTreeMap<u64, Vec<Extent>> = BTreeMap::new();
    for entry in db.iter() {
        let (key, value) = entry?;
        match number_of(&key) {
            Some((number, HEAD)) => {
                if let Ok(head) = msgpack::decode(&value, MAX_ENTRY_BYTES) {
                    heads.insert(number, head);
                }
            }
            Some((number, _)) => {
                if let Ok(extent) = msgpack::decode(&value, MAX_ENTRY_BYTES) {
                    extents.entry(number).or_default().push(extent);
                }
            }
            None => {}
        }
    }
    for (number, head) in &mut heads {
        head.extents = extents.remove(number).unwrap_or_default();
    }
    Ok(heads)
}

/// A segment's extents under (number, offset), the rest of what is known of it under (number, [`HEAD`]).
fn put(batch: &mut sled::Batch, index: &SegmentIndex, modified_ns: u64) {
    let head = SegmentIndex {
        extents: Vec::new(),
        rows: Vec::new(),
        modified_ns,
        runs: index.runs.clone(),
        tails: index.tails.clone(),
        entering: index.entering.clone(),
        ..*index
    };
    let mut insert = |offset: u64, value: Result<Vec<u8>, rmp_serde::encode::Error>| {
        if let Ok(value) = value {
            let mut key = index.number.to_be_bytes().to_vec();
            key.extend_from_slice(&offset.to_be_bytes());
            batch.insert(key, value);
        }
    };
    for extent in &index.extents {
        insert(extent.from, rmp_serde::to_vec(extent));
    }
    insert(HEAD, rmp_serde::to_vec(&head));
}

fn number_of(key: &[u8]) -> Option<(u64, u64)> {
    let (number, offset) = key.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), u64::from_be_bytes(offset.try_into().ok()?)))
}

/// Opens sled, uses it, closes it and renews the checksum of its files. `None` if it could not be opened: it is
/// in use, or cannot be made here.
fn with_sled<T>(dir: &Path, work: impl FnOnce(&sled::Db) -> T) -> Option<T> {
    let path = sled_path(dir);
    let worked = catch_unwind(AssertUnwindSafe(|| {
        let config = sled::Config::new().path(&path).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        let db = config.open().ok()?;
        Some(work(&db))
    }));
    let done = worked.ok().flatten()?;
    if let Ok(sum) = checksum(dir) {
        let (new, known) = (sum_path(dir).with_extension("new"), sum_path(dir));
        let _unwritten = fs::write(&new, sum).and_then(|()| fs::rename(&new, &known));
    }
    Some(done)
}

/// Whether the files are those that were there when the catalogue was last closed in order.
fn is_intact(dir: &Path) -> bool {
    fs::read_to_string(sum_path(dir)).is_ok_and(|known| checksum(dir).is_ok_and(|sum| sum == known))
}

/// CRC-32C over names, lengths and contents of sled's files.
fn checksum(dir: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    collect(&sled_path(dir), 0, &mut files)?;
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

/// When a segment was last changed, in nanoseconds since 1970; 0 if that is not known.
pub(crate) fn modified_ns(dir: &Path, number: u64) -> u64 {
    let modified = fs::metadata(segment_path(dir, number)).and_then(|file| file.modified());
    let since = modified.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or_default()
}

fn sled_path(dir: &Path) -> PathBuf {
    dir.join("catalogue")
}

fn sum_path(dir: &Path) -> PathBuf {
    dir.join("catalogue.sum")
}

/// In place of an extent's offset: what is known of the segment as a whole.
const HEAD: u64 = u64::MAX;
/// Bytes of an entry that is read: what is known of a segment with a million blocks.
const MAX_ENTRY_BYTES: usize = 32 << 20;
/// Folders in folders that sled has.
const MAX_DEPTH: usize = 2;
/// Bytes sled may keep in memory.
const CACHE_BYTES: u64 = 16 << 20;

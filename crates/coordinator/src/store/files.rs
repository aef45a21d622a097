//! Listings of the store's folders and reads of its files, for readers.
//!
//! Paths are looked up in the stock, never in the file system: whatever else lies in the folder, and wherever a link in
//! it leads, only segments that were taken in and the catalogue's files beside them can be read.

use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_replay::{
    DiskFile, QUARANTINE, STORE_LOCK, SegmentSummary, aside_path, forget_gathered, rows_path, segment_number,
    segment_path, summary_path,
};
use rollhouse_wire::limits::{MAX_STORE_ENTRIES, MAX_STORE_READ_BYTES};
use rollhouse_wire::{StoreEntry, StoreListing, StoreRepaired};

use super::archiver::Archive;
use super::away::id_of;
use super::shelf::{Held, Shelf};
use super::stock::{quarantine_name, quarantined_name};
use super::{Store, StoreError};

impl Store {
    /// Lists a folder after the name `after`, at most [`MAX_STORE_ENTRIES`] entries. Does not block for the disk.
    ///
    /// # Errors
    /// If there is no such folder.
    pub fn list(&self, path: &str, after: &str) -> Result<StoreListing, StoreError> {
        let shelf = self.shelf();
        let not_found = || StoreError::NotFound(path.to_owned());
        let parts: Vec<&str> = path.split('/').collect();
        let folder = |name: &str| StoreEntry { name: name.to_owned(), bytes: None };
        let listing = match *parts.as_slice() {
            [""] => {
                let quarantine = (shelf.quarantine().segments().len() > 0).then_some(QUARANTINE);
                let folders = shelf.folders().chain([STORE_LOCK]).chain(quarantine);
                let names = folders.filter(|name| *name > after).collect();
                part_of(names, |name| StoreEntry { bytes: (name == STORE_LOCK).then_some(0), ..folder(name) })
            }
            [QUARANTINE] if shelf.quarantine().segments().len() > 0 => {
                let names = shelf
                    .quarantine()
                    .segments()
                    .map(|((of, number, crc), _)| quarantine_name(of, *number, *crc));
                let names: Vec<String> = names.filter(|name| name.as_str() > after).collect();
                part_of(names.iter().map(String::as_str).collect(), folder)
            }
            [QUARANTINE, name] if self.quarantined(&shelf, name).is_some() => {
                let inside = [SEGMENTS].into_iter().filter(|name| *name > after);
                StoreListing { entries: inside.map(folder).collect(), more: false }
            }
            [QUARANTINE, name, SEGMENTS] => {
                let (number, bytes) = self.quarantined(&shelf, name).ok_or_else(not_found)?;
                let entry = StoreEntry { name: format!("{number:010}.seg"), bytes: Some(bytes) };
                let entries = [entry].into_iter().filter(|entry| entry.name.as_str() > after).collect();
                StoreListing { entries, more: false }
            }
            [name] if shelf.has_folder(name) => {
                let has_aside = shelf.segments(name).is_some_and(|all| all.values().any(Held::has_aside));
                let inside = has_aside.then_some(ASIDE).into_iter().chain([ROWS, SEGMENTS, SUMMARIES]);
                let inside = inside.filter(|name| *name > after);
                StoreListing { entries: inside.map(folder).collect(), more: false }
            }
            [name, SEGMENTS] => segments(&shelf, name, after).ok_or_else(not_found)?,
            // Their lengths are not known here, and nobody has to list them: they are named like the segments.
            [name, ROWS | SUMMARIES | ASIDE] if shelf.has_folder(name) => {
                StoreListing { entries: Vec::new(), more: false }
            }
            _ => return Err(not_found()),
        };
        Ok(listing)
    }

    /// Reads a file from `offset` on, at most `bytes` bytes and fewer only at its end. Returns them and the file's
    /// length.
    ///
    /// # Errors
    /// If there is no such file, more than [`MAX_STORE_READ_BYTES`] are asked for, or it cannot be read.
    pub fn read(&self, path: &str, offset: u64, bytes: u32) -> Result<(Vec<u8>, u64), StoreError> {
        let file = self.open_file(path, offset, bytes)?;
        let mut data = Vec::new();
        while data.len() < file.bytes as usize {
            data.append(&mut file.piece(data.len() as u32, file.bytes)?);
        }
        Ok((data, file.file_bytes))
    }

    /// Opens a file for as many bytes from `offset` on as [`Store::read`] gives. They can be read even if the file is
    /// dropped in the meantime.
    pub(crate) fn open_file(&self, path: &str, offset: u64, bytes: u32) -> Result<StoreFile, StoreError> {
        if bytes as usize > MAX_STORE_READ_BYTES {
            return Err(StoreError::TooMuch { bytes });
        }
        let not_found = || StoreError::NotFound(path.to_owned());
        let path = self.file(path).ok_or_else(not_found)?;
        if bytes > 0 {
            self.fetch(&path)?;
        }
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => not_found(),
            _ => StoreError::disk("read", &path, error),
        };
        let file = self.inner.disk.open(&path).map_err(failed)?;
        part_to_read(file, path, offset, bytes)
    }

    /// Returns whether the file at a path has to be fetched before it is read.
    pub(crate) fn is_to_fetch(&self, path: &str) -> bool {
        let away = |archive: &Arc<Archive>| archive.away.away(&self.file(path)?);
        self.inner.archive.as_ref().and_then(away).is_some()
    }

    /// Fetches a file of the store if it is in the archive only. Blocks for the archive.
    pub(super) fn fetch(&self, path: &Path) -> Result<(), StoreError> {
        let Some(archive) = &self.inner.archive else { return Ok(()) };
        let Some(segment) = archive.away.away(path) else { return Ok(()) };
        let fetched = archive.fetched.get(&id_of(&segment));
        fetched.map(drop).map_err(|error| StoreError::disk("fetch", path, error))
    }

    /// Fetches the file at a path of the store, as [`Store::is_to_fetch`] says. Blocks for the archive.
    pub(crate) fn fetch_file(&self, path: &str) -> Result<(), StoreError> {
        self.file(path).map_or(Ok(()), |path| self.fetch(&path))
    }

    /// Reads every byte of a segment again and makes its summary anew. A damaged segment is left without one, so that
    /// readers look at the segment itself. Never changes a segment.
    ///
    /// # Errors
    /// If there is no such segment, or it cannot be read.
    pub fn repair(&self, path: &str) -> Result<StoreRepaired, StoreError> {
        let not_found = || StoreError::NotFound(path.to_owned());
        let mut parts = path.split('/');
        let (Some(folder), Some(SEGMENTS), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(not_found());
        };
        let number = segment_number(name).ok_or_else(not_found)?;
        self.shelf().get(folder, number).ok_or_else(not_found)?;
        let (disk, dir) = (&*self.inner.disk, self.inner.dir.join(folder));
        let file = segment_path(&dir, number);
        let read = disk.open(&file).and_then(|file| SegmentSummary::read(number, &*file));
        let mut summary = read.map_err(|error| match error.kind() {
            // Dropped to keep the budget since it was looked up.
            io::ErrorKind::NotFound => not_found(),
            _ => StoreError::disk("read", &file, error),
        })?;
        let kept = summary_path(&dir, number);
        let done = if summary.is_whole() {
            summary.store(disk, &dir)
        } else {
            forget_gathered(disk, &self.inner.dir);
            disk.remove(&kept).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
        };
        done.map_err(|error| StoreError::disk("replace", &kept, error))?;
        Ok(StoreRepaired { bytes: summary.bytes(), damaged: !summary.is_whole() })
    }

    /// Returns the file at a path, if it is a segment in stock, set aside or not, or a file beside one.
    pub(super) fn file(&self, path: &str) -> Option<PathBuf> {
        let parts: Vec<&str> = path.split('/').collect();
        let shelf = self.shelf();
        match *parts.as_slice() {
            [QUARANTINE, of, SEGMENTS, name] => {
                let (number, _) = self.quarantined(&shelf, of)?;
                let dir = self.inner.dir.join(QUARANTINE).join(of);
                (segment_number(name)? == number).then(|| segment_path(&dir, number))
            }
            [folder, inside @ (ROWS | SEGMENTS | SUMMARIES | ASIDE), name] => {
                let number = match inside {
                    SEGMENTS => segment_number(name)?,
                    _ => segment_number(&format!("{}.seg", name.strip_suffix(extension(inside))?))?,
                };
                let held = shelf.get(folder, number)?;
                let dir = self.inner.dir.join(folder);
                match inside {
                    SEGMENTS => Some(segment_path(&dir, number)),
                    SUMMARIES => Some(summary_path(&dir, number)),
                    ROWS => Some(rows_path(&dir, number)),
                    _ => held.has_aside().then(|| aside_path(&dir, number)),
                }
            }
            _ => None,
        }
    }

    /// Returns number and bytes of the segment that is set aside under that name.
    fn quarantined(&self, shelf: &Shelf, name: &str) -> Option<(u64, u64)> {
        let arrival = quarantined_name(name)?;
        Some((arrival.1, shelf.quarantine().bytes_of(&arrival)?))
    }
}

/// Returns the extension of the names in a folder of the store.
fn extension(inside: &str) -> &'static str {
    match inside {
        ASIDE => ".set",
        ROWS => ".rows",
        _ => ".sum",
    }
}

/// Returns a part of a listing: the first names, and whether there are more.
fn part_of(mut names: Vec<&str>, entry: impl Fn(&str) -> StoreEntry) -> StoreListing {
    names.sort_unstable();
    let entries = names.iter().take(MAX_STORE_ENTRIES).map(|name| entry(name)).collect();
    StoreListing { entries, more: names.len() > MAX_STORE_ENTRIES }
}

/// Returns at most `bytes` bytes of a file from `offset` on, to be read.
pub(super) fn part_to_read(
    file: Box<dyn DiskFile>,
    path: PathBuf,
    offset: u64,
    bytes: u32,
) -> Result<StoreFile, StoreError> {
    if bytes as usize > MAX_STORE_READ_BYTES {
        return Err(StoreError::TooMuch { bytes });
    }
    let file_bytes = file.len().map_err(|error| StoreError::disk("read", &path, error))?;
    // At most `bytes`.
    let bytes = u64::from(bytes).min(file_bytes.saturating_sub(offset)) as u32;
    Ok(StoreFile { file, path, offset, bytes, file_bytes })
}

/// A part of a file that is being read.
#[derive(Debug)]
pub(crate) struct StoreFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    offset: u64,
    bytes: u32,
    file_bytes: u64,
}

impl StoreFile {
    /// Returns the length of the part in bytes.
    pub(crate) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns the length of the whole file in bytes.
    pub(crate) const fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Reads the part from `at` on: `most` bytes, or as many as are left. Blocks for the disk.
    pub(crate) fn piece(&self, at: u32, most: u32) -> Result<Vec<u8>, StoreError> {
        let mut piece = vec![0; self.bytes.saturating_sub(at).min(most) as usize];
        let (mut filled, from) = (0, self.offset + u64::from(at));
        while filled < piece.len() {
            match self.file.read_at(&mut piece[filled..], from + filled as u64) {
                Ok(0) => {
                    return Err(StoreError::disk("read", &self.path, io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StoreError::disk("read", &self.path, error)),
            }
        }
        Ok(piece)
    }
}

fn segments(shelf: &Shelf, folder: &str, after: &str) -> Option<StoreListing> {
    let segments = shelf.segments(folder)?;
    let from = match segment_number(after) {
        Some(number) => Bound::Excluded(number),
        None if after.is_empty() => Bound::Unbounded,
        None => return None,
    };
    let mut rest = segments.range((from, Bound::Unbounded));
    let entry = |(number, held): (&u64, &Held)| StoreEntry {
        name: format!("{number:010}.seg"),
        bytes: Some(held.bytes),
    };
    let entries = rest.by_ref().take(MAX_STORE_ENTRIES).map(entry).collect();
    Some(StoreListing { entries, more: rest.next().is_some() })
}

pub(super) const SEGMENTS: &str = "segments";
const ROWS: &str = "rows";
const SUMMARIES: &str = "summaries";
pub(super) const ASIDE: &str = "aside";

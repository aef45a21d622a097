//! What readers get of the store: its folders, and parts of its files.
//!
//! Paths are looked up in the stock, never in the file system: whatever else lies in the folder, and wherever a link
//! in it leads, only segments that were taken in and their summaries can be read.

use std::io;
use std::ops::Bound;
use std::path::PathBuf;

use rollhouse_replay::{STORE_LOCK, SegmentSummary, segment_number, segment_path, summary_path};
use rollhouse_wire::limits::{MAX_STORE_ENTRIES, MAX_STORE_READ_BYTES};
use rollhouse_wire::{StoreEntry, StoreListing, StoreRepaired};

use super::shelf::Shelf;
use super::{Store, StoreError};

impl Store {
    /// What is in a folder, after the name `after`, at most [`MAX_STORE_ENTRIES`]. Does not block for the disk.
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
                let folders = shelf.folders().chain([STORE_LOCK]);
                let mut names: Vec<&str> = folders.filter(|name| *name > after).collect();
                names.sort_unstable();
                let entry =
                    |name: &&str| StoreEntry { bytes: (*name == STORE_LOCK).then_some(0), ..folder(name) };
                let entries = names.iter().take(MAX_STORE_ENTRIES).map(entry).collect();
                StoreListing { entries, more: names.len() > MAX_STORE_ENTRIES }
            }
            [name] if shelf.has_folder(name) => {
                let inside = [SEGMENTS, SUMMARIES].into_iter().filter(|name| *name > after);
                StoreListing { entries: inside.map(folder).collect(), more: false }
            }
            [name, SEGMENTS] => segments(&shelf, name, after).ok_or_else(not_found)?,
            // Their lengths are not known here, and nobody has to list them: they are named like the segments.
            [name, SUMMARIES] if shelf.has_folder(name) => StoreListing { entries: Vec::new(), more: false },
            _ => return Err(not_found()),
        };
        Ok(listing)
    }

    /// Bytes of a file from `offset` on, at most `bytes` and fewer only at its end, and the file's length.
    ///
    /// # Errors
    /// If there is no such file, more than [`MAX_STORE_READ_BYTES`] are asked for, or it cannot be read.
    pub fn read(&self, path: &str, offset: u64, bytes: u32) -> Result<(Vec<u8>, u64), StoreError> {
        if bytes as usize > MAX_STORE_READ_BYTES {
            return Err(StoreError::TooMuch { bytes });
        }
        let not_found = || StoreError::NotFound(path.to_owned());
        let file_path = self.file(path).ok_or_else(not_found)?;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => not_found(),
            _ => StoreError::disk("read", &file_path, error),
        };
        let file = self.inner.disk.open(&file_path).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        let wanted = u64::from(bytes).min(len.saturating_sub(offset));
        let mut data = vec![0; usize::try_from(wanted).unwrap_or(0)];
        let mut filled = 0;
        while filled < data.len() {
            match file.read_at(&mut data[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        data.truncate(filled);
        Ok((data, len))
    }

    /// Reads a segment again, every byte of it, and makes its summary anew; a damaged one is left without, so that
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
        let summary = read.map_err(|error| match error.kind() {
            // Dropped to keep the budget since it was looked up.
            io::ErrorKind::NotFound => not_found(),
            _ => StoreError::disk("read", &file, error),
        })?;
        let kept = summary_path(&dir, number);
        let done = if summary.is_whole() {
            summary.store(disk, &dir)
        } else {
            disk.remove(&kept).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
        };
        done.map_err(|error| StoreError::disk("replace", &kept, error))?;
        Ok(StoreRepaired { bytes: summary.bytes(), damaged: !summary.is_whole() })
    }

    /// The file at a path, if it is a segment in stock or the summary of one.
    fn file(&self, path: &str) -> Option<PathBuf> {
        let mut parts = path.split('/');
        let (folder, inside, name) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let number = match inside {
            SEGMENTS => segment_number(name)?,
            SUMMARIES => segment_number(&name.replace(".sum", ".seg"))?,
            _ => return None,
        };
        self.shelf().get(folder, number)?;
        let dir = self.inner.dir.join(folder);
        Some(if inside == SEGMENTS { segment_path(&dir, number) } else { summary_path(&dir, number) })
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
    let entry = |(number, held): (&u64, &super::Held)| StoreEntry {
        name: format!("{number:010}.seg"),
        bytes: Some(held.bytes),
    };
    let entries = rest.by_ref().take(MAX_STORE_ENTRIES).map(entry).collect();
    Some(StoreListing { entries, more: rest.next().is_some() })
}

const SEGMENTS: &str = "segments";
const SUMMARIES: &str = "summaries";

//! The part of the store that a peer may read: recordings of the runs of certain owners.
//!
//! A run's id tells its owner. Who may not read everything finds the episodes of those runs by questions, and reads the
//! segments that have nothing else in them; of a segment that has recordings of others as well, under its name, the part
//! that is left when the others' records are taken out.

use std::io;
use std::path::Path;

use rollhouse_replay::{Library, Replays, RunFilter, SetAside, read_all, segment_number, segment_path};
use rollhouse_wire::limits::MAX_STORE_ENTRIES;
use rollhouse_wire::{ReadGrant, StoreEntry, StoreListing, is_pool_of};

use super::cuts::{Cut, CutFile, CutKey};
use super::files::{ASIDE, SEGMENTS, StoreFile, part_to_read};
use super::{Store, StoreError};

/// What may be read of a file of the store.
#[derive(Debug)]
pub(crate) enum Readable {
    /// All of it.
    Whole,
    /// What is left of it without the recordings of others.
    Part(RunFilter),
}

/// Returns the runs that may be read; `None` if all may.
pub(crate) fn filter_of(reads: &ReadGrant) -> Option<RunFilter> {
    match reads {
        ReadGrant::All => None,
        ReadGrant::Owners(owners) => Some(RunFilter::new(owners.iter().cloned(), is_pool_of)),
    }
}

impl Store {
    /// Lists a folder as [`Store::list`] does, without what may not be read. Blocks for the disk if that is not all.
    ///
    /// # Errors
    /// Those of [`Store::list`]; folders in which nothing may be read are not there.
    pub fn list_readable(
        &self,
        reads: &ReadGrant,
        path: &str,
        after: &str,
    ) -> Result<StoreListing, StoreError> {
        let Some(of) = filter_of(reads) else { return self.list(path, after) };
        let library = self.library(false)?;
        let folder = path.split('/').next().unwrap_or_default();
        if !path.is_empty() && !has_any(&library, folder, &of) {
            return Err(StoreError::NotFound(path.to_owned()));
        }
        let found = folder_of(&library, folder);
        let is_readable = |name: &str| match (path, segment_number(name)) {
            ("", _) => name == rollhouse_replay::STORE_LOCK || has_any(&library, name, &of),
            (_, Some(number)) => found.is_some_and(|found| found.has_some_of(number, &of)),
            _ => true,
        };
        // The length of a part is known when it is read.
        let is_whole = |name: &str| {
            let number = segment_number(name).filter(|_| !path.is_empty());
            number.is_none_or(|number| found.is_some_and(|found| found.is_all_of(number, &of)))
        };
        let (mut listing, mut after) = (StoreListing { entries: Vec::new(), more: true }, after.to_owned());
        while listing.more && listing.entries.len() < MAX_STORE_ENTRIES {
            let page = self.list(path, &after)?;
            let Some(last) = page.entries.last() else { return Ok(StoreListing { more: false, ..listing }) };
            after.clone_from(&last.name);
            listing.more = page.more;
            for entry in page.entries.into_iter().filter(|entry| is_readable(&entry.name)) {
                let bytes = entry.bytes.filter(|_| is_whole(&entry.name));
                listing.entries.push(StoreEntry { bytes, ..entry });
            }
        }
        if listing.entries.len() > MAX_STORE_ENTRIES {
            listing.entries.truncate(MAX_STORE_ENTRIES);
            listing.more = true;
        }
        Ok(listing)
    }

    /// Returns what may be read of a file of the store. May block for the disk.
    ///
    /// # Errors
    /// [`StoreError::Forbidden`] if it has recordings of other owners alone, or is damaged, so that nobody knows whose they
    /// are; [`StoreError::NotFound`] if there is no such file.
    pub(crate) fn readable(&self, reads: &ReadGrant, path: &str) -> Result<Readable, StoreError> {
        let Some(of) = filter_of(reads) else { return Ok(Readable::Whole) };
        if self.file(path).is_none() {
            return Err(StoreError::NotFound(path.to_owned()));
        }
        let library = self.library(false)?;
        let found = parts_of(path)
            .and_then(|(folder, inside, number)| Some((folder_of(&library, folder)?, inside, number)));
        match found {
            Some((found, _, number)) if found.is_all_of(number, &of) => Ok(Readable::Whole),
            Some((found, SEGMENTS | ASIDE, number)) if found.has_some_of(number, &of) => {
                Ok(Readable::Part(of))
            }
            // The catalogue's files are of all of it; readers do without them.
            Some((found, _, number)) if found.has_some_of(number, &of) => {
                Err(StoreError::NotFound(path.to_owned()))
            }
            _ => Err(StoreError::Forbidden(path.to_owned())),
        }
    }

    /// Opens the part of a file that has recordings of the runs that pass, as [`Store::open_file`] opens the whole. Blocks
    /// for the disk and the archive; takes as much memory as the segment has bytes, for one at a time.
    ///
    /// # Errors
    /// Those of [`Store::open_file`], and [`StoreError::Forbidden`] if the segment turns out to be damaged.
    pub(crate) fn open_part(
        &self,
        of: &RunFilter,
        path: &str,
        offset: u64,
        bytes: u32,
    ) -> Result<StoreFile, StoreError> {
        let not_found = || StoreError::NotFound(path.to_owned());
        let (folder, inside, number) = parts_of(path).ok_or_else(not_found)?;
        let crc = self.shelf().get(folder, number).ok_or_else(not_found)?.crc;
        let key: CutKey = (folder.into(), number, crc, of.clone());
        let cut = self.inner.cuts.get(&key, || self.cut(&key, path))?;
        let data = if inside == ASIDE { cut.aside } else { cut.segment };
        if data.is_empty() {
            return Err(not_found());
        }
        part_to_read(Box::new(CutFile(data)), path.into(), offset, bytes)
    }

    fn cut(&self, (folder, number, _, of): &CutKey, path: &str) -> Result<Cut, StoreError> {
        let (disk, dir) = (&*self.inner.disk, self.inner.dir.join(&**folder));
        let file = segment_path(&dir, *number);
        self.fetch(&file)?;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::NotFound(path.to_owned()),
            _ => StoreError::disk("read", &file, error),
        };
        let bytes = disk.open(&file).and_then(|file| read_all(&*file)).map_err(failed)?;
        let aside = SetAside::load(disk, &dir, *number).map_err(failed)?;
        Cut::of(&bytes, &aside, of).ok_or_else(|| StoreError::Forbidden(path.to_owned()))
    }
}

/// Returns the folder, the folder in it and the number of a segment's file at a path of the store.
fn parts_of(path: &str) -> Option<(&str, &str, u64)> {
    let mut parts = path.split('/');
    let (folder, inside, name) = (parts.next()?, parts.next()?, parts.next()?);
    let number = name.split('.').next()?.parse().ok()?;
    parts.next().is_none().then_some((folder, inside, number))
}

fn folder_of<'a>(library: &'a Library, name: &str) -> Option<&'a Replays> {
    let is_it = |dir: &Path| dir.file_name().is_some_and(|found| found == name);
    library.folders().iter().map(|folder| &**folder).find(|folder| is_it(folder.dir()))
}

fn has_any(library: &Library, folder: &str, of: &RunFilter) -> bool {
    folder_of(library, folder).is_some_and(|found| found.segments_of(of).next().is_some())
}

//! The part of the store that a peer may read: recordings of the runs of certain owners.
//!
//! A run's id tells its owner. Who may not read everything finds the episodes of those runs by questions, and reads the
//! segments that have nothing else in them; a segment of a node that several owners use has recordings of them all.

use std::path::Path;

use rollhouse_replay::{Library, Replays, RunFilter, segment_number};
use rollhouse_wire::limits::MAX_STORE_ENTRIES;
use rollhouse_wire::{ReadGrant, StoreListing, is_pool_of};

use super::{Store, StoreError};

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
        let is_readable = |name: &str| match (path, segment_number(name)) {
            ("", _) => name == rollhouse_replay::STORE_LOCK || has_any(&library, name, &of),
            (_, Some(number)) => {
                folder_of(&library, folder).is_some_and(|found| found.is_all_of(number, &of))
            }
            _ => true,
        };
        let (mut listing, mut after) = (StoreListing { entries: Vec::new(), more: true }, after.to_owned());
        while listing.more && listing.entries.len() < MAX_STORE_ENTRIES {
            let page = self.list(path, &after)?;
            let Some(last) = page.entries.last() else { return Ok(StoreListing { more: false, ..listing }) };
            after.clone_from(&last.name);
            listing.more = page.more;
            listing.entries.extend(page.entries.into_iter().filter(|entry| is_readable(&entry.name)));
        }
        if listing.entries.len() > MAX_STORE_ENTRIES {
            listing.entries.truncate(MAX_STORE_ENTRIES);
            listing.more = true;
        }
        Ok(listing)
    }

    /// Checks whether a file of the store may be read.
    ///
    /// # Errors
    /// [`StoreError::Forbidden`] if it has recordings of other owners, [`StoreError::NotFound`] if there is no such file.
    pub(crate) fn check_readable(&self, reads: &ReadGrant, path: &str) -> Result<(), StoreError> {
        let Some(of) = filter_of(reads) else { return Ok(()) };
        if self.file(path).is_none() {
            return Err(StoreError::NotFound(path.to_owned()));
        }
        let mut parts = path.split('/');
        let folder = parts.next().unwrap_or_default();
        let name = parts.next_back().unwrap_or_default();
        let number = name.split('.').next().and_then(|number| number.parse().ok());
        let library = self.library(false)?;
        let found = folder_of(&library, folder).zip(number);
        if found.is_some_and(|(found, number)| found.is_all_of(number, &of)) {
            Ok(())
        } else {
            Err(StoreError::Forbidden(path.to_owned()))
        }
    }
}

fn folder_of<'a>(library: &'a Library, name: &str) -> Option<&'a Replays> {
    let is_it = |dir: &Path| dir.file_name().is_some_and(|found| found == name);
    library.folders().iter().map(|folder| &**folder).find(|folder| is_it(folder.dir()))
}

fn has_any(library: &Library, folder: &str, of: &RunFilter) -> bool {
    folder_of(library, folder).is_some_and(|found| found.segments_of(of).next().is_some())
}

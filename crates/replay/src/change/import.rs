//! The importer, which adds episodes that came as files to a folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::EpisodeName;

use crate::change::portable::Portable;
use crate::disk::Disk;
use crate::disk_error::DiskError;
use crate::read::label_file::is_of_store;
use crate::read::library::Library;
use crate::read::read_error::ReadError;
use crate::stored::catalogue;
use crate::stored::lock::{OpenError, WriterLock, lock_folder};
use crate::stored::names::{segment_numbers, segments_dir};
use crate::stored::recover::{put_segment, recover};
use crate::stored::scan::scan_bytes_with_rows;

/// An importer into a folder, whose only writer it is. Each episode that it adds becomes a segment.
#[derive(Debug)]
pub struct Importer {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    library: Library,
    _lock: WriterLock,
}

/// An error: an episode was not imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The folder could not be opened for writing; a writer that has it is named.
    #[error(transparent)]
    Open(OpenError),
    /// The folder could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// The folder is a store, or in one: only the store's coordinator changes what it holds.
    #[error("{dir} belongs to a coordinator's store", dir = .0.display())]
    Store(PathBuf),
    /// An episode of that name is there already.
    #[error("an episode {0} is there already")]
    Present(EpisodeName),
    /// A file operation failed.
    #[error(transparent)]
    Disk(DiskError),
}

impl Importer {
    /// Takes the folder's writer lock, makes the folder if it is not there, and seals what a crash has left unsealed.
    /// Blocks for the disk.
    ///
    /// # Errors
    /// If the folder belongs to a store, somebody else has the lock, or a file operation fails.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, ImportError> {
        if is_of_store(&*disk, dir) {
            return Err(ImportError::Store(dir.into()));
        }
        let lock = lock_folder(&*disk, dir).map_err(ImportError::Open)?;
        recover(&*disk, dir).map_err(ImportError::Disk)?;
        let library = Library::open(disk.clone(), dir).map_err(ImportError::Read)?;
        Ok(Self { disk, dir: dir.into(), library, _lock: lock })
    }

    /// Adds an episode as the newest segment. It is durable on return. Blocks for the disk.
    ///
    /// # Errors
    /// If the folder, or one directly in it, has an episode of that name, or a file operation fails; then the episode
    /// is there as a whole or not at all.
    pub fn add(&mut self, episode: &Portable) -> Result<(), ImportError> {
        let name = episode.info().name;
        match self.library.find(name) {
            // Of one whose beginning is gone this is the rest.
            Err(ReadError::NoEpisode(_) | ReadError::Incomplete { .. }) => {}
            Ok(_) | Err(ReadError::Ambiguous { .. } | ReadError::InSeveralFolders { .. }) => {
                return Err(ImportError::Present(name));
            }
            Err(error) => return Err(ImportError::Read(error)),
        }
        let segments = segments_dir(&self.dir);
        let listed = segment_numbers(&*self.disk, &self.dir);
        let mut numbers =
            listed.map_err(|error| ImportError::Disk(DiskError::new("list", &segments, error)))?;
        let number = numbers.last().map_or(1, |last| last + 1);
        let bytes = episode.numbered(number);
        put_segment(&*self.disk, &self.dir, number, &bytes).map_err(ImportError::Disk)?;
        numbers.push(number);
        catalogue::add(&*self.disk, &self.dir, vec![scan_bytes_with_rows(number, &bytes).index], &numbers);
        self.library = self.library.opened_again().map_err(ImportError::Read)?;
        Ok(())
    }
}

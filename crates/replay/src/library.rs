//! A folder of recordings together with the folders directly in it that hold recordings: each process that
//! records may have its own, and all of them are read as one.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::EpisodeName;
use rollhouse_env::Registry;

use crate::disk::Disk;
use crate::episode::EpisodeInfo;
use crate::folder::segments_dir;
use crate::index::Damage;
use crate::limits::MAX_SUBFOLDERS;
use crate::query::{Query, list};
use crate::replays::{FolderStats, ReadError, Replays, names_in};
use crate::verify::Verification;

/// The recordings of a folder and of those directly in it, as they were when opened. Takes no lock, like
/// [`Replays`]. All methods may block for the disk.
#[derive(Debug)]
pub struct Library {
    /// The folder that was opened, then those in it by name.
    folders: Vec<Arc<Replays>>,
}

/// An episode, and the folder it is read from.
#[derive(Debug, Clone)]
pub struct LibraryEpisode {
    /// What a listing says of it.
    pub info: EpisodeInfo,
    /// The recordings it is one of.
    pub folder: Arc<Replays>,
}

impl Library {
    /// Opens the folder `dir` and those directly in it that hold recordings, at most [`MAX_SUBFOLDERS`]. A
    /// folder that several names lead to is read once.
    ///
    /// # Errors
    /// If the folder is not there, too many are in it, or a file operation fails. Damage is no error.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, ReadError> {
        Self::open_with(&disk, dir, Replays::open)
    }

    /// As [`Library::open`], reading every byte and trusting no catalogue: finds all damage.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open_scanning(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, ReadError> {
        Self::open_with(&disk, dir, Replays::open_scanning)
    }

    fn open_with(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        open: impl Fn(Arc<dyn Disk>, &Path) -> Result<Replays, ReadError>,
    ) -> Result<Self, ReadError> {
        let mut folders = vec![Arc::new(open(disk.clone(), dir)?)];
        for inside in subfolders(&**disk, dir)? {
            match open(disk.clone(), &inside) {
                Ok(replays) => folders.push(Arc::new(replays)),
                // Removed since the folder was listed.
                Err(ReadError::NoFolder(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { folders })
    }

    /// The folders: the one that was opened, then those in it by name.
    pub fn folders(&self) -> &[Arc<Replays>] {
        &self.folders
    }

    /// Whether a writer had any of the folders when they were opened.
    pub fn is_writing(&self) -> bool {
        self.folders.iter().any(|folder| folder.is_writing())
    }

    /// How many episodes there are, as [`Replays::count`].
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn count(&self) -> Result<u64, ReadError> {
        self.folders.iter().try_fold(0, |sum, folder| Ok(sum + folder.count()?))
    }

    /// The episodes a query asks for, in its order over all folders. No more are held in memory than its limit.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn list(&self, query: &Query) -> Result<Vec<LibraryEpisode>, ReadError> {
        let folders: Vec<&Replays> = self.folders.iter().map(|folder| &**folder).collect();
        let episode =
            |(folder, info): (usize, _)| LibraryEpisode { info, folder: self.folders[folder].clone() };
        Ok(list(&folders, query)?.into_iter().map(episode).collect())
    }

    /// The episode of that name.
    ///
    /// # Errors
    /// If there is none, several runs or several folders have one, or a file operation fails.
    pub fn find(&self, name: EpisodeName) -> Result<LibraryEpisode, ReadError> {
        let mut found: Vec<LibraryEpisode> = Vec::new();
        for folder in &self.folders {
            match folder.find(name) {
                Ok(info) => found.push(LibraryEpisode { info, folder: folder.clone() }),
                Err(ReadError::NoEpisode(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if found.len() > 1 {
            let folders = found.iter().map(|episode| episode.folder.dir().to_path_buf()).collect();
            return Err(ReadError::InSeveralFolders { name, folders });
        }
        found.pop().ok_or(ReadError::NoEpisode(name))
    }

    /// What the folders hold, added up.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn stats(&self) -> Result<FolderStats, ReadError> {
        let mut sum = FolderStats::default();
        for folder in &self.folders {
            sum.add(folder.stats()?);
        }
        Ok(sum)
    }

    /// Stretches that are known not to be intact, and in which folder. Complete only after
    /// [`Library::open_scanning`].
    pub fn damage(&self) -> impl Iterator<Item = (&Replays, &Damage)> {
        self.folders.iter().flat_map(|folder| folder.damage().map(|damage| (&**folder, damage)))
    }

    /// Verifies every episode, folder by folder; calls `visit` for each.
    ///
    /// # Errors
    /// If a file operation fails. What is found goes to `visit`.
    pub fn verify_all(
        &self,
        registry: &Registry,
        mut visit: impl FnMut(Verification),
    ) -> Result<(), ReadError> {
        self.folders.iter().try_for_each(|folder| folder.verify_all(registry, &mut visit))
    }
}

impl LibraryEpisode {
    /// How two episodes stand on the disk: reading them in this order costs least.
    pub fn compare_places(&self, other: &Self) -> Ordering {
        let folders = self.folder.dir().cmp(other.folder.dir());
        folders.then_with(|| self.info.compare_places(&other.info))
    }

    /// Verifies the given episodes, folder by folder; calls `visit` for each, in no particular order. Costs least
    /// in the order of [`LibraryEpisode::compare_places`].
    ///
    /// # Errors
    /// If a file operation fails. Damage goes to `visit`.
    pub fn verify(
        mut episodes: Vec<Self>,
        registry: &Registry,
        mut visit: impl FnMut(Verification),
    ) -> Result<(), ReadError> {
        episodes.sort_by(|a, b| a.folder.dir().cmp(b.folder.dir()));
        for of_folder in episodes.chunk_by(|a, b| Arc::ptr_eq(&a.folder, &b.folder)) {
            let Some(first) = of_folder.first() else { continue };
            let infos: Vec<EpisodeInfo> = of_folder.iter().map(|episode| episode.info.clone()).collect();
            first.folder.verify(&infos, registry, &mut visit)?;
        }
        Ok(())
    }
}

/// Whether a folder has a place for segments, as every one has that was ever recorded into.
pub(crate) fn holds_recordings(disk: &dyn Disk, dir: &Path) -> bool {
    disk.real_dir(&segments_dir(dir)).is_some()
}

/// The folders directly in `dir` that hold recordings, by name. What cannot be looked into holds none.
pub(crate) fn subfolders(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let mut names = names_in(disk, dir)?;
    names.sort_unstable();
    // A link to one of them, or to `dir`, must not show episodes twice.
    let mut seen: BTreeSet<PathBuf> = disk.real_dir(&segments_dir(dir)).into_iter().collect();
    let mut found = Vec::new();
    for inside in names.iter().map(|name| dir.join(name)) {
        if disk.real_dir(&segments_dir(&inside)).is_some_and(|real| seen.insert(real)) {
            if found.len() == MAX_SUBFOLDERS {
                return Err(ReadError::TooManyFolders(dir.into()));
            }
            found.push(inside);
        }
    }
    Ok(found)
}

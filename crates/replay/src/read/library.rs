//! A folder of recordings together with the folders directly in it that hold recordings: each process that
//! records may have its own, and all of them are read as one. A run may lie in several of them: each has the
//! episodes of some of its lanes.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rollhouse_core::{EpisodeName, RunId};

use crate::code::episode::{Episode, EpisodeInfo, Standing};
use crate::code::run_record::KnownRuns;
use crate::disk::Disk;
use crate::limits::{MAX_STORE_FOLDERS, MAX_SUBFOLDERS};
use crate::read::archived::none_is_away;
use crate::read::copies::{Copies, SharedLanes};
use crate::read::query::Query;
use crate::read::read_error::ReadError;
use crate::read::replays::{Before, Replays, names_in};
use crate::read::run_filter::RunFilter;
use crate::read::select::select;
use crate::read::stats::FolderStats;
use crate::stored::aside::asides_dir;
use crate::stored::catalogue::Catalogue;
use crate::stored::damage::Damage;
use crate::stored::lock::STORE_LOCK;
use crate::stored::names::segments_dir;
use crate::stored::run_table::RunKey;

/// The recordings of a folder and of those directly in it, as they were when opened. Takes no lock, like
/// [`Replays`]. All methods may block for the disk.
#[derive(Debug)]
pub struct Library {
    /// The folder that was opened, then the folders in it by name.
    pub(crate) folders: Vec<Arc<Replays>>,
    /// Lanes of runs that several folders have recorded.
    shared: Arc<SharedLanes>,
    /// The episodes of shared lanes; read once they are asked for.
    copies: OnceLock<Copies>,
    runs: Arc<KnownRuns>,
}

/// An episode, and the folder it is read from.
#[derive(Debug, Clone)]
pub struct LibraryEpisode {
    /// The episode as listings show it.
    pub info: EpisodeInfo,
    /// The folder that the episode is read from.
    pub folder: Arc<Replays>,
}

impl Library {
    /// Opens the folder `dir` and those directly in it that hold recordings, at most [`MAX_SUBFOLDERS`], of a store at
    /// most [`MAX_STORE_FOLDERS`]. A folder that several names lead to is read once.
    ///
    /// # Errors
    /// If the folder is not there, too many are in it, or a file operation fails. Damage is no error.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, ReadError> {
        let gathered = Catalogue::open(&*disk, dir);
        Self::open_after(&disk, dir, &gathered, Arc::default(), |_| None)
    }

    /// Opens the folders that are there now; `known` are those that were opened before.
    fn open_after<'a>(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        gathered: &Catalogue,
        runs: Arc<KnownRuns>,
        known: impl Fn(&Path) -> Option<&'a Replays>,
    ) -> Result<Self, ReadError> {
        Self::open_with(disk, dir, runs.clone(), |disk, inside| {
            let segments = known(inside).map(|folder| &folder.segments);
            // A folder that somebody records into has a catalogue of its own.
            let has_own = inside != dir && segments.is_none();
            let own = has_own.then(|| Catalogue::open(&*disk, inside));
            let catalogue = own.as_ref().filter(|own| !own.is_empty()).unwrap_or(gathered);
            Replays::open_after(disk, inside, Before { segments, catalogue, runs: &runs })
        })
    }

    /// Opens the folder as [`Library::open`] does, but reads every byte and trusts no catalogue: finds all damage.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open_scanning(disk: Arc<dyn Disk>, dir: &Path) -> Result<Self, ReadError> {
        Self::open_with(&disk, dir, Arc::default(), Replays::open_scanning)
    }

    /// Opens the episodes that the store in the folder `dir` has set aside: episodes of its segments that contradict
    /// what came first, and all that is readable of segments that are damaged or came under a number that was taken. An
    /// episode may be there several times; each is listed.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open_set_aside(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Self, ReadError> {
        let has_asides = |inside: &PathBuf| disk.real_dir(&asides_dir(inside)).is_some();
        let mut opened = Vec::new();
        for inside in subfolders(&**disk, dir)?.into_iter().filter(has_asides) {
            opened.push(Replays::open_set_aside(disk.clone(), &inside));
        }
        let quarantine = dir.join(QUARANTINE);
        if disk.real_dir(&quarantine).is_some() {
            for inside in subfolders(&**disk, &quarantine)? {
                opened.push(Replays::open_scanning(disk.clone(), &inside));
            }
        }
        let mut folders = Vec::new();
        for replays in opened {
            match replays {
                Ok(replays) => folders.push(Arc::new(replays)),
                // Dropped to keep a budget since the folder was listed.
                Err(ReadError::NoFolder(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { folders, shared: Arc::default(), copies: OnceLock::new(), runs: Arc::default() })
    }

    /// Finds every episode of that name, from each folder all that it has.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn find_all(&self, name: EpisodeName) -> Result<Vec<LibraryEpisode>, ReadError> {
        let mut found = Vec::new();
        for folder in &self.folders {
            folder.for_each(|info| {
                if info.name == name {
                    found.push(LibraryEpisode { info, folder: folder.clone() });
                }
            })?;
        }
        Ok(found)
    }

    fn open_with(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        runs: Arc<KnownRuns>,
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
        let opened: Vec<&Replays> = folders.iter().map(|folder| &**folder).collect();
        if disk.has_real_paths() {
            none_is_away(&**disk, dir, &opened)?;
        }
        let shared = SharedLanes::of(&opened);
        Ok(Self { folders, shared: Arc::new(shared), copies: OnceLock::new(), runs })
    }

    /// Opens the same folders as they are now; sealed segments that were known are not read again. Cheap where little
    /// has changed.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn opened_again(&self) -> Result<Self, ReadError> {
        let root = &self.folders[0];
        let known =
            |dir: &Path| self.folders.iter().find(|folder| folder.dir() == dir).map(|folder| &**folder);
        // What has come since has its entries beside it.
        let gathered = Catalogue::new(root.dir());
        Self::open_after(&root.disk, root.dir(), &gathered, self.runs.clone(), known)
    }

    /// Returns the episodes of shared lanes. They are read once.
    pub(crate) fn copies(&self) -> Result<&Copies, ReadError> {
        if let Some(known) = self.copies.get() {
            return Ok(known);
        }
        let copies = Copies::read(&self.replays(), &self.shared)?;
        Ok(self.copies.get_or_init(|| copies))
    }

    fn replays(&self) -> Vec<&Replays> {
        self.folders.iter().map(|folder| &**folder).collect()
    }

    /// Returns the folders: the one that was opened, then those in it by name.
    pub fn folders(&self) -> &[Arc<Replays>] {
        &self.folders
    }

    /// Returns whether a writer had any of the folders when they were opened.
    pub fn is_writing(&self) -> bool {
        self.folders.iter().any(|folder| folder.is_writing())
    }

    /// Counts the episodes, as [`Replays::count`] does; one that several folders have counts once.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn count(&self) -> Result<u64, ReadError> {
        let all = self.folders.iter().try_fold(0, |sum, folder| Ok(sum + folder.count()?))?;
        Ok(all - self.copies()?.further().len() as u64)
    }

    /// Counts the episodes that no listing has because their beginning is gone, as [`Replays::incomplete`] does.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn incomplete(&self) -> Result<u64, ReadError> {
        self.folders.iter().try_fold(0, |sum, folder| Ok(sum + folder.incomplete()?))
    }

    /// Lists the episodes that a query asks for, in its order over all folders. No more are held in memory than the
    /// query's limit and those that several folders have. Of these one copy is given: the first that ended.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn list(&self, query: &Query) -> Result<Vec<LibraryEpisode>, ReadError> {
        let episode =
            |(folder, info): (usize, _)| LibraryEpisode { info, folder: self.folders[folder].clone() };
        Ok(select(&self.replays(), query, self.copies()?)?.into_iter().map(episode).collect())
    }

    /// Finds the episode of that name. Of several equal copies it is the first; one that finished goes before one that
    /// was cut from outside, one that ended before one that broke off, and a whole one before one that lacks a part.
    ///
    /// # Errors
    /// If there is none, several runs have one, several folders have different ones, or a file operation fails.
    pub fn find(&self, name: EpisodeName) -> Result<LibraryEpisode, ReadError> {
        let mut found: Vec<LibraryEpisode> = Vec::new();
        let mut missing = ReadError::NoEpisode(name);
        for folder in &self.folders {
            match folder.find(name) {
                Ok(info) => found.push(LibraryEpisode { info, folder: folder.clone() }),
                Err(ReadError::NoEpisode(_)) => {}
                // Another folder may have all of it.
                Err(error @ ReadError::Incomplete { .. }) => missing = error,
                Err(error) => return Err(error),
            }
        }
        let Some(chosen) = best_copy(&found)? else {
            let folders = found.iter().map(|episode| episode.folder.dir().to_path_buf()).collect();
            return Err(ReadError::InSeveralFolders { name, folders });
        };
        if found.is_empty() { Err(missing) } else { Ok(found.swap_remove(chosen)) }
    }

    /// Lists the episodes that are under way in the folders, as [`Replays::under_way`] does.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn under_way(&self) -> Result<Vec<LibraryEpisode>, ReadError> {
        let mut all = Vec::new();
        for folder in &self.folders {
            let open = folder.under_way()?.into_iter();
            all.extend(open.map(|info| LibraryEpisode { info, folder: folder.clone() }));
        }
        Ok(all)
    }

    /// Adds up what the folders hold. A run or an episode that several have counts once; segments and bytes are those
    /// of all.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn stats(&self) -> Result<FolderStats, ReadError> {
        let mut sum = FolderStats::default();
        for folder in &self.folders {
            sum.add(folder.stats()?);
        }
        for (_, info) in self.copies()?.further() {
            sum.remove_episode(info.env(), info.outcome, info.length, info.total_reward);
        }
        let runs = self.folders.iter().flat_map(|folder| folder.segments.values());
        let runs: BTreeSet<_> = runs.flat_map(|segment| segment.runs.iter().map(RunKey::run)).collect();
        sum.runs = runs.len() as u64;
        Ok(sum)
    }

    /// Adds up what the folders hold of runs that pass, see [`Replays::stats_of`].
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn stats_of(&self, of: &RunFilter) -> Result<FolderStats, ReadError> {
        let mut sum = FolderStats::default();
        for folder in &self.folders {
            sum.add(folder.stats_of(of)?);
        }
        for (_, info) in self.copies()?.further().iter().filter(|(_, info)| of.passes(info.run_id())) {
            sum.remove_episode(info.env(), info.outcome, info.length, info.total_reward);
        }
        let runs = self.folders.iter().flat_map(|folder| folder.segments.values());
        let runs = runs.flat_map(|segment| segment.runs.iter().map(RunKey::run));
        let runs: BTreeSet<RunId> = runs.filter(|run| of.passes(*run)).collect();
        sum.runs = runs.len() as u64;
        Ok(sum)
    }

    /// Returns the stretches that are known not to be intact, each with its folder. They are complete only after
    /// [`Library::open_scanning`].
    pub fn damage(&self) -> impl Iterator<Item = (&Replays, &Damage)> {
        self.folders.iter().flat_map(|folder| folder.damage().map(|damage| (&**folder, damage)))
    }
}

impl LibraryEpisode {
    /// Compares the places of two episodes on the disk: reading them in this order costs least.
    pub fn compare_places(&self, other: &Self) -> Ordering {
        let folders = self.folder.dir().cmp(other.folder.dir());
        folders.then_with(|| self.info.compare_places(&other.info))
    }
}

/// Returns the place of the copy that is read; `None` if two copies that are equally good differ. 0 if there are no
/// copies.
fn best_copy(found: &[LibraryEpisode]) -> Result<Option<usize>, ReadError> {
    if found.len() < 2 {
        return Ok(Some(0));
    }
    let mut best: Option<(usize, (Standing, bool), Option<Episode>)> = None;
    for (at, copy) in found.iter().enumerate() {
        let episode = match copy.folder.load(&copy.info) {
            Ok(episode) => Some(episode),
            Err(ReadError::Disk(error)) => return Err(ReadError::Disk(error)),
            Err(_) => None,
        };
        let rank = (copy.info.standing(), episode.is_some());
        match &best {
            Some((_, known, _)) if *known > rank => {}
            // Where it was cut from outside, the cause may differ.
            Some((_, known, _)) if *known == rank && !copy.info.outcome.is_finished() => {}
            Some((_, known, other)) if *known == rank => {
                let same = other.as_ref().zip(episode.as_ref()).is_some_and(|(a, b)| a.has_contents_of(b));
                if !same {
                    return Ok(None);
                }
            }
            _ => best = Some((at, rank, episode)),
        }
    }
    Ok(best.map(|(at, ..)| at))
}

/// Name of the folder in which a store keeps segments that are set aside as a whole, each in a folder of its own.
pub const QUARANTINE: &str = "quarantine";

/// Returns whether a folder has a place for segments, as every folder does that was ever recorded into.
pub(crate) fn holds_recordings(disk: &dyn Disk, dir: &Path) -> bool {
    disk.real_dir(&segments_dir(dir)).is_some()
}

/// Returns the folders directly in `dir` that hold recordings, by name. A folder that cannot be looked into counts as
/// holding none.
pub(crate) fn subfolders(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let mut names = names_in(disk, dir)?;
    names.sort_unstable();
    // A store has a folder for each spool that ever shipped to it, and as many of segments that are set aside.
    let is_store =
        names.iter().any(|name| name == STORE_LOCK) || dir.file_name() == Some(QUARANTINE.as_ref());
    let most = if is_store { MAX_STORE_FOLDERS } else { MAX_SUBFOLDERS };
    // A link to one of them, or to `dir`, must not show episodes twice.
    let mut seen: BTreeSet<PathBuf> = disk.real_dir(&segments_dir(dir)).into_iter().collect();
    let mut found = Vec::new();
    for inside in names.iter().map(|name| dir.join(name)) {
        if disk.real_dir(&segments_dir(&inside)).is_some_and(|real| seen.insert(real)) {
            if found.len() == most {
                return Err(ReadError::TooManyFolders { dir: dir.into(), most });
            }
            found.push(inside);
        }
    }
    Ok(found)
}

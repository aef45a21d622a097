//! A bounded folder of segments that were fetched from the archive to be read; the one read longest ago goes first.
//!
//! Every byte of a segment is checked before anybody reads from it. A segment for which several readers wait is fetched
//! once. The folder is emptied when the store is opened: nothing in it was ever synced.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};
use rollhouse_archive::{Checked, Flaw, SegmentId, Shelf, TargetError, TargetFault};
use rollhouse_core::panic_message;
use rollhouse_replay::{Disk, DiskFile};

/// The folder and the shelf that fills it.
#[derive(Debug)]
pub(crate) struct Fetched {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Bytes of the folder; the segment that was fetched last always stays.
    limit: u64,
    shelf: Arc<Shelf>,
    state: Mutex<FetchedState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FetchedState {
    files: BTreeMap<SegmentId, Kept>,
    bytes: u64,
    turn: u64,
    under_way: BTreeMap<SegmentId, Arc<OnceLock<Fetch>>>,
    stopped: bool,
    counts: FetchCounts,
}

#[derive(Debug)]
struct Kept {
    bytes: u64,
    used: u64,
}

type Fetch = Result<Arc<dyn DiskFile>, ArchiveError>;

/// Counts of reads of segments that are in the archive only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FetchCounts {
    /// Number of reads of a segment that was in the folder.
    pub hits: u64,
    /// Number of segments that were fetched.
    pub misses: u64,
    /// Number of segments that could not be fetched, or came damaged.
    pub failed: u64,
}

/// The reason why the archive did not give or take a segment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub(crate) struct ArchiveError {
    pub(crate) what: String,
    /// Whether it may do so later, although nobody changes anything.
    pub(crate) is_away: bool,
}

impl Fetched {
    /// Opens the folder `dir`, which is made and emptied. Blocks for the disk.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: PathBuf, limit: u64, shelf: Arc<Shelf>) -> io::Result<Self> {
        disk.create_dir(&dir)?;
        for name in disk.list(&dir)? {
            disk.remove(&dir.join(name))?;
        }
        Ok(Self { disk, dir, limit, shelf, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Returns a segment's file, which is fetched if it is not here. Blocks for the archive.
    pub(crate) fn get(self: &Arc<Self>, id: &SegmentId) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        let slot = loop {
            if state.stopped {
                return Err(stopped());
            }
            if let Some(file) = self.kept(&mut state, id) {
                return Ok(file);
            }
            match state.under_way.get(id) {
                Some(slot) => break slot.clone(),
                None if state.under_way.len() < MAX_FETCHES => break self.begin(&mut state, id)?,
                None => self.changed.wait(&mut state),
            }
        };
        while slot.get().is_none() && !state.stopped {
            self.changed.wait(&mut state);
        }
        slot.get().cloned().unwrap_or_else(|| Err(ArchiveError::stopped())).map_err(io::Error::from)
    }

    /// Ends all waits for a segment. Fetches that are under way end by themselves.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    pub(crate) fn counts(&self) -> FetchCounts {
        self.state.lock().counts
    }

    fn kept(&self, state: &mut FetchedState, id: &SegmentId) -> Option<Arc<dyn DiskFile>> {
        state.turn += 1;
        let kept = state.files.get_mut(id)?;
        kept.used = state.turn;
        if let Ok(file) = self.disk.open(&self.path(id)) {
            state.counts.hits += 1;
            return Some(Arc::from(file));
        }
        // Somebody else has removed it.
        state.bytes -= state.files.remove(id)?.bytes;
        None
    }

    fn begin(self: &Arc<Self>, state: &mut FetchedState, id: &SegmentId) -> io::Result<Arc<OnceLock<Fetch>>> {
        let slot = Arc::<OnceLock<Fetch>>::default();
        let (here, id_of, filled) = (Arc::clone(self), id.clone(), Arc::clone(&slot));
        // Task: fetch from the archive.
        std::thread::Builder::new().name("rollhouse-fetch".to_owned()).spawn(move || {
            let fetched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| here.fetch(&id_of)));
            let fetched = fetched.unwrap_or_else(|panic| Err(ArchiveError::failed(panic_message(&*panic))));
            let mut state = here.state.lock();
            state.under_way.remove(&id_of);
            state.counts.failed += u64::from(fetched.is_err());
            // Set by this thread alone.
            let _set = filled.set(fetched);
            here.changed.notify_all();
        })?;
        state.counts.misses += 1;
        state.under_way.insert(id.clone(), slot.clone());
        Ok(slot)
    }

    /// Fetches a segment and puts it into the folder.
    fn fetch(&self, id: &SegmentId) -> Fetch {
        let checked = fetch(&self.shelf, id)?;
        let path = self.path(id);
        let bytes = checked.bytes.len() as u64;
        self.make_room(bytes);
        let put = || -> io::Result<Arc<dyn DiskFile>> {
            match self.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let file = self.disk.create(&path)?;
            file.append_all(&checked.bytes)?;
            Ok(Arc::from(file))
        };
        let file = put().map_err(|error| {
            // On a full disk it must not stand in the way.
            let _gone = self.disk.remove(&path);
            let what = format!("segment {id} was fetched from the archive and cannot be kept here: {error}");
            ArchiveError { what, is_away: true }
        })?;
        let mut state = self.state.lock();
        state.turn += 1;
        state.bytes += bytes;
        let used = state.turn;
        if let Some(before) = state.files.insert(id.clone(), Kept { bytes, used }) {
            state.bytes -= before.bytes;
        }
        Ok(file)
    }

    fn make_room(&self, bytes: u64) {
        let mut state = self.state.lock();
        while state.bytes + bytes > self.limit {
            let oldest = state.files.iter().min_by_key(|(_, kept)| kept.used).map(|(id, _)| id.clone());
            let Some((id, kept)) = oldest.and_then(|id| state.files.remove_entry(&id)) else { return };
            state.bytes -= kept.bytes;
            // Who reads of it goes on doing so.
            let _gone = self.disk.remove(&self.path(&id));
        }
    }

    fn path(&self, id: &SegmentId) -> PathBuf {
        self.dir.join(format!("{}.{:010}-{:08x}.seg", id.folder, id.number, id.crc))
    }
}

/// Takes a segment out of an archive and checks every byte. Blocks for the archive.
pub(crate) fn fetch(shelf: &Shelf, id: &SegmentId) -> Result<Checked, ArchiveError> {
    let archive = shelf.target().shown();
    match shelf.fetch(id) {
        Ok(Ok(checked)) => Ok(checked),
        Ok(Err(flaw)) => {
            // Of an archive that is gone as a whole nothing is there either.
            if let (Flaw::Missing { .. }, Err(error)) = (&flaw, shelf.target().is_there()) {
                return Err(ArchiveError::of(archive, &error));
            }
            let what = format!("segment {id} is damaged in the archive {archive}: {flaw}");
            Err(ArchiveError { what, is_away: false })
        }
        Err(error) => Err(ArchiveError::of(archive, &error)),
    }
}

impl ArchiveError {
    /// Makes the error for an answer of an archive.
    pub(crate) fn of(archive: &str, error: &TargetError) -> Self {
        let mut what = format!("the archive {archive} fails: {error}");
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            what = format!("{what}: {error}");
            cause = error.source();
        }
        Self { what, is_away: error.fault != TargetFault::Failed }
    }

    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_away: false }
    }

    fn stopped() -> Self {
        Self { what: "the coordinator is going away".to_owned(), is_away: true }
    }

    /// Returns the error of the archive behind an error of a file of the store.
    pub(crate) fn behind(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<ArchiveError> for io::Error {
    fn from(error: ArchiveError) -> Self {
        Self::other(error)
    }
}

fn stopped() -> io::Error {
    ArchiveError::stopped().into()
}

/// The folder's name in the store.
pub(crate) const FETCHED: &str = "fetched";

/// Returns the path of the folder in a store.
pub(crate) fn fetched_dir(store: &Path) -> PathBuf {
    store.join(FETCHED)
}

/// Number of segments that are fetched at a time; each is in memory as a whole.
const MAX_FETCHES: usize = 2;

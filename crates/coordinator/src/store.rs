//! The store: what the nodes recorded, gathered.
//!
//! ```text
//! <store>/store.lock                        held while the store is open
//! <store>/arrivals                          in which order segments came
//! <store>/archived                          which segments the archive has, if there is one
//! <store>/<node>-<spool>/segments/          one folder per spool, read by `Library` like any other
//! <store>/<node>-<spool>/summaries/         what stands in each segment; a cache
//! <store>/<node>-<spool>/labels             what people say of episodes
//! <store>/<node>-<spool>/aside/             which episodes of a segment contradict what was there before
//! <store>/fetched/                          segments of the archive that are being read; emptied when the store is opened
//! <store>/incoming/                         segments while they are received; emptied when the store is opened
//! <store>/quarantine/<node>-<spool>.<number>-<crc>/segments/
//!                                           a segment that is damaged, or came under a number that was taken
//! ```
//!
//! A segment appears under its name when every byte of it is on the disk and was found intact, and is acknowledged
//! when its name is on the disk too: after a crash at any point each segment is there whole or not at all, and the
//! acknowledged ones are there.
//!
//! An episode's first durable copy wins. One that is in the store with other contents is set aside, and no other of
//! its segment: the segment is kept whole, and what stands beside it, durable before the segment has its name, says
//! which of its episodes readers leave out. Equal copies are kept and read once. What is set aside is never told as
//! stored ([`Store::confirm`]). Everything here blocks for the disk.
//!
//! With an archive every segment goes there as soon as it came, and is read back; what is there leaves this disk to keep
//! the budget, the oldest first, and is listed and read as before. Nothing else leaves it, whatever comes.

mod archiver;
mod archiving;
mod arrivals;
mod away;
mod fetched;
mod labelling;
mod querying;
mod reads;
mod receiving;
mod serving;
mod shelf;
mod stock;
mod streaming;

pub(crate) use archiver::Archiver;
pub use archiver::{ArchiveConfig, ArchiveFigures};
pub use archiving::Amount;
pub use fetched::FetchCounts;
pub(crate) use reads::{Reader, Reads};
pub use receiving::{Receive, Receiving};

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rollhouse_core::RunId;
use rollhouse_replay::{
    Disk, DiskError, LabelError, OpenError, QUARANTINE, SegmentPlace, WriterLock, aside_path, gather,
    is_spool_name, lock_store, rows_path, segment_path, summary_path,
};
use rollhouse_wire::limits::MAX_NAME_BYTES;
use rollhouse_wire::{PoolStatus, Refusal, RefusalCode, StoreStatus};

use archiver::Archive;
use arrivals::Arrivals;
use fetched::ArchiveError;
use shelf::{Shelf, Taken};
use stock::{quarantine_dir, remove_emptied};

/// The recordings of a cluster. Clones are handles to the same store. All methods may block for the disk.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// How much a store keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreConfig {
    /// Bytes of all segments at which those that came first are dropped, whole and counted. The one that came last
    /// stays in any case.
    pub budget_bytes: u64,
    /// Bytes of segments that are set aside as a whole at which those that came first are dropped.
    pub quarantine_bytes: u64,
}

/// What a store has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreCounts {
    /// Segments that were received and are durable.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Segments that were there already when they were shipped.
    pub known: u64,
    /// Segments that were set aside as a whole.
    pub quarantined: u64,
    /// Episodes of other segments that were set aside.
    pub set_aside: u64,
    /// Segments that what came was not compared with, because they cannot be read.
    pub unreadable: u64,
    /// Segments that were dropped to keep the budget.
    pub dropped_segments: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Segments that left the disk to keep the budget and are in the archive.
    pub left_segments: u64,
    /// Their bytes.
    pub left_bytes: u64,
    /// Segments that the archive had and were listed again.
    pub adopted: u64,
    /// Segments that were damaged when the store was opened.
    pub damaged: u64,
    /// Segments whose bytes did not all arrive, or not as they were sent, or could not be written.
    pub failed: u64,
}

#[derive(Debug)]
struct Inner {
    /// With what is in the archive.
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    config: StoreConfig,
    shelf: Mutex<Shelf>,
    /// Held while a received segment is judged and put on its place: one at a time, so that two with the same
    /// episodes cannot both be the first, and no more than one is in memory.
    placing: Mutex<Placing>,
    /// For questions about episodes; whoever places segments never takes it.
    known: Mutex<querying::Known>,
    /// What people say of episodes. Whoever changes that holds it, and takes the shelf meanwhile.
    labelling: Mutex<labelling::Labelling>,
    /// Held while the catalogue is gathered.
    gathering: Mutex<()>,
    archive: Option<Arc<Archive>>,
    _lock: WriterLock,
}

/// What has to be known to put a segment on its place.
#[derive(Debug)]
struct Placing {
    /// In which order segments came.
    arrivals: Arrivals,
    /// The file of a segment that was about to get its name when something failed: whether it has it is not known.
    unsure: Option<PathBuf>,
}

impl Placing {
    /// Takes a segment away that was not acknowledged and may have its name all the same: it would be found when the
    /// store is next opened, as one that came before what has come since, and was not compared with it.
    fn settle(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        let Some(path) = &self.unsure else { return Ok(()) };
        match disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::disk("remove", path, error));
            }
            _ => {}
        }
        let dir = path.parent().unwrap_or(path);
        match disk.sync_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::disk("sync", dir, error));
            }
            _ => {}
        }
        self.unsure = None;
        Ok(())
    }
}

impl Store {
    /// Opens the store in the folder `dir`, which is made if it is not there: takes its lock, removes what was being
    /// received when it was last closed, and takes stock. Reads every segment that has no summary.
    ///
    /// # Errors
    /// If somebody else has it, or a file operation fails. Damage is no error.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, config: StoreConfig) -> Result<Self, OpenError> {
        Self::open_with(disk, dir, config, None)
    }

    /// As [`Store::open`], with an archive beside it. Does not wait for that.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: StoreConfig,
        archive: Option<ArchiveConfig>,
    ) -> Result<Self, OpenError> {
        let lock = lock_store(&*disk, dir)?;
        for inside in [INCOMING, QUARANTINE] {
            let path = dir.join(inside);
            disk.create_dir(&path).map_err(|e| opening("create", &path, e))?;
        }
        disk.sync_dir(dir).map_err(|e| opening("sync", dir, e))?;
        let incoming = dir.join(INCOMING);
        for name in disk.list(&incoming).map_err(|e| opening("list", &incoming, e))? {
            let path = incoming.join(name);
            disk.remove(&path).map_err(|e| opening("remove", &path, e))?;
        }
        let archive = archive.map(|archive| Archive::open(disk.clone(), dir, archive)).transpose()?;
        let away = archive.as_ref().map(|(archive, _)| archive.away.clone());
        let disk = away.as_ref().map_or(disk, |away| away.clone());
        let mut arrivals = Arrivals::new(dir);
        let mut shelf = stock::take(&*disk, dir, &mut arrivals, away.as_deref())?;
        if let Some((archive, noted)) = &archive {
            archive.take_stock(noted, &mut shelf, dir)?;
        }
        let labelling = labelling::Labelling::load(&*disk, dir, &mut shelf).map_err(|error| match error {
            LabelError::Disk(error) => OpenError::Disk(error),
            error => opening("read the labels of", dir, io::Error::other(error)),
        })?;
        let labelling = Mutex::new(labelling);
        let (shelf, archive) = (Mutex::new(shelf), archive.map(|(archive, _)| Arc::new(archive)));
        let (placing, known) = (Mutex::new(Placing { arrivals, unsure: None }), Mutex::default());
        let gathering = Mutex::default();
        let dir = dir.into();
        let inner =
            Inner { disk, dir, config, shelf, placing, known, labelling, gathering, archive, _lock: lock };
        let store = Self { inner: Arc::new(inner) };
        store.keep_budget();
        Ok(store)
    }

    /// What it has, and what is set aside. Does not block for the disk.
    pub fn status(&self) -> StoreStatus {
        self.shelf().status()
    }

    /// What it has done since it was opened. Does not block for the disk.
    pub fn counts(&self) -> StoreCounts {
        self.shelf().counts
    }

    /// Has the catalogue gather what is known of the segments, so that the store is opened faster next time; does
    /// nothing while somebody else is at it. Nothing waits for it. Blocks for the disk, some seconds for thousands of
    /// segments that are not gathered yet.
    pub fn gather(&self) {
        if let Ok(_alone) = self.inner.gathering.try_lock() {
            let places: Vec<SegmentPlace> = self.shelf().places().collect();
            gather(&*self.inner.disk, &self.inner.dir, &places);
        }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.inner.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a coordinator says of a pool, as far as the store can confirm it: what is set aside is not stored.
    pub fn confirm(&self, pool: RunId, status: PoolStatus) -> PoolStatus {
        let shelf = self.shelf();
        let (set_aside, damaged) = (shelf.set_aside(pool.as_u128()), shelf.is_damaged(pool.as_u128()));
        let shipped = status.shipped && set_aside == 0 && !damaged;
        PoolStatus { shipped, settled: status.shipped, set_aside, ..status }
    }

    /// Has nobody wait for the archive any more, and the thread that archives end.
    pub(crate) fn stop_archiving(&self) {
        if let Some(archive) = &self.inner.archive {
            archive.stop();
        }
    }

    /// Removes the segments that came first while all together exceed the budget: those that the archive has, which stay
    /// listed, or without one for good. One that cannot be removed is forgotten all the same and found again when the
    /// store is next opened.
    fn keep_budget(&self) {
        let Inner { disk, dir, config, .. } = &*self.inner;
        loop {
            let Some(leaving) = self.shelf().let_oldest_leave(config.budget_bytes) else { break };
            let path = segment_path(&dir.join(&*leaving.folder), leaving.number);
            let removed =
                disk.remove(&path).and_then(|()| path.parent().map_or(Ok(()), |d| disk.sync_dir(d)));
            if removed.is_ok() {
                let mut shelf = self.shelf();
                shelf.counts.left_segments += 1;
                shelf.counts.left_bytes += leaving.bytes;
            }
        }
        loop {
            let Some(taken) = self.shelf().take_oldest(config.budget_bytes) else { break };
            let Taken { folder, number, bytes, emptied } = taken;
            let dir = dir.join(&*folder);
            let path = segment_path(&dir, number);
            // A summary without a segment is never looked at.
            let _cache = disk.remove(&summary_path(&dir, number));
            let _cache = disk.remove(&rows_path(&dir, number));
            let removed =
                disk.remove(&path).and_then(|()| path.parent().map_or(Ok(()), |d| disk.sync_dir(d)));
            if removed.is_ok() {
                // Only now: while the segment is there, so is what it must not show.
                let _none = disk.remove(&aside_path(&dir, number));
                let mut shelf = self.shelf();
                shelf.counts.dropped_segments += 1;
                shelf.counts.dropped_bytes += bytes;
            }
            if emptied {
                self.forget_labels(&folder);
                remove_emptied(&**disk, &dir);
            }
        }
        loop {
            let oldest = self.shelf().take_oldest_quarantined(config.quarantine_bytes);
            let Some(arrival) = oldest else { return };
            let dir = quarantine_dir(dir, &arrival);
            let _kept = disk.remove(&segment_path(&dir, arrival.1));
            remove_emptied(&**disk, &dir);
        }
    }
}

fn opening(operation: &'static str, path: &Path, error: io::Error) -> OpenError {
    OpenError::Disk(DiskError::new(operation, path, error))
}

/// The folder of a node's spool. Every spool's name has the same length and no `-`, so that no two nodes' folders can
/// have the same name.
fn folder_of(node: &str, spool: &str) -> Result<String, StoreError> {
    let folder = format!("{node}-{spool}");
    if !is_spool_name(spool) {
        return Err(StoreError::Spool(spool.to_owned()));
    }
    if node.is_empty() || !is_name(&folder) {
        return Err(StoreError::Name(folder));
    }
    Ok(folder)
}

/// Whether a name may be that of a folder: it comes from a node's certificate and its spool.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=2 * MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

/// Why the store could not do what was asked.
#[derive(Debug)]
pub enum StoreError {
    /// The name of a node that cannot be part of a path.
    Name(String),
    /// Something that is no spool's name.
    Spool(String),
    /// A segment with a number or a length that none has.
    Segment {
        /// What is out of bounds.
        what: &'static str,
        /// As given.
        given: u64,
        /// The most it may be.
        most: u64,
    },
    /// So many segments are being received that another must wait.
    Busy {
        /// How many.
        receiving: usize,
    },
    /// The store has as many folders as readers take, or of that node as many as one may have.
    TooManyFolders {
        /// How many.
        folders: usize,
        /// How many there may be.
        most: usize,
    },
    /// Other bytes arrived than were announced.
    Arrived {
        /// Bytes and CRC-32C as announced.
        announced: (u64, u32),
        /// As they arrived.
        arrived: (u64, u32),
    },
    /// Nothing stands at that path.
    NotFound(String),
    /// More bytes are asked for at a time than are given.
    TooMuch {
        /// As asked.
        bytes: u32,
    },
    /// A question about episodes that makes no sense.
    Query(String),
    /// The budget is used up by what the archive has not taken yet.
    Full {
        /// The archive.
        archive: String,
    },
    /// A segment that is in the archive cannot be read.
    Archive {
        /// Why.
        what: String,
        /// Whether it may later, without anybody changing anything here.
        is_away: bool,
    },
    /// A file operation failed.
    Disk(DiskError),
}

impl StoreError {
    /// What a peer is told.
    pub fn refusal(&self) -> Refusal {
        let code = match self {
            Self::Busy { .. } => return Refusal::busy(self.to_string(), BUSY_RETRY_MS),
            // Sent again, it may arrive whole.
            Self::Arrived { .. } => return Refusal::busy(self.to_string(), BUSY_RETRY_MS),
            Self::Name(_) | Self::Spool(_) | Self::Segment { .. } | Self::TooMuch { .. } | Self::Query(_) => {
                RefusalCode::BadRequest
            }
            Self::TooManyFolders { .. } => RefusalCode::Quota,
            Self::Full { .. } | Self::Archive { is_away: true, .. } => {
                return Refusal::busy(self.to_string(), FULL_RETRY_MS);
            }
            Self::Archive { .. } => RefusalCode::Internal,
            Self::NotFound(_) => RefusalCode::NotFound,
            // There may be room later.
            Self::Disk(error) if error.is_full() => return Refusal::busy(self.to_string(), FULL_RETRY_MS),
            Self::Disk(_) => RefusalCode::Internal,
        };
        Refusal::new(code, self.to_string())
    }

    fn disk(operation: &'static str, path: &Path, error: io::Error) -> Self {
        if let Some(ArchiveError { what, is_away }) = ArchiveError::behind(&error) {
            return Self::Archive { what: what.clone(), is_away: *is_away };
        }
        Self::Disk(DiskError::new(operation, path, error))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spool(name) => write!(f, "{name:?} is no name of a spool: 8 letters and digits"),
            Self::Name(name) => write!(f, "{name:?} cannot be the name of a folder in the store"),
            Self::Segment { what, given, most } => write!(f, "{what} {given} of a segment, at most {most}"),
            Self::Busy { receiving } => write!(f, "{receiving} segments are being received already"),
            Self::TooManyFolders { folders, most } => {
                write!(f, "the store has {folders} folders already of {most} that it may have")
            }
            Self::Arrived { announced, arrived } => write!(
                f,
                "{} bytes with CRC {:08x} arrived of a segment announced with {} and {:08x}",
                arrived.0, arrived.1, announced.0, announced.1
            ),
            Self::NotFound(path) => write!(f, "there is no {path:?} in the store"),
            Self::TooMuch { bytes } => write!(
                f,
                "{bytes} bytes asked for at a time, at most {}",
                rollhouse_wire::limits::MAX_STORE_READ_BYTES
            ),
            Self::Query(what) | Self::Archive { what, .. } => f.write_str(what),
            Self::Full { archive } => {
                write!(f, "the store is full of what the archive {archive} has not taken yet")
            }
            Self::Disk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Disk(error) => error.source(),
            _ => None,
        }
    }
}

const INCOMING: &str = "incoming";
/// When to ship again what could not be taken.
const BUSY_RETRY_MS: u64 = 1_000;
/// When to ship again what a full disk did not take.
const FULL_RETRY_MS: u64 = 5_000;

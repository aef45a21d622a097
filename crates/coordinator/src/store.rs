//! The store, which gathers the recordings of the nodes.
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
//! An episode's first durable copy wins. One that is in the store with other contents is set aside, and no other of its
//! segment: the segment is kept whole, and what stands beside it, durable before the segment has its name, says which
//! of its episodes readers leave out. Equal copies are kept and read once. An episode that is set aside never counts as
//! stored ([`Store::confirm`]). Everything here blocks for the disk.
//!
//! With an archive every segment goes there as soon as it has come, and is read back. Segments that are there leave
//! this disk to keep the budget, the oldest first, and are listed and read as before. No other segment leaves it,
//! whatever happens.

mod archive_plan;
mod archiver;
mod arrivals;
mod away;
mod counting;
mod cuts;
mod episodes;
mod fetched;
mod files;
mod labelling;
mod owners;
mod quarantine;
mod querying;
mod readable;
mod receiving;
mod shelf;
mod stock;

pub use archive_plan::Amount;
pub(crate) use archiver::Archiver;
pub use archiver::{ArchiveConfig, ArchiveFigures};
pub use fetched::FetchCounts;
pub(crate) use files::StoreFile;
pub(crate) use readable::Readable;
pub use receiving::{Receive, Receiving};

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rollhouse_core::{NODE_NAME_RULE, RunId, is_node_name};
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

/// The sizes to which a store is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreConfig {
    /// Bytes of all segments above which those that came first are dropped, whole and counted. The segment that came
    /// last always stays.
    pub budget_bytes: u64,
    /// Bytes of segments that are set aside as a whole above which those that came first are dropped.
    pub quarantine_bytes: u64,
}

/// Counts of a store since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreCounts {
    /// Number of segments that were received and are durable.
    pub received: u64,
    /// Bytes of these segments.
    pub received_bytes: u64,
    /// Number of segments that were there already when they were shipped.
    pub known: u64,
    /// Number of segments that were set aside as a whole.
    pub quarantined: u64,
    /// Number of episodes of other segments that were set aside.
    pub set_aside: u64,
    /// Number of segments that could not be compared with a new one because they cannot be read.
    pub unreadable: u64,
    /// Number of segments that were dropped to keep the budget.
    pub dropped_segments: u64,
    /// Bytes of these segments.
    pub dropped_bytes: u64,
    /// Number of segments that left the disk to keep the budget and are in the archive.
    pub left_segments: u64,
    /// Bytes of these segments.
    pub left_bytes: u64,
    /// Number of segments that the archive had and that were listed again.
    pub adopted: u64,
    /// Number of segments that were damaged when the store was opened.
    pub damaged: u64,
    /// Number of segments whose bytes did not all arrive, or not as they were sent, or could not be written.
    pub failed: u64,
}

#[derive(Debug)]
struct Inner {
    /// The disk, with the segments that are in the archive.
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    config: StoreConfig,
    shelf: Mutex<Shelf>,
    /// Locked while a received segment is judged and put in its place: one at a time, so that two with the same
    /// episodes cannot both be the first, and no more than one is in memory.
    placing: Mutex<Placing>,
    /// The knowledge behind questions about episodes; placing segments never locks it.
    known: Mutex<querying::Known>,
    /// Labels of episodes. A change holds this lock, and takes the shelf meanwhile.
    labelling: Mutex<labelling::Labelling>,
    /// Locked while the catalogue is gathered.
    gathering: Mutex<()>,
    archive: Option<Arc<Archive>>,
    /// Parts of segments for those who may not read all of them.
    cuts: cuts::Cuts,
    _lock: WriterLock,
}

/// The facts that are needed to put a segment in its place.
#[derive(Debug)]
struct Placing {
    /// The order in which segments came.
    arrivals: Arrivals,
    /// The file of a segment that was about to get its name when something failed: it is not known whether it has it.
    unsure: Option<PathBuf>,
}

impl Placing {
    /// Removes a segment that was not acknowledged and may have its name all the same. Otherwise the next start would
    /// find it as one that came before those that have come since, and it was not compared with them.
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
    /// Opens the store in the folder `dir`, which is made if it is not there: takes its lock, removes segments that
    /// were only partly received when it was last closed, and takes stock. Reads every segment that has no summary.
    ///
    /// # Errors
    /// If another process has it, or a file operation fails. Damage is no error.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, config: StoreConfig) -> Result<Self, OpenError> {
        Self::open_with(disk, dir, config, None)
    }

    /// Opens the store as [`Store::open`] does, with an archive beside it. Does not wait for the archive.
    ///
    /// # Errors
    /// Those of [`Store::open`].
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
        let (gathering, cuts) = (Mutex::default(), cuts::Cuts::default());
        let dir = dir.into();
        let _lock = lock;
        let inner =
            Inner { disk, dir, config, shelf, placing, known, labelling, gathering, archive, cuts, _lock };
        let store = Self { inner: Arc::new(inner) };
        store.keep_budget();
        Ok(store)
    }

    /// Returns the contents of the store in numbers, including what is set aside. Does not block for the disk.
    pub fn status(&self) -> StoreStatus {
        StoreStatus { budget: self.inner.config.budget_bytes, ..self.shelf().status() }
    }

    /// Returns the counts since it was opened. Does not block for the disk.
    pub fn counts(&self) -> StoreCounts {
        self.shelf().counts
    }

    /// Gathers the segments' entries in the catalogue, so that the store is opened faster next time. Does nothing while
    /// another thread does it. Nobody waits for it. Blocks for the disk, some seconds for thousands of segments that
    /// are not gathered yet.
    pub fn gather(&self) {
        if let Some(_alone) = self.inner.gathering.try_lock() {
            let places: Vec<SegmentPlace> = self.shelf().places().collect();
            gather(&*self.inner.disk, &self.inner.dir, &places);
        }
    }

    /// Returns the store's folder.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.inner.shelf.lock()
    }

    /// Corrects a coordinator's status of a pool by what the store has: an episode that is set aside is not stored.
    pub fn confirm(&self, pool: RunId, status: PoolStatus) -> PoolStatus {
        let shelf = self.shelf();
        let (set_aside, damaged) =
            (shelf.set_aside(pool.as_u128()), shelf.quarantine().has_damage_of(pool.as_u128()));
        let shipped = status.shipped && set_aside == 0 && !damaged;
        PoolStatus { shipped, settled: status.shipped, set_aside, ..status }
    }

    /// Ends the waits for the archive and the thread that archives.
    pub(crate) fn stop_archiving(&self) {
        if let Some(archive) = &self.inner.archive {
            archive.stop();
        }
    }

    /// Removes the segments that came first while all together exceed the budget. With an archive only those that it
    /// has are removed, and stay listed; without one they are gone for good. A segment that cannot be removed is
    /// forgotten all the same, and found again when the store is next opened.
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

/// Returns the folder of a node's spool. Every spool's name has the same length and no `-`, so that no two nodes'
/// folders can have the same name.
fn folder_of(node: &str, spool: &str) -> Result<String, StoreError> {
    let folder = format!("{node}-{spool}");
    if !is_spool_name(spool) {
        return Err(StoreError::Spool(spool.to_owned()));
    }
    if !is_node_name(node) {
        return Err(StoreError::Name(node.to_owned()));
    }
    Ok(folder)
}

/// Returns whether a name may be that of a folder: it comes from a node's certificate and its spool.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=2 * MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

/// The reason why the store could not do what was asked.
#[derive(Debug)]
pub enum StoreError {
    /// The text is not a node's name.
    Name(String),
    /// The recordings are not, or not all, of owners that the asker may read.
    Forbidden(String),
    /// The text is not a spool's name.
    Spool(String),
    /// The segment's number or length is out of bounds.
    Segment {
        /// The value that is out of bounds, in words.
        what: &'static str,
        /// The value that was given.
        given: u64,
        /// The largest value that is allowed.
        most: u64,
    },
    /// So many segments are being received that another one must wait.
    Busy {
        /// Number of segments that are being received.
        receiving: usize,
    },
    /// The store has as many folders as readers accept, or as many of that node as one node may have.
    TooManyFolders {
        /// Number of folders.
        folders: usize,
        /// Largest number of folders.
        most: usize,
    },
    /// The bytes that arrived are not those that were announced.
    Arrived {
        /// Bytes and CRC-32C as announced.
        announced: (u64, u32),
        /// Bytes and CRC-32C as they arrived.
        arrived: (u64, u32),
    },
    /// The store has nothing at that path.
    NotFound(String),
    /// More bytes are asked for at a time than are given.
    TooMuch {
        /// Number of bytes that was asked for.
        bytes: u32,
    },
    /// The question about episodes makes no sense.
    Query(String),
    /// The budget is used up by segments that the archive has not taken yet.
    Full {
        /// The archive.
        archive: String,
    },
    /// A segment that is in the archive cannot be read.
    Archive {
        /// The reason in words.
        what: String,
        /// Whether it may be readable later, although nobody changes anything here.
        is_away: bool,
    },
    /// A file operation failed.
    Disk(DiskError),
}

impl StoreError {
    /// Returns the refusal that a peer is sent.
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
            Self::Forbidden(_) => RefusalCode::Forbidden,
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
            Self::Spool(name) => write!(f, "{name:?} is not a spool's name: 8 letters and digits"),
            Self::Name(name) => {
                write!(f, "{name:?} is not a node's name; a node's name has {NODE_NAME_RULE}")
            }
            Self::Forbidden(what) => write!(
                f,
                "{what} is not, or not alone, of an owner that you may read; `rollhouse token create --reads OWNER` makes \
                 a token that reads more"
            ),
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
/// Milliseconds after which to ship a segment again that could not be taken.
const BUSY_RETRY_MS: u64 = 1_000;
/// Milliseconds after which to ship a segment again that a full disk did not take.
const FULL_RETRY_MS: u64 = 5_000;

//! The store: what the nodes recorded, gathered.
//!
//! ```text
//! <store>/store.lock                        held while the store is open
//! <store>/<node>-<spool>/segments/          one folder per spool, read by `Library` like any other
//! <store>/<node>-<spool>/summaries/         what stands in each segment; a cache
//! <store>/incoming/                         segments while they are received; emptied when the store is opened
//! <store>/quarantine/<node>-<spool>/        segments that are damaged or contradict what was there before
//! ```
//!
//! A segment appears under its name when every byte of it is on the disk and was found intact, and is acknowledged
//! when its name is on the disk too: after a crash at any point each segment is there whole or not at all, and the
//! acknowledged ones are there.
//!
//! An episode's first durable copy wins. A segment with an episode that is in the store with other contents is kept
//! aside; equal copies are kept and read once. Everything here blocks for the disk.

mod receiving;
mod serving;
mod shelf;
mod streaming;

pub use receiving::{Receive, Receiving};

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rollhouse_replay::{
    Disk, DiskError, OpenError, SegmentSummary, WriterLock, lock_store, segment_number, segment_path,
    summary_path,
};
use rollhouse_wire::limits::MAX_NAME_BYTES;
use rollhouse_wire::{Refusal, RefusalCode, StoreStatus};

use shelf::{Held, Shelf, Taken};

/// The recordings of a cluster. Clones are handles to the same store. All methods may block for the disk.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// How much a store keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreConfig {
    /// Bytes of all segments at which the oldest are dropped, whole and counted. The newest stays in any case.
    pub budget_bytes: u64,
    /// Bytes of quarantined segments at which the oldest are dropped.
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
    /// Segments that were kept aside.
    pub quarantined: u64,
    /// Segments that were dropped to keep the budget.
    pub dropped_segments: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Segments that were damaged when the store was opened.
    pub damaged: u64,
    /// Segments whose bytes did not all arrive, or not as they were sent, or could not be written.
    pub failed: u64,
}

#[derive(Debug)]
struct Inner {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    config: StoreConfig,
    shelf: Mutex<Shelf>,
    /// Held while a received segment is judged and put on its place: one at a time, so that two with the same
    /// episodes cannot both be the first, and no more than one is in memory.
    placing: Mutex<()>,
    _lock: WriterLock,
}

impl Store {
    /// Opens the store in the folder `dir`, which is made if it is not there: takes its lock, removes what was being
    /// received when it was last closed, and takes stock. Reads every segment that has no summary.
    ///
    /// # Errors
    /// If somebody else has it, or a file operation fails. Damage is no error.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, config: StoreConfig) -> Result<Self, OpenError> {
        let lock = lock_store(&*disk, dir)?;
        let mut shelf = Shelf::default();
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
        let mut names = disk.list(dir).map_err(|e| opening("list", dir, e))?;
        names.sort_unstable();
        for name in
            names.iter().filter(|name| is_name(name) && ![INCOMING, QUARANTINE].contains(&name.as_str()))
        {
            take_stock(&*disk, dir, name, &mut shelf)?;
        }
        take_stock_of_quarantine(&*disk, &dir.join(QUARANTINE), &mut shelf)?;
        let placing = Mutex::new(());
        let inner = Inner { disk, dir: dir.into(), config, shelf: Mutex::new(shelf), placing, _lock: lock };
        let store = Self { inner: Arc::new(inner) };
        store.keep_budget();
        Ok(store)
    }

    /// What it has. Does not block for the disk.
    pub fn status(&self) -> StoreStatus {
        self.shelf().status()
    }

    /// What it has done since it was opened. Does not block for the disk.
    pub fn counts(&self) -> StoreCounts {
        self.shelf().counts
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.inner.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the oldest segments while all together exceed the budget. One that cannot be removed is forgotten
    /// all the same and found again when the store is next opened.
    fn keep_budget(&self) {
        let Inner { disk, dir, config, .. } = &*self.inner;
        loop {
            let Some(taken) = self.shelf().take_oldest(config.budget_bytes) else { break };
            let Taken { folder, number, bytes, emptied } = taken;
            let dir = dir.join(&*folder);
            let path = segment_path(&dir, number);
            // A summary without a segment is never looked at.
            let _cache = disk.remove(&summary_path(&dir, number));
            let removed =
                disk.remove(&path).and_then(|()| path.parent().map_or(Ok(()), |d| disk.sync_dir(d)));
            if removed.is_ok() {
                let mut shelf = self.shelf();
                shelf.counts.dropped_segments += 1;
                shelf.counts.dropped_bytes += bytes;
            }
            if emptied {
                remove_emptied(&**disk, &dir);
            }
        }
        loop {
            let oldest = self.shelf().take_oldest_quarantined(config.quarantine_bytes);
            let Some((folder, number, crc)) = oldest else { return };
            let _kept = disk.remove(&quarantined_path(&dir.join(QUARANTINE).join(&*folder), number, crc));
        }
    }
}

/// Adds a folder's segments to the shelf. Those without a byte that makes sense are none of ours.
fn take_stock(disk: &dyn Disk, dir: &Path, name: &str, shelf: &mut Shelf) -> Result<(), OpenError> {
    let dir = dir.join(name);
    let segments = dir.join("segments");
    let files = match disk.list(&segments) {
        Ok(files) => files,
        // A file, or a folder of something else.
        Err(error) if is_no_folder(&error) => return Ok(()),
        Err(error) => return Err(opening("list", &segments, error)),
    };
    let mut numbers: Vec<u64> = files.iter().filter_map(|file| segment_number(file)).collect();
    if numbers.is_empty() {
        remove_emptied(disk, &dir);
        return Ok(());
    }
    let folder = shelf.folder(name);
    numbers.sort_unstable();
    for number in numbers {
        let known = SegmentSummary::load(disk, &dir, number);
        let summary = match known {
            Some(summary) => summary,
            None => {
                let path = segment_path(&dir, number);
                let read = disk.open(&path).and_then(|file| SegmentSummary::read(number, &*file));
                let summary = read.map_err(|e| opening("read", &path, e))?;
                // A cache: without it the segment is read again next time.
                let _cache = summary.store(disk, &dir);
                summary
            }
        };
        if !summary.is_whole() {
            shelf.counts.damaged += 1;
        }
        if summary.is_whole() || summary.blocks().next().is_some() {
            shelf.add(&folder, Held::of(&summary), &summary);
        }
    }
    Ok(())
}

/// Removes a spool's folder of which all segments were dropped: nodes come and go, and readers take so many folders
/// only. What cannot be removed, or still has something in it, stays; it is looked at again when the store is opened.
fn remove_emptied(disk: &dyn Disk, dir: &Path) {
    let inside = [segment_path(dir, 0), summary_path(dir, 0)];
    for folder in inside.iter().filter_map(|path| path.parent()).chain([dir]) {
        let _stays = disk.remove_dir(folder);
    }
}

fn take_stock_of_quarantine(disk: &dyn Disk, dir: &Path, shelf: &mut Shelf) -> Result<(), OpenError> {
    for name in disk.list(dir).map_err(|e| opening("list", dir, e))? {
        let inside = dir.join(&name);
        let files = match disk.list(&inside) {
            Ok(files) => files,
            Err(error) if is_no_folder(&error) => continue,
            Err(error) => return Err(opening("list", &inside, error)),
        };
        for (number, crc) in files.iter().filter_map(|file| quarantined_name(file)) {
            let path = quarantined_path(&inside, number, crc);
            let bytes =
                disk.open(&path).and_then(|file| file.len()).map_err(|e| opening("read", &path, e))?;
            shelf.quarantine(&name, number, crc, bytes);
        }
    }
    Ok(())
}

fn opening(operation: &'static str, path: &Path, error: io::Error) -> OpenError {
    OpenError::Disk(DiskError::new(operation, path, error))
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether a name may be that of a folder: it comes from a node's certificate and its spool.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=2 * MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

fn quarantined_path(dir: &Path, number: u64, crc: u32) -> PathBuf {
    dir.join(format!("{number:010}-{crc:08x}.seg"))
}

fn quarantined_name(file: &str) -> Option<(u64, u32)> {
    let (number, crc) = file.strip_suffix(".seg")?.split_once('-')?;
    Some((number.parse().ok()?, u32::from_str_radix(crc, 16).ok()?))
}

/// Why the store could not do what was asked.
#[derive(Debug)]
pub enum StoreError {
    /// The name of a node or a spool that cannot be part of a path.
    Name(String),
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
    /// The store has as many folders as readers take.
    TooManyFolders {
        /// How many.
        folders: usize,
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
            Self::Name(_) | Self::Segment { .. } | Self::TooMuch { .. } => RefusalCode::BadRequest,
            Self::TooManyFolders { .. } => RefusalCode::Quota,
            Self::NotFound(_) => RefusalCode::NotFound,
            // There may be room later.
            Self::Disk(error) if error.is_full() => return Refusal::busy(self.to_string(), FULL_RETRY_MS),
            Self::Disk(_) => RefusalCode::Internal,
        };
        Refusal::new(code, self.to_string())
    }

    fn disk(operation: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Disk(DiskError::new(operation, path, error))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name:?} cannot be the name of a folder in the store"),
            Self::Segment { what, given, most } => write!(f, "{what} {given} of a segment, at most {most}"),
            Self::Busy { receiving } => write!(f, "{receiving} segments are being received already"),
            Self::TooManyFolders { folders } => {
                write!(f, "the store has {folders} folders already, the most that are read together")
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
const QUARANTINE: &str = "quarantine";
/// When to ship again what could not be taken.
const BUSY_RETRY_MS: u64 = 1_000;
/// When to ship again what a full disk did not take.
const FULL_RETRY_MS: u64 = 5_000;

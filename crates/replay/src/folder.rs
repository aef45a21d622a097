//! The folder: its lock, its segments, and what an earlier crash left in them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::disk::{Disk, Locking};
use crate::index::{Damage, Scan, read_range, scan};
use crate::record::{HEADER_BYTES, Header, Kind};
use crate::recorder::{DiskError, OpenError};
use crate::segment::{segment_name, segment_number};

/// The lock of a folder's writer, held as long as this value lives.
#[derive(Debug)]
pub struct WriterLock {
    _held: Box<dyn Send + Sync + std::fmt::Debug>,
}

/// What opening a folder for writing had to repair.
#[derive(Debug, Clone, Default)]
pub struct RepairReport {
    /// Segments whose torn tail was cut off: number, bytes removed.
    pub truncated: Vec<(u64, u64)>,
    /// Segments that had no intact record and were removed.
    pub removed: Vec<u64>,
    /// Segments that were left unsealed by a crash or an error, and are sealed now.
    pub sealed: Vec<u64>,
    /// Damage that was found and left alone; only unsealed segments are read when a recorder opens.
    pub damage: Vec<Damage>,
}

/// Where the segments of a folder lie.
pub(crate) fn segments_dir(dir: &Path) -> PathBuf {
    dir.join("segments")
}

/// The lock file of a folder.
pub(crate) fn lock_path(dir: &Path) -> PathBuf {
    dir.join("writer.lock")
}

/// The lock of a store that a folder may be part of: whoever holds it is the one writer of every folder in it.
fn store_lock_path(dir: &Path) -> Option<PathBuf> {
    Some(dir.parent()?.join(STORE_LOCK))
}

/// Whether a writer has the folder, or the store it is part of.
pub(crate) fn is_written(disk: &dyn Disk, dir: &Path) -> Result<bool, DiskError> {
    let locks = [Some(lock_path(dir)), store_lock_path(dir)];
    for path in locks.into_iter().flatten() {
        if disk.is_locked(&path).map_err(|e| DiskError::new("look at", &path, e))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes the folder if it is not there and takes its lock.
pub(crate) fn lock_folder(disk: &dyn Disk, dir: &Path, now_ms: u64) -> Result<WriterLock, OpenError> {
    let segments = segments_dir(dir);
    let failed = |operation, path: &Path| {
        let path = path.to_path_buf();
        move |error: io::Error| OpenError::Disk(DiskError::new(operation, &path, error))
    };
    disk.create_dir(&segments).map_err(failed("create", &segments))?;
    if let Some(store) = store_lock_path(dir)
        && disk.is_locked(&store).map_err(failed("look at", &store))?
    {
        let holder = format!("the coordinator whose store it is part of, which holds {}", store.display());
        return Err(OpenError::Locked { dir: dir.into(), holder });
    }
    take_lock(disk, dir, lock_path(dir), now_ms)
}

/// Makes the folder of a store if it is not there and takes its lock: whoever holds it is the one writer of every
/// folder in it.
///
/// # Errors
/// If somebody else holds it, or a file operation fails.
pub fn lock_store(disk: &dyn Disk, dir: &Path) -> Result<WriterLock, OpenError> {
    let failed = |error| OpenError::Disk(DiskError::new("create", dir, error));
    disk.create_dir(dir).map_err(failed)?;
    take_lock(disk, dir, dir.join(STORE_LOCK), wall_ms())
}

/// Readers look whether a writer lives by taking the lock for an instant, so a refusal is believed only after
/// several attempts.
fn take_lock(disk: &dyn Disk, dir: &Path, path: PathBuf, now_ms: u64) -> Result<WriterLock, OpenError> {
    let note = format!("process {} on {}, since {now_ms} ms after 1970", std::process::id(), host());
    let mut attempt = 0;
    loop {
        let locked = disk.lock(&path, &note);
        match locked.map_err(|error| OpenError::Disk(DiskError::new("lock", &path, error)))? {
            Locking::Taken(held) => return Ok(WriterLock { _held: held }),
            Locking::Held(holder) if attempt + 1 == LOCK_ATTEMPTS => {
                let holder = if holder.is_empty() { "another process".to_owned() } else { holder };
                return Err(OpenError::Locked { dir: dir.into(), holder });
            }
            Locking::Held(_) => {
                attempt += 1;
                std::thread::park_timeout(LOCK_PAUSE);
            }
        }
    }
}

/// The numbers of a folder's segments, ascending; none if it has no segments folder.
pub(crate) fn segment_numbers(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<u64>> {
    let names = match disk.list(&segments_dir(dir)) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Whether a segment ends with a seal.
pub(crate) fn is_sealed(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    let file = disk.open(path)?;
    let len = file.len()?;
    let Some(from) = len.checked_sub(HEADER_BYTES as u64) else { return Ok(false) };
    let bytes = read_range(&*file, from, len)?;
    let header = bytes.first_chunk::<HEADER_BYTES>().and_then(Header::decode);
    Ok(header.is_some_and(|header| header.kind == Kind::Seal && header.position == from))
}

/// Seals what earlier sessions left unsealed, after cutting torn tails off. Damage below a durable mark stays.
/// The lock must be held.
pub(crate) fn recover(disk: &dyn Disk, dir: &Path) -> Result<RepairReport, DiskError> {
    let segments = segments_dir(dir);
    let mut report = RepairReport::default();
    let numbers = segment_numbers(disk, dir).map_err(|e| DiskError::new("list", &segments, e))?;
    for number in numbers {
        let path = segments.join(segment_name(number));
        let failed = |operation| {
            let path = path.clone();
            move |error| DiskError::new(operation, &path, error)
        };
        if is_sealed(disk, &path).map_err(failed("read"))? {
            continue;
        }
        let found = {
            let file = disk.open(&path).map_err(failed("read"))?;
            scan(number, &*file).map_err(failed("read"))?
        };
        report.damage.extend_from_slice(&found.damage);
        recover_one(disk, &segments, &path, &found, &mut report)?;
    }
    Ok(report)
}

fn recover_one(
    disk: &dyn Disk,
    segments: &Path,
    path: &Path,
    found: &Scan,
    report: &mut RepairReport,
) -> Result<(), DiskError> {
    let failed = |operation| move |error| DiskError::new(operation, path, error);
    let number = found.index.number;
    if found.intact_to == 0 {
        disk.remove(path).map_err(failed("remove"))?;
        disk.sync_dir(segments).map_err(|e| DiskError::new("sync", segments, e))?;
        report.removed.push(number);
        return Ok(());
    }
    let mut len = found.index.bytes;
    if found.intact_to < len {
        disk.truncate(path, found.intact_to).map_err(failed("truncate"))?;
        report.truncated.push((number, len - found.intact_to));
        len = found.intact_to;
    }
    let file = disk.open_append(path).map_err(failed("open"))?;
    // What is there now must be on the disk before the seal says that nothing is missing.
    file.sync_data().map_err(failed("sync"))?;
    let seal = Header { position: len, ..Header::new(Kind::Seal) };
    let seal = Header { payload_crc: crc32c::crc32c(&[]), ..seal }.encode();
    file.append_all(&seal).map_err(failed("append"))?;
    file.sync_data().map_err(failed("sync"))?;
    report.sealed.push(number);
    Ok(())
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn host() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = kernel.ok().or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "this host".into() } else { format!("host {name}") }
}

/// Name of a store's lock: the store's folder has the recordings of many folders directly in it.
pub const STORE_LOCK: &str = "store.lock";
const LOCK_ATTEMPTS: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

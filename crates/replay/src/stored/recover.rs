//! Recovering a folder: its segments are put and sealed, and what an earlier crash left in them is cut off.

use std::io;
use std::path::Path;

use crate::code::record::{HEADER_BYTES, Header, Kind};
use crate::disk::{Disk, read_all, read_range};
use crate::disk_error::DiskError;
use crate::stored::damage::Damage;
use crate::stored::index::SealedSegment;
use crate::stored::names::{segment_name, segment_number, segments_dir};
use crate::stored::scan::scan_bytes;

/// A report on what opening a folder for writing had to repair.
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
    /// Episodes that are not listed because their beginning is gone; counted by a repair on request only.
    pub incomplete: u64,
}

/// Returns whether a segment ends with a seal.
pub(crate) fn is_sealed(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    let file = disk.open(path)?;
    let len = file.len()?;
    let Some(from) = len.checked_sub(HEADER_BYTES as u64) else { return Ok(false) };
    let bytes = read_range(&*file, from, len)?;
    let header = bytes.first_chunk::<HEADER_BYTES>().and_then(Header::decode);
    Ok(header.is_some_and(|header| header.kind == Kind::Seal && header.position == from))
}

/// Seals the segments that earlier sessions left unsealed, without their torn tails. Damage below a durable mark stays.
/// The caller holds the lock.
pub(crate) fn recover(disk: &dyn Disk, dir: &Path) -> Result<RepairReport, DiskError> {
    let segments = segments_dir(dir);
    let mut report = RepairReport::default();
    let names = disk.list(&segments).map_err(|e| DiskError::new("list", &segments, e))?;
    for name in names.iter().filter(|name| is_copy(name)) {
        // Of a recovery that was cut short; the segment itself is still there.
        let path = segments.join(name);
        disk.remove(&path).map_err(|e| DiskError::new("remove", &path, e))?;
    }
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    for &number in &numbers {
        let path = segments.join(segment_name(number));
        if is_sealed(disk, &path).map_err(|e| DiskError::new("read", &path, e))? {
            continue;
        }
        let left = recover_segment(disk, &path, number)?;
        report.damage.extend(left.damage);
        match left.sealed {
            Some(_) => report.sealed.push(number),
            None => report.removed.push(number),
        }
        report.truncated.extend((left.cut > 0 && left.sealed.is_some()).then_some((number, left.cut)));
    }
    if !numbers.is_empty() {
        // Also of what an earlier recovery renamed, if it got no further.
        disk.sync_dir(&segments).map_err(|e| DiskError::new("sync", &segments, e))?;
    }
    Ok(report)
}

/// The result of recovering a segment that was left unsealed.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The segment, sealed now; `None` if it had no intact record and was removed.
    pub(crate) sealed: Option<SealedSegment>,
    /// Bytes of the torn tail.
    pub(crate) cut: u64,
    pub(crate) damage: Vec<Damage>,
}

/// Seals an unsealed segment that nobody writes to any more. Durable on return, but for the name: the folder is to be
/// synced.
///
/// Nothing vouches for what such a segment shows above its last mark: after a failed sync, ext4, xfs and btrfs count
/// the pages as written, each shows something else of them, and the next sync succeeds without writing anything
/// (Rebello et al., *Can Applications Recover from fsync Failures?*, USENIX ATC 2020). That a file's cache is dropped
/// can be asked for, not relied upon. Therefore it is never synced again: what was read of it is written to a new
/// file, whose pages no sync has seen, and which takes its name once it is synced, seal included. A sealed segment
/// needs none of this: its writer appends the seal when all before it has been synced.
pub(crate) fn recover_segment(disk: &dyn Disk, path: &Path, number: u64) -> Result<Recovered, DiskError> {
    // Read once: what is written must be what was found intact, whatever the cache does meanwhile.
    let bytes = disk.open(path).and_then(|file| read_all(&*file));
    let bytes = bytes.map_err(|error| DiskError::new("read", path, error))?;
    let found = scan_bytes(number, &bytes);
    // At most the length of what was read.
    let intact = &bytes[..found.intact_to as usize];
    let cut = (bytes.len() - intact.len()) as u64;
    if intact.is_empty() {
        disk.remove(path).map_err(|error| DiskError::new("remove", path, error))?;
        return Ok(Recovered { sealed: None, cut, damage: found.damage });
    }
    let copy = path.with_extension(COPY_EXTENSION);
    if let Err(error) = write_sealed(disk, &copy, intact) {
        // On a full disk it must not stand in the way; if this fails as well, the next recovery removes it.
        let _removed = disk.remove(&copy);
        return Err(error);
    }
    disk.rename(&copy, path).map_err(|error| DiskError::new("rename", &copy, error))?;
    let bytes = (intact.len() + HEADER_BYTES) as u64;
    let sealed = SealedSegment { number, bytes, episodes: Some(found.episodes) };
    Ok(Recovered { sealed: Some(sealed), cut, damage: found.damage })
}

/// Puts a whole segment into the folder `dir`, in which no other has its number. It is durable on return; after an
/// error it is there as a whole or not at all. The caller holds the lock.
pub(crate) fn put_segment(disk: &dyn Disk, dir: &Path, number: u64, bytes: &[u8]) -> Result<(), DiskError> {
    let segments = segments_dir(dir);
    let path = segments.join(segment_name(number));
    // What is cut short is removed by whoever opens the folder next.
    let new = path.with_extension(COPY_EXTENSION);
    let failed = |operation| {
        let new = new.clone();
        move |error| DiskError::new(operation, &new, error)
    };
    match disk.remove(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove")(error)),
        _ => {}
    }
    let file = disk.create(&new).map_err(failed("create"))?;
    file.append_all(bytes).map_err(failed("append"))?;
    file.sync_data().map_err(failed("sync"))?;
    disk.rename(&new, &path).map_err(failed("rename"))?;
    disk.sync_dir(&segments).map_err(|error| DiskError::new("sync", &segments, error))
}

/// Makes a new file of a segment's records and a seal; durable on return, but for its name.
fn write_sealed(disk: &dyn Disk, path: &Path, records: &[u8]) -> Result<(), DiskError> {
    let failed = |operation| move |error| DiskError::new(operation, path, error);
    match disk.remove(path) {
        // Left by an attempt that failed.
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove")(error)),
        _ => {}
    }
    let file = disk.create(path).map_err(failed("create"))?;
    file.append_all(records).map_err(failed("append"))?;
    let seal = Header { position: records.len() as u64, ..Header::new(Kind::Seal) };
    let seal = Header { payload_crc: crc32c::crc32c(&[]), ..seal }.encode();
    file.append_all(&seal).map_err(failed("append"))?;
    file.sync_data().map_err(failed("sync"))
}

/// Returns whether `name` is the name of the copy of a segment.
fn is_copy(name: &str) -> bool {
    let number = name.strip_suffix(COPY_EXTENSION).and_then(|name| name.strip_suffix('.'));
    number.is_some_and(|number| segment_number(&format!("{number}.seg")).is_some())
}

/// Extension of the file that a recovered segment is written to before it takes the segment's name.
const COPY_EXTENSION: &str = "new";

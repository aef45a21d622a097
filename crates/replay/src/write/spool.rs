//! The spool: the sealed segments of a folder that is recorded into, until they are taken away.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rollhouse_core::{OwnedBytes, RunId, split_mix64};

use crate::disk::{Disk, DiskFile, read_range};
use crate::disk_error::DiskError;
use crate::limits::LEAST_SEGMENT_COST;
use crate::stored::index::SealedSegment;
use crate::stored::names::{segment_name, segment_number, segments_dir};
use crate::stored::scan::scan;

/// The sealed segments of a folder that is recorded into. Clones share them. A spool outlives its recorder, but learns
/// of newly sealed segments only while the recorder lives.
///
/// A folder never uses a segment's number again: the newest sealed segment stays on the disk until a newer one
/// is sealed, also when it was taken away, and the next recorder counts on from it.
#[derive(Debug, Clone)]
pub struct Spool {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    shelf: Arc<Mutex<Shelf>>,
}

#[derive(Debug, Default)]
struct Shelf {
    /// All segments except the one that is being written.
    segments: BTreeMap<u64, Shelved>,
    /// The newest sealed one, if it was taken away and waits for a newer one before it is removed.
    taken: Option<u64>,
}

#[derive(Debug, Clone)]
struct Shelved {
    bytes: u64,
    owned: OwnedBytes,
    episodes: Option<u64>,
    /// Whether the segment is sealed. After a failed operation it is not: then it is sealed when the disk works again,
    /// or by the next recorder.
    sealed: bool,
}

impl Spool {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Self {
        Self { disk, dir: dir.into(), shelf: Arc::default() }
    }

    /// Returns the folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the folder's name among all folders that are shipped to a store. It is drawn when it is first asked for
    /// and kept in the file `spool`. It is durable on return. Blocks for the disk.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn name(&self) -> Result<String, DiskError> {
        name_of_folder(&*self.disk, &self.dir)
    }

    /// Returns the sealed segments that were not taken away, oldest first. Does not block.
    pub fn sealed(&self) -> Vec<SealedSegment> {
        let shelf = self.shelf.lock();
        let there = shelf.segments.iter().filter(|(number, s)| s.sealed && shelf.taken != Some(**number));
        let segment =
            |(&number, s): (&u64, &Shelved)| SealedSegment { number, bytes: s.bytes, episodes: s.episodes };
        there.map(segment).collect()
    }

    /// Opens a segment to read it.
    ///
    /// # Errors
    /// Gives the operating system's error.
    pub fn open(&self, number: u64) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(&self.path(number))
    }

    /// Returns how many episodes ended in a segment; reads the segment if that is not known. Blocks for the disk.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn episodes(&self, number: u64) -> io::Result<u64> {
        let known = self.shelf.lock().segments.get(&number).and_then(|segment| segment.episodes);
        match known {
            Some(episodes) => Ok(episodes),
            None => Ok(scan(number, &*self.open(number)?)?.episodes),
        }
    }

    /// Takes a segment away: it is no longer listed, and is removed now or when a newer one is sealed. Blocks for the
    /// disk.
    ///
    /// # Errors
    /// If a file cannot be removed; then the segment is listed again.
    pub fn take_away(&self, number: u64) -> Result<(), DiskError> {
        let gone: Vec<(u64, Shelved)> = {
            let mut shelf = self.shelf.lock();
            let newest = shelf.segments.iter().rev().find(|(_, s)| s.sealed).map(|(&number, _)| number);
            let waiting = shelf.taken.take();
            if newest == Some(number) {
                shelf.taken = newest;
            } else {
                shelf.taken = waiting.filter(|_| waiting == newest);
            }
            let stays = shelf.taken;
            let numbers = waiting.into_iter().chain([number]).filter(|&number| Some(number) != stays);
            numbers.filter_map(|number| Some((number, shelf.segments.remove(&number)?))).collect()
        };
        let mut result = Ok(());
        for (number, segment) in gone {
            let path = self.path(number);
            match self.disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.shelf.lock().segments.insert(number, segment);
                    result = Err(DiskError::new("remove", &path, error));
                }
                _ => {}
            }
        }
        // Not made durable: a name that comes back after a power cut is shipped again and known.
        result
    }

    /// Moves a segment, because the store has set it aside, to a folder from which nothing is shipped and only an
    /// operator removes it. It is durable on return. Blocks for the disk.
    ///
    /// # Errors
    /// If it cannot be moved; then it stays listed.
    pub fn set_aside(&self, number: u64) -> Result<(), DiskError> {
        let (dir, path) = (set_aside_dir(&self.dir), self.path(number));
        let failed = |operation, path: &Path| {
            let path = path.to_path_buf();
            move |error| DiskError::new(operation, &path, error)
        };
        self.disk.create_dir(&dir).map_err(failed("create", &dir))?;
        self.disk.sync_dir(&self.dir).map_err(failed("sync", &self.dir))?;
        self.disk.rename(&path, &dir.join(segment_name(number))).map_err(failed("rename", &path))?;
        self.disk.sync_dir(&dir).map_err(failed("sync", &dir))?;
        // The name in the old folder may come back after a power cut: it is shipped, and set aside, again.
        self.shelf.lock().segments.remove(&number);
        Ok(())
    }

    /// Returns the bytes of the segments that are set aside. Blocks for the disk.
    ///
    /// # Errors
    /// If their sizes cannot be read.
    pub fn aside_bytes(&self) -> Result<u64, DiskError> {
        let dir = set_aside_dir(&self.dir);
        let numbers = numbers_set_aside(&*self.disk, &self.dir);
        let numbers = numbers.map_err(|error| DiskError::new("list", &dir, error))?;
        numbers.into_iter().try_fold(0, |sum, number| {
            let path = dir.join(segment_name(number));
            let bytes = self.disk.open(&path).and_then(|file| file.len());
            Ok(sum + bytes.map_err(|error| DiskError::new("read", &path, error))?)
        })
    }

    fn path(&self, number: u64) -> PathBuf {
        segments_dir(&self.dir).join(segment_name(number))
    }

    /// Returns whose the bytes of a segment are; nobody's if an earlier recorder wrote it. Does not block.
    pub fn owned(&self, number: u64) -> OwnedBytes {
        self.shelf.lock().segments.get(&number).map(|segment| segment.owned.clone()).unwrap_or_default()
    }

    pub(crate) fn add(&self, segment: SealedSegment, owned: OwnedBytes) {
        let SealedSegment { number, bytes, episodes } = segment;
        self.shelf.lock().segments.insert(number, Shelved { bytes, owned, episodes, sealed: true });
    }

    pub(crate) fn add_unsealed(&self, number: u64, bytes: u64, owned: OwnedBytes) {
        let segment = Shelved { bytes, owned, episodes: None, sealed: false };
        self.shelf.lock().segments.insert(number, segment);
    }

    /// Returns the segments that were latched after a failed operation, oldest first, and their bytes.
    pub(crate) fn unsealed(&self) -> Vec<(u64, u64)> {
        let shelf = self.shelf.lock();
        let unsealed = shelf.segments.iter().filter(|(_, segment)| !segment.sealed);
        unsealed.map(|(&number, segment)| (number, segment.bytes)).collect()
    }

    /// Takes a segment that is gone off the list.
    pub(crate) fn forget(&self, number: u64) {
        self.shelf.lock().segments.remove(&number);
    }

    /// Returns the sizes of all segments except the one that is being written.
    pub(crate) fn sizes(&self) -> BTreeMap<u64, u64> {
        self.shelf.lock().segments.iter().map(|(&number, segment)| (number, segment.bytes)).collect()
    }

    /// Returns what a budget counts of all segments except the one that is being written.
    pub(crate) fn cost(&self) -> u64 {
        self.shelf.lock().segments.values().map(|segment| segment.bytes.max(LEAST_SEGMENT_COST)).sum()
    }

    /// Takes the oldest segment that is in none of these ranges off the list; returns its number and bytes.
    pub(crate) fn take_oldest(&self, but: &[RangeInclusive<u64>]) -> Option<(u64, u64)> {
        let mut shelf = self.shelf.lock();
        let is_free = |number: &u64| !but.iter().any(|range| range.contains(number));
        let number = shelf.segments.keys().copied().find(is_free)?;
        shelf.segments.remove(&number).map(|segment| (number, segment.bytes))
    }
}

/// Returns the folder with the segments that the store has set aside.
fn set_aside_dir(dir: &Path) -> PathBuf {
    dir.join("quarantine")
}

/// Returns the numbers of the segments that are set aside; they are not used again.
pub(crate) fn numbers_set_aside(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<u64>> {
    match disk.list(&set_aside_dir(dir)) {
        Ok(names) => Ok(names.iter().filter_map(|name| segment_number(name)).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns the name of a folder of recordings among all folders whose segments are carried elsewhere, shipped or
/// exported. It is drawn when it is first asked for and kept in the file `spool`. It is durable on return. Blocks for
/// the disk.
///
/// # Errors
/// If a file operation fails.
pub fn name_of_folder(disk: &dyn Disk, dir: &Path) -> Result<String, DiskError> {
    match kept_name_of_folder(disk, dir)? {
        Some(name) => Ok(name),
        None => draw_name(disk, dir, &dir.join(NAME)),
    }
}

/// Returns the name that [`name_of_folder`] has drawn; `None` if it was never asked for. Blocks for the disk.
///
/// # Errors
/// If a file operation fails, or the file holds something else.
pub fn kept_name_of_folder(disk: &dyn Disk, dir: &Path) -> Result<Option<String>, DiskError> {
    let path = dir.join(NAME);
    let failed = |operation, error| DiskError::new(operation, &path, error);
    let file = match disk.open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open", error)),
    };
    let bytes = read_range(&*file, 0, MAX_NAME_BYTES).map_err(|e| failed("read", e))?;
    let name = String::from_utf8_lossy(&bytes).trim().to_owned();
    // Anything else was not written here, and no store would take it.
    if is_spool_name(&name) {
        return Ok(Some(name));
    }
    Err(failed("read", io::Error::new(io::ErrorKind::InvalidData, "no name of a spool")))
}

fn draw_name(disk: &dyn Disk, dir: &Path, path: &Path) -> Result<String, DiskError> {
    let drawn = rollhouse_core::EpisodeName { run: RunId::generate().short(), lane: 0, number: 0 };
    let name: String = drawn.to_string().chars().take(8).collect();
    let new = path.with_extension("new");
    let failed = |operation, error| DiskError::new(operation, path, error);
    // Left by a crash between creating and renaming it.
    match disk.remove(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", error)),
        _ => {}
    }
    let file = disk.create(&new).map_err(|e| failed("create", e))?;
    file.append_all(name.as_bytes()).map_err(|e| failed("append", e))?;
    file.sync_data().map_err(|e| failed("sync", e))?;
    disk.rename(&new, path).map_err(|e| failed("rename", e))?;
    disk.sync_dir(dir).map_err(|e| failed("sync", e))?;
    Ok(name)
}

/// Returns the name for the part of a folder that belongs to one run ([`part_of_run`](crate::part_of_run)). It is
/// always the same, and differs from the folder's, because the segments have the same numbers and other contents.
pub fn name_of_part(spool: &str, run: RunId) -> String {
    let (high, low) = ((run.as_u128() >> 64) as u64, run.as_u128() as u64);
    let seed = split_mix64(high ^ split_mix64(low));
    let mut left = spool.bytes().fold(seed, |sum, byte| split_mix64(sum ^ u64::from(byte)));
    let letter = |left: &mut u64| {
        let letter = LETTERS[(*left % LETTERS.len() as u64) as usize];
        *left /= LETTERS.len() as u64;
        char::from(letter)
    };
    (0..8).map(|_| letter(&mut left)).collect()
}

/// Returns whether `name` can be the name of a spool: 8 ASCII letters and digits.
pub fn is_spool_name(name: &str) -> bool {
    name.len() == 8 && name.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Characters from which names are drawn.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The file that holds a folder's name.
const NAME: &str = "spool";
/// Bytes of it that are read.
const MAX_NAME_BYTES: u64 = 64;

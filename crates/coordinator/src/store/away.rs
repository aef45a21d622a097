//! The store's disk as its readers see it, including the segments that are in the archive only.
//!
//! Those are listed with their length, so that entries fit and nothing is fetched to list, count or query episodes.
//! Reading one fetches it ([`Fetched`]).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use rollhouse_archive::SegmentId;
use rollhouse_replay::{
    ARCHIVED, ArchivedSegment, Disk, DiskFile, Locking, segment_name, segment_number, segment_path,
};

use super::fetched::Fetched;

/// A disk together with the segments of an archive.
#[derive(Debug)]
pub(crate) struct AwayDisk {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    fetched: Arc<Fetched>,
    /// The archive's segments, by the folder in which their files would be.
    away: RwLock<BTreeMap<PathBuf, BTreeMap<u64, ArchivedSegment>>>,
}

impl AwayDisk {
    pub(crate) fn new(disk: Arc<dyn Disk>, root: &Path, fetched: Arc<Fetched>) -> Self {
        Self { disk, root: root.into(), fetched, away: RwLock::default() }
    }

    /// Adds a segment of the archive: from now on it is there, whether its file is or not.
    pub(crate) fn add(&self, segment: ArchivedSegment) {
        let path = segment_path(&self.root.join(&segment.folder), segment.number);
        let Some(dir) = path.parent() else { return };
        let mut away = self.away.write();
        away.entry(dir.into()).or_default().insert(segment.number, segment);
    }

    /// Removes a segment of the archive: it is no longer shown, unless its file is there.
    pub(crate) fn remove(&self, folder: &str, number: u64) {
        let path = segment_path(&self.root.join(folder), number);
        let mut away = self.away.write();
        if let Some(inside) = path.parent().and_then(|dir| away.get_mut(dir)) {
            inside.remove(&number);
        }
    }

    /// Returns the archive's segment in the place of that file, if the file is not here.
    pub(crate) fn away(&self, path: &Path) -> Option<ArchivedSegment> {
        let away = self.away.read();
        let segment = away.get(path.parent()?)?.get(&segment_number(path.file_name()?.to_str()?)?)?.clone();
        drop(away);
        let is_gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        self.disk.open(path).err().is_some_and(is_gone).then_some(segment)
    }
}

impl Disk for AwayDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create(path)
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open_append(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        // Who reads here misses nothing, and is not to be told that he does.
        if path.parent() == Some(&self.root) && path.file_name() == Some(ARCHIVED.as_ref()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        match self.disk.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let segment = self.away(path).ok_or(error)?;
                let fetched = Arc::clone(&self.fetched);
                Ok(Box::new(AwayFile { segment, fetched, file: OnceLock::new() }))
            }
            opened => opened,
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = self.disk.list(path)?;
        let away = self.away.read();
        if let Some(inside) = away.get(path) {
            names.extend(inside.keys().map(|number| segment_name(*number)));
            drop(away);
            names.sort_unstable();
            names.dedup();
        }
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn lock(&self, path: &Path, note: &str) -> io::Result<Locking> {
        self.disk.lock(path, note)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.disk.is_locked(path)
    }

    fn real_dir(&self, path: &Path) -> Option<PathBuf> {
        self.disk.real_dir(path)
    }

    fn has_real_paths(&self) -> bool {
        self.disk.has_real_paths()
    }

    fn modified_ns(&self, path: &Path) -> Option<u64> {
        // What is in the archive is not changed: its length is looked at and no time.
        self.disk.modified_ns(path).filter(|at| *at != 0 || self.away(path).is_none())
    }
}

/// A segment that is in the archive and is fetched when a part of it is read.
#[derive(Debug)]
struct AwayFile {
    segment: ArchivedSegment,
    fetched: Arc<Fetched>,
    file: OnceLock<Arc<dyn DiskFile>>,
}

impl DiskFile for AwayFile {
    fn append(&self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(file) = self.file.get() {
            return file.read_at(buffer, offset);
        }
        let file = self.fetched.get(&id_of(&self.segment))?;
        self.file.get_or_init(|| file).read_at(buffer, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.segment.bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// Returns the name under which an archive has the segment.
pub(crate) fn id_of(segment: &ArchivedSegment) -> SegmentId {
    let ArchivedSegment { folder, number, crc, .. } = segment;
    SegmentId { number: *number, folder: folder.clone(), crc: *crc }
}

//! A read-only folder in memory with one segment, through which a file of one episode is read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, Locking};
use crate::stored::names::{segment_name, segments_dir};
use crate::stored::summary::segment_path;

/// A disk with one folder, whose path is empty, and one segment in it.
#[derive(Debug)]
pub(crate) struct OneSegment {
    number: u64,
    bytes: Arc<[u8]>,
}

impl OneSegment {
    pub(crate) const fn new(number: u64, bytes: Arc<[u8]>) -> Self {
        Self { number, bytes }
    }
}

impl Disk for OneSegment {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn create(&self, _: &Path) -> io::Result<Box<dyn DiskFile>> {
        Err(read_only())
    }

    fn open_append(&self, _: &Path) -> io::Result<Box<dyn DiskFile>> {
        Err(read_only())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        match path == segment_path(Path::new(""), self.number) {
            true => Ok(Box::new(Bytes(self.bytes.clone()))),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let root = Path::new("");
        match path {
            path if path == root => Ok(vec![segments_dir(root).display().to_string()]),
            path if path == segments_dir(root) => Ok(vec![segment_name(self.number)]),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn lock(&self, _: &Path, _: &str) -> io::Result<Locking> {
        Err(read_only())
    }

    fn is_locked(&self, _: &Path) -> io::Result<bool> {
        Ok(false)
    }

    fn real_dir(&self, _: &Path) -> Option<PathBuf> {
        None
    }
}

fn read_only() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}

#[derive(Debug)]
struct Bytes(Arc<[u8]>);

impl DiskFile for Bytes {
    fn append(&self, _: &[u8]) -> io::Result<usize> {
        Err(read_only())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(read_only())
    }
}

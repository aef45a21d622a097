//! The trait [`Disk`], through which all file access goes, so that tests can make any operation fail.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rollhouse_core::{lock_refused, open_regular, open_regular_with};

use crate::limits::{MAX_SEGMENT_BYTES, SHORT_BYTES, SHORT_SHARE};

/// The file operations that recording and reading need. Every one may block.
///
/// [`RealDisk`] assumes of the disk, and [`FaultyDisk`](crate::testing::FaultyDisk) imitates, that after
/// [`DiskFile::sync_data`] returns, what was appended before survives a power cut together with the file's length; a
/// created, renamed or removed name survives after [`Disk::sync_dir`]; appended bytes that were not synced may be lost
/// from any point on, or hold anything.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Makes a folder and its parents; no error if it exists.
    ///
    /// # Errors
    /// Gives the operating system's error, as every operation here does.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes a new file to append to; an existing one is an error.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a regular file to append to it and read it. Does not wait for what else may stand there: that is an error.
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a regular file to read it. Does not wait for what else may stand there: that is an error.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Returns the names in a folder, in no order; a folder that is not there is an error of kind `NotFound`.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Renames a file over what may stand at `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Takes the lock at `path` without waiting and writes `note` into it.
    fn lock(&self, path: &Path, note: &str) -> io::Result<Locking>;

    /// Returns whether somebody holds the lock at `path`. Takes it shared for an instant.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;

    /// Returns the canonical path of a folder, with links followed; `None` if there is no folder that can be looked
    /// into.
    fn real_dir(&self, path: &Path) -> Option<PathBuf>;

    /// Returns whether paths of this disk are the operating system's, so that a cache can lie beside its files.
    fn has_real_paths(&self) -> bool {
        false
    }

    /// Returns how much room there is for files in a folder; `None` where that is not known.
    fn room(&self, _dir: &Path) -> Option<DiskRoom> {
        None
    }

    /// Returns when a file was last changed, in nanoseconds since 1970, and 0 if it is not there; `None` where that is
    /// not known.
    fn modified_ns(&self, _path: &Path) -> Option<u64> {
        None
    }
}

/// An open file.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Appends `bytes` and returns how many were written: maybe not all, but at least one of a non-empty slice.
    ///
    /// # Errors
    /// Gives the operating system's error, as every operation here does.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Appends all of `bytes`; after an error, a part of them may have been appended.
    ///
    /// # Errors
    /// As [`DiskFile::append`].
    fn append_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.append(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads from `offset` and returns how many bytes were read: maybe fewer than asked for, but 0 only at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns the length of the file in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Returns whether the file is empty.
    ///
    /// # Errors
    /// As [`DiskFile::len`].
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes contents and length of the file durable.
    fn sync_data(&self) -> io::Result<()>;
}

/// The room on the disk of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// Bytes that are free for this process.
    pub free: u64,
    /// Bytes of the whole disk.
    pub total: u64,
}

impl DiskRoom {
    /// Returns whether the disk is nearly full: who makes room now loses nothing.
    pub const fn is_short(self) -> bool {
        let share = self.total / SHORT_SHARE;
        self.free < if share < SHORT_BYTES { share } else { SHORT_BYTES }
    }
}

/// The result of trying to take a lock.
#[derive(Debug)]
pub enum Locking {
    /// The lock was taken. It is held until this value is dropped or the process ends in any way.
    Taken(Box<dyn Send + Sync + fmt::Debug>),
    /// Somebody else holds the lock, and wrote this note into it.
    Held(String),
}

/// The operating system's files, as a [`Disk`].
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().append(true).read(true).create_new(true).open(path)?))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(open_regular_with(OpenOptions::new().append(true).read(true), path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(open_regular(path)?))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            // Names that are not UTF-8 are none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path, note: &str) -> io::Result<Locking> {
        let mut options = OpenOptions::new();
        let mut file = open_regular_with(options.read(true).write(true).create(true).truncate(false), path)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                file.seek(SeekFrom::Start(0))?;
                file.write_all(note.as_bytes())?;
                Ok(Locking::Taken(Box::new(file)))
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = Vec::new();
                file.take(MAX_NOTE_BYTES).read_to_end(&mut holder)?;
                Ok(Locking::Held(String::from_utf8_lossy(&holder).trim().to_owned()))
            }
            Err(TryLockError::Error(error)) => Err(lock_refused(error)),
        }
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let file = match open_regular(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(lock_refused(error)),
        }
    }

    fn real_dir(&self, path: &Path) -> Option<PathBuf> {
        // Most names in a folder lead to none: asking first costs one call instead of one per part of the path.
        path.is_dir().then(|| std::fs::canonicalize(path).ok()).flatten()
    }

    fn has_real_paths(&self) -> bool {
        true
    }

    fn room(&self, dir: &Path) -> Option<DiskRoom> {
        let disk = rustix::fs::statvfs(dir).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Some(DiskRoom { free: bytes(disk.f_bavail), total: bytes(disk.f_blocks) })
    }

    fn modified_ns(&self, path: &Path) -> Option<u64> {
        let modified = std::fs::metadata(path).and_then(|file| file.modified());
        let since = modified.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        Some(since.and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or_default())
    }
}

impl DiskFile for File {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self;
        file.write(bytes)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }
}

/// Bytes of a lock file that are read to say who holds it.
const MAX_NOTE_BYTES: u64 = 512;

/// Reads a file from front to end, as far as it goes.
pub fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let len = file.len()?;
    if len > 2 * MAX_SEGMENT_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "segment larger than any writer makes"));
    }
    read_range(file, 0, len)
}

/// Reads from `from` up to `to` or the file's end.
pub(crate) fn read_range(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or(0)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], from + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

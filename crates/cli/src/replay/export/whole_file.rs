//! A file that gets its name once it is whole.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rollhouse_core::has_no_locks;

/// A file that is written under another name beside its own, `NAME.part`, and takes its name at the end. Dropping it
/// before that removes it.
///
/// A path that is not a file, but a pipe or a device, is written to directly.
pub(super) struct WholeFile {
    file: File,
    part: Option<Part>,
    bytes: u64,
}

/// The path at which it is written, and the path that it gets.
struct Part {
    part: PathBuf,
    path: PathBuf,
    /// The metadata of the earlier file of that name.
    before: Option<Metadata>,
}

impl WholeFile {
    /// Begins a file. An unfinished file that another process left is taken over.
    ///
    /// # Errors
    /// If it cannot be made, or another process is writing it.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        // Of a link, what it leads to is written.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let before = fs::metadata(&path).ok();
        if before.as_ref().is_some_and(|before| !before.is_file()) {
            return Ok(Self { file: File::options().write(true).open(&path)?, part: None, bytes: 0 });
        }
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
        name.push(PART);
        let part = path.with_file_name(name);
        let file = File::options().create(true).truncate(false).write(true).open(&part)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing it"));
            }
            // Not every file system has locks.
            Err(fs::TryLockError::Error(error)) if has_no_locks(&error) => {}
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        Ok(Self { file, part: Some(Part { part, path, before }), bytes: 0 })
    }

    /// Gives the file its name and returns how many bytes it has. Blocks until they are on the disk, so that a file
    /// under its name is whole whatever happens.
    ///
    /// # Errors
    /// If a file operation fails; it is removed then.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        let Some(Part { part, path, before }) = &self.part else { return Ok(self.bytes) };
        if let Some(before) = before {
            self.file.set_permissions(before.permissions())?;
        }
        self.file.sync_data()?;
        fs::rename(part, path)?;
        self.part = None;
        Ok(self.bytes)
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(Part { part, .. }) = &self.part {
            // What cannot be removed is taken over the next time.
            let _removed = fs::remove_file(part);
        }
    }
}

/// The ending of the names of unfinished files.
const PART: &str = ".part";

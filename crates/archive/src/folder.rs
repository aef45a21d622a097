//! A target that is a folder.
//!
//! ```text
//! <folder>/parts/<process>-<number>   an object while it is written, locked; the next process that finds it unlocked removes it
//! <folder>/<name>                     an object
//! ```

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rollhouse_core::{has_no_locks, open_regular};

use crate::error::{TargetError, TargetFault};

#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    parts: AtomicU64,
}

impl Folder {
    pub(crate) const fn new(root: PathBuf) -> Self {
        Self { root, parts: AtomicU64::new(0) }
    }

    /// Makes the folder, and removes files that other processes left half written.
    pub(crate) fn prepare(&self) -> Result<(), TargetError> {
        let parts = self.root.join(PARTS);
        fs::create_dir_all(&parts).map_err(|error| failed("making", &parts, error))?;
        self.is_there()
    }

    /// Checks that the folder is still there, and removes files that other processes left half written.
    pub(crate) fn is_there(&self) -> Result<(), TargetError> {
        let parts = self.root.join(PARTS);
        if !parts.is_dir() {
            return Err(self.is_missing());
        }
        let entries = fs::read_dir(&parts).map_err(|error| failed("listing", &parts, error))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            // One that is locked is being written; one that is gone has been put, or was removed by somebody else.
            if open_regular(&path).is_ok_and(|file| file.try_lock().is_ok()) {
                let _gone = fs::remove_file(&path);
            }
        }
        Ok(())
    }

    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), TargetError> {
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        let part = self.root.join(PARTS).join(format!("{}-{number}", std::process::id()));
        let path = self.root.join(name);
        let dir = path.parent().unwrap_or(&self.root);
        // First: one that is not there any more must not be made anew, in the place where it was mounted.
        if let Err(error) = write_locked(&part, bytes) {
            let _gone = fs::remove_file(&part);
            return Err(failed("writing", &part, error));
        }
        self.make_durable_dir(dir)?;
        let placed = fs::rename(&part, &path).and_then(|()| sync_dir(dir));
        placed.map_err(|error| failed("placing", &path, error))
    }

    /// Makes a folder inside it, and makes the names on the way durable.
    fn make_durable_dir(&self, dir: &Path) -> Result<(), TargetError> {
        if dir.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(dir).map_err(|error| failed("making", dir, error))?;
        for above in dir.ancestors().skip(1).take_while(|above| above.starts_with(&self.root)) {
            sync_dir(above).map_err(|error| failed("syncing", above, error))?;
        }
        Ok(())
    }

    pub(crate) fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, TargetError> {
        let path = self.root.join(name);
        let file = match open_regular(&path) {
            Ok(file) => file,
            Err(error) if is_none(&error) => return Ok(None),
            Err(error) => return Err(failed("opening", &path, error)),
        };
        let len = file.metadata().map_err(|error| failed("reading", &path, error))?.len();
        if len > most {
            return Err(too_large(name, len, most));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
        // It may have grown since.
        file.take(most).read_to_end(&mut bytes).map_err(|error| failed("reading", &path, error))?;
        Ok(Some(bytes))
    }

    pub(crate) fn len(&self, name: &str) -> Result<Option<u64>, TargetError> {
        let path = self.root.join(name);
        match fs::metadata(&path) {
            Ok(file) if file.is_file() => Ok(Some(file.len())),
            Ok(_) => Ok(None),
            Err(error) if is_none(&error) => Ok(None),
            Err(error) => Err(failed("looking at", &path, error)),
        }
    }

    fn is_missing(&self) -> TargetError {
        let what = format!("there is no folder {} that objects were put into", self.root.display());
        TargetError::new(TargetFault::Name, what)
    }

    pub(crate) fn list(&self, folder: &str, visit: &mut dyn FnMut(&str)) -> Result<(), TargetError> {
        if !self.root.is_dir() {
            return Err(self.is_missing());
        }
        list(&self.root.join(folder), "", DEPTH, visit)
    }
}

/// Visits the files of a folder and of the folders in it.
fn list(dir: &Path, above: &str, depth: u32, visit: &mut dyn FnMut(&str)) -> Result<(), TargetError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if is_none(&error) => return Ok(()),
        Err(error) => return Err(failed("listing", dir, error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| failed("listing", dir, error))?;
        let kind = entry.file_type().map_err(|error| failed("looking at", &entry.path(), error))?;
        // Names that are not UTF-8 are none of ours.
        let Ok(name) = entry.file_name().into_string() else { continue };
        let name = format!("{above}{name}");
        if kind.is_file() {
            visit(&name);
        } else if kind.is_dir() && depth > 0 {
            list(&entry.path(), &format!("{name}/"), depth - 1, visit)?;
        }
    }
    Ok(())
}

/// Makes a file that is locked while it is written. On return its contents are durable, but not its name.
fn write_locked(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    match file.try_lock() {
        Ok(()) => {}
        // Whoever cleans up holds it for an instant, and removes it: it is written all the same, and placing it fails.
        Err(TryLockError::WouldBlock) => {}
        // Not every file system has locks.
        Err(TryLockError::Error(error)) if has_no_locks(&error) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Returns whether the error says that there is no file of that name.
fn is_none(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn failed(operation: &str, path: &Path, error: io::Error) -> TargetError {
    let fault = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => TargetFault::Refused,
        _ => TargetFault::Failed,
    };
    TargetError::new(fault, format!("{operation} {} failed", path.display())).because(error)
}

/// Makes the error for an object that is larger than any valid object of its kind.
pub(crate) fn too_large(name: &str, len: u64, most: u64) -> TargetError {
    TargetError::new(TargetFault::Failed, format!("{name} has {len} bytes, at most {most} are read"))
}

/// The folder in which objects are written.
const PARTS: &str = "parts";
/// Number of levels of folders that a listing enters.
const DEPTH: u32 = 2;

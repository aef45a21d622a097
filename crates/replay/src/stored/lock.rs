//! The locks of folders: who may write.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disk::{Disk, Locking};
use crate::disk_error::DiskError;
use crate::stored::names::segments_dir;

/// The lock of a folder's writer, held as long as this value lives.
#[derive(Debug)]
pub struct WriterLock {
    _held: Box<dyn Send + Sync + std::fmt::Debug>,
}

/// An error: a folder could not be opened for recording.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another writer has it.
    #[error("{dir} is being recorded into by {holder}", dir = .dir.display())]
    Locked {
        /// The folder.
        dir: PathBuf,
        /// Note that the holder wrote about itself: process, host and start.
        holder: String,
    },
    /// A file operation failed.
    #[error(transparent)]
    Disk(DiskError),
    /// The configuration is out of bounds.
    #[error("{setting} = {given} is not between {least} and {most}")]
    Config {
        /// The setting.
        setting: &'static str,
        /// The value that was given.
        given: u64,
        /// The smallest it may be.
        least: u64,
        /// The largest it may be.
        most: u64,
    },
    /// The writer thread could not be started.
    #[error("the writer thread could not be started")]
    Thread(#[source] io::Error),
}

/// Returns the path of the folder's lock file.
fn lock_path(dir: &Path) -> PathBuf {
    dir.join("writer.lock")
}

/// Returns the path of the lock of the store that a folder may be part of; the holder of that lock is the only writer
/// of every folder in the store.
fn store_lock_path(dir: &Path) -> Option<PathBuf> {
    Some(dir.parent()?.join(STORE_LOCK))
}

/// Returns whether a folder that was locked is gone, or is another one now, because somebody has removed it.
pub(crate) fn is_removed(disk: &dyn Disk, dir: &Path) -> bool {
    let missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
    let lock = disk.open(&lock_path(dir)).err().is_some_and(missing);
    lock || disk.list(&segments_dir(dir)).err().is_some_and(missing)
}

/// Returns whether a writer has the folder, or the store it is part of.
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
pub(crate) fn lock_folder(disk: &dyn Disk, dir: &Path) -> Result<WriterLock, OpenError> {
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
    take_lock(disk, dir, lock_path(dir))
}

/// Makes the folder of a store if it is not there and takes its lock; the holder is the only writer of every folder in
/// the store.
///
/// # Errors
/// If somebody else holds it, or a file operation fails.
pub fn lock_store(disk: &dyn Disk, dir: &Path) -> Result<WriterLock, OpenError> {
    let failed = |error| OpenError::Disk(DiskError::new("create", dir, error));
    disk.create_dir(dir).map_err(failed)?;
    take_lock(disk, dir, dir.join(STORE_LOCK))
}

/// Takes the lock at `path`. Readers take it for an instant to see whether a writer lives, so a refusal is believed
/// only after several attempts.
fn take_lock(disk: &dyn Disk, dir: &Path, path: PathBuf) -> Result<WriterLock, OpenError> {
    let note = format!("process {} on {}", std::process::id(), host());
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

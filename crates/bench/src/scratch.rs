//! Folders for the files of benches.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rollhouse_cli::failure::{Failure, Status};

/// A folder for a bench's recordings, removed at the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("rollhouse-bench-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| cannot_make(&path, &error))?;
        Ok(Self(path))
    }

    /// Keeps the folder: nothing is removed when there is no path.
    pub(crate) fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

pub(crate) fn cannot_make(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Status::Failed, format_args!("cannot make {}: {error}", path.display()))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that stays behind in the temporary folder is the system's to remove.
        let _removed = fs::remove_dir_all(&self.0);
    }
}

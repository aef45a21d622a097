//! The error [`DiskError`]: a file operation failed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file operation that failed.
#[derive(Debug, Clone)]
pub struct DiskError {
    /// The operation that failed, e.g. `append`.
    pub operation: &'static str,
    /// The file or folder on which it failed.
    pub path: PathBuf,
    /// The operating system's error.
    pub source: Arc<io::Error>,
}

impl DiskError {
    /// Makes the error that `operation`, e.g. `append`, failed on the file at `path`.
    pub fn new(operation: &'static str, path: &Path, error: io::Error) -> Self {
        Self { operation, path: path.into(), source: Arc::new(error) }
    }

    /// Returns whether the disk was full, or a quota or limit of file sizes was reached.
    pub fn is_full(&self) -> bool {
        let kind = self.source.kind();
        matches!(
            kind,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_full() { "no space left on the disk: " } else { "" };
        write!(f, "{what}{} of {} failed", self.operation, self.path.display())
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

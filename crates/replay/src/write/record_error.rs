//! The errors of recording.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::msgpack::DecodeError;

use crate::limits::MAX_OPEN_RUNS;
use crate::write::recorder::Recorded;

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

/// An error: a run could not begin.
#[derive(Debug, Clone)]
pub enum BeginError {
    /// Too many runs are open.
    TooManyRuns,
    /// A probability is outside 0 to 1.
    Probability(f64),
    /// There is neither one set of options nor one per lane.
    Options {
        /// Number of sets that were given.
        given: usize,
        /// Lanes of the run.
        lanes: u32,
    },
    /// One row of a full recording is larger than a chunk may be.
    RowTooLarge {
        /// Bytes of a row of one block.
        bytes: usize,
    },
    /// No reader would accept the run's header: it is too long, or says more than is read.
    Header(Arc<DecodeError>),
    /// The writer thread is gone.
    WriterGone,
}

/// An error: something was not recorded. What [`Recorded`] counts as written is safe.
#[derive(Debug)]
pub enum RecordError {
    /// The disk failed; some of what was handed over is lost, counted in `recorded`.
    Disk {
        /// The last failure.
        error: DiskError,
        /// Counts of what is written and what is lost.
        recorded: Box<Recorded>,
    },
    /// The writer thread ended unexpectedly.
    WriterGone {
        /// Counts of what it had written.
        recorded: Box<Recorded>,
    },
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

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyRuns => write!(f, "{MAX_OPEN_RUNS} runs are open already, the most there may be"),
            Self::Probability(p) => write!(f, "sampling probability {p} is not between 0 and 1"),
            Self::Options { given, lanes } => {
                write!(f, "{given} sets of options for {lanes} lanes; give one, or one per lane")
            }
            Self::RowTooLarge { bytes } => write!(
                f,
                "one row of a block has {bytes} bytes; with first observations it must stay under {}",
                crate::limits::MAX_PAYLOAD_BYTES / 2
            ),
            Self::Header(_) => f.write_str("the env says more than a recording may"),
            Self::WriterGone => f.write_str("the recorder's writer thread has ended"),
        }
    }
}

impl std::error::Error for BeginError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Header(error) => Some(&**error),
            _ => None,
        }
    }
}

impl RecordError {
    /// Returns counts of what is written, and what is lost.
    pub fn recorded(&self) -> &Recorded {
        match self {
            Self::Disk { recorded, .. } | Self::WriterGone { recorded } => recorded,
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recorded { episodes, lost_episodes, lost_chunks, .. } = self.recorded();
        match self {
            Self::Disk { error, .. } => write!(f, "{error}; ")?,
            Self::WriterGone { .. } => f.write_str("the recorder's writer thread ended unexpectedly; ")?,
        }
        write!(
            f,
            "{episodes} episodes are written, {lost_episodes} episodes in {lost_chunks} chunks are lost"
        )
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Disk { error, .. } => Some(error),
            Self::WriterGone { .. } => None,
        }
    }
}

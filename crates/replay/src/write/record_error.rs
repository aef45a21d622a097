//! The errors of recording.

use std::fmt;
use std::sync::Arc;

use rollhouse_core::msgpack::DecodeError;
use rollhouse_core::{SamePath, StepColumnsError};

use crate::disk_error::DiskError;
use crate::limits::MAX_OPEN_RUNS;
use crate::write::recorded::Recorded;

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
    /// Two columns have the same path, so that readers would find one of them.
    SamePath(SamePath),
    /// The step columns of the owner and those of the env do not fit together.
    StepColumns(StepColumnsError),
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
            Self::SamePath(error) => write!(f, "{error}"),
            Self::StepColumns(error) => write!(f, "{error}"),
            Self::Header(_) => f.write_str("the description of the env is too large for a recording"),
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

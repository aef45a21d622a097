//! What a recorder has written, and how its disk is.

use std::time::Duration;

use rollhouse_core::OwnedBytes;

use crate::disk::DiskRoom;
use crate::disk_error::DiskError;
use crate::stored::recover::RepairReport;

/// Counts of what a recorder has written so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Episodes that were written from their beginning to their end.
    pub episodes: u64,
    /// Steps of lanes that were written. Those that a failed disk did not keep are among them.
    pub steps: u64,
    /// Bytes that what is recorded of those steps takes in memory.
    pub raw_bytes: u64,
    /// Bytes written to segments.
    pub bytes: u64,
    /// Bytes among those that a failed disk did not keep.
    pub torn_bytes: u64,
    /// Segments that were opened.
    pub segments: u64,
    /// Episodes that lack a chunk which could not be written: the one with the end, or one before it.
    pub lost_episodes: u64,
    /// Chunks that could not be written.
    pub lost_chunks: u64,
    /// Pictures that were left out, because more came than the disk could follow.
    pub lost_frames: u64,
    /// Old segments that were removed to stay within the budget.
    pub dropped_segments: u64,
    /// Bytes of the segments that were removed.
    pub dropped_bytes: u64,
    /// Time for which stepping threads waited because the disk could not follow, added up over threads.
    pub stalled: Duration,
    /// Time for which the writer thread was busy.
    pub busy: Duration,
}

/// The status of a recorder: what it has written, and what is wrong with its disk if anything.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Counts of what was written so far.
    pub recorded: Recorded,
    /// Episodes among those that survive a power cut.
    pub durable_episodes: u64,
    /// Bytes of segments that are not sealed: of the one being written, and of the one before while it is sealed.
    pub open_bytes: u64,
    /// Whose those bytes are.
    pub open_owned: OwnedBytes,
    /// The last failed operation. Set while and after the recorder could not write.
    pub error: Option<DiskError>,
    /// Whether the disk takes nothing just now, for the reason in `error`.
    pub failing: bool,
    /// Wall clock since when it takes nothing, in milliseconds since 1970.
    pub failing_since_ms: Option<u64>,
    /// Room on the disk when it was looked last; `None` where that is not known.
    pub room: Option<DiskRoom>,
    /// Whether somebody has removed the folder: then nothing is recorded any more.
    pub removed: bool,
    /// Report on what opening the folder had to repair.
    pub repaired: RepairReport,
}

//! The configuration of a recorder.

use std::time::Duration;

use crate::limits::{BUDGET_BYTES, SEGMENT_BYTES};

/// The configuration of a [`Recorder`](crate::Recorder).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecorderConfig {
    /// Bytes at which a segment is sealed and the next one opened; between
    /// [`EXTENT_BYTES`](crate::limits::EXTENT_BYTES) / 16 and
    /// [`MAX_SEGMENT_BYTES`](crate::limits::MAX_SEGMENT_BYTES). Default [`SEGMENT_BYTES`]: large enough that a run's
    /// header does not count, small enough that the budget drops little at a time.
    pub segment_bytes: u64,
    /// Bytes of all segments at which the oldest unpinned ones are dropped, whole and counted. Default
    /// [`BUDGET_BYTES`]. Set it to `u64::MAX` where somebody else takes segments away, see
    /// [`Recorder::spool`](crate::Recorder::spool).
    pub budget_bytes: u64,
    /// Time after its first chunk at which a segment is sealed whatever its size, at the latest; it is 200 ms when no
    /// run is open. Default: never, as small segments cost readers more. Nodes set it, because only sealed segments are
    /// shipped.
    pub seal_after: Option<Duration>,
    /// Time between two moments at which everything written is made durable without being asked. Default 1 s: at most
    /// this much of a run is lost with the machine's power.
    pub commit_every: Duration,
    /// Choice of what happens to stepping while the disk takes nothing: it is full, read-only or broken. Default
    /// [`OnOutage::Lose`].
    pub on_outage: OnOutage,
}

/// A choice of what happens to stepping while the disk takes nothing. Either way what was durable stays, what was not
/// when the disk failed (at most [`RecorderConfig::commit_every`]) is counted as lost, and recording goes on by itself
/// within about four seconds of the disk taking something again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnOutage {
    /// Stepping goes on; what is stepped meanwhile is counted as lost.
    #[default]
    Lose,
    /// Stepping waits: see [`RunRecorder::outage`](crate::RunRecorder::outage). Nothing that is stepped meanwhile is
    /// lost.
    Wait,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES,
            budget_bytes: BUDGET_BYTES,
            seal_after: None,
            commit_every: Duration::from_secs(1),
            on_outage: OnOutage::Lose,
        }
    }
}

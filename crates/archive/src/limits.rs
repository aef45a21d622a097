//! The limits of targets, each with a name.

use std::time::Duration;

/// Largest label that is read, in bytes: that of a segment with fifty thousand runs.
pub const MAX_LABEL_BYTES: u64 = 4 << 20;
/// Largest manifest that is read, in bytes: that of three million segments.
pub const MAX_MANIFEST_BYTES: u64 = 512 << 20;
/// Number of segments of one target, or of one manifest.
pub const MAX_SEGMENTS: usize = 1 << 22;
/// Number of runs of one label.
pub const MAX_RUNS: usize = 1 << 17;
/// Time within which object storage has to accept a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which object storage may be silent in the middle of an answer.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that one request may take as a whole: the largest segment at 4 MB/s.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// Number of times that a request is tried again if object storage did not answer it, or was too busy.
pub const MAX_RETRIES: usize = 4;
/// Time after which no request is tried again.
pub const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

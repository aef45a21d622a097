//! Every bound of targets, by name.

use std::time::Duration;

/// Bytes of a label that are read: that of a segment with fifty thousand runs.
pub const MAX_LABEL_BYTES: u64 = 4 << 20;
/// Bytes of a manifest that are read: that of three million segments.
pub const MAX_MANIFEST_BYTES: u64 = 512 << 20;
/// Segments of one target, or of one manifest.
pub const MAX_SEGMENTS: usize = 1 << 22;
/// Runs of one label.
pub const MAX_RUNS: usize = 1 << 17;
/// How long object storage may take to accept a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long object storage may be silent in the middle of an answer.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one request may take as a whole: the largest segment at 4 MB/s.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// How often a request is tried again that object storage did not answer, or was too busy for.
pub const MAX_RETRIES: usize = 4;
/// After so long no request is tried again.
pub const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

//! This folder writes recordings, from the stepping threads' buffers to sealed segments.

pub(crate) mod block;
pub(crate) mod handover;
pub(crate) mod outage;
pub(crate) mod record_error;
pub(crate) mod recorder;
pub(crate) mod segment;
pub(crate) mod segments;
pub(crate) mod spool;
pub(crate) mod syncer;
pub(crate) mod writer;

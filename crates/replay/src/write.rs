//! This folder writes recordings, from the stepping threads' buffers to sealed segments.

pub(crate) mod block;
pub(crate) mod handover;
pub(crate) mod outage;
pub(crate) mod packers;
pub(crate) mod record_error;
pub(crate) mod recorded;
pub(crate) mod recorder;
pub(crate) mod recorder_config;
pub(crate) mod segment_writer;
pub(crate) mod segments;
pub(crate) mod spool;
pub(crate) mod syncer;
mod undurable;
pub(crate) mod writer;

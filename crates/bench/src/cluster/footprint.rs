//! The footprint of this process, for a result.

use std::io;

use rollhouse_metrics::ProcessSample;
use serde::Serialize;

/// The resources of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Footprint {
    /// Bytes in memory.
    pub(super) resident_bytes: u64,
    pub(super) threads: u64,
    pub(super) descriptors: u64,
}

impl Footprint {
    /// Returns the footprint of this process now.
    pub(super) fn now() -> io::Result<Self> {
        let ProcessSample { resident_bytes, threads, descriptors, .. } = ProcessSample::now()?;
        Ok(Self { resident_bytes, threads, descriptors })
    }
}

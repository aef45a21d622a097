//! Figures of a coordinator's archive.

use std::time::Duration;

use crate::family::{Family, Kind, Page};

/// Figures of a coordinator's archive at one moment; all are 0 without an archive.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArchiveSample {
    /// Segments of the store that are not known to be in the archive.
    pub waiting_segments: u64,
    /// Bytes of those segments.
    pub waiting_bytes: u64,
    /// Longest time that one of them has been waiting.
    pub longest_wait: Duration,
    /// Segments that are in the archive.
    pub segments: u64,
    /// Bytes of those segments.
    pub bytes: u64,
    /// Segments in the archive that are not on the store's disk.
    pub away_segments: u64,
    /// Bytes of those segments.
    pub away_bytes: u64,
    /// Segments that are damaged on the store's disk, so that no archive takes them.
    pub unfit_segments: u64,
    /// Number of times that the archive did not do what was asked.
    pub failures: u64,
    /// Number of reads of archived segments that found them fetched already.
    pub hits: u64,
    /// Number of segments that were fetched from the archive to be read.
    pub misses: u64,
    /// Number of those that did not come, or came damaged.
    pub failed: u64,
}

impl ArchiveSample {
    /// Metrics of an archive.
    pub const FAMILIES: &'static [Family] = &[
        WAITING_SEGMENTS,
        WAITING_BYTES,
        WAITING_SECONDS,
        SEGMENTS,
        BYTES,
        AWAY_SEGMENTS,
        AWAY_BYTES,
        UNFIT,
        FAILURES,
        READS,
        FAILED,
    ];

    /// Puts the figures on a page.
    pub fn put(&self, page: &mut Page) {
        page.value(&WAITING_SEGMENTS, self.waiting_segments as f64);
        page.value(&WAITING_BYTES, self.waiting_bytes as f64);
        page.value(&WAITING_SECONDS, self.longest_wait.as_secs_f64());
        page.value(&SEGMENTS, self.segments as f64);
        page.value(&BYTES, self.bytes as f64);
        page.value(&AWAY_SEGMENTS, self.away_segments as f64);
        page.value(&AWAY_BYTES, self.away_bytes as f64);
        page.value(&UNFIT, self.unfit_segments as f64);
        page.value(&FAILURES, self.failures as f64);
        page.labelled(&READS, &["hit"], self.hits as f64);
        page.labelled(&READS, &["miss"], self.misses as f64);
        page.value(&FAILED, self.failed as f64);
    }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: Kind::Gauge, labels: &[] }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: Kind::Counter, labels: &[] }
}

const WAITING_SEGMENTS: Family = gauge(
    "rollhouse_archive_waiting_segments",
    "Segments of the store that are not known to be in the archive; 0 without one.",
);
const WAITING_BYTES: Family = gauge("rollhouse_archive_waiting_bytes", "Bytes of those segments.");
const WAITING_SECONDS: Family = gauge(
    "rollhouse_archive_waiting_seconds",
    "How long the segment waits for the archive that has waited longest, since it came or the coordinator started.",
);
const SEGMENTS: Family = gauge("rollhouse_archive_segments", "Segments that are in the archive.");
const BYTES: Family = gauge("rollhouse_archive_bytes", "Bytes of the segments that are in the archive.");
const AWAY_SEGMENTS: Family =
    gauge("rollhouse_archive_away_segments", "Segments that are in the archive and left the store's disk.");
const AWAY_BYTES: Family = gauge("rollhouse_archive_away_bytes", "Bytes of those segments.");
const UNFIT: Family = gauge(
    "rollhouse_archive_unfit_segments",
    "Segments that are damaged on the store's disk, so that they are not archived.",
);
const FAILURES: Family =
    counter("rollhouse_archive_failures_total", "Times that the archive did not do what was asked.");
const READS: Family = Family {
    name: "rollhouse_archive_reads_total",
    help: "Reads of segments that are in the archive only, by whether they were fetched already.",
    kind: Kind::Counter,
    labels: &["cache"],
};
const FAILED: Family = counter(
    "rollhouse_archive_failed_reads_total",
    "Segments that could not be fetched from the archive to be read, or came damaged.",
);

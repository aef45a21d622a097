//! The status of a block, as the owner's thread sees it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rollhouse_core::LaneSet;

use crate::noted::NoteBoard;
use crate::past::LogEvent;

/// Status of a block for the owner's thread, which reads it when no step is in flight.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct BlockStatus {
    waiting: AtomicU64,
    lost: AtomicU64,
    /// Lanes whose last loss was that they did not answer in time.
    hung: AtomicU64,
    retired: AtomicU64,
    /// True if the log is not empty.
    logged: AtomicBool,
    log: Mutex<Vec<LogEvent>>,
    /// What is noted of the lanes' next steps.
    pub(crate) noted: NoteBoard,
}

impl BlockStatus {
    /// Shows the lanes that may begin an episode, those that are lost, and those that have played their quota.
    #[inline]
    pub(super) fn show(&self, waiting: LaneSet, lost: LaneSet, retired: LaneSet) {
        self.waiting.store(waiting.bits(), Ordering::Relaxed);
        self.lost.store(lost.bits(), Ordering::Relaxed);
        self.retired.store(retired.bits(), Ordering::Relaxed);
    }

    /// Returns the lanes whose episode is over and that may begin another.
    pub(crate) fn waiting(&self) -> LaneSet {
        LaneSet::of_bits(self.waiting.load(Ordering::Relaxed))
    }

    /// Returns the lanes whose env has failed and is not back.
    pub(crate) fn lost(&self) -> LaneSet {
        LaneSet::of_bits(self.lost.load(Ordering::Relaxed))
    }

    /// Notes whether lanes that are being lost did not answer in time.
    pub(super) fn lose(&self, lanes: LaneSet, hung: bool) {
        let before = LaneSet::of_bits(self.hung.load(Ordering::Relaxed));
        let now = if hung { before | lanes } else { before & !lanes };
        self.hung.store(now.bits(), Ordering::Relaxed);
    }

    /// Returns the lanes whose last loss was that they did not answer in time.
    pub(crate) fn hung(&self) -> LaneSet {
        LaneSet::of_bits(self.hung.load(Ordering::Relaxed))
    }

    /// Returns the lanes that have played their quota.
    pub(crate) fn retired(&self) -> LaneSet {
        LaneSet::of_bits(self.retired.load(Ordering::Relaxed))
    }

    /// Adds entries to the log.
    pub(super) fn log(&self, events: impl Iterator<Item = LogEvent>) {
        self.log.lock().extend(events);
        self.logged.store(true, Ordering::Relaxed);
    }

    /// Moves the log entries since the last call to `out`.
    pub(crate) fn take_log(&self, out: &mut Vec<LogEvent>) {
        if self.logged.swap(false, Ordering::Relaxed) {
            out.append(&mut self.log.lock());
        }
    }

    /// Drops the log entries that nobody took.
    pub(crate) fn clear_log(&self) {
        if self.logged.swap(false, Ordering::Relaxed) {
            self.log.lock().clear();
        }
    }
}

//! Handling a disk that takes nothing, or a folder that is gone, while segments are written.

use std::io;
use std::time::Duration;

use super::Segments;
use crate::disk::DiskRoom;
use crate::disk_error::DiskError;
use crate::stored::lock::is_removed;
use crate::stored::names::segment_name;
use crate::stored::recover::recover_segment;
use crate::write::recorder_config::OnOutage;
use crate::write::undurable::Amount;

impl Segments {
    /// Latches the current segment after an error.
    pub(super) fn check(&mut self, result: Result<(), DiskError>) -> bool {
        match result {
            Ok(()) => true,
            Err(error) => {
                self.filling_since = None;
                let owned = std::mem::take(&mut self.written.owned);
                if let Some((number, segment)) = self.current.take().filter(|(_, segment)| segment.has_file())
                {
                    self.sealed.add_unsealed(number, segment.len(), owned);
                    self.written.closed_bytes += segment.len();
                }
                self.failed(error);
                false
            }
        }
    }

    /// Notes that the disk failed: what was not durable counts as lost from now on, though a reader may still find some
    /// of it.
    pub(super) fn failed(&mut self, error: DiskError) {
        let Amount { chunks, episodes } = self.written.undurable.lose();
        self.written.status.recorded.episodes -= episodes;
        self.lose(chunks, episodes);
        self.written.status.error = Some(error);
        self.outage.failed(self.clock.now());
        self.written.status.failing_since_ms.get_or_insert(self.clock.wall_ms());
    }

    /// Returns whether nothing may be taken until the disk has room again.
    pub(crate) fn waits(&self) -> bool {
        self.config.on_outage == OnOutage::Wait && self.outage.is_on()
    }

    /// Tests, if the disk is out and it is time, whether it takes a trial write of some size again. What was handed
    /// over is risked only then.
    pub(crate) fn try_disk_again(&mut self) {
        if self.written.status.removed || !self.outage.is_due(self.clock.now()) {
            return;
        }
        match self.probe() {
            Ok(()) => {
                self.outage.over();
                self.written.status.failing_since_ms = None;
                self.written.status.room = self.room();
                if let Err(error) = self.seal_latched() {
                    // Recording goes on all the same; the next recorder seals what is left.
                    self.written.status.error = Some(error);
                }
            }
            Err(error) => {
                self.written.status.error = Some(error);
                self.outage.failed(self.clock.now());
            }
        }
    }

    /// Tests whether the disk takes anything before a new run begins, unless it took something lately. While a segment
    /// is written it is not tested: the writer notices a full disk by itself.
    pub(crate) fn try_disk(&mut self) {
        let now = self.clock.now();
        let known = self.checks.tried.is_some_and(|at| now.saturating_sub(at) < TRY_EVERY);
        self.check_folder();
        if known || self.outage.is_on() || self.current.is_some() || self.closing.is_some() {
            return;
        }
        match self.probe() {
            Ok(()) => self.checks.tried = Some(now),
            Err(error) => self.failed(error),
        }
    }

    /// Checks now and then whether the folder is still there. Without it nothing is recorded any more: what is written
    /// to files that were removed is lost, and somebody else may have the folder of that name.
    pub(crate) fn look_after_folder(&mut self) {
        if self.clock.now().saturating_sub(self.checks.seen) >= SEEN_EVERY {
            self.check_folder();
        }
    }

    pub(super) fn room(&self) -> Option<DiskRoom> {
        self.folder.disk.room(&self.folder.dir)
    }

    fn check_folder(&mut self) {
        self.checks.seen = self.clock.now();
        self.written.status.room = self.room();
        if !self.written.status.removed && is_removed(&*self.folder.disk, &self.folder.dir) {
            self.written.status.removed = true;
            let error = DiskError::new("finding", &self.folder.dir, io::ErrorKind::NotFound.into());
            self.settle();
            self.check(Err(error));
        }
    }

    /// Seals the segments that were latched when the disk failed, so that what is durable in them is shipped and read
    /// now and not after the next start.
    fn seal_latched(&mut self) -> Result<(), DiskError> {
        let dir = self.folder.segments();
        for (number, latched) in self.sealed.unsealed() {
            let path = dir.join(segment_name(number));
            let sealed = recover_segment(&*self.folder.disk, &path, number)?.sealed;
            self.folder.disk.sync_dir(&dir).map_err(|error| DiskError::new("sync", &dir, error))?;
            // What the disk has of it, and its seal, may be more or less than was given to it.
            let there = sealed.map_or(0, |segment| segment.bytes);
            self.written.closed_bytes += there.saturating_sub(latched);
            self.written.status.recorded.torn_bytes += latched.saturating_sub(there);
            match sealed {
                Some(segment) => self.sealed.add(segment, self.sealed.owned(number)),
                None => self.sealed.forget(number),
            }
        }
        Ok(())
    }

    /// Writes as much as two writes of a segment to a file of its own, makes it durable and removes it.
    fn probe(&self) -> Result<(), DiskError> {
        let path = self.folder.dir.join(PROBE);
        let failed = |operation| {
            let path = path.clone();
            move |error| DiskError::new(operation, &path, error)
        };
        match self.folder.disk.remove(&path) {
            // Left by a probe that failed.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("remove")(error));
            }
            _ => {}
        }
        let file = self.folder.disk.create(&path).map_err(failed("create"))?;
        let written = file.append_all(&vec![0; PROBE_BYTES]).map_err(failed("append"));
        let synced = written.and_then(|()| file.sync_data().map_err(failed("sync")));
        // On a full disk it must not stand in the way of the next.
        let removed = self.folder.disk.remove(&path).map_err(failed("remove"));
        synced.and(removed)
    }
}

/// Time for which a disk that took a trial write is not tried again.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// Time between two checks whether the folder is there.
const SEEN_EVERY: Duration = Duration::from_secs(2);
/// Name of the file with which the disk is tested.
const PROBE: &str = "probe.new";
const PROBE_BYTES: usize = 512 << 10;

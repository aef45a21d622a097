//! Keeping the budget: segments are dropped when all together exceed it.

use std::io;
use std::path::Path;

use super::Segments;
use crate::disk_error::DiskError;
use crate::limits::LEAST_SEGMENT_COST;
use crate::read::label_file::{LabelError, Labels, try_lock_labels};
use crate::stored::names::segment_name;

impl Segments {
    /// Drops the oldest segments in which nothing pinned lies while all together exceed the budget.
    pub(super) fn keep_budget(&mut self) {
        let dir = self.folder.segments();
        let mut total: u64 = self.sealed.cost() + self.config.segment_bytes;
        if total <= self.config.budget_bytes {
            return;
        }
        // Nobody pins anything meanwhile. Where that cannot be known the budget is exceeded until the next segment.
        let Ok(Some(_lock)) = try_lock_labels(&*self.folder.disk, &self.folder.dir) else { return };
        let pinned = match Labels::load(&*self.folder.disk, &self.folder.dir) {
            Ok(labels) => labels.pinned_segments(),
            Err(error) => {
                self.written.status.error = Some(unread_labels(&self.folder.dir, error));
                return;
            }
        };
        while total > self.config.budget_bytes {
            let Some((number, bytes)) = self.sealed.take_oldest(&pinned) else { return };
            let path = dir.join(segment_name(number));
            let removed = self.folder.disk.remove(&path).and_then(|()| self.folder.disk.sync_dir(&dir));
            if let Err(error) = removed {
                // The budget is exceeded, nothing is lost: said, not retried for this segment.
                self.written.status.error = Some(DiskError::new("remove", &path, error));
                continue;
            }
            total -= bytes.max(LEAST_SEGMENT_COST);
            self.written.status.recorded.dropped_segments += 1;
            self.written.status.recorded.dropped_bytes += bytes;
        }
    }
}

/// Makes the error that the labels cannot be read, so that nothing is dropped: something may be pinned.
fn unread_labels(dir: &Path, error: LabelError) -> DiskError {
    match error {
        LabelError::Disk(error) => error,
        error => DiskError::new(
            "reading the labels",
            dir,
            io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        ),
    }
}

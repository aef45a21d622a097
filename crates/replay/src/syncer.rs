//! The syncer thread: waits for the disk, so that the writer thread need not.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use crate::disk::DiskFile;
use crate::recorder::DiskError;

/// Makes files durable on a thread of its own, one at a time. The thread ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Syncer {
    jobs: SyncSender<Job>,
    done: Receiver<Synced>,
    busy: bool,
}

#[derive(Debug)]
struct Job {
    file: Arc<dyn DiskFile>,
    synced: Synced,
}

/// What was made durable, or was not.
#[derive(Debug)]
pub(crate) struct Synced {
    /// Number of the segment.
    pub(crate) segment: u64,
    /// Bytes it had when it was asked for.
    pub(crate) len: u64,
    pub(crate) path: std::path::PathBuf,
    pub(crate) result: Result<(), DiskError>,
}

impl Syncer {
    /// Starts the thread; `None` if the system has none left.
    pub(crate) fn start() -> Option<Self> {
        let (jobs, work) = sync_channel::<Job>(1);
        let (finished, done) = sync_channel(1);
        let thread = std::thread::Builder::new().name("replay-syncer".into());
        let run = move || {
            for Job { file, mut synced } in work {
                synced.result = file.sync_data().map_err(|e| DiskError::new("sync", &synced.path, e));
                if finished.send(synced).is_err() {
                    return;
                }
            }
        };
        // Task: syncer.
        thread.spawn(run).ok()?;
        Some(Self { jobs, done, busy: false })
    }

    /// Whether it is at work.
    pub(crate) const fn is_busy(&self) -> bool {
        self.busy
    }

    /// Asks for the first `len` bytes of a segment to be made durable. Call it only when it is not busy.
    pub(crate) fn ask(&mut self, segment: u64, len: u64, path: &std::path::Path, file: Arc<dyn DiskFile>) {
        let synced = Synced { segment, len, path: path.into(), result: Ok(()) };
        self.busy = self.jobs.try_send(Job { file, synced }).is_ok();
    }

    /// What came of it, if it is done.
    pub(crate) fn look(&mut self) -> Option<Synced> {
        if !self.busy {
            return None;
        }
        match self.done.try_recv() {
            Ok(synced) => {
                self.busy = false;
                Some(synced)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.busy = false;
                None
            }
        }
    }

    /// Waits for what it is doing, if anything.
    pub(crate) fn wait(&mut self) -> Option<Synced> {
        if !self.busy {
            return None;
        }
        self.busy = false;
        self.done.recv().ok()
    }
}

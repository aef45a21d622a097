//! The syncer thread: waits for the disk, so that the writer thread need not.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;

use crate::disk::{Disk, DiskFile};
use crate::disk_error::DiskError;
use crate::stored::catalogue;
use crate::stored::index::SegmentIndex;
use crate::write::segment_writer::{SegmentWriter, make_file};

/// A thread that does slow jobs, in the order in which it is asked. Dropping it waits for the jobs under way and ends
/// the thread.
#[derive(Debug)]
pub(crate) struct Syncer {
    /// Queue of the jobs; `None` while the syncer is dropped.
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    under_way: usize,
    thread: Option<JoinHandle<()>>,
}

/// A job for the syncer.
#[derive(Debug)]
pub(crate) enum Job {
    /// Make what a segment has so far durable.
    Sync {
        /// Number of the segment.
        segment: u64,
        /// Bytes that it has now.
        len: u64,
        path: PathBuf,
        file: Arc<dyn DiskFile>,
    },
    /// Seal a segment, and then make the file of the next one.
    Turn { number: u64, segment: Box<SegmentWriter>, disk: Arc<dyn Disk>, next: PathBuf },
    /// Put sealed segments into the catalogue of a folder that has those of `present`.
    Catalogue { disk: Arc<dyn Disk>, dir: PathBuf, add: Vec<SegmentIndex>, present: Vec<u64> },
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Done {
    Synced(Synced),
    Turned(Turned),
    Catalogued,
    /// The thread has ended because the disk panicked: nothing is known of any job under way.
    Gone,
}

/// The result of a sync of a segment.
#[derive(Debug)]
pub(crate) struct Synced {
    /// Number of the segment.
    pub(crate) segment: u64,
    /// Bytes that it had when the sync was asked for.
    pub(crate) len: u64,
    pub(crate) result: Result<(), DiskError>,
}

/// The result of sealing a segment: what readers need to know of it, and the file of the next one.
pub(crate) type Turned = Result<(SegmentIndex, Result<Arc<dyn DiskFile>, DiskError>), DiskError>;

impl Syncer {
    /// Most jobs under way: a turn may be asked for while another job lasts.
    const MAX_JOBS: usize = 2;

    /// Starts the thread; `None` if the system has none left.
    pub(crate) fn start() -> Option<Self> {
        let (jobs, work) = sync_channel::<Job>(Self::MAX_JOBS);
        let (finished, done) = sync_channel(Self::MAX_JOBS);
        let thread = std::thread::Builder::new().name("replay-syncer".into());
        let run = move || {
            let mut failed = None;
            for job in work {
                if finished.send(job.run(&mut failed)).is_err() {
                    return;
                }
            }
        };
        // Task: syncer.
        let thread = thread.spawn(run).ok()?;
        Some(Self { jobs: Some(jobs), done, under_way: 0, thread: Some(thread) })
    }

    /// Returns whether a job is under way.
    pub(crate) const fn is_busy(&self) -> bool {
        self.under_way > 0
    }

    /// Asks for a job.
    ///
    /// # Errors
    /// Gives the job back if too many are under way, or the thread is gone.
    pub(crate) fn ask(&mut self, job: Job) -> Result<(), Box<Job>> {
        let Some(jobs) = &self.jobs else { return Err(Box::new(job)) };
        jobs.try_send(job).map_err(|error| {
            let (TrySendError::Full(job) | TrySendError::Disconnected(job)) = error;
            Box::new(job)
        })?;
        self.under_way += 1;
        Ok(())
    }

    /// Returns the result of the oldest job under way, if it is done.
    pub(crate) fn look(&mut self) -> Option<Done> {
        if !self.is_busy() {
            return None;
        }
        let done = match self.done.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Done::Gone,
        };
        Some(self.count(done))
    }

    /// Waits for the oldest job under way, if there is one, and returns its result.
    pub(crate) fn wait(&mut self) -> Option<Done> {
        if !self.is_busy() {
            return None;
        }
        let done = self.done.recv().unwrap_or(Done::Gone);
        Some(self.count(done))
    }

    const fn count(&mut self, done: Done) -> Done {
        self.under_way = if matches!(done, Done::Gone) { 0 } else { self.under_way - 1 };
        done
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.jobs = None;
        // Of a thread that panicked, whoever asked it has heard.
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

impl Job {
    /// Does the job. `failed` is the segment whose last sync failed, and the error.
    fn run(self, failed: &mut Option<(u64, DiskError)>) -> Done {
        match self {
            Self::Sync { segment, len, path, file } => {
                let result = file.sync_data().map_err(|e| DiskError::new("sync", &path, e));
                *failed = result.as_ref().err().map(|error| (segment, error.clone()));
                Done::Synced(Synced { segment, len, result })
            }
            Self::Turn { number, segment, disk, next } => {
                if let Some((_, error)) = failed.take().filter(|(of, _)| *of == number) {
                    // The next sync would succeed without writing what that one did not.
                    return Done::Turned(Err(error));
                }
                Done::Turned(segment.seal().map(|index| (index, make_file(&*disk, &next))))
            }
            Self::Catalogue { disk, dir, add, present } => {
                catalogue::add(&*disk, &dir, add, &present);
                Done::Catalogued
            }
        }
    }

    /// Does the job on the calling thread, where there is no syncer.
    pub(crate) fn run_here(self) -> Done {
        self.run(&mut None)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::stored::recover::is_sealed;
    use crate::testing::{Faults, FaultyDisk};

    /// A failed sync makes the system count the pages as written: the next sync would succeed without them.
    #[test]
    fn a_segment_is_not_sealed_after_a_sync_of_it_failed() {
        let (disk, dir) = (FaultyDisk::new(), Path::new("/segments"));
        disk.create_dir(dir).unwrap();
        let mut segment = SegmentWriter::new(dir, 1, 7, 0, false);
        let path = segment.path().to_owned();
        segment.open(make_file(&disk, &path).unwrap());
        segment.flush().unwrap();
        let (file, len) = segment.to_sync().unwrap();
        let mut syncer = Syncer::start().unwrap();
        disk.set_faults(Faults { fail_syncs: true, ..Faults::default() });
        syncer.ask(Job::Sync { segment: 1, len, path: path.clone(), file }).unwrap();
        assert!(matches!(syncer.wait(), Some(Done::Synced(Synced { result: Err(_), .. }))));
        disk.set_faults(Faults::default());
        let next = dir.join("next");
        let disk = Arc::new(disk);
        syncer.ask(Job::Turn { number: 1, segment: Box::new(segment), disk: disk.clone(), next }).unwrap();
        assert!(matches!(syncer.wait(), Some(Done::Turned(Err(_)))));
        assert!(!is_sealed(&*disk, &path).unwrap());
        assert!(syncer.wait().is_none());
    }

    /// Symptom: chunks that a failed sync had left nowhere were counted as durable. Cause: when an append failed, the
    /// writer synced what was appended before, and that sync succeeds for a file whose sync has just failed on the
    /// syncer's thread. Fix: what the syncer is at is settled first.
    #[test]
    fn an_append_that_fails_after_a_failed_sync_saves_nothing_of_what_that_was_to_write() {
        use crate::clock::Clock;
        use crate::code::extent::ChunkEnds;
        use crate::write::recorder_config::RecorderConfig;
        use crate::write::segment_writer::ChunkPlace;
        use crate::write::segment_writer::RunPlace;
        use crate::write::segments::Segments;
        use crate::write::spool::Spool;

        let (disk, dir) = (FaultyDisk::new(), Path::new("/folder"));
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let config = RecorderConfig { commit_every: std::time::Duration::ZERO, ..RecorderConfig::default() };
        let spool = Spool::new(shared.clone(), dir);
        let mut segments = Segments::open(shared, dir, config, 7, spool, Clock::system()).unwrap();
        let mut run = RunPlace {
            tag: 3,
            env: "env".into(),
            payload: vec![0xC0; 100].into(),
            memory: 100,
            at: None,
            owner: None,
        };
        let mut add = |segments: &mut Segments| {
            let place = ChunkPlace { run: 0, first_lane: 0, lanes: 1, rows: 1, position: 0, ms: 5 };
            segments.add_chunk(&mut run, place, (&[7; 100], &[]), &ChunkEnds::new());
        };
        add(&mut segments);
        segments.flush();
        disk.set_faults(Faults { fail_syncs: true, ..Faults::default() });
        let before = disk.operations();
        segments.commit_if_due();
        while disk.operations() == before {
            std::thread::yield_now();
        }
        // The sync has failed, or is about to; the next append fails, and later syncs succeed.
        add(&mut segments);
        disk.set_faults(Faults { capacity: Some(disk.used()), ..Faults::default() });
        segments.flush();
        let status = segments.status(std::time::Duration::ZERO);
        assert_eq!(status.recorded.lost_chunks, 2, "neither is on the disk");
    }
}

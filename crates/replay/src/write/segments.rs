//! The segments of a folder that is recorded into: the current one is written, and sealed in time.
//!
//! ```text
//! no segment -> writing -> no segment                 sealed by age, when asked or at the end
//!               writing -> turning -> writing         full: the syncer seals it and makes the next one's file
//!               writing -> disk out --room again--> no segment     after a failed operation
//! ```
//!
//! While the disk is out, chunks are coded (so that counting goes on) and dropped, and counted as lost; or nothing
//! is taken, so that stepping waits: see [`OnOutage`](crate::OnOutage).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::OwnedBytes;

use crate::clock::Clock;
use crate::code::extent::{ChunkEnds, Extent};
use crate::disk::{Disk, DiskFile};
use crate::disk_error::DiskError;
use crate::limits::{CATCH_UP_BYTES, UNFLUSHED_BYTES};
use crate::stored::catalogue::{self, Catalogue};
use crate::stored::index::{SealedSegment, SegmentIndex};
use crate::stored::lock::{OpenError, WriterLock, lock_folder};
use crate::stored::names::{segment_name, segment_numbers, segments_dir};
use crate::stored::recover::recover;
use crate::stored::scan::scan_with_rows;
use crate::stored::summary::Entry;
use crate::write::outage::Outage;
use crate::write::recorded::Status;
use crate::write::recorder_config::RecorderConfig;
use crate::write::segment_writer::{ChunkPlace, RunPlace, SegmentWriter, make_file};
use crate::write::spool::{Spool, numbers_set_aside};
use crate::write::syncer::{Done, Job, Synced, Syncer, Turned};
use crate::write::undurable::{Amount, Undurable};

mod budget;
mod disk;

/// The segments of the folder, with the state of its disk.
#[derive(Debug)]
pub(crate) struct Segments {
    folder: Folder,
    config: RecorderConfig,
    session: u32,
    next_number: u64,
    current: Option<(u64, SegmentWriter)>,
    /// Time at which the current segment got its first chunk.
    filling_since: Option<Duration>,
    /// The segment before the current one, while the syncer seals it; until it is sealed, the current one has no file.
    closing: Option<Closing>,
    /// The folder's other segments.
    sealed: Spool,
    outage: Outage,
    clock: Clock,
    last_commit: Duration,
    checks: DiskChecks,
    syncer: Option<Syncer>,
    written: Written,
    /// Indexes of segments that this session has sealed and the catalogue does not have yet.
    uncatalogued: Vec<SegmentIndex>,
}

/// The folder that is recorded into. Nobody else records into it.
#[derive(Debug)]
struct Folder {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    _lock: WriterLock,
}

impl Folder {
    /// Returns the folder of the segments in it.
    fn segments(&self) -> PathBuf {
        segments_dir(&self.dir)
    }

    /// Returns the path of a segment in it.
    fn segment(&self, number: u64) -> PathBuf {
        self.segments().join(segment_name(number))
    }
}

/// The times of the last checks of the folder's disk.
#[derive(Debug)]
struct DiskChecks {
    /// Time at which the disk last took a trial write.
    tried: Option<Duration>,
    /// Time at which the folder was last seen.
    seen: Duration,
}

/// The account of what was written.
#[derive(Debug)]
struct Written {
    status: Status,
    /// Bytes of the segments this session has closed.
    closed_bytes: u64,
    undurable: Undurable,
    /// Whose the bytes of the current segment are.
    owned: OwnedBytes,
}

impl Written {
    fn count_durable(&mut self) {
        self.status.durable_episodes = self.status.recorded.episodes - self.undurable.episodes();
    }

    fn lose(&mut self, chunks: u64, episodes: u64) {
        self.status.recorded.lost_chunks += chunks;
        self.status.recorded.lost_episodes += episodes;
    }
}

/// A segment that is being sealed.
#[derive(Debug)]
struct Closing {
    number: u64,
    bytes: u64,
    /// What is not durable and lies in this segment.
    undurable: Amount,
    owned: OwnedBytes,
}

impl Segments {
    /// Takes the folder's lock and repairs the folder.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: RecorderConfig,
        session: u32,
        sealed: Spool,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let lock = lock_folder(&*disk, dir)?;
        let report = recover(&*disk, dir).map_err(OpenError::Disk)?;
        let segments = segments_dir(dir);
        let failed = |operation, path: &Path, error| OpenError::Disk(DiskError::new(operation, path, error));
        let numbers = segment_numbers(&*disk, dir).map_err(|e| failed("list", &segments, e))?;
        let mut highest = report.removed.iter().copied().max();
        let aside = numbers_set_aside(&*disk, dir).map_err(|e| failed("list", dir, e))?;
        highest = highest.max(aside.into_iter().max());
        for number in numbers {
            let path = segments.join(segment_name(number));
            let bytes = disk.open(&path).and_then(|file| file.len()).map_err(|e| failed("read", &path, e))?;
            sealed.add(SealedSegment { number, bytes, episodes: None }, OwnedBytes::default());
            highest = highest.max(Some(number));
        }
        let room = disk.room(dir);
        Ok(Self {
            folder: Folder { disk, dir: dir.into(), _lock: lock },
            config,
            session,
            next_number: highest.map_or(1, |number| number + 1),
            current: None,
            filling_since: None,
            closing: None,
            sealed,
            outage: Outage::new(u64::from(session)),
            clock,
            last_commit: clock.now(),
            checks: DiskChecks { tried: None, seen: clock.now() },
            syncer: if matches!(clock, Clock::System(_)) { Syncer::start() } else { None },
            written: Written {
                status: Status { repaired: report, room, ..Status::default() },
                closed_bytes: 0,
                undurable: Undurable::default(),
                owned: OwnedBytes::default(),
            },
            uncatalogued: Vec::new(),
        })
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    /// Sets the clock of the caller that drives the writer to `now`.
    pub(crate) const fn drive(&mut self, now: Duration, ahead_ms: i64) {
        self.clock = Clock::Driven(now, ahead_ms);
    }

    /// Returns what was written, by a writer that has been busy since `began`.
    pub(crate) fn status(&mut self, began: Duration) -> &Status {
        self.written.status.recorded.busy += self.clock.now().saturating_sub(began);
        let open = self.current.as_ref().map_or(0, |(_, segment)| segment.len());
        self.written.status.recorded.bytes = self.written.closed_bytes + open;
        self.written.status.failing = self.outage.is_on();
        self.written.status.open_bytes = open + self.closing.as_ref().map_or(0, |closing| closing.bytes);
        self.written.status.open_owned = self.written.owned.clone();
        if let Some(closing) = &self.closing {
            self.written.status.open_owned.add_all(&closing.owned);
        }
        &self.written.status
    }

    /// Returns the reason why nothing may be taken until the disk has room again, if there is one.
    pub(crate) fn outage(&self) -> Option<DiskError> {
        self.waits().then(|| self.written.status.error.clone()).flatten()
    }

    /// Writes a chunk of `run` to the current segment, with the payload of its pictures and the ends in it. The run's
    /// index in `place` is filled in. Returns false if it is lost.
    pub(crate) fn add_chunk(
        &mut self,
        run: &mut RunPlace,
        place: ChunkPlace,
        (payload, frames): (&[u8], &[u8]),
        ends: &ChunkEnds,
    ) -> bool {
        let episodes = ends.episodes();
        let is_there = self.make_room(run);
        let Some((number, segment)) = self.current.as_mut().filter(|_| is_there) else {
            self.lose(1, episodes);
            return false;
        };
        let before = segment.len();
        let index = match run.at {
            Some((at, index)) if at == *number => index,
            _ => {
                let index = segment.add_run(run);
                run.at = Some((*number, index));
                index
            }
        };
        let place = ChunkPlace { run: index, ..place };
        segment.add_chunk(place, payload, ends);
        if !frames.is_empty() {
            segment.add_frames(place, frames);
        }
        if let Some(owner) = &run.owner {
            self.written.owned.add(owner, segment.len() - before);
        }
        self.filling_since.get_or_insert(self.clock.now());
        self.written.status.recorded.lost_episodes += ends.headless;
        let episodes = episodes - ends.headless;
        self.written.status.recorded.episodes += episodes;
        self.written.undurable.add(episodes);
        if segment.is_flush_due() {
            self.flush();
        }
        true
    }

    /// Counts steps of a chunk that was added, and the bytes that what is recorded of them takes in memory.
    pub(crate) const fn count_steps(&mut self, steps: u64, raw_bytes: u64) {
        self.written.status.recorded.steps += steps;
        self.written.status.recorded.raw_bytes += raw_bytes;
    }

    /// Notes the end of a run in the segment that has its last chunk. If that is sealed already, the end goes to
    /// another one, unless no episode is open, so that readers do not need it.
    pub(crate) fn end_run(&mut self, run: &RunPlace, has_open: bool) {
        let Some((at, index)) = run.at else { return };
        if let Some((number, segment)) = &mut self.current
            && at == *number
        {
            return segment.end_run(index);
        }
        if has_open
            && self.make_room(run)
            && let Some((_, segment)) = &mut self.current
        {
            let index = segment.add_run(run);
            segment.end_run(index);
            self.filling_since.get_or_insert(self.clock.now());
        }
    }

    /// Ensures that there is a segment with room for a chunk of the run; returns false if there can be none now.
    fn make_room(&mut self, run: &RunPlace) -> bool {
        let is_full = |(number, segment): &(u64, SegmentWriter)| {
            let is_new = run.at.is_none_or(|(at, _)| at != *number);
            segment.len() >= self.config.segment_bytes || is_new && !segment.takes_run(run)
        };
        if self.current.as_ref().is_some_and(is_full) {
            self.turn();
        }
        if self.current.is_some() {
            return true;
        }
        if self.outage.is_on() {
            return false;
        }
        let number = self.next_number;
        self.next_number += 1;
        let segment = self.new_segment(number);
        let file = make_file(&*self.folder.disk, segment.path());
        self.current = Some((number, segment));
        self.open_current(file)
    }

    fn new_segment(&self, number: u64) -> SegmentWriter {
        let lists = self.config.budget_bytes < u64::MAX && self.folder.disk.has_real_paths();
        SegmentWriter::new(&self.folder.segments(), number, self.session, self.clock.wall_ms(), lists)
    }

    /// Gives the current segment its file; returns false if there is none.
    fn open_current(&mut self, file: Result<Arc<dyn DiskFile>, DiskError>) -> bool {
        let opened = file.map(|file| {
            if let Some((_, segment)) = &mut self.current {
                segment.open(file);
                self.written.status.recorded.segments += 1;
            }
        });
        let opened = self.check(opened);
        if opened {
            self.keep_budget();
        }
        opened
    }

    /// Goes on with the next segment, while the syncer seals the current one.
    fn turn(&mut self) {
        if self.closing.is_some() {
            self.settle();
        }
        let Some(syncer) = &mut self.syncer else { return self.seal() };
        let Some((number, segment)) = self.current.take() else { return };
        let bytes = segment.len();
        let next = self.next_number;
        let path = self.folder.segment(next);
        let job =
            Job::Turn { number, segment: Box::new(segment), disk: self.folder.disk.clone(), next: path };
        match syncer.ask(job) {
            Ok(()) => {
                let (undurable, owned) =
                    (self.written.undurable.close(), std::mem::take(&mut self.written.owned));
                self.closing = Some(Closing { number, bytes, undurable, owned });
                self.written.closed_bytes += bytes;
                self.next_number += 1;
                self.current = Some((next, self.new_segment(next)));
                self.filling_since = None;
            }
            Err(job) => {
                self.syncer = None;
                if let Job::Turn { segment, .. } = *job {
                    self.current = Some((number, *segment));
                    self.seal();
                }
            }
        }
    }

    /// Takes the result of sealing the segment before the current one.
    fn take_turned(&mut self, turned: Turned) {
        let Some(Closing { number, bytes, undurable, owned }) = self.closing.take() else { return };
        match turned {
            Ok((index, file)) => {
                self.written.closed_bytes += index.bytes - bytes;
                self.written.undurable.made_durable(undurable);
                self.count_durable();
                self.add_sealed(index, owned);
                if let Some(job) = self.catalogue() {
                    self.do_aside(job);
                }
                self.open_current(file);
            }
            Err(error) => {
                self.sealed.add_unsealed(number, bytes, owned);
                self.written.owned = OwnedBytes::default();
                // What came since then is in memory only, for a file that is not there.
                self.current = None;
                self.filling_since = None;
                self.failed(error);
            }
        }
    }

    /// Has the syncer do a job, or does it on this thread if the syncer cannot take it.
    fn do_aside(&mut self, job: Job) {
        let asked = match &mut self.syncer {
            Some(syncer) => syncer.ask(job),
            None => Err(Box::new(job)),
        };
        if let Err(job) = asked {
            job.run_here();
        }
    }

    fn count_durable(&mut self) {
        self.outage.worked();
        self.written.count_durable();
    }

    fn add_sealed(&mut self, index: SegmentIndex, owned: OwnedBytes) {
        let episodes = Some(index.extents.iter().map(Extent::episodes).sum());
        self.sealed.add(SealedSegment { number: index.number, bytes: index.bytes, episodes }, owned);
        self.uncatalogued.push(index);
    }

    /// Gives pending records to the operating system; keeps them while the segment has no file.
    pub(crate) fn flush(&mut self) {
        if self.closing.is_some() {
            self.look();
            let pending = self.current.as_ref().map_or(0, |(_, segment)| segment.pending_bytes());
            if self.closing.is_some() && pending < UNFLUSHED_BYTES {
                return;
            }
            self.settle();
        }
        if let Some((_, segment)) = &mut self.current {
            let flushed = segment.flush();
            if flushed.is_err() {
                self.save_appended();
            }
            self.written.undurable.flushed();
            self.check(flushed);
        }
    }

    /// Tries, after a failed append, to make durable what was appended before: if that succeeds, only the rest is lost.
    fn save_appended(&mut self) {
        // A sync of the syncer's may be under way, or have failed: the next one of the same file would succeed without
        // writing what that one did not.
        self.settle();
        if let Some((_, segment)) = &mut self.current
            && segment.sync().is_ok()
        {
            self.written.undurable.flushed_is_durable();
        }
    }

    /// Gives pending records to the operating system, however long that has to wait for the syncer.
    pub(crate) fn write_out(&mut self) {
        if self.closing.is_some() {
            self.settle();
        }
        self.flush();
    }

    /// Has the syncer make everything written durable, if it is time.
    pub(crate) fn commit_if_due(&mut self) {
        let dirty = self.current.as_ref().is_some_and(|(_, segment)| segment.is_dirty());
        if !dirty || self.clock.now().saturating_sub(self.last_commit) < self.config.commit_every {
            return;
        }
        match (&mut self.syncer, &self.current) {
            (Some(syncer), Some((number, segment))) if !syncer.is_busy() => {
                self.last_commit = self.clock.now();
                let Some((file, len)) = segment.to_sync() else { return };
                let path = segment.path().to_owned();
                match syncer.ask(Job::Sync { segment: *number, len, path, file }) {
                    Ok(()) => self.written.undurable.ask(),
                    Err(_) => self.syncer = None,
                }
            }
            (Some(_), _) => {}
            (None, _) => self.commit(),
        }
    }

    fn take_synced(&mut self, synced: Synced) {
        let asked = self.written.undurable.take_asked();
        // Of a segment closed since then it does not count: that is durable already, or latched, or being sealed.
        let Some((_, segment)) = self.current.as_mut().filter(|(number, _)| *number == synced.segment) else {
            return;
        };
        if synced.result.is_ok() {
            segment.synced_to(synced.len);
            self.written.undurable.made_durable(asked);
            self.count_durable();
        }
        self.check(synced.result);
    }

    /// Takes the results of the jobs that the syncer has done.
    pub(crate) fn look(&mut self) {
        while let Some(done) = self.syncer.as_mut().and_then(Syncer::look) {
            self.take(done);
        }
    }

    /// Waits until the syncer has done its jobs, so that it and this thread do not count the same chunks twice.
    fn settle(&mut self) {
        while let Some(done) = self.syncer.as_mut().and_then(Syncer::wait) {
            self.take(done);
        }
    }

    fn take(&mut self, done: Done) {
        match done {
            Done::Synced(synced) => self.take_synced(synced),
            Done::Turned(turned) => self.take_turned(turned),
            Done::Catalogued => {}
            Done::Gone => {
                self.syncer = None;
                self.written.undurable.take_asked();
                if let Some(closing) = &self.closing {
                    let path = self.folder.segment(closing.number);
                    let error = io::Error::other("the syncer thread ended by a panic");
                    self.take_turned(Err(DiskError::new("seal", &path, error)));
                }
            }
        }
    }

    pub(crate) fn commit(&mut self) {
        self.last_commit = self.clock.now();
        self.settle();
        self.flush();
        if let Some((_, segment)) = self.current.as_mut().filter(|(_, segment)| segment.is_dirty()) {
            let committed = segment.commit();
            if self.check(committed) {
                self.all_durable();
            }
        }
    }

    fn all_durable(&mut self) {
        self.written.undurable.all_durable();
        self.count_durable();
    }

    /// Seals the current segment.
    pub(crate) fn seal(&mut self) {
        self.settle();
        let Some((number, segment)) = self.current.take() else { return };
        self.filling_since = None;
        let (len, owned) = (segment.len(), std::mem::take(&mut self.written.owned));
        match segment.seal() {
            Ok(index) => {
                self.written.closed_bytes += index.bytes;
                self.all_durable();
                self.add_sealed(index, owned);
                self.catalogue_here();
            }
            Err(error) => {
                self.sealed.add_unsealed(number, len, owned);
                self.written.closed_bytes += len;
                self.failed(error);
            }
        }
    }

    /// Seals the current segment if its first chunk is older than the configuration allows; much sooner if no run
    /// is open, because then nothing more is about to come.
    pub(crate) fn seal_if_old(&mut self, no_run: bool) {
        let most = self.config.seal_after.map(|most| if no_run { most.min(SEAL_WHEN_IDLE) } else { most });
        let now = self.clock.now();
        let old = |since: Duration| most.is_some_and(|most| now.saturating_sub(since) >= most);
        if self.filling_since.is_some_and(old) {
            self.flush();
            self.seal();
        }
    }

    /// Returns the job that puts the segments sealed since the last one into the catalogue.
    fn catalogue(&mut self) -> Option<Job> {
        // Where segments are taken away, nobody reads them here.
        if self.config.budget_bytes == u64::MAX || !self.folder.disk.has_real_paths() {
            self.uncatalogued.clear();
            return None;
        }
        let present = self.sealed.sizes().keys().copied().collect();
        let add = std::mem::take(&mut self.uncatalogued);
        Some(Job::Catalogue { disk: self.folder.disk.clone(), dir: self.folder.dir.clone(), add, present })
    }

    fn catalogue_here(&mut self) {
        if let Some(job) = self.catalogue() {
            job.run_here();
        }
    }

    /// Scans a bounded amount of segments of earlier sessions that the catalogue does not know, and gathers the
    /// catalogue's entries once many lie in files of their own.
    fn catch_up(&self) {
        // Where segments are taken away, nobody reads them here.
        if self.config.budget_bytes == u64::MAX || !self.folder.disk.has_real_paths() {
            return;
        }
        let (disk, dir) = (&*self.folder.disk, &*self.folder.dir);
        let gathered = Catalogue::open(disk, dir);
        let sizes = self.sealed.sizes();
        let apart = || sizes.iter().filter(|(number, _)| !gathered.has(**number)).rev();
        let mut left = CATCH_UP_BYTES;
        for (&number, &bytes) in apart().filter(|(number, _)| Entry::load(disk, dir, **number).is_none()) {
            let Some(rest) = left.checked_sub(bytes) else { break };
            left = rest;
            let path = segments_dir(dir).join(segment_name(number));
            let scanned = disk.open(&path).and_then(|file| scan_with_rows(number, &*file));
            if let Ok(scan) = scanned
                && scan.index.sealed
                && scan.damage.is_empty()
            {
                let _cache = Entry::new(scan.index).store(disk, dir);
            }
        }
        if apart().count() >= APART {
            let present: Vec<u64> = sizes.keys().copied().collect();
            catalogue::gather_of(disk, dir, &present);
        }
    }

    pub(crate) fn close(&mut self) {
        self.seal();
        self.catch_up();
    }

    /// Returns the number of chunks that were lost so far.
    pub(crate) const fn lost_chunks(&self) -> u64 {
        self.written.status.recorded.lost_chunks
    }

    pub(crate) fn lose(&mut self, chunks: u64, episodes: u64) {
        self.written.lose(chunks, episodes);
    }
}

/// Time after which a segment is sealed when no run is open. Runs that follow each other faster share a segment.
const SEAL_WHEN_IDLE: Duration = Duration::from_millis(200);
/// Segments whose entries lie in files of their own at which a recorder gathers them as it ends.
const APART: usize = 16;

//! The segments of a folder that is recorded into: the one being written, and when it is sealed.
//!
//! ```text
//! no segment -> writing -> no segment (sealed by size, by age, when asked or at the end)
//!               writing -> disk out --room again--> no segment     after a failed operation
//! ```
//!
//! While the disk is out, chunks are coded (so that counting goes on) and dropped, and counted as lost; or nothing
//! is taken, so that stepping waits: see [`OnOutage`](crate::OnOutage).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::catalogue;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::extent::{EndRanges, Extent};
use crate::folder::{WriterLock, lock_folder, recover, recover_segment, segment_numbers, segments_dir};
use crate::index::{SegmentIndex, scan};
use crate::limits::{CATALOGUE_FROM_BYTES, CATCH_UP_BYTES};
use crate::outage::Outage;
use crate::recorder::{DiskError, OnOutage, OpenError, RecorderConfig, Status};
use crate::segment::{ChunkPlace, SegmentWriter, segment_name};
use crate::spool::{SealedSegment, Spool};
use crate::syncer::{Synced, Syncer};

/// The segments, and what is known of the disk.
#[derive(Debug)]
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    config: RecorderConfig,
    session: u32,
    next_number: u64,
    current: Option<(u64, SegmentWriter)>,
    /// When the current segment got its first chunk.
    filling_since: Option<Duration>,
    /// The folder's other segments.
    sealed: Spool,
    outage: Outage,
    clock: Clock,
    last_commit: Duration,
    /// Written but not durable: episodes and chunks.
    unsafe_episodes: u64,
    unsafe_chunks: u64,
    /// Of those, the ones the operating system does not have yet.
    unflushed: (u64, u64),
    /// Of those, chunks and episodes the syncer is making durable.
    asked: (u64, u64),
    syncer: Option<Syncer>,
    /// Bytes of the segments this session has closed.
    closed_bytes: u64,
    status: Status,
    /// Sealed by this session and not in the catalogue yet.
    uncatalogued: Vec<SegmentIndex>,
    _lock: WriterLock,
}

/// A run's header, and where it stands.
#[derive(Debug)]
pub(crate) struct RunPlace {
    pub(crate) tag: u32,
    pub(crate) payload: Arc<[u8]>,
    /// The last segment in which it stands, and its index there.
    pub(crate) at: Option<(u64, u32)>,
}

impl Segments {
    /// Takes the lock, repairs the folder.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: RecorderConfig,
        session: u32,
        sealed: Spool,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let lock = lock_folder(&*disk, dir, clock.wall_ms())?;
        let report = recover(&*disk, dir).map_err(OpenError::Disk)?;
        let segments = segments_dir(dir);
        let failed = |operation, path: &Path, error| OpenError::Disk(DiskError::new(operation, path, error));
        let numbers = segment_numbers(&*disk, dir).map_err(|e| failed("list", &segments, e))?;
        let mut highest = report.removed.iter().copied().max();
        for number in numbers {
            let path = segments.join(segment_name(number));
            let bytes = disk.open(&path).and_then(|file| file.len()).map_err(|e| failed("read", &path, e))?;
            sealed.add(SealedSegment { number, bytes, episodes: None });
            highest = highest.max(Some(number));
        }
        Ok(Self {
            disk,
            dir: dir.into(),
            config,
            session,
            next_number: highest.map_or(1, |number| number + 1),
            current: None,
            filling_since: None,
            sealed,
            outage: Outage::new(u64::from(session)),
            clock,
            last_commit: clock.now(),
            unsafe_episodes: 0,
            unsafe_chunks: 0,
            unflushed: (0, 0),
            asked: (0, 0),
            syncer: if matches!(clock, Clock::System(_)) { Syncer::start() } else { None },
            closed_bytes: 0,
            status: Status { repaired: report, ..Status::default() },
            uncatalogued: Vec::new(),
            _lock: lock,
        })
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    /// It is `now` on the clock of whoever drives the writer.
    pub(crate) const fn drive(&mut self, now: Duration) {
        self.clock = Clock::Driven(now);
    }

    /// What was written, by a writer that has been busy since `began`.
    pub(crate) fn status(&mut self, began: Duration) -> &Status {
        self.status.recorded.busy += self.clock.now().saturating_sub(began);
        let open = self.current.as_ref().map_or(0, |(_, segment)| segment.len());
        self.status.recorded.bytes = self.closed_bytes + open;
        self.status.open_bytes = open;
        &self.status
    }

    /// Why nothing is to be taken until the disk has room again, if so.
    pub(crate) fn outage(&self) -> Option<DiskError> {
        self.waits().then(|| self.status.error.clone()).flatten()
    }

    /// Writes a chunk of `run` to the current segment: its place there but for the run's index, its payload and the
    /// ends in it.
    pub(crate) fn add_chunk(
        &mut self,
        run: &mut RunPlace,
        place: ChunkPlace,
        payload: &[u8],
        ends: &EndRanges,
    ) {
        let episodes = ends.episodes();
        if !self.make_room() {
            return self.lose(1, episodes);
        }
        let Some((number, segment)) = &mut self.current else { return self.lose(1, episodes) };
        let index = match run.at {
            Some((at, index)) if at == *number => index,
            _ => {
                let index = segment.add_run(run.tag, run.payload.clone());
                run.at = Some((*number, index));
                index
            }
        };
        segment.add_chunk(ChunkPlace { run: index, ..place }, payload, ends);
        self.filling_since.get_or_insert(self.clock.now());
        self.status.recorded.episodes += episodes;
        self.unsafe_episodes += episodes;
        self.unsafe_chunks += 1;
        self.unflushed = (self.unflushed.0 + 1, self.unflushed.1 + episodes);
        if segment.is_flush_due() {
            self.flush();
        }
    }

    /// Notes the end of a run in the segment that has its last chunk. If that is sealed already, in another one,
    /// unless readers can tell without: because no episode is open.
    pub(crate) fn end_run(&mut self, run: &RunPlace, has_open: bool) {
        let Some((at, index)) = run.at else { return };
        if let Some((number, segment)) = &mut self.current
            && at == *number
        {
            return segment.end_run(index);
        }
        if has_open
            && self.make_room()
            && let Some((_, segment)) = &mut self.current
        {
            let index = segment.add_run(run.tag, run.payload.clone());
            segment.end_run(index);
            self.filling_since.get_or_insert(self.clock.now());
        }
    }

    /// Sees to it that there is a segment with room; false if there can be none now.
    fn make_room(&mut self) -> bool {
        if self.current.as_ref().is_some_and(|(_, segment)| segment.len() >= self.config.segment_bytes) {
            self.seal();
        }
        if self.current.is_some() {
            return true;
        }
        if self.outage.is_on() {
            return false;
        }
        let number = self.next_number;
        self.next_number += 1;
        let dir = segments_dir(&self.dir);
        match SegmentWriter::create(&*self.disk, &dir, number, self.session, self.clock.wall_ms()) {
            Ok(segment) => {
                self.current = Some((number, segment));
                self.status.recorded.segments += 1;
                self.keep_budget();
                true
            }
            Err(error) => {
                self.failed(error);
                false
            }
        }
    }

    pub(crate) fn flush(&mut self) {
        if let Some((_, segment)) = &mut self.current {
            let flushed = segment.flush();
            if flushed.is_err() && segment.sync().is_ok() {
                // What was appended before is on the disk all the same; only the rest is lost.
                self.unsafe_chunks = self.unflushed.0;
                self.unsafe_episodes = self.unflushed.1;
            }
            self.unflushed = (0, 0);
            self.check(flushed);
        }
    }

    /// Has the syncer make things durable from time to time, and takes what it has done.
    pub(crate) fn commit_if_due(&mut self) {
        if let Some(synced) = self.syncer.as_mut().and_then(Syncer::look) {
            self.take_synced(synced);
        }
        let dirty = self.current.as_ref().is_some_and(|(_, segment)| segment.is_dirty());
        if !dirty || self.clock.now().saturating_sub(self.last_commit) < self.config.commit_every {
            return;
        }
        match (&mut self.syncer, &self.current) {
            (Some(syncer), Some((number, segment))) if !syncer.is_busy() => {
                self.last_commit = self.clock.now();
                let (file, path, len) = segment.to_sync();
                syncer.ask(*number, len, path, file);
                self.asked = (self.unsafe_chunks - self.unflushed.0, self.unsafe_episodes - self.unflushed.1);
            }
            (Some(_), _) => {}
            (None, _) => self.commit(),
        }
    }

    fn take_synced(&mut self, synced: Synced) {
        let (chunks, episodes) = std::mem::take(&mut self.asked);
        // A segment closed since then is durable already, or latched.
        let Some((_, segment)) = self.current.as_mut().filter(|(number, _)| *number == synced.segment) else {
            return;
        };
        if synced.result.is_ok() {
            segment.synced_to(synced.len);
            self.outage.worked();
            self.unsafe_chunks -= chunks;
            self.unsafe_episodes -= episodes;
            self.status.durable_episodes = self.status.recorded.episodes - self.unsafe_episodes;
        }
        self.check(synced.result);
    }

    /// Lets the syncer end what it is at, so that it and this thread do not both count the same.
    fn settle(&mut self) {
        if let Some(synced) = self.syncer.as_mut().and_then(Syncer::wait) {
            self.take_synced(synced);
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
        self.outage.worked();
        self.unflushed = (0, 0);
        self.unsafe_episodes = 0;
        self.unsafe_chunks = 0;
        self.status.durable_episodes = self.status.recorded.episodes;
    }

    /// Seals the current segment.
    pub(crate) fn seal(&mut self) {
        self.settle();
        let Some((number, segment)) = self.current.take() else { return };
        self.filling_since = None;
        let len = segment.len();
        match segment.seal() {
            Ok(index) => {
                let episodes = index.extents.iter().map(Extent::episodes).sum();
                self.sealed.add(SealedSegment { number, bytes: index.bytes, episodes: Some(episodes) });
                self.closed_bytes += index.bytes;
                self.all_durable();
                self.uncatalogued.push(index);
                self.catalogue();
            }
            Err(error) => {
                self.sealed.add_unsealed(number, len);
                self.closed_bytes += len;
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

    /// Puts what was sealed into the catalogue, once there is enough for one to help.
    fn catalogue(&mut self) {
        // Where segments are taken away, nobody reads them here.
        let kept = self.config.budget_bytes < u64::MAX;
        if kept && self.sealed.bytes() >= CATALOGUE_FROM_BYTES && self.disk.has_real_paths() {
            let present: Vec<u64> = self.sealed.sizes().keys().copied().collect();
            catalogue::store(&self.dir, &self.uncatalogued, &present);
            self.uncatalogued.clear();
        } else if !kept {
            self.uncatalogued.clear();
        }
    }

    /// Scans segments of earlier sessions that the catalogue does not know; a bounded amount of them.
    fn catch_up(&mut self) {
        let worth = self.config.budget_bytes < u64::MAX && self.sealed.bytes() >= CATALOGUE_FROM_BYTES;
        if !worth || !self.disk.has_real_paths() {
            return;
        }
        let known = catalogue::load(&self.dir);
        let fits = |number: &u64, bytes: &u64| known.get(number).is_some_and(|index| index.bytes == *bytes);
        let sizes = self.sealed.sizes();
        let unknown = sizes.into_iter().filter(|(number, bytes)| !fits(number, bytes)).rev();
        let mut left = CATCH_UP_BYTES;
        for (number, bytes) in unknown {
            let Some(rest) = left.checked_sub(bytes) else { break };
            left = rest;
            let path = segments_dir(&self.dir).join(segment_name(number));
            let scanned = self.disk.open(&path).and_then(|file| scan(number, &*file));
            if let Ok(scan) = scanned
                && scan.index.sealed
                && scan.damage.is_empty()
            {
                self.uncatalogued.push(scan.index);
            }
        }
        if !self.uncatalogued.is_empty() {
            self.catalogue();
        }
    }

    pub(crate) fn close(&mut self) {
        self.seal();
        self.catch_up();
    }

    /// Latches the current segment after an error.
    fn check(&mut self, result: Result<(), DiskError>) -> bool {
        match result {
            Ok(()) => true,
            Err(error) => {
                self.filling_since = None;
                if let Some((number, segment)) = self.current.take() {
                    self.sealed.add_unsealed(number, segment.len());
                    self.closed_bytes += segment.len();
                }
                self.failed(error);
                false
            }
        }
    }

    /// What was not durable counts as lost from now on, though a reader may still find some of it.
    fn failed(&mut self, error: DiskError) {
        let (chunks, episodes) = (self.unsafe_chunks, self.unsafe_episodes);
        self.unsafe_chunks = 0;
        self.unsafe_episodes = 0;
        self.unflushed = (0, 0);
        self.asked = (0, 0);
        self.status.recorded.episodes -= episodes;
        self.lose(chunks, episodes);
        self.status.error = Some(error);
        self.outage.failed(self.clock.now());
    }

    /// Whether nothing is to be taken until the disk has room again.
    pub(crate) fn waits(&self) -> bool {
        self.config.on_outage == OnOutage::Wait && self.outage.is_on()
    }

    /// If the disk is out and it is time: sees whether it takes a good piece again. What was handed over is risked
    /// only then.
    pub(crate) fn try_disk_again(&mut self) {
        if !self.outage.is_due(self.clock.now()) {
            return;
        }
        match self.probe() {
            Ok(()) => {
                self.outage.over();
                if let Err(error) = self.seal_latched() {
                    // Recording goes on all the same; the next recorder seals what is left.
                    self.status.error = Some(error);
                }
            }
            Err(error) => {
                self.status.error = Some(error);
                self.outage.failed(self.clock.now());
            }
        }
    }

    /// Seals the segments that were latched when the disk failed, so that what is durable in them is shipped and read
    /// now and not after the next start.
    fn seal_latched(&mut self) -> Result<(), DiskError> {
        let dir = segments_dir(&self.dir);
        for (number, latched) in self.sealed.unsealed() {
            let path = dir.join(segment_name(number));
            let sealed = recover_segment(&*self.disk, &path, number)?.sealed;
            self.disk.sync_dir(&dir).map_err(|error| DiskError::new("sync", &dir, error))?;
            // What the disk has of it, and its seal, may be more or less than was given to it.
            let there = sealed.map_or(0, |segment| segment.bytes);
            self.closed_bytes += there.saturating_sub(latched);
            self.status.recorded.torn_bytes += latched.saturating_sub(there);
            match sealed {
                Some(segment) => self.sealed.add(segment),
                None => self.sealed.forget(number),
            }
        }
        Ok(())
    }

    /// Writes as much as two writes of a segment to a file of its own, makes it durable and removes it.
    fn probe(&self) -> Result<(), DiskError> {
        let path = self.dir.join(PROBE);
        let failed = |operation| {
            let path = path.clone();
            move |error| DiskError::new(operation, &path, error)
        };
        match self.disk.remove(&path) {
            // Left by a probe that failed.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("remove")(error));
            }
            _ => {}
        }
        let file = self.disk.create(&path).map_err(failed("create"))?;
        let written = file.append_all(&vec![0; PROBE_BYTES]).map_err(failed("append"));
        let synced = written.and_then(|()| file.sync_data().map_err(failed("sync")));
        // On a full disk it must not stand in the way of the next.
        let removed = self.disk.remove(&path).map_err(failed("remove"));
        synced.and(removed)
    }

    pub(crate) fn lose(&mut self, chunks: u64, episodes: u64) {
        self.status.recorded.lost_chunks += chunks;
        self.status.recorded.lost_episodes += episodes;
    }

    /// Drops the oldest segments while all together exceed the budget.
    fn keep_budget(&mut self) {
        let dir = segments_dir(&self.dir);
        let mut total: u64 = self.sealed.bytes() + self.config.segment_bytes;
        while total > self.config.budget_bytes {
            let Some((number, bytes)) = self.sealed.take_oldest() else { return };
            let path = dir.join(segment_name(number));
            let removed = self.disk.remove(&path).and_then(|()| self.disk.sync_dir(&dir));
            if let Err(error) = removed {
                // The budget is exceeded, nothing is lost: said, not retried for this segment.
                self.status.error = Some(DiskError::new("remove", &path, error));
                continue;
            }
            total -= bytes;
            self.status.recorded.dropped_segments += 1;
            self.status.recorded.dropped_bytes += bytes;
        }
    }
}

/// Runs that follow each other faster share a segment.
const SEAL_WHEN_IDLE: Duration = Duration::from_millis(200);
/// The file with which it is seen whether the disk takes anything again.
const PROBE: &str = "probe.new";
const PROBE_BYTES: usize = 512 << 10;

//! The writer thread: codes what stepping threads hand over and writes it to segments.
//!
//! ```text
//! no segment -> writing -> no segment (sealed by size, by age, when asked or at the end)
//!               writing -> disk out --room again--> no segment     after a failed operation
//! ```
//!
//! While the disk is out, chunks are coded (so that counting goes on) and dropped, and counted as lost; or nothing
//! is taken, so that stepping waits: see [`OnOutage`](crate::OnOutage).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rollhouse_core::{Lanes, Outcome};

use crate::buffer::{Buffer, EndEvent, UNKNOWN_RETURN};
use crate::catalogue;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::encode::Encoder;
use crate::extent::{EndRanges, Extent};
use crate::folder::{WriterLock, lock_folder, recover, recover_segment, segment_numbers, segments_dir};
use crate::handover::{Doorbell, RunShared};
use crate::index::{SegmentIndex, scan};
use crate::lanes::BlockState;
use crate::limits::{CATALOGUE_FROM_BYTES, CATCH_UP_BYTES};
use crate::outage::Outage;
use crate::recorder::{DiskError, OnOutage, OpenError, RecorderConfig, Status};
use crate::run::{RunHeader, Sampling};
use crate::run_record::RunInfo;
use crate::segment::{ChunkPlace, SegmentWriter, segment_name};
use crate::spool::{SealedSegment, Spool};
use crate::syncer::{Synced, Syncer};

/// What the recorder asks of its writer thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// A run begins.
    Begin(Box<RunHeader>, u64, Arc<RunShared>),
    /// Write everything handed over so far, then answer.
    WriteOut(SyncSender<()>),
    /// Make everything handed over so far durable, then answer.
    Sync(SyncSender<()>),
    /// Write everything handed over so far, seal the segment, then answer.
    Seal(SyncSender<()>),
    /// Write what was handed over and end.
    Finish,
}

/// What a writer shares with its recorder.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Which recorder it is among those that ever wrote to the folder.
    pub(crate) session: u32,
    pub(crate) commands: Receiver<Command>,
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) status: Arc<Mutex<Status>>,
    pub(crate) sealed: Spool,
}

/// The thread's state.
#[derive(Debug)]
pub(crate) struct Writer {
    commands: Receiver<Command>,
    doorbell: Arc<Doorbell>,
    shared_status: Arc<Mutex<Status>>,
    runs: Vec<Run>,
    store: Store,
}

/// A run that is being recorded.
#[derive(Debug)]
struct Run {
    shared: Arc<RunShared>,
    encoder: Encoder,
    tag: u32,
    payload: Arc<[u8]>,
    blocks: BTreeMap<u32, Block>,
    /// The segment in which its header stands, and its index there.
    place: Option<(u64, u32)>,
}

#[derive(Debug)]
struct Block {
    state: BlockState,
    rows: u64,
}

/// The segments.
#[derive(Debug)]
struct Store {
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
    payload: Vec<u8>,
    /// Sealed by this session and not in the catalogue yet.
    uncatalogued: Vec<SegmentIndex>,
    _lock: WriterLock,
}

impl Writer {
    /// Takes the lock, repairs the folder.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: RecorderConfig,
        shared: Shared,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let Shared { session, commands, doorbell, status, sealed } = shared;
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
        let store = Store {
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
            payload: Vec::new(),
            uncatalogued: Vec::new(),
            _lock: lock,
        };
        *status.lock().unwrap_or_else(PoisonError::into_inner) = store.status.clone();
        Ok(Self { commands, doorbell, shared_status: status, runs: Vec::new(), store })
    }

    /// The thread's main function: until told to finish, or nobody can tell any more.
    pub(crate) fn run(mut self) {
        // Whoever waits for a buffer must not wait for a dead thread, however this one ends.
        let _leaving = Leaving(self.doorbell.clone());
        self.doorbell.answer_here();
        let mut nap = SHORTEST_NAP;
        loop {
            match self.round() {
                Round::Worked => nap = SHORTEST_NAP,
                Round::Idle => {
                    std::thread::park_timeout(nap);
                    nap = (nap * 2).min(LONGEST_NAP);
                }
                Round::Finished => return,
            }
        }
    }

    /// One round at `now`, by whoever drives a writer whose clock is theirs.
    pub(crate) fn round_at(&mut self, now: Duration) -> Round {
        self.store.clock = Clock::Driven(now);
        self.doorbell.drive(now);
        self.round()
    }

    /// Takes one command if there is one, and what was handed over.
    fn round(&mut self) -> Round {
        let began = self.store.clock.now();
        let command = match self.commands.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Command::Finish),
        };
        self.store.try_disk_again();
        let waits = self.doorbell.is_held() || self.store.waits();
        let worked = if command.is_none() && waits { false } else { self.drain() };
        self.store.flush();
        let idle = command.is_none() && !worked;
        match command {
            Some(Command::Begin(header, placement, shared)) => {
                self.runs.push(Run::new(&header, placement, shared));
                // What it has brought already was noted before it could be found.
                self.doorbell.note();
            }
            Some(Command::WriteOut(done)) => {
                self.publish(began);
                let _unheard = done.send(());
            }
            Some(Command::Sync(done)) => {
                self.store.commit();
                self.publish(began);
                // A caller that gave up waiting needs no answer.
                let _unheard = done.send(());
            }
            Some(Command::Seal(done)) => {
                self.store.commit();
                self.store.seal();
                self.publish(began);
                let _unheard = done.send(());
            }
            Some(Command::Finish) => {
                self.store.close();
                self.publish(began);
                return Round::Finished;
            }
            None => self.store.commit_if_due(),
        }
        self.store.seal_if_old(self.runs.is_empty());
        self.publish(began);
        if idle { Round::Idle } else { Round::Worked }
    }

    /// Writes everything handed over; false if there was nothing.
    fn drain(&mut self) -> bool {
        if !self.doorbell.take_note() {
            return false;
        }
        let mut worked = false;
        let store = &mut self.store;
        self.runs.retain_mut(|run| {
            // Asked first: what the last handle brought is then taken below.
            let (over, cut) = (run.shared.is_over(), run.shared.cut());
            while let Some(mut buffer) = run.shared.take_full() {
                worked = true;
                store.write(run, &mut buffer);
                run.shared.recycle(buffer);
            }
            if let Some(outcome) = cut {
                store.end_episodes(run, outcome);
            }
            let over = over || cut.is_some();
            if over {
                worked = true;
                store.end_run(run);
            }
            !over
        });
        worked
    }

    fn publish(&mut self, began: Duration) {
        self.store.status.recorded.busy += self.store.clock.now().saturating_sub(began);
        let open = self.store.current.as_ref().map_or(0, |(_, segment)| segment.len());
        self.store.status.recorded.bytes = self.store.closed_bytes + open;
        self.store.status.open_bytes = open;
        self.doorbell.tell_outage(self.store.waits().then(|| self.store.status.error.clone()).flatten());
        *self.shared_status.lock().unwrap_or_else(PoisonError::into_inner) = self.store.status.clone();
    }
}

impl Run {
    fn new(header: &RunHeader, placement: u64, shared: Arc<RunShared>) -> Self {
        let mut info = RunInfo::new(header);
        info.placement = placement;
        // A run's header consists of plain values with string keys; nothing in it can fail to serialise.
        let payload = rmp_serde::to_vec_named(&info).unwrap_or_default();
        Self {
            encoder: Encoder::new(
                shared.layout.clone(),
                Sampling::new(header.run, header.mode),
                &header.autoreset,
            ),
            shared,
            tag: info.tag(),
            payload: payload.into(),
            blocks: BTreeMap::new(),
            place: None,
        }
    }
}

impl Store {
    /// Codes a buffer and writes it to the current segment.
    fn write(&mut self, run: &mut Run, buffer: &mut Buffer) {
        let lanes = buffer.lanes;
        let block = run.blocks.entry(buffer.first_lane);
        let block = block.or_insert_with(|| Block { state: BlockState::new(lanes), rows: 0 });
        for (lane, number) in buffer.numbers.drain(..) {
            block.state.table[usize::from(lane)].number = number;
        }
        self.payload.clear();
        let mut ends = EndRanges::new();
        let coded = run.encoder.encode(buffer, &mut block.state, &mut self.payload, |end| ends.add(end));
        let episodes = ends.episodes();
        let position = block.rows;
        block.rows += u64::from(buffer.rows);
        match coded {
            Ok(false) => return,
            Ok(true) => {}
            Err(_) => return self.lose(1, episodes),
        }
        let first_lane = buffer.first_lane;
        let place = |run| ChunkPlace {
            run,
            first_lane,
            lanes: lanes as u16,
            rows: buffer.rows,
            position,
            ms: buffer.opened_ms,
        };
        if !self.make_room() {
            return self.lose(1, episodes);
        }
        let Some((number, segment)) = &mut self.current else { return self.lose(1, episodes) };
        let index = match run.place {
            Some((at, index)) if at == *number => index,
            _ => {
                let index = segment.add_run(run.tag, run.payload.clone());
                run.place = Some((*number, index));
                index
            }
        };
        segment.add_chunk(place(index), &self.payload, &ends);
        self.filling_since.get_or_insert(self.clock.now());
        self.status.recorded.episodes += episodes;
        self.unsafe_episodes += episodes;
        self.unsafe_chunks += 1;
        self.unflushed = (self.unflushed.0 + 1, self.unflushed.1 + episodes);
        if segment.is_flush_due() {
            self.flush();
        }
    }

    /// Ends the episodes that are open by what was handed over; their returns are not known.
    fn end_episodes(&mut self, run: &mut Run, outcome: Outcome) {
        let starts = run.shared.layout.starts;
        let blocks: Vec<(u32, usize, u64)> = run
            .blocks
            .iter()
            .map(|(&first_lane, block)| {
                let table = block.state.table.iter().enumerate();
                let aged = table.filter(|(_, lane)| lane.age > 0).fold(0, |mask, (lane, _)| mask | 1 << lane);
                (first_lane, block.state.lanes, if starts { block.state.open } else { aged })
            })
            .collect();
        for (first_lane, lanes, open) in blocks.into_iter().filter(|(_, _, open)| *open != 0) {
            let mut buffer =
                Buffer { first_lane, lanes, opened_ms: self.clock.wall_ms(), ..Buffer::default() };
            for lane in Lanes(open) {
                let (lane, code) = (lane as u8, outcome.code());
                buffer
                    .events
                    .push_end(EndEvent { total_reward: UNKNOWN_RETURN, hash: 0, pos: 0, lane, code }, None);
            }
            self.write(run, &mut buffer);
        }
    }

    /// Notes the end of a run in the segment that has its last chunk. If that is sealed already, in another one,
    /// unless readers can tell without: because no episode is open.
    fn end_run(&mut self, run: &Run) {
        let Some((at, index)) = run.place else { return };
        if let Some((number, segment)) = &mut self.current
            && at == *number
        {
            return segment.end_run(index);
        }
        let is_open = |block: &Block| block.state.table.iter().any(|lane| lane.age > 0);
        if run.blocks.values().any(is_open)
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

    fn flush(&mut self) {
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
    fn commit_if_due(&mut self) {
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

    fn commit(&mut self) {
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
    fn seal(&mut self) {
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
    fn seal_if_old(&mut self, no_run: bool) {
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

    fn close(&mut self) {
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
    fn waits(&self) -> bool {
        self.config.on_outage == OnOutage::Wait && self.outage.is_on()
    }

    /// If the disk is out and it is time: sees whether it takes a good piece again. What was handed over is risked
    /// only then.
    fn try_disk_again(&mut self) {
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

    fn lose(&mut self, chunks: u64, episodes: u64) {
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

/// What came of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    Worked,
    Idle,
    Finished,
}

/// Tells waiting stepping threads when the writer thread ends.
struct Leaving(Arc<Doorbell>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Runs that follow each other faster share a segment.
const SEAL_WHEN_IDLE: Duration = Duration::from_millis(200);
/// The file with which it is seen whether the disk takes anything again.
const PROBE: &str = "probe.new";
const PROBE_BYTES: usize = 512 << 10;
/// How long the writer sleeps when nothing comes; stepping threads wake it when buffers get scarce.
const SHORTEST_NAP: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(64);

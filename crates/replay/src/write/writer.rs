//! The writer thread: codes what stepping threads hand over and writes it to [`Segments`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_core::{LaneSet, Outcome};

use crate::clock::Clock;
use crate::code::buffer::{BlockLanes, Buffer};
use crate::code::encode::Encoder;
use crate::code::events::{EndEvent, UNKNOWN_RETURN};
use crate::code::extent::ChunkEnds;
use crate::code::lanes::BlockState;
use crate::code::own_options::OwnOptions;
use crate::code::run::{RunHeader, Sampling};
use crate::disk::Disk;
use crate::limits::CHUNK_FRAMES_TARGET_BYTES;
use crate::stored::lock::OpenError;
use crate::write::handover::{Doorbell, RunShared};
use crate::write::recorded::Status;
use crate::write::recorder_config::RecorderConfig;
use crate::write::segment_writer::{ChunkPlace, RunPlace};
use crate::write::segments::Segments;
use crate::write::spool::Spool;

/// A command of the recorder to its writer thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// A run begins.
    Begin(Box<RunHeader>, RunPlace, Arc<RunShared>),
    /// Write everything handed over so far, then answer.
    WriteOut(SyncSender<()>),
    /// Make everything handed over so far durable, then answer.
    Sync(SyncSender<()>),
    /// Write everything handed over so far, seal the segment, then answer.
    Seal(SyncSender<()>),
    /// See whether the disk takes anything, then answer.
    TryDisk(SyncSender<()>),
    /// Write what was handed over and end.
    Finish,
}

/// The state that a writer shares with its recorder.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Number of the recorder among those that ever wrote to the folder.
    pub(crate) session: u32,
    pub(crate) commands: Receiver<Command>,
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) status: Arc<Mutex<Status>>,
    pub(crate) sealed: Spool,
}

/// The state of the writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    commands: Receiver<Command>,
    doorbell: Arc<Doorbell>,
    shared_status: Arc<Mutex<Status>>,
    runs: Vec<Run>,
    segments: Segments,
    payload: Vec<u8>,
}

/// A run that is being recorded.
#[derive(Debug)]
struct Run {
    shared: Arc<RunShared>,
    encoder: Encoder,
    place: RunPlace,
    /// Ends in the buffer that is being coded, and the payload of its pictures.
    ends: ChunkEnds,
    frames: Vec<u8>,
    blocks: BTreeMap<u32, Block>,
}

#[derive(Debug)]
struct Block {
    state: BlockState,
    rows: u64,
    /// Chunks of the recorder that were lost before its last one was written.
    lost_chunks: u64,
    /// Lanes whose current episode lacks an earlier chunk, which was lost.
    headless: u64,
    /// Options of lanes that are others than the run's, as the last buffer had them.
    options: Vec<OwnOptions>,
}

impl Block {
    fn new(lanes: usize, lost_chunks: u64) -> Self {
        Self { state: BlockState::new(lanes), rows: 0, lost_chunks, headless: 0, options: Vec::new() }
    }

    /// Counts the ends of episodes that lack an earlier chunk, given how many chunks were lost until now.
    fn count_headless(&mut self, first_lane: u32, lost_chunks: u64, ends: &mut ChunkEnds) {
        if lost_chunks != self.lost_chunks {
            (self.lost_chunks, self.headless) = (lost_chunks, ends.under_way);
        }
        if self.headless != 0 {
            for end in &ends.each {
                let lane = 1 << (end.lane - first_lane);
                ends.headless += u64::from(self.headless & lane != 0);
                self.headless &= !lane;
            }
        }
    }
}

impl Writer {
    /// Takes the folder's lock and repairs the folder.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: RecorderConfig,
        shared: Shared,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let Shared { session, commands, doorbell, status, sealed } = shared;
        let mut segments = Segments::open(disk, dir, config, session, sealed, clock)?;
        *status.lock() = segments.status(clock.now()).clone();
        Ok(Self {
            commands,
            doorbell,
            shared_status: status,
            runs: Vec::new(),
            segments,
            payload: Vec::new(),
        })
    }

    /// Runs the thread until it is told to finish, or nobody is left to tell it.
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

    /// Does one round at `now`, for a caller that drives the writer and its clock.
    pub(crate) fn round_at(&mut self, now: Duration, ahead_ms: i64) -> Round {
        self.segments.drive(now, ahead_ms);
        self.doorbell.drive(now, ahead_ms);
        self.round()
    }

    /// Does one round: takes one command if there is one, and what was handed over.
    fn round(&mut self) -> Round {
        let began = self.segments.clock().now();
        let command = match self.commands.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Command::Finish),
        };
        self.segments.look();
        self.segments.look_after_folder();
        self.segments.try_disk_again();
        let waits = self.doorbell.is_held() || self.segments.waits();
        let worked = if command.is_none() && waits { false } else { self.drain(command.is_some()) };
        self.segments.flush();
        let idle = command.is_none() && !worked;
        match command {
            Some(Command::Begin(header, place, shared)) => {
                self.runs.push(Run::new(&header, place, shared));
                // What it has brought already was noted before it could be found.
                self.doorbell.note();
            }
            Some(Command::WriteOut(done)) => {
                self.segments.write_out();
                self.publish(began);
                let _unheard = done.send(());
            }
            Some(Command::Sync(done)) => {
                self.segments.commit();
                self.publish(began);
                // A caller that gave up waiting needs no answer.
                let _unheard = done.send(());
            }
            Some(Command::Seal(done)) => {
                self.segments.commit();
                self.segments.seal();
                self.publish(began);
                let _unheard = done.send(());
            }
            Some(Command::TryDisk(done)) => {
                self.segments.try_disk();
                self.publish(began);
                let _unheard = done.send(());
            }
            Some(Command::Finish) => {
                self.segments.close();
                self.publish(began);
                return Round::Finished;
            }
            None => self.segments.commit_if_due(),
        }
        self.segments.seal_if_old(self.runs.is_empty());
        self.publish(began);
        if idle { Round::Idle } else { Round::Worked }
    }

    /// Writes everything handed over, of owners that are held only with `all`; returns false if there was nothing.
    fn drain(&mut self, all: bool) -> bool {
        if !self.doorbell.take_note() {
            return false;
        }
        let mut worked = false;
        let (segments, payload) = (&mut self.segments, &mut self.payload);
        self.runs.retain_mut(|run| {
            if run.shared.is_owner_held() && !all {
                return true;
            }
            // Asked first: what the last handle brought is then taken below.
            let (over, cut) = (run.shared.is_over(), run.shared.cut());
            while let Some(mut buffer) = run.shared.take_full() {
                worked = true;
                run.write(&mut buffer, segments, payload);
                run.shared.recycle(buffer);
            }
            if let Some(outcome) = cut {
                run.end_episodes(outcome, segments, payload);
            }
            let over = over || cut.is_some();
            if over {
                worked = true;
                segments.end_run(&run.place, run.has_open());
            }
            !over
        });
        worked
    }

    fn publish(&mut self, began: Duration) {
        self.doorbell.tell_outage(self.segments.outage());
        *self.shared_status.lock() = self.segments.status(began).clone();
    }
}

impl Run {
    fn new(header: &RunHeader, place: RunPlace, shared: Arc<RunShared>) -> Self {
        Self {
            encoder: Encoder::new(
                shared.layout.clone(),
                Sampling::new(header.run, header.record),
                &header.autoreset,
            ),
            shared,
            place,
            ends: ChunkEnds::new(),
            frames: Vec::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// Codes a buffer, with `payload` to do it in, and writes it.
    fn write(&mut self, buffer: &mut Buffer, segments: &mut Segments, payload: &mut Vec<u8>) {
        let lanes = buffer.lanes;
        let block = self.blocks.entry(lanes.first);
        let block = block.or_insert_with(|| Block::new(lanes.count, segments.lost_chunks()));
        for (lane, number) in buffer.between.numbers.drain(..) {
            block.state.table[usize::from(lane)].number = number;
        }
        payload.clear();
        let ends = &mut self.ends;
        ends.clear();
        let coded = self.encoder.encode(buffer, &mut block.state, payload, |end| ends.add(end));
        (ends.under_way, ends.stepped) = (self.encoder.under_way(), self.encoder.stepped());
        ends.have_options = self.encoder.has_options();
        ends.agents.extend_from_slice(self.encoder.agent_returns());
        block.options.clone_from(&buffer.between.options);
        block.count_headless(lanes.first, segments.lost_chunks(), ends);
        let place = ChunkPlace {
            run: 0,
            first_lane: lanes.first,
            lanes: lanes.count as u16,
            rows: buffer.rows,
            position: block.rows,
            ms: buffer.opened_ms,
        };
        block.rows += u64::from(buffer.rows);
        self.frames.clear();
        buffer.frames.put(self.encoder.present(), &mut self.frames);
        match coded {
            Ok(true) => {
                let (steps, step_bytes) = (ends.stepped, self.shared.layout.step_memory() as u64);
                if segments.add_chunk(&mut self.place, place, (payload, &self.frames), ends) {
                    segments.count_steps(steps, steps * step_bytes);
                }
            }
            Ok(false) => {}
            Err(_) => segments.lose(1, ends.episodes()),
        }
        self.frames.shrink_to(CHUNK_FRAMES_TARGET_BYTES);
    }

    /// Ends the episodes that are still open after what was handed over; their returns are not known.
    fn end_episodes(&mut self, outcome: Outcome, segments: &mut Segments, payload: &mut Vec<u8>) {
        let starts = self.shared.layout.starts;
        let open = |block: &Block| if starts { block.state.open } else { block.aged() };
        let blocks = self.blocks.iter().map(|(&first, block)| {
            (BlockLanes { first, count: block.state.lanes }, open(block), block.options.clone())
        });
        for (lanes, open, options) in blocks.filter(|(_, open, _)| *open != 0).collect::<Vec<_>>() {
            let opened_ms = segments.clock().wall_ms();
            let mut buffer = Buffer { lanes, opened_ms, ..Buffer::default() };
            buffer.between.options = options;
            for lane in LaneSet::of_bits(open) {
                let (lane, code) = (lane as u8, outcome.code());
                let end = EndEvent { total_reward: UNKNOWN_RETURN, hash: 0, pos: 0, lane, code };
                buffer.events.push_end(end, None);
            }
            self.write(&mut buffer, segments, payload);
        }
    }

    /// Returns whether an episode is under way.
    fn has_open(&self) -> bool {
        self.blocks.values().any(|block| block.aged() != 0)
    }
}

impl Block {
    /// Returns the lanes that have taken steps in an episode that has not ended.
    fn aged(&self) -> u64 {
        let table = self.state.table.iter().enumerate();
        table.filter(|(_, lane)| lane.age > 0).fold(0, |mask, (lane, _)| mask | 1 << lane)
    }
}

/// The result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    Worked,
    Idle,
    Finished,
}

/// A guard that tells waiting stepping threads when the writer thread ends.
struct Leaving(Arc<Doorbell>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Time for which the writer sleeps when nothing comes; stepping threads wake it when buffers get scarce.
const SHORTEST_NAP: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(64);

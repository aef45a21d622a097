//! The trainer's half of an attached session.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rollhouse_core::ColumnMut;

use crate::arena::{Frame, slot_of};
use crate::files::{AttachError, Expected, InputsPlan, MAX_NOTE_BYTES, NODE_BELL, OutputsPlan, TRAINER_BELL};
use crate::header::{inputs, outputs};
use crate::memory::Memory;
use crate::patience::{Patience, Unmet, Wait};
use crate::ring::{RingError, RingReader, RingWriter};
use crate::serving::{BEGINS, CLOSED, FRAME, REFUSED, RESET, SEEDED, STEP};
use crate::shared::{ReadOnlyMemory, SharedMemory};
use crate::words::{Words, WordsMut};

/// A session's memory, mapped by its trainer. One thread uses it.
///
/// The node is trusted with the values in frames: it writes a frame's slot again only after the second next request,
/// and one that does not keep to that shows the trainer numbers that change under its eyes, never memory of its own.
/// Everything that places or lengths depend on was checked when the memory was attached, or is checked when read.
#[derive(Debug)]
pub struct AttachedArena {
    mapped: Arc<Mapped>,
    plan: OutputsPlan,
    inputs_plan: InputsPlan,
    generation: u64,
    /// The newest request.
    posted: u64,
    /// The newest request whose answer was taken.
    answered: u64,
    frame: u64,
    /// Per lane, the newest number it was sent under.
    sent: Vec<u64>,
    /// Lanes sent and neither received nor refused.
    outstanding: Vec<bool>,
    outstanding_lanes: usize,
    ready_read: u64,
    lanes_refused: u64,
    requests: RingWriter,
    answers: RingReader,
    patience: Patience,
}

/// The mappings. Lives as long as anyone holds an address in them.
#[derive(Debug)]
struct Mapped {
    outputs: ReadOnlyMemory,
    columns: Memory,
    inputs: SharedMemory,
    actions: Memory,
}

/// What the node answered to a step or a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// There is a new frame.
    Frame,
    /// Nothing has moved; the node's note says why.
    Refused(Vec<u8>),
}

/// What came of waiting for lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadyLanes {
    /// The rows of so many more lanes are there.
    Ready(usize),
    /// Lanes that were sent were not stepped; the node's note says why.
    Refused {
        /// The lanes.
        lanes: Vec<u32>,
        /// In the node's encoding.
        note: Vec<u8>,
    },
}

/// Why a trainer got no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainerError {
    /// The deadline passed. What was asked for is still under way: wait again.
    TimedOut,
    /// `alive` said that the node is gone.
    Gone,
    /// The node serves this session no more.
    Closed {
        /// Why, in the node's numbering.
        code: u64,
    },
    /// Another trainer was attached to the session.
    TakenOver {
        /// The attachment that is served now.
        generation: u64,
    },
    /// The node answered what was not asked.
    Answer {
        /// Which word is wrong.
        word: &'static str,
        /// What it is.
        value: u64,
        /// What it has to be, or the most it may be.
        wanted: u64,
    },
    /// A ring of commands is damaged, or the command is too long.
    Ring(RingError),
}

impl AttachedArena {
    /// Maps and checks the files that a node handed over.
    ///
    /// # Errors
    /// See [`AttachError`]: nothing of either file is used then.
    pub fn open(outputs: OwnedFd, inputs: OwnedFd, expected: &Expected<'_>) -> Result<Self, AttachError> {
        let map = |file| move |source| AttachError::Map { file, source };
        let mut outputs = ReadOnlyMemory::attach(outputs).map_err(map("outputs"))?;
        let mut inputs = SharedMemory::attach(inputs).map_err(map("inputs"))?;
        let least = crate::header::HEADER_BYTES;
        for (file, bytes) in [("outputs", outputs.len()), ("inputs", inputs.len())] {
            if bytes < least {
                return Err(AttachError::Place { file, what: "header", offset: 0, bytes: least as u64 });
            }
        }
        let inputs_plan = InputsPlan::read(&inputs, inputs.len(), expected)?;
        let plan = OutputsPlan::read(&outputs, expected)?;
        let columns = outputs.split(plan.columns_at);
        let actions = inputs.split(inputs_plan.action.offset);
        let answered = outputs.load_acquire(outputs::ANSWER_SEQ.at);
        let frame = outputs.load(outputs::FRAME_SEQ.at);
        let sent: Vec<u64> = (0..expected.lanes).map(|lane| outputs.load(plan.lane_seq(lane))).collect();
        let requests =
            RingWriter::resume(inputs_plan.requests, &inputs, &outputs).map_err(AttachError::Ring)?;
        let answers = RingReader::resume(plan.answers, &inputs, &outputs).map_err(AttachError::Ring)?;
        Ok(Self {
            plan,
            inputs_plan,
            generation: expected.generation,
            posted: answered,
            answered,
            frame,
            outstanding: vec![false; sent.len()],
            outstanding_lanes: 0,
            sent,
            ready_read: inputs.load(inputs::READY_READ.at),
            lanes_refused: outputs.load(outputs::LANES_REFUSED.at),
            requests,
            answers,
            patience: Patience::new(),
            mapped: Arc::new(Mapped { outputs, columns, inputs, actions }),
        })
    }

    /// Rows of the batch.
    pub const fn lanes(&self) -> usize {
        self.plan.places.lanes
    }

    /// The number of the newest request that was answered. A trainer that attaches again learns from it whether the
    /// request it did not see answered was carried out: then its frame is the newest.
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// The action column, to be filled before [`AttachedArena::post_step`].
    ///
    /// # Panics
    /// While a request is under way.
    #[inline]
    pub fn actions_mut(&mut self) -> ColumnMut<'_> {
        self.assert_ours();
        // SAFETY: `&mut self` excludes other borrows of the column, which nothing else in this process writes; the
        // node only reads it.
        unsafe { self.mapped.actions.write(self.inputs_plan.action.rows(&(0..self.plan.places.lanes))) }
    }

    /// What the newest answered request wrote. Its values stay in memory until the second next one is posted.
    ///
    /// # Panics
    /// While a request is under way.
    #[inline]
    pub fn frame(&self) -> Frame<'_> {
        self.assert_ours();
        self.frame_at(slot_of(self.frame), self.frame)
    }

    /// The newest frame, and the action column to be filled from it.
    ///
    /// # Panics
    /// While a request is under way.
    #[inline]
    pub fn frame_and_actions(&mut self) -> (Frame<'_>, ColumnMut<'_>) {
        self.assert_ours();
        let action = &self.inputs_plan.action;
        // SAFETY: as in `actions_mut`; a frame lies in the other file.
        let actions = unsafe { self.mapped.actions.write(action.rows(&(0..self.plan.places.lanes))) };
        (self.frame_at(slot_of(self.frame), self.frame), actions)
    }

    /// The rows of single lanes. A lane's row shows what [`AttachedArena::wait_lanes`] last gave it for, and is being
    /// written while the lane is outstanding.
    pub fn lane_rows(&self) -> Frame<'_> {
        self.frame_at(2, self.frame)
    }

    fn frame_at(&self, slot: usize, number: u64) -> Frame<'_> {
        let places = &self.plan.places;
        // SAFETY: the slot's places were checked when the file was attached, and nothing in this process can write
        // the mapping.
        unsafe { Frame::of(&self.mapped.columns, places.lanes, &places.slots[slot], number) }
    }

    /// Asks the node to step every lane once.
    ///
    /// # Panics
    /// While a request is under way.
    #[inline]
    pub fn post_step(&mut self) {
        self.post(STEP);
    }

    /// Asks the node to begin episodes: in the lanes of `mask`, all if it is empty, with `seeds`, none if empty.
    ///
    /// # Panics
    /// While a request is under way, or if a list is neither empty nor as long as the batch.
    pub fn post_reset(&mut self, seeds: &[Option<u64>], mask: &[bool]) {
        self.assert_ours();
        let lanes = self.lanes();
        let fits = |length| length == 0 || length == lanes;
        assert!(fits(seeds.len()) && fits(mask.len()), "one seed and one flag per lane, or none");
        let seed = |lane: usize| seeds.get(lane).copied().flatten();
        let memory = &self.mapped.inputs;
        for lane in 0..lanes {
            memory.store(self.inputs_plan.seeds_at + lane * 8, seed(lane).unwrap_or(0));
        }
        let flag = |lane: usize| {
            let begins = if mask.get(lane).copied().unwrap_or(true) { BEGINS } else { 0 };
            begins | if seed(lane).is_some() { SEEDED } else { 0 }
        };
        memory.copy_from(self.inputs_plan.resets_at, &(0..lanes).map(flag).collect::<Vec<_>>());
        self.post(RESET);
    }

    #[inline]
    fn post(&mut self, kind: u64) {
        self.assert_ours();
        self.posted += 1;
        let Mapped { inputs: own, outputs: peer, .. } = &*self.mapped;
        own.store(inputs::REQUEST_KIND.at, kind);
        // Pairs with the node's acquire of this word (`ServingEnd::wait`): it sees the actions.
        own.store_release(inputs::ACTION_SEQ.at, self.posted);
        NODE_BELL.ring(own, peer);
    }

    /// Waits for the answer to the request that was posted last. Spins, gives way and then sleeps; `alive` is asked
    /// before every slice of sleep of 250 ms at most.
    ///
    /// # Errors
    /// See [`TrainerError`].
    #[inline]
    pub fn wait(
        &mut self,
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<Answer, TrainerError> {
        let Self { mapped, patience, posted, generation, .. } = self;
        let Mapped { inputs: own, outputs: peer, .. } = &**mapped;
        let wait = Wait { own, peer, bell: TRAINER_BELL, deadline };
        let ready = || {
            // Pairs with the node's release of this word (`ServingEnd::answer_frame`): the frame is there.
            if peer.load_acquire(outputs::ANSWER_SEQ.at) != *posted {
                return serves(peer, *generation).map(|()| None);
            }
            // The answer may be one to the trainer that took over.
            serves_generation(peer, *generation).map(Some)
        };
        patience.wait(&wait, ready, alive).map_err(TrainerError::of)?;
        self.take_answer()
    }

    #[inline]
    fn take_answer(&mut self) -> Result<Answer, TrainerError> {
        let peer = &self.mapped.outputs;
        let (kind, frame) = (peer.load(outputs::ANSWER_KIND.at), peer.load(outputs::FRAME_SEQ.at));
        let wrong =
            |word: crate::Word, value, wanted| Err(TrainerError::Answer { word: word.name, value, wanted });
        match kind {
            FRAME if frame != self.frame + 1 => wrong(outputs::FRAME_SEQ, frame, self.frame + 1),
            FRAME => {
                (self.answered, self.frame) = (self.posted, frame);
                Ok(Answer::Frame)
            }
            REFUSED => {
                self.answered = self.posted;
                self.note().map(Answer::Refused)
            }
            kind => wrong(outputs::ANSWER_KIND, kind, REFUSED),
        }
    }

    fn note(&self) -> Result<Vec<u8>, TrainerError> {
        let peer = &self.mapped.outputs;
        let bytes = peer.load(outputs::NOTE_BYTES.at);
        let (word, most) = (outputs::NOTE_BYTES.name, MAX_NOTE_BYTES as u64);
        if bytes > most {
            return Err(TrainerError::Answer { word, value: bytes, wanted: most });
        }
        let mut note = vec![0; bytes as usize];
        peer.copy_to(self.plan.note_at, &mut note);
        Ok(note)
    }

    /// Lanes that are lost as of the newest frame, with the codes of their outcomes; nearly always none, and cheap
    /// then.
    pub fn lost(&self) -> Vec<(u32, u8)> {
        let peer = &self.mapped.outputs;
        if peer.load(outputs::LOST_LANES.at) == 0 {
            return Vec::new();
        }
        let code = |lane: u32| peer.load(self.plan.lane_lost(lane as usize)) as u8;
        (0..self.lanes() as u32).map(|lane| (lane, code(lane))).filter(|(_, code)| *code != 0).collect()
    }

    /// Asks the node to step some lanes, whose rows of the action column were filled in.
    ///
    /// # Panics
    /// While a request is under way, if there is no such lane, or if it is outstanding.
    pub fn send(&mut self, lanes: &[u32]) {
        self.assert_ours();
        let Mapped { inputs: own, outputs: peer, .. } = &*self.mapped;
        for &lane in lanes {
            let index = lane as usize;
            assert!(!self.outstanding[index], "lane {lane} is outstanding");
            (self.outstanding[index], self.outstanding_lanes) = (true, self.outstanding_lanes + 1);
            self.sent[index] += 1;
            // Pairs with the node's acquire of this word (`ServingEnd::take_sent`): it sees the lane's action.
            own.store_release(self.inputs_plan.lane_seqs_at + index * 8, self.sent[index]);
        }
        let doorbell = own.load(inputs::LANES_SEQ.at).wrapping_add(1);
        own.store_release(inputs::LANES_SEQ.at, doorbell);
        NODE_BELL.ring(own, peer);
    }

    /// The row of the action column of one lane that is not outstanding.
    ///
    /// # Panics
    /// If there is no such lane, or it is outstanding.
    pub fn action_row_mut(&mut self, lane: u32) -> ColumnMut<'_> {
        assert!(!self.outstanding[lane as usize], "lane {lane} is outstanding");
        let lane = lane as usize;
        // SAFETY: as in `actions_mut`.
        unsafe { self.mapped.actions.write(self.inputs_plan.action.rows(&(lane..lane + 1))) }
    }

    /// Lanes sent and not received yet.
    pub const fn outstanding(&self) -> usize {
        self.outstanding_lanes
    }

    /// Waits until at least `min` of the lanes that are outstanding are done, and adds all that are to `ready`; their
    /// rows are in [`AttachedArena::lane_rows`].
    ///
    /// # Errors
    /// See [`TrainerError`]; after `TimedOut` the lanes are still outstanding.
    pub fn wait_lanes(
        &mut self,
        min: usize,
        ready: &mut Vec<u32>,
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<ReadyLanes, TrainerError> {
        let Self { mapped, patience, generation, ready_read, lanes_refused, .. } = self;
        let Mapped { inputs: own, outputs: peer, .. } = &**mapped;
        let wait = Wait { own, peer, bell: TRAINER_BELL, deadline };
        let look = || {
            // Pairs with the node's release of this word (`ServingEnd::answer_lanes`): the rows are there.
            let written = peer.load_acquire(outputs::READY_WRITTEN.at);
            let refused = peer.load_acquire(outputs::LANES_REFUSED.at) != *lanes_refused;
            if written.wrapping_sub(*ready_read) < min as u64 && !refused {
                return serves(peer, *generation).map(|()| None);
            }
            serves_generation(peer, *generation).map(|()| Some((written, refused)))
        };
        let (written, refused) = patience.wait(&wait, look, alive).map_err(TrainerError::of)?;
        let count = self.take_ready(written, ready)?;
        if !refused {
            return Ok(ReadyLanes::Ready(count));
        }
        // What was refused is answered without being ready. Asked again, because a lane may have become ready since.
        let written = self.mapped.outputs.load_acquire(outputs::READY_WRITTEN.at);
        self.take_ready(written, ready)?;
        self.take_refused()
    }

    fn take_ready(&mut self, written: u64, ready: &mut Vec<u32>) -> Result<usize, TrainerError> {
        let most = self.ready_read.saturating_add(self.outstanding_lanes as u64);
        if written < self.ready_read || written > most {
            let word = outputs::READY_WRITTEN.name;
            return Err(TrainerError::Answer { word, value: written, wanted: most });
        }
        let mut count = 0;
        while self.ready_read < written {
            let lane = self.mapped.outputs.load(self.plan.ready(self.ready_read));
            let index = usize::try_from(lane).unwrap_or(usize::MAX);
            if !self.outstanding.get(index).copied().unwrap_or(false) {
                let wanted = self.lanes() as u64 - 1;
                return Err(TrainerError::Answer { word: "ready lane", value: lane, wanted });
            }
            self.received(index);
            ready.push(lane as u32);
            self.ready_read += 1;
            count += 1;
        }
        self.mapped.inputs.store_release(inputs::READY_READ.at, self.ready_read);
        Ok(count)
    }

    fn take_refused(&mut self) -> Result<ReadyLanes, TrainerError> {
        self.lanes_refused = self.mapped.outputs.load_acquire(outputs::LANES_REFUSED.at);
        let note = self.note()?;
        let answered = |lane: usize| self.mapped.outputs.load(self.plan.lane_seq(lane)) == self.sent[lane];
        let refused = |&lane: &usize| self.outstanding[lane] && answered(lane);
        let lanes: Vec<usize> = (0..self.lanes()).filter(refused).collect();
        lanes.iter().for_each(|&lane| self.received(lane));
        Ok(ReadyLanes::Refused { lanes: lanes.into_iter().map(|lane| lane as u32).collect(), note })
    }

    fn received(&mut self, lane: usize) {
        self.outstanding[lane] = false;
        self.outstanding_lanes -= 1;
    }

    /// Sends a command; waits while the ring is full. The node runs commands in order between two steps.
    ///
    /// # Errors
    /// [`TrainerError::TimedOut`] if there is no room before the deadline, and nothing is sent then.
    pub fn send_command(
        &mut self,
        command: &[u8],
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<(), TrainerError> {
        let Self { mapped, patience, generation, requests, .. } = self;
        let Mapped { inputs: own, outputs: peer, .. } = &**mapped;
        let wait = Wait { own, peer, bell: TRAINER_BELL, deadline };
        let push = || {
            serves(peer, *generation)?;
            requests.push(own, peer, command).map(|pushed| pushed.then_some(())).map_err(TrainerError::Ring)
        };
        patience.wait(&wait, push, alive).map_err(TrainerError::of)?;
        NODE_BELL.ring(own, peer);
        Ok(())
    }

    /// Waits for the next answer to a command and copies it over `answer`. Answers come in the order of commands.
    ///
    /// # Errors
    /// See [`TrainerError`].
    pub fn next_answer(
        &mut self,
        answer: &mut Vec<u8>,
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<(), TrainerError> {
        let Self { mapped, patience, generation, answers, .. } = self;
        let Mapped { inputs: own, outputs: peer, .. } = &**mapped;
        let wait = Wait { own, peer, bell: TRAINER_BELL, deadline };
        let pop = || match answers.pop(own, peer, answer).map_err(TrainerError::Ring)? {
            true => Ok(Some(())),
            false => serves(peer, *generation).map(|()| None),
        };
        patience.wait(&wait, pop, alive).map_err(TrainerError::of)?;
        // The node may wait for the room.
        NODE_BELL.ring(own, peer);
        Ok(())
    }

    /// Bytes the longest command may have.
    pub const fn most_command_bytes(&self) -> usize {
        crate::ring::most_record(self.inputs_plan.requests.bytes)
    }

    /// How often the node has said that it is not stopped: one that is slow goes on saying so.
    pub fn heartbeat(&self) -> u64 {
        self.mapped.outputs.load(outputs::NODE_HEARTBEAT.at)
    }

    /// Shows the node that this trainer is not stopped.
    pub fn beat(&self) {
        let beats = self.mapped.inputs.load(inputs::TRAINER_HEARTBEAT.at);
        self.mapped.inputs.store(inputs::TRAINER_HEARTBEAT.at, beats.wrapping_add(1));
    }

    /// Keeps the mappings, for those who hold addresses in them beyond a frame's lifetime. They never move.
    pub fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.mapped) as _
    }

    /// Addresses of both mappings: what the node writes, and what the trainer writes.
    pub fn addresses(&self) -> [Range<usize>; 2] {
        [self.mapped.columns.addresses(), self.mapped.actions.addresses()]
    }

    #[inline]
    fn assert_ours(&self) {
        assert!(self.posted == self.answered, "the arena belongs to the node while a request is under way");
    }
}

/// Whether the node still serves this attachment.
#[inline]
fn serves(outputs: &ReadOnlyMemory, generation: u64) -> Result<(), TrainerError> {
    if outputs.load_acquire(outputs::STATE.at) == CLOSED {
        return Err(TrainerError::Closed { code: outputs.load(outputs::CLOSE_CODE.at) });
    }
    serves_generation(outputs, generation)
}

#[inline]
fn serves_generation(outputs: &ReadOnlyMemory, generation: u64) -> Result<(), TrainerError> {
    match outputs.load(outputs::GENERATION.at) {
        now if now == generation => Ok(()),
        now => Err(TrainerError::TakenOver { generation: now }),
    }
}

impl TrainerError {
    fn of(unmet: Unmet<Self>) -> Self {
        match unmet {
            Unmet::TimedOut => Self::TimedOut,
            Unmet::Gone => Self::Gone,
            Unmet::Failed(error) => error,
        }
    }
}

impl fmt::Display for TrainerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("the node did not answer in time"),
            Self::Gone => f.write_str("the node is gone"),
            Self::Closed { code } => write!(f, "the node serves this session no more (reason {code})"),
            Self::TakenOver { generation } => write!(f, "attachment {generation} has taken the session over"),
            Self::Answer { word, value, wanted } => {
                write!(f, "`{word}` of the node is {value} where it is {wanted} at most")
            }
            Self::Ring(_) => f.write_str("a ring of commands cannot be used"),
        }
    }
}

impl std::error::Error for TrainerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Ring(source) => Some(source),
            _ => None,
        }
    }
}

//! The trainer's half of a session attached in shared memory.

use std::any::Any;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rollhouse_core::ColumnMut;

use crate::arena::Frame;
use crate::columns::slot_of;
use crate::fetching::Touch;
use crate::files::{
    AttachError, Expected, InputsPlan, MAX_NOTE_BYTES, NODE_BELL, OutputsPlan, TRAINER_BELL,
    check_generation, most_input_bytes, most_output_bytes,
};
use crate::header::{HEADER_BYTES, Word, inputs, outputs};
use crate::mapping::Pages;
use crate::memory::Memory;
use crate::patience::{Patience, SLICE, Unmet, Wait};
use crate::ring::{RingError, RingReader, RingWriter};
use crate::sent_lanes::SentLanes;
use crate::serving::{ACTS, BEGINS, CLOSED, FRAME, LATEST, REFUSED, RESET, SEEDED, STEP};
use crate::shared::{ReadOnlyMemory, SharedWords};
use crate::words::{Words, WordsMut};

/// A session's memory, mapped by its trainer. One thread uses it.
///
/// The node is trusted with the values in frames: it writes a frame's slot again only after the second next request,
/// and a node that breaks this rule shows the trainer numbers that change while they are read, never other memory.
/// Every value that decides a place or a length was checked when the memory was attached, or is checked when it is
/// read.
#[derive(Debug)]
pub struct AttachedArena {
    pub(crate) mapped: Arc<Mapped>,
    pub(crate) plan: OutputsPlan,
    pub(crate) inputs_plan: InputsPlan,
    /// Identity of the node's file.
    file: FileId,
    pub(crate) generation: u64,
    /// Number of the newest request.
    pub(crate) posted: u64,
    /// Number of the newest request whose answer was taken.
    pub(crate) answered: u64,
    pub(crate) frame: u64,
    pub(crate) sent: SentLanes,
    pub(crate) ready_read: u64,
    pub(crate) lanes_refused: u64,
    pub(crate) requests: RingWriter,
    pub(crate) answers: RingReader,
    pub(crate) patience: Patience,
}

/// The two mappings, which live as long as anyone holds an address in them.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) outputs: ReadOnlyMemory,
    pub(crate) columns: Memory,
    pub(crate) inputs: SharedWords,
    pub(crate) actions: Memory,
}

/// Answer of the node to a step or a reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The node wrote a new frame.
    Frame,
    /// Nothing has moved; the node's note says why.
    Refused(Vec<u8>),
}

/// Identity of the file for which a descriptor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

/// Reason for which a trainer got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// The deadline passed. The request is still under way, and the trainer can wait again.
    #[error("the node did not answer in time")]
    TimedOut,
    /// `alive` said that the node is gone.
    #[error("the node is gone")]
    Gone,
    /// The node serves this session no more.
    #[error("the node serves this session no more (reason {code})")]
    Closed {
        /// Reason for the end, in the node's numbering.
        code: u64,
    },
    /// Another trainer was attached to the session.
    #[error("attachment {generation} has taken the session over")]
    TakenOver {
        /// Number of the attachment that is served now.
        generation: u64,
    },
    /// The node answered something that was not asked.
    #[error("`{word}` of the node is {value}, at most {wanted} is possible")]
    Answer {
        /// Name of the word that is wrong.
        word: &'static str,
        /// Value of the word.
        value: u64,
        /// Value that the word has to have, or the most that it may have.
        wanted: u64,
    },
    /// A ring of commands is damaged, or the command is too long.
    #[error("a ring of commands cannot be used")]
    Ring(#[source] RingError),
}

impl AttachedArena {
    /// Maps and checks the two files that a node handed over. No descriptor is kept.
    ///
    /// # Errors
    /// See [`AttachError`]: nothing of either file is used then.
    pub fn open(outputs: OwnedFd, inputs: OwnedFd, expected: &Expected<'_>) -> Result<Self, AttachError> {
        let map = |source| AttachError::Map { file: "outputs", source };
        let file = FileId::of(&outputs).map_err(map)?;
        let most = most_output_bytes(expected).ok_or(AttachError::Size)?;
        let mut outputs = ReadOnlyMemory::attach(outputs.as_fd(), most).map_err(map)?;
        has_header("outputs", outputs.len())?;
        let (mut inputs, inputs_plan) = map_inputs(inputs, expected)?;
        let plan = OutputsPlan::read(&outputs, expected)?;
        let columns = outputs.split(plan.columns_at);
        let actions = inputs.split(inputs_plan.action.offset);
        let requests =
            RingWriter::resume(inputs_plan.requests, &inputs, &outputs).map_err(AttachError::Ring)?;
        let answers = RingReader::resume(plan.answers, &inputs, &outputs).map_err(AttachError::Ring)?;
        let mut arena = Self {
            plan,
            inputs_plan,
            file,
            generation: expected.generation,
            posted: 0,
            answered: 0,
            frame: 0,
            sent: SentLanes::new(expected.lanes),
            ready_read: 0,
            lanes_refused: 0,
            requests,
            answers,
            patience: Patience::new(),
            mapped: Arc::new(Mapped { outputs, columns, inputs, actions }),
        };
        arena.read_numbers();
        Ok(arena)
    }

    /// Moves to a later attachment of the same session. A new file for the trainer's writes is mapped at the addresses
    /// of the previous one, so that addresses of the action column stay good. A request that was under way is
    /// forgotten: [`AttachedArena::answered`] tells whether it was carried out.
    ///
    /// # Errors
    /// As [`AttachedArena::open`], and [`AttachError::OtherMemory`] if the node's file is another one; this attachment
    /// stays as it was then.
    pub fn renew(
        &mut self,
        outputs: OwnedFd,
        inputs: OwnedFd,
        expected: &Expected<'_>,
    ) -> Result<(), AttachError> {
        let file = FileId::of(&outputs).map_err(|source| AttachError::Map { file: "outputs", source })?;
        if file != self.file {
            return Err(AttachError::OtherMemory);
        }
        check_generation(&self.mapped.outputs, expected.generation)?;
        let (new, plan) = map_inputs(inputs, expected)?;
        if plan != self.inputs_plan {
            return Err(AttachError::OtherMemory);
        }
        let peer = &self.mapped.outputs;
        let requests = RingWriter::resume(plan.requests, &new, peer).map_err(AttachError::Ring)?;
        let answers = RingReader::resume(self.plan.answers, &new, peer).map_err(AttachError::Ring)?;
        // SAFETY: slices of the action column borrow this value, which is borrowed exclusively here.
        let replaced = unsafe { self.mapped.inputs.replace(new) };
        replaced.map_err(|source| AttachError::Map { file: "inputs", source })?;
        (self.requests, self.answers) = (requests, answers);
        self.generation = expected.generation;
        self.read_numbers();
        Ok(())
    }

    /// Reads the numbers at which the session stands.
    fn read_numbers(&mut self) {
        let Mapped { outputs, inputs, .. } = &*self.mapped;
        self.answered = outputs.load_acquire(outputs::ANSWER_SEQ.at);
        self.posted = self.answered;
        self.frame = outputs.load(outputs::FRAME_SEQ.at);
        self.sent.begin(|lane| outputs.load(self.plan.lane_seq(lane)));
        self.ready_read = inputs.load(inputs::READY_READ.at);
        self.lanes_refused = outputs.load(outputs::LANES_REFUSED.at);
    }

    /// Returns the number of rows in the batch.
    pub const fn lanes(&self) -> usize {
        self.plan.places.lanes
    }

    /// Returns the number of the newest request that was answered. A trainer that attaches again learns from it whether
    /// the request without a received answer was carried out: then its frame is the newest.
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// Returns the action column, to be filled before [`AttachedArena::post_step`].
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

    /// Returns the number of bytes of the action column.
    #[inline]
    pub fn action_bytes(&self) -> usize {
        let span = self.inputs_plan.action.rows(&(0..self.plan.places.lanes));
        span.elements * span.dtype.size()
    }

    /// Copies the bytes of the action column, row by row, over `actions`. Others may be writing them through addresses
    /// that they kept; then the copy has values that stood there at some moment.
    ///
    /// # Panics
    /// If `actions` has another length.
    #[inline]
    pub fn copy_actions(&self, actions: &mut [u8]) {
        let span = self.inputs_plan.action.rows(&(0..self.plan.places.lanes));
        self.mapped.actions.copy_out(span, actions);
    }

    /// Forgets the request that is under way and the lanes that are outstanding, because the node is gone or its answer
    /// does not count any more. The newest frame is the one that was answered last; the other slot may be written
    /// halfway.
    pub fn forget_request(&mut self) {
        self.posted = self.answered;
        self.sent.forget();
    }

    /// Returns the frame that the newest answered request wrote. Its values stay in memory until the second next
    /// request is posted.
    ///
    /// # Panics
    /// While a request is under way.
    #[inline]
    pub fn frame(&self) -> Frame<'_> {
        self.assert_ours();
        self.frame_at(slot_of(self.frame), self.frame)
    }

    /// Returns the newest frame, and the action column to be filled from it.
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

    /// Asks the node to begin episodes: in the lanes of `mask`, or in all if `mask` is empty; with `seeds`, or without
    /// seeds if `seeds` is empty.
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

    /// Asks the node for the newest rows of lanes that move by themselves, without waiting for them to move. Those of `acting`
    /// are given what stands in their rows of the action column.
    ///
    /// # Panics
    /// While a request is under way, or if there is no such lane.
    pub fn post_latest(&mut self, acting: &[u32]) {
        self.assert_ours();
        let mut flags = vec![0; self.lanes()];
        acting.iter().for_each(|&lane| flags[lane as usize] = ACTS);
        self.mapped.inputs.copy_from(self.inputs_plan.resets_at, &flags);
        self.post(LATEST);
    }

    #[inline]
    fn post(&mut self, kind: u64) {
        self.assert_ours();
        self.posted = self.posted.wrapping_add(1);
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
        mapped.wait(*posted, *generation, patience, deadline, alive)?;
        self.take_answer()
    }

    /// Returns whether a lane is lost as of the newest frame.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.mapped.outputs.load(outputs::LOST_LANES.at) != 0
    }

    /// Returns whether waiting for the answer to the last request would end at once, with the answer or an error.
    pub fn is_answered(&self) -> bool {
        self.mapped.is_answered(self.posted, self.generation).unwrap_or(true)
    }

    #[inline]
    fn take_answer(&mut self) -> Result<Answer, TrainerError> {
        let peer = &self.mapped.outputs;
        let (kind, frame) = (peer.load(outputs::ANSWER_KIND.at), peer.load(outputs::FRAME_SEQ.at));
        let wrong = |word: Word, value, wanted| Err(TrainerError::Answer { word: word.name, value, wanted });
        match kind {
            FRAME if frame != self.frame.wrapping_add(1) => {
                wrong(outputs::FRAME_SEQ, frame, self.frame.wrapping_add(1))
            }
            FRAME => {
                (self.answered, self.frame) = (self.posted, frame);
                self.fetch_for_step();
                Ok(Answer::Frame)
            }
            REFUSED => {
                self.answered = self.posted;
                self.note().map(Answer::Refused)
            }
            kind => wrong(outputs::ANSWER_KIND, kind, REFUSED),
        }
    }

    /// Has the processor fetch what every step touches next: the newest frame's flags, and the notes beside it, of which the
    /// first word says how many there are; and the actions, which the node has read, to be written.
    #[inline]
    fn fetch_for_step(&self) {
        let Self { mapped, plan, inputs_plan, frame, .. } = self;
        let slot = slot_of(*frame);
        let lanes = plan.places.lanes;
        for (at, bytes) in plan.first_notes(slot) {
            mapped.outputs.fetch(at, bytes);
        }
        for flags in plan.places.slots[slot].flags() {
            mapped.columns.fetch(flags.rows(&(0..lanes)), Touch::Read);
        }
        mapped.actions.fetch(inputs_plan.action.rows(&(0..lanes)), Touch::Write);
    }

    pub(crate) fn note(&self) -> Result<Vec<u8>, TrainerError> {
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

    /// Returns the lanes that are lost as of the newest frame, with the codes of their outcomes. There are nearly
    /// always none, and then the call is cheap.
    pub fn lost(&self) -> Vec<(u32, u8)> {
        let peer = &self.mapped.outputs;
        if peer.load(outputs::LOST_LANES.at) == 0 {
            return Vec::new();
        }
        let code = |lane: u32| peer.load(self.plan.lane_lost(lane as usize)) as u8;
        (0..self.lanes() as u32).map(|lane| (lane, code(lane))).filter(|(_, code)| *code != 0).collect()
    }

    /// Sends a command; waits while the ring is full. The node runs commands in order between two steps.
    ///
    /// # Errors
    /// See [`TrainerError`], with which nothing is sent; `TimedOut` says that there is no room.
    pub fn send_command(
        &mut self,
        command: &[u8],
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<(), TrainerError> {
        let Self { mapped, patience, generation, requests, .. } = self;
        let Mapped { inputs: own, outputs: peer, .. } = &**mapped;
        let wait = Wait { own, peer, bell: TRAINER_BELL, deadline, slice: SLICE };
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
        let wait = Wait { own, peer, bell: TRAINER_BELL, deadline, slice: SLICE };
        let pop = || match answers.pop(own, peer, answer).map_err(TrainerError::Ring)? {
            true => Ok(Some(())),
            false => serves(peer, *generation).map(|()| None),
        };
        patience.wait(&wait, pop, alive).map_err(TrainerError::of)?;
        // The node may wait for the room.
        NODE_BELL.ring(own, peer);
        Ok(())
    }

    /// Returns a handle that keeps the mappings alive, for callers that hold addresses in them beyond a frame's
    /// lifetime. The mappings never move.
    pub fn memory(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.mapped) as _
    }

    /// Returns the addresses of both mappings: the node's file and the trainer's file.
    pub fn addresses(&self) -> [Range<usize>; 2] {
        [self.mapped.columns.addresses(), self.mapped.actions.addresses()]
    }

    #[inline]
    pub(crate) fn assert_ours(&self) {
        assert!(self.posted == self.answered, "the arena belongs to the node while a request is under way");
    }
}

impl Mapped {
    #[inline]
    fn wait(
        &self,
        posted: u64,
        generation: u64,
        patience: &mut Patience,
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<(), TrainerError> {
        let wait =
            Wait { own: &self.inputs, peer: &self.outputs, bell: TRAINER_BELL, deadline, slice: SLICE };
        let ready = || self.is_answered(posted, generation).map(|answered| answered.then_some(()));
        patience.wait(&wait, ready, alive).map_err(TrainerError::of)
    }

    /// Looks once whether there is an answer.
    #[inline]
    fn is_answered(&self, posted: u64, generation: u64) -> Result<bool, TrainerError> {
        // Pairs with the node's release of this word (`ServingEnd::answer_frame`): the frame is there.
        if self.outputs.load_acquire(outputs::ANSWER_SEQ.at) != posted {
            return serves(&self.outputs, generation).map(|()| false);
        }
        // The answer may be one to the trainer that took over.
        serves_generation(&self.outputs, generation).map(|()| true)
    }
}

impl FileId {
    fn of(fd: &OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(fd)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

fn has_header(file: &'static str, bytes: usize) -> Result<(), AttachError> {
    let wrong = AttachError::Place { file, what: "header", offset: 0, bytes: HEADER_BYTES as u64 };
    if bytes < HEADER_BYTES { Err(wrong) } else { Ok(()) }
}

fn map_inputs(fd: OwnedFd, expected: &Expected<'_>) -> Result<(SharedWords, InputsPlan), AttachError> {
    let map = |source| AttachError::Map { file: "inputs", source };
    let most = most_input_bytes(expected).ok_or(AttachError::Size)?;
    let inputs = SharedWords::attach(fd.as_fd(), most, Pages::FromTheStart).map_err(map)?;
    has_header("inputs", inputs.len())?;
    let plan = InputsPlan::read(&inputs, inputs.len(), expected)?;
    Ok((inputs, plan))
}

/// Checks that the node still serves this attachment.
#[inline]
pub(crate) fn serves(outputs: &ReadOnlyMemory, generation: u64) -> Result<(), TrainerError> {
    if outputs.load_acquire(outputs::STATE.at) == CLOSED {
        return Err(TrainerError::Closed { code: outputs.load(outputs::CLOSE_CODE.at) });
    }
    serves_generation(outputs, generation)
}

#[inline]
pub(crate) fn serves_generation(outputs: &ReadOnlyMemory, generation: u64) -> Result<(), TrainerError> {
    match outputs.load(outputs::GENERATION.at) {
        now if now == generation => Ok(()),
        now => Err(TrainerError::TakenOver { generation: now }),
    }
}

impl TrainerError {
    pub(crate) fn of(unmet: Unmet<Self>) -> Self {
        match unmet {
            Unmet::TimedOut => Self::TimedOut,
            Unmet::Gone => Self::Gone,
            Unmet::Failed(error) => error,
        }
    }
}

//! The node's half of a session attached in shared memory.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use rollhouse_core::{ColumnMut, DType};

use crate::arena::Frame;
use crate::columns::slot_of;
use crate::fetching::Touch;
use crate::files::{InputsPlan, MAX_NOTE_BYTES, NODE_BELL, OutputsPlan, TRAINER_BELL};
use crate::header::{inputs, outputs};
use crate::memory::Memory;
use crate::notes::FrameNotes;
use crate::patience::{Patience, SLICE, Unmet, Wait};
use crate::placement::Places;
use crate::ring::{RingError, RingReader, RingWriter};
use crate::shared::SharedMemory;
use crate::words::{Words, WordsMut};

/// The node's end of one attachment. One thread serves it.
#[derive(Debug)]
pub struct ServingEnd {
    pub(crate) outputs: Arc<SharedMemory>,
    pub(crate) inputs: Arc<SharedMemory>,
    pub(crate) lane_rows: Arc<Memory>,
    pub(crate) plan: OutputsPlan,
    pub(crate) inputs_plan: InputsPlan,
    pub(crate) generation: u64,
    pub(crate) taken_up: TakenUp,
    /// The trainer's sends of lanes.
    pub(crate) sends: Sends,
    /// Newest number under which each lane was taken.
    pub(crate) taken: Vec<u64>,
    pub(crate) ready_written: u64,
    /// Lanes whose record says that they are lost.
    pub(crate) lost: Vec<u32>,
    /// True while the file says that the node is going away.
    pub(crate) leaving: bool,
    pub(crate) requests: RingReader,
    pub(crate) answers: RingWriter,
    pub(crate) patience: Patience,
}

/// The trainer's requests for all lanes, as far as they were taken up.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct TakenUp {
    /// Number of the newest request that was answered.
    pub(crate) answered: u64,
    /// Whether the request that follows was taken up and is answered later.
    pub(crate) held: bool,
}

impl TakenUp {
    /// Returns the number of the newest request that was taken up.
    pub(crate) const fn number(self) -> u64 {
        self.answered + self.held as u64
    }
}

/// The trainer's count of sends.
#[derive(Debug, Default)]
pub(crate) struct Sends {
    /// The count as last seen.
    pub(crate) seen: u64,
    /// The count as of the last [`ServingEnd::take_sent`].
    pub(crate) taken: u64,
}

/// Request of a trainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The trainer asks to step every lane once with the action column ([`ServingEnd::copy_actions`]). It is answered
    /// by [`ServingEnd::answer_frame`] or [`ServingEnd::refuse`].
    Step,
    /// The trainer asks to begin episodes as [`ServingEnd::reset_columns`] says. It is answered like a step.
    Reset,
    /// The trainer asks for the newest rows of lanes that move by themselves, and gives some an action
    /// ([`ServingEnd::acting_lanes`]). It is answered like a step.
    Latest,
    /// The trainer asks to step the lanes of [`ServingEnd::take_sent`].
    Lanes,
    /// The trainer sent commands ([`ServingEnd::next_command`]).
    Command,
}

/// Reason for which a node stops waiting for requests, or cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServeError {
    /// The deadline passed.
    #[error("nothing came from the trainer in time")]
    TimedOut,
    /// `alive` said that the trainer is gone or the session is to end.
    #[error("the trainer is gone")]
    Gone,
    /// The trainer broke the protocol: the attachment is over.
    #[error("the trainer broke the protocol of the shared memory")]
    Peer(#[source] PeerError),
}

/// Act of a trainer that the protocol does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The request has a number that does not follow that of the last one.
    #[error("request {given} does not follow request {answered}, the last one answered")]
    RequestNumber {
        /// Number that the trainer wrote.
        given: u64,
        /// Number of the newest request that was answered.
        answered: u64,
    },
    /// The request is of a kind that does not exist.
    #[error("a request of unknown kind {0}; known are {STEP}, {RESET} and {LATEST}")]
    RequestKind(u64),
    /// A lane was sent under a number that does not follow its last one.
    #[error("lane {lane} was sent as number {given} after number {taken}")]
    LaneNumber {
        /// Lane that was sent.
        lane: usize,
        /// Number that the trainer wrote.
        given: u64,
        /// Newest number under which the lane was taken.
        taken: u64,
    },
    /// The trainer's cursor in the ring of ready lanes has an impossible value.
    #[error("the cursor of the ring of ready lanes is {cursor}, but {written} entries were written")]
    ReadyCursor {
        /// Value of the cursor.
        cursor: u64,
        /// Number of entries written so far.
        written: u64,
    },
    /// A ring of commands is damaged.
    #[error("the ring of commands has {0}")]
    Ring(RingError),
}

/// Lanes in which a reset begins episodes, and the seeds of those episodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResetColumns {
    /// Seed of each lane's reset, if the trainer gave one.
    pub seeds: Vec<Option<u64>>,
    /// True for each lane that begins an episode.
    pub mask: Vec<bool>,
}

impl ServingEnd {
    /// Returns the trainer's file, to be given to it beside the file of [`SharedArena`](crate::SharedArena).
    pub fn inputs_fd(&self) -> BorrowedFd<'_> {
        self.inputs.as_fd()
    }

    /// Returns the node's file.
    pub fn outputs_fd(&self) -> BorrowedFd<'_> {
        self.outputs.as_fd()
    }

    /// Returns the number of the attachment.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of the newest request that was answered.
    pub const fn answered(&self) -> u64 {
        self.taken_up.answered
    }

    /// Returns a handle for the node's other threads.
    pub fn remote(&self) -> ServingRemote {
        ServingRemote { outputs: Arc::clone(&self.outputs), inputs: Arc::clone(&self.inputs) }
    }

    /// Waits for a request. Spins, gives its core away and then sleeps; `alive` is asked before every slice of sleep of
    /// 250 ms at most, and [`ServingRemote::rouse`] has it asked at once.
    ///
    /// # Errors
    /// See [`ServeError`]. After `TimedOut` the caller may wait again.
    pub fn wait(
        &mut self,
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<Request, ServeError> {
        self.wait_for(true, deadline, alive)
    }

    /// Waits as [`ServingEnd::wait`] does, but sleeps at once: for ends at which something is due by time again and again.
    ///
    /// # Errors
    /// See [`ServeError`]. After `TimedOut` the caller may wait again.
    pub fn wait_asleep(
        &mut self,
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<Request, ServeError> {
        self.wait_for(false, deadline, alive)
    }

    #[inline]
    fn wait_for(
        &mut self,
        awake: bool,
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<Request, ServeError> {
        let Self { outputs, inputs, requests, taken_up, sends, patience, .. } = self;
        let wait = Wait { own: &**outputs, peer: &**inputs, bell: NODE_BELL, deadline, slice: SLICE };
        let ready = || look(inputs, requests, taken_up.number(), &mut sends.seen);
        let mut asleep = Patience::NONE;
        let patience = if awake { patience } else { &mut asleep };
        let request = patience.wait(&wait, ready, alive).map_err(|unmet| match unmet {
            Unmet::TimedOut => ServeError::TimedOut,
            Unmet::Gone => ServeError::Gone,
            Unmet::Failed(error) => ServeError::Peer(error),
        })?;
        if request == Request::Step {
            let action = self.inputs_plan.action.rows(&(0..self.plan.places.lanes));
            self.inputs.fetch(action.offset, action.elements * action.dtype.size(), Touch::Read);
        }
        Ok(request)
    }

    /// Returns the request that is there, if there is one. Never blocks.
    ///
    /// # Errors
    /// If the trainer broke the protocol: the attachment is over.
    pub fn poll(&mut self) -> Result<Option<Request>, PeerError> {
        look(&self.inputs, &self.requests, self.taken_up.number(), &mut self.sends.seen)
    }

    /// Copies the trainer's action column. The caller checks the values of the copy, because the trainer may write the
    /// column at any time.
    ///
    /// # Panics
    /// If `into` has another type or length than the action column.
    pub fn copy_actions(&self, mut into: ColumnMut<'_>) {
        let action = &self.inputs_plan.action;
        let elements = self.plan.places.lanes * action.row_elements;
        assert_eq!(into.as_ref().len(), elements, "one action per lane");
        // Booleans lie in bytes.
        let dtype = if action.dtype == DType::Bool { DType::U8 } else { action.dtype };
        assert_eq!(into.as_ref().dtype(), dtype, "actions are {}", action.dtype);
        self.inputs.copy_to(action.offset, into.bytes_mut());
    }

    /// Copies the masks and seeds of a [`Request::Reset`].
    pub fn reset_columns(&self) -> ResetColumns {
        let lanes = self.plan.places.lanes;
        let mut flags = vec![0; lanes];
        self.inputs.copy_to(self.inputs_plan.resets_at, &mut flags);
        let seed = |lane: usize| self.inputs.load(self.inputs_plan.seeds_at + lane * 8);
        let seeds = flags.iter().enumerate().map(|(lane, flag)| (flag & SEEDED != 0).then(|| seed(lane)));
        ResetColumns { seeds: seeds.collect(), mask: flags.iter().map(|flag| flag & BEGINS != 0).collect() }
    }

    /// Returns the lanes to which a [`Request::Latest`] gives an action, ascending; [`ServingEnd::copy_actions_of`] has it.
    pub fn acting_lanes(&self) -> Vec<u32> {
        let lanes = self.plan.places.lanes;
        let mut flags = vec![0; lanes];
        self.inputs.copy_to(self.inputs_plan.resets_at, &mut flags);
        (0..lanes as u32).filter(|&lane| flags[lane as usize] & ACTS != 0).collect()
    }

    /// Notes that the request that was returned last is answered later. Until then others come by: commands and lanes.
    pub const fn hold(&mut self) {
        self.taken_up.held = true;
    }

    /// Returns whether a request is answered later.
    pub const fn is_held(&self) -> bool {
        self.taken_up.held
    }

    /// Answers the request with a frame of the arena in this memory, and with the notes that go beside it. `lost` has
    /// the lanes that are lost now, with the codes of their outcomes.
    ///
    /// # Panics
    /// If the frame lies elsewhere, a lane is not in the batch, or there are more records of a kind than lanes.
    #[inline]
    pub fn answer_frame(&mut self, frame: &Frame<'_>, lost: &[(u32, u8)], notes: &FrameNotes<'_>) {
        assert!(frame.lies_in(&self.lane_rows), "a frame of another arena");
        if !(lost.is_empty() && self.lost.is_empty()) {
            self.note_lost(lost);
        }
        self.put_frame_notes(frame.number(), notes);
        self.outputs.store(outputs::FRAME_SEQ.at, frame.number());
        self.outputs.store(outputs::ANSWER_KIND.at, FRAME);
        self.answer();
        self.fetch_for_frame(frame.number().wrapping_add(1));
    }

    /// Has the processor fetch what every frame writes and the trainer may have read, of the frame that comes next. Nobody
    /// waits meanwhile.
    #[inline]
    fn fetch_for_frame(&self, next: u64) {
        let slot = slot_of(next);
        for (at, bytes) in self.plan.first_notes(slot) {
            self.outputs.fetch(at, bytes, Touch::Write);
        }
        let Places { lanes, slots, .. } = &self.plan.places;
        for column in slots[slot].places() {
            self.lane_rows.fetch(column.rows(&(0..*lanes)), Touch::Write);
        }
    }

    /// Answers the request with a refusal: nothing has moved. `note` says why, in the caller's encoding; at most
    /// [`MAX_NOTE_BYTES`] of it are kept.
    pub fn refuse(&mut self, note: &[u8]) {
        self.put_note(note);
        self.outputs.store(outputs::ANSWER_KIND.at, REFUSED);
        self.answer();
    }

    #[inline]
    fn answer(&mut self) {
        self.taken_up = TakenUp { answered: self.taken_up.answered + 1, held: false };
        // Pairs with the trainer's acquire of this word (`AttachedArena::wait`): it sees the frame's columns.
        self.outputs.store_release(outputs::ANSWER_SEQ.at, self.taken_up.answered);
        TRAINER_BELL.ring(&*self.outputs, &*self.inputs);
    }

    pub(crate) fn put_note(&self, note: &[u8]) {
        let note = &note[..note.len().min(MAX_NOTE_BYTES)];
        self.outputs.copy_from(self.plan.note_at, note);
        self.outputs.store(outputs::NOTE_BYTES.at, note.len() as u64);
    }

    #[cold]
    pub(crate) fn note_lost(&mut self, lost: &[(u32, u8)]) {
        for lane in self.lost.drain(..) {
            self.outputs.store(self.plan.lane_lost(lane as usize), 0);
        }
        for &(lane, code) in lost {
            assert!((lane as usize) < self.plan.places.lanes, "lane {lane} is in the batch");
            self.outputs.store(self.plan.lane_lost(lane as usize), u64::from(code));
            self.lost.push(lane);
        }
        self.outputs.store(outputs::LOST_LANES.at, lost.len() as u64);
    }

    /// Copies the next command over `command`; false if there is none.
    ///
    /// # Errors
    /// If the trainer's part of the ring is damaged.
    pub fn next_command(&mut self, command: &mut Vec<u8>) -> Result<bool, PeerError> {
        let taken = self.requests.pop(&*self.outputs, &*self.inputs, command).map_err(PeerError::Ring)?;
        if taken {
            // The trainer may wait for the room.
            TRAINER_BELL.ring(&*self.outputs, &*self.inputs);
        }
        Ok(taken)
    }

    /// Writes an answer to a command; waits while the ring is full, for the trainer to take what is in it.
    ///
    /// # Errors
    /// See [`ServeError`], with which nothing is written; `TimedOut` says that there is no room.
    pub fn answer_command(
        &mut self,
        answer: &[u8],
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<(), ServeError> {
        let Self { outputs, inputs, answers, patience, .. } = self;
        let (own, peer) = (&**outputs, &**inputs);
        let wait = Wait { own, peer, bell: NODE_BELL, deadline, slice: SLICE };
        let ready = || answers.push(own, peer, answer).map(|pushed| pushed.then_some(()));
        patience.wait(&wait, ready, alive).map_err(|unmet| match unmet {
            Unmet::TimedOut => ServeError::TimedOut,
            Unmet::Gone => ServeError::Gone,
            Unmet::Failed(error) => ServeError::Peer(PeerError::Ring(error)),
        })?;
        TRAINER_BELL.ring(own, peer);
        Ok(())
    }
}

/// Looks once at the trainer's request line, whose words lie side by side, so that a spinner reads one cache line.
#[inline]
pub(crate) fn look(
    inputs: &SharedMemory,
    requests: &RingReader,
    taken_up: u64,
    lanes_seq: &mut u64,
) -> Result<Option<Request>, PeerError> {
    // Pairs with the trainer's release of these words: it has written actions, lanes or a command before.
    let given = inputs.load(inputs::ACTION_SEQ.at);
    let doorbell = inputs.load(inputs::LANES_SEQ.at);
    let command = requests.pending(inputs);
    if given == taken_up && doorbell == *lanes_seq && !command {
        return Ok(None);
    }
    SharedMemory::fence(std::sync::atomic::Ordering::Acquire);
    // Commands first: what was sent before a step is done before it.
    if command {
        return Ok(Some(Request::Command));
    }
    if doorbell != *lanes_seq {
        *lanes_seq = doorbell;
        return Ok(Some(Request::Lanes));
    }
    if given != taken_up + 1 {
        return Err(PeerError::RequestNumber { given, answered: taken_up });
    }
    match inputs.load(inputs::REQUEST_KIND.at) {
        STEP => Ok(Some(Request::Step)),
        RESET => Ok(Some(Request::Reset)),
        LATEST => Ok(Some(Request::Latest)),
        kind => Err(PeerError::RequestKind(kind)),
    }
}

/// Handle of an attachment for threads of the node other than the one that serves it.
#[derive(Debug, Clone)]
pub struct ServingRemote {
    outputs: Arc<SharedMemory>,
    inputs: Arc<SharedMemory>,
}

impl ServingRemote {
    /// Shows the trainer that the node is not stopped. It is to be called by one thread, a few times a second.
    pub fn beat(&self) {
        let beats = self.outputs.load(outputs::NODE_HEARTBEAT.at);
        self.outputs.store(outputs::NODE_HEARTBEAT.at, beats.wrapping_add(1));
    }

    /// Tells the trainer that nothing more is served, for good. `code` is the reason, in the caller's numbering.
    pub fn close(&self, code: u64) {
        self.outputs.store(outputs::CLOSE_CODE.at, code);
        self.outputs.store_release(outputs::STATE.at, CLOSED);
        wake(&self.outputs);
    }

    /// Makes a serving thread that sleeps ask `alive` again. A thread that is about to sleep in this moment may miss
    /// it, and asks within 250 ms.
    pub fn rouse(&self) {
        self.inputs.wake_on(NODE_BELL.wake);
    }
}

/// Wakes the trainer, whether it sleeps or not.
pub(crate) fn wake(outputs: &SharedMemory) {
    let count = (outputs.load(TRAINER_BELL.wake) as u32).wrapping_add(1);
    outputs.store_release(TRAINER_BELL.wake, u64::from(count));
    outputs.wake_on(TRAINER_BELL.wake);
}

/// Kind of a request to step every lane.
pub(crate) const STEP: u64 = 1;
/// Kind of a request to begin episodes.
pub(crate) const RESET: u64 = 2;
/// Kind of a request for the newest rows.
pub(crate) const LATEST: u64 = 3;
/// Kind of an answer with a frame.
pub(crate) const FRAME: u64 = 1;
/// Kind of an answer that refuses a request.
pub(crate) const REFUSED: u64 = 2;
/// State of an arena that is closed; 0 is served.
pub(crate) const CLOSED: u64 = 1;
/// Flag of a lane that begins an episode in a reset.
pub(crate) const BEGINS: u8 = 1;
/// Flag of a lane that is given a seed in a reset.
pub(crate) const SEEDED: u8 = 2;
/// Flag of a lane that is given an action in a request for the newest rows.
pub(crate) const ACTS: u8 = 4;

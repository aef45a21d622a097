//! The node's half of an attached session.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use rollhouse_core::ColumnMut;

use crate::arena::Frame;
use crate::files::{InputsPlan, MAX_NOTE_BYTES, NODE_BELL, OutputsPlan, TRAINER_BELL};
use crate::header::{inputs, outputs};
use crate::memory::{Memory, column_bytes_mut};
use crate::notes::FrameNotes;
use crate::patience::{Patience, Unmet, Wait};
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
    /// The newest request that was answered.
    pub(crate) answered: u64,
    /// The trainer's doorbell of sent lanes as last heard.
    pub(crate) lanes_seq: u64,
    /// Per lane, the newest send that was taken.
    pub(crate) taken: Vec<u64>,
    pub(crate) ready_written: u64,
    /// Lanes whose record says that they are lost.
    pub(crate) lost: Vec<u32>,
    /// Whether it says that the node is going away.
    pub(crate) leaving: bool,
    pub(crate) requests: RingReader,
    pub(crate) answers: RingWriter,
    pub(crate) patience: Patience,
}

/// What a trainer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Step every lane once with the action column ([`ServingEnd::copy_actions`]), then
    /// [`ServingEnd::answer_frame`] or [`ServingEnd::refuse`].
    Step,
    /// Begin episodes as [`ServingEnd::reset_columns`] says; answered like a step.
    Reset,
    /// Step the lanes of [`ServingEnd::take_sent`].
    Lanes,
    /// There are commands ([`ServingEnd::next_command`]).
    Command,
}

/// Why a node stops waiting for requests, or cannot go on.
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

/// What a trainer did that the protocol does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// A request whose number does not follow that of the last one.
    #[error("request {given} after {answered} was answered")]
    RequestNumber {
        /// As given.
        given: u64,
        /// The newest that was answered.
        answered: u64,
    },
    /// A request of a kind there is not.
    #[error("a request of kind {0}, {STEP} and {RESET} are known")]
    RequestKind(u64),
    /// A lane was sent under a number that does not follow its last one.
    #[error("lane {lane} sent as number {given} after number {taken}")]
    LaneNumber {
        /// The lane.
        lane: usize,
        /// As given.
        given: u64,
        /// The newest that was taken.
        taken: u64,
    },
    /// The cursor of the ring of ready lanes is none that can be.
    #[error("a cursor of {cursor} in a ring of ready lanes with {written} written")]
    ReadyCursor {
        /// As given.
        cursor: u64,
        /// Entries written so far.
        written: u64,
    },
    /// A ring of commands is damaged.
    #[error("the ring of commands has {0}")]
    Ring(RingError),
}

/// Which lanes a reset begins, and with which seeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResetColumns {
    /// One seed per lane, if it is given one.
    pub seeds: Vec<Option<u64>>,
    /// Whether the lane begins an episode.
    pub mask: Vec<bool>,
}

impl ServingEnd {
    /// The trainer's file, to be given to it beside [`SharedArena`](crate::SharedArena)'s.
    pub fn inputs_fd(&self) -> BorrowedFd<'_> {
        self.inputs.as_fd()
    }

    /// The node's file.
    pub fn outputs_fd(&self) -> BorrowedFd<'_> {
        self.outputs.as_fd()
    }

    /// The attachment's number.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The number of the newest request that was answered.
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// What other threads of the node need of the attachment.
    pub fn remote(&self) -> ServingRemote {
        ServingRemote { outputs: Arc::clone(&self.outputs), inputs: Arc::clone(&self.inputs) }
    }

    /// Waits for a request. Spins, gives way and then sleeps; `alive` is asked before every slice of sleep of 250 ms
    /// at most, and [`ServingRemote::rouse`] has it asked at once.
    ///
    /// # Errors
    /// See [`ServeError`]. After `TimedOut` the caller may wait again.
    pub fn wait(
        &mut self,
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<Request, ServeError> {
        let Self { outputs, inputs, requests, answered, lanes_seq, patience, .. } = self;
        let wait = Wait { own: &**outputs, peer: &**inputs, bell: NODE_BELL, deadline };
        let ready = || look(inputs, requests, *answered, lanes_seq);
        patience.wait(&wait, ready, alive).map_err(|unmet| match unmet {
            Unmet::TimedOut => ServeError::TimedOut,
            Unmet::Gone => ServeError::Gone,
            Unmet::Failed(error) => ServeError::Peer(error),
        })
    }

    /// The request that is there, if there is one. Never blocks.
    ///
    /// # Errors
    /// If the trainer broke the protocol: the attachment is over.
    pub fn poll(&mut self) -> Result<Option<Request>, PeerError> {
        look(&self.inputs, &self.requests, self.answered, &mut self.lanes_seq)
    }

    /// Copies the trainer's action column. What it holds is checked by whoever uses it: the trainer may write it at
    /// any time, the copy is what counts.
    ///
    /// # Panics
    /// If `into` has another type or length than the action column.
    pub fn copy_actions(&self, mut into: ColumnMut<'_>) {
        let action = &self.inputs_plan.action;
        let elements = self.plan.places.lanes * action.row_elements;
        assert_eq!(into.as_ref().len(), elements, "one action per lane");
        assert_eq!(into.as_ref().dtype().size(), action.dtype.size(), "actions are {}", action.dtype);
        self.inputs.copy_to(action.offset, column_bytes_mut(&mut into));
    }

    /// Copies what a [`Request::Reset`] says of each lane.
    pub fn reset_columns(&self) -> ResetColumns {
        let lanes = self.plan.places.lanes;
        let mut flags = vec![0; lanes];
        self.inputs.copy_to(self.inputs_plan.resets_at, &mut flags);
        let seed = |lane: usize| self.inputs.load(self.inputs_plan.seeds_at + lane * 8);
        let seeds = flags.iter().enumerate().map(|(lane, flag)| (flag & SEEDED != 0).then(|| seed(lane)));
        ResetColumns { seeds: seeds.collect(), mask: flags.iter().map(|flag| flag & BEGINS != 0).collect() }
    }

    /// Answers the request with a frame of the arena in this memory, and with what goes beside it. `lost`: the lanes
    /// that are lost now, with the codes of their outcomes.
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
        self.answered += 1;
        // Pairs with the trainer's acquire of this word (`AttachedArena::wait`): it sees the frame's columns.
        self.outputs.store_release(outputs::ANSWER_SEQ.at, self.answered);
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
    /// [`ServeError::TimedOut`] if there is no room before the deadline, and nothing is written then.
    pub fn answer_command(
        &mut self,
        answer: &[u8],
        deadline: Option<Instant>,
        alive: impl FnMut() -> bool,
    ) -> Result<(), ServeError> {
        let Self { outputs, inputs, answers, patience, .. } = self;
        let (own, peer) = (&**outputs, &**inputs);
        let wait = Wait { own, peer, bell: NODE_BELL, deadline };
        let ready = || answers.push(own, peer, answer).map(|pushed| pushed.then_some(()));
        patience.wait(&wait, ready, alive).map_err(|unmet| match unmet {
            Unmet::TimedOut => ServeError::TimedOut,
            Unmet::Gone => ServeError::Gone,
            Unmet::Failed(error) => ServeError::Peer(PeerError::Ring(error)),
        })?;
        TRAINER_BELL.ring(own, peer);
        Ok(())
    }

    /// Bytes the longest command or answer may have.
    pub const fn most_command_bytes(&self) -> usize {
        crate::ring::most_record(self.plan.answers.bytes)
    }

    /// How often the trainer has said that it is not stopped.
    pub fn heartbeat(&self) -> u64 {
        self.inputs.load(inputs::TRAINER_HEARTBEAT.at)
    }
}

/// One look at the trainer's request line: its words lie side by side, so that a spinner reads one cache line.
#[inline]
fn look(
    inputs: &SharedMemory,
    requests: &RingReader,
    answered: u64,
    lanes_seq: &mut u64,
) -> Result<Option<Request>, PeerError> {
    // Pairs with the trainer's release of these words: it has written actions, lanes or a command before.
    let given = inputs.load(inputs::ACTION_SEQ.at);
    let doorbell = inputs.load(inputs::LANES_SEQ.at);
    let command = requests.pending(inputs);
    if given == answered && doorbell == *lanes_seq && !command {
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
    if given != answered + 1 {
        return Err(PeerError::RequestNumber { given, answered });
    }
    match inputs.load(inputs::REQUEST_KIND.at) {
        STEP => Ok(Some(Request::Step)),
        RESET => Ok(Some(Request::Reset)),
        kind => Err(PeerError::RequestKind(kind)),
    }
}

/// What threads of the node beside the one that serves may do with an attachment.
#[derive(Debug, Clone)]
pub struct ServingRemote {
    outputs: Arc<SharedMemory>,
    inputs: Arc<SharedMemory>,
}

impl ServingRemote {
    /// Shows the trainer that the node is not stopped. To be called by one thread, a few times a second.
    pub fn beat(&self) {
        let beats = self.outputs.load(outputs::NODE_HEARTBEAT.at);
        self.outputs.store(outputs::NODE_HEARTBEAT.at, beats.wrapping_add(1));
    }

    /// Tells the trainer that nothing more is served, for good; `code` says why, in the caller's numbering.
    pub fn close(&self, code: u64) {
        self.outputs.store(outputs::CLOSE_CODE.at, code);
        self.outputs.store_release(outputs::STATE.at, CLOSED);
        wake(&self.outputs);
    }

    /// Has a serving thread that sleeps ask `alive` again. One that is about to sleep in this moment may miss it, and
    /// asks within 250 ms.
    pub fn rouse(&self) {
        self.inputs.wake_on(NODE_BELL.wake);
    }
}

/// Wakes the trainer, whatever it says.
pub(crate) fn wake(outputs: &SharedMemory) {
    let count = (outputs.load(TRAINER_BELL.wake) as u32).wrapping_add(1);
    outputs.store_release(TRAINER_BELL.wake, u64::from(count));
    outputs.wake_on(TRAINER_BELL.wake);
}

/// Kinds of requests.
pub(crate) const STEP: u64 = 1;
pub(crate) const RESET: u64 = 2;
/// Kinds of answers.
pub(crate) const FRAME: u64 = 1;
pub(crate) const REFUSED: u64 = 2;
/// States of an arena: 0 is served.
pub(crate) const CLOSED: u64 = 1;
/// Flags of a lane in a reset.
pub(crate) const BEGINS: u8 = 1;
pub(crate) const SEEDED: u8 = 2;

//! The node's half of an attached session.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use rollhouse_core::limits::{MAX_LANES, MAX_OBS_COLUMNS};
use rollhouse_core::{ColumnData, ColumnMut};

use crate::arena::Frame;
use crate::columns::BatchColumns;
use crate::files::{ArenaIdent, InputsPlan, MAX_NOTE_BYTES, NODE_BELL, OutputsPlan, TRAINER_BELL};
use crate::header::{inputs, outputs};
use crate::memory::{Memory, column_bytes_mut};
use crate::patience::{Patience, Unmet, Wait};
use crate::placement::Placement;
use crate::ring::{MAX_RING_BYTES, MIN_RING_BYTES, RingError, RingReader, RingWriter};
use crate::shared::SharedMemory;
use crate::words::{Words, WordsMut};

/// The memory of one session that trainers of this machine may attach to: what the node writes.
///
/// It outlives attachments: frames and numbers go on where they were. Each attachment has a file of its own for what
/// the trainer writes ([`SharedArena::attach`]), so that an earlier trainer writes into the void.
#[derive(Debug)]
pub struct SharedArena {
    outputs: Arc<SharedMemory>,
    plan: OutputsPlan,
    columns: BatchColumns,
    ident: ArenaIdent,
    /// The third slot. Lent to the attachment that is served.
    lane_rows: Arc<Memory>,
    ring_bytes: usize,
}

/// The node's end of one attachment. One thread serves it.
#[derive(Debug)]
pub struct ServingEnd {
    outputs: Arc<SharedMemory>,
    inputs: Arc<SharedMemory>,
    lane_rows: Arc<Memory>,
    plan: OutputsPlan,
    inputs_plan: InputsPlan,
    generation: u64,
    /// The newest request that was answered.
    answered: u64,
    /// The trainer's doorbell of sent lanes as last heard.
    lanes_seq: u64,
    /// Per lane, the newest send that was taken.
    taken: Vec<u64>,
    ready_written: u64,
    /// Lanes whose record says that they are lost.
    lost: Vec<u32>,
    requests: RingReader,
    answers: RingWriter,
    patience: Patience,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServeError {
    /// The deadline passed.
    TimedOut,
    /// `alive` said that the trainer is gone or the session is to end.
    Gone,
    /// The trainer broke the protocol: the attachment is over.
    Peer(PeerError),
}

/// What a trainer did that the protocol does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerError {
    /// A request whose number does not follow that of the last one.
    RequestNumber {
        /// As given.
        given: u64,
        /// The newest that was answered.
        answered: u64,
    },
    /// A request of a kind there is not.
    RequestKind(u64),
    /// A lane was sent under a number that does not follow its last one.
    LaneNumber {
        /// The lane.
        lane: usize,
        /// As given.
        given: u64,
        /// The newest that was taken.
        taken: u64,
    },
    /// The cursor of the ring of ready lanes is none that can be.
    ReadyCursor {
        /// As given.
        cursor: u64,
        /// Entries written so far.
        written: u64,
    },
    /// A ring of commands is damaged.
    Ring(RingError),
}

/// The columns that hold rows of single lanes, all lanes each.
#[derive(Debug)]
pub struct LaneRows<'a> {
    /// Observation columns.
    pub obs: ArrayVec<ColumnMut<'a>, MAX_OBS_COLUMNS>,
    /// Info columns.
    pub infos: ArrayVec<ColumnMut<'a>, MAX_OBS_COLUMNS>,
    /// Last observations; empty unless SAME_STEP.
    pub final_obs: ArrayVec<ColumnMut<'a>, MAX_OBS_COLUMNS>,
    /// One reward per lane.
    pub rewards: ColumnMut<'a>,
    /// Terminated flags.
    pub terminated: ColumnMut<'a>,
    /// Truncated flags.
    pub truncated: ColumnMut<'a>,
    /// Reset flags.
    pub reset: ColumnMut<'a>,
}

/// Which lanes a reset begins, and with which seeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResetColumns {
    /// One seed per lane, if it is given one.
    pub seeds: Vec<Option<u64>>,
    /// Whether the lane begins an episode.
    pub mask: Vec<bool>,
}

impl SharedArena {
    /// Makes the memory, and the placement on which the one [`Arena`](crate::Arena) in it is to be made.
    ///
    /// # Errors
    /// `InvalidInput` for more than [`MAX_LANES`] lanes or none, more than [`MAX_OBS_COLUMNS`] columns of a kind, or
    /// rings that are no power of two of [`MIN_RING_BYTES`] to [`MAX_RING_BYTES`]; else what the kernel says, as a
    /// rule that there is no memory left.
    pub fn create(
        columns: &BatchColumns,
        lanes: usize,
        ident: ArenaIdent,
        ring_bytes: usize,
    ) -> io::Result<(Self, Placement)> {
        let invalid = |message| io::Error::new(io::ErrorKind::InvalidInput, message);
        if lanes == 0 || lanes > MAX_LANES {
            return Err(invalid(format!("{lanes} lanes, 1 to {MAX_LANES} are taken")));
        }
        let most = columns.obs.len().max(columns.infos.len());
        if most > MAX_OBS_COLUMNS {
            return Err(invalid(format!("{most} columns, at most {MAX_OBS_COLUMNS} are taken")));
        }
        if !ring_bytes.is_power_of_two() || !(MIN_RING_BYTES..=MAX_RING_BYTES).contains(&ring_bytes) {
            let range = format!("a power of two from {MIN_RING_BYTES} to {MAX_RING_BYTES} is wanted");
            return Err(invalid(format!("rings of {ring_bytes} bytes, {range}")));
        }
        let too_large = || invalid("the batch is larger than an arena may be".to_owned());
        let (plan, front) = OutputsPlan::new(columns, lanes, ring_bytes).ok_or_else(too_large)?;
        let mut outputs = SharedMemory::create_published("rollhouse-outputs", plan.bytes)?;
        let mut slots = outputs.split(plan.columns_at);
        let lane_rows = Arc::new(slots.split(plan.places.lane_rows_at));
        plan.write(&outputs, ident, &front);
        let placement = Placement::published(&plan.places, slots);
        let columns = columns.clone();
        Ok((Self { outputs: Arc::new(outputs), plan, columns, ident, lane_rows, ring_bytes }, placement))
    }

    /// Begins an attachment of that number, which rises from one to the next: the trainer of the one before, if there
    /// was one, is told no more and heard no more. `frames` is the number of the arena's newest frame
    /// ([`Arena::frames`](crate::Arena::frames)), from which the new trainer counts on.
    ///
    /// # Errors
    /// `ResourceBusy` while the earlier attachment's end is still there: the memory has one writer. Else what the
    /// kernel says, as a rule that there is no memory or no descriptor left.
    pub fn attach(&mut self, generation: u64, frames: u64) -> io::Result<ServingEnd> {
        // Nobody else clones it, so the count cannot rise meanwhile.
        if Arc::strong_count(&self.lane_rows) > 1 {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "an earlier attachment is still served"));
        }
        let lanes = self.plan.places.lanes;
        let plan = InputsPlan::new(&self.columns.action, lanes, self.ring_bytes)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let inputs = SharedMemory::create("rollhouse-inputs", plan.bytes)?;
        plan.write(&inputs, lanes, self.ident, generation);
        let outputs = &*self.outputs;
        let answered = outputs.load(outputs::ANSWER_SEQ.at);
        // The numbers go on: the trainer reads from the outputs what was answered, and asks on from there.
        inputs.store(inputs::ACTION_SEQ.at, answered);
        let taken: Vec<u64> = (0..lanes).map(|lane| outputs.load(self.plan.lane_seq(lane))).collect();
        for (lane, &seq) in taken.iter().enumerate() {
            inputs.store(plan.lane_seqs_at + lane * 8, seq);
        }
        let ready_written = outputs.load(outputs::READY_WRITTEN.at);
        inputs.store(inputs::READY_READ.at, ready_written);
        // What was written to the ring of answers and not read is dropped with the trainer that asked for it.
        inputs.store(inputs::ANSWERS_READ.at, outputs.load(outputs::ANSWERS_WRITTEN.at));
        inputs.store(inputs::REQUESTS_WRITTEN.at, outputs.load(outputs::REQUESTS_READ.at));
        let sound = |_| io::Error::from(io::ErrorKind::InvalidData);
        let requests = RingReader::resume(plan.requests, outputs, &inputs).map_err(sound)?;
        let answers = RingWriter::resume(self.plan.answers, outputs, &inputs).map_err(sound)?;
        outputs.store(outputs::FRAME_SEQ.at, frames);
        outputs.store(outputs::NODE_SLEEPING.at, 0);
        outputs.store_release(outputs::GENERATION.at, generation);
        wake(outputs);
        let lost =
            (0..lanes as u32).filter(|&l| outputs.load(self.plan.lane_lost(l as usize)) != 0).collect();
        Ok(ServingEnd {
            outputs: Arc::clone(&self.outputs),
            inputs: Arc::new(inputs),
            lane_rows: Arc::clone(&self.lane_rows),
            plan: self.plan.clone(),
            inputs_plan: plan,
            generation,
            answered,
            lanes_seq: 0,
            taken,
            ready_written,
            lost,
            requests,
            answers,
            patience: Patience::new(),
        })
    }
}

impl AsFd for SharedArena {
    /// The file that the node writes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outputs.as_fd()
    }
}

impl ServingEnd {
    /// The trainer's file, to be given to it beside [`SharedArena`]'s.
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

    /// Copies the actions of some lanes, a row each in the order of `lanes`.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn copy_actions_of(&self, lanes: &[u32]) -> ColumnData {
        let action = &self.inputs_plan.action;
        let mut rows = ColumnData::zeros(action.dtype, lanes.len() * action.row_elements);
        let mut into = rows.as_mut();
        let bytes = column_bytes_mut(&mut into);
        let row_bytes = action.row_elements * action.dtype.size();
        for (index, &lane) in lanes.iter().enumerate() {
            assert!((lane as usize) < self.plan.places.lanes, "lane {lane} is in the batch");
            let row = &mut bytes[index * row_bytes..(index + 1) * row_bytes];
            self.inputs.copy_to(action.offset + lane as usize * row_bytes, row);
        }
        rows
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

    /// Answers the request with a frame of the arena in this memory. `lost`: the lanes that are lost now, with the
    /// codes of their outcomes.
    ///
    /// # Panics
    /// If the frame lies elsewhere, or a lane is not in the batch.
    #[inline]
    pub fn answer_frame(&mut self, frame: &Frame<'_>, lost: &[(u32, u8)]) {
        assert!(frame.lies_in(&self.lane_rows), "a frame of another arena");
        if !(lost.is_empty() && self.lost.is_empty()) {
            self.note_lost(lost);
        }
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

    fn put_note(&self, note: &[u8]) {
        let note = &note[..note.len().min(MAX_NOTE_BYTES)];
        self.outputs.copy_from(self.plan.note_at, note);
        self.outputs.store(outputs::NOTE_BYTES.at, note.len() as u64);
    }

    #[cold]
    fn note_lost(&mut self, lost: &[(u32, u8)]) {
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

    /// The lanes that were sent since the last call, in ascending order. Each is to be answered by
    /// [`ServingEnd::answer_lanes`] or [`ServingEnd::refuse_lanes`].
    ///
    /// # Errors
    /// If a lane was sent again before it was answered.
    pub fn take_sent(&mut self, sent: &mut Vec<u32>) -> Result<(), PeerError> {
        sent.clear();
        for (lane, taken) in self.taken.iter_mut().enumerate() {
            // Pairs with the trainer's release of this word (`AttachedArena::send`): its action row is there.
            let given = self.inputs.load_acquire(self.inputs_plan.lane_seqs_at + lane * 8);
            if given == *taken {
                continue;
            }
            let answered = self.outputs.load(self.plan.lane_seq(lane));
            if given != *taken + 1 || *taken != answered {
                return Err(PeerError::LaneNumber { lane, given, taken: *taken });
            }
            *taken = given;
            sent.push(lane as u32);
        }
        Ok(())
    }

    /// The columns in which rows of single lanes are answered. A lane's row is the trainer's to read from
    /// [`ServingEnd::answer_lanes`] until it sends the lane again.
    pub fn lane_rows(&mut self) -> LaneRows<'_> {
        let slot = &self.plan.places.slots[2];
        let rows = 0..self.plan.places.lanes;
        // SAFETY: the third slot is reached through this value alone (`SharedArena::attach` sees to there being one,
        // the memory of the other two slots ends before it), `&mut self` excludes a second call meanwhile, and the
        // places of two columns do not overlap (`Places::new`).
        let write = |place| unsafe { self.lane_rows.write(crate::columns::Place::rows(place, &rows)) };
        LaneRows {
            obs: slot.obs.iter().map(write).collect(),
            infos: slot.infos.iter().map(write).collect(),
            final_obs: slot.final_obs.iter().map(write).collect(),
            rewards: write(&slot.rewards),
            terminated: write(&slot.terminated),
            truncated: write(&slot.truncated),
            reset: write(&slot.reset),
        }
    }

    /// Tells the trainer that the rows of these lanes are there.
    ///
    /// # Errors
    /// If the trainer's cursor in the ring of ready lanes cannot be.
    pub fn answer_lanes(&mut self, lanes: &[u32]) -> Result<(), PeerError> {
        let read = self.inputs.load_acquire(inputs::READY_READ.at);
        let (written, room) = (self.ready_written, self.plan.ready_lanes as u64);
        let waiting = written.checked_sub(read).filter(|waiting| waiting + lanes.len() as u64 <= room);
        if waiting.is_none() {
            return Err(PeerError::ReadyCursor { cursor: read, written });
        }
        for &lane in lanes {
            self.outputs.store(self.plan.ready(self.ready_written), u64::from(lane));
            self.ready_written += 1;
            // Pairs with the trainer's acquire of the lane's number or of the ring's cursor.
            self.outputs.store_release(self.plan.lane_seq(lane as usize), self.taken[lane as usize]);
        }
        self.outputs.store_release(outputs::READY_WRITTEN.at, self.ready_written);
        TRAINER_BELL.ring(&*self.outputs, &*self.inputs);
        Ok(())
    }

    /// Refuses lanes that were sent: nothing has moved. `note` as for [`ServingEnd::refuse`].
    pub fn refuse_lanes(&mut self, lanes: &[u32], note: &[u8]) {
        self.put_note(note);
        for &lane in lanes {
            self.outputs.store_release(self.plan.lane_seq(lane as usize), self.taken[lane as usize]);
        }
        let refused = self.outputs.load(outputs::LANES_REFUSED.at) + 1;
        self.outputs.store_release(outputs::LANES_REFUSED.at, refused);
        TRAINER_BELL.ring(&*self.outputs, &*self.inputs);
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
fn wake(outputs: &SharedMemory) {
    let count = (outputs.load(TRAINER_BELL.wake) as u32).wrapping_add(1);
    outputs.store_release(TRAINER_BELL.wake, u64::from(count));
    outputs.wake_on(TRAINER_BELL.wake);
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RequestNumber { given, answered } => {
                write!(f, "request {given} after {answered} was answered")
            }
            Self::RequestKind(kind) => write!(f, "a request of kind {kind}, {STEP} and {RESET} are known"),
            Self::LaneNumber { lane, given, taken } => {
                write!(f, "lane {lane} sent as number {given} after number {taken}")
            }
            Self::ReadyCursor { cursor, written } => {
                write!(f, "a cursor of {cursor} in a ring of ready lanes with {written} written")
            }
            Self::Ring(error) => write!(f, "the ring of commands has {error}"),
        }
    }
}

impl std::error::Error for PeerError {}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("nothing came from the trainer in time"),
            Self::Gone => f.write_str("the trainer is gone"),
            Self::Peer(_) => f.write_str("the trainer broke the protocol of the shared memory"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Peer(source) => Some(source),
            Self::TimedOut | Self::Gone => None,
        }
    }
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

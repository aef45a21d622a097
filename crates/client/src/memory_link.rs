//! A session attached by memory: requests are posted in it, answers read from it.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rollhouse_arena::{
    Answer, ArenaIdent, AttachError, AttachedArena, BatchColumns, Expected, Frame, LaneNote, ReadyLanes,
    TrainerError,
};
use rollhouse_core::{ColumnData, ColumnMut, EnvSpec};
use rollhouse_engine::Autoreset;
use rollhouse_wire::{
    AttachCallError, AttachMemory, Attached, AutoresetMode, Began, CallId, ColumnBuffer, FrameKind,
    FrameLayout, Grant, LostLane, Notes, OwnerSocket, Refusal, RefusalCode, ResetLanes, control, failpoint,
};

use crate::check::check_notes;
use crate::session::FrameBody;

/// A session's memory, and the socket that says whether its node is there.
pub(crate) struct MemoryLink {
    arena: AttachedArena,
    /// `None` once the node is gone or serves another owner; frames can be read still.
    socket: Option<OwnerSocket>,
    layout: FrameLayout,
    /// Requests are posted and not answered.
    under_way: Option<Asked>,
    /// Lanes of the request under way whose rows are there.
    ready: Vec<u32>,
    /// The answer to the last request, which may be of an earlier attachment.
    last: MemoryAnswer,
    /// The actions of the last step that was posted, as bytes of their column, if they were kept here: what a log keeps,
    /// and what another node is asked to do if this one never answers.
    posted: Vec<u8>,
    /// What goes beside the newest frame; about lanes that there are.
    notes: Notes,
}

/// What was posted.
enum Asked {
    /// A step or a reset.
    Batch,
    /// A step of so many lanes.
    Lanes(usize),
}

/// What came of a request.
#[derive(Debug, Clone)]
pub(crate) enum MemoryAnswer {
    /// The newest frame.
    Batch,
    /// Rows of the lanes that were sent.
    Rows,
    /// Nothing has moved.
    Refused(Refusal),
}

/// What a session's memory has to be like.
#[derive(Debug)]
pub(crate) struct Shape {
    columns: BatchColumns,
    autoreset: u64,
    layout: FrameLayout,
}

/// Why a session is not attached by memory.
#[derive(Debug)]
pub(crate) enum LinkError {
    /// The socket does not lead to it.
    Call(AttachCallError),
    /// What came is not the session's memory.
    Attach(AttachError),
    /// The node has no attach socket.
    NoSocket,
    /// It is memory of another session.
    Lanes(u32),
    /// The node took too long.
    TimedOut,
    /// What goes beside the newest frame is nothing that a node says.
    Notes(String),
}

/// Why waiting ended without an answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The attachment is over: the node is gone, serves another owner, or does not keep to the layout's rules.
    Lost,
    /// The caller wanted to stop waiting; what was asked is still under way.
    Stopped,
}

impl Shape {
    pub(crate) fn new(spec: &EnvSpec, autoreset: AutoresetMode, layout: FrameLayout) -> Self {
        let autoreset = match autoreset {
            AutoresetMode::NextStep => Autoreset::NextStep,
            AutoresetMode::SameStep => Autoreset::SameStep,
            AutoresetMode::Disabled => Autoreset::Disabled,
        };
        let columns = BatchColumns::of(spec, autoreset == Autoreset::SameStep);
        Self { columns, autoreset: autoreset.code(), layout }
    }
}

impl MemoryLink {
    /// Asks at the socket for the session's memory, which `earlier` has lost if it is given: then it stays where it is. It is
    /// part of the call `of`. What the node says of the session. Cancellation-safe.
    pub(crate) async fn attach(
        earlier: &mut Option<Box<Self>>,
        socket: &Path,
        anybody: bool,
        (asked, of): (AttachMemory, CallId),
        grant: &Grant,
        shape: &Shape,
    ) -> Result<Attached, LinkError> {
        failpoint("client.attach.asking");
        let call = OwnerSocket::attach(socket, anybody, asked, Some(of));
        let (socket, attached, [outputs, inputs]) = call.await.map_err(|error| match error {
            AttachCallError::Refused(refusal) => {
                LinkError::Call(AttachCallError::Refused(refusal.of_call(of)))
            }
            error => LinkError::Call(error),
        })?;
        failpoint("client.attach.answered");
        if attached.lanes != grant.lanes {
            return Err(LinkError::Lanes(attached.lanes));
        }
        let ident = ArenaIdent {
            term: grant.incarnation.term,
            counter: grant.incarnation.counter,
            autoreset: shape.autoreset,
        };
        let lanes = grant.lanes as usize;
        let expected = Expected { columns: &shape.columns, lanes, ident, generation: attached.generation };
        let (number, logs) = (attached.last, attached.logs);
        let last = attached.refused.map_or(MemoryAnswer::Batch, MemoryAnswer::Refused);
        if let Some(link) = earlier {
            link.renew(outputs, inputs, &expected)?;
            (link.socket, link.under_way, link.last) = (Some(socket), None, last);
            link.ready.clear();
        } else {
            let arena = AttachedArena::open(outputs, inputs, &expected).map_err(LinkError::Attach)?;
            *earlier = Some(Box::new(Self {
                arena,
                socket: Some(socket),
                layout: shape.layout.clone(),
                under_way: None,
                ready: Vec::new(),
                last,
                posted: Vec::new(),
                notes: Notes::default(),
            }));
        }
        if let Some(link) = earlier {
            // If the last request was carried out, its frame is the newest.
            link.read_notes().map_err(LinkError::Notes)?;
        }
        failpoint("client.attach.mapped");
        Ok(Attached { lanes: grant.lanes, last: number, logs })
    }

    /// Takes the trainer's new file in, with the actions of the old one: they may have to be posted again.
    fn renew(&mut self, outputs: OwnedFd, inputs: OwnedFd, expected: &Expected<'_>) -> Result<(), LinkError> {
        let rows = 0..self.arena.lanes() as u32;
        let mut actions = ColumnData::zeros(self.layout.action.dtype, 0);
        let still = !matches!(self.under_way, Some(Asked::Lanes(_)));
        for lane in rows.filter(|_| still) {
            let appended = actions.extend(self.arena.action_row_mut(lane).as_ref());
            debug_assert!(appended, "the column has the layout's type");
        }
        self.arena.renew(outputs, inputs, expected).map_err(LinkError::Attach)?;
        if still {
            let copied = self.arena.actions_mut().copy_from(actions.as_ref());
            debug_assert!(copied, "both are the same column");
        }
        Ok(())
    }

    /// Whether requests can be posted.
    pub(crate) const fn is_attached(&self) -> bool {
        self.socket.is_some()
    }

    /// Whether a request is posted and not answered: frames and actions are the node's then.
    pub(crate) const fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// The answer to the last request, of an earlier attachment if nothing was posted in this one. `kind` is what was
    /// asked.
    pub(crate) fn last(&self, kind: FrameKind) -> MemoryAnswer {
        match self.last.clone() {
            MemoryAnswer::Batch if kind == FrameKind::Send => MemoryAnswer::Rows,
            answer => answer,
        }
    }

    /// The actions of the last step, as bytes of their column, if it was [posted](Self::post) with them kept.
    #[inline]
    pub(crate) fn posted(&self) -> Option<&[u8]> {
        Some(&self.posted[..]).filter(|posted| !posted.is_empty())
    }

    /// Copies the action column as it is now.
    #[inline]
    pub(crate) fn copy_actions(&self, actions: &mut [u8]) {
        self.arena.copy_actions(actions);
    }

    /// What goes beside the newest frame, but for lanes that are lost.
    #[inline]
    pub(crate) const fn notes(&self) -> &Notes {
        &self.notes
    }

    /// What goes beside the rows of those lanes, as of the last answer to them.
    ///
    /// # Errors
    /// If it is about other lanes.
    pub(crate) fn notes_of(&self, lanes: &[u32]) -> Result<Notes, String> {
        let mut notes = Notes { lost: self.lost(), leaving: self.arena.is_leaving(), ..Notes::default() };
        for &lane in lanes {
            let LaneNote { began, hash } = self.arena.lane_note(lane);
            if let Some(record) = began {
                let began = Began::of_record(&record);
                if began.lane != lane {
                    return Err(format!("a note of lane {} beside lane {lane}", began.lane));
                }
                notes.put_began(&began);
            }
            if let Some(hash) = hash {
                notes.put_hash(lane, hash);
            }
        }
        Ok(notes)
    }

    /// Reads what goes beside the newest frame.
    #[inline]
    fn read_notes(&mut self) -> Result<(), String> {
        let Notes { began, hashes, leaving, .. } = &mut self.notes;
        self.arena.frame_notes(began, hashes).map_err(|error| error.to_string())?;
        *leaving = self.arena.is_leaving();
        if began.is_empty() && hashes.is_empty() {
            return Ok(());
        }
        check_notes(&self.notes, &[], self.arena.lanes())
    }

    /// The request under way will not be answered any more: the newest frame and the actions can be read.
    pub(crate) fn forget_request(&mut self) {
        self.arena.forget_request();
        self.under_way = None;
    }

    /// Lets the node go; frames can be read still.
    pub(crate) fn detach(&mut self) {
        self.socket = None;
    }

    /// The memory.
    #[inline]
    pub(crate) const fn arena(&self) -> &AttachedArena {
        &self.arena
    }

    /// The newest frame, unless a request is under way.
    #[inline]
    pub(crate) fn frame(&self) -> Option<Frame<'_>> {
        match self.under_way {
            Some(Asked::Batch) => None,
            Some(Asked::Lanes(_)) | None => Some(self.arena.frame()),
        }
    }

    /// The column of actions, unless a request is under way.
    #[inline]
    pub(crate) fn actions_mut(&mut self) -> Option<ColumnMut<'_>> {
        self.under_way.is_none().then(|| self.arena.actions_mut())
    }

    /// Whether a lane is lost.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        self.arena.has_lost()
    }

    /// Lanes that are lost.
    pub(crate) fn lost(&self) -> Vec<LostLane> {
        self.arena.lost().into_iter().map(|(lane, outcome)| LostLane { lane, outcome }).collect()
    }

    /// Puts a command into the ring of commands; false if there is no room now.
    pub(crate) fn try_command(&mut self, command: &[u8]) -> Result<bool, NoAnswer> {
        let Some(open) = &self.socket else { return Err(NoAnswer::Lost) };
        let sent = self.arena.send_command(command, Some(Instant::now()), || open.is_open());
        match sent {
            Ok(()) => Ok(true),
            Err(TrainerError::TimedOut) if open.is_open() => Ok(false),
            Err(_) => Err(self.lose()),
        }
    }

    /// Copies the next answer to a command over `answer`; false if none is there now.
    pub(crate) fn try_command_answer(&mut self, answer: &mut Vec<u8>) -> Result<bool, NoAnswer> {
        let Some(open) = &self.socket else { return Err(NoAnswer::Lost) };
        match self.arena.next_answer(answer, Some(Instant::now() + COMMAND_PATIENCE), || open.is_open()) {
            Ok(()) => Ok(true),
            Err(TrainerError::TimedOut) if open.is_open() => Ok(false),
            Err(_) => Err(self.lose()),
        }
    }

    fn lose(&mut self) -> NoAnswer {
        self.socket = None;
        NoAnswer::Lost
    }

    /// Asks for a step with the actions that stand in the column, of which the caller keeps a copy.
    #[inline]
    pub(crate) fn post_step(&mut self) {
        self.arena.post_step();
        self.under_way = Some(Asked::Batch);
        self.posted.clear();
        failpoint("client.attach.posted");
    }

    /// Asks for anything. Columns that are empty stand in the memory already; actions of a step are kept here.
    ///
    /// # Panics
    /// If a request is under way.
    pub(crate) fn post(&mut self, body: &FrameBody) {
        match body.kind {
            FrameKind::Step => {
                if !body.columns.is_empty() {
                    self.put_actions(&body.columns);
                }
                self.post_step();
                self.posted.resize(self.arena.action_bytes(), 0);
                self.arena.copy_actions(&mut self.posted);
            }
            FrameKind::Send => self.post_lanes(&body.columns),
            // Nothing else is asked for.
            _ => {
                let lanes: ResetLanes = control::decode(&body.sidecar).unwrap_or_default();
                let mask: Vec<bool> = lanes.mask.iter().map(|&flag| flag == 1).collect();
                self.arena.post_reset(&lanes.seeds, &mask);
                self.under_way = Some(Asked::Batch);
            }
        }
    }

    fn put_actions(&mut self, columns: &[u8]) {
        let mut buffer = ColumnBuffer::default();
        buffer.resize(columns.len());
        buffer.bytes_mut().copy_from_slice(columns);
        let lanes = self.arena.lanes();
        let Some(places) = self.layout.actions(lanes, false) else { return };
        let actions = buffer.column(&places.actions, self.layout.action.dtype);
        let copied = self.arena.actions_mut().copy_from(actions);
        debug_assert!(copied, "actions have the column's type, which was checked");
    }

    fn post_lanes(&mut self, columns: &[u8]) {
        let mut buffer = ColumnBuffer::default();
        buffer.resize(columns.len());
        buffer.bytes_mut().copy_from_slice(columns);
        let count = buffer.count().unwrap_or(0) as usize;
        let Some(places) = self.layout.actions(count, true) else { return };
        let lanes = buffer.lanes(&places.lanes);
        let actions = buffer.column(&places.actions, self.layout.action.dtype);
        let elements = self.layout.action.elements();
        for (row, &lane) in lanes.iter().enumerate() {
            let action = actions.slice(row * elements, (row + 1) * elements);
            let copied = self.arena.action_row_mut(lane).copy_from(action);
            debug_assert!(copied, "actions have the column's type, which was checked");
        }
        self.arena.send(lanes);
        self.ready.clear();
        self.under_way = Some(Asked::Lanes(lanes.len()));
    }

    /// Waits on this thread for what is under way: spins, gives way, and then sleeps. `stop` is asked before every
    /// slice of sleep, of at most 250 ms.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        deadline: Option<Instant>,
        mut stop: impl FnMut() -> bool,
    ) -> Result<MemoryAnswer, NoAnswer> {
        let Self { arena, socket, under_way, ready, last, .. } = self;
        let Some(open) = socket else { return Err(NoAnswer::Lost) };
        let mut stopped = false;
        let alive = || {
            stopped = stop();
            !stopped && open.is_open()
        };
        let waited = match under_way {
            Some(Asked::Lanes(sent)) => {
                let missing = sent.saturating_sub(ready.len()).max(1);
                arena.wait_lanes(missing, ready, deadline, alive).map(|lanes| match lanes {
                    ReadyLanes::Ready(_) => MemoryAnswer::Rows,
                    ReadyLanes::Refused { note, .. } => MemoryAnswer::Refused(refusal_of(&note)),
                })
            }
            Some(Asked::Batch) | None => arena.wait(deadline, alive).map(|answer| match answer {
                Answer::Frame => MemoryAnswer::Batch,
                Answer::Refused(note) => MemoryAnswer::Refused(refusal_of(&note)),
            }),
        };
        match waited {
            Ok(answer) => {
                (*under_way, *last) = (None, answer.clone());
                match answer {
                    MemoryAnswer::Batch if self.read_notes().is_err() => Err(self.lose()),
                    answer => Ok(answer),
                }
            }
            Err(TrainerError::TimedOut) => Err(NoAnswer::Stopped),
            Err(TrainerError::Gone) if stopped => Err(NoAnswer::Stopped),
            Err(_) => {
                *socket = None;
                Err(NoAnswer::Lost)
            }
        }
    }

    /// As [`MemoryLink::wait`] without ever sleeping on this thread for long. Cancellation-safe: what is under way
    /// stays so.
    pub(crate) async fn answer(&mut self) -> Result<MemoryAnswer, NoAnswer> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.wait(None, || true) {
                Err(NoAnswer::Stopped) => {}
                done => return done,
            }
            // The node takes long: this thread has others to serve.
            loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                let is_open = self.socket.as_ref().is_some_and(OwnerSocket::is_open);
                // What was answered before the socket ended counts.
                if self.has_news() {
                    break;
                }
                if !is_open {
                    return Err(self.lose());
                }
            }
        }
    }

    fn has_news(&self) -> bool {
        match self.under_way {
            Some(Asked::Lanes(_)) => self.arena.has_ready_lanes(),
            Some(Asked::Batch) | None => self.arena.is_answered(),
        }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal().fmt(f)
    }
}

impl LinkError {
    /// What a request that needs the attachment is told.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Self::Call(AttachCallError::Refused(refusal)) => refusal.clone(),
            error => Refusal::new(RefusalCode::Unsupported, error.sentence()),
        }
    }

    /// Whether no process has the session's memory any more, if one had it before.
    pub(crate) fn is_dead(&self) -> bool {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        match self {
            Self::Call(AttachCallError::Connect(error)) => {
                matches!(error.kind(), ConnectionRefused | NotFound)
            }
            _ => false,
        }
    }

    fn sentence(&self) -> String {
        let with_source = |error: &dyn std::error::Error| match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        let what = match self {
            Self::Call(error) => with_source(error),
            Self::Attach(error) => with_source(error),
            Self::Lanes(lanes) => format!("the memory has {lanes} lanes"),
            Self::NoSocket => "the node has no attach socket".to_owned(),
            Self::TimedOut => "the node does not answer at its attach socket".to_owned(),
            Self::Notes(what) => what.clone(),
        };
        format!("no shared memory: {what}")
    }
}

/// What a node noted of a refusal.
fn refusal_of(note: &[u8]) -> Refusal {
    control::decode(note)
        .unwrap_or_else(|_| Refusal::new(RefusalCode::Unknown, "the node's reason cannot be read"))
}

/// How long to wait for the answer to a command without letting others of the thread have their turn.
const COMMAND_PATIENCE: Duration = Duration::from_micros(200);

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);

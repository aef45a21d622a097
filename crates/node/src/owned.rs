//! A session that its owner steps: an engine, and the frames that move it.
//!
//! ```text
//! last = 0 --request 1--> answer kept, last = 1 --request 2--> ...
//!             the last number again: the same answer, nothing moves
//!             any other number: out of order, the stream ends
//! ```
//!
//! No sockets and no clock: requests come in and answers go out as bytes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_core::{ColumnRef, Interruption, Outcome};
use rollhouse_engine::{Autoreset, Engine, Received, Reset, Stats, StepError};
use rollhouse_replay::RunRecorder;
use rollhouse_wire::{
    ColumnBuffer, FrameHeader, FrameKind, FrameLayout, LostLane, Notes, Refusal, RefusalCode, ResetLanes,
    control,
};

use crate::answer::{Answer, Sidecar};
use crate::plan::SessionPlan;
use crate::recordings::Recordings;

/// Lanes stepped by their owner, and the answer to its last request. Moved to whichever thread steps it.
#[derive(Debug)]
pub(crate) struct OwnedSession {
    plan: Arc<SessionPlan>,
    engine: Engine,
    layout: FrameLayout,
    /// Where to begin the recording at the first reset; `None` when nothing is recorded.
    recordings: Option<Arc<Recordings>>,
    recording: Option<Arc<RunRecorder>>,
    last: u32,
    answer: Bytes,
    /// Lanes that were lost in the last answer, ascending.
    lost: Vec<u32>,
}

/// What an owner sent: the columns and sidecar that the header announces.
#[derive(Debug, Default)]
pub(crate) struct FrameRequest {
    pub(crate) columns: ColumnBuffer,
    pub(crate) sidecar: Vec<u8>,
}

/// Why a session's stream cannot go on: what came is no request to this session. Nothing has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFault {
    /// Neither the last request nor the next.
    OutOfOrder { given: u32, last: u32 },
    /// A frame that only nodes send, or one with flags.
    NoRequest(FrameKind),
    /// Columns of another length than the session's.
    Columns { given: u32, wanted: usize },
    /// More lanes than the session has, or as many as do not fit the bytes.
    Lanes { given: u32, lanes: usize },
    /// A sidecar where none belongs.
    Sidecar(u32),
    /// A sidecar that is no list of lanes to reset.
    Reset,
}

impl OwnedSession {
    /// Makes the lanes; recorded through `recordings` from the first reset on. May take as long as the env's
    /// maker does.
    pub(crate) fn make(plan: Arc<SessionPlan>, recordings: Option<Arc<Recordings>>) -> Result<Self, Refusal> {
        let engine = Engine::new(&plan.entry, plan.engine.clone(), None)
            .map_err(|error| Refusal::new(RefusalCode::BadRequest, with_causes(&error)))?;
        let layout = FrameLayout::of(plan.entry.spec());
        let recordings = recordings.filter(|_| plan.record.is_some());
        Ok(Self {
            plan,
            engine,
            layout,
            recordings,
            recording: None,
            last: 0,
            answer: Bytes::new(),
            lost: Vec::new(),
        })
    }

    /// Lanes of the session.
    pub(crate) fn lanes(&self) -> usize {
        self.engine.lanes()
    }

    /// Number of the last request that was answered; 0 if none was.
    pub(crate) const fn last(&self) -> u32 {
        self.last
    }

    /// Whether stepping it now takes a bounded time: the env never waits, and neither does the recorder.
    pub(crate) fn is_prompt(&self) -> bool {
        self.plan.entry.is_bounded() && !self.recording.as_ref().is_some_and(|run| run.is_behind())
    }

    /// What it is recorded by, once there is something to record.
    pub(crate) const fn recording(&self) -> Option<&Arc<RunRecorder>> {
        self.recording.as_ref()
    }

    /// Whether a request with that header may follow; to be asked before anything is allocated for it.
    pub(crate) fn check(&self, header: FrameHeader) -> Result<(), RequestFault> {
        if header.number != self.last && header.number != FrameHeader::next_number(self.last)
            || header.number == 0
        {
            return Err(RequestFault::OutOfOrder { given: header.number, last: self.last });
        }
        if header.flags != 0 {
            return Err(RequestFault::NoRequest(header.kind));
        }
        let given = header.columns as usize;
        let bytes = |named| self.layout.actions(self.lanes(), named).map_or(0, |places| places.bytes);
        let (fits, wanted) = match header.kind {
            FrameKind::Reset => (given == 0, 0),
            FrameKind::Step => (given == bytes(false), bytes(false)),
            FrameKind::Send => (given <= bytes(true), bytes(true)),
            FrameKind::Batch | FrameKind::Rows | FrameKind::Refused => {
                return Err(RequestFault::NoRequest(header.kind));
            }
        };
        if !fits {
            return Err(RequestFault::Columns { given: header.columns, wanted });
        }
        if header.sidecar != 0 && header.kind != FrameKind::Reset {
            return Err(RequestFault::Sidecar(header.sidecar));
        }
        Ok(())
    }

    /// The answer again, if the request with that number was answered last.
    pub(crate) fn repeated(&self, number: u32) -> Option<Bytes> {
        (number == self.last).then(|| self.answer.clone())
    }

    /// Does what a request that [`OwnedSession::check`] let pass asks for, and answers it. Takes as long as the
    /// env does.
    pub(crate) fn handle(&mut self, header: FrameHeader, request: &FrameRequest) -> Result<Bytes, RequestFault> {
        if let Some(answer) = self.repeated(header.number) {
            return Ok(answer);
        }
        let done = match header.kind {
            FrameKind::Reset => self.reset(header.number, &request.sidecar)?,
            FrameKind::Step => self.step(header.number, &request.columns),
            FrameKind::Send => self.send(header.number, &request.columns)?,
            kind => return Err(RequestFault::NoRequest(kind)),
        };
        Ok(match done {
            Ok(answer) => self.answered(header.number, answer),
            Err(refusal) => self.refuse(header.number, &refusal),
        })
    }

    /// Answers a request with a refusal; nothing moves.
    pub(crate) fn refuse(&mut self, number: u32, refusal: &Refusal) -> Bytes {
        let answer = Answer::reusing(std::mem::take(&mut self.answer));
        let answer = answer.finish(FrameKind::Refused, false, number, &Sidecar::Refusal(refusal));
        self.answered(number, answer)
    }

    /// What it has done so far.
    pub(crate) fn stats(&mut self) -> Result<Stats, StepError> {
        self.engine.stats()
    }

    /// Ends open episodes with that outcome, hands everything to the recorder and tells what was done.
    pub(crate) fn finish(mut self, cause: Interruption) -> Result<Stats, StepError> {
        self.engine.interrupt(cause)?;
        self.engine.flush()?;
        self.engine.stats()
    }

    fn answered(&mut self, number: u32, answer: Bytes) -> Bytes {
        self.last = number;
        self.answer = answer.clone();
        answer
    }

    fn reset(&mut self, number: u32, sidecar: &[u8]) -> Result<Result<Bytes, Refusal>, RequestFault> {
        let lanes = if sidecar.is_empty() {
            ResetLanes::default()
        } else {
            control::decode(sidecar).map_err(|_| RequestFault::Reset)?
        };
        if lanes.mask.iter().any(|&flag| flag > 1) {
            return Err(RequestFault::Reset);
        }
        if let Err(refusal) = self.begin_recording() {
            return Ok(Err(refusal));
        }
        let mask = lanes.mask.iter().map(|&flag| flag == 1).collect();
        let frame = match self.engine.reset(&Reset { seeds: lanes.seeds, mask }) {
            Ok(frame) => frame,
            Err(error) => return Ok(Err(refusal_of(&error))),
        };
        let mut answer = Answer::reusing(std::mem::take(&mut self.answer));
        answer.batch(&self.layout, &frame, false);
        Ok(Ok(self.finish_batch(answer, number, false)))
    }

    fn step(&mut self, number: u32, columns: &ColumnBuffer) -> Result<Bytes, Refusal> {
        let same_step = self.plan.engine.autoreset == Autoreset::SameStep;
        let Some(places) = self.layout.actions(self.lanes(), false) else {
            return Err(Refusal::new(RefusalCode::Internal, "the session's actions are larger than a frame"));
        };
        let actions = columns.column(&places.actions, self.layout.action.dtype);
        let mut to = self.engine.actions().map_err(|error| refusal_of(&error))?;
        debug_assert!(to.copy_from(actions), "the layout is that of the engine's columns");
        let frame = self.engine.step().map_err(|error| refusal_of(&error))?;
        let over = |flags: &[u8]| flags.contains(&1);
        let final_obs = same_step && (over(frame.terminated()) || over(frame.truncated()));
        let mut answer = Answer::reusing(std::mem::take(&mut self.answer));
        answer.batch(&self.layout, &frame, final_obs);
        Ok(self.finish_batch(answer, number, final_obs))
    }

    fn send(&mut self, number: u32, columns: &ColumnBuffer) -> Result<Result<Bytes, Refusal>, RequestFault> {
        let lanes = self.lanes();
        let given = columns.count().unwrap_or(0);
        let fault = RequestFault::Lanes { given, lanes };
        let rows = usize::try_from(given).ok().filter(|rows| (1..=lanes).contains(rows)).ok_or(fault)?;
        let places = self.layout.actions(rows, true).ok_or(fault)?;
        if columns.bytes().len() != places.bytes {
            return Err(fault);
        }
        let actions = columns.column(&places.actions, self.layout.action.dtype);
        Ok(self.send_and_receive(columns.lanes(&places.lanes), actions).map(|received| {
            let over = received.terminated.contains(&1) || received.truncated.contains(&1);
            let final_obs = self.plan.engine.autoreset == Autoreset::SameStep && over;
            let mut answer = Answer::reusing(std::mem::take(&mut self.answer));
            answer.some(&received, final_obs);
            let notes = self.look_for_losses(Some(&received.lanes), &mut answer);
            let sidecar = notes.as_ref().map_or(Sidecar::Nothing, Sidecar::Notes);
            answer.finish(FrameKind::Rows, final_obs, number, &sidecar)
        }))
    }

    /// The engine has one thread: what was sent is done when it returns.
    fn send_and_receive(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<Received, Refusal> {
        let sent = self.engine.send(lanes, actions);
        let received = sent.and_then(|()| self.engine.recv(lanes.len(), Duration::ZERO));
        received.map_err(|error| refusal_of(&error))
    }

    fn finish_batch(&mut self, mut answer: Answer, number: u32, final_obs: bool) -> Bytes {
        let notes = self.look_for_losses(None, &mut answer);
        let sidecar = notes.as_ref().map_or(Sidecar::Nothing, Sidecar::Notes);
        answer.finish(FrameKind::Batch, final_obs, number, &sidecar)
    }

    /// Notes lanes that are lost. Those lost since the last look are marked as truncated, if they are among the
    /// answer's `rows` (all lanes, if `None`).
    fn look_for_losses(&mut self, rows: Option<&[u32]>, answer: &mut Answer) -> Option<Notes> {
        if self.engine.lost() == 0 {
            self.lost.clear();
            return None;
        }
        let before = std::mem::take(&mut self.lost);
        let lanes = 0..self.engine.lanes() as u32;
        self.lost = lanes.filter(|&lane| self.engine.is_lost(lane as usize)).collect();
        let new = self.lost.iter().filter(|lane| before.binary_search(lane).is_err());
        answer.truncate(new.filter_map(|&lane| match rows {
            None => Some(lane as usize),
            Some(rows) => rows.iter().position(|&row| row == lane),
        }));
        let outcome = Outcome::Interrupted(Interruption::Crashed).code();
        Some(Notes { lost: self.lost.iter().map(|&lane| LostLane { lane, outcome }).collect() })
    }

    /// Begins the recording, if there is to be one and there is none yet.
    fn begin_recording(&mut self) -> Result<(), Refusal> {
        let Some(recordings) = &self.recordings else { return Ok(()) };
        let run = recordings.run(&self.plan)?;
        self.engine.record_with(&run).map_err(|error| refusal_of(&error))?;
        self.recording = Some(run);
        self.recordings = None;
        Ok(())
    }
}

/// How the engine's refusals are told to owners.
fn refusal_of(error: &StepError) -> Refusal {
    match error {
        StepError::Busy { retry_after_ms } => Refusal::busy(error.to_string(), *retry_after_ms),
        StepError::Hung | StepError::TimedOut | StepError::Begun => {
            Refusal::new(RefusalCode::Internal, error.to_string())
        }
        _ => Refusal::new(RefusalCode::BadRequest, error.to_string()),
    }
}

/// An error with what caused it, in one sentence.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfOrder { given, last } => {
                let next = FrameHeader::next_number(*last);
                write!(f, "request {given} is out of order: {last} was answered last, {next} is next")
            }
            Self::NoRequest(kind) => write!(f, "a frame of kind {} with these flags is no request", *kind as u8),
            Self::Columns { given, wanted } => {
                write!(f, "a request with {given} bytes of columns, this session's have {wanted}")
            }
            Self::Lanes { given, lanes } => {
                write!(f, "a request for {given} lanes that its bytes or the session's {lanes} lanes do not fit")
            }
            Self::Sidecar(bytes) => write!(f, "a sidecar of {bytes} bytes where none belongs"),
            Self::Reset => f.write_str("a sidecar that does not say which lanes to reset"),
        }
    }
}

impl std::error::Error for RequestFault {}

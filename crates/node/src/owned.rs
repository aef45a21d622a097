//! A session that its owner steps: an engine, and the frames that move it.
//!
//! ```text
//! last = 0 --request 1--> answer kept, last = 1 --request 2--> ...
//!             the last number again: the same answer, nothing moves
//!             any other number: out of order, the stream ends
//! ```
//!
//! No sockets and no clock: requests come in and answers go out as bytes, or through memory that the owner has mapped
//! as well (`memory.rs`).

mod answers;
mod live_memory;
mod memory;
mod mirror;
mod pacing;
mod playing;
mod recording;
mod request;
mod resume;
mod sending;
mod ticking;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_arena::SharedArena;
use rollhouse_core::Interruption;
use rollhouse_engine::{
    CallLane, CommandError, CommandLanes, Engine, LogEvent, Method, OptionsError, PaceLanes, Reset,
    ResetLanes as ResetMethod, SetAttributes, SetOptions, Stats, StepError,
};
use rollhouse_env::EnvEntry;
use rollhouse_host::ConnectWatch;
use rollhouse_replay::{Recorder, RunRecorder};
use rollhouse_wire::{
    ColumnBuffer, Envelope, FrameHeader, FrameKind, FrameLayout, Notes, Refusal, RefusalCode, ResetLanes,
    control,
};
use tracing::field::display;
use tracing::{Span, debug};

use crate::Cancel;
use crate::causes::with_causes;
use crate::commands;
use crate::executor::Crew;
use crate::live::{Camera, Live};
use crate::plan::SessionPlan;

use answers::LastAnswer;
use pacing::Pacing;
use playing::Played;
use recording::Recording;
use sending::{Sent, Wanted};

pub use memory::MemoryFault;
pub(crate) use recording::RecordingWatch;
pub(crate) use request::check_header;
pub use request::{FrameRequest, RequestFault, Unanswered};

/// Lanes stepped by their owner, and the answer to its last request. Moved to whichever thread steps it.
#[derive(Debug)]
pub struct OwnedSession {
    plan: Arc<SessionPlan>,
    engine: Engine,
    layout: FrameLayout,
    recording: Recording,
    /// Whether anything has moved: then the lanes stay in the memory they are in.
    begun: bool,
    /// Shared memory that the lanes lie in, once an owner has attached by it.
    memory: Option<SharedArena>,
    /// Number of attachments by memory so far.
    generation: u64,
    answer: LastAnswer,
    /// Lanes that were sent and have not been answered.
    sent: Sent,
    /// The policy by which the lanes play, if their owner has sent one.
    played: Option<Box<Played>>,
    /// What the last request began, for owners that keep a log.
    begins: Begins,
    /// Why the session can be stepped no more: its lanes could not be put where they stood elsewhere.
    astray: Option<Refusal>,
    /// Whether the node is going away.
    leaving: Arc<AtomicBool>,
    /// The place where the stepping thread and the watchers meet.
    live: Arc<Live>,
    camera: Camera,
}

/// What a request has begun: episodes, and steps whose states are hashed.
#[derive(Debug, Default)]
struct Begins {
    events: Vec<LogEvent>,
    /// The same events as notes beside the newest frame in memory.
    notes: Notes,
}

impl OwnedSession {
    /// Makes the lanes; `recorder` records them from the first reset on. May take as long as the env's maker does.
    ///
    /// # Errors
    /// If the env's maker refuses.
    pub fn make(plan: Arc<SessionPlan>, recorder: Option<Arc<Recorder>>) -> Result<Self, Refusal> {
        let engine = Engine::new(&plan.entry, plan.engine.clone(), None)
            .map_err(|error| Refusal::new(RefusalCode::BadRequest, with_causes(&error)))?;
        let spec = plan.entry.spec();
        let layout =
            if plan.pace.is_some() { FrameLayout::of(&spec.clone().paced()) } else { FrameLayout::of(spec) };
        let pacing = plan.pace.map(|pace| Box::new(Pacing::of(&plan, pace)));
        let recorder = recorder.filter(|_| plan.is_recorded());
        Ok(Self {
            plan,
            engine,
            layout,
            recording: Recording::on(recorder),
            begun: false,
            memory: None,
            generation: 0,
            answer: LastAnswer::default(),
            sent: Sent::of(pacing),
            played: None,
            begins: Begins::default(),
            astray: None,
            leaving: Arc::default(),
            live: Arc::default(),
            camera: Camera::default(),
        })
    }

    /// Returns the session so changed that its owner is told with every answer once the node is `leaving`.
    #[must_use]
    pub fn telling(self, leaving: Arc<AtomicBool>) -> Self {
        Self { leaving, ..self }
    }

    /// Returns the session so changed that its steps no longer wait for its recorder once `cancel` asks for the end.
    #[must_use]
    pub(crate) fn until(self, cancel: &Cancel) -> Self {
        Self { recording: self.recording.until(cancel.flag()), ..self }
    }

    /// Returns the place where the stepping thread and the watchers meet.
    pub(crate) const fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Shows watchers what they want, with lanes as they stand. While all lanes step, there are no rows of them.
    pub(crate) fn attend_watchers(&mut self) {
        if self.live.is_watched() && !self.awaits_frame() {
            self.camera.attend(&mut self.engine, &self.live);
        }
    }

    /// Returns the watch over the connecting of the lanes' workers.
    pub(crate) fn connecting(&self) -> &ConnectWatch {
        &self.plan.connecting
    }

    /// Returns the env of the lanes.
    pub(crate) fn entry(&self) -> &Arc<EnvEntry> {
        &self.plan.entry
    }

    /// Returns the number of lanes of the session.
    pub fn lanes(&self) -> usize {
        self.engine.lanes()
    }

    /// Returns the number of the last request that was answered; 0 if none was.
    pub const fn last(&self) -> u32 {
        self.answer.number
    }

    /// Returns whether a step takes a bounded time now: the env never waits, and neither does the recorder.
    pub(crate) fn is_prompt(&self) -> bool {
        self.plan.entry.is_bounded() && !self.recording.run().is_some_and(|run| run.is_behind())
    }

    /// Returns the threads that a request is for which takes long: one whose env or recorder may wait keeps none waiting
    /// that step others.
    pub(crate) fn crew(&self) -> Crew {
        if self.is_prompt() { Crew::Computing } else { Crew::Waiting }
    }

    /// Returns the recording of the session, once there is something to record.
    pub const fn recording(&self) -> Option<&Arc<RunRecorder>> {
        self.recording.run()
    }

    /// Returns whether lanes finish when they finish.
    pub(crate) fn is_late(&self) -> bool {
        self.plan.entry.is_late()
    }

    /// Returns a view of the recording for those that wait while another thread steps the session.
    pub(crate) fn recording_watch(&self) -> RecordingWatch {
        self.recording.watch()
    }

    /// Does what a request asks for that [`OwnedSession::check`] let pass, and answers it. Takes as long as the env
    /// does.
    ///
    /// # Errors
    /// What is wrong with its contents; nothing has moved.
    pub fn handle(&mut self, header: FrameHeader, request: &FrameRequest) -> Result<Bytes, RequestFault> {
        let mut answer = self.begin(header, request)?;
        loop {
            match answer {
                Some(answer) => return Ok(answer),
                None => answer = self.gather(self.plan.engine.step_deadline, false),
            }
        }
    }

    /// Does what a request asks for as [`OwnedSession::handle`] does, but waits for no lanes that finish when they finish.
    /// `None` if the answer waits for some: [`OwnedSession::gather`] goes on then. Lanes that are resumed are waited for.
    ///
    /// # Errors
    /// What is wrong with its contents; nothing has moved.
    pub fn begin(
        &mut self,
        header: FrameHeader,
        request: &FrameRequest,
    ) -> Result<Option<Bytes>, RequestFault> {
        if let Some(answer) = self.repeated(header.number) {
            return Ok(Some(answer));
        }
        if let Some(refusal) = self.waits_for_disk() {
            return Ok(Some(self.refuse(header.number, &refusal)));
        }
        if let Some(refusal) = self.refuse_paced(header.kind) {
            return Ok(Some(self.refuse_and_tell(header.number, &refusal)));
        }
        let done = match header.kind {
            FrameKind::Resume => {
                let resumed = self.resume(header.number, &request.columns)?;
                self.show_change();
                resumed.map(Some)
            }
            _ if self.astray.is_some() => Err(self.went_astray()),
            FrameKind::Reset => self.reset(header.number, &request.sidecar)?,
            FrameKind::Step => self.step(header.number, &request.columns),
            FrameKind::Send => self.send(header.number, request)?,
            FrameKind::Latest => self.latest(header.number, request)?.map(Some),
            FrameKind::Policy => self.follow(header.number, request)?.map(Some),
            FrameKind::Memory => self.recall(header.number, &request.columns)?.map(Some),
            FrameKind::Play => {
                let play = self.play(&request.sidecar)?;
                play.and_then(|play| self.wait_for(header.number, Wanted::Play(play)))
            }
            kind => return Err(RequestFault::NoRequest(kind)),
        };
        Ok(match done {
            Ok(answer) => answer.map(|answer| self.answered(header.number, answer)),
            Err(refusal) => Some(self.refuse_and_tell(header.number, &refusal)),
        })
    }

    /// Refuses a request, and has the refusal counted.
    fn refuse_and_tell(&mut self, number: u32, refusal: &Refusal) -> Bytes {
        self.answer.untold = Some(refusal.code);
        self.refuse(number, refusal)
    }

    /// Returns the code with which the last request was refused, if it was; only once.
    pub(crate) const fn take_refused(&mut self) -> Option<RefusalCode> {
        self.answer.untold.take()
    }

    /// Returns the refusal of a request that cannot be recorded now, if its session waits for the disk or the store. If
    /// it were stepped all the same, it would stop in the middle of a step once the recorder's buffers are used up.
    /// Owners that can resume their lanes elsewhere do.
    fn waits_for_disk(&self) -> Option<Refusal> {
        self.recording.obstacle(&self.plan.owner).map(|why| Refusal::busy(why, DISK_RETRY_MS).leaving())
    }

    /// Hands to the recorder's writer what may not wait any longer once the owner has paused for so long, as
    /// [`Engine::hand_over`] does. Returns whether something may stay.
    ///
    /// # Errors
    /// If the engine hangs.
    pub fn hand_over(&mut self, paused: Duration) -> Result<bool, StepError> {
        self.engine.hand_over(paused)
    }

    /// Runs a command, between two requests. Takes as long as the env does.
    pub(crate) fn command(&mut self, command: Envelope) -> Envelope {
        let answer = self.carry_out(command);
        let Envelope { method, error, .. } = &answer;
        match error {
            None => debug!("command `{method}` is done"),
            Some(refusal) => {
                Span::current().record("error", display(refusal));
                debug!("command `{method}` is refused: {refusal}");
            }
        }
        answer
    }

    fn carry_out(&mut self, command: Envelope) -> Envelope {
        // The only one that is recorded.
        let recorded = command.method == ResetMethod::NAME;
        let unrecorded = if recorded { self.waits_for_disk() } else { None };
        // Clocks are beside the lanes: they need not be done.
        let beside = command.method == PaceLanes::NAME;
        let under_way = if beside { None } else { self.refuse_under_way() };
        self.hold_ticks(under_way.is_some());
        if let Some(refusal) = unrecorded.or(under_way) {
            return Envelope { payload: Vec::new(), ..command }.answered::<()>(Err(refusal));
        }
        // Lanes that were changed are not made anew in shared memory.
        let changes = matches!(
            command.method.as_str(),
            CallLane::NAME | ResetMethod::NAME | SetAttributes::NAME | SetOptions::NAME
        );
        self.begun |= changes;
        let answer = self.run_command(command);
        if changes {
            self.show_change();
        }
        // Ticks that were asked for. An engine that hangs says so to the next request.
        let _ticked = self.tick();
        answer
    }

    fn run_command(&mut self, command: Envelope) -> Envelope {
        let Self { plan, engine, recording, sent, .. } = self;
        let paced = sent.pacing.as_deref_mut().map(Pacing::clocks);
        if !recording.is_to_begin() {
            return commands::run(CommandLanes::of(engine).paced_by(paced), command);
        }
        let mut record = |engine: &mut Engine| {
            recording.begin(plan, engine).map_err(|refusal| CommandError::Recording {
                message: refusal.message,
                retry_after_ms: refusal.retry_after_ms,
            })
        };
        commands::run(CommandLanes::recorded_by(engine, &mut record).paced_by(paced), command)
    }

    /// Returns what the session has done so far.
    ///
    /// # Errors
    /// If the engine hangs or has lost its threads.
    pub fn stats(&mut self) -> Result<Stats, StepError> {
        self.engine.stats()
    }

    /// Ends open episodes with that outcome, hands everything to the recorder and returns what was done.
    ///
    /// # Errors
    /// As [`OwnedSession::stats`].
    pub fn finish(mut self, cause: Interruption) -> Result<Stats, StepError> {
        self.engine.interrupt(cause)?;
        self.engine.flush()?;
        self.engine.stats()
    }

    fn reset(&mut self, number: u32, sidecar: &[u8]) -> Result<Result<Option<Bytes>, Refusal>, RequestFault> {
        let lanes = if sidecar.is_empty() {
            ResetLanes::default()
        } else {
            control::decode(sidecar).map_err(|_| RequestFault::Reset)?
        };
        if lanes.mask.iter().any(|&flag| flag > 1) {
            return Err(RequestFault::Reset);
        }
        let mask: Vec<bool> = lanes.mask.iter().map(|&flag| flag == 1).collect();
        if let Some(pacing) = &mut self.sent.pacing {
            pacing.begin(&mask);
        }
        let unkept = !lanes.options.is_empty() && !lanes.kept;
        let reset = Reset { seeds: lanes.seeds, mask, options: lanes.options };
        let begun = self.begin_episodes(&reset, unkept);
        Ok(begun.and_then(|()| self.wait_for(number, Wanted::Reset { unkept })))
    }

    /// Has episodes begin. Recorded lanes take no options that the owner does not add to its log, which ends it (`unkept`): he
    /// would go on with his.
    fn begin_episodes(&mut self, reset: &Reset, unkept: bool) -> Result<(), Refusal> {
        if unkept && (self.recording.is_to_begin() || self.engine.is_recording()) {
            return Err(refusal_of(&StepError::Options(OptionsError::Recorded)));
        }
        self.recording.begin(&self.plan, &mut self.engine)?;
        self.begun = true;
        self.engine.begin_reset(reset).map_err(|error| refusal_of(&error))
    }

    /// Shows watchers that lanes were changed otherwise than by a step.
    fn show_change(&mut self) {
        if self.live.is_watched() {
            self.camera.after_change(&mut self.engine, &self.live);
        }
    }

    /// Shows watchers that all lanes were stepped.
    #[inline]
    fn show_step(&mut self) {
        if self.live.is_watched() {
            self.camera.after_step(&mut self.engine, &self.live);
        }
    }

    fn step(&mut self, number: u32, columns: &ColumnBuffer) -> Result<Option<Bytes>, Refusal> {
        let Some(places) = self.layout.actions(self.lanes(), false) else {
            return Err(Refusal::new(RefusalCode::Internal, "the session's actions are larger than a frame"));
        };
        let actions = columns.column(&places.actions, self.layout.action.dtype);
        if self.is_paced() {
            let all: Vec<u32> = (0..self.lanes() as u32).collect();
            return self.act(number, (&all, actions), None);
        }
        let mut to = self.engine.actions().map_err(|error| refusal_of(&error))?;
        let copied = to.copy_from(actions);
        debug_assert!(copied, "the layout is that of the engine's columns");
        self.engine.begin_step().map_err(|error| refusal_of(&error))?;
        self.wait_for(number, Wanted::Step)
    }
}

/// Pause after which an owner may try again: the recorder tries a disk that takes nothing again within seconds.
const DISK_RETRY_MS: u64 = 500;

/// Returns an engine's refusal as owners are told it.
fn refusal_of(error: &StepError) -> Refusal {
    match error {
        StepError::Busy { retry_after_ms } => Refusal::busy(error.to_string(), *retry_after_ms),
        StepError::Hung | StepError::TimedOut | StepError::Begun => {
            Refusal::new(RefusalCode::Internal, error.to_string())
        }
        _ => Refusal::new(RefusalCode::BadRequest, error.to_string()),
    }
}

#[cfg(test)]
pub(crate) mod tests;

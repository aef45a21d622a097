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
mod memory;
mod recording;
mod request;
mod resume;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use rollhouse_arena::SharedArena;
use rollhouse_core::{ColumnRef, Interruption};
use rollhouse_engine::{
    CommandError, CommandLanes, Engine, LogEvent, Method, Received, Reset, ResetLanes as ResetMethod,
    SetAttributes, SetOptions, Stats, StepError,
};
use rollhouse_replay::{Recorder, RunRecorder};
use rollhouse_wire::{
    ColumnBuffer, Envelope, FrameHeader, FrameKind, FrameLayout, Notes, Refusal, RefusalCode, ResetLanes,
    control,
};
use tracing::field::display;
use tracing::{Span, debug};

use crate::Cancel;
use crate::commands;
use crate::live::{Camera, Live};
use crate::plan::SessionPlan;

use answers::{Kept, LOST};
use recording::Recording;

pub(crate) use memory::MemoryFault;
pub(crate) use recording::RecordingWatch;
pub(crate) use request::check_header;
pub use request::{FrameRequest, RequestFault};

/// Lanes stepped by their owner, and the answer to its last request. Moved to whichever thread steps it.
#[derive(Debug)]
pub struct OwnedSession {
    plan: Arc<SessionPlan>,
    engine: Engine,
    layout: FrameLayout,
    /// The recorder with which the recording begins at the first reset; `None` when nothing is recorded, and
    /// afterwards.
    recorder: Option<Arc<Recorder>>,
    recording: Recording,
    /// Whether anything has moved: then the lanes stay in the memory they are in.
    begun: bool,
    /// Shared memory that the lanes lie in, once an owner has attached by it.
    memory: Option<SharedArena>,
    /// Number of attachments by memory so far.
    generation: u64,
    last: u32,
    answer: Kept,
    /// The last answer, if it was a refusal.
    refused: Option<Refusal>,
    /// Lanes that were lost in the last answer, ascending.
    lost: Vec<u32>,
    /// The code with which the last request was refused, until it has been counted.
    untold: Option<RefusalCode>,
    /// The events that the last request began, for owners that keep a log.
    log: Vec<LogEvent>,
    /// The same events as notes beside the newest frame in memory.
    noted: Notes,
    /// Why the session can be stepped no more: its lanes could not be put where they stood elsewhere.
    astray: Option<Refusal>,
    /// Whether the node is going away.
    leaving: Arc<AtomicBool>,
    /// The place where the stepping thread and the watchers meet.
    live: Arc<Live>,
    camera: Camera,
}

impl OwnedSession {
    /// Makes the lanes; `recorder` records them from the first reset on. May take as long as the env's maker does.
    ///
    /// # Errors
    /// If the env's maker refuses.
    pub fn make(plan: Arc<SessionPlan>, recorder: Option<Arc<Recorder>>) -> Result<Self, Refusal> {
        let engine = Engine::new(&plan.entry, plan.engine.clone(), None)
            .map_err(|error| Refusal::new(RefusalCode::BadRequest, with_causes(&error)))?;
        let layout = FrameLayout::of(plan.entry.spec());
        let recorder = recorder.filter(|_| plan.record.is_some());
        Ok(Self {
            plan,
            engine,
            layout,
            recorder,
            recording: Recording::default(),
            begun: false,
            memory: None,
            generation: 0,
            last: 0,
            answer: Kept::Bytes(Bytes::new()),
            refused: None,
            lost: Vec::new(),
            untold: None,
            log: Vec::new(),
            noted: Notes::default(),
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
        Self { recording: Recording::until(cancel.flag()), ..self }
    }

    /// Returns the place where the stepping thread and the watchers meet.
    pub(crate) const fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Shows watchers what they want, with lanes as they stand.
    pub(crate) fn attend_watchers(&mut self) {
        if self.live.is_watched() {
            self.camera.attend(&mut self.engine, &self.live);
        }
    }

    /// Returns the number of lanes of the session.
    pub fn lanes(&self) -> usize {
        self.engine.lanes()
    }

    /// Returns the number of the last request that was answered; 0 if none was.
    pub const fn last(&self) -> u32 {
        self.last
    }

    /// Returns whether a step takes a bounded time now: the env never waits, and neither does the recorder.
    pub(crate) fn is_prompt(&self) -> bool {
        self.plan.entry.is_bounded() && !self.recording.run().is_some_and(|run| run.is_behind())
    }

    /// Returns the recording of the session, once there is something to record.
    pub const fn recording(&self) -> Option<&Arc<RunRecorder>> {
        self.recording.run()
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
        if let Some(answer) = self.repeated(header.number) {
            return Ok(answer);
        }
        if let Some(refusal) = self.waits_for_disk() {
            return Ok(self.refuse(header.number, &refusal));
        }
        let done = match header.kind {
            FrameKind::Resume => {
                let resumed = self.resume(header.number, &request.columns)?;
                self.show_change();
                resumed
            }
            _ if self.astray.is_some() => Err(self.went_astray()),
            FrameKind::Reset => self.reset(header.number, &request.sidecar)?,
            FrameKind::Step => self.step(header.number, &request.columns),
            FrameKind::Send => self.send(header.number, &request.columns)?,
            kind => return Err(RequestFault::NoRequest(kind)),
        };
        Ok(match done {
            Ok(answer) => self.answered(header.number, answer),
            Err(refusal) => {
                self.untold = Some(refusal.code);
                self.refuse(header.number, &refusal)
            }
        })
    }

    /// Returns the code with which the last request was refused, if it was; only once.
    pub(crate) const fn take_refused(&mut self) -> Option<RefusalCode> {
        self.untold.take()
    }

    /// Returns the refusal of a request that cannot be recorded now, if its session waits for the disk. If it were
    /// stepped all the same, it would stop in the middle of a step once the recorder's buffers are used up.
    fn waits_for_disk(&self) -> Option<Refusal> {
        let outage = match (self.recording.run(), &self.recorder) {
            (Some(run), _) => run.outage(),
            (None, Some(recorder)) => recorder.outage(),
            (None, None) => None,
        };
        outage.map(|error| Refusal::busy(with_causes(&error), DISK_RETRY_MS))
    }

    /// Hands what was recorded so far to the recorder's writer, for which it may wait.
    ///
    /// # Errors
    /// While lanes are outstanding, or if the engine hangs.
    pub fn flush(&mut self) -> Result<(), StepError> {
        self.engine.flush()
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
        if command.method == ResetMethod::NAME
            && let Some(refusal) = self.waits_for_disk()
        {
            return Envelope { payload: Vec::new(), ..command }.answered::<()>(Err(refusal));
        }
        // Lanes that were changed are not made anew in shared memory.
        let changes =
            matches!(command.method.as_str(), ResetMethod::NAME | SetAttributes::NAME | SetOptions::NAME);
        self.begun |= changes;
        let answer = self.run_command(command);
        if changes {
            self.show_change();
        }
        answer
    }

    fn run_command(&mut self, command: Envelope) -> Envelope {
        let Self { plan, engine, recorder, recording, .. } = self;
        if recorder.is_none() {
            return commands::run(CommandLanes::of(engine), command);
        }
        let mut record = |engine: &mut Engine| {
            recording.begin(plan, engine, recorder).map_err(|refusal| CommandError::Recording {
                message: refusal.message,
                retry_after_ms: refusal.retry_after_ms,
            })
        };
        commands::run(CommandLanes::recorded_by(engine, &mut record), command)
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

    fn reset(&mut self, number: u32, sidecar: &[u8]) -> Result<Result<Bytes, Refusal>, RequestFault> {
        let lanes = if sidecar.is_empty() {
            ResetLanes::default()
        } else {
            control::decode(sidecar).map_err(|_| RequestFault::Reset)?
        };
        if lanes.mask.iter().any(|&flag| flag > 1) {
            return Err(RequestFault::Reset);
        }
        let mask = lanes.mask.iter().map(|&flag| flag == 1).collect();
        let reset = Reset { seeds: lanes.seeds, mask, options: lanes.options };
        Ok(self.begin_episodes(&reset).and_then(|()| self.frame_answer(number)))
    }

    /// Begins episodes; the newest frame shows them.
    fn begin_episodes(&mut self, reset: &Reset) -> Result<(), Refusal> {
        let Self { plan, engine, recorder, recording, .. } = self;
        recording.begin(plan, engine, recorder)?;
        self.begun = true;
        self.engine.reset(reset).map_err(|error| refusal_of(&error))?;
        self.show_change();
        Ok(())
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

    fn step(&mut self, number: u32, columns: &ColumnBuffer) -> Result<Bytes, Refusal> {
        let Some(places) = self.layout.actions(self.lanes(), false) else {
            return Err(Refusal::new(RefusalCode::Internal, "the session's actions are larger than a frame"));
        };
        let actions = columns.column(&places.actions, self.layout.action.dtype);
        let mut to = self.engine.actions().map_err(|error| refusal_of(&error))?;
        let copied = to.copy_from(actions);
        debug_assert!(copied, "the layout is that of the engine's columns");
        self.engine.step().map_err(|error| refusal_of(&error))?;
        self.show_step();
        self.frame_answer(number)
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
        let received = self.send_and_receive(columns.lanes(&places.lanes), actions);
        Ok(received.map(|received| self.rows_answer(number, &received)))
    }

    /// Sends the lanes' actions and receives them. The engine has one thread: the steps are done when `send` returns.
    /// Rows of lanes that were lost by it are marked as truncated.
    fn send_and_receive(&mut self, lanes: &[u32], actions: ColumnRef<'_>) -> Result<Received, Refusal> {
        let sent = self.engine.send(lanes, actions);
        let received = sent.and_then(|()| self.engine.recv(lanes.len(), Duration::ZERO));
        let mut received = received.map_err(|error| refusal_of(&error))?;
        if self.live.is_watched() {
            self.camera.after_send(&mut self.engine, &self.live, (lanes, actions), &received);
        }
        for lane in self.look_for_losses() {
            if let Some(row) = received.lanes.iter().position(|&received| received == lane) {
                received.truncated[row] = 1;
            }
        }
        Ok(received)
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

/// Returns an error with its causes, in one sentence.
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_core::{AutoresetMode, OptionValue, Outcome, RunId, SeedSchedule};
    use rollhouse_engine::EngineConfig;
    use rollhouse_env::Registry;
    use rollhouse_replay::testing::{DrivenRecorder, Faults, FaultyDisk};
    use rollhouse_replay::{OnOutage, RecorderConfig};
    use rollhouse_wire::{
        HEADER_BYTES, Incarnation, LaneSettings, LostLane, OpenSession, RecordRule, Secret, SessionId,
        column_bytes,
    };

    fn asked(env: &str, lanes: u32, autoreset: AutoresetMode) -> OpenSession {
        OpenSession {
            session: SessionId { pool: RunId::from_u128(1), index: 0 },
            incarnation: Incarnation { term: 1, counter: 1 },
            secret: Secret::from_bytes([0; 16]),
            owner: "trainer".to_owned(),
            first_lane: 0,
            lanes,
            pool_lanes: lanes,
            replaces: false,
            settings: LaneSettings {
                env: env.to_owned(),
                options: Default::default(),
                autoreset,
                max_episode_steps: None,
                seeds: SeedSchedule::PerEpisode { run_seed: 3 },
                record: RecordRule::None,
                collect: None,
                replay: None,
            },
        }
    }

    fn session_of(open: &OpenSession) -> OwnedSession {
        let plan = SessionPlan::of(open, &Registry::builtin(), "test 1").unwrap();
        OwnedSession::make(Arc::new(plan), None).unwrap()
    }

    pub(crate) fn cartpole(lanes: u32, autoreset: AutoresetMode) -> OwnedSession {
        session_of(&asked("CartPole-v1", lanes, autoreset))
    }

    fn request(kind: FrameKind, number: u32, columns: usize, sidecar: usize) -> FrameHeader {
        FrameHeader { kind, flags: 0, number, columns: columns as u32, sidecar: sidecar as u32 }
    }

    /// An answer taken apart.
    struct Read {
        header: FrameHeader,
        columns: ColumnBuffer,
        sidecar: Vec<u8>,
    }

    fn read(answer: &[u8]) -> Read {
        let (header, rest) = answer.split_at(HEADER_BYTES);
        let header = FrameHeader::decode(header.try_into().unwrap()).unwrap();
        let (columns, sidecar) = rest.split_at(header.columns as usize);
        assert_eq!(sidecar.len(), header.sidecar as usize);
        let mut buffer = ColumnBuffer::default();
        buffer.resize(columns.len());
        buffer.bytes_mut().copy_from_slice(columns);
        Read { header, columns: buffer, sidecar: sidecar.to_vec() }
    }

    fn refusal(answer: &[u8]) -> Refusal {
        let answer = read(answer);
        assert_eq!(answer.header.kind, FrameKind::Refused);
        control::decode(&answer.sidecar).unwrap()
    }

    fn do_it(session: &mut OwnedSession, header: FrameHeader, request: &FrameRequest) -> Bytes {
        session.check(header).unwrap();
        session.handle(header, request).unwrap()
    }

    fn reset(session: &mut OwnedSession, number: u32) -> Bytes {
        do_it(session, request(FrameKind::Reset, number, 0, 0), &FrameRequest::default())
    }

    fn reset_lanes(
        session: &mut OwnedSession,
        number: u32,
        lanes: &ResetLanes,
    ) -> Result<Bytes, RequestFault> {
        let mut sidecar = Vec::new();
        control::encode(lanes, &mut sidecar).unwrap();
        sidecar.drain(..4);
        let header = request(FrameKind::Reset, number, 0, sidecar.len());
        session.check(header).unwrap();
        session.handle(header, &FrameRequest { columns: ColumnBuffer::default(), sidecar })
    }

    fn step(session: &mut OwnedSession, number: u32, actions: &[i64]) -> Bytes {
        let places = session.layout.actions(session.lanes(), false).unwrap();
        let mut columns = ColumnBuffer::default();
        columns.resize(places.bytes);
        columns.bytes_mut()[places.actions].copy_from_slice(column_bytes(ColumnRef::I64(actions)));
        let header = request(FrameKind::Step, number, places.bytes, 0);
        do_it(session, header, &FrameRequest { columns, sidecar: Vec::new() })
    }

    fn send(
        session: &mut OwnedSession,
        number: u32,
        lanes: &[u32],
        actions: &[i64],
    ) -> Result<Bytes, RequestFault> {
        let places = session.layout.actions(lanes.len(), true).unwrap();
        let mut columns = ColumnBuffer::default();
        columns.resize(places.bytes);
        columns.bytes_mut().fill(0);
        columns.set_count(&places.count, lanes.len() as u32);
        columns.lanes_mut(&places.lanes).copy_from_slice(lanes);
        columns.bytes_mut()[places.actions].copy_from_slice(column_bytes(ColumnRef::I64(actions)));
        let header = request(FrameKind::Send, number, places.bytes, 0);
        session.check(header)?;
        session.handle(header, &FrameRequest { columns, sidecar: Vec::new() })
    }

    #[test]
    fn steps_give_the_rows_an_engine_gives_byte_by_byte() {
        for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
            let lanes = 70;
            let mut session = cartpole(lanes as u32, autoreset);
            let mut engine = Engine::new(
                &Registry::builtin().get("CartPole-v1").unwrap(),
                EngineConfig {
                    autoreset: session.plan.engine.autoreset,
                    schedule: SeedSchedule::PerEpisode { run_seed: 3 },
                    ..EngineConfig::new(lanes)
                },
                None,
            )
            .unwrap();
            engine.reset(&Reset::all()).unwrap();
            reset(&mut session, 1);
            let mut last_observations = 0;
            for number in 2..200 {
                let actions: Vec<i64> =
                    (0..lanes as i64).map(|lane| (lane + i64::from(number)) % 2).collect();
                let answer = read(&step(&mut session, number, &actions));
                engine.actions().unwrap().as_i64_mut().unwrap().copy_from_slice(&actions);
                let frame = engine.step().unwrap();
                let over = frame.terminated().contains(&1) || frame.truncated().contains(&1);
                let final_obs = over && autoreset == AutoresetMode::SameStep;
                assert_eq!(answer.header.flags, u8::from(final_obs) * FrameHeader::FINAL_OBS);
                let places = session.layout.batch(lanes, final_obs).unwrap();
                assert_eq!(answer.columns.bytes().len(), places.bytes);
                let bytes = |place: &std::ops::Range<usize>| answer.columns.bytes()[place.clone()].to_vec();
                assert_eq!(bytes(&places.obs[0]), column_bytes(frame.obs(0)));
                assert_eq!(bytes(&places.rewards), column_bytes(ColumnRef::F64(frame.rewards())));
                assert_eq!(bytes(&places.terminated), frame.terminated());
                assert_eq!(bytes(&places.truncated), frame.truncated());
                assert_eq!(bytes(&places.reset), frame.reset());
                if final_obs {
                    assert_eq!(bytes(&places.final_obs[0]), column_bytes(frame.final_obs(0)));
                    last_observations += 1;
                }
                assert!(answer.sidecar.is_empty());
            }
            assert_eq!(last_observations > 0, autoreset == AutoresetMode::SameStep);
            assert_eq!(session.stats().unwrap(), engine.stats().unwrap());
        }
    }

    #[test]
    fn repeating_the_last_number_gives_the_same_answer_and_moves_nothing() {
        let mut session = cartpole(3, AutoresetMode::NextStep);
        reset(&mut session, 1);
        let first = step(&mut session, 2, &[0, 1, 0]);
        let steps = session.stats().unwrap().steps;
        // Even if it says something else: the number decides.
        assert_eq!(step(&mut session, 2, &[1, 1, 1]), first);
        assert_eq!(reset(&mut session, 2), first);
        assert_eq!(session.stats().unwrap().steps, steps);
    }

    #[test]
    fn numbers_that_do_not_follow_are_out_of_order() {
        let mut session = cartpole(1, AutoresetMode::NextStep);
        let bytes = session.layout.actions(1, false).unwrap().bytes;
        for number in [0, 2, 3, u32::MAX] {
            let fault = session.check(request(FrameKind::Step, number, bytes, 0)).unwrap_err();
            assert_eq!(fault, RequestFault::OutOfOrder { given: number, last: 0 });
        }
        reset(&mut session, 1);
        assert_eq!(session.check(request(FrameKind::Step, 1, bytes, 0)), Ok(()));
        assert_eq!(session.check(request(FrameKind::Step, 2, bytes, 0)), Ok(()));
        assert!(session.check(request(FrameKind::Step, 3, bytes, 0)).is_err());
        session.last = u32::MAX;
        assert_eq!(session.check(request(FrameKind::Step, 1, bytes, 0)), Ok(()));
    }

    #[test]
    fn what_the_engine_refuses_is_answered_and_nothing_has_moved() {
        let mut session = cartpole(2, AutoresetMode::NextStep);
        let refused = refusal(&step(&mut session, 1, &[0, 1]));
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (RefusalCode::BadRequest, "step before the first reset")
        );
        let before = reset(&mut session, 2);
        let refused = refusal(&step(&mut session, 3, &[0, 7]));
        assert_eq!(refused.message, "action 7 of lane 1 is not an integer from 0 to 1");
        let refused = refusal(&send(&mut session, 4, &[1, 1], &[0, 0]).unwrap());
        assert_eq!(refused.code, RefusalCode::BadRequest);
        assert_eq!(session.stats().unwrap().steps, 0);
        // The state is still that of the reset: a partial reset of nothing shows it again.
        let none = ResetLanes { seeds: vec![], mask: vec![0, 0], ..ResetLanes::default() };
        let again = reset_lanes(&mut session, 5, &none).unwrap();
        let obs = session.layout.batch(2, false).unwrap().obs[0].clone();
        assert_eq!(read(&again).columns.bytes()[obs.clone()], read(&before).columns.bytes()[obs]);
    }

    #[test]
    fn some_lanes_are_answered_in_ascending_order_with_their_count() {
        let mut session = cartpole(8, AutoresetMode::SameStep);
        reset(&mut session, 1);
        let answer = read(&send(&mut session, 2, &[5, 2, 7], &[0, 1, 1]).unwrap());
        assert_eq!(answer.header.kind, FrameKind::Rows);
        let places = session.layout.rows(3, false).unwrap();
        assert_eq!(answer.columns.bytes().len(), places.bytes);
        assert_eq!(answer.columns.count(), Some(3));
        assert_eq!(answer.columns.lanes(&places.lanes), [2, 5, 7]);
        let rewards = answer.columns.column(&places.rewards, rollhouse_core::DType::F64);
        assert_eq!(rewards.as_f64().unwrap(), [1.0; 3]);
        // Lockstep goes on from there.
        let answer = read(&step(&mut session, 3, &[0; 8]));
        assert_eq!(answer.header.kind, FrameKind::Batch);
        assert_eq!(session.stats().unwrap().steps, 11);
    }

    #[test]
    fn a_lane_that_is_lost_is_noted_and_truncated_in_the_row_in_which_it_was_lost() {
        let mut open = asked("test/Faulty-v0", 2, AutoresetMode::NextStep);
        open.settings.options.insert("panic_at".to_owned(), OptionValue::Int(2));
        let mut session = session_of(&open);
        reset(&mut session, 1);
        let fine = read(&step(&mut session, 2, &[0, 1]));
        assert!(fine.sidecar.is_empty());
        let places = session.layout.batch(2, false).unwrap();
        for (number, truncated) in [(3, [1, 1]), (4, [0, 0])] {
            let answer = read(&step(&mut session, number, &[0, 1]));
            let notes: Notes = control::decode(&answer.sidecar).unwrap();
            let outcome = Outcome::Interrupted(Interruption::Crashed).code();
            assert_eq!(notes.lost, [0, 1].map(|lane| LostLane { lane, outcome }));
            assert_eq!(answer.columns.bytes()[places.truncated.clone()], truncated);
        }
    }

    #[test]
    fn a_reset_that_contradicts_the_session_is_refused_or_a_fault() {
        let mut session = cartpole(2, AutoresetMode::NextStep);
        let seeded = ResetLanes { seeds: vec![Some(1), None], mask: vec![], ..ResetLanes::default() };
        assert_eq!(refusal(&reset_lanes(&mut session, 1, &seeded).unwrap()).code, RefusalCode::BadRequest);
        let short = ResetLanes { seeds: vec![], mask: vec![1], ..ResetLanes::default() };
        assert_eq!(refusal(&reset_lanes(&mut session, 2, &short).unwrap()).code, RefusalCode::BadRequest);
        let odd = ResetLanes { seeds: vec![], mask: vec![1, 2], ..ResetLanes::default() };
        assert_eq!(reset_lanes(&mut session, 3, &odd), Err(RequestFault::Reset));
        let rubbish = FrameRequest { columns: ColumnBuffer::default(), sidecar: vec![0xc1; 9] };
        assert_eq!(session.handle(request(FrameKind::Reset, 3, 0, 9), &rubbish), Err(RequestFault::Reset));
    }

    #[test]
    fn a_session_whose_batches_are_larger_than_a_frame_or_that_has_too_many_lanes_is_refused() {
        let mut open = asked("CartPole-v1", MAX, AutoresetMode::SameStep);
        const MAX: u32 = crate::MAX_SESSION_LANES;
        assert!(SessionPlan::of(&open, &Registry::builtin(), "test 1").is_ok());
        open.lanes = MAX + 1;
        open.pool_lanes = MAX + 1;
        let refused = SessionPlan::of(&open, &Registry::builtin(), "test 1").unwrap_err();
        assert_eq!(refused.message, "lanes = 32769; a session has 1 to 32768");
    }

    proptest! {
        #[test]
        fn headers_of_wrong_lengths_kinds_and_flags_are_faults(
            kind in prop::sample::select(vec![
                FrameKind::Reset, FrameKind::Step, FrameKind::Send, FrameKind::Batch, FrameKind::Rows, FrameKind::Refused,
                FrameKind::Resume, FrameKind::Resumed,
            ]),
            columns in 0u32..400, sidecar in 0u32..3, flags in 0u8..2,
        ) {
            let session = cartpole(8, AutoresetMode::NextStep);
            let header = FrameHeader { kind, flags, number: 1, columns, sidecar };
            let fits = match kind {
                FrameKind::Reset => columns == 0,
                FrameKind::Step => columns == 64 && sidecar == 0,
                // A count and a column of numbers besides.
                FrameKind::Send => columns <= 8 + 32 + 64 && sidecar == 0,
                FrameKind::Resume => sidecar == 0,
                _ => false,
            };
            prop_assert_eq!(session.check(header).is_ok(), fits && flags == 0);
        }

        #[test]
        fn columns_of_any_bytes_move_lanes_that_exist_or_none(
            mut bytes in prop::collection::vec(any::<u8>(), 0..=104), count in prop::option::of(0u32..12)
        ) {
            if let (Some(count), Some(first)) = (count, bytes.first_chunk_mut()) {
                *first = count.to_le_bytes();
            }
            let mut session = cartpole(8, AutoresetMode::NextStep);
            reset(&mut session, 1);
            let mut columns = ColumnBuffer::default();
            columns.resize(bytes.len());
            columns.bytes_mut().copy_from_slice(&bytes);
            let header = request(FrameKind::Send, 2, bytes.len(), 0);
            session.check(header).unwrap();
            match session.handle(header, &FrameRequest { columns, sidecar: Vec::new() }) {
                Ok(answer) => prop_assert!(read(&answer).header.number == 2),
                Err(fault) => prop_assert!(matches!(fault, RequestFault::Lanes { .. }), "{fault:?}"),
            }
        }
    }

    /// A disk, and a recorder that has stepping wait while that takes nothing.
    pub(crate) fn waiting_for_the_disk() -> (FaultyDisk, DrivenRecorder) {
        let disk = FaultyDisk::new();
        let config = RecorderConfig { on_outage: OnOutage::Wait, ..RecorderConfig::default() };
        let dir = std::path::Path::new("/spool");
        let driven = DrivenRecorder::open(Arc::new(disk.clone()), dir, config, 1, Duration::ZERO).unwrap();
        (disk, driven)
    }

    /// The disk takes nothing any more, and the recorder has noticed.
    pub(crate) fn fill(disk: &FaultyDisk, session: &mut OwnedSession, driven: &mut DrivenRecorder) {
        disk.set_faults(Faults { capacity: Some(0), ..Faults::default() });
        session.engine.flush().unwrap();
        driven.turn(Duration::from_secs(1));
    }

    /// Two lanes of CartPole that are recorded there.
    pub(crate) fn recorded(driven: &DrivenRecorder) -> OwnedSession {
        let mut open = asked("CartPole-v1", 2, AutoresetMode::NextStep);
        open.settings.record = RecordRule::All;
        let plan = SessionPlan::of(&open, &Registry::builtin(), "test 1").unwrap();
        OwnedSession::make(Arc::new(plan), Some(Arc::clone(driven.recorder()))).unwrap()
    }

    /// A trainer that attached by memory before its first reset was given up as hung when the disk was slow for longer
    /// than the deadline: whoever watched its thread knew of no recording, as there had been none when it was lent.
    #[test]
    fn whoever_watches_a_session_sees_that_it_waits_for_a_recording_that_began_meanwhile() {
        let disk = Arc::new(FaultyDisk::new());
        let dir = std::path::Path::new("/spool");
        let driven = DrivenRecorder::open(disk, dir, RecorderConfig::default(), 1, Duration::ZERO).unwrap();
        let mut session = recorded(&driven);
        let watch = session.recording_watch();
        reset(&mut session, 1);
        // Nothing takes what is recorded.
        let mut number = 2;
        while !session.recording().unwrap().is_behind() {
            assert!(!watch.is_behind());
            step(&mut session, number, &[0, 1]);
            session.engine.flush().unwrap();
            number += 1;
        }
        assert!(watch.is_behind());
    }

    #[test]
    fn a_session_whose_disk_is_full_is_refused_by_name_moves_nothing_and_goes_on_when_there_is_room() {
        let (disk, mut driven) = waiting_for_the_disk();
        let mut session = recorded(&driven);
        reset(&mut session, 1);
        step(&mut session, 2, &[0, 1]);
        fill(&disk, &mut session, &mut driven);
        for number in 3..6 {
            let refused = refusal(&step(&mut session, number, &[0, 1]));
            assert_eq!((refused.code, refused.retry_after_ms), (RefusalCode::Busy, Some(DISK_RETRY_MS)));
            assert!(refused.message.starts_with("no space left on the disk: "), "{refused}");
        }
        assert_eq!(session.stats().unwrap().steps, 2, "one batch of two lanes");
        // One that has not begun is refused as well.
        assert_eq!(refusal(&reset(&mut recorded(&driven), 1)).code, RefusalCode::Busy);
        disk.set_faults(Faults::default());
        driven.turn(Duration::from_secs(12));
        let answer = read(&step(&mut session, 6, &[0, 1]));
        assert_eq!(answer.header.kind, FrameKind::Batch);
        assert_eq!(session.stats().unwrap().steps, 4);
    }

    /// Symptom: a reset by a command waited for a full disk, and with it whatever came after. Cause: requests alone asked
    /// the recorder whether it takes anything. Fix: the command asks too.
    #[test]
    fn a_reset_by_a_command_is_refused_while_the_disk_is_full() {
        let (disk, mut driven) = waiting_for_the_disk();
        let mut session = recorded(&driven);
        reset(&mut session, 1);
        step(&mut session, 2, &[0, 1]);
        fill(&disk, &mut session, &mut driven);
        let ask = |session: &mut OwnedSession, method: &str| {
            let answer =
                session.command(Envelope::command(7, method, &rollhouse_engine::Nothing {}).unwrap());
            answer.error.map(|refusal| (refusal.code, refusal.retry_after_ms))
        };
        assert_eq!(ask(&mut session, ResetMethod::NAME), Some((RefusalCode::Busy, Some(DISK_RETRY_MS))));
        assert_eq!(ask(&mut session, "statistics"), None, "what is not recorded is done");
        disk.set_faults(Faults::default());
        driven.turn(Duration::from_secs(12));
        assert_eq!(ask(&mut session, ResetMethod::NAME), None);
    }
}

//! A session that its owner steps, as the node's threads reach it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rollhouse_core::{Claimant, EnvSpec, Interruption, panic_message};
use rollhouse_env::EnvEntry;
use rollhouse_wire::{EndCause, Envelope, FrameHeader, Incarnation, Refusal, SessionId};
use tokio::sync::{Mutex, MutexGuard, watch};

use crate::executor::{Executor, JobError};
use crate::live::Live;
use crate::measured::{MeasuredSession, waits_for_others};
use crate::owned::{FrameRequest, OwnedSession, RecordingWatch, RequestFault, Unanswered};
use crate::tally::ReportedTally;
use crate::turn::{Turn, TurnOver};
use crate::{Cancel, EnvFigures, Gone, NodeFigures};

/// A session stepped by its owner.
///
/// ```text
/// here --short batch--> stepped on the data thread --> here
/// here --long batch---> with a worker --> here
///                       with a worker --hangs, panics--> gone
/// here --attached by memory--> with a thread of its own --detached--> here
///                              with a thread of its own --hangs, panics--> gone
/// here --ended--> gone
/// ```
#[derive(Debug)]
pub(crate) struct OwnedHandle {
    pub(crate) id: SessionId,
    pub(crate) incarnation: Incarnation,
    owner: Claimant,
    pub(crate) lanes: u32,
    /// Bytes of the columns of the largest request.
    pub(crate) max_columns: usize,
    /// Whether the owner keeps a log, and so can move the session.
    movable: AtomicBool,
    /// The session's token, raised to end it.
    cancel: Cancel,
    /// The attachment that may go on; a change wakes those that wait when the session ends.
    turn: watch::Sender<Turn>,
    /// Number of the request that is to be answered with the lanes that are done.
    hastened: Arc<AtomicU32>,
    /// The session itself. The holder of the lock steps the session, or ends it.
    slot: Mutex<Slot>,
    /// Whether the session is taken to a thread. That thread's task holds the lock for as long as the owner is attached
    /// by memory.
    taken: AtomicBool,
    /// Whether the session was asked for something since everything was reported and handed over. Set and cleared by
    /// the holder of the lock.
    stirred: AtomicBool,
    told: Arc<ReportedTally>,
    live: Arc<Live>,
    /// The env of the lanes.
    entry: Arc<EnvEntry>,
}

#[derive(Debug)]
enum Slot {
    Here(Box<MeasuredSession>),
    /// A thread has the session; if it does not come back, it is gone.
    Away(RecordingWatch),
    Gone(Gone),
}

/// A session that a thread has taken, and the lock that is held until it is back.
///
/// If it is dropped without being given back, the session is gone.
#[derive(Debug)]
pub(crate) struct TakenSession<'a> {
    owned: &'a OwnedHandle,
    slot: MutexGuard<'a, Slot>,
}

/// The result of a job on a worker, with the session that it was given.
struct Worked {
    measured: Box<MeasuredSession>,
    request: FrameRequest,
    answer: Progress,
}

/// A request of an attachment.
struct AttachedRequest<'a> {
    attachment: u64,
    header: FrameHeader,
    request: &'a mut FrameRequest,
}

/// What has become of a request.
enum Progress {
    Answered(Result<Bytes, RequestFault>),
    /// It waits for lanes.
    Waits,
    /// The session had ended before its turn came.
    Ended,
}

impl Progress {
    fn of(begun: Result<Option<Bytes>, RequestFault>) -> Self {
        match begun {
            Ok(Some(answer)) => Self::Answered(Ok(answer)),
            Ok(None) => Self::Waits,
            Err(fault) => Self::Answered(Err(fault)),
        }
    }
}

impl OwnedHandle {
    pub(crate) fn new(
        (id, incarnation): (SessionId, Incarnation),
        owner: Claimant,
        cancel: Cancel,
        max_columns: usize,
        session: OwnedSession,
        env: Arc<EnvFigures>,
    ) -> Self {
        let (lanes, live) = (session.lanes() as u32, Arc::clone(session.live()));
        let entry = Arc::clone(session.entry());
        let measured = MeasuredSession::new(session, Arc::clone(&env));
        Self {
            id,
            incarnation,
            owner,
            lanes,
            max_columns,
            cancel,
            movable: AtomicBool::new(false),
            turn: watch::Sender::new(Turn::default()),
            hastened: Arc::default(),
            slot: Mutex::new(Slot::Here(Box::new(measured))),
            taken: AtomicBool::new(false),
            stirred: AtomicBool::new(false),
            told: Arc::new(ReportedTally::of_owner(env)),
            live,
            entry,
        }
    }

    /// Returns what the env of the lanes says of itself.
    pub(crate) fn spec(&self) -> &EnvSpec {
        self.entry.spec()
    }

    /// Returns the session's token.
    pub(crate) const fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Returns the place where the session reports what it has done.
    pub(crate) const fn told(&self) -> &Arc<ReportedTally> {
        &self.told
    }

    /// Sends earlier attachments away and waits until their requests are done. Returns the number of the last request
    /// that was answered, and whether answers say what a log needs; they do so only if the owner wants it (`log`).
    pub(crate) async fn take_over(&self, attachment: u64, log: bool) -> Result<(u32, bool), Gone> {
        self.turn.send_modify(|turn| turn.take_over(attachment));
        let mut slot = self.slot.lock().await;
        let measured = slot.here()?;
        let logs = log && measured.session.keep_log();
        self.movable.store(logs, Ordering::Relaxed);
        Ok((measured.session.last(), logs))
    }

    /// Returns the place where the thread that steps and the watchers meet.
    pub(crate) const fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Returns whether the session was asked for something since everything was reported and handed over.
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred.load(Ordering::Relaxed)
    }

    /// Returns whether the owner keeps a log, and so can move the session.
    pub(crate) fn is_movable(&self) -> bool {
        self.movable.load(Ordering::Relaxed)
    }

    /// Returns a receiver that learns of later attachments and of the end.
    pub(crate) fn turns(&self) -> watch::Receiver<Turn> {
        self.turn.subscribe()
    }

    /// Answers one request: steps a short one on this thread, and has a worker do one that is long or may hang. Once
    /// the session's token is raised nothing moves, wherever the request waits. Not cancellation-safe: if it is dropped
    /// while a worker has the session, the session is lost.
    pub(crate) async fn answer(
        &self,
        attachment: u64,
        header: FrameHeader,
        request: &mut FrameRequest,
        executor: &Executor,
        figures: &Arc<NodeFigures>,
    ) -> Result<Bytes, Unanswered> {
        let mut slot = self.slot.lock().await;
        let turn = *self.turn.borrow();
        let measured = match slot.here() {
            Ok(measured) => measured,
            Err(_) if turn.admit(attachment) == Err(TurnOver::Replaced) => return Err(Unanswered::Replaced),
            // Whoever ends it takes the session away as well, and that tells why.
            Err(gone) => return Err(Unanswered::Gone(gone)),
        };
        if let Some(answer) = measured.session.admit(turn, attachment, &self.cancel, header)? {
            return Ok(answer);
        }
        self.stirred.store(true, Ordering::Relaxed);
        let is_prompt = measured.is_prompt();
        let mut begin = || catch_unwind(AssertUnwindSafe(|| measured.begin(header, request, figures)));
        if let Some(begun) = is_prompt.then(|| executor.here(&self.owner, &mut begin)).flatten() {
            match begun.map(Progress::of) {
                Ok(Progress::Answered(answer)) => {
                    self.tell_if_stale(measured, figures);
                    return answer.map_err(Unanswered::Fault);
                }
                Ok(Progress::Waits | Progress::Ended) => {}
                Err(panic) => {
                    return Err(Unanswered::Gone(slot.lose(JobError::Panicked(panic_message(&*panic)))));
                }
            }
        }
        self.answer_on_worker(slot, AttachedRequest { attachment, header, request }, executor, figures).await
    }

    /// Has the request with that number answered with the lanes that are done, if it waits for more.
    pub(crate) fn hasten(&self, number: u32) {
        self.hastened.store(number, Ordering::Relaxed);
    }

    /// Lends the session to a thread that steps it for as long as this attachment may go on.
    pub(crate) async fn take_out(
        &self,
        attachment: u64,
    ) -> Result<(TakenSession<'_>, Box<MeasuredSession>), Unanswered> {
        let mut slot = self.slot.lock().await;
        if self.turn.borrow().admit(attachment) == Err(TurnOver::Replaced) {
            return Err(Unanswered::Replaced);
        }
        if self.cancel.is_cancelled() {
            return Err(Unanswered::Ended);
        }
        let measured = slot.take().map_err(Unanswered::Gone)?;
        self.taken.store(true, Ordering::Relaxed);
        self.stirred.store(true, Ordering::Relaxed);
        Ok((TakenSession { owned: self, slot }, measured))
    }

    /// Has workers carry a request out. While it waits for lanes that finish when they finish, workers look after it by
    /// turns, so that others have theirs.
    async fn answer_on_worker(
        &self,
        mut slot: MutexGuard<'_, Slot>,
        asked: AttachedRequest<'_>,
        executor: &Executor,
        figures: &Arc<NodeFigures>,
    ) -> Result<Bytes, Unanswered> {
        let AttachedRequest { attachment, header, request } = asked;
        loop {
            let measured = slot.take().map_err(Unanswered::Gone)?;
            let (crew, waits) = (measured.session.crew(), waits_for_others(&measured.session));
            let turned = self.turn.borrow().admit(attachment).is_err();
            let work = self.work(header, turned, Arc::clone(figures));
            let parts = (measured, std::mem::take(request));
            let worked = match executor.submit_with((crew, &self.owner), parts, work, waits) {
                Ok(worked) => worked.await,
                Err(full) => {
                    let (refusal, retry_after) = (full.refusal(), full.retry_after);
                    let (given, back) = full.given;
                    *request = back;
                    *slot = Slot::Here(given);
                    let Ok(given) = slot.here() else { continue };
                    if given.session.is_gathering() {
                        tokio::time::sleep(retry_after).await;
                        continue;
                    }
                    figures.threads.busy.add(1);
                    figures.refusals.add_owner(refusal.code.word());
                    return Ok(given.session.refuse(header.number, &refusal));
                }
            };
            let Worked { mut measured, request: back, answer } = match worked {
                Ok(Ok(worked)) => worked,
                Ok(Err(error)) => return Err(Unanswered::Gone(slot.lose(error))),
                // The executor went away with the job.
                Err(_) => {
                    return Err(Unanswered::Gone(slot.lose(JobError::Panicked(GOING_AWAY.to_owned()))));
                }
            };
            *request = back;
            self.tell_if_stale(&mut measured, figures);
            *slot = Slot::Here(measured);
            match answer {
                Progress::Answered(answer) => return answer.map_err(Unanswered::Fault),
                Progress::Ended => return Err(Unanswered::Ended),
                Progress::Waits => {}
            }
        }
    }

    /// Returns the job that begins a request or, if it waits for lanes, waits for a moment more. If it is `turned` away,
    /// it waits for none.
    fn work(
        &self,
        header: FrameHeader,
        turned: bool,
        figures: Arc<NodeFigures>,
    ) -> impl FnOnce((Box<MeasuredSession>, FrameRequest)) -> Worked + Send + use<> {
        let (cancel, hastened) = (self.cancel.clone(), Arc::clone(&self.hastened));
        move |(mut measured, request)| {
            let ends = || cancel.is_cancelled();
            let hastens = || turned || ends() || hastened.load(Ordering::Relaxed) == header.number;
            let mut answer = if ends() {
                Progress::Ended
            } else if measured.session.is_gathering() {
                Progress::Waits
            } else {
                Progress::of(measured.begin(header, &request, &figures))
            };
            if matches!(answer, Progress::Waits)
                && let Some(gathered) = measured.gather(TURN, hastens, &figures)
            {
                answer = Progress::Answered(Ok(gathered));
            }
            Worked { measured, request, answer }
        }
    }

    /// Runs one command, between two requests of frames: a short one on this thread, with a worker one that is long or
    /// may hang. Commands come in between whichever attachment steps the session. An error without a reason means that
    /// the session ends and the command was not done. Not cancellation-safe: if it is dropped while a worker has the
    /// session, the session is lost.
    pub(crate) async fn command(
        &self,
        command: Envelope,
        executor: &Executor,
        figures: &NodeFigures,
    ) -> Result<Envelope, Option<Gone>> {
        if self.taken.load(Ordering::Relaxed) {
            let message = "the session's owner is attached by memory, and commands go through it";
            let refusal = Refusal::busy(message, TAKEN_RETRY_MS);
            return Ok(Envelope { payload: Vec::new(), ..command }.answered::<()>(Err(refusal)));
        }
        let mut slot = self.slot.lock().await;
        let measured = slot.here().map_err(Some)?;
        if self.cancel.is_cancelled() {
            return Err(None);
        }
        if measured.session.is_prompt() && measured.session.lanes() <= PROMPT_LANES {
            let span = command.span();
            let done = catch_unwind(AssertUnwindSafe(|| span.in_scope(|| measured.session.command(command))));
            self.tell_if_stale(measured, figures);
            return done.map_err(|panic| Some(slot.lose(JobError::Panicked(panic_message(&*panic)))));
        }
        let (crew, waits) = (measured.session.crew(), waits_for_others(&measured.session));
        let measured = slot.take().map_err(Some)?;
        let (cancel, span) = (self.cancel.clone(), command.span());
        let work = move |(mut measured, command): (Box<MeasuredSession>, Envelope)| {
            let _within = span.enter();
            let answer = (!cancel.is_cancelled()).then(|| measured.session.command(command));
            (measured, answer)
        };
        let asked = Envelope { payload: Vec::new(), ..command.clone() };
        let done = match executor.submit_with((crew, &self.owner), (measured, command), work, waits) {
            Ok(done) => done.await,
            Err(full) => {
                figures.threads.busy.add(1);
                let refusal = full.refusal();
                *slot = Slot::Here(full.given.0);
                figures.refusals.add_owner(refusal.code.word());
                return Ok(asked.answered::<()>(Err(refusal)));
            }
        };
        match done {
            Ok(Ok((measured, answer))) => {
                *slot = Slot::Here(measured);
                answer.ok_or(None)
            }
            Ok(Err(error)) => Err(Some(slot.lose(error))),
            // The executor went away with the job.
            Err(_) => Err(Some(slot.lose(JobError::Panicked(GOING_AWAY.to_owned())))),
        }
    }

    /// Reports what was done if that has not been reported for a while.
    fn tell_if_stale(&self, measured: &mut MeasuredSession, figures: &NodeFigures) {
        if measured.is_stale() {
            measured.tell(&self.told, figures);
        }
    }

    /// Looks after a session that nobody steps just now (one that is being stepped does so by itself). Reports what was
    /// done if that has not been reported for a while, and hands over what was recorded if nothing has been asked for a
    /// while, so that episodes that have ended reach the store although their trainer is busy elsewhere.
    pub(crate) fn tell_if_idle(&self, figures: &NodeFigures) {
        if let Ok(mut slot) = self.slot.try_lock()
            && let Slot::Here(measured) = &mut *slot
        {
            self.tell_if_stale(measured, figures);
            measured.hand_over_if_idle();
            self.stirred.store(!measured.is_at_rest(), Ordering::Relaxed);
        }
    }

    /// Returns when what was recorded is to be handed over unless a request comes before; `None` if nothing waits for that,
    /// or another thread has the session and sees to it.
    pub(crate) fn hand_over_at(&self) -> Option<Instant> {
        match &*self.slot.try_lock().ok()? {
            Slot::Here(measured) => measured.hand_over_at(),
            Slot::Away(_) | Slot::Gone(_) => None,
        }
    }

    /// Hands over what was recorded of a session that nobody steps just now: here if that is short, else on a worker. Not
    /// cancellation-safe: if it is dropped while a worker has the session, the session is lost.
    pub(crate) async fn hand_over_if_idle(&self, executor: &Executor) {
        let Ok(mut slot) = self.slot.try_lock() else { return };
        let Ok(measured) = slot.here() else { return };
        if measured.session.is_prompt() && measured.session.lanes() <= PROMPT_LANES {
            return measured.hand_over_if_idle();
        }
        let (crew, waits) = (measured.session.crew(), waits_for_others(&measured.session));
        let Ok(measured) = slot.take() else { return };
        let work = |mut measured: Box<MeasuredSession>| {
            measured.hand_over_if_idle();
            measured
        };
        match executor.submit_with((crew, &self.owner), measured, work, waits) {
            Ok(done) => match done.await {
                Ok(Ok(measured)) => *slot = Slot::Here(measured),
                // Whoever asks for it next gets the reason.
                Ok(Err(error)) => drop(slot.lose(error)),
                Err(_) => drop(slot.lose(JobError::Panicked(GOING_AWAY.to_owned()))),
            },
            Err(full) => {
                let pause = full.retry_after;
                *slot = Slot::Here(full.given);
                drop(slot);
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Shows watchers what they want of a session that nobody steps just now; a thread that steps a session does so
    /// itself.
    pub(crate) fn attend_watchers(&self) {
        if let Ok(mut slot) = self.slot.try_lock()
            && let Slot::Here(measured) = &mut *slot
            && measured.session.is_prompt()
        {
            let shown = catch_unwind(AssertUnwindSafe(|| measured.session.attend_watchers()));
            if let Err(panic) = shown {
                slot.lose(JobError::Panicked(panic_message(&*panic)));
            }
        }
    }

    /// Sends the owner away for good, and lets the lanes go with the last who holds the session.
    pub(crate) fn cut_off(&self) {
        self.turn.send_modify(Turn::end);
    }

    /// Ends the session: sends its owner away, waits for the step under way, ends open episodes and hands everything to
    /// the recorder. Returns the final cause, which is another one than `wanted` if the session was lost meanwhile.
    pub(crate) async fn end(&self, wanted: Gone, executor: &Executor, figures: &NodeFigures) -> Gone {
        self.cancel.end(wanted.cause.interruption());
        self.turn.send_modify(Turn::end);
        let mut slot = self.slot.lock().await;
        let measured = match slot.take() {
            Ok(measured) => measured,
            Err(gone) => return gone,
        };
        let recording = measured.session.recording_watch();
        *slot = Slot::Gone(wanted.clone());
        drop(slot);
        match finish(&self.owner, measured, wanted.cause.interruption(), executor).await {
            Ok(stats) => {
                self.told.update((&stats).into(), figures);
                wanted
            }
            Err(error) => gone_by(&error, &recording),
        }
    }
}

impl Drop for TakenSession<'_> {
    fn drop(&mut self) {
        self.owned.taken.store(false, Ordering::Relaxed);
    }
}

impl TakenSession<'_> {
    /// Puts the session back, so that others may step it.
    pub(crate) fn give_back(mut self, mut measured: Box<MeasuredSession>, figures: &NodeFigures) {
        self.owned.tell_if_stale(&mut measured, figures);
        *self.slot = Slot::Here(measured);
    }

    /// Notes that the session does not come back, and returns why it is gone.
    pub(crate) fn lose(mut self, error: JobError) -> Gone {
        self.slot.lose(error)
    }
}

/// Ends open episodes and reports what was done: here if that is short, else on a worker, waiting for a place.
async fn finish(
    owner: &Claimant,
    measured: Box<MeasuredSession>,
    cause: Interruption,
    executor: &Executor,
) -> Result<rollhouse_engine::Stats, JobError> {
    let finish = move |measured: Box<MeasuredSession>| measured.session.finish(cause);
    let panicked = |error: String| JobError::Panicked(error);
    let finished = if measured.session.is_prompt() && measured.session.lanes() <= PROMPT_LANES {
        let finished = catch_unwind(AssertUnwindSafe(|| finish(measured)));
        finished.map_err(|panic| panicked(panic_message(&*panic)))?
    } else {
        let mut measured = measured;
        let result = loop {
            let (crew, waits) = (measured.session.crew(), waits_for_others(&measured.session));
            match executor.submit_with((crew, owner), measured, finish, waits) {
                Ok(result) => break result,
                Err(full) => {
                    measured = full.given;
                    tokio::time::sleep(full.retry_after).await;
                }
            }
        };
        result.await.map_err(|_| panicked("the node is going away".to_owned()))??
    };
    finished.map_err(|error| panicked(error.to_string()))
}

impl Slot {
    /// Returns the session, if it is there.
    fn here(&mut self) -> Result<&mut Box<MeasuredSession>, Gone> {
        match self {
            Self::Here(measured) => Ok(measured),
            Self::Away(_) => Err(Gone { cause: EndCause::Failed, detail: LOST_ON_THE_WAY.to_owned() }),
            Self::Gone(gone) => Err(gone.clone()),
        }
    }

    /// Takes the session away for a thread.
    fn take(&mut self) -> Result<Box<MeasuredSession>, Gone> {
        let away = Self::Away(self.here()?.session.recording_watch());
        match std::mem::replace(self, away) {
            Self::Here(measured) => Ok(measured),
            Self::Away(_) | Self::Gone(_) => unreachable!("it was measured just now"),
        }
    }

    /// Notes that the session was lost with the thread that had it.
    fn lose(&mut self, error: JobError) -> Gone {
        let none = RecordingWatch::default();
        let gone = gone_by(&error, if let Self::Away(recording) = self { recording } else { &none });
        *self = Self::Gone(gone.clone());
        gone
    }
}

/// Returns why a session is gone that a thread had. If the thread hangs, the recording is cut short here, as nobody
/// else ends its open episodes.
fn gone_by(error: &JobError, recording: &RecordingWatch) -> Gone {
    if matches!(error, JobError::Hung(_)) {
        recording.cut_short(Interruption::Hung);
    }
    Gone { cause: cause_of(error), detail: error.to_string() }
}

const fn cause_of(error: &JobError) -> EndCause {
    match error {
        JobError::Hung(_) => EndCause::Hung,
        JobError::Panicked(_) => EndCause::Failed,
    }
}

/// Time for which a worker looks after a request that waits for lanes, before it is the turn of others.
const TURN: Duration = Duration::from_millis(5);

/// Most lanes whose open episodes are ended on the calling thread: this takes a few hundred microseconds at most.
const PROMPT_LANES: usize = 1_024;

/// Pause after which a caller that found the session taken may try again; an owner that has gone is noticed sooner.
const TAKEN_RETRY_MS: u64 = 50;

/// Message for callers whose job ended with the executor.
const GOING_AWAY: &str = "the node is going away";

/// Message for callers that come after a task was ended by force while another thread had the session.
const LOST_ON_THE_WAY: &str = "the session was lost while another thread had it";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::Crew;
    use rollhouse_core::{AutoresetMode, RecordRule, SeedSchedule};
    use std::sync::mpsc::{SyncSender, sync_channel};

    use rollhouse_core::RunId;
    use rollhouse_env::Registry;
    use rollhouse_wire::{ColumnBuffer, FrameKind, LaneSettings, OpenSession, Secret};

    use crate::SessionPlan;

    /// A session of an env that may wait, so that workers step it.
    fn owned() -> OwnedHandle {
        let open = OpenSession {
            session: SessionId { pool: RunId::from_u128(1), index: 0 },
            incarnation: Incarnation { term: 1, counter: 1 },
            secret: Secret::from_bytes([0; 16]),
            owner: "trainer".to_owned(),
            operates: false,
            first_lane: 0,
            lanes: 1,
            pool_lanes: 1,
            replaces: false,
            resume: None,
            settings: LaneSettings {
                env: "test/Faulty-v0".into(),
                env_kwargs: String::new(),
                deterministic: None,
                infos: Default::default(),
                options: Default::default(),
                autoreset: AutoresetMode::NextStep,
                max_episode_steps: None,
                seeds: SeedSchedule::PerEpisode { run_seed: 3 },
                record: RecordRule::None,
                collect: None,
                replay: None,
                step_columns: rollhouse_core::StepColumns::default(),
            },
        };
        let plan = SessionPlan::of(&open, &Registry::builtin(), "test 1").unwrap();
        let session = OwnedSession::make(Arc::new(plan), None).unwrap();
        let (placed, owner) = ((open.session, open.incarnation), Claimant::owner("trainer"));
        OwnedHandle::new(placed, owner, Cancel::default(), 64, session, Arc::default())
    }

    /// Holds the only worker until it is let go.
    fn hold(executor: &Executor) -> SyncSender<()> {
        let (let_go, go) = sync_channel(1);
        let (began, begun) = sync_channel(1);
        let work = move || {
            began.send(()).unwrap();
            go.recv().unwrap();
        };
        drop(
            executor.submit((Crew::Waiting, &Claimant::owner("trainer")), work, Box::new(|| false)).unwrap(),
        );
        begun.recv().unwrap();
        let_go
    }

    fn header(kind: FrameKind, number: u32, columns: u32) -> FrameHeader {
        FrameHeader { kind, flags: 0, number, columns, sidecar: 0 }
    }

    #[test]
    fn whatever_ends_a_session_no_request_and_no_command_that_was_queued_for_it_runs() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for cause in [EndCause::Closed, EndCause::LeaseEnded, EndCause::Drained, EndCause::Finished] {
            let figures: Arc<NodeFigures> = Arc::default();
            let executor = Executor::of_one(Duration::from_secs(60), Arc::clone(&figures));
            let owned = owned();
            let (answered, waited, commanded, gone) = runtime.block_on(async {
                owned.take_over(1, false).await.unwrap();
                let mut reset = FrameRequest::default();
                let asked = header(FrameKind::Reset, 1, 0);
                owned.answer(1, asked, &mut reset, &executor, &figures).await.unwrap();
                let let_go = hold(&executor);
                let step = || {
                    let mut columns = ColumnBuffer::default();
                    columns.resize(8);
                    FrameRequest { columns, sidecar: Vec::new() }
                };
                let (mut first, mut second) = (step(), step());
                let asked = header(FrameKind::Step, 2, 8);
                let command = Envelope::command(1, "get_attributes", &()).unwrap();
                // The first waits for the worker, the others for the session, and the end after them.
                tokio::join!(
                    biased;
                    owned.answer(1, asked, &mut first, &executor, &figures),
                    owned.answer(1, asked, &mut second, &executor, &figures),
                    owned.command(command, &executor, &figures),
                    async {
                        let end = owned.end(Gone { cause, detail: String::new() }, &executor, &figures);
                        let let_go = async { let_go.send(()).unwrap() };
                        tokio::join!(biased; end, let_go).0
                    },
                )
            });
            assert!(matches!(answered, Err(Unanswered::Ended)), "{cause:?}: {answered:?}");
            assert!(matches!(waited, Err(Unanswered::Ended)), "{cause:?}: {waited:?}");
            assert!(matches!(commanded, Err(None)), "{cause:?}: {commanded:?}");
            assert_eq!(gone.cause, cause);
            let tally = owned.told.tally();
            let open = rollhouse_core::Outcome::Interrupted(cause.interruption()).code();
            assert_eq!((tally.steps, tally.outcomes[usize::from(open)]), (0, 1), "{cause:?}");
        }
    }

    #[test]
    fn a_request_for_which_the_queue_has_no_place_is_refused_as_busy_and_may_come_again() {
        let figures: Arc<NodeFigures> = Arc::default();
        let executor = Executor::of_one(Duration::from_secs(60), Arc::clone(&figures));
        let owned = owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            owned.take_over(1, false).await.unwrap();
            let let_go = hold(&executor);
            while let Ok(queued) =
                executor.submit((Crew::Waiting, &Claimant::owner("trainer")), || (), Box::new(|| false))
            {
                drop(queued);
            }
            let mut reset = FrameRequest::default();
            let asked = header(FrameKind::Reset, 1, 0);
            owned.answer(1, asked, &mut reset, &executor, &figures).await.unwrap();
            assert_eq!((figures.threads.busy.get(), owned.told.tally().steps), (1, 0));
            let_go.send(()).unwrap();
            while executor.queued() > 0 {
                tokio::task::yield_now().await;
            }
            owned.answer(1, asked, &mut reset, &executor, &figures).await.unwrap();
            assert_eq!(figures.threads.busy.get(), 1);
        });
    }
}

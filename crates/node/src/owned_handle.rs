//! A session that its owner steps, as the node's threads reach it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rollhouse_core::{Claimant, EnvSpec, Interruption, panic_message};
use rollhouse_env::EnvEntry;
use rollhouse_wire::{EndCause, Envelope, FrameHeader, FrameKind, Incarnation, Refusal, SessionId};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, oneshot};

use crate::executor::{Executor, Full, JobError, JobResult};
use crate::live::Live;
use crate::measured::{MeasuredSession, Progress, waits_for_others};
use crate::owned::{FrameRequest, OwnedSession, RecordingWatch, Unanswered};
use crate::session_status::{SessionStatus, StatusChanges};
use crate::tally::ReportedTally;
use crate::turn::TurnOver;
use crate::{EnvFigures, Gone, NodeFigures};

/// A session stepped by its owner.
///
/// ```text
/// here --short batch--> stepped on the data thread --> here
/// here --long batch---> lent to a worker --> here
///                       lent to a worker --hangs, panics--> gone
/// here --attached by memory--> lent to a thread of its own --detached--> here
///                              lent to a thread of its own --hangs, panics--> gone
/// here --ended--> gone
/// ```
///
/// A session whose request waits for lanes is here meanwhile: its task sleeps on the lanes' descriptor, and takes a worker
/// when there is something to collect. What was lent comes back by itself, whatever becomes of the task that lent it.
#[derive(Debug)]
pub(crate) struct OwnedHandle {
    pub(crate) id: SessionId,
    pub(crate) incarnation: Incarnation,
    owner: Claimant,
    pub(crate) lanes: u32,
    /// Whether the lanes are live.
    pub(crate) paced: bool,
    /// Bytes of the columns of the largest request.
    pub(crate) max_columns: usize,
    /// What everyone sees of it; whoever waits for it or for its lanes sleeps on that.
    pub(crate) status: SessionStatus,
    /// The session itself. The holder of the lock steps the session, lends it, or ends it.
    slot: Mutex<Slot>,
    told: Arc<ReportedTally>,
    live: Arc<Live>,
    /// The env of the lanes.
    entry: Arc<EnvEntry>,
}

#[derive(Debug)]
enum Slot {
    Here(Box<MeasuredSession>),
    /// A thread has the session, which comes back by this, or is gone.
    Lent(JobResult<Box<MeasuredSession>>, RecordingWatch),
    Gone(Gone),
}

/// The way back of a session that the thread of its memory has.
///
/// If it is dropped without the session having been given back, the session is gone.
#[derive(Debug)]
pub(crate) struct Loan<'a> {
    owned: &'a OwnedHandle,
    back: Option<oneshot::Sender<Result<Box<MeasuredSession>, JobError>>>,
}

/// What has become of a request that waits for ticks.
enum Ticked {
    Answered(Bytes),
    /// It waits for the next one, at that time.
    Waits(Instant),
}

/// Why something was not done with a session.
enum NotDone<G> {
    /// There is no place for it; what it was given comes back.
    Full(Full<G>),
    Gone(Gone),
}

impl OwnedHandle {
    pub(crate) fn new(
        (id, incarnation): (SessionId, Incarnation),
        owner: Claimant,
        status: SessionStatus,
        max_columns: usize,
        session: OwnedSession,
        env: Arc<EnvFigures>,
    ) -> Self {
        let (lanes, live) = (session.lanes() as u32, Arc::clone(session.live()));
        let paced = session.is_paced();
        let entry = Arc::clone(session.entry());
        let measured = MeasuredSession::new(session, Arc::clone(&env));
        Self {
            id,
            incarnation,
            owner,
            lanes,
            paced,
            max_columns,
            status,
            slot: Mutex::new(Slot::Here(Box::new(measured))),
            told: Arc::new(ReportedTally::of_owner(env)),
            live,
            entry,
        }
    }

    /// Returns what the env of the lanes says of itself.
    pub(crate) fn spec(&self) -> &EnvSpec {
        self.entry.spec()
    }

    /// Returns the place where the session reports what it has done.
    pub(crate) const fn told(&self) -> &Arc<ReportedTally> {
        &self.told
    }

    /// Sends earlier attachments away and waits until their requests are done. Returns the number of the last request
    /// that was answered, and whether answers say what a log needs; they do so only if the owner wants it (`log`).
    pub(crate) async fn take_over(&self, attachment: u64, log: bool) -> Result<(u32, bool), Gone> {
        let away_since = self.status.take_over(attachment);
        let mut slot = self.slot.lock().await;
        let measured = slot.here().await?;
        measured.session.attend(away_since);
        let logs = log && measured.session.keep_log();
        self.status.set_movable(logs);
        Ok((measured.session.last(), logs))
    }

    /// Returns the place where the thread that steps and the watchers meet.
    pub(crate) const fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Answers one request: steps a short one on this thread, and has a worker do one that is long or may hang. No thread is
    /// held while it waits for lanes that finish when they finish. Once the session's token is raised nothing moves, wherever
    /// the request waits. Cancellation-safe: the next request of that number goes on with it.
    pub(crate) async fn answer(
        &self,
        attachment: u64,
        header: FrameHeader,
        request: &mut FrameRequest,
        executor: &Executor,
        figures: &Arc<NodeFigures>,
    ) -> Result<Bytes, Unanswered> {
        let mut slot = self.slot.lock().await;
        let turn = self.status.turn();
        let measured = match slot.here().await {
            Ok(measured) => measured,
            Err(_) if turn.admit(attachment) == Err(TurnOver::Replaced) => return Err(Unanswered::Replaced),
            // Whoever ends it takes the session away as well, and that tells why.
            Err(gone) => return Err(Unanswered::Gone(gone)),
        };
        if let Some(answer) = measured.session.admit(turn, attachment, self.status.token(), header)? {
            return Ok(answer);
        }
        // Playing takes as long as its steps, and a policy is as long as its file.
        let is_long = matches!(header.kind, FrameKind::Play | FrameKind::Policy);
        if !is_long
            && measured.is_prompt()
            && let Some(begun) =
                executor.here(&self.owner, || slot.with(|measured| measured.begin(header, request, figures)))
            && let Some(answer) = begun.map_err(Unanswered::Gone)?.transpose()
        {
            self.tell_if_stale(&mut slot, figures);
            return answer.map_err(Unanswered::Fault);
        }
        self.answer_on_worker(&mut slot, (attachment, header, request), executor, figures).await
    }

    /// Has workers carry a request out, one after the other if it waits for lanes.
    async fn answer_on_worker(
        &self,
        slot: &mut Slot,
        (attachment, header, request): (u64, FrameHeader, &mut FrameRequest),
        executor: &Executor,
        figures: &Arc<NodeFigures>,
    ) -> Result<Bytes, Unanswered> {
        let mut changes = self.status.changes();
        loop {
            let hastened = self.status.is_hastened(attachment, header.number);
            if let Some(until) = self.tick_here(slot, (header, hastened), figures)? {
                match until {
                    Ticked::Answered(answer) => return Ok(answer),
                    Ticked::Waits(until) => sleep(slot, Some(until), &mut changes).await,
                }
                if self.status.token().is_cancelled() {
                    return Err(Unanswered::Ended);
                }
                continue;
            }
            let work = self.work(header, (hastened, executor.queued() == 0), Arc::clone(figures));
            let progress = match self.on_worker(slot, std::mem::take(request), executor, work).await {
                Ok((given, progress)) => {
                    *request = given;
                    progress
                }
                Err(NotDone::Gone(gone)) => return Err(Unanswered::Gone(gone)),
                Err(NotDone::Full(full)) => {
                    let (refusal, retry_after) = (full.refusal(), full.retry_after);
                    *request = full.given;
                    let session = &mut slot.here().await.map_err(Unanswered::Gone)?.session;
                    if session.is_gathering() {
                        tokio::time::sleep(retry_after).await;
                        continue;
                    }
                    figures.threads.busy.add(1);
                    figures.refusals.add_owner(refusal.code.word());
                    return Ok(session.refuse(header.number, &refusal));
                }
            };
            match progress {
                Progress::Answered(answer) => {
                    self.tell_if_stale(slot, figures);
                    return answer.map_err(Unanswered::Fault);
                }
                Progress::Ended => return Err(Unanswered::Ended),
                Progress::Waits(until) => {
                    sleep(slot, until, &mut changes).await;
                    if self.status.token().is_cancelled() {
                        return Err(Unanswered::Ended);
                    }
                }
            }
        }
    }

    /// Goes on with a request that waits for ticks of live lanes, on this thread if they are short; `None` if they are not, or it
    /// waits for something else.
    fn tick_here(
        &self,
        slot: &mut Slot,
        (header, hastened): (FrameHeader, bool),
        figures: &Arc<NodeFigures>,
    ) -> Result<Option<Ticked>, Unanswered> {
        let Some(measured) = slot.at_hand() else { return Ok(None) };
        let session = &measured.session;
        if !(session.is_gathering() && session.is_paced() && !session.is_late() && measured.is_prompt()) {
            return Ok(None);
        }
        let collect =
            |measured: &mut MeasuredSession| measured.collect(header.kind, (hastened, false), figures);
        match slot.with(collect).map_err(Unanswered::Gone)? {
            Progress::Answered(answer) => {
                answer.map(|answer| Some(Ticked::Answered(answer))).map_err(Unanswered::Fault)
            }
            Progress::Waits(until) => Ok(Some(Ticked::Waits(until.unwrap_or_else(Instant::now)))),
            Progress::Ended => Err(Unanswered::Ended),
        }
    }

    /// Lends the session to a thread that steps it for as long as this attachment may go on.
    pub(crate) async fn take_out(
        &self,
        attachment: u64,
    ) -> Result<(Loan<'_>, Box<MeasuredSession>), Unanswered> {
        let mut slot = self.slot.lock().await;
        if self.status.turn().admit(attachment) == Err(TurnOver::Replaced) {
            return Err(Unanswered::Replaced);
        }
        if self.status.token().is_cancelled() {
            return Err(Unanswered::Ended);
        }
        let measured = slot.take().await.map_err(Unanswered::Gone)?;
        let (back, comes_back) = oneshot::channel();
        *slot = Slot::Lent(comes_back, measured.session.recording_watch());
        self.status.set_in_memory(true);
        Ok((Loan { owned: self, back: Some(back) }, measured))
    }

    /// Returns the job that begins a request or, if it waits for lanes, collects those that are done.
    fn work(
        &self,
        header: FrameHeader,
        (hastened, idle): (bool, bool),
        figures: Arc<NodeFigures>,
    ) -> impl FnOnce(&mut MeasuredSession, FrameRequest) -> (FrameRequest, Progress) + Send + use<> {
        let token = self.status.token().clone();
        move |measured, request| {
            if token.is_cancelled() {
                return (request, Progress::Ended);
            }
            if !measured.session.is_gathering()
                && let Some(begun) = measured.begin(header, &request, &figures).transpose()
            {
                return (request, Progress::Answered(begun));
            }
            (request, measured.collect(header.kind, (hastened, idle), &figures))
        }
    }

    /// Runs one command, between two requests of frames: a short one on this thread, with a worker one that is long or
    /// may hang. Commands come in between whichever attachment steps the session. An error without a reason means that
    /// the session ends and the command was not done. Cancellation-safe, but the command may be done.
    pub(crate) async fn command(
        &self,
        command: Envelope,
        executor: &Executor,
        figures: &NodeFigures,
    ) -> Result<Envelope, Option<Gone>> {
        let asked = Envelope { payload: Vec::new(), ..command.clone() };
        if self.status.is_in_memory() {
            let message = "the session's owner is attached by memory, and commands go through it";
            return Ok(asked.answered::<()>(Err(Refusal::busy(message, TAKEN_RETRY_MS))));
        }
        let mut slot = self.slot.lock().await;
        slot.here().await.map_err(Some)?;
        if self.status.token().is_cancelled() {
            return Err(None);
        }
        let (token, span) = (self.status.token().clone(), command.span());
        let work = move |measured: &mut MeasuredSession, command| {
            let _within = span.enter();
            (!token.is_cancelled()).then(|| measured.session.command(command))
        };
        match self.do_now(&mut slot, command, executor, work).await {
            Ok(answer) => {
                self.tell_if_stale(&mut slot, figures);
                answer.ok_or(None)
            }
            Err(NotDone::Gone(gone)) => Err(Some(gone)),
            Err(NotDone::Full(full)) => {
                let refusal = full.refusal();
                figures.threads.busy.add(1);
                figures.refusals.add_owner(refusal.code.word());
                Ok(asked.answered::<()>(Err(refusal)))
            }
        }
    }

    /// Does something with the session: on this thread if it is short, else on a worker. Cancellation-safe, but it may be
    /// done.
    async fn do_now<G: Send + 'static, R: Send + 'static>(
        &self,
        slot: &mut Slot,
        given: G,
        executor: &Executor,
        work: impl FnOnce(&mut MeasuredSession, G) -> R + Send + 'static,
    ) -> Result<R, NotDone<G>> {
        if slot.here().await.map_err(NotDone::Gone)?.is_short() {
            return slot.with(|measured| work(measured, given)).map_err(NotDone::Gone);
        }
        self.on_worker(slot, given, executor, work).await
    }

    /// Has a worker do something with the session, which is lent to it. Cancellation-safe, but it may be done.
    async fn on_worker<G: Send + 'static, R: Send + 'static>(
        &self,
        slot: &mut Slot,
        given: G,
        executor: &Executor,
        work: impl FnOnce(&mut MeasuredSession, G) -> R + Send + 'static,
    ) -> Result<R, NotDone<G>> {
        let measured = slot.take().await.map_err(NotDone::Gone)?;
        let (crew, waits) = (measured.session.crew(), waits_for_others(&measured.session));
        let recording = measured.session.recording_watch();
        let (tell, told) = oneshot::channel();
        let job = move |(mut measured, given): (Box<MeasuredSession>, G)| {
            // Whoever asked for it may have gone.
            drop(tell.send(work(&mut measured, given)));
            measured
        };
        match executor.submit_with((crew, &self.owner), (measured, given), job, waits) {
            Ok(back) => *slot = Slot::Lent(back, recording),
            Err(Full { given: (measured, given), over, retry_after }) => {
                *slot = Slot::Here(measured);
                return Err(NotDone::Full(Full { given, over, retry_after }));
            }
        }
        slot.here().await.map_err(NotDone::Gone)?;
        // A session that comes back has told what it was lent for.
        told.await.map_err(|_| NotDone::Gone(lost_on_the_way()))
    }

    /// Reports what was done if that has not been reported for a while.
    fn tell_if_stale(&self, slot: &mut Slot, figures: &NodeFigures) {
        if let Some(measured) = slot.at_hand().filter(|measured| measured.is_stale()) {
            measured.tell(&self.told, figures);
        }
    }

    /// Looks after a session that nobody steps just now (one that is being stepped does so by itself). Reports what was
    /// done if that has not been reported for a while, and hands over what was recorded if nothing has been asked for a
    /// while, so that episodes that have ended reach the store although their trainer is busy elsewhere.
    pub(crate) fn tell_if_idle(&self, figures: &NodeFigures) {
        let Ok(mut slot) = self.slot.try_lock() else { return };
        self.tell_if_stale(&mut slot, figures);
        if let Some(measured) = slot.at_hand() {
            measured.hand_over_if_idle();
        }
    }

    /// Returns when the session is to be looked after unless a request comes before; `None` if nothing waits for that, or
    /// another thread has the session and sees to it.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.slot.try_lock().ok()?.at_hand()?.due_at()
    }

    /// Looks after a session that nobody steps just now: has live lanes tick, and hands over what was recorded. Here if that
    /// is short, else on a worker. Cancellation-safe.
    pub(crate) async fn look_after(&self, executor: &Executor) {
        let Ok(mut slot) = self.slot.try_lock() else { return };
        let done = self.do_now(&mut slot, (), executor, |measured, ()| measured.look_after()).await;
        drop(slot);
        // If it is gone, whoever asks for it next gets the reason.
        if let Err(NotDone::Full(full)) = done {
            tokio::time::sleep(full.retry_after).await;
        }
    }

    /// Shows watchers what they want, between two requests or beside one that waits for lanes. Cancellation-safe.
    pub(crate) async fn attend_watchers(&self, executor: &Executor) {
        self.status.nudge();
        let mut slot = self.slot.lock().await;
        // A wish that is not fulfilled stays; if the session is gone, whoever asks for it next gets the reason.
        let _shown =
            self.do_now(&mut slot, (), executor, |measured, ()| measured.session.attend_watchers()).await;
    }

    /// Ends the session, whose owner has been sent away: waits for the step under way, ends open episodes and hands
    /// everything to the recorder. Returns the final cause, which is another one than `wanted` if the session was lost
    /// meanwhile.
    pub(crate) async fn end(&self, wanted: Gone, executor: &Executor, figures: &NodeFigures) -> Gone {
        self.status.token().end(wanted.cause.interruption());
        let mut slot = self.slot.lock().await;
        let measured = match slot.take().await {
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

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.owned.status.set_in_memory(false);
    }
}

impl Loan<'_> {
    /// Gives the session back, so that others may step it.
    pub(crate) fn give_back(self, mut measured: Box<MeasuredSession>, figures: &NodeFigures) {
        if measured.is_stale() {
            measured.tell(&self.owned.told, figures);
        }
        self.settle(Ok(measured));
    }

    /// Reports that the session does not come back, and returns why.
    pub(crate) fn lose(self, error: JobError) -> Gone {
        let gone = Gone { cause: cause_of(&error), detail: error.to_string() };
        self.settle(Err(error));
        gone
    }

    fn settle(mut self, back: Result<Box<MeasuredSession>, JobError>) {
        if let Some(sender) = self.back.take() {
            // Where nobody waits for it any more, the session goes with its handle.
            drop(sender.send(back));
        }
    }
}

/// Sleeps until lanes for which a request waits may be done, until `until`, or until something of the session changes. No
/// thread is held. Cancellation-safe.
async fn sleep(slot: &mut Slot, until: Option<Instant>, changes: &mut StatusChanges) {
    let (Slot::Here(measured), Some(until)) = (slot, until) else { return };
    let is_late = measured.session.is_late();
    let watched = measured.session.descriptor().map(|lanes| {
        #[expect(
            deprecated,
            reason = "sound for what is borrowed; to go once tokio has a safe form for that"
        )]
        AsyncFd::with_interest(lanes, Interest::READABLE)
    });
    let is_exact = matches!(watched, Some(Ok(_))) || !is_late;
    let until = if is_exact { until } else { until.min(Instant::now() + TURN) };
    let readable = async {
        match &watched {
            Some(Ok(fd)) => drop(fd.readable().await),
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        () = changes.next() => {}
        () = readable => {}
        () = tokio::time::sleep_until(until.into()) => {}
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
    let finished = if measured.is_short() {
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
    /// Returns the session, once it is back if it was lent. Cancellation-safe.
    async fn here(&mut self) -> Result<&mut MeasuredSession, Gone> {
        if let Self::Lent(back, _) = self {
            let back = back.await;
            self.take_back(back.ok());
        }
        match self {
            Self::Here(measured) => Ok(measured),
            Self::Gone(gone) => Err(gone.clone()),
            Self::Lent(..) => Err(lost_on_the_way()),
        }
    }

    /// Returns the session, if it is not lent.
    fn at_hand(&mut self) -> Option<&mut MeasuredSession> {
        if let Self::Lent(back, _) = self
            && let Ok(back) = back.try_recv()
        {
            self.take_back(Some(back));
        }
        if let Self::Here(measured) = self { Some(measured) } else { None }
    }

    /// Takes what comes from a thread to which the session was lent; nothing if the thread is gone.
    fn take_back(&mut self, back: Option<Result<Box<MeasuredSession>, JobError>>) {
        match back {
            Some(Ok(measured)) => *self = Self::Here(measured),
            Some(Err(error)) => drop(self.lose(&error)),
            None => *self = Self::Gone(lost_on_the_way()),
        }
    }

    /// Takes the session away. What it is replaced by says what has become of it.
    async fn take(&mut self) -> Result<Box<MeasuredSession>, Gone> {
        self.here().await?;
        match std::mem::replace(self, Self::Gone(lost_on_the_way())) {
            Self::Here(measured) => Ok(measured),
            Self::Lent(..) | Self::Gone(_) => unreachable!("it was here just now"),
        }
    }

    /// Does something short with the session on this thread. A panic loses the session, and so does one that is not here.
    fn with<R>(&mut self, work: impl FnOnce(&mut MeasuredSession) -> R) -> Result<R, Gone> {
        let Self::Here(measured) = self else { return Err(lost_on_the_way()) };
        let done = catch_unwind(AssertUnwindSafe(|| work(measured)));
        done.map_err(|panic| self.lose(&JobError::Panicked(panic_message(&*panic))))
    }

    /// Notes that the session was lost with the thread that had it.
    fn lose(&mut self, error: &JobError) -> Gone {
        let none = RecordingWatch::default();
        let gone = gone_by(error, if let Self::Lent(_, recording) = self { recording } else { &none });
        *self = Self::Gone(gone.clone());
        gone
    }
}

/// Returns why a session is gone whose thread ended without a word.
fn lost_on_the_way() -> Gone {
    Gone { cause: EndCause::Failed, detail: LOST_ON_THE_WAY.to_owned() }
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

/// Time after which lanes are looked at whose descriptor cannot be slept on: the node has none left.
const TURN: Duration = Duration::from_millis(5);

/// Pause after which a caller that found the session taken may try again; an owner that has gone is noticed sooner.
const TAKEN_RETRY_MS: u64 = 50;

/// Message for callers whose session was with a thread that ended without a word, as those of a node that goes away do.
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
                pace: None,
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
        OwnedHandle::new(placed, owner, SessionStatus::default(), 64, session, Arc::default())
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

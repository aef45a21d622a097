//! A session of the cluster as the node's threads reach it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rollhouse_arena::{Request as MemoryRequest, ServingEnd};
use rollhouse_core::{Interruption, panic_message};
use rollhouse_wire::{
    EndCause, Envelope, FrameHeader, FrameKind, Incarnation, Refusal, SessionCounts, SessionId,
};
use tokio::sync::{Mutex, MutexGuard, watch};

use crate::executor::{Executor, Full, JobError, Waits};
use crate::live::Live;
use crate::owned::{FrameRequest, MemoryFault, OwnedSession, RecordingWatch, RequestFault};
use crate::replay_session::ReplaySession;
use crate::tally::Told;
use crate::turn::{Turn, TurnOver};
use crate::{Cancel, EnvFigures, Exit, NodeFigures, Progress};

/// One session.
#[derive(Debug, Clone)]
pub(crate) enum Hosted {
    /// Stepped by its owner.
    Owned(Arc<Owned>),
    /// Plays by itself.
    Collecting(Arc<Collecting>),
    /// Shows a recorded episode.
    Replay(Arc<ReplaySession>),
}

/// A session stepped by its owner.
///
/// ```text
/// home --short batch--> stepped on the data thread --> home
/// home --long batch---> with a worker --> home
///                       with a worker --hangs, panics--> gone
/// home --attached by memory--> with a thread of its own --detached--> home
///                              with a thread of its own --hangs, panics--> gone
/// home --ended--> gone
/// ```
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) id: SessionId,
    pub(crate) incarnation: Incarnation,
    pub(crate) lanes: u32,
    /// Bytes of the columns of the largest request.
    pub(crate) max_columns: usize,
    /// Whether the owner keeps a log, and so can move the session.
    movable: AtomicBool,
    /// The session's token, raised to end it.
    cancel: Cancel,
    /// The attachment that may go on; a change wakes those that wait when the session ends.
    turn: watch::Sender<Turn>,
    /// The session itself. The holder of the lock steps the session, or ends it.
    slot: Mutex<Slot>,
    /// Whether the session is lent to a thread. That thread's task holds the lock for as long as the owner is attached
    /// by memory.
    lent: AtomicBool,
    /// Whether the session was asked for something since everything was reported and handed over. Set and cleared by
    /// the holder of the lock.
    stirred: AtomicBool,
    told: Arc<Told>,
    live: Arc<Live>,
}

/// A session that plays by itself.
#[derive(Debug)]
pub(crate) struct Collecting {
    pub(crate) progress: Arc<Progress>,
    pub(crate) cancel: Cancel,
    pub(crate) exit: watch::Receiver<Option<Arc<Exit>>>,
    pub(crate) told: Told,
}

#[derive(Debug)]
enum Slot {
    Home(Box<Home>),
    /// A thread has the session; if it does not come back, it is gone.
    Away(RecordingWatch),
    Gone(Gone),
}

#[derive(Debug)]
pub(crate) struct Home {
    session: OwnedSession,
    /// The figures of the env, which time the session's requests.
    env: Arc<EnvFigures>,
    costs: Costs,
    /// Time at which the counts were last reported, if anything was stepped since.
    stale_since: Option<Instant>,
    /// Time of the last request, if its recording has not been handed over yet.
    unflushed_since: Option<Instant>,
}

/// Why a session can be stepped no more.
#[derive(Debug, Clone)]
pub(crate) struct Gone {
    pub(crate) cause: EndCause,
    pub(crate) detail: String,
}

/// Why a request was not answered.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The bytes that came are no request to this session.
    Fault(RequestFault),
    /// Another attachment has taken over.
    Replaced,
    /// The session ends: the request is not done any more.
    Ended,
    /// The session is gone; the caller that finds it so, by a hang or a panic, ends it.
    Gone(Gone),
}

/// A session that a thread has taken, and the lock that is held until it is back.
///
/// If it is dropped without being given back, the session is gone.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    owned: &'a Owned,
    slot: MutexGuard<'a, Slot>,
}

/// The result of a job on a worker, with the session that it was given.
struct Worked {
    home: Box<Home>,
    request: FrameRequest,
    /// The answer; `None` if the session had ended before its turn came.
    answer: Option<Result<Bytes, RequestFault>>,
}

impl Owned {
    pub(crate) fn new(
        (id, incarnation): (SessionId, Incarnation),
        cancel: Cancel,
        max_columns: usize,
        session: OwnedSession,
        env: Arc<EnvFigures>,
    ) -> Self {
        let (lanes, live) = (session.lanes() as u32, Arc::clone(session.live()));
        let home = Home::new(session, Arc::clone(&env));
        Self {
            id,
            incarnation,
            lanes,
            max_columns,
            cancel,
            movable: AtomicBool::new(false),
            turn: watch::Sender::new(Turn::default()),
            slot: Mutex::new(Slot::Home(Box::new(home))),
            lent: AtomicBool::new(false),
            stirred: AtomicBool::new(false),
            told: Arc::new(Told::of_owner(env)),
            live,
        }
    }

    /// Returns the session's token.
    pub(crate) const fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Returns the place where the session reports what it has done.
    pub(crate) const fn told(&self) -> &Arc<Told> {
        &self.told
    }

    /// Sends earlier attachments away and waits until their requests are done. Returns the number of the last request
    /// that was answered, and whether answers say what a log needs; they do so only if the owner wants it (`log`).
    pub(crate) async fn take_over(&self, attachment: u64, log: bool) -> Result<(u32, bool), Gone> {
        self.turn.send_modify(|turn| turn.take_over(attachment));
        let mut slot = self.slot.lock().await;
        let home = slot.home()?;
        let logs = log && home.session.keep_log();
        self.movable.store(logs, Ordering::Relaxed);
        Ok((home.session.last(), logs))
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
        // Whoever ends it takes the session away as well, and that tells why.
        if self.turn.borrow().admit(attachment) == Err(TurnOver::Replaced) {
            return Err(Unanswered::Replaced);
        }
        let home = slot.home().map_err(Unanswered::Gone)?;
        if self.cancel.is_cancelled() {
            return Err(Unanswered::Ended);
        }
        home.session.check(header).map_err(Unanswered::Fault)?;
        if let Some(answer) = home.session.repeated(header.number) {
            return Ok(answer);
        }
        self.stirred.store(true, Ordering::Relaxed);
        if home.session.is_prompt() && home.costs.are_prompt() {
            let handled = catch_unwind(AssertUnwindSafe(|| home.handle(header, request, figures)));
            return match handled {
                Ok(answer) => {
                    self.tell_if_stale(home, figures);
                    answer.map_err(Unanswered::Fault)
                }
                Err(panic) => Err(Unanswered::Gone(slot.lose(JobError::Panicked(panic_message(&*panic))))),
            };
        }
        self.answer_on_worker(slot, header, request, executor, figures).await
    }

    /// Lends the session to a thread that steps it for as long as this attachment may go on.
    pub(crate) async fn lend(&self, attachment: u64) -> Result<(Lent<'_>, Box<Home>), Unanswered> {
        let mut slot = self.slot.lock().await;
        if self.turn.borrow().admit(attachment) == Err(TurnOver::Replaced) {
            return Err(Unanswered::Replaced);
        }
        if self.cancel.is_cancelled() {
            return Err(Unanswered::Ended);
        }
        let home = slot.take().map_err(Unanswered::Gone)?;
        self.lent.store(true, Ordering::Relaxed);
        self.stirred.store(true, Ordering::Relaxed);
        Ok((Lent { owned: self, slot }, home))
    }

    async fn answer_on_worker(
        &self,
        mut slot: MutexGuard<'_, Slot>,
        header: FrameHeader,
        request: &mut FrameRequest,
        executor: &Executor,
        figures: &Arc<NodeFigures>,
    ) -> Result<Bytes, Unanswered> {
        let mut home = slot.take().map_err(Unanswered::Gone)?;
        let waits = waits_for_recorder(&home.session);
        let parts = (home, std::mem::take(request));
        let (own, cancel) = (Arc::clone(figures), self.cancel.clone());
        let work = move |(mut home, request): (Box<Home>, FrameRequest)| {
            let answer = (!cancel.is_cancelled()).then(|| home.handle(header, &request, &own));
            Worked { home, request, answer }
        };
        let worked = match executor.submit_with(parts, work, waits) {
            Ok(worked) => worked.await,
            Err(Full { given: (mut given, asked), retry_after }) => {
                figures.busy.add(1);
                *request = asked;
                let refusal = busy(retry_after);
                figures.refusals.add_owner(refusal.code.word());
                let answer = given.session.refuse(header.number, &refusal);
                *slot = Slot::Home(given);
                return Ok(answer);
            }
        };
        match worked {
            Ok(Ok(worked)) => {
                home = worked.home;
                *request = worked.request;
                self.tell_if_stale(&mut home, figures);
                *slot = Slot::Home(home);
                worked.answer.map_or(Err(Unanswered::Ended), |answer| answer.map_err(Unanswered::Fault))
            }
            Ok(Err(error)) => Err(Unanswered::Gone(slot.lose(error))),
            // The executor went away with the job.
            Err(_) => Err(Unanswered::Gone(slot.lose(JobError::Panicked(GOING_AWAY.to_owned())))),
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
        if self.lent.load(Ordering::Relaxed) {
            let message = "the session's owner is attached by memory, and commands go through it";
            let refusal = Refusal::busy(message, LENT_RETRY_MS);
            return Ok(Envelope { payload: Vec::new(), ..command }.answered::<()>(Err(refusal)));
        }
        let mut slot = self.slot.lock().await;
        let home = slot.home().map_err(Some)?;
        if self.cancel.is_cancelled() {
            return Err(None);
        }
        if home.session.is_prompt() && home.session.lanes() <= PROMPT_LANES {
            let span = command.span();
            let done = catch_unwind(AssertUnwindSafe(|| span.in_scope(|| home.session.command(command))));
            self.tell_if_stale(home, figures);
            return done.map_err(|panic| Some(slot.lose(JobError::Panicked(panic_message(&*panic)))));
        }
        let waits = waits_for_recorder(&home.session);
        let home = slot.take().map_err(Some)?;
        let (cancel, span) = (self.cancel.clone(), command.span());
        let work = move |(mut home, command): (Box<Home>, Envelope)| {
            let _within = span.enter();
            let answer = (!cancel.is_cancelled()).then(|| home.session.command(command));
            (home, answer)
        };
        let asked = Envelope { payload: Vec::new(), ..command.clone() };
        let done = match executor.submit_with((home, command), work, waits) {
            Ok(done) => done.await,
            Err(Full { given: (home, _), retry_after }) => {
                figures.busy.add(1);
                *slot = Slot::Home(home);
                let refusal = busy(retry_after);
                figures.refusals.add_owner(refusal.code.word());
                return Ok(asked.answered::<()>(Err(refusal)));
            }
        };
        match done {
            Ok(Ok((home, answer))) => {
                *slot = Slot::Home(home);
                answer.ok_or(None)
            }
            Ok(Err(error)) => Err(Some(slot.lose(error))),
            // The executor went away with the job.
            Err(_) => Err(Some(slot.lose(JobError::Panicked(GOING_AWAY.to_owned())))),
        }
    }

    /// Reports what was done if that has not been reported for a while.
    fn tell_if_stale(&self, home: &mut Home, figures: &NodeFigures) {
        if home.stale_since.is_some_and(|since| since.elapsed() >= TELL_EVERY) {
            home.tell(&self.told, figures);
        }
    }

    /// Looks after a session that nobody steps just now (one that is being stepped does so by itself). Reports what was
    /// done if that has not been reported for a while, and hands over what was recorded if nothing has been asked for a
    /// while, so that episodes that have ended reach the store although their trainer is busy elsewhere.
    pub(crate) fn tell_if_idle(&self, figures: &NodeFigures) {
        if let Ok(mut slot) = self.slot.try_lock()
            && let Slot::Home(home) = &mut *slot
        {
            self.tell_if_stale(home, figures);
            home.flush_if_idle();
            let at_rest = home.stale_since.is_none() && home.unflushed_since.is_none();
            self.stirred.store(!at_rest, Ordering::Relaxed);
        }
    }

    /// Shows watchers what they want of a session that nobody steps just now; a thread that steps a session does so
    /// itself.
    fn attend_watchers(&self) {
        if let Ok(mut slot) = self.slot.try_lock()
            && let Slot::Home(home) = &mut *slot
            && home.session.is_prompt()
        {
            let shown = catch_unwind(AssertUnwindSafe(|| home.session.attend_watchers()));
            if let Err(panic) = shown {
                slot.lose(JobError::Panicked(panic_message(&*panic)));
            }
        }
    }

    /// Ends the session: sends its owner away, waits for the step under way, ends open episodes and hands everything to
    /// the recorder. Returns the final cause, which is another one than `wanted` if the session was lost meanwhile.
    pub(crate) async fn end(&self, wanted: Gone, executor: &Executor, figures: &NodeFigures) -> Gone {
        self.cancel.end(wanted.cause.interruption());
        self.turn.send_modify(Turn::end);
        let mut slot = self.slot.lock().await;
        let home = match slot.take() {
            Ok(home) => home,
            Err(gone) => return gone,
        };
        let recording = home.session.recording_watch();
        *slot = Slot::Gone(wanted.clone());
        drop(slot);
        match finish(home, wanted.cause.interruption(), executor).await {
            Ok(stats) => {
                self.told.update((&stats).into(), figures);
                wanted
            }
            Err(error) => gone_by(&error, &recording),
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.owned.lent.store(false, Ordering::Relaxed);
    }
}

impl Lent<'_> {
    /// Puts the session back, so that others may step it.
    pub(crate) fn give_back(mut self, mut home: Box<Home>, figures: &NodeFigures) {
        self.owned.tell_if_stale(&mut home, figures);
        *self.slot = Slot::Home(home);
    }

    /// Notes that the session does not come back, and returns why it is gone.
    pub(crate) fn lose(mut self, error: JobError) -> Gone {
        self.slot.lose(error)
    }
}

impl Home {
    pub(crate) fn new(session: OwnedSession, env: Arc<EnvFigures>) -> Self {
        Self { session, env, costs: Costs::default(), stale_since: None, unflushed_since: None }
    }

    /// Returns the session.
    pub(crate) const fn session(&mut self) -> &mut OwnedSession {
        &mut self.session
    }

    /// Serves a request by memory, as [`OwnedSession::serve`]. Reports to `told` now and then what was done.
    #[inline]
    pub(crate) fn serve(
        &mut self,
        end: &mut ServingEnd,
        request: MemoryRequest,
        told: &Told,
        figures: &NodeFigures,
        alive: impl FnMut() -> bool,
    ) -> Result<(), MemoryFault> {
        let began = Instant::now();
        let served = self.session.serve(end, request, alive);
        let took = began.elapsed();
        match request {
            MemoryRequest::Step => self.env.requests.step.observe(took),
            MemoryRequest::Reset => self.env.requests.reset.observe(took),
            MemoryRequest::Lanes => self.env.requests.send.observe(took),
            MemoryRequest::Command => return served,
        }
        self.unflushed_since = Some(began);
        if let Some(code) = self.session.take_refused() {
            figures.refusals.add_owner(code.word());
        }
        if began.duration_since(*self.stale_since.get_or_insert(began)) >= TELL_EVERY {
            self.tell(told, figures);
        }
        served
    }

    /// Returns the time from which the session counts as idle and is looked after, unless a request comes before.
    pub(crate) fn idle_at(&self) -> Option<Instant> {
        if self.session.live().is_watched() {
            return Some(Instant::now() + WATCHED_LOOK);
        }
        // Somebody may come to watch it.
        Some(self.unflushed_since.map_or_else(|| Instant::now() + IDLE_LOOK, |since| since + FLUSH_AFTER))
    }

    /// Looks after a session that was asked for nothing for a while: shows watchers what they want, reports what was
    /// done and hands over what was recorded.
    pub(crate) fn idle(&mut self, told: &Told, figures: &NodeFigures) {
        self.session.attend_watchers();
        if self.unflushed_since.is_none_or(|since| since.elapsed() < FLUSH_AFTER) {
            return;
        }
        self.tell(told, figures);
        self.flush_if_idle();
        if self.unflushed_since.is_some() {
            // It could not be: not before a while has passed again.
            self.unflushed_since = Some(Instant::now());
        }
    }

    /// Reports what was done, if there was anything since the last report.
    #[cold]
    pub(crate) fn tell(&mut self, told: &Told, figures: &NodeFigures) {
        if self.stale_since.take().is_some()
            // An engine of one thread never hangs; one that panicked is gone.
            && let Ok(stats) = self.session.stats()
        {
            told.update((&stats).into(), figures);
        }
    }

    fn handle(
        &mut self,
        header: FrameHeader,
        request: &FrameRequest,
        figures: &NodeFigures,
    ) -> Result<Bytes, RequestFault> {
        let began = Instant::now();
        let answer = self.session.handle(header, request);
        let took = began.elapsed();
        self.costs.note(took);
        self.stale_since.get_or_insert(began);
        self.unflushed_since = Some(began);
        if let Some(code) = self.session.take_refused() {
            figures.refusals.add_owner(code.word());
        }
        match header.kind {
            FrameKind::Reset => self.env.requests.reset.observe(took),
            FrameKind::Send => self.env.requests.send.observe(took),
            _ => self.env.requests.step.observe(took),
        }
        answer
    }
}

/// The costs of the last requests. They are measured by the clock: on a busy machine a thread may lose its core in the
/// middle of the cheapest batch, which says nothing of the next one. So the median of several counts.
#[derive(Debug)]
struct Costs {
    last: [Duration; COSTS],
    next: usize,
}

impl Default for Costs {
    fn default() -> Self {
        // Nobody knows yet: at first a worker does it.
        Self { last: [PROMPT_COST; COSTS], next: 0 }
    }
}

impl Costs {
    fn note(&mut self, cost: Duration) {
        self.last[self.next] = cost;
        self.next = (self.next + 1) % COSTS;
    }

    /// Returns whether most were cheap enough for the data thread.
    fn are_prompt(&self) -> bool {
        self.last.iter().filter(|&&cost| cost < PROMPT_COST).count() > COSTS / 2
    }
}

impl Home {
    fn flush_if_idle(&mut self) {
        let idle = self.unflushed_since.is_some_and(|since| since.elapsed() >= FLUSH_AFTER);
        if idle && !self.session.recording().is_some_and(|run| run.is_behind()) {
            // Refused while lanes are outstanding: they are about to be stepped, and then it is idle later.
            let flushed = self.session.flush().is_ok();
            self.unflushed_since = self.unflushed_since.filter(|_| !flushed);
        }
    }
}

impl Hosted {
    /// Returns the place where the thread that steps and the watchers meet; `None` if no lanes can be watched.
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        match self {
            Self::Owned(owned) => Some(&owned.live),
            Self::Collecting(collecting) => Some(collecting.progress.live()),
            Self::Replay(_) => None,
        }
    }

    /// Sees to it that watchers are shown something although nobody steps the session just now.
    pub(crate) fn attend_watchers(&self) {
        if let Self::Owned(owned) = self {
            owned.attend_watchers();
        }
    }

    /// Waits until the session has ended, or is about to. Cancellation-safe.
    pub(crate) async fn over(&self) {
        match self {
            Self::Owned(owned) => {
                // The sender lives as long as the session, which this holds.
                let mut turns = owned.turns();
                drop(turns.wait_for(Turn::has_ended).await);
            }
            Self::Collecting(collecting) => {
                // The sender is gone only with the session.
                let mut exit = collecting.exit.clone();
                drop(exit.wait_for(Option::is_some).await);
            }
            Self::Replay(replay) => {
                // As of an owned one.
                let mut turns = replay.turns();
                drop(turns.wait_for(Turn::has_ended).await);
            }
        }
    }

    /// Returns what the session has done, as far as it was reported.
    pub(crate) fn counts(&self) -> SessionCounts {
        match self {
            Self::Owned(owned) => owned.told.tally().counts(),
            Self::Collecting(collecting) => collecting.told.tally().counts(),
            // Nothing is played in it.
            Self::Replay(_) => SessionCounts::default(),
        }
    }

    /// Returns the recorded episode that the session shows, if it does.
    pub(crate) fn replay(&self) -> Option<&Arc<ReplaySession>> {
        match self {
            Self::Owned(_) | Self::Collecting(_) => None,
            Self::Replay(replay) => Some(replay),
        }
    }

    /// Returns whether [`Hosted::tell`] may have something to do.
    pub(crate) fn is_stirred(&self) -> bool {
        match self {
            Self::Owned(owned) => owned.stirred.load(Ordering::Relaxed),
            Self::Collecting(_) => true,
            Self::Replay(_) => false,
        }
    }

    /// Reports what was done since the last report.
    pub(crate) fn tell(&self, figures: &NodeFigures) {
        match self {
            Self::Owned(owned) => owned.tell_if_idle(figures),
            Self::Collecting(collecting) => collecting.told.update(collecting.progress.tally(), figures),
            Self::Replay(_) => {}
        }
    }
}

/// Ends open episodes and reports what was done: here if that is short, else on a worker, waiting for a place.
async fn finish(
    home: Box<Home>,
    cause: Interruption,
    executor: &Executor,
) -> Result<rollhouse_engine::Stats, JobError> {
    let finish = move |home: Box<Home>| home.session.finish(cause);
    let panicked = |error: String| JobError::Panicked(error);
    let finished = if home.session.is_prompt() && home.session.lanes() <= PROMPT_LANES {
        let finished = catch_unwind(AssertUnwindSafe(|| finish(home)));
        finished.map_err(|panic| panicked(panic_message(&*panic)))?
    } else {
        let mut home = home;
        let result = loop {
            let waits = waits_for_recorder(&home.session);
            match executor.submit_with(home, finish, waits) {
                Ok(result) => break result,
                Err(full) => {
                    home = full.given;
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
    fn home(&mut self) -> Result<&mut Box<Home>, Gone> {
        match self {
            Self::Home(home) => Ok(home),
            Self::Away(_) => Err(Gone { cause: EndCause::Failed, detail: LOST_ON_THE_WAY.to_owned() }),
            Self::Gone(gone) => Err(gone.clone()),
        }
    }

    /// Takes the session away for a thread.
    fn take(&mut self) -> Result<Box<Home>, Gone> {
        let away = Self::Away(self.home()?.session.recording_watch());
        match std::mem::replace(self, away) {
            Self::Home(home) => Ok(home),
            Self::Away(_) | Self::Gone(_) => unreachable!("it was home just now"),
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

fn busy(retry_after: Duration) -> Refusal {
    let ms = retry_after.as_millis().max(1) as u64;
    Refusal::busy("every thread and every place in the queue is taken", ms)
}

const fn cause_of(error: &JobError) -> EndCause {
    match error {
        JobError::Hung(_) => EndCause::Hung,
        JobError::Panicked(_) => EndCause::Failed,
    }
}

/// Returns whether stepping waits for the recorder because the disk cannot follow: that is no hang.
pub(crate) fn waits_for_recorder(session: &OwnedSession) -> Waits {
    let recording = session.recording_watch();
    Box::new(move || recording.is_behind())
}

/// Interval at which a session in memory that is watched and not stepped shows what is wanted of it.
const WATCHED_LOOK: Duration = Duration::from_millis(50);

/// Interval at which a session in memory that is not stepped learns that it is watched.
const IDLE_LOOK: Duration = Duration::from_millis(500);

/// Longest cost of batches that are stepped on the data thread: a hand-over to another thread and back costs as much.
const PROMPT_COST: Duration = Duration::from_micros(50);

/// Number of requests whose costs are kept; odd, so that one is in the middle.
const COSTS: usize = 5;

/// Most lanes whose open episodes are ended on the calling thread: this takes a few hundred microseconds at most.
const PROMPT_LANES: usize = 1_024;

/// Greatest age of the reported counts of a session that is being stepped.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Time without a request after which a session hands over what it has recorded. A chunk is closed early then, which
/// costs a reader some bytes; a trainer that steps more often never pays this.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// Pause after which a caller that found the session lent may try again; an owner that has gone is noticed sooner.
const LENT_RETRY_MS: u64 = 50;

/// Message for callers whose job ended with the executor.
const GOING_AWAY: &str = "the node is going away";

/// Message for callers that come after a task was ended by force while another thread had the session.
const LOST_ON_THE_WAY: &str = "the session was lost while another thread had it";

#[cfg(test)]
mod tests {
    use super::*;
    use rollhouse_core::{AutoresetMode, SeedSchedule};
    use std::sync::mpsc::{SyncSender, sync_channel};

    use rollhouse_core::RunId;
    use rollhouse_env::Registry;
    use rollhouse_wire::{ColumnBuffer, LaneSettings, OpenSession, RecordRule, Secret};

    use crate::SessionPlan;

    /// A session of an env that may wait, so that workers step it.
    fn owned() -> Owned {
        let open = OpenSession {
            session: SessionId { pool: RunId::from_u128(1), index: 0 },
            incarnation: Incarnation { term: 1, counter: 1 },
            secret: Secret::from_bytes([0; 16]),
            owner: "trainer".to_owned(),
            first_lane: 0,
            lanes: 1,
            pool_lanes: 1,
            replaces: false,
            settings: LaneSettings {
                env: "test/Faulty-v0".to_owned(),
                options: Default::default(),
                autoreset: AutoresetMode::NextStep,
                max_episode_steps: None,
                seeds: SeedSchedule::PerEpisode { run_seed: 3 },
                record: RecordRule::None,
                collect: None,
                replay: None,
            },
        };
        let plan = SessionPlan::of(&open, &Registry::builtin(), "test 1").unwrap();
        let session = OwnedSession::make(Arc::new(plan), None).unwrap();
        Owned::new((open.session, open.incarnation), Cancel::default(), 64, session, Arc::default())
    }

    /// Holds the only worker until it is let go.
    fn hold(executor: &Executor) -> SyncSender<()> {
        let (let_go, go) = sync_channel(1);
        let (began, begun) = sync_channel(1);
        let work = move || {
            began.send(()).unwrap();
            go.recv().unwrap();
        };
        drop(executor.submit(work, Box::new(|| false)).unwrap());
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
            let executor = Executor::start(1, 8, Duration::from_secs(60), Arc::clone(&figures)).unwrap();
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
                let command = Envelope {
                    id: 1,
                    method: "get_attributes".to_owned(),
                    call: None,
                    payload: Vec::new(),
                    error: None,
                };
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
    fn two_dear_requests_among_five_keep_a_session_prompt_and_three_do_not() {
        let (cheap, dear) = (PROMPT_COST / 10, PROMPT_COST * 100);
        let mut costs = Costs::default();
        assert!(!costs.are_prompt(), "nobody knows yet");
        (0..3).for_each(|_| costs.note(cheap));
        assert!(costs.are_prompt());
        (0..2).for_each(|_| costs.note(cheap));
        (0..2).for_each(|_| costs.note(dear));
        assert!(costs.are_prompt());
        costs.note(dear);
        assert!(!costs.are_prompt());
        (0..2).for_each(|_| costs.note(cheap));
        assert!(!costs.are_prompt(), "two cheap ones are not most");
        costs.note(cheap);
        assert!(costs.are_prompt());
    }
}

//! The sessions of the cluster on this node: opened, attached to, ended. The control thread, which talks to the
//! coordinator, and the data thread, which talks to owners, share them.

mod opening;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use rollhouse_env::Registry;
use rollhouse_replay::Recorder;
use rollhouse_wire::{
    AdmitWatcher, Attach, CallId, CloseSession, Eagerness, EndCause, Incarnation, NodeLoad, OpenCommands,
    OpenWatch, Refusal, RefusalCode, SessionEnd, SessionId, SessionReport, Unfit, WatchOpened,
    WatcherAdmitted,
};
use tracing::{info, warn};

use crate::executor::Executor;
use crate::fitness::Fitness;
use crate::node::Rollouts;
use crate::owned_handle::OwnedHandle;
use crate::replay_session::ReplaySession;
use crate::session_handle::{Collecting, SessionHandle};
use crate::stepped::Stepped;
use crate::table::{Overdue, SessionTable};
use crate::transport::Transport;
use crate::{Exit, Gone, NodeFigures};

/// The state that the sessions of a node share.
#[derive(Debug)]
pub(crate) struct Hosting {
    table: Mutex<SessionTable<SessionHandle>>,
    pub(crate) executor: Executor,
    pub(crate) figures: Arc<NodeFigures>,
    /// The spool's recorder; `None` if nothing is recorded here.
    recorder: Option<Arc<Recorder>>,
    rollouts: Rollouts,
    registry: Arc<Registry>,
    settings: HostingSettings,
    fitness: Fitness,
    /// Whether the node is stopping, and takes no new sessions for good.
    stopping: AtomicBool,
    /// Whether the node is going away, which owners are told with their answers.
    leaving: Arc<AtomicBool>,
    /// How eagerly the data thread polls between two requests.
    pub(crate) eagerness: Eagerness,
    began: Instant,
}

/// The version of the reports: changes of the table, and of what sessions have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReportsVersion(Option<(u64, u64)>);

/// The settings that sessions are opened with.
#[derive(Debug, Clone)]
pub(crate) struct HostingSettings {
    pub(crate) capacity: u32,
    pub(crate) lease: Duration,
    pub(crate) hang_deadline: Duration,
    pub(crate) program: String,
    /// Time for which a watcher may be silent, or leave an answer untaken.
    pub(crate) watch_patience: Duration,
}

/// An owner's place at a session. When it is dropped, however its task ends, the session's lease begins to run.
#[derive(Debug)]
pub(crate) struct Place {
    hosting: Arc<Hosting>,
    pub(crate) session: Stepped,
    pub(crate) number: u64,
    /// Number of the last request that was answered.
    pub(crate) last: u32,
    /// Whether answers say what a log needs.
    pub(crate) logs: bool,
}

impl Place {
    /// Returns the session that the place belongs to.
    pub(crate) fn session(&self) -> SessionId {
        self.session.placed().0
    }
}

impl Hosting {
    pub(crate) fn new(
        settings: HostingSettings,
        registry: Arc<Registry>,
        executor: Executor,
        fitness: Fitness,
        rollouts: Rollouts,
        figures: Arc<NodeFigures>,
    ) -> Self {
        let table = Mutex::new(SessionTable::new(settings.capacity, settings.lease));
        Self {
            table,
            executor,
            figures,
            recorder: fitness.recorder.clone(),
            rollouts,
            registry,
            settings,
            fitness,
            stopping: AtomicBool::new(false),
            leaving: Arc::default(),
            eagerness: Eagerness::default(),
            began: Instant::now(),
        }
    }

    /// Lets an owner in, and sends away the one that was attached before.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) async fn attach(self: &Arc<Self>, attach: &Attach, by: Transport) -> Result<Place, Refusal> {
        let now = self.now();
        let (session, number) = {
            let mut table = self.table();
            // Who is refused takes no turn: an owner that is attached stays.
            let session = steppable(table.shown(attach)?, by)?;
            (session, table.attach(now, attach, by)?.number)
        };
        let hosting = Arc::clone(self);
        let mut place = Place { hosting, session, number, last: 0, logs: false };
        match place.session.take_over(number, attach.log).await {
            Ok((last, logs)) => {
                self.figures.attached.add(1);
                (place.last, place.logs) = (last, logs);
                Ok(place)
            }
            Err(gone) => {
                let message = format!("session {} has ended: {}", place.session(), gone.detail);
                Err(Refusal { ended: Some(gone.cause), ..Refusal::new(RefusalCode::NotFound, message) })
            }
        }
    }

    /// Counts and logs the answer to an owner that asked for a session: that session, or the refusal.
    pub(crate) fn answers_owner(
        &self,
        request: &'static str,
        call: Option<CallId>,
        began: Instant,
        answer: Result<SessionId, &Refusal>,
    ) {
        self.figures.calls.note(request, call, began.elapsed(), SystemTime::now());
        match answer {
            Ok(session) => info!("the owner of session {session} is let in ({request})"),
            Err(refusal) => self.refuses_owner(refusal),
        }
    }

    /// Counts and logs that an owner was refused.
    pub(crate) fn refuses_owner(&self, refusal: &Refusal) {
        let code = refusal.code.word();
        self.figures.refusals.add_owner(code);
        // That something is not there concerns who asked, and nobody else.
        match refusal.code {
            RefusalCode::NotFound => info!(code, "refused a request of an owner: {refusal}"),
            _ => warn!(code, "refused a request of an owner: {refusal}"),
        }
    }

    /// Returns the number of sessions that an owner steps now, by transport.
    pub(crate) fn attached(&self) -> BTreeMap<Transport, u64> {
        self.table().attached()
    }

    /// Returns the session that an owner may give commands to. Neither changes who is attached nor keeps the lease.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) fn session_of(&self, open: &OpenCommands) -> Result<Arc<OwnedHandle>, Refusal> {
        let OpenCommands { pool, index, incarnation, secret } = *open;
        match self.table().shown(&Attach { pool, index, incarnation, secret, log: false })? {
            SessionHandle::Owned(session) => Ok(session),
            SessionHandle::Collecting(_) => {
                Err(Refusal::new(RefusalCode::BadRequest, "the session plays by itself"))
            }
            SessionHandle::Replay(_) => {
                let message = "a recorded episode takes no commands: its watchers move it";
                Err(Refusal::new(RefusalCode::Unsupported, message))
            }
        }
    }

    /// Returns the key by which a placement of a session is watched, as the coordinator asks.
    ///
    /// # Errors
    /// If the placement is not here.
    pub(crate) fn admit_watcher(&self, admit: &AdmitWatcher) -> Result<WatcherAdmitted, Refusal> {
        let key = self.table().watch_key(admit.session, admit.incarnation)?;
        Ok(WatcherAdmitted { key })
    }

    /// Returns the session that a watcher may watch, and its description.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) fn watched(&self, open: &OpenWatch) -> Result<(SessionHandle, WatchOpened), Refusal> {
        let table = self.table();
        let (handle, open) = table.watched(open)?;
        let opened = WatchOpened {
            spec: self.spec_of(&handle, open)?,
            first_lane: open.first_lane,
            lanes: open.lanes,
            pool_lanes: open.pool_lanes,
            settings: open.settings.clone(),
            program: self.settings.program.clone(),
        };
        Ok((handle, opened))
    }

    /// Ends a session and waits until it has ended. The coordinator is told of the end even if this future is dropped
    /// or panics before. `None` if there is nothing to end.
    pub(crate) async fn end(
        self: &Arc<Self>,
        id: SessionId,
        incarnation: Incarnation,
        wanted: Gone,
    ) -> Option<SessionEnd> {
        let now = self.now();
        let handle = self.table().begin_end(now, id, incarnation, wanted.cause)?;
        Some(self.ending((id, incarnation), handle, wanted.cause).run(wanted).await)
    }

    /// Takes over the ending of a session that has begun to end.
    fn ending(
        self: &Arc<Self>,
        (id, incarnation): (SessionId, Incarnation),
        handle: SessionHandle,
        cause: EndCause,
    ) -> Ending {
        Ending { hosting: Arc::clone(self), handle, id, incarnation, cause: Some(cause) }
    }

    /// Ends a session as closed, as the coordinator asks. Answers with its end, also if it ended before.
    pub(crate) async fn close(self: &Arc<Self>, close: &CloseSession) -> Result<SessionEnd, Refusal> {
        let CloseSession { session, incarnation } = *close;
        let gone = Gone { cause: EndCause::Closed, detail: String::new() };
        if let Some(end) = self.end(session, incarnation, gone).await {
            return Ok(end);
        }
        self.table().answer_close(session, incarnation)
    }

    /// Ends sessions whose leases are over, and reports counts that have not been reported. To be called about once a
    /// second.
    pub(crate) fn look(self: &Arc<Self>) {
        let (now, lease) = (self.now(), self.settings.lease);
        let (overdue, stirred, replays) = {
            let mut table = self.table();
            let is_watched =
                |handle: &SessionHandle| handle.replay().is_some_and(|replay| replay.is_watched(lease));
            let overdue = table.look(now, is_watched);
            let replays = table.open_sessions(|handle| handle.replay().is_some());
            (overdue, table.open_sessions(SessionHandle::is_stirred), replays)
        };
        for Overdue { session, incarnation, place } in overdue {
            let cause = EndCause::LeaseEnded;
            let ending = self.ending((session, incarnation), place, cause);
            let detail = format!("nobody was attached for {} s", lease.as_secs());
            // Task: session that ends.
            tokio::spawn(ending.run(Gone { cause, detail }));
        }
        for handle in stirred {
            handle.tell(&self.figures);
        }
        let replays: Vec<_> = replays.iter().filter_map(SessionHandle::replay).collect();
        replays.iter().for_each(|replay| self.look_at_replay(replay));
        self.figures.replays.set(replays.len() as u64);
    }

    /// Ends a replay that cannot go on, or whose node drains: nothing is lost with it. Otherwise sees to it that its
    /// state is reported.
    fn look_at_replay(self: &Arc<Self>, replay: &Arc<ReplaySession>) {
        let drained = || Gone { cause: EndCause::Drained, detail: "the node drains".to_owned() };
        if let Some(gone) = replay.gone().or_else(|| self.is_draining().then(drained)) {
            let (hosting, replay) = (Arc::clone(self), Arc::clone(replay));
            // Task: session that ends.
            tokio::spawn(async move { hosting.end(replay.id, replay.incarnation, gone).await });
        } else if replay.has_turned() {
            self.table().touch();
        }
    }

    /// Returns the time for which a watcher may be silent, or leave an answer untaken.
    pub(crate) const fn watch_patience(&self) -> Duration {
        self.settings.watch_patience
    }

    /// Returns the time that one step may take before its session is given up as hung.
    pub(crate) const fn hang_deadline(&self) -> Duration {
        self.settings.hang_deadline
    }

    /// Takes no new sessions from now on, and tells the owners of those that are open: they do well to move them.
    pub(crate) fn drain(&self) {
        self.table().drain();
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Takes no new sessions for good; otherwise as [`Hosting::drain`].
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.drain();
    }

    /// Takes new sessions again, unless it is stopping.
    pub(crate) fn undrain(&self) {
        if !self.stopping.load(Ordering::Relaxed) {
            self.leaving.store(false, Ordering::Relaxed);
            self.table().undrain();
        }
    }

    /// Returns what keeps the node from taking sessions.
    pub(crate) fn unfit(&self) -> Option<Unfit> {
        self.fitness.look()
    }

    /// Returns whether the node takes no new sessions.
    pub(crate) fn is_draining(&self) -> bool {
        self.table().is_draining()
    }

    /// Waits until no session is here that its owner can move, which owners do with their next step. To be called with
    /// a deadline when the node is leaving. Cancellation-safe.
    pub(crate) async fn moved_away(&self) {
        let movable =
            |handle: &SessionHandle| matches!(handle, SessionHandle::Owned(owned) if owned.is_movable());
        while self.table().attended().iter().any(movable) {
            tokio::time::sleep(LEAVING_LOOK).await;
        }
    }

    /// Ends every session; their open episodes end as `evicted`. Returns when all have ended, also those that are being
    /// ended for another reason. To be called once no new ones are taken.
    pub(crate) async fn evict_all(self: &Arc<Self>) {
        let all = self.table().all();
        let mut ending = tokio::task::JoinSet::new();
        for (id, incarnation) in all {
            let hosting = Arc::clone(self);
            // Task: session that ends.
            ending.spawn(async move {
                let detail = "the node goes away".to_owned();
                hosting.end(id, incarnation, Gone { cause: EndCause::Drained, detail }).await;
            });
        }
        while ending.join_next().await.is_some() {}
        while self.sessions() > 0 {
            tokio::time::sleep(LEAVING_LOOK).await;
        }
    }

    /// Returns the number of sessions here, whatever their stage.
    pub(crate) fn sessions(&self) -> usize {
        self.table().len()
    }

    /// Returns the reports of the open sessions, or `None` if nothing has changed since `version`. Sets `version` to
    /// the present one.
    pub(crate) fn reports_since(&self, version: &mut ReportsVersion) -> Option<Vec<SessionReport>> {
        // Before the reports: what changes meanwhile is looked at again.
        let now = ReportsVersion(Some((self.table().version(), self.figures.tallies.get())));
        let changed = std::mem::replace(version, now) != now;
        changed.then(|| {
            let replay = |handle: &SessionHandle| handle.replay().map(|replay| replay.report());
            self.table().reports(SessionHandle::counts, replay)
        })
    }

    /// Returns the greatest term of a session that is here, 0 without any.
    pub(crate) fn newest_term(&self) -> u64 {
        self.table().newest_term()
    }

    /// Returns ends that have not been acknowledged, as many as one message takes, and whether those are all.
    pub(crate) fn ends(&self) -> (Vec<SessionEnd>, bool) {
        self.table().ends()
    }

    /// Notes that the coordinator of that term knows the node, so that it is told what it has not heard.
    pub(crate) fn joined(&self, term: u64) {
        self.table().joined(term);
    }

    /// Notes that the coordinator has taken those ends in.
    pub(crate) fn acknowledge(&self, ends: &[SessionEnd]) {
        self.table().acknowledge(ends);
    }

    /// Returns how busy the node is, without its spool.
    pub(crate) fn load(&self) -> NodeLoad {
        NodeLoad {
            lanes: self.table().lanes(),
            queued: u32::try_from(self.executor.queued()).unwrap_or(u32::MAX),
            steps: self.figures.steps.get(),
            episodes: self.figures.finished(),
            ..NodeLoad::default()
        }
    }

    /// Ends a session that was made in vain.
    async fn let_go(&self, handle: SessionHandle) {
        match handle {
            SessionHandle::Owned(owned) => {
                let gone = Gone { cause: EndCause::Closed, detail: String::new() };
                owned.end(gone, &self.executor, &self.figures).await;
            }
            SessionHandle::Collecting(collecting) => collecting.cancel.cancel(),
            SessionHandle::Replay(replay) => replay.end(),
        }
    }

    /// Locks the table, for moments only and never while anything is waited for.
    fn table(&self) -> MutexGuard<'_, SessionTable<SessionHandle>> {
        self.table.lock()
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self { hosting, session, number, .. } = self;
        let now = hosting.now();
        let (id, incarnation) = session.placed();
        hosting.table().detached(now, id, incarnation, *number);
    }
}

/// A session that is being ended. If this is dropped before the end, the end is told all the same.
struct Ending {
    hosting: Arc<Hosting>,
    handle: SessionHandle,
    id: SessionId,
    incarnation: Incarnation,
    /// Why the session was to end; `None` once its end was told.
    cause: Option<EndCause>,
}

impl Ending {
    /// Ends the session and returns its end, which the coordinator is told.
    async fn run(mut self, wanted: Gone) -> SessionEnd {
        let Self { hosting, handle, id, .. } = &self;
        let gone = match handle {
            SessionHandle::Owned(owned) => owned.end(wanted, &hosting.executor, &hosting.figures).await,
            SessionHandle::Collecting(collecting) => {
                let exit = exit_of(collecting).await;
                collecting.told.update(collecting.progress.tally(), &hosting.figures);
                gone_by(exit.as_deref(), wanted.cause)
            }
            SessionHandle::Replay(replay) => {
                replay.end();
                wanted
            }
        };
        if let Some(recorder) = hosting.recorder.clone() {
            // All it recorded is among the spool's bytes before its end is told. What cannot be written is counted
            // as lost by the recorder.
            // Task: write-out.
            let _written = tokio::task::spawn_blocking(move || recorder.write_out()).await;
        }
        let cause = gone.cause;
        let why = if gone.detail.is_empty() { String::new() } else { format!(": {}", gone.detail) };
        info!(cause = cause.word(), "session {id} has ended: {}{why}", cause.word());
        self.cause = None;
        self.tell(gone)
    }

    fn tell(&self, Gone { cause, detail }: Gone) -> SessionEnd {
        let Self { hosting, handle, id, incarnation, .. } = self;
        hosting.figures.session_ended(cause);
        let (session, incarnation, done) = (*id, *incarnation, handle.counts());
        let mut table = hosting.table();
        let unreached = table.is_unreached(session);
        let end = SessionEnd { session, incarnation, cause, detail, done, report: None, unreached };
        let now = hosting.now();
        table.ended(now, end.clone());
        end
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(cause) = self.cause.take() {
            self.tell(Gone { cause, detail: "its end was cut short".to_owned() });
        }
    }
}

/// Returns the session as its owner steps it.
///
/// # Errors
/// If it plays by itself, or is not stepped by that transport.
fn steppable(session: SessionHandle, by: Transport) -> Result<Stepped, Refusal> {
    match session {
        SessionHandle::Owned(owned) => Ok(Stepped::Owned(owned)),
        SessionHandle::Replay(_) if by == Transport::SharedMemory => {
            let message = "a recorded episode is not in memory; it is attached to over QUIC";
            Err(Refusal::new(RefusalCode::Unsupported, message))
        }
        SessionHandle::Replay(replay) => Ok(Stepped::Replay(replay)),
        SessionHandle::Collecting(_) => {
            Err(Refusal::new(RefusalCode::BadRequest, "the session plays by itself"))
        }
    }
}

async fn exit_of(collecting: &Collecting) -> Option<Arc<Exit>> {
    let mut exit = collecting.exit.clone();
    // The sender goes without a word only if the control thread is gone.
    exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone())
}

/// Returns why a session that played by itself is gone; `asked` is the cause for which it was asked to end, if it was.
fn gone_by(exit: Option<&Exit>, asked: EndCause) -> Gone {
    let (cause, detail) = match exit {
        Some(Exit::Finished(_)) => (EndCause::Finished, String::new()),
        Some(Exit::Cancelled(_)) => (asked, String::new()),
        Some(Exit::Failed(error)) => (EndCause::Failed, crate::owned::with_causes(error)),
        Some(Exit::Panicked(message)) => (EndCause::Failed, format!("its thread panicked: {message}")),
        Some(Exit::Hung(still)) => (EndCause::Hung, format!("no progress for {} ms", still.as_millis())),
        Some(Exit::Unwatched) | None => (EndCause::Failed, "nobody watched it any more".to_owned()),
    };
    Gone { cause, detail }
}

/// Interval at which a leaving node looks whether its sessions have moved, and whether others have ended them.
const LEAVING_LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;

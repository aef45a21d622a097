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

use crate::entry::Transport;
use crate::executor::Executor;
use crate::fitness::Fitness;
use crate::hosted::{Collecting, Gone, Hosted, Owned};
use crate::node::Rollouts;
use crate::replay_session::ReplaySession;
use crate::stepped::Stepped;
use crate::table::SessionTable;
use crate::{Exit, NodeFigures};

/// The state that the sessions of a node share.
#[derive(Debug)]
pub(crate) struct Hosting {
    table: Mutex<SessionTable<Hosted>>,
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
        let (session, number) = {
            let mut table = self.table();
            // Who is refused takes no turn: an owner that is attached stays.
            let session = steppable(table.shown(attach)?, by)?;
            (session, table.attach(attach, by)?.number)
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
    pub(crate) fn session_of(&self, open: &OpenCommands) -> Result<Arc<Owned>, Refusal> {
        let OpenCommands { pool, index, incarnation, secret } = *open;
        match self.table().shown(&Attach { pool, index, incarnation, secret, log: false })? {
            Hosted::Owned(session) => Ok(session),
            Hosted::Collecting(_) => {
                Err(Refusal::new(RefusalCode::BadRequest, "the session plays by itself"))
            }
            Hosted::Replay(_) => {
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
    pub(crate) fn watched(&self, open: &OpenWatch) -> Result<(Hosted, WatchOpened), Refusal> {
        let table = self.table();
        let (hosted, open) = table.watched(open)?;
        let opened = WatchOpened {
            spec: self.spec_of(&hosted, open)?,
            first_lane: open.first_lane,
            lanes: open.lanes,
            pool_lanes: open.pool_lanes,
            settings: open.settings.clone(),
            program: self.settings.program.clone(),
        };
        Ok((hosted, opened))
    }

    /// Ends a session and waits until it has ended. The coordinator is told of the end even if this future is dropped
    /// or panics before. `None` if there is nothing to end.
    pub(crate) async fn end(
        &self,
        id: SessionId,
        incarnation: Incarnation,
        wanted: Gone,
    ) -> Option<SessionEnd> {
        let hosted = self.table().begin_end(id, incarnation, wanted.cause)?;
        let ending = Ending { hosting: self, hosted: &hosted, id, incarnation, cause: wanted.cause };
        let gone = match &hosted {
            Hosted::Owned(owned) => owned.end(wanted, &self.executor, &self.figures).await,
            Hosted::Collecting(collecting) => {
                let exit = exit_of(collecting).await;
                collecting.told.update(collecting.progress.tally(), &self.figures);
                gone_by(exit.as_deref(), wanted.cause)
            }
            Hosted::Replay(replay) => {
                replay.end();
                wanted
            }
        };
        if let Some(recorder) = self.recorder.clone() {
            // All it recorded is among the spool's bytes before its end is told. What cannot be written is counted
            // as lost by the recorder.
            // Task: write-out.
            let _written = tokio::task::spawn_blocking(move || recorder.write_out()).await;
        }
        std::mem::forget(ending);
        self.figures.session_ended(gone.cause);
        let Gone { cause, detail } = gone;
        let why = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        info!(cause = cause.word(), "session {id} has ended: {}{why}", cause.word());
        let (done, report, unreached) = (hosted.counts(), None, self.table().is_unreached(id));
        let end = SessionEnd { session: id, incarnation, cause, detail, done, report, unreached };
        self.table().ended(end.clone());
        Some(end)
    }

    /// Ends a session as closed, as the coordinator asks. Answers with its end, also if it ended before.
    pub(crate) async fn close(&self, close: &CloseSession) -> Result<SessionEnd, Refusal> {
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
        let now = self.now();
        let (mut overdue, stirred, replays) = {
            let table = self.table();
            let replays = table.open_sessions(|hosted| hosted.replay().is_some());
            (table.overdue(now), table.open_sessions(Hosted::is_stirred), replays)
        };
        for hosted in stirred {
            hosted.tell(&self.figures);
        }
        let mut shown = 0;
        for replay in replays.iter().filter_map(Hosted::replay) {
            shown += 1;
            let placed = (replay.id, replay.incarnation);
            overdue.retain(|over| *over != placed || !replay.is_watched(self.settings.lease));
            self.look_at_replay(replay);
        }
        self.figures.replays.set(shown);
        for (id, incarnation) in overdue {
            let hosting = Arc::clone(self);
            // Task: session that ends.
            tokio::spawn(async move {
                let detail = format!("nobody was attached for {} s", hosting.settings.lease.as_secs());
                hosting.end(id, incarnation, Gone { cause: EndCause::LeaseEnded, detail }).await;
            });
        }
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
        let movable = |hosted: &Hosted| matches!(hosted, Hosted::Owned(owned) if owned.is_movable());
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
            let replay = |hosted: &Hosted| hosted.replay().map(|replay| replay.report());
            self.table().reports(Hosted::counts, replay)
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
    async fn let_go(&self, hosted: Hosted) {
        match hosted {
            Hosted::Owned(owned) => {
                let gone = Gone { cause: EndCause::Closed, detail: String::new() };
                owned.end(gone, &self.executor, &self.figures).await;
            }
            Hosted::Collecting(collecting) => collecting.cancel.cancel(),
            Hosted::Replay(replay) => replay.end(),
        }
    }

    /// Locks the table, for moments only and never while anything is waited for.
    fn table(&self) -> MutexGuard<'_, SessionTable<Hosted>> {
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

/// Tells the end of a session whose ending was cut short, unless it is forgotten.
struct Ending<'a> {
    hosting: &'a Hosting,
    hosted: &'a Hosted,
    id: SessionId,
    incarnation: Incarnation,
    cause: EndCause,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let Self { hosting, hosted, id, incarnation, cause } = *self;
        hosting.figures.session_ended(cause);
        let (detail, done) = ("its end was cut short".to_owned(), hosted.counts());
        let (report, unreached) = (None, hosting.table().is_unreached(id));
        let end = SessionEnd { session: id, incarnation, cause, detail, done, report, unreached };
        hosting.table().ended(end);
    }
}

/// Returns the session as its owner steps it.
///
/// # Errors
/// If it plays by itself, or is not stepped by that transport.
fn steppable(session: Hosted, by: Transport) -> Result<Stepped, Refusal> {
    match session {
        Hosted::Owned(owned) => Ok(Stepped::Owned(owned)),
        Hosted::Replay(_) if by == Transport::SharedMemory => {
            let message = "a recorded episode is not in memory; it is attached to over QUIC";
            Err(Refusal::new(RefusalCode::Unsupported, message))
        }
        Hosted::Replay(replay) => Ok(Stepped::Replay(replay)),
        Hosted::Collecting(_) => Err(Refusal::new(RefusalCode::BadRequest, "the session plays by itself")),
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
mod tests {
    use super::*;
    use rollhouse_core::{AutoresetMode, SeedSchedule};
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::{SyncSender, sync_channel};

    use rollhouse_core::RunId;
    use rollhouse_env::{EnvEntry, MakeError};
    use rollhouse_wire::{LaneSettings, OpenSession, RecordRule, Secret};

    use crate::Node;

    fn open(env: &str) -> OpenSession {
        OpenSession {
            session: SessionId { pool: RunId::from_u128(1), index: 0 },
            incarnation: Incarnation { term: 1, counter: 1 },
            secret: Secret::from_bytes([0; 16]),
            owner: "trainer".to_owned(),
            first_lane: 0,
            lanes: 1,
            pool_lanes: 1,
            replaces: false,
            settings: LaneSettings {
                env: env.to_owned(),
                options: Default::default(),
                autoreset: AutoresetMode::NextStep,
                max_episode_steps: None,
                seeds: SeedSchedule::PerEpisode { run_seed: 3 },
                record: RecordRule::None,
                collect: None,
                replay: None,
            },
        }
    }

    fn hosting(registry: Registry, node: &Node, lease: Duration) -> Arc<Hosting> {
        let figures: Arc<NodeFigures> = Arc::default();
        let hang_deadline = Duration::from_secs(60);
        let executor = Executor::start(1, 8, hang_deadline, Arc::clone(&figures)).unwrap();
        let settings = HostingSettings {
            capacity: 8,
            lease,
            hang_deadline,
            program: "test 1".to_owned(),
            watch_patience: Duration::from_secs(15),
        };
        Arc::new(Hosting::new(
            settings,
            Arc::new(registry),
            executor,
            Fitness::default(),
            node.rollouts(),
            figures,
        ))
    }

    /// Keeps the one worker busy until something is sent.
    fn occupy_worker(hosting: &Hosting) -> SyncSender<()> {
        let (let_go, go) = sync_channel::<()>(1);
        drop(hosting.executor.submit(move || go.recv().unwrap(), Box::new(|| false)).unwrap());
        let_go
    }

    #[test]
    fn a_session_that_is_closed_while_it_waits_to_be_made_is_never_made() {
        let (registry, made) = (Registry::builtin(), Arc::new(AtomicU32::new(0)));
        let mut spec = registry.get("test/Faulty-v0").unwrap().spec().clone();
        spec.id = "Counted".to_owned();
        let count = Arc::clone(&made);
        let entry = EnvEntry::per_lane(spec, move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Err::<Never, _>(MakeError::Missing { lane: 0, name: "everything" })
        });
        registry.register(entry).unwrap();
        let node = Node::start().unwrap();
        let hosting = hosting(registry, &node, Duration::from_secs(30));
        let let_go = occupy_worker(&hosting);
        let open = open("Counted");
        let close = CloseSession { session: open.session, incarnation: open.incarnation };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (opened, closed) = runtime.block_on(async {
            tokio::join!(biased; hosting.open(&open, None), async {
                let closed = hosting.close(&close).await;
                let_go.send(()).unwrap();
                closed
            })
        });
        assert_eq!(opened.unwrap_err().code, RefusalCode::Stale);
        assert_eq!(closed.unwrap_err().code, RefusalCode::NotFound);
        assert_eq!(made.load(Ordering::Relaxed), 0);
        assert_eq!(hosting.sessions(), 0);
    }

    #[test]
    fn the_end_of_a_session_is_told_also_when_what_ends_it_is_cut_short() {
        let node = Node::start().unwrap();
        let hosting = hosting(Registry::builtin(), &node, Duration::ZERO);
        let open = open("test/Faulty-v0");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let let_go = runtime.block_on(async {
            hosting.open(&open, None).await.unwrap();
            let let_go = occupy_worker(&hosting);
            let gone = Gone { cause: EndCause::Closed, detail: String::new() };
            tokio::select! {
                biased;
                _ = hosting.end(open.session, open.incarnation, gone) => panic!("no worker is free to end it"),
                () = std::future::ready(()) => {}
            }
            let_go
        });
        let (ends, _) = hosting.ends();
        assert_eq!((ends[0].session, ends[0].cause, hosting.sessions()), (open.session, EndCause::Closed, 0));
        let_go.send(()).unwrap();
    }

    #[test]
    fn evicting_waits_for_sessions_that_somebody_else_is_ending() {
        let node = Node::start().unwrap();
        let hosting = hosting(Registry::builtin(), &node, Duration::from_secs(30));
        let open = open("test/Faulty-v0");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            hosting.open(&open, None).await.unwrap();
            let let_go = occupy_worker(&hosting);
            let gone = Gone { cause: EndCause::Closed, detail: String::new() };
            let evicted = async {
                hosting.evict_all().await;
                assert_eq!(hosting.sessions(), 0);
            };
            let worker = async {
                // Time for who would not wait.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                let_go.send(()).unwrap();
            };
            let ending = hosting.end(open.session, open.incarnation, gone);
            let (end, (), ()) = tokio::join!(biased; ending, evicted, worker);
            assert_eq!(end.unwrap().cause, EndCause::Closed);
        });
    }

    #[test]
    fn the_lease_of_a_session_runs_however_the_task_of_its_owner_ends() {
        let node = Node::start().unwrap();
        let hosting = hosting(Registry::builtin(), &node, Duration::ZERO);
        let open = open("CartPole-v1");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            hosting.open(&open, None).await.unwrap();
            let OpenSession { session, incarnation, secret, .. } = open;
            let attach = Attach { pool: session.pool, index: session.index, incarnation, secret, log: false };
            let place = hosting.attach(&attach, Transport::Quic).await.unwrap();
            assert!(hosting.table().overdue(hosting.now()).is_empty());
            let serving = tokio::spawn(async move {
                let _place = place;
                panic!("the task of an owner");
            });
            assert!(serving.await.unwrap_err().is_panic());
        });
        assert_eq!(hosting.table().overdue(hosting.now()), [(open.session, open.incarnation)]);
    }

    /// An env that is never made.
    struct Never;

    impl rollhouse_env::Env for Never {
        fn reset(&mut self, _: &mut rollhouse_env::Generator, _: &mut [rollhouse_core::ColumnMut<'_>]) {}

        fn step(
            &mut self,
            _: &mut rollhouse_env::Generator,
            _: rollhouse_core::ColumnRef<'_>,
            _: &mut [rollhouse_core::ColumnMut<'_>],
            _: &mut [rollhouse_core::ColumnMut<'_>],
        ) -> rollhouse_env::StepResult {
            rollhouse_env::StepResult { reward: 0.0, terminated: false, truncated: false }
        }

        fn state_hash(&self) -> u32 {
            0
        }
    }
}

//! The sessions of the cluster on this node: opened, attached to, ended. The control thread, which talks to the
//! coordinator, and the data thread, which talks to owners, share them.

mod control;
mod opening;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use rollhouse_core::{Claimant, OverShare, Portion, ShareBook, SharedBound, Weight};
use rollhouse_env::Registry;
use rollhouse_host::{EnvProviders, Holder};
use rollhouse_replay::{RealDisk, Recorder};
use rollhouse_wire::limits::{MAX_CONNECTING_TOLD, MAX_STANDING_LANES};
use rollhouse_wire::{
    AdmitWatcher, Admittance, Attach, CallId, CloseSession, ConnectingSession, Connection, Eagerness,
    EndCause, Incarnation, NodeLoad, OpenCommands, OpenWatch, Refusal, RefusalCode, SeenTerm, SessionEnd,
    SessionId, SessionReport, SessionStanding, Unfit, WatchOpened, WatcherAdmitted,
};
use tracing::{info, warn};

use self::control::SessionControl;
use crate::deadlines::Deadlines;
use crate::executor::Executor;
use crate::fitness::Fitness;
use crate::learning::{Apart, Learning};
use crate::node_actor::Supervision;
use crate::owned_handle::OwnedHandle;
use crate::policies::Policies;
use crate::seen_file::{keep_seen, read_seen};
use crate::session_handle::SessionHandle;
use crate::standings::Standings;
use crate::stepped::Stepped;
use crate::table::SessionTable;
use crate::transport::Transport;
use crate::weighing::{NodeBudget, Weighing};
use crate::{Gone, NodeFigures};

/// The state that the sessions of a node share.
#[derive(Debug)]
pub(crate) struct Hosting {
    table: Mutex<SessionTable<Arc<SessionControl>>>,
    pub(crate) executor: Arc<Executor>,
    pub(crate) figures: Arc<NodeFigures>,
    /// The spool's recorder; `None` if nothing is recorded here.
    recorder: Option<Arc<Recorder>>,
    supervision: Arc<Supervision>,
    /// What lanes are made of.
    stock: Stock,
    /// The threads that wait for processes.
    apart: Apart,
    settings: HostingSettings,
    /// The shares of those who are connected.
    places: Places,
    fitness: Fitness,
    reporting: Reporting,
    departure: Departure,
    /// How eagerly the data thread polls between two requests.
    pub(crate) eagerness: Eagerness,
    began: Instant,
}

/// What lanes are made of.
#[derive(Debug)]
struct Stock {
    /// The envs that the node knows beforehand.
    registry: Arc<Registry>,
    /// The envs that it learns.
    learning: Learning,
    /// The policies by which lanes play.
    policies: Policies,
}

/// What heartbeats tell beside the table.
#[derive(Debug, Default)]
struct Reporting {
    /// What lanes weigh.
    weighing: Mutex<Weighing>,
    /// Where lanes stand that play by themselves.
    standings: Arc<Standings>,
}

/// Whether the node takes new sessions no more.
#[derive(Debug, Default)]
struct Departure {
    /// It stops, and takes none for good.
    stopping: AtomicBool,
    /// It goes away, which the answers to owners report.
    leaving: Arc<AtomicBool>,
}

/// The version of the reports: changes of the table, and of what sessions have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReportsVersion(Option<(u64, u64)>);

/// The settings that sessions are opened with.
#[derive(Debug, Clone)]
pub(crate) struct HostingSettings {
    pub(crate) capacity: u32,
    pub(crate) lease: Duration,
    pub(crate) deadlines: Deadlines,
    pub(crate) program: String,
    /// Time for which a watcher may be silent, or leave an answer untaken.
    pub(crate) watch_patience: Duration,
    pub(crate) budget: NodeBudget,
    /// Folder in which the latest coordinator is kept that the node has seen.
    pub(crate) folder: Option<Arc<Mutex<PathBuf>>>,
    /// The bound of connections of those who step or watch sessions.
    pub(crate) connections: SharedBound,
}

/// The places of those who are connected to the node.
#[derive(Debug)]
struct Places {
    connections: ShareBook,
    watchers: ShareBook,
    watch_bytes: ShareBook,
}

impl Places {
    fn new(connections: SharedBound) -> Self {
        Self {
            connections: ShareBook::new(connections),
            watchers: ShareBook::new(SharedBound::WATCHERS),
            watch_bytes: ShareBook::new(SharedBound::WATCH_BYTES),
        }
    }
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
        (registry, providers): (Arc<Registry>, EnvProviders),
        executor: Executor,
        fitness: Fitness,
        supervision: Arc<Supervision>,
        figures: Arc<NodeFigures>,
    ) -> Self {
        let table = SessionTable::new(settings.capacity, settings.lease);
        let table = table.within(settings.budget.budget.clone());
        let seen = settings.folder.as_ref().and_then(|folder| read_seen(&RealDisk, &folder.lock()));
        let table = Mutex::new(table.having_seen(seen.unwrap_or_default()));
        let apart = Apart::default();
        let learning = Learning::new(providers, apart.clone());
        let policies = Policies::new(Arc::clone(&figures));
        Self {
            table,
            executor: Arc::new(executor),
            figures,
            recorder: fitness.recorder.clone(),
            supervision,
            stock: Stock { registry, learning, policies },
            apart,
            places: Places::new(settings.connections),
            settings,
            fitness,
            reporting: Reporting::default(),
            departure: Departure::default(),
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
            let session = steppable(&table.shown(attach)?.handle, by)?;
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

    /// Returns the session that an owner may give commands to, and admits the connection. Neither changes who is attached
    /// nor keeps the lease.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) fn session_of(
        &self,
        open: &OpenCommands,
        connection: &Connection,
    ) -> Result<(Arc<OwnedHandle>, Admittance), Refusal> {
        let OpenCommands { pool, index, incarnation, secret } = *open;
        let attach = Attach { pool, index, incarnation, secret, log: false };
        let session = self.table().shown(&attach)?;
        match &session.handle {
            SessionHandle::Owned(session) => Ok((Arc::clone(session), self.admit(connection, &attach)?)),
            SessionHandle::Collecting { .. } => {
                Err(Refusal::new(RefusalCode::BadRequest, "the session plays by itself"))
            }
            SessionHandle::Replay(_) => {
                let message = "a recorded episode takes no commands: its watchers move it";
                Err(Refusal::new(RefusalCode::Unsupported, message))
            }
        }
    }

    /// Counts a connection to the share of the owner of a session, for as long as the returned value lives. Nothing of
    /// the session changes.
    ///
    /// # Errors
    /// If the peer does not show what an attachment has to show, or the owner has its share of connections.
    pub(crate) fn admit(&self, connection: &Connection, attach: &Attach) -> Result<Admittance, Refusal> {
        let owner = self.table().owner_of(attach)?;
        connection.admit(&self.places.connections, owner).map_err(|over| busy(&over))
    }

    /// Takes a place among the sessions that are stepped in shared memory, for as long as the returned value lives.
    ///
    /// # Errors
    /// If the peer does not show what an attachment has to show, or the owner has its share of `attach.sessions`.
    pub(crate) fn admit_memory(&self, places: &ShareBook, attach: &Attach) -> Result<Portion, Refusal> {
        let owner = self.table().owner_of(attach)?;
        places.take(owner, 1).map_err(|over| busy(&over))
    }

    /// Returns the key by which a placement of a session is watched, as the coordinator asks.
    ///
    /// # Errors
    /// If the placement is not here.
    pub(crate) fn admit_watcher(&self, admit: &AdmitWatcher) -> Result<WatcherAdmitted, Refusal> {
        let key = self.table().admit_watcher(admit)?;
        Ok(WatcherAdmitted { key })
    }

    /// Counts a connection, and a stream on it, to the share of one that watches a session, for as long as the returned
    /// values live.
    ///
    /// # Errors
    /// If the watcher has its share of one of them.
    pub(crate) fn admit_watching(
        &self,
        connection: &Connection,
        watcher: Claimant,
    ) -> Result<(Admittance, Portion), Refusal> {
        let admitted = connection.admit(&self.places.connections, watcher.clone());
        let admitted = admitted.map_err(|over| busy(&over))?;
        let place = self.places.watchers.take(watcher, 1).map_err(|over| busy(&over))?;
        Ok((admitted, place))
    }

    /// Takes so many bytes for a long answer to a watcher.
    ///
    /// # Errors
    /// If the watcher has its share of them.
    pub(crate) fn admit_watch_bytes(&self, watcher: Claimant, bytes: usize) -> Result<Portion, Refusal> {
        self.places.watch_bytes.take(watcher, bytes as u64).map_err(|over| busy(&over))
    }

    /// Returns the session that a watcher may watch, its description, and who the watcher is.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) fn watched(
        &self,
        open: &OpenWatch,
    ) -> Result<(SessionHandle, WatchOpened, Claimant), Refusal> {
        let table = self.table();
        let (session, open, watcher) = table.watched(open)?;
        let handle = session.handle.clone();
        let opened = WatchOpened {
            spec: handle.spec().clone(),
            first_lane: open.first_lane,
            lanes: open.lanes,
            pool_lanes: open.pool_lanes,
            settings: open.settings.clone(),
            program: self.settings.program.clone(),
        };
        Ok((handle, opened, watcher))
    }

    /// Ends a session and waits until it has ended. It ends and the coordinator is told of it even if this future is
    /// dropped before. `None` if there is nothing to end.
    pub(crate) async fn end(
        &self,
        id: SessionId,
        incarnation: Incarnation,
        wanted: Gone,
    ) -> Option<SessionEnd> {
        self.begin_end(id, incarnation, wanted)?.status.ended().await
    }

    /// Begins to end a session. `None` if there is nothing to end.
    fn begin_end(
        &self,
        id: SessionId,
        incarnation: Incarnation,
        wanted: Gone,
    ) -> Option<Arc<SessionControl>> {
        let session = self.table().begin_end(self.now(), id, incarnation, wanted.cause)?;
        session.status.ask_to_end(wanted);
        Some(session)
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

    /// Returns the time for which a watcher may be silent, or leave an answer untaken.
    pub(crate) const fn watch_patience(&self) -> Duration {
        self.settings.watch_patience
    }

    /// Returns the times after which sessions and their lanes are given up.
    pub(crate) const fn deadlines(&self) -> Deadlines {
        self.settings.deadlines
    }

    /// Takes no new sessions from now on, and tells the owners of those that are open: they do well to move them.
    pub(crate) fn drain(&self) {
        self.table().drain();
        self.departure.leaving.store(true, Ordering::Relaxed);
    }

    /// Takes no new sessions for good; otherwise as [`Hosting::drain`].
    pub(crate) fn stop(&self) {
        self.departure.stopping.store(true, Ordering::Relaxed);
        self.drain();
    }

    /// Takes new sessions again, unless it is stopping.
    pub(crate) fn undrain(&self) {
        if !self.departure.stopping.load(Ordering::Relaxed) {
            self.departure.leaving.store(false, Ordering::Relaxed);
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
        let movable = |session: &Arc<SessionControl>| matches!(&session.handle, SessionHandle::Owned(owned) if owned.status.is_movable());
        while self.table().attended().iter().any(movable) {
            tokio::time::sleep(LEAVING_LOOK).await;
        }
    }

    /// Ends every session; their open episodes end as `evicted`. Returns when all have ended, also those that are being
    /// ended for another reason. To be called once no new ones are taken.
    pub(crate) async fn evict_all(&self) {
        let all = self.table().all();
        let gone = || Gone { cause: EndCause::Drained, detail: "the node goes away".to_owned() };
        let begin = |(id, incarnation)| self.begin_end(id, incarnation, gone());
        let ending: Vec<_> = all.into_iter().filter_map(begin).collect();
        for session in ending {
            session.status.ended().await;
        }
        while self.sessions() > 0 {
            tokio::time::sleep(LEAVING_LOOK).await;
        }
    }

    /// Returns the number of sessions here, whatever their stage.
    pub(crate) fn sessions(&self) -> usize {
        self.table().len()
    }

    /// Returns the number of sessions whose lanes are being launched.
    pub(crate) fn launching(&self) -> usize {
        self.table().launching(|session| session.handle.is_launching())
    }

    /// Returns the sessions whose lanes try to connect, as many as a heartbeat tells of.
    pub(crate) fn connecting(&self) -> Vec<ConnectingSession> {
        self.table().connecting().take(MAX_CONNECTING_TOLD).collect()
    }

    /// Returns the number of sessions whose lanes try to connect.
    pub(crate) fn connecting_sessions(&self) -> usize {
        self.table().connecting().count()
    }

    /// Returns how often workers have tried again to connect.
    pub(crate) fn connect_retries(&self) -> u64 {
        self.settings.budget.census.connect_retries()
    }

    /// Returns the reports of the open sessions, or `None` if nothing has changed since `version`. Sets `version` to
    /// the present one.
    pub(crate) fn reports_since(&self, version: &mut ReportsVersion) -> Option<Vec<SessionReport>> {
        // Before the reports: what changes meanwhile is looked at again.
        let now = ReportsVersion(Some((self.table().version(), self.figures.tallies.get())));
        let changed = std::mem::replace(version, now) != now;
        changed.then(|| {
            let counts = |session: &Arc<SessionControl>| session.handle.counts().brief();
            let replay =
                |session: &Arc<SessionControl>| session.handle.replay().map(|replay| replay.report());
            let launching = |session: &Arc<SessionControl>| session.handle.is_launching();
            let plays = |session: &Arc<SessionControl>| session.handle.plays();
            self.table().reports(counts, launching, replay, plays)
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

    /// Notes that a coordinator knows the node, so that it is told what it has not heard. Returns whether the node sees it
    /// for the first time.
    ///
    /// # Errors
    /// The node has seen a later coordinator.
    pub(crate) fn joined(&self, coordinator: SeenTerm) -> Result<bool, Refusal> {
        self.table().joined(coordinator)
    }

    /// Keeps the latest coordinator that the node has seen on the disk. Does not wait for it.
    pub(crate) fn keep_seen(self: &Arc<Self>) {
        let (Some(folder), hosting) = (self.settings.folder.clone(), Arc::clone(self)) else { return };
        // Task: file operation.
        drop(tokio::task::spawn_blocking(move || {
            // One after the other, each with the latest.
            let folder = folder.lock();
            let kept = hosting.seen().map_or(Ok(()), |seen| keep_seen(seen, &RealDisk, &folder));
            if let Err(error) = kept {
                warn!("the coordinator's term cannot be kept for the node's next start: {error}");
            }
        }));
    }

    /// Returns the latest coordinator that the node has seen.
    pub(crate) fn seen(&self) -> Option<SeenTerm> {
        self.table().seen()
    }

    /// Notes that the coordinator has taken those ends in.
    pub(crate) fn acknowledge(&self, ends: &[SessionEnd]) {
        self.table().acknowledge(ends);
    }

    /// Weighs lanes if that is due, and returns what those of each env were measured to weigh. Begins to end the session of
    /// whoever has too much of the memory of worker processes. Reads small files.
    pub(crate) fn weigh(&self) -> BTreeMap<String, Weight> {
        self.share_memory();
        if let Some(weights) = self.reporting.weighing.lock().look(self.now(), &self.settings.budget.census) {
            self.table().measure(weights);
        }
        self.table().scales().measured().clone()
    }

    fn share_memory(&self) {
        let (limit, seen) = (self.budget().memory, self.settings.budget.census.memory());
        let Some(over) = self.reporting.weighing.lock().memory.look(self.now(), limit, &seen) else { return };
        let gone = Gone { cause: EndCause::Failed, detail: over.to_string() };
        let Holder { pool, index, placement: (term, counter), .. } = over.holder;
        warn!(session = %SessionId { pool, index }, "a session is ended: {}", gone.detail);
        // It may have ended already.
        let _ending = self.begin_end(SessionId { pool, index }, Incarnation { term, counter }, gone);
    }

    /// Returns where lanes stand that play by themselves, as many as one heartbeat tells of. What they had recorded before is
    /// written out.
    pub(crate) fn standings(&self) -> Vec<SessionStanding> {
        let (told, after) = self.reporting.standings.take();
        let Some(after) = after else { return told };
        let (mut room, mut last, mut seen) = (MAX_STANDING_LANES, None, Vec::new());
        for (session, incarnation, handle) in self.table().rollouts(after) {
            let SessionHandle::Collecting { stepping, .. } = &handle.handle else { continue };
            if let Some(standing) = stepping.progress.take_standing() {
                room = room.saturating_sub(standing.lanes.len());
                seen.push(SessionStanding { session, incarnation, standing });
            }
            last = Some(session);
            if room < MAX_STANDING_LANES / 2 {
                break;
            }
        }
        self.reporting.standings.tell(seen, last, self.recorder.clone());
        told
    }

    /// Returns what the node has for lanes.
    pub(crate) fn budget(&self) -> Weight {
        self.table().scales().budget().total
    }

    /// Returns how busy the node is, without its spool.
    pub(crate) fn load(&self) -> NodeLoad {
        let table = self.table();
        NodeLoad {
            lanes: table.lanes(),
            taken: table.taken(),
            queued: u32::try_from(self.executor.queued()).unwrap_or(u32::MAX),
            steps: self.figures.steps.get(),
            episodes: self.figures.finished(),
            ..NodeLoad::default()
        }
    }

    /// Ends a session that was made in vain.
    async fn let_go(&self, handle: &SessionHandle) {
        match handle {
            SessionHandle::Owned(owned) => {
                let gone = Gone { cause: EndCause::Closed, detail: String::new() };
                owned.end(gone, &self.executor, &self.figures).await;
            }
            SessionHandle::Collecting { stepping, .. } => stepping.cancel.cancel(),
            SessionHandle::Replay(_) => {}
        }
    }

    /// Locks the table, for moments only and never while anything is waited for.
    fn table(&self) -> MutexGuard<'_, SessionTable<Arc<SessionControl>>> {
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
        if let Stepped::Owned(owned) = session {
            owned.status.note_away(*number);
        }
        let (id, incarnation) = session.placed();
        hosting.table().detached(now, id, incarnation, *number);
    }
}

/// Returns the session as its owner steps it.
///
/// # Errors
/// If it plays by itself, or is not stepped by that transport.
fn steppable(session: &SessionHandle, by: Transport) -> Result<Stepped, Refusal> {
    match session {
        SessionHandle::Owned(owned) => Ok(Stepped::Owned(Arc::clone(owned))),
        SessionHandle::Replay(_) if by == Transport::SharedMemory => {
            let message = "a recorded episode is not in memory; it is attached to over QUIC";
            Err(Refusal::new(RefusalCode::Unsupported, message))
        }
        SessionHandle::Replay(replay) => Ok(Stepped::Replay(Arc::clone(replay))),
        SessionHandle::Collecting { .. } => {
            Err(Refusal::new(RefusalCode::BadRequest, "the session plays by itself"))
        }
    }
}

/// Returns the refusal of one that has its share.
fn busy(over: &OverShare) -> Refusal {
    Refusal::busy(over.to_string(), PLACE_RETRY_MS)
}

/// Pause after which one that has its share may try again: places come when others go.
const PLACE_RETRY_MS: u64 = 1_000;

/// Interval at which a leaving node looks whether its sessions have moved, and whether others have ended them.
const LEAVING_LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
pub(crate) mod tests;

//! The actor that owns the cluster: it passes events to the cluster and carries out the actions that come back.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use actix::prelude::*;
use rollhouse_core::limits::{LAUNCHES_OF_OPENING, MAX_DEADLINE};
use rollhouse_core::{RunId, SharedBound};
use rollhouse_replay::RealDisk;
use rollhouse_wire::{
    Asks, CallError, CallId, CloseCode, ClusterStatus, Connection, Heartbeat, OpenPool, OpenSession,
    PeerCertificate, Refusal, Register, ReplaceSession, SessionId, port_is_closed,
};
use tokio::sync::oneshot;
use tracing::warn;

use crate::cluster::Cluster;
use crate::event::{Action, Asker, CallFailure, Event, LinkId, Reply, Ticket};
use crate::figures::{ClusterFigures, Published};
use crate::limits::{PUBLISH_EVERY, TICK};
use crate::owners::Owners;
use crate::roster::Roster;
use crate::standings::Standings;
use crate::store::Store;
use crate::views::{AWAY_RETRY_MS, WatchPlace};

/// The actor that owns the cluster. Its handlers are short; calls to nodes are futures of their own.
pub(crate) struct CoordinatorActor {
    cluster: Cluster,
    began: Instant,
    keeper: RosterKeeper,
    program: String,
    store: Store,
    published: Arc<Published>,
    standings: Standings,
    owners: Owners,
    /// Connections of nodes that have asked to register.
    links: BTreeMap<LinkId, Connection>,
    waiting: BTreeMap<Ticket, Waiting>,
    /// The client's call for which nodes are asked about a pool or one of its sessions, and the ticket of its request.
    calls: BTreeMap<Subject, (Ticket, CallId)>,
    tickets: u64,
}

/// A request that waits for its answer.
struct Waiting {
    reply: oneshot::Sender<Reply>,
    /// The pool or session that its call is about, if the call has an id.
    about: Option<Subject>,
}

/// A pool, or one session of it.
type Subject = (RunId, Option<u32>);

/// Writes the roster of nodes to the disk, one write at a time.
struct RosterKeeper {
    data: PathBuf,
    next: Option<Roster>,
    is_writing: bool,
}

/// A request whose answer the cluster decides.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Ask {
    pub(crate) what: ClusterRequest,
    /// The client's call that the request is part of.
    pub(crate) call: Option<CallId>,
    pub(crate) reply: oneshot::Sender<Reply>,
}

pub(crate) enum ClusterRequest {
    Register { link: LinkId, connection: Connection, register: Box<Register> },
    Heartbeat { link: LinkId, heartbeat: Box<Heartbeat> },
    OpenPool { asker: Asker, certificate: Option<PeerCertificate>, request: Box<OpenPool> },
    ClosePool { asker: Asker, pool: RunId },
    ReplaceSession { asker: Asker, certificate: Option<PeerCertificate>, request: Box<ReplaceSession> },
    Drain { node: String },
    Undrain { node: String },
}

impl ClusterRequest {
    /// Returns the pool or session that nodes are asked about because of the request.
    fn subject(&self) -> Option<Subject> {
        match self {
            Self::OpenPool { request, .. } => Some((request.pool, None)),
            Self::ClosePool { pool, .. } => Some((*pool, None)),
            Self::ReplaceSession { request, .. } => Some((request.open.pool, Some(request.index))),
            Self::Register { .. } | Self::Heartbeat { .. } | Self::Drain { .. } | Self::Undrain { .. } => {
                None
            }
        }
    }

    /// Returns the log line for a request that is done; `None` for the kinds that are asked all the time.
    pub(crate) fn told(&self) -> Option<String> {
        Some(match self {
            Self::OpenPool { asker, request, .. } => {
                let OpenPool { pool, lanes, .. } = **request;
                format!("pool {pool} of {lanes} lanes is open for `{}`", asker.owner)
            }
            Self::ClosePool { asker, pool } => format!("pool {pool} is closed, as `{}` asked", asker.owner),
            Self::ReplaceSession { asker, request, .. } => {
                let session = SessionId { pool: request.open.pool, index: request.index };
                format!("session {session} of `{}` has another place", asker.owner)
            }
            Self::Drain { node } => format!("node {node} is to drain"),
            Self::Undrain { node } => format!("node {node} is to drain no more"),
            Self::Register { .. } | Self::Heartbeat { .. } => return None,
        })
    }
}

/// A look at the cluster between two events, with the time since the actor's start.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Look(pub(crate) Box<Looks>);

/// What is done with a look.
type Looks = dyn FnOnce(&CoordinatorActor, Duration) + Send;

/// An event that nobody waits for.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Tell(pub(crate) Event);

/// Ends the thread: nothing is decided any more. An actor that is dropped instead is polled once more outside of the
/// thread's event loop, where nothing that waits for time can be begun.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Leave;

/// Says that a node's connection has ended.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct LinkDown {
    pub(crate) link: LinkId,
    pub(crate) how: LinkEnd,
}

/// The way in which a node's connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    /// It was lost.
    Lost,
    /// The node said that its process ends.
    Leaving,
    /// The node is not believed any more.
    Refused,
}

impl CoordinatorActor {
    pub(crate) fn new(
        cluster: Cluster,
        data: PathBuf,
        program: String,
        store: Store,
        published: Arc<Published>,
        owners: Owners,
    ) -> Self {
        Self {
            cluster,
            began: Instant::now(),
            keeper: RosterKeeper { data, next: None, is_writing: false },
            program,
            store,
            published,
            standings: Standings::default(),
            owners,
            links: BTreeMap::new(),
            waiting: BTreeMap::new(),
            calls: BTreeMap::new(),
            tickets: 0,
        }
    }

    fn tell(&mut self, event: Event, ctx: &mut Context<Self>) {
        for action in self.cluster.handle(self.began.elapsed(), event) {
            self.act(action, ctx);
        }
    }

    /// Answers a request that waits.
    fn answer(&mut self, ticket: Ticket, reply: Reply) {
        let Some(Waiting { reply: waiting, about }) = self.waiting.remove(&ticket) else { return };
        if let Some(about) = about.filter(|about| self.is_asked_by(about, ticket)) {
            self.calls.remove(&about);
        }
        // Who asked may have gone.
        let _told = waiting.send(reply);
    }

    fn act(&mut self, action: Action, ctx: &mut Context<Self>) {
        match action {
            Action::Answer { ticket, reply } => self.answer(ticket, reply),
            Action::Disconnect { link } => {
                if let Some(connection) = self.links.remove(&link) {
                    connection
                        .close(CloseCode::Replaced, "the node has registered anew, or its port is closed");
                }
            }
            Action::KeepRoster(roster) => {
                self.keeper.next = Some(roster);
                self.keep_roster(ctx);
            }
            Action::AskPort { address, asked } => {
                let answered = async move { port_is_closed(&address).await };
                let told = answered.into_actor(self).map(move |closed, actor: &mut Self, ctx| {
                    if closed {
                        actor.tell(Event::PortClosed(asked), ctx);
                    }
                });
                // Task: port of a node.
                ctx.spawn(told);
            }
            Action::Open { link, request } => {
                let (session, incarnation) = (request.session, request.incarnation);
                let deadline = open_deadline(&request);
                let asked =
                    call(self.links.get(&link).cloned(), *request, self.call_about(session), deadline);
                let told = asked.into_actor(self).map(move |result, actor, ctx| {
                    let result = result.map(Box::new);
                    actor.tell(Event::Opened { session, incarnation, result }, ctx);
                });
                // Task: call to a node.
                ctx.spawn(told);
            }
            Action::Close { link, request } => {
                let (session, incarnation) = (request.session, request.incarnation);
                let asked =
                    call(self.links.get(&link).cloned(), request, self.call_about(session), CLOSE_DEADLINE);
                let told = asked.into_actor(self).map(move |result, actor, ctx| {
                    let result = result.map(Box::new);
                    actor.tell(Event::Closed { session, incarnation, result }, ctx);
                });
                // Task: call to a node.
                ctx.spawn(told);
            }
        }
    }

    fn is_asked_by(&self, about: &Subject, ticket: Ticket) -> bool {
        self.calls.get(about).is_some_and(|(of, _)| *of == ticket)
    }

    /// Returns the call for which a session is being asked about; the newest if there are several.
    fn call_about(&self, session: SessionId) -> Option<CallId> {
        let of_session = self.calls.get(&(session.pool, Some(session.index)));
        of_session.or_else(|| self.calls.get(&(session.pool, None))).map(|(_, call)| *call)
    }

    /// Writes the newest roster. If an older one is being written, the newest is written after it.
    fn keep_roster(&mut self, ctx: &mut Context<Self>) {
        if self.keeper.is_writing {
            return;
        }
        let Some(roster) = self.keeper.next.take() else { return };
        self.keeper.is_writing = true;
        let data = self.keeper.data.clone();
        // Task: file operation.
        let write = tokio::task::spawn_blocking(move || roster.write(&RealDisk, &data));
        let written = write.into_actor(self).map(|written, actor: &mut Self, ctx| {
            actor.keeper.is_writing = false;
            if let Ok(Err(error)) = written {
                warn!("the nodes' names could not be kept for the next start: {error}");
            }
            actor.keep_roster(ctx);
        });
        // Task: file operation.
        ctx.spawn(written);
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        self.tell(Event::Tick, ctx);
        for (owner, why) in self.owners.refused(self.cluster.owners(), SystemTime::now()) {
            warn!(%owner, "the pools of `{owner}` are closed: {why}");
            self.tell(Event::Revoked { owner, why }, ctx);
        }
        for change in self.standings.update(self.cluster.standings(self.began.elapsed())) {
            change.log();
        }
    }

    fn publish(&self) {
        let now = self.began.elapsed();
        let cluster = ClusterFigures {
            pools_opened: self.cluster.pools_opened(),
            waiting: self.cluster.waiting_lanes(now),
            unfit_nodes: self.cluster.unfit_nodes(now),
        };
        self.published.put(self.status(), cluster);
    }

    pub(crate) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the place at which a session can be watched, with the connection to its node.
    pub(crate) fn watch_place(
        &self,
        now: Duration,
        session: SessionId,
    ) -> Result<(WatchPlace, Connection), Refusal> {
        let place = self.cluster.watch_place(now, session)?;
        let link = self.links.get(&place.link).cloned();
        let away = || Refusal::busy("the session's node is not connected", AWAY_RETRY_MS);
        Ok((place, link.ok_or_else(away)?))
    }

    pub(crate) fn status(&self) -> ClusterStatus {
        self.cluster.status(self.began.elapsed(), &self.program, self.store.status())
    }
}

/// Sends a request to a node. Without an answer it is not known whether the node did what it was asked for.
async fn call<R: Asks>(
    node: Option<Connection>,
    request: R,
    call: Option<CallId>,
    deadline: Duration,
) -> Result<R::Answer, CallFailure> {
    let Some(node) = node else { return Err(CallFailure::Unknown) };
    node.call_for(request, call, deadline).await.map_err(|error| match error {
        CallError::Refused(refusal) => CallFailure::Refused(refusal),
        CallError::Lost(_) | CallError::Malformed(_) | CallError::TimedOut { .. } => CallFailure::Unknown,
    })
}

impl Actor for CoordinatorActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.tick(ctx);
        self.publish();
        ctx.run_interval(TICK, Self::tick);
        ctx.run_interval(PUBLISH_EVERY, |actor, _| actor.publish());
    }
}

impl Handler<Ask> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, Ask { what, call, reply }: Ask, ctx: &mut Self::Context) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let about = call.and_then(|call| Some((what.subject()?, call)));
        if let Some((about, call)) = about {
            self.calls.insert(about, (ticket, call));
        }
        self.waiting.insert(ticket, Waiting { reply, about: about.map(|(about, _)| about) });
        let event = match what {
            ClusterRequest::Register { link, connection, register } => {
                let node = connection.peer().name.clone();
                self.links.insert(link, connection);
                Event::Register { link, ticket, node, register }
            }
            ClusterRequest::Heartbeat { link, heartbeat } => Event::Heartbeat { link, ticket, heartbeat },
            ClusterRequest::OpenPool { asker, certificate, request } => {
                self.owners.asks(&asker.owner, certificate);
                Event::OpenPool { ticket, asker, request }
            }
            ClusterRequest::ReplaceSession { asker, certificate, request } => {
                self.owners.asks(&asker.owner, certificate);
                Event::ReplaceSession { ticket, asker, request }
            }
            ClusterRequest::ClosePool { asker, pool } => Event::ClosePool { ticket, asker, pool },
            ClusterRequest::Drain { node } => Event::Drain { ticket, node },
            ClusterRequest::Undrain { node } => Event::Undrain { ticket, node },
        };
        self.tell(event, ctx);
    }
}

impl Handler<Look> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, Look(look): Look, _: &mut Self::Context) {
        look(self, self.began.elapsed());
    }
}

impl Handler<Tell> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, Tell(event): Tell, ctx: &mut Self::Context) {
        self.tell(event, ctx);
    }
}

impl Handler<LinkDown> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, LinkDown { link, how }: LinkDown, ctx: &mut Self::Context) {
        self.links.remove(&link);
        let event = match how {
            LinkEnd::Refused => Event::LinkRefused { link },
            LinkEnd::Lost | LinkEnd::Leaving => Event::LinkLost { link, leaving: how == LinkEnd::Leaving },
        };
        self.tell(event, ctx);
    }
}

impl Handler<Leave> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, _: Leave, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

/// Returns the time that a node may take to open a session. Processes of a Python env are launched, and may have to connect,
/// up to [`LAUNCHES_OF_OPENING`] times.
fn open_deadline(request: &OpenSession) -> Duration {
    if request.settings.env.source().is_learned() {
        OPEN_DEADLINE + LAUNCHES_OF_OPENING * 2 * MAX_DEADLINE
    } else {
        OPEN_DEADLINE
    }
}

/// Number of requests that wait for the actor: a heartbeat of every node at once, and as many again.
pub(crate) const MAILBOX: usize = 2 * crate::limits::MAX_NODES;

const _: () = assert!(
    SharedBound::REQUESTS.limit <= MAILBOX as u64
        && crate::limits::MAX_NODES as u64 <= SharedBound::REQUESTS.reserve,
    "each request has a place in the mailbox, and each node's heartbeat one that owners never take"
);
/// Time that a node may take to make a session's lanes.
const OPEN_DEADLINE: Duration = Duration::from_secs(30);
/// Time that a node may take to end a session.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);

//! Accepts connections and answers their requests.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use actix::Addr;
use rollhouse_core::contained;
use rollhouse_core::msgpack::Message;
use rollhouse_wire::{
    Arrival, CloseCode, Connection, ConnectionLost, Done, Listener, PoolStatus, PoolStatusRequest, Refusal,
    RefusalCode, ReplaceSession, Request, Responder, Role, StreamLost, TokenStore, is_pool_of,
};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{Instrument, info, warn};

use crate::actor::{Ask, ClusterRequest, CoordinatorActor, LinkDown, LinkEnd, Look, Tell};
use crate::certifier::NodeCertifier;
use crate::event::{Asker, Event, LinkId, Reply};
use crate::figures::Published;
use crate::owners;
use crate::policies::PolicyShelf;
use crate::service::{Places, Reader, Service, asker, going_away, no_room};
use crate::store::Store;

/// The reason why serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was asked to end.
    Asked,
    /// It was asked to end, and something was cut off.
    CutOff,
    /// The actor that decides is gone: it panicked.
    Failed,
}

impl Service {
    pub(crate) fn new(
        actor: Addr<CoordinatorActor>,
        (store, policies): (Store, Arc<PolicyShelf>),
        tokens: Arc<TokenStore>,
        published: Arc<Published>,
        office: NodeCertifier,
    ) -> Self {
        Self {
            actor,
            store,
            policies,
            tokens,
            published,
            office,
            places: Places::new(),
            repairs: Semaphore::new(1),
            stopping: AtomicBool::new(false),
            links: AtomicU64::new(0),
            receiving: watch::Sender::new(0),
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Counts a segment as being received for as long as the returned guard lives.
    pub(crate) fn begin_receiving(self: &Arc<Self>) -> ReceivingGuard {
        self.receiving.send_modify(|count| *count += 1);
        ReceivingGuard(Arc::clone(self))
    }

    /// Returns the reason why that peer is not to be served any more, as of now.
    fn refusal(&self, connection: &Connection) -> Option<String> {
        owners::refusal(connection, &self.tokens.now(), SystemTime::now())
    }

    /// Waits until no segment is being received. Cancellation-safe.
    pub(crate) async fn nothing_received(&self) {
        // The sender lives as long as this does.
        let mut receiving = self.receiving.subscribe();
        let _none = receiving.wait_for(|&count| count == 0).await;
    }

    /// Ends connections of peers whose token or certificate no longer holds, and forgets those that have ended.
    fn look_at_peers(&self, open: &mut Vec<Connection>) {
        let (tokens, now) = (self.tokens.now(), SystemTime::now());
        open.retain(|connection| {
            if connection.lost().is_some() {
                return false;
            }
            let refusal = owners::refusal(connection, &tokens, now);
            if let Some(why) = &refusal {
                let (word, peer) = (RefusalCode::Unauthenticated.word(), connection.peer());
                self.note(word, peer.role, &format_args!("{peer}: {why}"));
                connection.close(CloseCode::Refused, why);
            }
            refusal.is_none()
        });
    }

    /// Counts a refusal that was made before the cluster was asked.
    fn note(&self, word: &'static str, whom: Role, what: &dyn fmt::Display) {
        if let Some(line) = self.published.refused(word, whom) {
            warn!(code = word, "refused a request: {word}: {what}{}", unshown(line.suppressed));
        }
    }

    pub(crate) async fn refuse(&self, responder: Responder, refusal: Refusal) -> Result<(), StreamLost> {
        let line = self.published.refused(refusal.code.word(), responder.peer().role);
        // That something is not there concerns who asked, and nobody else.
        if let Some(line) = line.filter(|_| refusal.code != RefusalCode::NotFound) {
            let (whom, more) = (responder.peer(), unshown(line.suppressed));
            warn!(code = refusal.code.word(), "refused a request of {whom}: {refusal}{more}");
        }
        responder.refuse(refusal).await
    }
}

/// A guard that counts a segment as being received, see [`Service::begin_receiving`].
pub(crate) struct ReceivingGuard(Arc<Service>);

impl Drop for ReceivingGuard {
    fn drop(&mut self) {
        self.0.receiving.send_modify(|count| *count -= 1);
    }
}

/// Accepts connections and serves each in a task of its own, until `stop` resolves or the actor is gone.
pub(crate) async fn accept(
    listener: &mut Listener,
    service: &Arc<Service>,
    connections: &mut JoinSet<()>,
    stop: impl Future<Output = ()>,
) -> Ended {
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut open = Vec::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            arrival = listener.accept() => match arrival {
                Some(Arrival::Connected(connection)) => {
                    open.push(connection.clone());
                    // Task: connection.
                    connections.spawn(serve(connection, Arc::clone(service)));
                }
                Some(Arrival::TurnedAway(away)) => {
                    if let Some(line) = service.published.refused(away.reason.word(), Role::Anonymous) {
                        let more = unshown(line.suppressed);
                        warn!(reason = away.reason.word(), "{away}{more}");
                    }
                }
                None => return Ended::Asked,
            },
            Some(_) = connections.join_next() => {}
            _ = look.tick() => {
                service.published.put_arrivals(listener.counts());
                service.look_at_peers(&mut open);
                if !service.actor.connected() {
                    return Ended::Failed;
                }
            }
            () = &mut stop => return Ended::Asked,
        }
    }
}

fn unshown(suppressed: u64) -> String {
    if suppressed == 0 { String::new() } else { format!(" ({suppressed} more of the kind were not shown)") }
}

/// Serves the requests of one peer, and tells the cluster when its connection has ended, also when serving it panics.
async fn serve(connection: Connection, service: Arc<Service>) {
    let link = LinkId(service.links.fetch_add(1, Ordering::Relaxed));
    service.published.connected(&connection);
    let ended = contained(serve_requests(&connection, &service, link)).await;
    service.published.disconnected(&connection);
    if ended.is_err() {
        connection.close(CloseCode::Internal, "what serves the connection has failed");
    }
    if connection.peer().role == Role::Node {
        let how = match ended {
            Ok(ConnectionLost::ByPeer { code: CloseCode::ShuttingDown, .. }) => LinkEnd::Leaving,
            _ if service.refusal(&connection).is_some() => LinkEnd::Refused,
            _ => LinkEnd::Lost,
        };
        // Waits for room: the cluster has to hear of it. A coordinator that is gone need not.
        let _told = service.actor.send(LinkDown { link, how }).await;
    }
}

/// Answers requests, each in a task of its own, until the connection is lost.
async fn serve_requests(connection: &Connection, service: &Arc<Service>, link: LinkId) -> ConnectionLost {
    let (noting, role) = (Arc::clone(service), connection.peer().role);
    let mut requests =
        connection.requests().telling(Arc::new(move |word, what| noting.note(word, role, what)));
    requests = requests.sharing(service.places.requests.clone());
    let reader = Arc::new(Reader::new(connection));
    let mut answering = JoinSet::new();
    loop {
        tokio::select! {
            next = requests.next() => match next {
                Ok((request, responder)) => {
                    let (connection, service) = (connection.clone(), Arc::clone(service));
                    let (reader, span) = (Arc::clone(&reader), responder.span(&request));
                    let (began, word, call) = (Instant::now(), request.word(), responder.call());
                    let answered = async move {
                        // Whether the peer still wants to hear it is its affair.
                        let _told = answer(&connection, &service, &reader, link, request, responder).await;
                        service.published.calls.note(word, call, began.elapsed(), SystemTime::now());
                    };
                    // Task: request.
                    answering.spawn(answered.instrument(span));
                }
                Err(lost) => return lost,
            },
            Some(_) = answering.join_next() => {}
        }
    }
}

/// Answers one request. The peer's role allows it: that was checked when the request was read.
async fn answer(
    connection: &Connection,
    service: &Arc<Service>,
    reader: &Reader,
    link: LinkId,
    request: Request,
    responder: Responder,
) -> Result<(), StreamLost> {
    if let Some(why) = service.refusal(connection) {
        // The next look at all peers counts it and ends the connection.
        return responder.refuse(Refusal::new(RefusalCode::Unauthenticated, why)).await;
    }
    if let Err(refusal) = admitted(connection, service, &request).await {
        return service.refuse(responder, refusal).await;
    }
    let asked = match request {
        Request::Register(register) => {
            service.office.registers(&connection.peer().name);
            ClusterRequest::Register { link, connection: connection.clone(), register: Box::new(register) }
        }
        Request::Heartbeat(heartbeat) => ClusterRequest::Heartbeat { link, heartbeat: Box::new(heartbeat) },
        Request::OpenPool(mut request) => {
            if let Err(refusal) = service.name_policy(connection, &mut request) {
                return service.refuse(responder, refusal).await;
            }
            let (asker, certificate) = asker(connection);
            ClusterRequest::OpenPool { asker, certificate, request: Box::new(request) }
        }
        Request::ReplaceSession(request) => {
            let (asker, certificate) = asker(connection);
            ClusterRequest::ReplaceSession { asker, certificate, request: Box::new(request) }
        }
        Request::ClosePool(close) => {
            ClusterRequest::ClosePool { asker: asker(connection).0, pool: close.pool }
        }
        Request::Drain(drain) => ClusterRequest::Drain { node: drain.node },
        Request::Undrain(undrain) => ClusterRequest::Undrain { node: undrain.node },
        Request::OpenReplay(open) => match service.replay_pool(connection, reader, open).await {
            Ok(asked) => asked,
            Err(refusal) => return service.refuse(responder, refusal).await,
        },
        Request::FetchEpisode(fetch) => return service.fetch_episode(fetch, reader, responder).await,
        Request::Watch(watch) => return service.watch(watch, responder).await,
        Request::Ship(ship) => {
            return service.ship(&connection.peer().name, ship, responder).await;
        }
        Request::Enroll(enroll) => return service.enroll(connection.peer(), enroll, responder).await,
        other => return answer_from_view(connection, service, reader, other, responder).await,
    };
    ask(service, asked, responder).await
}

/// Answers a request for a view of the cluster.
async fn answer_from_view(
    connection: &Connection,
    service: &Arc<Service>,
    reader: &Reader,
    request: Request,
    responder: Responder,
) -> Result<(), StreamLost> {
    match request {
        Request::Status(_) => {
            let status = service.see(|actor, _| actor.status()).await;
            service.answer(responder, status).await
        }
        Request::Nodes(page) => {
            let nodes = service.see(move |actor, now| actor.cluster().nodes_after(now, &page)).await;
            service.answer(responder, nodes).await
        }
        Request::Envs(page) => {
            let envs = service.see(move |actor, now| actor.cluster().envs_after(now, &page)).await;
            service.answer(responder, envs).await
        }
        Request::Sessions(page) => {
            let reads = connection.peer().reads.clone();
            let sessions = service.see(move |actor, _| actor.cluster().sessions_of(&reads, &page)).await;
            service.answer(responder, sessions).await
        }
        Request::PoolStatus(of) => {
            let status = service.pool_status(of, asker(connection).0).await;
            service.answer(responder, status).await
        }
        other => answer_from_store(service, reader, other, responder).await,
    }
}

/// Answers a request about the store; what is nobody's here is refused.
async fn answer_from_store(
    service: &Arc<Service>,
    reader: &Reader,
    request: Request,
    responder: Responder,
) -> Result<(), StreamLost> {
    match request {
        Request::StoreList(list) => service.store_list(list, reader, responder).await,
        Request::StoreRead(read) => service.store_read(read, reader, responder).await,
        Request::StoreQuery(query) => service.store_query(query, reader, responder).await,
        Request::StoreStats(_) => service.store_stats(reader, responder).await,
        Request::StoreLabel(label) => service.store_label(label, reader, responder).await,
        Request::StoreLabels(asked) => service.store_labels(asked, reader, responder).await,
        Request::StoreRepair(repair) => service.store_repair(repair, responder).await,
        Request::PutPolicy(put) => service.put_policy(put, reader, responder).await,
        Request::Policies(page) => service.list_policies(page, responder).await,
        Request::FetchPolicy(fetch) => service.fetch_policy(fetch, reader, responder).await,
        Request::RemovePolicy(remove) => service.remove_policy(remove, responder).await,
        Request::Audit(query) => service.audit_page(query, reader, responder).await,
        other => {
            let message = format!("a coordinator does not answer {}", other.word());
            service.refuse(responder, Refusal::new(RefusalCode::Unsupported, message)).await
        }
    }
}

/// Refuses what may not be asked, and notes what is audited.
async fn admitted(connection: &Connection, service: &Arc<Service>, request: &Request) -> Result<(), Refusal> {
    check_pool(connection, request)?;
    check_reads(connection, request)?;
    check_going(service, request)?;
    service.audited(connection, request).await
}

/// Refuses what begins something while the coordinator is going away.
fn check_going(service: &Service, request: &Request) -> Result<(), Refusal> {
    let begins = matches!(
        request,
        Request::OpenPool(_)
            | Request::OpenReplay(_)
            | Request::Ship(_)
            | Request::PutPolicy(_)
            | Request::Register(_)
            | Request::Enroll(_)
    );
    if begins && service.is_stopping() { Err(going_away()) } else { Ok(()) }
}

/// Refuses a pool whose id is another owner's, and one that would be a replay without having been looked for.
fn check_pool(connection: &Connection, request: &Request) -> Result<(), Refusal> {
    let (pool, replay) = match request {
        Request::OpenPool(open) | Request::ReplaceSession(ReplaceSession { open, .. }) => {
            (open.pool, open.settings.replay.is_some())
        }
        Request::OpenReplay(open) => (open.pool, false),
        _ => return Ok(()),
    };
    let owner = connection.peer().owner();
    let message = match is_pool_of(&owner, pool) {
        true if replay => "settings.replay: `open_replay` opens a recorded episode".to_owned(),
        true => return Ok(()),
        false => format!("pool: {pool} is not an id of `{owner}`"),
    };
    Err(Refusal::new(RefusalCode::BadRequest, message))
}

/// Refuses to tell of a pool that is of none of the owners that the asker may read.
fn check_reads(connection: &Connection, request: &Request) -> Result<(), Refusal> {
    let pool = match request {
        Request::PoolStatus(of) => of.pool,
        Request::Watch(watch) => watch.session.pool,
        _ => return Ok(()),
    };
    let reads = &connection.peer().reads;
    if reads.has_run(pool) {
        return Ok(());
    }
    let message = format!(
        "pool {pool} is of no owner that you may read, which are: {reads}; `rollhouse token create --reads OWNER` makes \
         a token that reads more"
    );
    Err(Refusal::new(RefusalCode::Forbidden, message))
}

/// Lets the cluster decide. An asker that no longer waits is forgotten; its request is decided all the same.
async fn ask(service: &Service, what: ClusterRequest, mut responder: Responder) -> Result<(), StreamLost> {
    let closed = if let ClusterRequest::ClosePool { pool, .. } = &what { Some(*pool) } else { None };
    let (told, call) = (what.told(), responder.call());
    let (reply, heard) = oneshot::channel();
    let replied = match service.actor.try_send(Ask { what, call, reply }) {
        Ok(()) => tokio::select! {
            replied = heard => replied.map_err(|_| going_away()),
            () = responder.abandoned() => return Ok(()),
        },
        Err(error) => Err(no_room(&error)),
    };
    if let (Some(told), Ok(reply)) = (told, &replied)
        && !matches!(reply, Reply::Refused(_))
    {
        info!("{told}");
    }
    match replied {
        Ok(Reply::Registered(registered)) => responder.respond(Ok(registered)).await,
        Ok(Reply::HeartbeatTaken(taken)) => responder.respond(Ok(taken)).await,
        Ok(Reply::PoolOpened(opened)) => responder.respond(Ok(*opened)).await,
        Ok(Reply::SessionReplaced(replaced)) => responder.respond(Ok(*replaced)).await,
        Ok(Reply::PoolClosed(status)) => {
            let status = match closed {
                Some(pool) => service.store.confirm(pool, *status),
                None => *status,
            };
            responder.respond(Ok(status)).await
        }
        Ok(Reply::Done) => responder.respond(Ok(Done {})).await,
        Ok(Reply::Refused(refusal)) | Err(refusal) => service.refuse(responder, refusal).await,
    }
}

impl Service {
    /// Has the actor look at the cluster, and returns what it saw.
    ///
    /// # Errors
    /// If the actor has as many requests as it takes, or is gone.
    pub(crate) async fn see<T: Send + 'static>(
        &self,
        look: impl FnOnce(&CoordinatorActor, Duration) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (reply, seen) = oneshot::channel();
        let look = Look(Box::new(move |actor, now| {
            // Who asked may have gone.
            let _told = reply.send(look(actor, now));
        }));
        self.actor.try_send(look).map_err(|error| no_room(&error))?;
        seen.await.map_err(|_| going_away())
    }

    /// Answers a request, or refuses it.
    pub(crate) async fn answer<T: Message>(
        &self,
        responder: Responder,
        answer: Result<T, Refusal>,
    ) -> Result<(), StreamLost> {
        match answer {
            Ok(answer) => responder.respond(Ok(answer)).await,
            Err(refusal) => self.refuse(responder, refusal).await,
        }
    }

    /// Returns the status of a pool, which is kept if its owner says that it is still wanted.
    async fn pool_status(&self, of: PoolStatusRequest, asker: Asker) -> Result<PoolStatus, Refusal> {
        let PoolStatusRequest { pool, keep } = of;
        if keep {
            self.actor.try_send(Tell(Event::KeepPool { asker, pool })).map_err(|error| no_room(&error))?;
        }
        let status = self.see(move |actor, now| actor.cluster().pool_status(now, pool)).await??;
        Ok(self.store.confirm(pool, status))
    }
}

/// Interval at which counts of strangers are brought up to date, and at which it is checked whether peers are still
/// believed and whether the actor has panicked.
const LOOK_EVERY: Duration = Duration::from_millis(250);

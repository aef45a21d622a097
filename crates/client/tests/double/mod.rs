//! A coordinator and nodes that speak the protocol in this process, with engines behind, and do wrong what a test
//! tells them to.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rollhouse_client::{Address, AsyncCluster, Cluster, ConnectOptions, PoolRequest};
use rollhouse_core::{AutoresetMode, Claimant, SeedSchedule, ShareBook, SharedBound};
use rollhouse_engine::{CommandLanes, Dispatch, Engine, EngineConfig, Method, Received, Reset, dispatch};
use rollhouse_env::Registry;
use rollhouse_wire::{
    Arrival, Attached, CertificateAuthority, CertificateFiles, CloseCode, CommandsOpened, Connection,
    ConnectionLost, Credential, EndCause, Envelope, FrameHeader, FrameKind, FrameLayout, FrameReader,
    FrameWriter, GoneSession, Grant, Identity, Incarnation, Listener, OpenPool, Peer, PoolOpened, PoolStatus,
    Refusal, RefusalCode, Request, ResetLanes, Responder, Role, Secret, SessionCounts, Settings, Stranger,
    Trust, control,
};
use tempfile::TempDir;
use tokio::sync::Notify;

pub(crate) const TOKEN: &str = "rh_1_test";

/// What a node does wrong at its next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Refuses as busy.
    Busy,
    /// Refuses for good.
    Refuse,
    /// Loses the connection before it steps.
    CutBefore,
    /// Steps and loses the connection before it answers.
    CutAfter,
    /// Forgets the session, as after a restart.
    Forget,
    /// Answers with a batch that is too short.
    Short,
    /// Does not answer for as long as the connection lives.
    Hang,
    /// Ends the session, and says why to whoever attaches.
    End(EndCause),
    /// Is not to be reached any more; the coordinator takes it for lost.
    Vanish,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A cluster of one process. Ends when dropped.
pub(crate) struct Double {
    address: SocketAddr,
    /// What is in it is read while the cluster lives.
    _folder: TempDir,
    authority: CertificateAuthority,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    nodes: usize,
    sessions: Mutex<HashMap<u32, Session>>,
    faults: Mutex<VecDeque<(usize, Fault)>>,
    closed: AtomicU32,
    /// What clients said who refused to go on with a connection.
    refused: Mutex<Vec<String>>,
    handled: AtomicU64,
    /// Sessions that are not there any more, as their node and the coordinator tell.
    gone: Mutex<HashMap<u32, EndCause>>,
    stop: Notify,
}

/// Lanes of an engine, and what was answered last.
struct Session {
    engine: Engine,
    layout: FrameLayout,
    same_step: bool,
    last: u32,
    answer: (FrameHeader, Vec<u8>, Vec<u8>),
}

impl Double {
    pub(crate) fn start(nodes: usize) -> Self {
        Self::start_for(nodes, DAY)
    }

    /// Its nodes' certificates hold for so long.
    pub(crate) fn start_for(nodes: usize, nodes_hold: Duration) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let authority = CertificateAuthority::create(folder, DAY).unwrap();
        let identity = |role: Role, name: &str, holds: Duration| {
            let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
            authority.issue(role, name, holds).unwrap().write(&certificate, &key).unwrap();
            Identity::load(Trust::File(folder.join("ca.pem")), Some(CertificateFiles { certificate, key }))
                .unwrap()
        };
        let coordinator = identity(Role::Coordinator, "coordinator", DAY);
        let identities: Vec<_> =
            (0..nodes).map(|n| identity(Role::Node, &format!("node-{n}"), nodes_hold)).collect();
        let shared = Arc::new(Shared {
            nodes,
            sessions: Mutex::default(),
            faults: Mutex::default(),
            closed: AtomicU32::new(0),
            refused: Mutex::default(),
            handled: AtomicU64::new(0),
            gone: Mutex::default(),
            stop: Notify::new(),
        });
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut addresses = Vec::new();
                    for (number, identity) in identities.into_iter().enumerate() {
                        let listener = shared.listen(identity, false);
                        addresses.push(listener.effective().address);
                        tokio::spawn(Arc::clone(&shared).serve(listener, Place::Node(number)));
                    }
                    let listener = shared.listen(coordinator, true);
                    tell.send(listener.effective().address).unwrap();
                    let serving = Arc::clone(&shared).serve(listener, Place::Coordinator(addresses));
                    tokio::select! { () = serving => {}, () = shared.stop.notified() => {} }
                });
            }
        });
        let address = told.recv().unwrap();
        Self { address, _folder: temporary, authority, shared, thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("rollhouse://{}?token={TOKEN}&ca={}", self.address, self.authority.fingerprint())
    }

    pub(crate) fn address(&self) -> Address {
        self.url().parse().unwrap()
    }

    pub(crate) fn options(&self) -> ConnectOptions {
        ConnectOptions::default()
    }

    pub(crate) fn connect(&self) -> Cluster {
        Cluster::connect(&self.address(), self.options(), None).unwrap()
    }

    pub(crate) async fn connect_async(&self) -> AsyncCluster {
        AsyncCluster::connect(&self.address(), self.options()).await.unwrap()
    }

    /// Node `node` does that at its next requests, one fault each, in order.
    pub(crate) fn fail(&self, node: usize, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.shared.faults).extend(faults.into_iter().map(|fault| (node, fault)));
    }

    /// Faults that have not happened yet.
    pub(crate) fn faults_left(&self) -> usize {
        lock(&self.shared.faults).len()
    }

    /// Pools that were closed by their owners.
    pub(crate) fn closed(&self) -> u32 {
        self.shared.closed.load(Ordering::Relaxed)
    }

    /// What clients said who refused to go on with a connection.
    pub(crate) fn refused(&self) -> Vec<String> {
        lock(&self.shared.refused).clone()
    }

    /// Requests that engines carried out, all nodes together.
    pub(crate) fn handled(&self) -> u64 {
        self.shared.handled.load(Ordering::Relaxed)
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.shared.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

#[derive(Clone)]
enum Place {
    Coordinator(Vec<SocketAddr>),
    Node(usize),
}

impl Shared {
    fn listen(&self, identity: Arc<Identity>, wants_token: bool) -> Listener {
        let authenticate = move |hello: &rollhouse_wire::Hello, stranger: &Stranger| {
            let role = if wants_token { Role::Trainer } else { Role::Anonymous };
            if wants_token && hello.token.as_deref() != Some(TOKEN) {
                return Err(Refusal::new(RefusalCode::Unauthenticated, "unknown token"));
            }
            let address = stranger.address;
            Ok(Peer {
                role,
                name: String::new(),
                credential: Credential::None,
                max_lanes: None,
                reads: rollhouse_wire::ReadGrant::none(),
                address,
            })
        };
        let any = "127.0.0.1:0".parse().unwrap();
        Listener::bind(any, identity, Settings::default(), "double", Box::new(authenticate)).unwrap()
    }

    async fn serve(self: Arc<Self>, mut listener: Listener, place: Place) {
        while let Some(arrival) = listener.accept().await {
            if let Arrival::Connected(connection) = arrival {
                tokio::spawn(Arc::clone(&self).talk(connection, place.clone()));
            }
        }
    }

    async fn talk(self: Arc<Self>, connection: Connection, place: Place) {
        let mut requests = connection.requests();
        loop {
            let (request, responder) = match requests.next().await {
                Ok(asked) => asked,
                Err(ConnectionLost::ByPeer { code: CloseCode::Refused, reason }) => {
                    return lock(&self.refused).push(reason);
                }
                Err(_) => return,
            };
            match (&place, request) {
                (Place::Coordinator(nodes), request) => self.coordinate(request, responder, nodes).await,
                (Place::Node(node), Request::Attach(attach)) => {
                    let task = Arc::clone(&self).attached(*node, attach, connection.clone(), responder);
                    tokio::spawn(task);
                }
                (Place::Node(node), Request::Commands(open)) => {
                    let task = Arc::clone(&self).commanded(*node, open.index, connection.clone(), responder);
                    tokio::spawn(task);
                }
                (Place::Node(_), _) => connection.close(CloseCode::Malformed, "not asked for"),
            }
        }
    }

    async fn coordinate(&self, request: Request, responder: Responder, nodes: &[SocketAddr]) {
        let _sent = match request {
            Request::OpenPool(open) => responder.respond(self.open(&open, nodes)).await,
            Request::ClosePool(_) => {
                self.closed.fetch_add(1, Ordering::Relaxed);
                lock(&self.sessions).clear();
                responder.respond(Ok(pool_status())).await
            }
            Request::PoolStatus(_) => {
                let gone = |(&index, &cause): (&u32, &EndCause)| GoneSession {
                    index,
                    incarnation: Incarnation { term: 1, counter: u64::from(index) },
                    cause,
                };
                let gone = lock(&self.gone).iter().map(gone).collect();
                responder.respond(Ok(PoolStatus { gone, ..pool_status() })).await
            }
            _ => responder.refuse(Refusal::new(RefusalCode::Unsupported, "the double cannot do that")).await,
        };
    }

    /// The pool's lanes, over all nodes as evenly as can be.
    fn open(&self, open: &OpenPool, nodes: &[SocketAddr]) -> Result<PoolOpened, Refusal> {
        let entry = Registry::builtin()
            .get(&open.settings.env)
            .map_err(|error| Refusal::new(RefusalCode::NotFound, error.to_string()))?;
        let (mut first_lane, mut grants) = (0, Vec::new());
        for (index, address) in (0..self.nodes as u32).zip(nodes) {
            let lanes = open.lanes / self.nodes as u32 + u32::from(index < open.lanes % self.nodes as u32);
            let mut config = EngineConfig::new(lanes as usize);
            config.autoreset = open.settings.autoreset;
            config.max_episode_steps = open.settings.max_episode_steps;
            config.first_lane = first_lane;
            if let SeedSchedule::PerEpisode { run_seed } = open.settings.seeds {
                config.schedule = SeedSchedule::PerEpisode { run_seed };
            }
            let engine = Engine::new(&entry, config, None)
                .map_err(|error| Refusal::new(RefusalCode::BadRequest, error.to_string()))?;
            let layout = FrameLayout::of(entry.spec());
            let header = FrameHeader { kind: FrameKind::Batch, flags: 0, number: 0, columns: 0, sidecar: 0 };
            let same_step = open.settings.autoreset == AutoresetMode::SameStep;
            let session =
                Session { engine, layout, same_step, last: 0, answer: (header, Vec::new(), Vec::new()) };
            lock(&self.sessions).insert(index, session);
            grants.push(Grant {
                index,
                incarnation: Incarnation { term: 1, counter: u64::from(index) },
                secret: Secret::from_bytes([7; 16]),
                node: format!("node-{index}"),
                address: address.to_string(),
                attach: None,
                first_lane,
                lanes,
            });
            first_lane += lanes;
        }
        Ok(PoolOpened { spec: entry.spec().clone(), lease_ms: 30_000, sessions: grants })
    }

    async fn attached(
        self: Arc<Self>,
        node: usize,
        attach: rollhouse_wire::Attach,
        connection: Connection,
        responder: Responder,
    ) {
        if lock(&self.gone).get(&attach.index) == Some(&EndCause::NodeLost) {
            connection.close(CloseCode::Internal, "not to be reached");
            return;
        }
        let known = lock(&self.sessions).get(&attach.index).map(|session| Attached {
            lanes: session.engine.lanes() as u32,
            last: session.last,
            logs: false,
            as_done: false,
            plays: false,
            paced: false,
        });
        let Some(attached) = known.filter(|_| attach.secret == Secret::from_bytes([7; 16])) else {
            let ended = lock(&self.gone).get(&attach.index).copied();
            let refusal = Refusal { ended, ..Refusal::new(RefusalCode::NotFound, "no such session") };
            let _sent = responder.refuse(refusal).await;
            return;
        };
        let shares = ShareBook::new(SharedBound::CONNECTIONS);
        let _admitted = connection.admit(&shares, Claimant::owner("owner"));
        let Ok((mut reader, mut writer)) = responder.accept_frames(attached, 1 << 20).await else { return };
        let _end = self.frames(node, attach.index, &connection, &mut reader, &mut writer).await;
    }

    /// Does commands until the stream ends or a fault ends it.
    async fn commanded(
        self: Arc<Self>,
        node: usize,
        index: u32,
        connection: Connection,
        responder: Responder,
    ) -> Option<()> {
        let lanes = lock(&self.sessions).get(&index)?.engine.lanes() as u32;
        let opened = CommandsOpened { lanes };
        let (mut reader, mut writer) = responder.accept_envelopes(opened).await.ok()?;
        while let Ok(Some(command)) = reader.read().await {
            let fault = self.next_fault(node);
            if fault == Some(Fault::CutBefore) {
                connection.close(CloseCode::Internal, "cut before");
                return None;
            }
            let refusal = match fault {
                Some(Fault::Busy) => Some(Refusal::busy("full", 1)),
                Some(Fault::Refuse) => Some(Refusal::new(RefusalCode::Internal, "does not want to")),
                _ => None,
            };
            let answer = match refusal {
                Some(refusal) => command.answered::<()>(Err(refusal)),
                None => {
                    self.handled.fetch_add(1, Ordering::Relaxed);
                    let mut sessions = lock(&self.sessions);
                    let engine = &mut sessions.get_mut(&index)?.engine;
                    let method = command.method.clone();
                    dispatch(&method, Command { engine, command: &command }).unwrap()
                }
            };
            if fault == Some(Fault::CutAfter) {
                connection.close(CloseCode::Internal, "cut after");
                return None;
            }
            writer.write(&answer).await.ok()?;
        }
        Some(())
    }

    /// Answers frames until the stream ends or a fault ends it.
    async fn frames(
        &self,
        node: usize,
        index: u32,
        connection: &Connection,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
    ) -> Option<()> {
        while let Ok(Some(header)) = reader.read().await {
            let fault = self.next_fault(node);
            match fault {
                Some(Fault::CutBefore) => {
                    connection.close(CloseCode::Internal, "cut before");
                    return None;
                }
                Some(Fault::Forget) => {
                    lock(&self.sessions).remove(&index);
                    connection.close(CloseCode::Internal, "forgotten");
                    return None;
                }
                Some(Fault::End(cause)) => {
                    lock(&self.sessions).remove(&index);
                    lock(&self.gone).insert(index, cause);
                    writer.stream().give_up(CloseCode::SessionEnded);
                    reader.stream().give_up(CloseCode::SessionEnded);
                    return None;
                }
                Some(Fault::Vanish) => {
                    lock(&self.gone).insert(index, EndCause::NodeLost);
                    connection.close(CloseCode::Internal, "vanished");
                    return None;
                }
                Some(Fault::Hang) => {
                    connection.closed().await;
                    return None;
                }
                _ => {}
            }
            let (mut answer, columns, sidecar) = {
                let mut sessions = lock(&self.sessions);
                let session = sessions.get_mut(&index)?;
                if header.number != session.last {
                    let refusal = match fault {
                        Some(Fault::Busy) => Some(Refusal::busy("full", 1)),
                        Some(Fault::Refuse) => Some(Refusal::new(RefusalCode::Internal, "does not want to")),
                        _ => None,
                    };
                    self.handled.fetch_add(u64::from(refusal.is_none()), Ordering::Relaxed);
                    session.handle(header, reader, refusal);
                }
                session.answer.clone()
            };
            if fault == Some(Fault::CutAfter) {
                connection.close(CloseCode::Internal, "cut after");
                return None;
            }
            let columns =
                if fault == Some(Fault::Short) { &columns[..columns.len() - 8] } else { &columns[..] };
            answer.columns = columns.len() as u32;
            writer.put(answer, &[columns], &sidecar);
            writer.flush().await.ok()?;
        }
        Some(())
    }

    fn next_fault(&self, node: usize) -> Option<Fault> {
        let mut faults = lock(&self.faults);
        let place = faults.iter().position(|(of, _)| *of == node)?;
        faults.remove(place).map(|(_, fault)| fault)
    }
}

impl Session {
    fn handle(&mut self, header: FrameHeader, reader: &FrameReader, refusal: Option<Refusal>) {
        assert_eq!(header.number, FrameHeader::next_number(self.last), "an owner repeats or goes on");
        self.last = header.number;
        let (kind, flags, columns) = match (refusal, header.kind) {
            (Some(refusal), _) => {
                let mut sidecar = Vec::new();
                control::encode(&refusal, &mut sidecar).unwrap();
                self.keep(FrameKind::Refused, 0, Vec::new(), sidecar.split_off(4));
                return;
            }
            (None, FrameKind::Send) => {
                let received = self.send(reader);
                let over = received.terminated.iter().chain(&received.truncated).any(|&flag| flag == 1);
                let last = !received.final_obs.is_empty() && over;
                (FrameKind::Rows, u8::from(last), rows_of(&received, last))
            }
            (None, kind) => {
                let (flags, columns) = self.batch(kind, reader);
                (FrameKind::Batch, flags, columns)
            }
        };
        self.keep(kind, flags, columns, Vec::new());
    }

    fn keep(&mut self, kind: FrameKind, flags: u8, columns: Vec<u8>, sidecar: Vec<u8>) {
        let lengths = (columns.len() as u32, sidecar.len() as u32);
        let header = FrameHeader { kind, flags, number: self.last, columns: lengths.0, sidecar: lengths.1 };
        self.answer = (header, columns, sidecar);
    }

    fn batch(&mut self, kind: FrameKind, reader: &FrameReader) -> (u8, Vec<u8>) {
        let frame = if kind == FrameKind::Reset {
            let lanes: ResetLanes = control::decode(reader.sidecar()).unwrap();
            let mask = lanes.mask.iter().map(|&flag| flag == 1).collect();
            self.engine.reset(&Reset { seeds: lanes.seeds, mask, options: lanes.options }).unwrap()
        } else {
            let places = self.layout.actions(self.engine.lanes(), false).unwrap();
            let actions = reader.columns().column(&places.actions, self.layout.action.dtype);
            assert!(self.engine.actions().unwrap().copy_from(actions));
            self.engine.step().unwrap()
        };
        let over = frame.terminated().iter().chain(frame.truncated()).any(|&flag| flag == 1);
        let mut out = Vec::new();
        (0..self.layout.obs.len()).for_each(|i| put(&mut out, frame.obs(i).bytes()));
        (0..self.layout.infos.len()).for_each(|i| put(&mut out, frame.info(i).bytes()));
        put(&mut out, &frame.rewards().iter().flat_map(|r| r.to_le_bytes()).collect::<Vec<_>>());
        [frame.terminated(), frame.truncated(), frame.reset()].iter().for_each(|flags| put(&mut out, flags));
        let last = over && kind == FrameKind::Step && self.same_step;
        if last {
            (0..self.layout.obs.len()).for_each(|i| put(&mut out, frame.final_obs(i).bytes()));
        }
        (u8::from(last), out)
    }

    fn send(&mut self, reader: &FrameReader) -> Received {
        let count = reader.columns().count().unwrap() as usize;
        let places = self.layout.actions(count, true).unwrap();
        let lanes = reader.columns().lanes(&places.lanes);
        let actions = reader.columns().column(&places.actions, self.layout.action.dtype);
        self.engine.send(lanes, actions).unwrap();
        self.engine.recv(count, Duration::ZERO).unwrap()
    }
}

/// A command to an engine.
struct Command<'a> {
    engine: &'a mut Engine,
    command: &'a Envelope,
}

impl Dispatch for Command<'_> {
    type Output = Envelope;

    fn with<M: Method>(self) -> Envelope {
        let params = self.command.payload::<M::Params>().unwrap();
        let answer = M::run(&mut CommandLanes::of(self.engine), params);
        let refusal =
            |error: rollhouse_engine::CommandError| Refusal::new(RefusalCode::BadRequest, error.to_string());
        self.command.clone().answered(answer.as_ref().map_err(|error| refusal(error.clone())))
    }
}

fn rows_of(received: &Received, last: bool) -> Vec<u8> {
    let mut out = (received.lanes.len() as u64).to_le_bytes().to_vec();
    put(&mut out, &received.lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect::<Vec<_>>());
    received.obs.iter().chain(&received.infos).for_each(|c| put(&mut out, c.as_ref().bytes()));
    put(&mut out, &received.rewards.iter().flat_map(|r| r.to_le_bytes()).collect::<Vec<_>>());
    [&received.terminated, &received.truncated, &received.reset]
        .iter()
        .for_each(|flags| put(&mut out, flags));
    if last {
        received.final_obs.iter().for_each(|c| put(&mut out, c.as_ref().bytes()));
    }
    out
}

fn put(out: &mut Vec<u8>, column: &[u8]) {
    out.extend_from_slice(column);
    out.resize(out.len().next_multiple_of(8), 0);
}

fn pool_status() -> PoolStatus {
    PoolStatus {
        open: 0,
        ended: [].into(),
        gone: Vec::new(),
        failures: Vec::new(),
        done: SessionCounts::default(),
        shipped: true,
        settled: true,
        set_aside: 0,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// A pool of CartPole, NEXT_STEP.
pub(crate) fn cart_pole(lanes: u32) -> PoolRequest {
    PoolRequest::new("CartPole-v1", lanes)
}

//! A cluster's authority, a coordinator that asks what the test asks, and an owner that speaks frames.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use rollhouse_core::{AutoresetMode, ColumnRef, RecordRule, RunId, SeedSchedule, StepColumns};
use rollhouse_node::{ClusterNode, ClusterNodeConfig};
use rollhouse_wire::{
    AdmitWatcher, Arrival, Attach, Attached, CallError, CertificateAuthority, CertificateFiles, CloseCode,
    CloseSession, ColumnBuffer, Connection, ConnectionLost, Credential, DialError, Dialer, EpisodeBytes,
    Expected, FrameFault, FrameHeader, FrameKind, FrameLayout, FrameReader, FrameWriter, Heartbeat,
    HeartbeatTaken, Hello, Identity, Incarnation, LaneSettings, Listener, OpenSession, OpenWatch, Peer,
    ReadGrant, Refusal, RefusalCode, Register, Registered, Request, Role, Secret, SessionEnd, SessionId,
    SessionOpened, Settings, Shipped, Stranger, Trust, WatcherAdmitted, pool_id_of,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::channel as bounded;
use tokio::sync::oneshot;

/// Far longer than anything here takes; only a test that fails waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Messages that wait for the test.
const MESSAGES: usize = 4_096;

/// Twenty times as often as a coordinator asks for.
pub const BEAT_MS: u64 = 50;

const DAY: Duration = Duration::from_secs(86_400);

/// A coordinator with one node that has joined it.
pub struct Cluster {
    pub authority: Authority,
    pub coordinator: Coordinator,
    pub node: ClusterNode,
}

impl Cluster {
    pub fn start(change: impl FnOnce(&mut ClusterNodeConfig)) -> Self {
        Self::start_in(|_, config| change(config))
    }

    /// The same with what `change` wants of the authority's folder.
    pub fn start_in(change: impl FnOnce(&Authority, &mut ClusterNodeConfig)) -> Self {
        let authority = Authority::new();
        let coordinator = Coordinator::start(&authority);
        let mut config = authority.node("n1", &coordinator);
        change(&authority, &mut config);
        let node = ClusterNode::start(config).unwrap();
        coordinator.registered();
        Self { authority, coordinator, node }
    }

    pub fn owner(&self) -> Owner {
        Owner::dial(&self.authority, &self.node)
    }
}

/// Held by tests that have a thousand sessions: they count threads and descriptors of the process.
pub static THOUSAND: Mutex<()> = Mutex::new(());

/// A folder with an authority; gone when dropped.
pub struct Authority {
    folder: TempDir,
    authority: CertificateAuthority,
}

impl Authority {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::create(folder.path(), DAY).unwrap();
        Self { folder, authority }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where coordinators put what nodes ship.
    pub fn store(&self) -> PathBuf {
        self.path().join("store")
    }

    pub fn identity(&self, role: Role, name: &str) -> Arc<Identity> {
        self.identity_for(role, name, DAY)
    }

    /// One that holds for so long.
    pub fn identity_for(&self, role: Role, name: &str, holds: Duration) -> Arc<Identity> {
        let files = CertificateFiles {
            certificate: self.path().join(format!("{name}.pem")),
            key: self.path().join(format!("{name}.key")),
        };
        let issued = self.authority.issue(role, name, holds).unwrap();
        issued.write(&files.certificate, &files.key).unwrap();
        Identity::load(Trust::File(self.path().join("ca.pem")), Some(files)).unwrap()
    }

    pub fn nobody(&self) -> Arc<Identity> {
        Identity::load(Trust::File(self.path().join("ca.pem")), None).unwrap()
    }

    /// A node's configuration, for a coordinator at that address.
    pub fn node(&self, name: &str, coordinator: &Coordinator) -> ClusterNodeConfig {
        let identity = self.identity(Role::Node, name);
        ClusterNodeConfig::new(identity, coordinator.address.to_string(), "node/test")
    }
}

/// What a node told its coordinator.
#[derive(Debug)]
pub enum Heard {
    Registered(Register),
    /// Its changes are put together with those before: they name every session that is open.
    Beat(Heartbeat),
    /// It goes on with the connection no more, for that reason.
    Refused(String),
}

/// What the test has the coordinator ask of the node that registered last.
enum Ask {
    Open(Box<OpenSession>, oneshot::Sender<Result<SessionOpened, Refusal>>),
    Close(CloseSession, oneshot::Sender<Result<SessionEnd, Refusal>>),
    Admit(AdmitWatcher, oneshot::Sender<Result<WatcherAdmitted, Refusal>>),
}

/// A coordinator that decides nothing: it takes nodes in, hears them, and asks what the test asks. Dropping it
/// closes its connections.
pub struct Coordinator {
    pub address: SocketAddr,
    heard: Receiver<Heard>,
    asks: Option<tokio::sync::mpsc::Sender<Ask>>,
    thread: Option<JoinHandle<()>>,
}

impl Coordinator {
    pub fn start(authority: &Authority) -> Self {
        Self::start_at(authority, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub fn start_at(authority: &Authority, listen: SocketAddr) -> Self {
        Self::start_as(authority.identity(Role::Coordinator, "coordinator"), authority, listen)
    }

    pub fn start_as(identity: Arc<Identity>, authority: &Authority, listen: SocketAddr) -> Self {
        let (told, heard) = sync_channel(MESSAGES);
        let (asks, asked) = bounded(MESSAGES);
        let (ready, address) = sync_channel(1);
        let store = authority.store();
        let thread = std::thread::spawn(move || {
            runtime().block_on(async move {
                let admit = |_: &Hello, stranger: &Stranger| by_certificate(stranger);
                let listener = Listener::bind(
                    listen,
                    identity,
                    Settings::default(),
                    "coordinator/test",
                    Box::new(admit),
                );
                let listener = listener.unwrap();
                ready.send(listener.effective().address).unwrap();
                coordinate(listener, told, asked, store).await;
            });
        });
        let address = address.recv().unwrap();
        Self { address, heard, asks: Some(asks), thread: Some(thread) }
    }

    /// Has the node open a session.
    pub fn open(&self, open: &OpenSession) -> Result<SessionOpened, Refusal> {
        let (done, answer) = oneshot::channel();
        let ask = Ask::Open(Box::new(open.clone()), done);
        assert!(self.asks.as_ref().unwrap().blocking_send(ask).is_ok());
        answer.blocking_recv().unwrap()
    }

    pub fn close(&self, open: &OpenSession) -> Result<SessionEnd, Refusal> {
        let (done, answer) = oneshot::channel();
        let close = CloseSession { session: open.session, incarnation: open.incarnation };
        assert!(self.asks.as_ref().unwrap().blocking_send(Ask::Close(close, done)).is_ok());
        answer.blocking_recv().unwrap()
    }

    /// Has the node admit one who watches a session. Returns what to show it.
    pub fn admit(&self, open: &OpenSession, owner: &str) -> OpenWatch {
        let OpenSession { session, incarnation, .. } = *open;
        let (done, answer) = oneshot::channel();
        let admit = AdmitWatcher { session, incarnation, owner: owner.to_owned(), operates: false };
        assert!(self.asks.as_ref().unwrap().blocking_send(Ask::Admit(admit, done)).is_ok());
        let WatcherAdmitted { key } = answer.blocking_recv().unwrap().unwrap();
        OpenWatch { pool: session.pool, index: session.index, incarnation, key }
    }

    /// The next thing a node says for which `wanted` gives something.
    pub fn hear<T>(&self, mut wanted: impl FnMut(Heard) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(self.heard.recv_timeout(PATIENCE).unwrap()) {
                return found;
            }
        }
    }

    pub fn registered(&self) -> Register {
        self.hear(|heard| match heard {
            Heard::Registered(register) => Some(register),
            _ => None,
        })
    }

    /// The end of a session, as the node tells it.
    pub fn end_of(&self, open: &OpenSession) -> SessionEnd {
        self.hear(|heard| match heard {
            Heard::Beat(beat) => beat.ended.into_iter().find(|end| end.session == open.session),
            _ => None,
        })
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn by_certificate(stranger: &Stranger) -> Result<Peer, Refusal> {
    match stranger.certificate.as_ref().map(|certificate| certificate.certify(SystemTime::now())) {
        Some(Ok(certified)) => Ok(Peer {
            role: certified.role,
            name: certified.name,
            credential: Credential::Certificate,
            max_lanes: None,
            reads: ReadGrant::none(),
            address: stranger.address,
        }),
        _ => Err(Refusal::new(RefusalCode::Unauthenticated, "no certificate")),
    }
}

async fn coordinate(
    mut listener: Listener,
    told: SyncSender<Heard>,
    mut asked: tokio::sync::mpsc::Receiver<Ask>,
    store: PathBuf,
) {
    let (newest, node) = tokio::sync::watch::channel(None::<Connection>);
    loop {
        tokio::select! {
            arrival = listener.accept() => {
                let Some(Arrival::Connected(connection)) = arrival else { continue };
                let (told, newest) = (told.clone(), newest.clone());
                tokio::spawn(hear_node(connection, told, newest, store.clone()));
            }
            ask = asked.recv() => {
                let Some(ask) = ask else { break };
                let mut node = node.clone();
                tokio::spawn(async move {
                    let node = node.wait_for(Option::is_some).await.unwrap().clone().unwrap();
                    match ask {
                        Ask::Open(open, done) => {
                            let _told = done.send(refusal_of(node.call(*open, PATIENCE).await));
                        }
                        Ask::Admit(admit, done) => {
                            let _told = done.send(refusal_of(node.call(admit, PATIENCE).await));
                        }
                        Ask::Close(close, done) => {
                            let _told = done.send(refusal_of(node.call(close, PATIENCE).await));
                        }
                    }
                });
            }
        }
    }
    listener.close(rollhouse_wire::CloseCode::ShuttingDown, "the test is over");
    listener.closed().await;
}

fn refusal_of<T>(answer: Result<T, CallError>) -> Result<T, Refusal> {
    answer.map_err(|error| match error {
        CallError::Refused(refusal) => refusal,
        other => panic!("{other}"),
    })
}

async fn hear_node(
    connection: Connection,
    told: SyncSender<Heard>,
    newest: tokio::sync::watch::Sender<Option<Connection>>,
    store: PathBuf,
) {
    let mut requests = connection.requests();
    let mut sessions = BTreeMap::new();
    loop {
        let (request, mut responder) = match requests.next().await {
            Ok(asked) => asked,
            Err(ConnectionLost::ByPeer { code: CloseCode::Refused, reason }) => {
                let _test = told.try_send(Heard::Refused(reason));
                return;
            }
            Err(_) => return,
        };
        match request {
            Request::Register(register) => {
                newest.send_replace(Some(connection.clone()));
                let _test = told.try_send(Heard::Registered(register));
                let answer = Registered { term: 1, boot: 0, heartbeat_ms: BEAT_MS, known: 0 };
                let _node = responder.respond(Ok(answer)).await;
            }
            Request::Heartbeat(mut beat) => {
                let (number, known) = (beat.number, beat.changes.through);
                let answer =
                    HeartbeatTaken { number, known, close: Vec::new(), drain: false, undrain: false };
                let changed = std::mem::take(&mut beat.changes.sessions);
                sessions.extend(changed.into_iter().map(|report| (report.session, report)));
                beat.ended.iter().for_each(|end| drop(sessions.remove(&end.session)));
                beat.changes.sessions = sessions.values().cloned().collect();
                // A test that does not listen misses the later ones.
                let _test = told.try_send(Heard::Beat(beat));
                let _node = responder.respond(Ok(answer)).await;
            }
            Request::Ship(ship) => {
                let mut bytes = vec![0; ship.bytes as usize];
                responder.body().read_exact(&mut bytes).await.unwrap();
                let folder = store.join(format!("{}/segments", ship.spool));
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(folder.join(format!("{:010}.seg", ship.segment)), bytes).unwrap();
                let _node = responder.respond(Ok(Shipped::Durable)).await;
            }
            Request::FetchEpisode(fetch) => match std::fs::read(store.join(fetch.episode)) {
                Ok(file) => {
                    let answer = EpisodeBytes { bytes: file.len() as u64 };
                    let (_asker, mut send) = responder.accept(answer).await.unwrap();
                    let _node = send.write_all(&file).await;
                    let _node = send.finish();
                }
                Err(error) => {
                    let refusal = Refusal::new(RefusalCode::NotFound, error.to_string());
                    let _node = responder.refuse(refusal).await;
                }
            },
            other => panic!("{}", other.word()),
        }
    }
}

/// A session for `lanes` lanes of an env, from the pool's first lane on.
pub fn session(pool: u128, env: &str, lanes: u32) -> OpenSession {
    session_of("trainer", pool, env, lanes)
}

/// Such a session of that owner's pool.
pub fn session_of(owner: &str, pool: u128, env: &str, lanes: u32) -> OpenSession {
    OpenSession {
        session: SessionId { pool: pool_id_of(owner, RunId::from_u128(pool << 32)), index: 0 },
        incarnation: Incarnation { term: 1, counter: 1 },
        secret: Secret::from_bytes([pool as u8; 16]),
        owner: owner.to_owned(),
        operates: false,
        first_lane: 0,
        lanes,
        pool_lanes: lanes,
        replaces: false,
        resume: None,
        settings: LaneSettings {
            env: env.into(),
            env_kwargs: String::new(),
            deterministic: None,
            infos: Default::default(),
            pace: None,
            options: Default::default(),
            autoreset: AutoresetMode::NextStep,
            max_episode_steps: None,
            seeds: SeedSchedule::PerEpisode { run_seed: 11 },
            record: RecordRule::None,
            collect: None,
            replay: None,
            step_columns: StepColumns::default(),
        },
    }
}

pub fn attach_of(open: &OpenSession) -> Attach {
    let OpenSession { session, incarnation, secret, .. } = *open;
    Attach { pool: session.pool, index: session.index, incarnation, secret, log: false }
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A connection of an owner to a node; drives it while it is asked.
pub struct Owner {
    runtime: Runtime,
    pub dialer: Dialer,
    pub connection: Connection,
}

impl Owner {
    pub fn dial(authority: &Authority, node: &ClusterNode) -> Self {
        Self::try_dial(authority, node).unwrap()
    }

    pub fn try_dial(authority: &Authority, node: &ClusterNode) -> Result<Self, DialError> {
        let runtime = runtime();
        let dialer = Dialer::new(authority.nobody(), Settings::default(), "owner/test");
        let expected = Expected::node(node.name());
        let dialled = dialer.dial_address(node.address(), &expected, None);
        let connection = runtime.block_on(dialled)?;
        Ok(Self { runtime, dialer, connection })
    }

    pub fn block_on<T>(&self, task: impl Future<Output = T>) -> T {
        self.runtime.block_on(task)
    }

    pub fn try_attach(&self, open: &OpenSession) -> Result<Stepper<'_>, CallError> {
        let (registry, id) = (rollhouse_env::Registry::builtin(), &open.settings.env);
        // A test's own env has the layout of the one at the end of its id.
        let entry = registry.get(id).or_else(|_| registry.get(id.rsplit('/').next().unwrap())).unwrap();
        let layout = FrameLayout::of(entry.spec());
        let most = layout.rows(open.lanes as usize, true).unwrap().bytes;
        let (attached, reader, writer) =
            self.block_on(self.connection.attach(attach_of(open), None, most))?;
        Ok(Stepper { owner: self, layout, lanes: open.lanes as usize, attached, reader, writer })
    }

    pub fn attach(&self, open: &OpenSession) -> Stepper<'_> {
        self.try_attach(open).unwrap()
    }
}

/// One attachment to a session.
pub struct Stepper<'a> {
    owner: &'a Owner,
    pub layout: FrameLayout,
    lanes: usize,
    pub attached: Attached,
    pub reader: FrameReader,
    pub writer: FrameWriter,
}

/// An answer of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    pub header: FrameHeader,
    pub columns: Vec<u8>,
    pub sidecar: Vec<u8>,
}

impl Answered {
    pub fn refusal(&self) -> Refusal {
        assert_eq!(self.header.kind, FrameKind::Refused, "{:?}", self.header);
        rollhouse_wire::control::decode(&self.sidecar).unwrap()
    }
}

impl Stepper<'_> {
    pub fn put(&mut self, header: FrameHeader, columns: &[u8]) {
        self.put_with(header, columns, &[]);
    }

    pub fn put_with(&mut self, header: FrameHeader, columns: &[u8], sidecar: &[u8]) {
        self.writer.put(header, &[columns], sidecar);
        self.owner.block_on(async {
            self.writer.flush().await.unwrap();
            // The connection's own task sends it, on this very thread.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        });
    }

    pub fn ask(&mut self, kind: FrameKind, number: u32, columns: &[u8]) {
        let header = FrameHeader { kind, flags: 0, number, columns: columns.len() as u32, sidecar: 0 };
        self.put(header, columns);
    }

    pub fn hear(&mut self) -> Result<Answered, FrameFault> {
        let header = self.owner.block_on(self.reader.read())?.unwrap();
        let (columns, sidecar) = (self.reader.columns().bytes().to_vec(), self.reader.sidecar().to_vec());
        Ok(Answered { header, columns, sidecar })
    }

    pub fn reset(&mut self, number: u32) -> Answered {
        self.ask(FrameKind::Reset, number, &[]);
        self.hear().unwrap()
    }

    pub fn step(&mut self, number: u32, actions: &[i64]) -> Answered {
        assert_eq!(actions.len(), self.lanes);
        self.ask(FrameKind::Step, number, ColumnRef::I64(actions).bytes());
        self.hear().unwrap()
    }

    pub fn send(&mut self, number: u32, lanes: &[u32], actions: &[i64]) -> Answered {
        self.ask_to_send(number, lanes, actions);
        self.hear().unwrap()
    }

    pub fn ask_to_send(&mut self, number: u32, lanes: &[u32], actions: &[i64]) {
        let places = self.layout.actions(lanes.len(), true).unwrap();
        let mut columns = ColumnBuffer::default();
        columns.resize(places.bytes);
        columns.bytes_mut().fill(0);
        columns.set_count(&places.count, lanes.len() as u32);
        columns.lanes_mut(&places.lanes).copy_from_slice(lanes);
        columns.bytes_mut()[places.actions].copy_from_slice(ColumnRef::I64(actions).bytes());
        self.ask(FrameKind::Send, number, columns.bytes());
    }
}

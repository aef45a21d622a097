//! A coordinator with its certificates and tokens, and nodes and trainers that speak to it over loopback.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rollhouse_coordinator::{Coordinator, CoordinatorConfig, CoordinatorError, EnrolmentConfig, StoreConfig};
use rollhouse_core::{EnvSpec, StepColumns};
use rollhouse_env::Registry;
use rollhouse_wire::{
    Asks, CallError, CertificateAuthority, CertificateFiles, Changes, Connection, Dialer, EndCause, Expected,
    Heartbeat, HeartbeatTaken, Identity, JoinTerms, LaneSettings, NewToken, NodeIssuer, NodeLoad, OpenPool,
    OpenSession, Refusal, Register, Registered, Request, Role, SessionCounts, SessionEnd, SessionOpened,
    SessionReport, Settings, Spread, TokenStore, Trust, new_pool_id,
};
use tempfile::TempDir;
use tokio::sync::watch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, dispatcher};

/// Hears each line of a coordinator's log.
struct Ear<F>(F);

/// What a line says.
struct Said(String);

pub const PATIENCE: Duration = Duration::from_secs(20);

/// The folder of one test, with an authority in it; gone when dropped.
pub struct Stage {
    folder: TempDir,
    authority: CertificateAuthority,
    pub tokens: Arc<TokenStore>,
}

impl Stage {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::create(folder.path(), Duration::from_secs(3600)).unwrap();
        let tokens = Arc::new(TokenStore::open(folder.path().join("tokens.json")).unwrap());
        Self { folder, authority, tokens }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Somebody with a certificate.
    pub fn certified(&self, role: Role, name: &str) -> Arc<Identity> {
        self.certified_for(role, name, Duration::from_secs(3600))
    }

    /// The same with a certificate that holds for so long.
    pub fn certified_for(&self, role: Role, name: &str, validity: Duration) -> Arc<Identity> {
        let files = CertificateFiles {
            certificate: self.path().join(format!("{name}.pem")),
            key: self.path().join(format!("{name}.key")),
        };
        let issued = self.authority.issue(role, name, validity).unwrap();
        issued.write(&files.certificate, &files.key).unwrap();
        Identity::load(self.trust(), Some(files)).unwrap()
    }

    fn trust(&self) -> Trust {
        Trust::File(self.path().join(rollhouse_wire::CA_CERTIFICATE))
    }

    pub fn coordinator(&self) -> Coordinator {
        self.start().unwrap()
    }

    pub fn start(&self) -> Result<Coordinator, CoordinatorError> {
        self.start_telling(|_, _| ())
    }

    /// One that tells its operator what happens by `log`.
    pub fn start_telling(
        &self,
        log: impl Fn(Level, &str) + Send + Sync + 'static,
    ) -> Result<Coordinator, CoordinatorError> {
        dispatcher::with_default(&Dispatch::new(Ear(log)), || self.start_heard())
    }

    fn start_heard(&self) -> Result<Coordinator, CoordinatorError> {
        Coordinator::start(CoordinatorConfig {
            least_term: 0,
            data: self.path().join("data"),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            identity: self.certified(Role::Coordinator, "coordinator"),
            tokens: Arc::clone(&self.tokens),
            enrolment: EnrolmentConfig {
                issuer: self.path().join("issuer.pem"),
                validity: Duration::from_secs(600),
            },
            store: StoreConfig { budget_bytes: 1 << 30, quarantine_bytes: 1 << 20 },
            policies_bytes: 1 << 20,
            archive: None,
            quic: Settings::default(),
            program: "coordinator under test".to_owned(),
        })
    }

    /// A new token's id and text.
    pub fn token(&self, role: Role, max_lanes: Option<u32>) -> (String, String) {
        self.token_for(role, max_lanes, None)
    }

    /// The same of one that holds for so long.
    pub fn token_for(
        &self,
        role: Role,
        max_lanes: Option<u32>,
        lifetime: Option<Duration>,
    ) -> (String, String) {
        let name = role.word().to_owned();
        let new = NewToken { name, role, max_lanes, reads: None, lifetime, join: None };
        let (record, text) = self.tokens.create(&new, SystemTime::now()).unwrap();
        (record.id, text)
    }

    /// A new join token's id and text.
    pub fn join_token(&self, terms: JoinTerms) -> (String, String) {
        let (name, lifetime) = ("join".to_owned(), Some(Duration::from_secs(3600)));
        let new =
            NewToken { name, role: Role::Join, max_lanes: None, reads: None, lifetime, join: Some(terms) };
        let (record, text) = self.tokens.create(&new, SystemTime::now()).unwrap();
        (record.id, text)
    }

    /// Makes what the coordinator lets nodes in by.
    pub fn issuer(&self) {
        NodeIssuer::create(&self.authority, Duration::from_secs(3600), &self.path().join("issuer.pem"))
            .unwrap();
    }

    pub fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    /// Connects with a token of its own.
    pub async fn holder(&self, at: SocketAddr, role: Role) -> Peer {
        let (_, token) = self.token(role, None);
        self.connect(at, &token).await
    }

    /// Connects as somebody who lets the coordinator send no more than 16 KiB of an answer before he reads.
    pub async fn narrow_holder(&self, at: SocketAddr, role: Role) -> Peer {
        let (_, token) = self.token(role, None);
        self.narrow(at, &token).await
    }

    /// The same with that token.
    pub async fn narrow(&self, at: SocketAddr, token: &str) -> Peer {
        let identity = Identity::load(self.trust(), None).unwrap();
        let settings = Settings { stream_window: 16 << 10, ..Settings::default() };
        Peer::dial_with(settings, identity, at, Some(token)).await
    }

    pub async fn connect(&self, at: SocketAddr, token: &str) -> Peer {
        let identity = Identity::load(self.trust(), None).unwrap();
        Peer::dial(identity, at, Some(token)).await
    }

    /// Connects a node that never answers what it is asked for.
    pub async fn mute_node(&self, at: SocketAddr, name: &str) -> Node {
        let peer = Peer::dial(self.certified(Role::Node, name), at, None).await;
        Node::serving(peer, name, watch::Sender::default(), tokio::spawn(std::future::pending()))
    }

    /// Connects a node that opens whatever it is asked for.
    pub async fn node(&self, at: SocketAddr, name: &str) -> Node {
        Self::node_as(self.certified(Role::Node, name), at, name).await
    }

    /// The same with that certificate.
    pub async fn node_as(identity: Arc<Identity>, at: SocketAddr, name: &str) -> Node {
        Node::new(Peer::dial(identity, at, None).await, name)
    }
}

/// One connection to the coordinator.
pub struct Peer {
    _dialer: Dialer,
    pub connection: Connection,
}

impl Peer {
    /// A pool of its own.
    pub fn pool(&self, lanes: u32) -> OpenPool {
        pool_of(self.connection.known_as(), lanes)
    }

    pub async fn dial(identity: Arc<Identity>, at: SocketAddr, token: Option<&str>) -> Self {
        Self::dial_with(Settings::default(), identity, at, token).await
    }

    async fn dial_with(
        settings: Settings,
        identity: Arc<Identity>,
        at: SocketAddr,
        token: Option<&str>,
    ) -> Self {
        let dialer = Dialer::new(identity, settings, "test");
        let connection = dialer.dial_address(at, &Expected::COORDINATOR, token).await.unwrap();
        Self { _dialer: dialer, connection }
    }

    pub async fn ask<R: Asks>(&self, request: R) -> Result<R::Answer, Refusal> {
        match self.connection.call(request, PATIENCE).await {
            Ok(answer) => Ok(answer),
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(error) => panic!("{} got no answer: {error}", R::WORD),
        }
    }
}

/// A node that opens and closes what it is asked to, and tells of it.
pub struct Node {
    peer: Peer,
    name: String,
    sessions: watch::Sender<Vec<OpenSession>>,
    beats: u64,
    /// Where owners would dial it: the coordinator takes a node whose port is closed for lost.
    port: UdpSocket,
    _serving: tokio::task::JoinHandle<()>,
}

impl Node {
    fn new(peer: Peer, name: &str) -> Self {
        let sessions = watch::Sender::default();
        let (connection, held) = (peer.connection.clone(), sessions.clone());
        let serving = tokio::spawn(async move {
            let mut requests = connection.requests();
            while let Ok((request, responder)) = requests.next().await {
                match request {
                    Request::OpenSession(open) => {
                        held.send_modify(|held: &mut Vec<OpenSession>| held.push(open));
                        let opened = SessionOpened { spec: spec(), lease_ms: 30_000, replay: false };
                        responder.respond(Ok(opened)).await.unwrap();
                    }
                    Request::CloseSession(close) => {
                        held.send_modify(|held| held.retain(|s| s.incarnation != close.incarnation));
                        let end = SessionEnd {
                            session: close.session,
                            incarnation: close.incarnation,
                            cause: EndCause::Closed,
                            detail: String::new(),
                            done: SessionCounts { steps: 7, ..SessionCounts::default() },
                            report: None,
                            unreached: false,
                        };
                        responder.respond(Ok(end)).await.unwrap();
                    }
                    other => panic!("a node is not asked for {}", other.word()),
                }
            }
        });
        Self::serving(peer, name, sessions, serving)
    }

    fn serving(
        peer: Peer,
        name: &str,
        sessions: watch::Sender<Vec<OpenSession>>,
        serving: tokio::task::JoinHandle<()>,
    ) -> Self {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap();
        Self { peer, name: name.to_owned(), sessions, beats: 0, port, _serving: serving }
    }

    pub fn sessions(&self) -> Vec<OpenSession> {
        self.sessions.borrow().clone()
    }

    /// Waits until so many sessions are left.
    pub async fn left(&self, count: usize) {
        self.sessions.subscribe().wait_for(|held| held.len() == count).await.unwrap();
    }

    /// What another connection of the same node would still hold.
    pub fn take_over(&mut self, sessions: Vec<OpenSession>) {
        self.sessions.send_replace(sessions);
    }

    /// Where it says that it listens.
    pub fn address(&self) -> String {
        self.port.local_addr().unwrap().to_string()
    }

    /// Has somebody listen there also when the node is gone.
    pub fn hold_port(&self) -> UdpSocket {
        self.port.try_clone().unwrap()
    }

    fn reports(&self) -> Vec<SessionReport> {
        let report = |open: OpenSession| SessionReport {
            session: open.session,
            incarnation: open.incarnation,
            owner: open.owner,
            env: open.settings.env,
            first_lane: open.first_lane,
            lanes: open.lanes,
            pool_lanes: open.pool_lanes,
            replaces: open.replaces,
            launching: false,
            attached: Some(true),
            transport: Some("quic".to_owned()),
            done: SessionCounts::default(),
            replay: None,
            plays: None,
        };
        self.sessions().into_iter().map(report).collect()
    }

    pub async fn register(&self, capacity: u32) -> Result<Registered, Refusal> {
        let register = Register {
            node: self.name.clone(),
            boot: 1,
            address: self.address(),
            attach: None,
            capacity,
            threads: 1,
            labels: BTreeMap::new(),
            envs: BTreeMap::from([(spec().id, spec().dynamics_hash)]),
            kinds: Vec::new(),
            budget: None,
            term: self.sessions().iter().map(|open| open.incarnation.term).max().unwrap_or(0),
            seen: None,
            program: "test".to_owned(),
        };
        self.peer.ask(register).await
    }

    pub async fn beat(&mut self) -> Result<HeartbeatTaken, Refusal> {
        self.beats += 1;
        let changes = Changes { since: 0, through: self.beats, sessions: self.reports(), more: false };
        let heartbeat = Heartbeat {
            number: self.beats,
            load: NodeLoad::default(),
            changes,
            ended: Vec::new(),
            unfit: None,
            draining: false,
            measured: BTreeMap::new(),
            connecting: Vec::new(),
            standings: Vec::new(),
        };
        self.peer.ask(heartbeat).await
    }

    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

pub fn spec() -> EnvSpec {
    Registry::builtin().get("CartPole-v1").unwrap().spec().clone()
}

pub fn pool_of(owner: &str, lanes: u32) -> OpenPool {
    OpenPool {
        pool: new_pool_id(owner),
        lanes,
        settings: LaneSettings {
            env: "CartPole-v1".into(),
            env_kwargs: String::new(),
            deterministic: None,
            infos: Default::default(),
            pace: None,
            options: BTreeMap::new(),
            autoreset: rollhouse_core::AutoresetMode::NextStep,
            max_episode_steps: None,
            seeds: rollhouse_core::SeedSchedule::Continue,
            record: rollhouse_core::RecordRule::None,
            collect: None,
            replay: None,
            step_columns: StepColumns::default(),
        },
        labels: BTreeMap::new(),
        spread: Spread::Pack,
    }
}

impl<F: Fn(Level, &str) + Send + Sync + 'static> Subscriber for Ear<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("rollhouse_coordinator")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = Said(String::new());
        event.record(&mut said);
        (self.0)(*event.metadata().level(), &said.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

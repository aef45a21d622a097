//! The running coordinator: its thread, which is started and stopped in order.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use actix::prelude::*;
use ring::rand::{SecureRandom, SystemRandom};
use rollhouse_archive::{Target, TargetError, TargetOptions};
use rollhouse_replay::{OpenError, RealDisk};
use rollhouse_wire::{
    BehindStatus, BindError, CloseCode, Effective, Hello, Identity, Listener, Role, Secret, SeenTerm,
    Settings, Stranger, TokenStore,
};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{dispatcher, error};

use crate::actor::{CoordinatorActor, Leave};
use crate::audit::AuditLog;
use crate::certifier::{EnrolmentConfig, NodeCertifier};
use crate::cluster::{Cluster, SecretSource};
use crate::data::{DataError, DataFolder, learns_terms};
use crate::figures::{CoordinatorFigures, Published};
use crate::limits::MAX_UNACKNOWLEDGED_BYTES;
use crate::owners::Owners;
use crate::policies::PolicyShelf;
use crate::roster::Roster;
use crate::serve::{Ended, accept};
use crate::service::Service;
use crate::store::{ArchiveConfig, Archiver, Store, StoreConfig};

/// The settings with which a coordinator is started.
#[derive(Clone)]
pub struct CoordinatorConfig {
    /// The folder of its term and its store. A second coordinator on it is refused.
    pub data: PathBuf,
    /// The least term to use; 0 means the next one of its folder.
    pub least_term: u64,
    /// The UDP address at which nodes and clients dial in; port 0 for any.
    pub listen: SocketAddr,
    /// Its certificate, and the authorities that it trusts.
    pub identity: Arc<Identity>,
    /// The tokens of peers without a certificate.
    pub tokens: Arc<TokenStore>,
    /// The settings for letting nodes in.
    pub enrolment: EnrolmentConfig,
    /// The sizes to which its store is limited.
    pub store: StoreConfig,
    /// Number of bytes of policies that it keeps.
    pub policies_bytes: u64,
    /// The archive for stored segments, which may leave the disk once they are there; `None` means no archive.
    pub archive: Option<ArchiveSettings>,
    /// The settings of QUIC.
    pub quic: Settings,
    /// Name and version of the program.
    pub program: String,
}

/// The archive of a coordinator's store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// A folder, or `s3://BUCKET/PREFIX` if the program was built with object storage.
    pub target: String,
    /// Number of bytes of segments that are kept on this disk after they were fetched to be read.
    pub cache_bytes: u64,
}

/// A coordinator in this process: one thread, threads of the store while it blocks for the disk, and one that archives.
/// Dropping it ends it at once; see [`Coordinator::stop`]. Sessions on nodes go on in either case.
#[derive(Debug)]
pub struct Coordinator {
    effective: Effective,
    term: u64,
    store: Store,
    policies: Arc<PolicyShelf>,
    identity: Arc<Identity>,
    tokens: Arc<TokenStore>,
    published: Arc<Published>,
    stop: Option<oneshot::Sender<Duration>>,
    ended: Receiver<Ended>,
    thread: Option<JoinHandle<()>>,
    archiver: Option<Archiver>,
    _data: DataFolder,
}

/// The reason why a coordinator could not be started. Nothing is left running then.
#[derive(Debug)]
pub enum CoordinatorError {
    /// The certificate is missing or is not a coordinator's.
    Identity {
        /// The role that the certificate is for, if there is one.
        role: Option<Role>,
    },
    /// Its folder cannot be used.
    Data(DataError),
    /// The store cannot be opened.
    Store(OpenError),
    /// The folder of its policies cannot be read.
    Policies(PathBuf, io::Error),
    /// Its archive cannot be used.
    Archive(TargetError),
    /// Its thread could not be started.
    Thread(io::Error),
    /// It cannot listen.
    Bind(BindError),
    /// The operating system has no random bytes.
    NoRandomness,
    /// Its thread ended before it served.
    Ended,
}

/// The way in which a coordinator stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It stopped in order.
    InOrder,
    /// It stopped in order, except for segments that were still being received at the deadline: they are shipped again.
    CutOff,
    /// Its deciding thread had panicked before.
    Failed,
}

impl Coordinator {
    /// Raises the term, opens the store and listens. When it returns, peers can connect. Blocks for the disk; a store
    /// whose segments the catalogue does not know is read first. Log lines about refusals and failures go to the
    /// caller's `tracing` subscriber, which is called on the deciding thread and must not block for long.
    ///
    /// # Errors
    /// See [`CoordinatorError`].
    pub fn start(config: CoordinatorConfig) -> Result<Self, CoordinatorError> {
        match config.identity.certified() {
            Some(certified) if certified.role == Role::Coordinator => {}
            other => return Err(CoordinatorError::Identity { role: other.map(|certified| certified.role) }),
        }
        let secrets = secrets()?;
        let archive = config.archive.as_ref().map(ArchiveSettings::open).transpose();
        let archive = archive.map_err(CoordinatorError::Archive)?;
        let data = DataFolder::open_from(&RealDisk, &config.data, config.least_term)
            .map_err(CoordinatorError::Data)?;
        let dir = config.data.join(STORE);
        let store = Store::open_with(Arc::new(RealDisk), &dir, config.store, archive);
        let store = store.map_err(CoordinatorError::Store)?;
        let policies = Arc::new(open_policies(&config)?);
        let (term, boot) = (data.term(), drawn_boot()?);
        let own = SeenTerm { term, boot };
        let roster = Roster::read(&RealDisk, &config.data);
        let published =
            Arc::new(Published::new(learns_terms(term, config.least_term), AuditLog::of(&config.data)));
        let (stop, stopped) = oneshot::channel();
        let (ready, bound) = sync_channel(1);
        let (end, ended) = sync_channel(1);
        let (identity, tokens) = (Arc::clone(&config.identity), Arc::clone(&config.tokens));
        let parts = Parts {
            config,
            own,
            roster,
            secrets,
            store: (store.clone(), Arc::clone(&policies)),
            published: Arc::clone(&published),
        };
        let heard = dispatcher::get_default(Clone::clone);
        // Task: coordinator.
        let thread = std::thread::Builder::new().name("rollhouse-coordinator".to_owned()).spawn(move || {
            let run = run(parts, &ready, stopped);
            let how = dispatcher::with_default(&heard, || System::new().block_on(run));
            // Room for the one word; the coordinator may have been dropped.
            let _told = end.try_send(how);
        });
        let thread = thread.map_err(CoordinatorError::Thread)?;
        let effective = match bound.recv() {
            Ok(bound) => bound.map_err(CoordinatorError::Bind)?,
            Err(_) => return Err(CoordinatorError::Ended),
        };
        let archiver = Archiver::start(&store).map_err(CoordinatorError::Thread)?;
        Ok(Self {
            effective,
            term,
            store,
            policies,
            identity,
            tokens,
            published,
            stop: Some(stop),
            ended,
            thread: Some(thread),
            archiver,
            _data: data,
        })
    }

    /// Returns the address at which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.effective.address
    }

    /// Returns the settings of its socket that are in effect.
    pub const fn effective(&self) -> Effective {
        self.effective
    }

    /// Returns its term, which is greater than that of every coordinator that had the folder before.
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// Returns the nodes that have seen a later coordinator, if it has to be restarted with a term above theirs: its
    /// folder is almost new, so that an earlier one must have been lost, or its term was given by its operator.
    pub fn wanted_term(&self) -> Option<BehindStatus> {
        self.published.wanted_term()
    }

    /// Returns its certificate and the authorities that it trusts.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the tokens of peers without a certificate.
    pub fn tokens(&self) -> &TokenStore {
        &self.tokens
    }

    /// Returns the store, for local use.
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Returns its figures; `None` before it has begun to decide. Does not block, whatever the coordinator does.
    pub fn figures(&self) -> Option<CoordinatorFigures> {
        self.published.figures(&self.store, &self.policies, self.effective)
    }

    /// Waits at most `timeout` for it to fail, and returns whether it has. A failed coordinator answers nothing more
    /// and has to be restarted.
    pub fn wait_failed(&self, timeout: Duration) -> bool {
        match self.ended.recv_timeout(timeout) {
            Err(RecvTimeoutError::Timeout) => false,
            Ok(_) | Err(RecvTimeoutError::Disconnected) => true,
        }
    }

    /// Stops in order, within about `deadline`: opens no more pools, accepts no more connections and segments, lets
    /// segments that are being received be stored, and closes the connections. Blocks. Sessions on nodes go on.
    pub fn stop(mut self, deadline: Duration) -> Stopped {
        // Gone only if the thread has ended by itself.
        let _asked = self.stop.take().map(|stop| stop.send(deadline));
        match self.ended.recv() {
            Ok(Ended::Asked) => Stopped::InOrder,
            Ok(Ended::CutOff) => Stopped::CutOff,
            Ok(Ended::Failed) | Err(_) => Stopped::Failed,
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // Its end going away is a stop without patience.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so by itself.
            let _ended = thread.join();
        }
        // While its store is still there, for what it has in hand.
        self.archiver = None;
    }
}

/// The values with which the thread begins.
struct Parts {
    config: CoordinatorConfig,
    own: SeenTerm,
    roster: Option<Roster>,
    secrets: SecretSource,
    store: (Store, Arc<PolicyShelf>),
    published: Arc<Published>,
}

/// Runs the coordinator on its thread until it stops.
async fn run(
    parts: Parts,
    ready: &SyncSender<Result<Effective, BindError>>,
    stopped: oneshot::Receiver<Duration>,
) -> Ended {
    let Parts { config, own, roster, secrets, store, published } = parts;
    let CoordinatorConfig { data, listen, identity, tokens, enrolment, quic, program, .. } = config;
    let office = NodeCertifier::new(enrolment, Arc::clone(&identity), Arc::clone(&tokens));
    let authenticating = Arc::clone(&tokens);
    let authenticate = move |hello: &Hello, stranger: &Stranger| {
        authenticating.introduce(hello, stranger, std::time::SystemTime::now())
    };
    let quic = Settings { send_window: quic.send_window.min(MAX_UNACKNOWLEDGED_BYTES), ..quic };
    let bound = Listener::bind(listen, identity, quic, program.clone(), Box::new(authenticate));
    let mut listener = match bound {
        Ok(listener) => listener,
        Err(error) => {
            // Whoever starts the coordinator waits for this.
            let _told = ready.send(Err(error));
            return Ended::Failed;
        }
    };
    let cluster = Cluster::new(own, roster, secrets);
    let owners = Owners::new(Arc::clone(&tokens));
    // Task: actor of the cluster.
    let actor =
        CoordinatorActor::new(cluster, data, program, store.0.clone(), Arc::clone(&published), owners)
            .start();
    let service = Arc::new(Service::new(actor, store, tokens, published, office));
    if ready.send(Ok(listener.effective())).is_err() {
        let _left = service.actor.send(Leave).await;
        return Ended::Asked;
    }
    service.gather();
    let mut connections = JoinSet::new();
    let mut patience = Duration::ZERO;
    let stop = async {
        // The sender's end going away is a stop without patience.
        patience = stopped.await.unwrap_or_default();
    };
    let ended = accept(&mut listener, &service, &mut connections, stop).await;
    if ended == Ended::Failed {
        error!("the coordinator has failed: what decides is gone");
    }
    service.stopping.store(true, Ordering::Relaxed);
    let stored = tokio::time::timeout(patience, service.nothing_received()).await;
    // Who waits for the archive does so on a thread that would be waited for.
    service.store.stop_archiving();
    listener.close(CloseCode::ShuttingDown, "the coordinator is going away");
    let _told = tokio::time::timeout(LINGER, listener.closed()).await;
    // One that panicked has left already.
    let _left = service.actor.send(Leave).await;
    match stored {
        Err(_) if ended == Ended::Asked => Ended::CutOff,
        _ => ended,
    }
}

fn open_policies(config: &CoordinatorConfig) -> Result<PolicyShelf, CoordinatorError> {
    let dir = config.data.join(POLICIES);
    let policies = PolicyShelf::open(Arc::new(RealDisk), &dir, config.policies_bytes);
    policies.map_err(|error| CoordinatorError::Policies(dir, error))
}

/// Draws the number that tells this start from any other. It is not 0, which stands for none.
fn drawn_boot() -> Result<u64, CoordinatorError> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| CoordinatorError::NoRandomness)?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// Returns a source of secrets from the operating system's generator.
fn secrets() -> Result<SecretSource, CoordinatorError> {
    let random = SystemRandom::new();
    let draw = move || {
        let mut bytes = [0; 16];
        random.fill(&mut bytes).map(|()| Secret::from_bytes(bytes))
    };
    // Linux gives random bytes for ever once it has given some.
    draw().map_err(|_| CoordinatorError::NoRandomness)?;
    Ok(Box::new(move || draw().expect("the system's generator gave bytes at the start")))
}

impl ArchiveSettings {
    fn open(&self) -> Result<ArchiveConfig, TargetError> {
        let target = Target::named(&self.target, &TargetOptions::default())?;
        Ok(ArchiveConfig { target, cache_bytes: self.cache_bytes })
    }
}

impl fmt::Debug for CoordinatorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoordinatorConfig")
            .field("data", &self.data)
            .field("listen", &self.listen)
            .field("store", &self.store)
            .field("archive", &self.archive)
            .field("quic", &self.quic)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for CoordinatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity { role: Some(role) } => write!(
                f,
                "the certificate is for the role {}, a coordinator needs one for the role coordinator",
                role.word()
            ),
            Self::Identity { role: None } => f.write_str("a coordinator needs a certificate"),
            Self::Data(error) => error.fmt(f),
            Self::Store(error) => write!(f, "the store: {error}"),
            Self::Policies(dir, error) => write!(f, "cannot read the policies in {}: {error}", dir.display()),
            Self::Archive(error) => write!(f, "archive.target: {error}"),
            Self::Thread(_) => f.write_str("the coordinator's thread could not be started"),
            Self::Bind(error) => error.fmt(f),
            Self::NoRandomness => f.write_str("the operating system gives no random bytes"),
            Self::Ended => f.write_str("the coordinator's thread ended before it served"),
        }
    }
}

impl std::error::Error for CoordinatorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Data(error) => error.source(),
            Self::Store(error) => error.source(),
            Self::Policies(_, error) => Some(error),
            Self::Archive(error) => error.source(),
            Self::Thread(error) => Some(error),
            Self::Bind(error) => error.source(),
            Self::Identity { .. } | Self::NoRandomness | Self::Ended => None,
        }
    }
}

/// The name of the store's folder in the coordinator's.
const STORE: &str = "store";
/// The name of the folder of policies.
const POLICIES: &str = "policies";
/// Time that peers are given to hear that the coordinator goes away.
const LINGER: Duration = Duration::from_secs(1);

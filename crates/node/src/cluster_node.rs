//! A node of a cluster: it starts its parts and stops them in order.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rollhouse_core::{Budget, RunId, Weight, WhenFull};
use rollhouse_env::Registry;
use rollhouse_host::PythonHost;
use rollhouse_replay::{
    OnOutage, OpenError, RealDisk, RecordError, Recorded, Recorder, RecorderConfig, Status,
};
use rollhouse_wire::limits::{MAX_LABELS, MAX_SHIP_BYTES};
use rollhouse_wire::{
    ArrivalCounts, Connection, Dialer, Effective, Identity, JoinedFolder, NodeLoad, Role, Settings, Unfit,
};
use tokio::sync::mpsc::{self, channel as bounded};
use tokio::sync::{Mutex, watch};

use crate::executor::Executor;
use crate::fitness::Fitness;
use crate::hosting::{Hosting, HostingSettings};
use crate::joining::Renewing;
use crate::learning::Learning;
use crate::link::{Card, Link, LinkParts, RenewalState, SpoolLoad};
use crate::parts::{Mishap, Part, PartExit, PartsHealth};
use crate::pulse::Pulse;
use crate::serve::{Served, Serving};
use crate::transport::Transport;
use crate::{
    AttachConfig, ConnectionFigures, HANG_DEADLINE, LinkState, Node, NodeBudget, NodeFigures, ServeError,
    ShipFigures, ShipperConfig, Shipping, ShippingConfig, StartError,
};

/// The settings that a node of a cluster is started with.
#[derive(Debug, Clone)]
pub struct ClusterNodeConfig {
    /// The node's certificate, which names it, and the authorities it believes.
    pub identity: Arc<Identity>,
    /// The folder of a certificate that was given for a join token and is renewed; `None` if somebody else renews it.
    pub renew: Option<JoinedFolder>,
    /// Host and port of the coordinator.
    pub coordinator: String,
    /// The UDP address at which owners dial in; port 0 for any free port.
    pub listen: SocketAddr,
    /// The address that owners are told to dial. `None` stands for `listen`; if that listens on all addresses, for the
    /// address from which the coordinator is reached.
    pub advertise: Option<String>,
    /// Most lanes that the node takes.
    pub capacity: u32,
    /// Threads that step. Sessions that play by themselves have one more each.
    pub threads: NonZeroUsize,
    /// Most batches that may wait for a thread.
    pub queue: usize,
    /// Labels by which placement chooses nodes; at most [`MAX_LABELS`].
    pub labels: BTreeMap<String, String>,
    /// Time for which a session is kept for an owner that is not heard of.
    pub lease: Duration,
    /// Time that one step may take before its session is given up as hung.
    pub hang_deadline: Duration,
    /// Time for which a watcher may ask for nothing, or leave an answer untaken, before it is sent away.
    pub watch_patience: Duration,
    /// Folder of the spool; `None` records nothing.
    pub spool: Option<PathBuf>,
    /// Settings of the spool's recorder. What it does during an outage of its disk follows from
    /// `shipping.shipper.when_full`.
    pub recorder: RecorderConfig,
    /// Settings of shipping recordings to the store.
    pub shipping: ShippingConfig,
    /// Settings of the QUIC socket.
    pub quic: Settings,
    /// Settings of the attach socket, for owners on this machine; `None` for no socket.
    pub attach: Option<AttachConfig>,
    /// The envs that the node can make.
    pub registry: Arc<Registry>,
    /// How the node hosts Python envs, which it learns when they are asked for; `None` for not at all.
    pub python: Option<PythonHost>,
    /// What the node has for lanes, and what they weigh.
    pub budget: NodeBudget,
    /// Name and version of the program.
    pub program: String,
}

impl ClusterNodeConfig {
    /// Returns the settings of a node on any loopback port with one thread per core, 4,096 lanes for each, a queue of
    /// 1,024 batches, a lease of 30 s, 15 s of patience with watchers, the built-in envs, no budget and no spool.
    pub fn new(identity: Arc<Identity>, coordinator: impl Into<String>, program: impl Into<String>) -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self {
            identity,
            renew: None,
            coordinator: coordinator.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            capacity: u32::try_from(threads.get() * LANES_PER_THREAD).unwrap_or(u32::MAX),
            threads,
            queue: WORK_QUEUE,
            labels: BTreeMap::new(),
            lease: LEASE,
            hang_deadline: HANG_DEADLINE,
            watch_patience: WATCH_PATIENCE,
            spool: None,
            recorder: RecorderConfig {
                budget_bytes: u64::MAX,
                seal_after: Some(SEAL_AFTER),
                ..RecorderConfig::default()
            },
            shipping: ShippingConfig {
                shipper: ShipperConfig {
                    spool_bytes: SPOOL_BYTES,
                    when_full: WhenFull::BackPressure,
                    seed: RunId::generate().as_u128() as u64,
                },
                bytes_per_second: None,
            },
            quic: Settings::default(),
            attach: None,
            registry: Arc::new(Registry::builtin()),
            python: None,
            budget: NodeBudget::default(),
            program: program.into(),
        }
    }
}

/// A node of a cluster, in this process. Dropping it ends sessions without waiting for them; see [`ClusterNode::stop`].
#[derive(Debug)]
pub struct ClusterNode {
    name: String,
    identity: Arc<Identity>,
    pub(crate) hosting: Arc<Hosting>,
    pulse: Pulse,
    recorder: Option<Arc<Recorder>>,
    shipping: Option<Arc<Shipping>>,
    state: watch::Receiver<LinkState>,
    renewal: watch::Receiver<RenewalState>,
    renews: bool,
    joined: watch::Receiver<Option<Connection>>,
    stop_link: mpsc::Sender<SyncSender<()>>,
    // Dropped in this order: owners first, then the control thread with the link and the rollouts.
    serving: Serving,
    pub(crate) node: Node,
}

/// Why a node could not be started. Nothing is left running then.
#[derive(Debug)]
pub enum ClusterNodeError {
    /// The certificate is missing or is not a node's.
    Identity {
        /// The role that the certificate is for, if it has one.
        role: Option<Role>,
    },
    /// More labels than [`MAX_LABELS`].
    Labels(usize),
    /// The spool cannot be recorded into.
    Spool(OpenError),
    /// The control thread could not be started.
    Control(StartError),
    /// A stepping thread could not be started.
    Worker(std::io::Error),
    /// Owners cannot be served.
    Serve(ServeError),
}

/// The result of stopping a node.
#[derive(Debug)]
pub struct StopReport {
    /// Sessions that had not ended within the deadline.
    pub left: usize,
    /// Whether the coordinator was told that the node is gone.
    pub told: bool,
    /// The recorder's final counts, or why some of the recording is lost; `None` without a spool.
    pub recorded: Option<Result<Recorded, RecordError>>,
    /// Whether everything recorded is in the store. The rest is shipped when the node starts again.
    pub shipped: bool,
}

impl ClusterNode {
    /// Opens the spool, starts the threads, listens, and begins to dial the coordinator. Does not wait for it:
    /// a node starts, and goes on, without one.
    ///
    /// # Errors
    /// See [`ClusterNodeError`].
    pub fn start(config: ClusterNodeConfig) -> Result<Self, ClusterNodeError> {
        let name = match config.identity.certified() {
            Some(certified) if certified.role == Role::Node => certified.name,
            other => return Err(ClusterNodeError::Identity { role: other.map(|certified| certified.role) }),
        };
        if config.labels.len() > MAX_LABELS {
            return Err(ClusterNodeError::Labels(config.labels.len()));
        }
        if config.spool.is_some() {
            check_segments(&config.recorder).map_err(ClusterNodeError::Spool)?;
        }
        // A disk that takes nothing is a spool without room.
        let on_outage = match config.shipping.shipper.when_full {
            WhenFull::BackPressure => OnOutage::Wait,
            WhenFull::Drop => OnOutage::Lose,
        };
        let recording = RecorderConfig { on_outage, ..config.recorder };
        let recorder = config
            .spool
            .as_ref()
            .map(|spool| Recorder::open(Arc::new(RealDisk), spool, recording).map(Arc::new));
        let recorder = recorder.transpose().map_err(ClusterNodeError::Spool)?;
        let shipping =
            recorder.clone().map(|recorder| Shipping::new(recorder, config.shipping).map(Arc::new));
        let shipping = shipping.transpose().map_err(|e| ClusterNodeError::Spool(OpenError::Disk(e)))?;
        let figures: Arc<NodeFigures> = Arc::default();
        let node = Node::start().map_err(ClusterNodeError::Control)?;
        let executor =
            Executor::start(config.threads.get(), config.queue, config.hang_deadline, Arc::clone(&figures));
        let executor = executor.map_err(ClusterNodeError::Worker)?;
        let settings = HostingSettings {
            capacity: config.capacity,
            lease: config.lease,
            hang_deadline: config.hang_deadline,
            program: config.program.clone(),
            watch_patience: config.watch_patience,
            budget: config.budget.clone(),
        };
        let fitness = Fitness {
            identity: Some(Arc::clone(&config.identity)),
            recorder: recorder.clone(),
            shipping: shipping.clone(),
            when_full: Some(config.shipping.shipper.when_full),
        };
        let hosting = Arc::new(Hosting::new(
            settings,
            (Arc::clone(&config.registry), config.python.clone().map(Learning::new).map(Arc::new)),
            executor,
            fitness,
            Arc::clone(node.supervision()),
            figures,
        ));
        let served = Served {
            listen: config.listen,
            identity: Arc::clone(&config.identity),
            quic: config.quic,
            program: config.program.clone(),
            hosting: Arc::clone(&hosting),
            attach: config.attach.clone(),
        };
        let serving = Serving::start(served, node.parts()).map_err(ClusterNodeError::Serve)?;
        let (state, seen_state) = watch::channel(LinkState::default());
        let (renewal, seen_renewal) = watch::channel(RenewalState::default());
        let (joined, seen_joined) = watch::channel(None);
        let renewing = config.renew.clone().map(|folder| Renewing {
            identity: Arc::clone(&config.identity),
            folder,
            node: name.clone(),
        });
        let link = LinkParts {
            hosting: Arc::clone(&hosting),
            dialer: Arc::new(Dialer::new(Arc::clone(&config.identity), config.quic, config.program.clone())),
            coordinator: config.coordinator.clone(),
            card: card(&name, &config, serving.effective().address),
            spool_load: spool_load(shipping.clone()),
            state,
            renewing,
            renewal,
            joined,
        };
        let (stop_link, stopped) = bounded(1);
        keep_link(&node, link, stopped);
        if let Some(shipping) = shipping.clone() {
            keep_shipping(&node, shipping, seen_joined.clone());
        }
        let pulse = Pulse::new();
        // Task: pulse.
        node.spawn(pulse.clone().run());
        Ok(Self {
            name,
            identity: config.identity,
            hosting,
            pulse,
            recorder,
            shipping,
            state: seen_state,
            renewal: seen_renewal,
            renews: config.renew.is_some(),
            joined: seen_joined,
            stop_link,
            serving,
            node,
        })
    }

    /// Returns the node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the node's certificate and the authorities it believes.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the UDP address on which the node listens.
    pub fn address(&self) -> SocketAddr {
        self.serving.effective().address
    }

    /// Returns the settings of the QUIC socket that took effect.
    pub fn effective(&self) -> Effective {
        self.serving.effective()
    }

    /// Returns how the node stands with the coordinator.
    pub fn link(&self) -> LinkState {
        self.state.borrow().clone()
    }

    /// Returns whether the node renews its own certificate.
    pub const fn renews(&self) -> bool {
        self.renews
    }

    /// Returns how often the certificate was renewed, and why the last renewal failed.
    pub fn renewal(&self) -> RenewalState {
        self.renewal.borrow().clone()
    }

    /// Waits at most `timeout` until the coordinator knows the node.
    pub fn wait_joined(&self, timeout: Duration) -> bool {
        let mut joined = self.joined.clone();
        let (told, heard) = sync_channel(1);
        // Task: caller.
        self.node.spawn(async move {
            if joined.wait_for(Option::is_some).await.is_ok() {
                // Room for the one answer; who asked may have gone.
                let _told = told.try_send(());
            }
        });
        heard.recv_timeout(timeout).is_ok()
    }

    /// Returns the node's counters.
    pub fn figures(&self) -> &Arc<NodeFigures> {
        &self.hosting.figures
    }

    /// Returns how connections by strangers fared, as of the last second.
    pub fn arrivals(&self) -> ArrivalCounts {
        self.serving.arrivals()
    }

    /// Returns the counters of the node's connections.
    pub fn connections(&self) -> ConnectionFigures {
        let coordinator = self.joined.borrow().as_ref().map(Connection::figures);
        ConnectionFigures { coordinator, ..self.serving.connections() }
    }

    /// Returns how long ago the control thread or the data thread, whichever is longer, last marked that it turns. Both
    /// do so each second.
    pub fn silent(&self) -> Duration {
        self.pulse.silent().max(self.serving.silent())
    }

    /// Returns how the node's parts fared. Parts that ended are made anew; after a part has failed for good, the node
    /// is to be stopped.
    pub fn health(&self) -> PartsHealth {
        let health = self.node.health();
        let recorder = self.recorder.as_ref().filter(|_| health.failed.is_none());
        let exit = recorder.and_then(|recorder| match (recorder.is_gone(), recorder.removed_folder()) {
            (true, _) => Some(PartExit::Gone),
            (false, Some(folder)) => Some(PartExit::Removed(folder)),
            (false, None) => None,
        });
        if let Some(exit) = exit {
            let mishap = Arc::new(Mishap { part: Part::Recorder, exit });
            return PartsHealth { last: Some(Arc::clone(&mishap)), failed: Some(mishap), ..health };
        }
        health
    }

    /// Returns how busy the node is.
    pub fn load(&self) -> NodeLoad {
        self.hosting.load()
    }

    /// Returns what the node has for lanes; what they take of it is part of its load.
    pub fn budget(&self) -> Weight {
        self.hosting.budget()
    }

    /// Returns the number of sessions here, whatever their stage.
    pub fn sessions(&self) -> usize {
        self.hosting.sessions()
    }

    /// Returns the number of sessions whose lanes are being launched.
    pub fn launching(&self) -> usize {
        self.hosting.launching()
    }

    /// Returns the number of sessions that an owner steps now, by transport.
    pub fn attached(&self) -> BTreeMap<Transport, u64> {
        self.hosting.attached()
    }

    /// Returns what the spool's recorder has written; `None` without a spool.
    pub fn recorder(&self) -> Option<Status> {
        self.recorder.as_ref().map(|recorder| recorder.status())
    }

    /// Returns how shipping stands; `None` without a spool.
    pub fn shipping(&self) -> Option<ShipFigures> {
        self.shipping.as_ref().map(|shipping| shipping.figures())
    }

    /// Returns what keeps the node from taking sessions, as the coordinator is told; `None` if nothing does.
    pub fn unfit(&self) -> Option<Unfit> {
        self.hosting.unfit()
    }

    /// Returns whether the node takes no new sessions.
    pub fn is_draining(&self) -> bool {
        self.hosting.is_draining()
    }

    /// Takes no new sessions from now on. Those that are open go on.
    pub fn drain(&self) {
        self.hosting.drain();
    }

    /// Returns whether the node takes no new sessions and the last one has ended.
    pub fn is_drained(&self) -> bool {
        self.hosting.is_draining() && self.hosting.sessions() == 0
    }

    /// Stops in order, within about `deadline`: takes no new sessions, gives owners a quarter of that time, and at most
    /// [`MOVE_PATIENCE`], to move those that are open, ends the rest (their episodes as `evicted`), seals the spool,
    /// ships what is in it, tells the coordinator, and closes the connections. What is counted can be read until the
    /// report is there. Blocks.
    pub fn stop(self, deadline: Duration) -> StopReport {
        let until = Instant::now() + deadline;
        let left = || until.saturating_duration_since(Instant::now());
        self.hosting.stop();
        let (ended, all_ended) = sync_channel(1);
        let hosting = Arc::clone(&self.hosting);
        let patience = MOVE_PATIENCE.min(deadline / 4);
        // Task: caller.
        self.node.spawn(async move {
            // Those that have not moved by then are evicted.
            let _moved = tokio::time::timeout(patience, hosting.moved_away()).await;
            hosting.evict_all().await;
            // Room for the one answer; who asked may have lost patience.
            let _told = ended.try_send(());
        });
        // What has not ended by then is cut off below.
        let _ended = all_ended.recv_timeout(left());
        let sessions = self.hosting.sessions();
        let recorded = self.recorder.as_ref().map(|recorder| recorder.seal());
        let shipped = self.ship_all(left());
        let (said, heard) = sync_channel(1);
        let asked = self.stop_link.try_send(said).is_ok();
        let told = asked && heard.recv_timeout(left().max(LEAST_GOOD_BYE)).is_ok();
        StopReport { left: sessions, told, recorded, shipped }
    }

    /// Waits at most `deadline` until everything that is sealed is in the store. Returns false if something is not.
    fn ship_all(&self, deadline: Duration) -> bool {
        let Some(shipping) = self.shipping.clone() else { return true };
        if self.joined.borrow().is_none() {
            return shipping.is_drained();
        }
        let (told, heard) = sync_channel(1);
        // Task: caller.
        self.node.spawn(async move {
            shipping.drained().await;
            // Room for the one answer; who asked may have lost patience.
            let _told = told.try_send(());
        });
        heard.recv_timeout(deadline).is_ok()
    }
}

/// Keeps the link going on the control thread until `stopped` brings the request to end.
pub(crate) fn keep_link(node: &Node, link: LinkParts, stopped: mpsc::Receiver<SyncSender<()>>) {
    let stopped = Arc::new(Mutex::new(stopped));
    // Task: link.
    node.spawn(node.parts().clone().keep(Part::Link, move || {
        let (link, stopped) = (Link::new(link.clone()), Arc::clone(&stopped));
        async move {
            link.run(&mut *stopped.lock().await).await;
            Ok(())
        }
    }));
}

/// Keeps shipping going on the control thread for as long as there are links.
fn keep_shipping(node: &Node, shipping: Arc<Shipping>, links: watch::Receiver<Option<Connection>>) {
    // Task: shipping.
    node.spawn(node.parts().clone().keep(Part::Shipping, move || {
        let (shipping, links) = (Arc::clone(&shipping), links.clone());
        async move {
            shipping.run(links).await;
            Ok(())
        }
    }));
}

/// Returns what adds to each heartbeat the bytes that have left the spool and those that will.
fn spool_load(shipping: Option<Arc<Shipping>>) -> SpoolLoad {
    Arc::new(move |load: &mut NodeLoad| {
        if let Some(shipping) = &shipping {
            let counts = shipping.figures().counts;
            load.spool_left = counts.left_bytes;
            // What leaves twice was recorded once.
            let recorded = shipping.recorded_bytes() + counts.offered_again;
            load.spool_bytes = recorded.saturating_sub(load.spool_left);
            load.spool_dropped = counts.dropped_episodes;
        }
    })
}

fn card(name: &str, config: &ClusterNodeConfig, listen: SocketAddr) -> Card {
    let envs = config.registry.ids().into_iter().filter_map(|id| {
        let hash = config.registry.get(&id).ok()?.spec().dynamics_hash;
        Some((id, hash))
    });
    Card {
        node: name.to_owned(),
        // The low half of a UUIDv7 is random.
        boot: RunId::generate().as_u128() as u64,
        advertise: config.advertise.clone(),
        // A path that is no text is of no use to others.
        attach: config.attach.as_ref().and_then(|attach| attach.path.to_str().map(str::to_owned)),
        listen,
        capacity: config.capacity,
        threads: u32::try_from(config.threads.get()).unwrap_or(u32::MAX),
        labels: config.labels.clone(),
        envs: envs.collect(),
        kinds: config.python.iter().flat_map(Learning::kinds).map(|kind| kind.to_string()).collect(),
        budget: Some(config.budget.budget.clone()).filter(|budget| *budget != Budget::default()),
        program: config.program.clone(),
    }
}

impl fmt::Display for ClusterNodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity { role: Some(role) } => {
                write!(
                    f,
                    "the certificate is for the role {}, a node needs one for the role node",
                    role.word()
                )
            }
            Self::Identity { role: None } => f.write_str("a node needs a certificate"),
            Self::Labels(given) => write!(f, "{given} labels, at most {MAX_LABELS} are taken"),
            Self::Spool(error) => write!(f, "the spool: {error}"),
            Self::Control(error) => error.fmt(f),
            Self::Worker(_) => f.write_str("a stepping thread could not be started"),
            Self::Serve(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ClusterNodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Spool(error) => error.source(),
            Self::Control(error) => error.source(),
            Self::Worker(error) => Some(error),
            Self::Serve(error) => error.source(),
            Self::Identity { .. } | Self::Labels(_) => None,
        }
    }
}

/// Refuses segments larger than a store takes: they would stay in the spool for ever.
fn check_segments(config: &RecorderConfig) -> Result<(), OpenError> {
    let given = config.segment_bytes;
    if given <= MAX_SHIP_BYTES {
        return Ok(());
    }
    let (least, most) = (rollhouse_replay::limits::EXTENT_BYTES / 16, MAX_SHIP_BYTES);
    Err(OpenError::Config { setting: "segment_bytes", given, least, most })
}

/// Lanes of capacity for each stepping thread: one core steps so many CartPoles in under 50 us.
const LANES_PER_THREAD: usize = 4_096;

/// Most batches that may wait for a thread, unless configured otherwise.
const WORK_QUEUE: usize = 1_024;

/// Default lease: longer than the 15 s after which a silent connection counts as lost, so that an owner can dial again.
const LEASE: Duration = Duration::from_secs(30);

/// Default size of the spool: hours of recordings for a coordinator that is away.
const SPOOL_BYTES: u64 = 10_000_000_000;

/// Default age at which a segment is sealed, and so the time after which an episode shows in the store.
const SEAL_AFTER: Duration = Duration::from_secs(5);

/// How long a node that stops waits for owners to move their sessions. An owner that steps does so with its next step,
/// in well under a second; one that does not step is not waited for longer.
pub const MOVE_PATIENCE: Duration = Duration::from_secs(5);

/// Default patience with watchers: a watched lane costs its steps a little, so an idle watcher may not cost it for
/// long.
const WATCH_PATIENCE: Duration = Duration::from_secs(15);

/// Time for the good-bye even when the deadline is over: the coordinator then places sessions elsewhere sooner.
const LEAST_GOOD_BYE: Duration = Duration::from_millis(500);

//! A node of a cluster: it starts its parts and stops them in order.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rollhouse_core::{Budget, EnvKind, RunId, Weight, WhenFull};
use rollhouse_replay::{
    OnOutage, OpenError, RealDisk, RecordError, Recorded, Recorder, RecorderConfig, Status,
};
use rollhouse_wire::limits::{MAX_LABELS, MAX_SHIP_BYTES};
use rollhouse_wire::{ArrivalCounts, Connection, Dialer, Effective, Identity, NodeLoad, Role, Unfit};
use tokio::sync::mpsc::{self, channel as bounded};
use tokio::sync::{Mutex, watch};

use crate::deadlines::Deadlines;
use crate::executor::Executor;
use crate::fitness::Fitness;
use crate::hosting::{Hosting, HostingSettings};
use crate::joining::Renewing;
use crate::link::{Card, Link, LinkParts, SpoolLoad};
use crate::link_view::{LinkTeller, LinkView};
use crate::parts::{Mishap, Part, PartExit, PartsHealth};
use crate::pulse::Pulse;
use crate::serve::{Served, Serving};
use crate::transport::Transport;
use crate::{
    ClusterNodeConfig, ConnectionFigures, LinkState, Node, NodeFigures, RecordingConfig, RenewalState,
    ServeError, ShipFigures, Shipping, StartError, SteppingConfig,
};

/// A node of a cluster, in this process. Dropping it ends sessions without waiting for them; see [`ClusterNode::stop`].
#[derive(Debug)]
pub struct ClusterNode {
    name: String,
    identity: Arc<Identity>,
    pub(crate) hosting: Arc<Hosting>,
    pulse: Pulse,
    recorder: Option<Arc<Recorder>>,
    shipping: Option<Arc<Shipping>>,
    link: LinkView,
    renews: bool,
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
        let name = name_of(&config)?;
        let (recorder, shipping) = open_spool(&config.recording)?;
        let node = Node::start().map_err(ClusterNodeError::Control)?;
        let hosting = Arc::new(host(&config, recorder.clone(), shipping.clone(), &node)?);
        let served = Served {
            listen: config.serving.listen,
            identity: Arc::clone(&config.identity),
            quic: config.serving.quic,
            program: config.program.clone(),
            hosting: Arc::clone(&hosting),
            attach: config.serving.attach.clone(),
        };
        let serving = Serving::start(served, node.parts()).map_err(ClusterNodeError::Serve)?;
        let (teller, view) = LinkTeller::new();
        let (stop_link, stopped) = bounded(1);
        let link = LinkParts {
            hosting: Arc::clone(&hosting),
            dialer: Arc::new(Dialer::new(
                Arc::clone(&config.identity),
                config.serving.quic,
                config.program.clone(),
            )),
            coordinator: config.coordinator.clone(),
            card: card(&name, &config, serving.effective().address),
            spool_load: spool_load(shipping.clone()),
            renewing: config.renew.clone().map(|folder| Renewing {
                identity: Arc::clone(&config.identity),
                folder,
                node: name.clone(),
            }),
            teller,
        };
        keep_link(&node, link, stopped);
        if let Some(shipping) = shipping.clone() {
            keep_shipping(&node, shipping, view.joined().clone());
        }
        let pulse = Pulse::new();
        // Task: pulse.
        node.spawn(pulse.clone().run());
        let (identity, renews) = (config.identity, config.renew.is_some());
        Ok(Self {
            name,
            identity,
            hosting,
            pulse,
            recorder,
            shipping,
            link: view,
            renews,
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
        self.link.state()
    }

    /// Returns whether the node renews its own certificate.
    pub const fn renews(&self) -> bool {
        self.renews
    }

    /// Returns how often the certificate was renewed, and why the last renewal failed.
    pub fn renewal(&self) -> RenewalState {
        self.link.renewal()
    }

    /// Waits at most `timeout` until the coordinator knows the node.
    pub fn wait_joined(&self, timeout: Duration) -> bool {
        let mut joined = self.link.joined().clone();
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
        let coordinator = self.link.joined().borrow().as_ref().map(Connection::figures);
        ConnectionFigures { coordinator, ..self.serving.connections() }
    }

    /// Returns how long ago the control thread or the data thread, whichever is longer, last marked that it turns. Both
    /// do so each second.
    pub fn silent(&self) -> Duration {
        self.pulse.silent().max(self.serving.silent())
    }

    /// Returns for how long the oldest request has waited for a thread that steps; zero if none waits.
    pub fn longest_queue_wait(&self) -> Duration {
        self.hosting.executor.longest_wait()
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

    /// Returns the number of sessions whose lanes try to connect to what their env is a client of.
    pub fn connecting(&self) -> usize {
        self.hosting.connecting_sessions()
    }

    /// Returns how often worker processes have tried again to connect.
    pub fn connect_retries(&self) -> u64 {
        self.hosting.connect_retries()
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

    /// Stops in order, within about `deadline` unless the disk takes longer to seal the spool: takes no new sessions, gives
    /// owners a quarter of that time, and at most [`MOVE_PATIENCE`], to move those that are open, ends the rest (their
    /// episodes as `evicted`), seals the spool, ships what is in it, tells the coordinator, and closes the connections.
    /// Blocks.
    pub fn stop(self, deadline: Duration) -> StopReport {
        self.end(deadline)
    }

    /// Does what [`ClusterNode::stop`] does but for closing the connections, which the end of the value does. What is
    /// counted can be read meanwhile.
    pub fn end(&self, deadline: Duration) -> StopReport {
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
        if self.link.joined().borrow().is_none() {
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

/// Returns the name in the node's certificate, once the settings that nothing else checks are found good.
fn name_of(config: &ClusterNodeConfig) -> Result<String, ClusterNodeError> {
    let name = match config.identity.certified() {
        Some(certified) if certified.role == Role::Node => certified.name,
        other => return Err(ClusterNodeError::Identity { role: other.map(|certified| certified.role) }),
    };
    if config.labels.len() > MAX_LABELS {
        return Err(ClusterNodeError::Labels(config.labels.len()));
    }
    Ok(name)
}

/// The recorder of the spool, and what ships its segments, if there is a spool.
type OpenSpool = (Option<Arc<Recorder>>, Option<Arc<Shipping>>);

/// Opens the spool, if there is one, and prepares to ship what is recorded there.
fn open_spool(config: &RecordingConfig) -> Result<OpenSpool, ClusterNodeError> {
    let Some(spool) = &config.spool else { return Ok((None, None)) };
    check_segments(&config.recorder).map_err(ClusterNodeError::Spool)?;
    // A disk that takes nothing is a spool without room.
    let on_outage = match config.shipping.shipper.when_full {
        WhenFull::BackPressure => OnOutage::Wait,
        WhenFull::Drop => OnOutage::Lose,
    };
    let recording = RecorderConfig { on_outage, ..config.recorder };
    let recorder = Recorder::open(Arc::new(RealDisk), spool, recording).map_err(ClusterNodeError::Spool)?;
    let recorder = Arc::new(recorder);
    let shipping = Shipping::new(Arc::clone(&recorder), config.shipping)
        .map_err(|error| ClusterNodeError::Spool(OpenError::Disk(error)))?;
    Ok((Some(recorder), Some(Arc::new(shipping))))
}

/// Starts the threads that step, and what hosts sessions on them.
fn host(
    config: &ClusterNodeConfig,
    recorder: Option<Arc<Recorder>>,
    shipping: Option<Arc<Shipping>>,
    node: &Node,
) -> Result<Hosting, ClusterNodeError> {
    let figures: Arc<NodeFigures> = Arc::default();
    let SteppingConfig { capacity, threads, waiting_threads, queue, .. } = config.stepping;
    let deadlines = Deadlines::of(&config.stepping);
    let threads = (threads.get(), waiting_threads.max(1));
    let executor =
        Executor::start(threads, queue, deadlines, Arc::clone(&figures)).map_err(ClusterNodeError::Worker)?;
    let settings = HostingSettings {
        capacity,
        lease: config.serving.lease,
        deadlines,
        program: config.program.clone(),
        watch_patience: config.serving.watch_patience,
        budget: config.budget.clone(),
        folder: config.folder.clone().map(|folder| Arc::new(parking_lot::Mutex::new(folder))),
        connections: config.serving.quic.shares,
    };
    let fitness = Fitness {
        identity: Some(Arc::clone(&config.identity)),
        recorder,
        shipping,
        when_full: Some(config.recording.shipping.shipper.when_full),
    };
    let envs = (Arc::clone(&config.registry), config.providers.clone());
    Ok(Hosting::new(settings, envs, executor, fitness, Arc::clone(node.supervision()), figures))
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
        advertise: config.serving.advertise.clone(),
        // A path that is no text is of no use to others.
        attach: config.serving.attach.as_ref().and_then(|attach| attach.path.to_str().map(str::to_owned)),
        listen,
        capacity: config.stepping.capacity,
        threads: u32::try_from(config.stepping.threads.get()).unwrap_or(u32::MAX),
        labels: config.labels.clone(),
        envs: envs.collect(),
        kinds: config.providers.kinds().iter().map(EnvKind::to_string).collect(),
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
            Self::Labels(given) => write!(f, "{given} labels, at most {MAX_LABELS} allowed"),
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

/// How long a node that stops waits for owners to move their sessions. An owner that steps does so with its next step,
/// in well under a second; one that does not step is not waited for longer.
pub const MOVE_PATIENCE: Duration = Duration::from_secs(5);

/// Time for the good-bye even when the deadline is over: the coordinator then places sessions elsewhere sooner.
const LEAST_GOOD_BYE: Duration = Duration::from_millis(500);

//! The settings of a node of a cluster.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::limits::CALL_DEADLINE;
use rollhouse_core::{LaneDeadlines, RunId, SharedBound, WhenFull};
use rollhouse_env::Registry;
use rollhouse_host::EnvProviders;
use rollhouse_replay::RecorderConfig;
use rollhouse_wire::{Identity, JoinedFolder, Settings};

use crate::deadlines::Deadlines;
use crate::{AttachConfig, HANG_DEADLINE, NodeBudget, ShipperConfig, ShippingConfig};

/// The settings that a node of a cluster is started with.
#[derive(Debug, Clone)]
pub struct ClusterNodeConfig {
    /// The node's certificate, which names it, and the authorities it believes.
    pub identity: Arc<Identity>,
    /// The folder of a certificate that was given for a join token and is renewed; `None` if somebody else renews it.
    pub renew: Option<JoinedFolder>,
    /// Host and port of the coordinator.
    pub coordinator: String,
    /// Folder in which the node keeps the latest coordinator that it has seen; `None` keeps it for as long as it runs.
    pub folder: Option<PathBuf>,
    /// Labels by which placement chooses nodes; at most [`MAX_LABELS`](rollhouse_wire::limits::MAX_LABELS).
    pub labels: BTreeMap<String, String>,
    /// How the node serves owners.
    pub serving: ServingConfig,
    /// How the node steps lanes.
    pub stepping: SteppingConfig,
    /// How the node records.
    pub recording: RecordingConfig,
    /// The envs that the node can make.
    pub registry: Arc<Registry>,
    /// What provides the envs that the node learns when they are asked for.
    pub providers: EnvProviders,
    /// What the node has for lanes, and what they weigh.
    pub budget: NodeBudget,
    /// Name and version of the program.
    pub program: String,
}

/// The settings with which a node serves owners and watchers.
#[derive(Debug, Clone)]
pub struct ServingConfig {
    /// The UDP address at which owners dial in; port 0 for any free port.
    pub listen: SocketAddr,
    /// The address that owners are told to dial. `None` stands for `listen`; if that listens on all addresses, for the
    /// address from which the coordinator is reached.
    pub advertise: Option<String>,
    /// Settings of the QUIC socket.
    pub quic: Settings,
    /// Settings of the attach socket, for owners on this machine; `None` for no socket.
    pub attach: Option<AttachConfig>,
    /// Time for which a session is kept for an owner that is not heard of.
    pub lease: Duration,
    /// Time for which a watcher may ask for nothing, or leave an answer untaken, before it is sent away.
    pub watch_patience: Duration,
}

/// The settings with which a node steps lanes.
#[derive(Debug, Clone, Copy)]
pub struct SteppingConfig {
    /// Most lanes that the node takes.
    pub capacity: u32,
    /// Threads that step what computes here. What may wait has threads beside them, and a session that plays by itself or is
    /// attached by memory has one of its own.
    pub threads: NonZeroUsize,
    /// Most threads for what may wait; at least 1. Requests that wait for lanes of other processes hold none.
    pub waiting_threads: usize,
    /// Most batches that may wait for a thread that computes, and for one that waits.
    pub queue: usize,
    /// Time that one step may take before its session is given up as hung. Sessions whose lanes finish when they finish have
    /// five quarters of the times of a step and of a reset, or of that of a call, if that is more.
    pub hang_deadline: Duration,
    /// Time that a step of a lane that finishes when it finishes may take; `None` is two fifths of `hang_deadline`, at most
    /// [`LANE_DEADLINE`](rollhouse_core::limits::LANE_DEADLINE).
    pub step_deadline: Option<Duration>,
    /// The same for a reset.
    pub reset_deadline: Option<Duration>,
    /// Time that a call of a method of a Python env may take, and its picture.
    pub call_deadline: Duration,
}

/// The settings with which a node records what it steps.
#[derive(Debug, Clone)]
pub struct RecordingConfig {
    /// Folder of the spool; `None` records nothing.
    pub spool: Option<PathBuf>,
    /// Settings of the spool's recorder. What it does during an outage of its disk follows from
    /// `shipping.shipper.when_full`.
    pub recorder: RecorderConfig,
    /// Settings of shipping recordings to the store.
    pub shipping: ShippingConfig,
}

impl ClusterNodeConfig {
    /// Returns the settings of a node on any loopback port with one thread per core, 4,096 lanes for each, a queue of
    /// 1,024 batches, a lease of 30 s, 15 s of patience with watchers, the built-in envs, no budget and no spool.
    pub fn new(identity: Arc<Identity>, coordinator: impl Into<String>, program: impl Into<String>) -> Self {
        Self {
            identity,
            renew: None,
            coordinator: coordinator.into(),
            folder: None,
            labels: BTreeMap::new(),
            serving: ServingConfig {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                advertise: None,
                quic: Settings::default(),
                attach: None,
                lease: LEASE,
                watch_patience: WATCH_PATIENCE,
            },
            stepping: SteppingConfig::default(),
            recording: RecordingConfig::default(),
            registry: Arc::new(Registry::builtin()),
            providers: EnvProviders::new([]),
            budget: NodeBudget::default(),
            program: program.into(),
        }
    }
}

impl SteppingConfig {
    /// Returns the times of lanes that finish when they finish.
    pub fn lane_deadlines(&self) -> LaneDeadlines {
        Deadlines::of(self).of_lanes()
    }
}

impl Default for SteppingConfig {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self {
            capacity: u32::try_from(threads.get() * LANES_PER_THREAD).unwrap_or(u32::MAX),
            threads,
            waiting_threads: SharedBound::WAITING.limit as usize,
            queue: WORK_QUEUE,
            hang_deadline: HANG_DEADLINE,
            step_deadline: None,
            reset_deadline: None,
            call_deadline: CALL_DEADLINE,
        }
    }
}

impl Default for RecordingConfig {
    fn default() -> Self {
        Self {
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
        }
    }
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

/// Default patience with watchers: a watched lane costs its steps a little, so an idle watcher may not cost it for
/// long.
const WATCH_PATIENCE: Duration = Duration::from_secs(15);

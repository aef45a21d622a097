//! What carries lanes: an engine in this process, shared memory of a node, QUIC.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_client::{Cluster, OnLoss, PoolRequest, Transport};
use rollhouse_core::{AutoresetMode, LaneDeadlines, OptionValue, Options, RecordRule, RunId};
use rollhouse_engine::{Engine, EngineConfig};
use rollhouse_node::HANG_DEADLINE;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Disk, Library, PolicyInfo, RealDisk, Recorder, RecorderConfig, RunHeader};
use rollhouse_wire::Spread;

use super::kinds::{Envs, Kind};
use super::lanes::{Held, InProcess, Lanes, OnNodes};
use super::nodes::Nodes;
use super::rows::Shape;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    Embedded,
    /// An engine in this process, waited for on its descriptor.
    Slept,
    Memory,
    Quic,
}

impl Carrier {
    pub(crate) const fn is_in_process(self) -> bool {
        matches!(self, Self::Embedded | Self::Slept)
    }
}

/// A kind of lanes, what carries them, and how patient it is with them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) kind: Kind,
    pub(crate) carrier: Carrier,
    /// Lane of a simulator that never finishes from its n-th step on.
    pub(crate) hangs: Option<(usize, u64)>,
    /// Time that a lane has for a step.
    pub(crate) lane_deadline: Duration,
}

impl Pair {
    pub(crate) const fn of(kind: Kind, carrier: Carrier) -> Self {
        // A node gives its lanes two fifths of the time after which it gives a session up.
        Self {
            kind,
            carrier,
            hangs: None,
            lane_deadline: HANG_DEADLINE.saturating_mul(2).checked_div(5).unwrap(),
        }
    }
}

/// Lanes that are asked for.
#[derive(Debug, Clone)]
pub(crate) struct LaneOrder {
    pub(crate) env: &'static str,
    pub(crate) lanes: usize,
    pub(crate) autoreset: AutoresetMode,
    pub(crate) options: Vec<(String, OptionValue)>,
    pub(crate) limit: Option<u32>,
    pub(crate) record: RecordRule,
    /// Whether nodes have the lanes as one session or as two.
    pub(crate) spread: Spread,
}

impl LaneOrder {
    /// Asks for lanes of three blocks that are not recorded, as one session.
    pub(crate) const fn of(env: &'static str) -> Self {
        Self {
            env,
            lanes: LANES,
            autoreset: AutoresetMode::NextStep,
            options: Vec::new(),
            limit: None,
            record: RecordRule::None,
            spread: Spread::Pack,
        }
    }
}

/// Number of lanes of a test: two whole blocks, and the begin of a third.
pub(crate) const LANES: usize = 130;

/// A carrier with envs of one kind.
pub(crate) struct Stand {
    pair: Pair,
    pub(crate) envs: Envs,
    /// Two nodes; `None` if lanes are in this process.
    nodes: Option<Nodes>,
}

impl Stand {
    pub(crate) fn start(pair: Pair) -> Self {
        let envs = Envs::of(pair.kind, pair.hangs);
        let nodes = || {
            Nodes::changed(2, |folder, config| {
                config.registry = Arc::clone(&envs.registry);
                config.providers = envs.providers.clone();
                config.stepping.hang_deadline = pair.lane_deadline * 5 / 2;
                config.recording.spool = Some(folder.join("spool"));
            })
        };
        let nodes = (!pair.carrier.is_in_process()).then(nodes);
        Self { pair, envs, nodes }
    }

    pub(crate) fn open(&self, asked: &LaneOrder) -> Lanes {
        let (held, spec) = match &self.nodes {
            None => {
                let lanes = Box::new(self.engine(asked));
                let spec = lanes.entry.spec().clone();
                (Held::InProcess(lanes), spec)
            }
            Some(nodes) => {
                let lanes = Box::new(self.pool(&nodes.connect(), asked));
                let spec = lanes.pool.spec().clone();
                (Held::OnNodes(lanes), spec)
            }
        };
        Lanes::new(held, asked, Shape::of(&spec, asked.autoreset))
    }

    fn engine(&self, asked: &LaneOrder) -> InProcess {
        let entry = self.envs.entry(asked.env);
        let options = Options::check(&entry.spec().options, &asked.options).unwrap();
        let config = EngineConfig {
            autoreset: asked.autoreset,
            max_episode_steps: asked.limit,
            options: vec![options.clone()],
            lane_deadlines: LaneDeadlines::both(self.pair.lane_deadline),
            ..EngineConfig::new(asked.lanes)
        };
        let sleeps = self.pair.carrier == Carrier::Slept;
        if asked.record == RecordRule::None {
            let mut engine = Engine::new(&entry, config.clone(), None).unwrap();
            engine.keep_log().unwrap();
            let (past, lost) = (Vec::new(), Vec::new());
            return InProcess { engine, entry, config, past, lost, recorder: None, sleeps };
        }
        let disk = FaultyDisk::new();
        let recorder =
            Recorder::open(Arc::new(disk.clone()), FOLDER.as_ref(), RecorderConfig::default()).unwrap();
        let run = recorder.begin_run(RunHeader {
            run: RunId::generate(),
            options: vec![options],
            lanes: asked.lanes as u32,
            schedule: config.schedule,
            autoreset: config.autoreset.name().to_owned(),
            max_episode_steps: asked.limit.or(entry.spec().max_episode_steps),
            policy: PolicyInfo { name: "test".into(), version: 0 },
            record: asked.record,
            program: "test".into(),
            started_ms: 0,
            parent: None,
            arguments: String::new(),
            spec: entry.spec().clone(),
        });
        let run = run.unwrap();
        let mut engine = Engine::new(&entry, config.clone(), Some(&run)).unwrap();
        engine.keep_log().unwrap();
        InProcess {
            engine,
            entry,
            config,
            past: Vec::new(),
            lost: Vec::new(),
            recorder: Some((recorder, run, disk)),
            sleeps,
        }
    }

    fn pool(&self, cluster: &Cluster, asked: &LaneOrder) -> OnNodes {
        let mut request = PoolRequest::new(asked.env, asked.lanes as u32);
        request.settings.autoreset = asked.autoreset;
        request.settings.max_episode_steps = asked.limit;
        request.settings.options = asked.options.iter().cloned().collect();
        request.settings.record = asked.record;
        if self.pair.kind == Kind::Python {
            request.settings.infos.record = vec![super::foretold::echo()];
        }
        request.spread = asked.spread;
        request.on_loss = (self.pair.kind != Kind::Own).then_some(OnLoss::Resume);
        let transport = if self.pair.carrier == Carrier::Memory { Transport::Shm } else { Transport::Quic };
        request.transport = Some(transport);
        let pool = cluster.open_pool(request).unwrap();
        assert!(pool.transports().all(|by| by == Some(transport)));
        OnNodes { pool }
    }

    /// Has the lanes lose what carries them, and go on elsewhere.
    pub(crate) fn interrupt(&mut self, lanes: &mut Lanes) {
        match (&mut lanes.held, &mut self.nodes) {
            (Held::InProcess(lanes), _) => lanes.go_on_elsewhere(),
            (Held::OnNodes(lanes), Some(nodes)) => {
                let (node, _) = lanes.pool.sessions().next().unwrap();
                nodes.stop_within(
                    node.strip_prefix("node-").unwrap().parse().unwrap(),
                    Duration::from_millis(200),
                );
            }
            (Held::OnNodes(_), None) => unreachable!("they have nodes"),
        }
    }

    /// Closes lanes, and reads what was recorded of them.
    pub(crate) fn recorded<T>(mut self, lanes: Lanes, read: impl FnOnce(&Library) -> T) -> T {
        match lanes.held {
            Held::InProcess(lanes) => {
                let InProcess { engine, recorder, .. } = *lanes;
                engine.close().unwrap();
                let (recorder, run, disk) = recorder.expect("they are recorded");
                drop(run);
                recorder.finish().unwrap();
                read(&library(Arc::new(disk), FOLDER.as_ref()))
            }
            Held::OnNodes(lanes) => {
                lanes.pool.close().unwrap();
                let nodes = self.nodes.as_mut().unwrap();
                // A node that stops ships what it has.
                (0..2).for_each(|node| nodes.stop(node));
                read(&library(Arc::new(RealDisk), &nodes.folder().join("coordinator/store")))
            }
        }
    }
}

fn library(disk: Arc<dyn Disk>, folder: &Path) -> Library {
    Library::open(disk, folder).unwrap()
}

/// Folder of an engine's recordings.
const FOLDER: &str = "/data";

//! `rollhouse node`: runs a node that joins a coordinator and hosts lanes.

use std::collections::BTreeMap;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rollhouse_config::{AttachSettings, BudgetSettings, Hosting, NodeConfig, Spool, Worker};
use rollhouse_core::{DeadlineSettings, LaneDeadlines};
use rollhouse_metrics::{
    BudgetSample, EnvSample, Family, Figures, Health, LinkSample, Links, NodeSample, Page, PoliciesSample,
    PolicySample, RecorderSample, SessionSample, SpoolSample, ThreadSample, TransportSample, VerdictSample,
    WatcherSample,
};
use rollhouse_node::{
    AttachConfig, ClusterNode, ClusterNodeConfig, ClusterNodeError, ConnectionFigures, EnvFigures, Histogram,
    LinkState, NodeFigures, PartsHealth, Policies, PolicyFigures, RenewalState, ServeError, ShipFigures,
    Transport, Updates,
};
use rollhouse_replay::OpenError;
use rollhouse_wire::limits::MAX_ATTACH_PATH_BYTES;
use rollhouse_wire::{Effective, Role, Settings, Takes, Unfit};
use tracing::{error, info, warn};

use crate::args::NodeArgs;
use crate::credentials::CredentialsWatch;
use crate::failure::{Failure, Status};
use crate::human::counted;
use crate::logging::{self, Logging};
use crate::plugins;
use crate::private_folder::private_folder;
use crate::service::{self, PROGRAM, STOP_DEADLINE, listen_for_metrics, serve_metrics, until_ended};
use crate::settings::{self, Flag, Live};
use crate::{budget, joining, python_envs, signals};

pub(crate) fn run(args: &NodeArgs) -> Result<Status, Failure> {
    run_with(args, &[])
}

/// Runs a node with `more` settings that flags of its command have.
pub(crate) fn run_with(args: &NodeArgs, more: &[Flag<'_>]) -> Result<Status, Failure> {
    let own = [
        ("--coordinator", "node.coordinator", &args.coordinator),
        ("--name", "node.name", &args.name),
        ("--join", "node.join", &args.join),
        ("--listen", "node.listen", &args.listen),
        ("--data", "node.data", &args.data),
    ];
    let flags: Vec<_> = own.into_iter().chain(more.iter().copied()).collect();
    let settings = settings::live::<NodeConfig>(&args.service, &flags)?;
    let logging = Logging::begin("rollhouse-node", &settings.config.log, &settings.config.traces)?;
    let done = serve(settings, &logging);
    logging.end(done)
}

fn serve(mut settings: Live<NodeConfig>, logging: &Logging) -> Result<Status, Failure> {
    let config = settings.config.clone();
    let asked = signals::of_service()?;
    let standing = joining::standing(&config)?;
    let Some(own) = joining::identity(&config, standing, &asked)? else { return Ok(Status::Done) };
    private_folder(&config.data)?;
    let quic = service::quic(&config.network, &config.data)?;
    let coordinator = own.coordinator;
    let mut started = ClusterNodeConfig::new(own.identity, coordinator.clone(), PROGRAM);
    started.renew = own.renew;
    started.serving.listen = config.listen;
    started.serving.advertise = config.advertise.map(|address| address.0);
    configure(&mut started, &config.worker, &config.spool, quic, &config.data)?;
    started.serving.attach = attach_socket(&config.attach, &config.data)?;
    host_envs(&mut started, &config.worker, &config.hosting, &config.budget)?;
    // Until the node has ended.
    let _engine = python_envs::engine_of_node(&config.hosting.openra)?;
    let capacity = started.stepping.capacity;
    let listener = listen_for_metrics(config.metrics, "metrics.listen")?;
    let node = start(started)?;
    let (name, address) = (node.name(), node.address());
    info!(node = name, %address, "node {name} listens on {address} and joins {coordinator}");
    info!("{}", node.effective());
    let watch = Arc::new(NodeWatch::new(node, capacity));
    let metrics = serve_metrics(listener, vec![watch.clone()], watch.clone())?;
    until_ended(&asked, logging, &[&*watch], || {
        if asked.wants_reread() {
            settings.reread(logging);
            watch.reread();
        }
        watch.look()
    });
    let stopped = watch.stop();
    // Last, so that probes and scrapes see it stop.
    drop(metrics);
    stopped
}

/// Applies the settings that a node of its own and a node in `up` share.
pub(crate) fn configure(
    started: &mut ClusterNodeConfig,
    worker: &Worker,
    spool: &Spool,
    quic: Settings,
    data: &Path,
) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    started.stepping.threads = NonZeroUsize::new(worker.stepping_threads(cores)).unwrap_or(NonZeroUsize::MIN);
    started.stepping.capacity = worker.lanes(cores);
    // Bounded by the type of the setting.
    started.stepping.queue = worker.queue.0 as usize;
    started.stepping.waiting_threads = worker.waiting_threads.0 as usize;
    started.labels = worker.labels.0.clone();
    started.serving.lease = worker.lease.0;
    started.stepping.hang_deadline = worker.hang_after.0;
    started.stepping.step_deadline = worker.step_within.given();
    started.stepping.reset_deadline = worker.reset_within.given();
    started.stepping.call_deadline = worker.call_within.0.0;
    started.recording.recorder.seal_after = Some(spool.seal_after.0);
    started.recording.shipping.shipper.spool_bytes = spool.limit.0;
    started.recording.shipping.shipper.when_full = spool.when_full;
    started.recording.shipping.bytes_per_second = NonZeroU64::new(spool.bandwidth.0);
    started.serving.quic = quic;
    private_folder(data)?;
    started.folder = Some(data.to_owned());
    started.recording.spool = Some(data.join("spool"));
    Ok(())
}

/// Applies the settings of the envs that a node has, after loading its plug-ins, and of what they may take.
pub(crate) fn host_envs(
    started: &mut ClusterNodeConfig,
    worker: &Worker,
    envs: &Hosting,
    budget: &BudgetSettings,
) -> Result<(), Failure> {
    if let Err(error) = rollhouse_host::adopt_orphans() {
        warn!(%error, "what envs start and whose parents end is not reaped");
    }
    let census = &started.budget.census;
    let lane_deadlines = started.stepping.lane_deadlines();
    let hosting = plugins::Hosting {
        launch_deadline: worker.plugin_within.0.0,
        lane_deadlines: LaneDeadlines { settings: Some(DeadlineSettings::OF_PLUGINS), ..lane_deadlines },
        census: Some(census.clone()),
    };
    let registry = plugins::registry(&envs.plugins.0, hosting)?;
    started.providers = python_envs::of_node(envs, lane_deadlines, census)?;
    started.budget.budget = budget::of_node(budget, &envs.python, &registry)?;
    started.registry = Arc::new(registry);
    Ok(())
}

/// Returns the socket at which owners of this machine attach by memory. A default path that is too long for a socket is
/// logged, and there is no socket then.
pub(crate) fn attach_socket(settings: &AttachSettings, data: &Path) -> Result<Option<AttachConfig>, Failure> {
    if !settings.enabled {
        return Ok(None);
    }
    let wanted = settings.path.clone().unwrap_or_else(|| data.join("attach.sock"));
    // Owners have other working folders.
    let path = std::path::absolute(&wanted).map_err(|error| {
        Failure::new(Status::Failed, format_args!("attach socket {}: {error}", wanted.display()))
    })?;
    let bytes = path.as_os_str().len();
    if settings.path.is_none() && bytes > MAX_ATTACH_PATH_BYTES {
        warn!(
            "no shared memory for trainers on this machine: the path of the attach socket has {bytes} bytes, at most \
             {MAX_ATTACH_PATH_BYTES} are possible; attach.path sets another"
        );
        return Ok(None);
    }
    // Bounded by the type of the setting.
    let sessions = settings.sessions.0 as usize;
    Ok(Some(AttachConfig { path, uids: settings.uids.0.clone(), sessions }))
}

pub(crate) fn start(config: ClusterNodeConfig) -> Result<ClusterNode, Failure> {
    ClusterNode::start(config).map_err(|error| {
        let status = match &error {
            ClusterNodeError::Spool(OpenError::Locked { .. }) => Status::Refused,
            ClusterNodeError::Identity { .. } | ClusterNodeError::Labels(_) => Status::Usage,
            ClusterNodeError::Serve(ServeError::Attach(_)) => Status::Usage,
            _ => Status::Failed,
        };
        let failure = Failure::of(status, &error);
        match error {
            ClusterNodeError::Serve(ServeError::Attach(_)) => failure
                .hint("another path is set by --set attach.path=PATH; attach.enabled=false does without"),
            ClusterNodeError::Serve(_) => {
                failure.hint("another address is set by --set node.listen=ADDRESS:PORT")
            }
            _ => failure,
        }
    })
}

/// The running node and its exported figures.
pub(crate) struct NodeWatch {
    figures: Arc<NodeFigures>,
    effective: Effective,
    capacity: u32,
    state: Mutex<NodeWatchState>,
}

struct NodeWatchState {
    /// The node; `None` once it has stopped.
    running: Option<Arc<ClusterNode>>,
    /// Whether it is being stopped, or has.
    stopping: bool,
    /// The last figures of a node that has stopped.
    last: Option<Box<(NodeSample, TransportSample)>>,
    /// The state of its link at the last look.
    link: LinkState,
    /// The health of its parts at the last look.
    health: PartsHealth,
    /// The trouble that kept it from taking sessions at the last look.
    unfit: Option<Unfit>,
    /// The state of its certificate's renewal at the last look.
    renewal: RenewalState,
    credentials: CredentialsWatch,
}

impl NodeWatch {
    /// Makes the watch of a node that takes `capacity` lanes.
    pub(crate) fn new(node: ClusterNode, capacity: u32) -> Self {
        let (figures, effective) = (Arc::clone(node.figures()), node.effective());
        let (link, health) = (LinkState::Dialling, PartsHealth::default());
        let credentials = CredentialsWatch::of_node(node.renews());
        let state = Mutex::new(NodeWatchState {
            link,
            health,
            unfit: None,
            renewal: RenewalState::default(),
            credentials,
            running: Some(Arc::new(node)),
            stopping: false,
            last: None,
        });
        Self { figures, effective, capacity, state }
    }

    /// Logs when the node has joined or lost its coordinator and when a part of it has failed. Returns true if it is
    /// drained or does not work any more: then it can only end.
    pub(crate) fn look(&self) -> bool {
        let mut state = self.state();
        let stopping = state.stopping;
        let NodeWatchState { running, credentials, .. } = &mut *state;
        let Some(node) = running.as_ref().filter(|_| !stopping) else { return true };
        let lines = credentials.look(node.identity(), None);
        lines.iter().for_each(|(level, line)| logging::line(*level, line));
        let (link, drained, health) = (node.link(), node.is_drained(), node.health());
        let (unfit, renewal) = (node.unfit(), node.renewal());
        if let Some(mishap) =
            health.last.as_ref().filter(|_| health.all_restarts() > state.health.all_restarts())
        {
            error!("{mishap}; it is made anew, which is a bug in rollhouse");
        }
        let over = drained || health.failed.is_some();
        state.health = health;
        match (&state.link, &link) {
            (LinkState::Joined { term: old }, LinkState::Joined { term }) if old == term => {}
            (_, LinkState::Joined { term }) => info!(term, "joined the coordinator, term {term}"),
            (LinkState::Away { reason: old }, LinkState::Away { reason }) if old == reason => {}
            (_, LinkState::Away { reason }) => warn!("without coordinator: {reason}; dialling on"),
            (_, LinkState::Dialling) => {}
        }
        state.link = link;
        let trouble = |unfit: &Option<Unfit>| unfit.as_ref().map(|unfit| (unfit.takes, unfit.reason));
        if trouble(&unfit) != trouble(&state.unfit) {
            match &unfit {
                Some(Unfit { takes, why, .. }) => warn!("{takes}: {why}"),
                None => info!("takes sessions again as any other node"),
            }
        }
        state.unfit = unfit;
        let before = std::mem::replace(&mut state.renewal, renewal.clone());
        if renewal.renewed > before.renewed {
            info!("the certificate was renewed");
        }
        if let Some(why) = renewal.failed.filter(|why| before.failed.as_ref() != Some(why)) {
            warn!("the certificate could not be renewed: {why}; still asking");
        }
        if drained {
            info!("drained: the last session has ended");
        }
        over
    }

    /// Reads certificate, key and authority again now.
    pub(crate) fn reread(&self) {
        if let Some(node) = &self.state().running {
            CredentialsWatch::read_again(node.identity(), None);
        }
    }

    /// Takes the present state as logged: only changes are logged from here on.
    pub(crate) fn passing_over_the_present(self) -> Self {
        let mut state = self.state();
        state.link = state.running.as_ref().map(|node| node.link()).unwrap_or_default();
        drop(state);
        self
    }

    /// Stops the node in order, and logs what is left undone and what had failed. Its figures are shown to the end.
    pub(crate) fn stop(&self) -> Result<Status, Failure> {
        let mut state = self.state();
        let Some(node) = state.running.clone().filter(|_| !state.stopping) else { return Ok(Status::Done) };
        state.stopping = true;
        // Not held meanwhile: probes and scrapes go on asking.
        drop(state);
        let failed = node.health().failed;
        let sessions = node.sessions() as u64;
        if sessions > 0 {
            let verb = if sessions == 1 { "ends" } else { "end" };
            info!("stopping; {} {verb} early", counted(sessions, "session"));
        }
        let report = node.end(STOP_DEADLINE);
        let last = Box::new(self.samples(&node));
        let mut state = self.state();
        (state.running, state.last) = (None, Some(last));
        drop(state);
        drop(node);
        if report.left > 0 {
            let left = counted(report.left as u64, "session");
            return Err(Failure::new(
                Status::Failed,
                format_args!("{left} did not end in time and were cut off"),
            ));
        }
        if !report.shipped && failed.as_ref().is_none_or(|mishap| mishap.is_bug()) {
            warn!("not all recordings are in the store yet; the node ships the rest when it starts again");
        }
        if let Some(mishap) = failed {
            let what = if mishap.is_bug() {
                format!("{mishap}, and is not made anew any more, which is a bug in rollhouse")
            } else {
                format!("{mishap}; what was recorded there and had not been shipped is lost")
            };
            return Err(Failure::new(Status::Failed, what));
        }
        match report.recorded {
            Some(Err(error)) => Err(Failure::of(Status::Failed, &error)),
            _ => Ok(Status::Done),
        }
    }

    fn state(&self) -> MutexGuard<'_, NodeWatchState> {
        self.state.lock()
    }

    fn samples(&self, node: &ClusterNode) -> (NodeSample, TransportSample) {
        let transport = TransportSample {
            arrivals: Some(node.arrivals()),
            effective: Some(self.effective),
            refusals: self.figures.refusals.counts(),
            calls: self.figures.calls.histograms(),
            links: links(&node.connections()),
            certificate_expires: node.identity().validity().map(|validity| validity.not_after),
        };
        (self.sample(node), transport)
    }

    fn sample(&self, node: &ClusterNode) -> NodeSample {
        let (figures, load) = (&self.figures, node.load());
        let health = node.health();
        let part_restarts = health.restarts.iter();
        NodeSample {
            steps: figures.steps.get(),
            episodes: std::array::from_fn(|outcome| figures.episodes[outcome].get()),
            verdicts: VerdictSample {
                results: std::array::from_fn(|result| figures.verdicts.results[result].get()),
                scores: figures.verdicts.scores.get(),
                score_sum: figures.verdicts.score_sum.get(),
            },
            envs: figures.envs.all().iter().map(|(env, figures)| env_sample(env, figures)).collect(),
            policies: policies_sample(&figures.envs.policies),
            threads: ThreadSample {
                queue_waits: histogram(&figures.threads.queue_wait),
                queued: load.queued.into(),
                longest_wait: node.longest_queue_wait().as_secs_f64(),
                busy: figures.threads.busy.get(),
                abandoned: figures.threads.abandoned.get(),
            },
            sessions: self.sessions(node),
            malformed_streams: figures.malformed.get(),
            watchers: WatcherSample {
                replays: figures.watching.replays.get(),
                watchers: figures.watching.watchers.get(),
                dropped: figures.watching.dropped.get(),
                frames: figures.watching.frames_shown.get(),
                missed: figures.watching.frames_missed.get(),
            },
            budget: BudgetSample {
                lanes: load.lanes.into(),
                capacity: self.capacity.into(),
                total: node.budget(),
                taken: load.taken,
            },
            restarts: figures.lane_restarts.get(),
            part_restarts: part_restarts.map(|(&(part, how), &count)| (part.word(), how, count)).collect(),
            link: self.link(node),
            recorder: node.recorder().as_ref().map(recorder).unwrap_or_default(),
            spool: node.shipping().as_ref().map(spool).unwrap_or_default(),
        }
    }

    fn sessions(&self, node: &ClusterNode) -> SessionSample {
        let figures = &self.figures;
        let causes = NodeFigures::END_CAUSES.iter().zip(&figures.sessions_ended);
        SessionSample {
            open: node.sessions() as u64,
            launching: node.launching() as u64,
            connecting: node.connecting() as u64,
            connect_retries: node.connect_retries(),
            opened: figures.sessions_opened.get(),
            ended: causes.map(|(cause, count)| (cause.word(), count.get())).collect(),
            attachments: figures.attached.get(),
            attached: attached_sessions(&node.attached()),
        }
    }

    fn link(&self, node: &ClusterNode) -> LinkSample {
        let renewal = node.renewal();
        LinkSample {
            lost: self.figures.coordinator_lost.get(),
            registered: matches!(node.link(), LinkState::Joined { .. }),
            renewals: renewal.renewed,
            renewal_failing: renewal.failed.is_some(),
            unfit: node.unfit().map(|unfit| unfit.reason),
        }
    }
}

impl Figures for NodeWatch {
    fn families(&self) -> Vec<&'static Family> {
        NodeSample::FAMILIES.iter().chain(TransportSample::FAMILIES).collect()
    }

    fn put(&self, page: &mut Page) {
        let state = self.state();
        if let Some(node) = &state.running {
            let (node, transport) = self.samples(node);
            node.put(page);
            transport.put(page);
        } else if let Some(last) = &state.last {
            last.0.put(page);
            last.1.put(page);
        }
    }
}

impl Health for NodeWatch {
    fn live(&self) -> Result<(), String> {
        let state = self.state();
        let Some(node) = state.running.as_ref().filter(|_| !state.stopping) else { return Ok(()) };
        if let Some(mishap) = node.health().failed {
            return Err(mishap.to_string());
        }
        let silent = node.silent();
        match silent < STUCK_AFTER {
            true => Ok(()),
            false => Err(format!("a thread of the node has not turned for {} s", silent.as_secs())),
        }
    }

    fn ready(&self) -> Result<(), String> {
        let state = self.state();
        let Some(node) = state.running.as_ref().filter(|_| !state.stopping) else {
            return Err("the node is stopping".to_owned());
        };
        stepping(node.longest_queue_wait())?;
        match node.link() {
            LinkState::Joined { .. } if node.is_draining() => Err("the node drains".to_owned()),
            LinkState::Joined { .. } => match node.unfit() {
                None | Some(Unfit { takes: Takes::Last, .. }) => Ok(()),
                Some(Unfit { why, .. }) => Err(why),
            },
            LinkState::Dialling => Err("the coordinator has not been reached yet".to_owned()),
            LinkState::Away { reason } => Err(format!("without coordinator: {reason}")),
        }
    }
}

fn env_sample(env: &str, figures: &EnvFigures) -> EnvSample {
    let requests = &figures.requests;
    EnvSample {
        env: env.to_owned(),
        steps: figures.steps.get(),
        step_times: histogram(&requests.step),
        send_times: histogram(&requests.send),
        reset_times: histogram(&requests.reset),
        lateness: histogram(&figures.live.lateness),
        missed_ticks: figures.live.missed.get(),
    }
}

fn policies_sample(figures: &Policies) -> PoliciesSample {
    PoliciesSample {
        played: figures.all().iter().map(|(names, of)| policy_sample(names, of)).collect(),
        fetched: figures.fetched.get(),
        fetched_bytes: figures.fetched_bytes.get(),
    }
}

fn policy_sample((env, policy): &(String, String), figures: &PolicyFigures) -> PolicySample {
    let lag = &figures.data_lag;
    let data_lag = rollhouse_metrics::Histogram {
        bounds: Updates::BOUNDS.map(|bound| bound as f64).to_vec(),
        counts: lag.counts().to_vec(),
        sum: lag.sum() as f64,
        exemplars: Vec::new(),
    };
    let publishing = histogram(&figures.publishing);
    PolicySample { env: env.clone(), policy: policy.clone(), data_lag, publishing }
}

/// Returns the number of sessions by transport, with transports by which nobody is attached.
fn attached_sessions(attached: &BTreeMap<Transport, u64>) -> Vec<(&'static str, u64)> {
    let of = |by: Transport| (by.word(), attached.get(&by).copied().unwrap_or_default());
    Transport::ALL.map(of).to_vec()
}

fn histogram(times: &Histogram) -> rollhouse_metrics::Histogram {
    rollhouse_metrics::Histogram {
        bounds: Histogram::BOUNDS.to_vec(),
        counts: times.counts().to_vec(),
        sum: times.sum().as_secs_f64(),
        exemplars: Vec::new(),
    }
}

fn spool(shipping: &ShipFigures) -> SpoolSample {
    let counts = &shipping.counts;
    SpoolSample {
        waiting_bytes: shipping.unshipped_bytes,
        waiting_segments: counts.waiting.segments,
        shipped_segments: counts.shipped.segments,
        shipped_bytes: counts.shipped.bytes,
        quarantined_segments: counts.aside.segments,
        dropped_segments: counts.dropped.segments,
        dropped_episodes: counts.dropped_episodes,
        oldest: shipping.oldest,
        failed_attempts: ShipFigures::REASONS.into_iter().zip(shipping.failed).collect(),
        held: shipping.held,
    }
}

/// Returns the connections of a node: to its coordinator, and from owners, who need not say who they are.
fn links(connections: &ConnectionFigures) -> BTreeMap<Role, Links> {
    let mut links = BTreeMap::<Role, Links>::new();
    let owners = links.entry(Role::Anonymous).or_default();
    connections.owners.iter().for_each(|link| owners.open(link));
    connections.gone.iter().for_each(|link| owners.closed(link));
    let coordinator = links.entry(Role::Coordinator).or_default();
    connections.coordinator.iter().for_each(|link| coordinator.open(link));
    links
}

fn recorder(status: &rollhouse_replay::Status) -> RecorderSample {
    let recorded = &status.recorded;
    RecorderSample {
        episodes: recorded.episodes,
        durable_episodes: status.durable_episodes,
        bytes: recorded.bytes,
        lost_episodes: recorded.lost_episodes,
        stalled: recorded.stalled,
        busy: recorded.busy,
        failing: status.failing,
    }
}

/// Says whether the threads that step get on, whose oldest request has waited for so long.
fn stepping(waited: Duration) -> Result<(), String> {
    match waited < STALLED_AFTER {
        true => Ok(()),
        false => Err(format!("a step has waited for a thread for {} s", waited.as_secs())),
    }
}

/// Wait of the oldest request after which a node says that it is not ready.
const STALLED_AFTER: Duration = Duration::from_secs(5);

/// Silence after which a control or data thread no longer does its work: it marks each second, and never waits.
const STUCK_AFTER: Duration = Duration::from_secs(5);

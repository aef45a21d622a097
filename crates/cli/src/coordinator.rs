//! `rollhouse coordinator`: runs the coordinator of a cluster.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use rollhouse_config::{CoordinatorConfig, Enrolment, Store};
use rollhouse_coordinator::{
    ArchiveFigures, ArchiveSettings, Coordinator, CoordinatorError, CoordinatorFigures, DataError,
    EnrolmentConfig, Stopped, StoreConfig,
};
use rollhouse_core::{BackOff, RestartDecision};
use rollhouse_metrics::{ArchiveSample, CoordinatorSample, Family, Figures, Health, Page, TransportSample};
use rollhouse_replay::OpenError;
use rollhouse_wire::{Identity, Settings, Validity};
use tracing::{error, info, warn};

use crate::args::CoordinatorArgs;
use crate::credentials::CredentialsWatch;
use crate::failure::{Failure, Status};
use crate::human::counted;
use crate::logging::{self, Logging};
use crate::private_folder::private_folder;
use crate::service::{self, PROGRAM, STOP_DEADLINE, listen_for_metrics, serve_metrics, until_ended};
use crate::settings::{self, Live};
use crate::store_room::{StoreRoom, free_bytes};
use crate::{signals, token};

pub(crate) fn run(args: &CoordinatorArgs) -> Result<Status, Failure> {
    let flags = [
        ("--listen", "coordinator.listen", &args.listen),
        ("--data", "coordinator.data", &args.data),
        ("--least-term", "coordinator.least_term", &args.least_term),
    ];
    let settings = settings::live::<CoordinatorConfig>(&args.service, &flags)?;
    let logging = Logging::begin("rollhouse-coordinator", &settings.config.log, &settings.config.traces)?;
    let done = serve(settings, &logging);
    logging.end(done)
}

fn serve(mut settings: Live<CoordinatorConfig>, logging: &Logging) -> Result<Status, Failure> {
    let config = settings.config.clone();
    let asked = signals::of_service()?;
    let identity = service::identity(&config.tls, &config.data, "coordinator")?;
    private_folder(&config.data)?;
    let quic = service::quic(&config.network, &config.data)?;
    let again: Again = {
        let (data, store) = (config.data.clone(), config.store.clone());
        let enrolment = enrolment(&config.enrolment, &config.data);
        Box::new(move |listen, least| {
            start((listen, least), &data, Arc::clone(&identity), enrolment.clone(), &store, quic)
        })
    };
    // Before a term is used up.
    let listener = listen_for_metrics(config.metrics, "metrics.listen")?;
    let coordinator = again(config.listen, config.least_term.0)?;
    let (term, address) = (coordinator.term(), coordinator.address());
    info!(term, %address, "coordinator, term {term}, listens on {address}");
    info!("{}", coordinator.effective());
    if token::open(&config.data)?.list().is_empty() {
        let makes =
            format!("rollhouse token create --role trainer --name NAME --data {}", config.data.display());
        info!("nobody has a token yet; `{makes}` makes one");
    }
    let watch = Arc::new(CoordinatorWatch::new(coordinator, again));
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

/// Returns the settings with which a coordinator lets nodes in.
pub(crate) fn enrolment(enrolment: &Enrolment, data: &Path) -> EnrolmentConfig {
    let of_folder = EnrolmentConfig::in_folder(data);
    let issuer = enrolment.issuer.clone().unwrap_or(of_folder.issuer);
    EnrolmentConfig { issuer, validity: enrolment.node_validity.0 }
}

/// Starts a coordinator that listens at that address and has at least that term.
pub(crate) fn start(
    (listen, least_term): (SocketAddr, u64),
    data: &Path,
    identity: Arc<Identity>,
    enrolment: EnrolmentConfig,
    store: &Store,
    quic: Settings,
) -> Result<Coordinator, Failure> {
    private_folder(data)?;
    let config = rollhouse_coordinator::CoordinatorConfig {
        data: data.to_owned(),
        least_term,
        listen,
        identity,
        tokens: Arc::new(token::open(data)?),
        enrolment,
        store: StoreConfig { budget_bytes: store.budget.0, quarantine_bytes: store.quarantine.0 },
        policies_bytes: store.policies.0,
        archive: store
            .archive
            .target
            .0
            .clone()
            .map(|target| ArchiveSettings { target, cache_bytes: store.archive.cache.0 }),
        quic,
        program: PROGRAM.to_owned(),
    };
    Coordinator::start(config).map_err(|error| {
        let status = match &error {
            CoordinatorError::Data(DataError::Held { .. })
            | CoordinatorError::Store(OpenError::Locked { .. }) => Status::Refused,
            CoordinatorError::Identity { .. }
            | CoordinatorError::Archive(_)
            | CoordinatorError::Data(DataError::Term(_)) => Status::Usage,
            _ => Status::Failed,
        };
        let failure = Failure::of(status, &error);
        match error {
            CoordinatorError::Bind(_) => {
                failure.hint("another address is set by --set coordinator.listen=ADDRESS:PORT")
            }
            _ => failure,
        }
    })
}

/// Starts a coordinator in the place of another, at that address and with at least that term.
pub(crate) type Again = Box<dyn Fn(SocketAddr, u64) -> Result<Coordinator, Failure> + Send + Sync>;

/// The running coordinator, which is restarted when it fails, and its exported figures.
///
/// ```text
/// running --failed--> backing off --> running            of a greater term; sessions on nodes go on
///                     backing off --too often--> failed  for good: nothing but its end is left
/// running --a node knows a greater term, the folder is new--> stopped --> running   of a term that is greater still
/// ```
pub(crate) struct CoordinatorWatch {
    state: Mutex<CoordinatorWatchState>,
    again: Again,
    address: SocketAddr,
    began: Instant,
}

struct CoordinatorWatchState {
    /// The coordinator; `None` while it is being restarted or stopped.
    running: Option<Coordinator>,
    /// The figures of a coordinator that is being stopped for good.
    last: Option<Box<CoordinatorFigures>>,
    back_off: BackOff,
    credentials: CredentialsWatch,
    /// Number of segments that the store had dropped when that was last logged.
    dropped: u64,
    room: StoreRoom,
    /// The least term of the next coordinator.
    least_term: u64,
    /// Number of times that it was restarted because nodes had seen a later coordinator.
    learned: u32,
    /// The time at which it is restarted, if it has failed.
    retry_at: Option<Duration>,
    /// Number of restarts.
    restarts: u64,
    failed: bool,
}

impl CoordinatorWatch {
    pub(crate) fn new(coordinator: Coordinator, again: Again) -> Self {
        let address = coordinator.address();
        let back_off = BackOff::new(coordinator.term());
        let state = CoordinatorWatchState {
            running: Some(coordinator),
            last: None,
            back_off,
            credentials: CredentialsWatch::default(),
            dropped: 0,
            room: StoreRoom::default(),
            least_term: 0,
            learned: 0,
            retry_at: None,
            restarts: 0,
            failed: false,
        };
        Self { state: Mutex::new(state), again, address, began: Instant::now() }
    }

    /// Restarts the coordinator if it has failed, after a back-off. Returns true if it has failed too often and can
    /// only end. One thread has to call this now and then. Blocks for the disk when it restarts the coordinator.
    pub(crate) fn look(&self) -> bool {
        self.learn_term();
        let (failed, least_term) = {
            let mut state = self.state();
            let CoordinatorWatchState { running, credentials, dropped, room, .. } = &mut *state;
            if let Some(coordinator) = running {
                let lines = credentials.look(coordinator.identity(), Some(coordinator.tokens()));
                lines.iter().for_each(|(level, line)| logging::line(*level, line));
                let store = coordinator.store();
                let free = free_bytes(store.dir()).ok();
                room.look(&store.status(), free).into_iter().for_each(|words| warn!("{words}"));
                let now = coordinator.figures().map_or(*dropped, |figures| figures.store.dropped_segments);
                if now > *dropped {
                    let more = counted(now - *dropped, "segment");
                    warn!("the store dropped the oldest {more} to stay within store.budget");
                }
                // Another coordinator counts from 0.
                *dropped = now;
            }
            let ended = state.running.take_if(|coordinator| coordinator.wait_failed(Duration::ZERO));
            if ended.is_some() {
                self.note(&mut state, "the coordinator has failed, which is a bug in rollhouse");
            }
            // Its thread has ended, and its folder is free now.
            drop(ended);
            let due = state.retry_at.is_some_and(|at| at <= self.began.elapsed());
            if !due {
                return state.failed;
            }
            (state.failed, state.least_term)
        };
        // Not held meanwhile: probes go on asking.
        let made = (self.again)(self.address, least_term);
        let mut state = self.state();
        match made {
            Ok(coordinator) => {
                let term = coordinator.term();
                info!(term, "coordinator, term {term}, listens again");
                state.running = Some(coordinator);
                state.restarts += 1;
                state.retry_at = None;
            }
            Err(failure) => {
                self.note(&mut state, &format!("the coordinator does not start: {}", failure.message()));
            }
        }
        failed || state.failed
    }

    /// Reads certificate, key, authority and tokens again now.
    pub(crate) fn reread(&self) {
        if let Some(coordinator) = &self.state().running {
            CredentialsWatch::read_again(coordinator.identity(), Some(coordinator.tokens()));
        }
    }

    /// Stops it if nodes have seen a later coordinator and it learns from them; it is restarted at once. It does so
    /// [`MAX_LEARNED`] times: nodes that have seen ever greater terms are refused then.
    fn learn_term(&self) {
        let state = self.state();
        let learns = state.learned < MAX_LEARNED;
        let wanted = state.running.as_ref().filter(|_| learns).and_then(Coordinator::wanted_term);
        drop(state);
        let Some(behind) = wanted else { return };
        let (node, seen, term) = (&behind.node, behind.term, behind.least_term());
        warn!(
            %node,
            "node {node} has seen term {seen}, and this coordinator's folder is new or its term was given: an earlier one \
             was lost. It goes on with term {term}; its tokens and recordings are those of its folder"
        );
        // Not held meanwhile: probes go on asking.
        let taken = self.state().running.take();
        // How it stopped is the same to the next one.
        let _stopped = taken.map(|coordinator| coordinator.stop(Duration::ZERO));
        let mut state = self.state();
        state.learned += 1;
        (state.least_term, state.retry_at) = (term, Some(self.began.elapsed()));
    }

    /// Decides when it is restarted.
    fn note(&self, state: &mut CoordinatorWatchState, what: &str) {
        match state.back_off.failed(self.began.elapsed()) {
            RestartDecision::RetryAfter(wait) => {
                error!("{what}; it is made anew in {} ms", wait.as_millis());
                state.retry_at = Some(self.began.elapsed() + wait);
            }
            RestartDecision::GiveUp => {
                error!("{what}; it is not made anew any more");
                state.retry_at = None;
                state.failed = true;
            }
        }
    }

    /// Stops it in order.
    pub(crate) fn stop(&self) -> Result<Status, Failure> {
        // Whoever scrapes it meanwhile sees what it has done.
        let last = self.figures().map(Box::new);
        // Not held meanwhile: probes go on asking.
        let taken = {
            let mut state = self.state();
            state.last = last;
            state.running.take()
        };
        let stopped = taken.map(|coordinator| coordinator.stop(STOP_DEADLINE));
        if self.state().failed || stopped == Some(Stopped::Failed) {
            return Err(Failure::new(
                Status::Failed,
                "the coordinator has failed, which is a bug in rollhouse",
            ));
        }
        if stopped == Some(Stopped::CutOff) {
            warn!("segments that were still coming in were cut off; their nodes ship them again");
        }
        Ok(Status::Done)
    }

    fn certificate(&self) -> Option<Validity> {
        self.state().running.as_ref().and_then(|coordinator| coordinator.identity().validity())
    }

    fn figures(&self) -> Option<CoordinatorFigures> {
        self.state().running.as_ref()?.figures()
    }

    fn state(&self) -> MutexGuard<'_, CoordinatorWatchState> {
        self.state.lock()
    }
}

impl Figures for CoordinatorWatch {
    fn families(&self) -> Vec<&'static Family> {
        let families = CoordinatorSample::FAMILIES.iter().chain(ArchiveSample::FAMILIES);
        families.chain(TransportSample::FAMILIES).collect()
    }

    fn put(&self, page: &mut Page) {
        let restarts = self.state().restarts;
        let last = || self.state().last.as_deref().cloned();
        let Some(figures) = self.figures().or_else(last) else { return };
        let CoordinatorFigures {
            status,
            cluster,
            store,
            arrivals,
            effective,
            refusals,
            enrolments,
            calls,
            links,
            closed_links,
            archive,
            audit,
            policies,
            ..
        } = figures;
        CoordinatorSample {
            status,
            restarts,
            pools_opened: cluster.pools_opened,
            waiting_lanes: cluster.waiting.lanes,
            waiting_weight: cluster.waiting.weight,
            unfit_nodes: cluster.unfit_nodes,
            stored_bytes: store.received_bytes,
            store_dropped_segments: store.dropped_segments,
            enrolments: enrolments
                .iter()
                .map(|(&(kind, result), &count)| (kind.word(), result, count))
                .collect(),
            policies,
            audit: (audit.lines, audit.failures),
        }
        .put(page);
        archive_sample(&archive.unwrap_or_default()).put(page);
        let mut transport = TransportSample {
            arrivals: Some(arrivals),
            effective: Some(effective),
            refusals,
            calls,
            certificate_expires: self.certificate().map(|validity| validity.not_after),
            ..TransportSample::default()
        };
        for (role, link) in &links {
            transport.links.entry(*role).or_default().open(link);
        }
        for (role, link) in &closed_links {
            transport.links.entry(*role).or_default().closed(link);
        }
        transport.put(page);
    }
}

impl Health for CoordinatorWatch {
    fn live(&self) -> Result<(), String> {
        match self.figures() {
            Some(figures) if !figures.alive => Err("the thread that decides does not turn".to_owned()),
            _ => Ok(()),
        }
    }

    fn ready(&self) -> Result<(), String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match self.figures() {
            Some(_) if self.certificate().is_some_and(|validity| validity.left(now).is_zero()) => {
                Err("the certificate has expired: nobody believes it any more".to_owned())
            }
            Some(figures) if figures.alive && figures.status.is_behind() => {
                Err(figures.status.behind.map(|behind| behind.to_string()).unwrap_or_default())
            }
            Some(figures) if figures.alive => Ok(()),
            Some(_) => Err("the thread that decides does not turn".to_owned()),
            None => Err("the coordinator is starting or stopping".to_owned()),
        }
    }
}

/// Number of times that a coordinator learns a greater term from nodes in one run of its process.
const MAX_LEARNED: u32 = 8;

/// Returns what is shown of the archive.
fn archive_sample(archive: &ArchiveFigures) -> ArchiveSample {
    ArchiveSample {
        waiting_segments: archive.waiting.segments,
        waiting_bytes: archive.waiting.bytes,
        longest_wait: archive.longest_wait,
        segments: archive.both.segments + archive.away.segments,
        bytes: archive.both.bytes + archive.away.bytes,
        away_segments: archive.away.segments,
        away_bytes: archive.away.bytes,
        unfit_segments: archive.unfit.segments,
        failures: archive.failures,
        hits: archive.fetches.hits,
        misses: archive.fetches.misses,
        failed: archive.fetches.failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rollhouse_wire::{CertificateAuthority, CertificateFiles, Dialer, Expected, Role, Trust};
    use tracing::{Event, Subscriber, dispatcher};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
    use tracing_subscriber::registry::Registry;

    const DAY: Duration = Duration::from_secs(86_400);

    fn trust_in(folder: &Path) -> Trust {
        Trust::File(folder.join(rollhouse_wire::CA_CERTIFICATE))
    }

    /// Makes coordinators in a new folder, with a certificate that holds for that long.
    fn starting(folder: &Path, holds: Duration) -> Again {
        private_folder(folder).unwrap();
        let authority = CertificateAuthority::create(folder, DAY).unwrap();
        let files = CertificateFiles { certificate: folder.join("main.pem"), key: folder.join("main.key") };
        let issue = || {
            let issued = authority.issue(Role::Coordinator, "main", holds).unwrap();
            issued.write(&files.certificate, &files.key).unwrap();
            Identity::load(trust_in(folder), Some(files.clone()))
        };
        // Certificates end at whole seconds: one that holds for no time is loaded in the second of its end, or issued again.
        let identity = std::iter::repeat_with(issue).take(100).find_map(Result::ok).expect("one is loaded");
        let data = folder.join("data");
        Box::new(move |listen, least_term| {
            private_folder(&data)?;
            let config = rollhouse_coordinator::CoordinatorConfig {
                data: data.clone(),
                least_term,
                listen,
                identity: Arc::clone(&identity),
                tokens: Arc::new(token::open(&data)?),
                enrolment: EnrolmentConfig::in_folder(&data),
                store: StoreConfig { budget_bytes: 1 << 30, quarantine_bytes: 1 << 20 },
                policies_bytes: 1 << 20,
                archive: None,
                quic: Settings::default(),
                program: PROGRAM.to_owned(),
            };
            Coordinator::start(config).map_err(|error| Failure::of(Status::Failed, &error))
        })
    }

    #[test]
    fn a_coordinator_whose_certificate_has_expired_is_not_ready_and_lives() {
        let folder = tempfile::tempdir().unwrap();
        let again = starting(folder.path(), Duration::ZERO);
        let started = again(SocketAddr::from(([127, 0, 0, 1], 0)), 0).unwrap();
        let watch = CoordinatorWatch::new(started, again);
        while watch.figures().is_none() {
            std::thread::yield_now();
        }
        assert!(watch.ready().is_err_and(|why| why.contains("has expired")));
        assert_eq!(watch.live(), Ok(()));
        assert!(matches!(watch.stop(), Ok(Status::Done)));
    }

    /// Panics where it is first heard that somebody is turned away: in the task that accepts.
    struct Panics(AtomicBool);

    impl<S: Subscriber> Layer<S> for Panics {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            if event.metadata().target().starts_with("rollhouse_coordinator") {
                assert!(!self.0.swap(false, Ordering::Relaxed), "while it accepts");
            }
        }
    }

    #[test]
    fn a_coordinator_that_fails_is_made_anew_on_its_address_with_a_greater_term() {
        let heard = Registry::default().with(Panics(AtomicBool::new(true)));
        dispatcher::with_default(&heard.into(), fail_and_be_made_anew);
    }

    fn fail_and_be_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let again = starting(folder.path(), DAY);
        let first = again(SocketAddr::from(([127, 0, 0, 1], 0)), 0).unwrap();
        let (address, term) = (first.address(), first.term());
        let watch = CoordinatorWatch::new(first, again);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let nobody = Identity::load(trust_in(folder.path()), None).unwrap();
        let dialler = Dialer::new(nobody, Settings::default(), PROGRAM);
        let dialled = runtime.block_on(dialler.dial_address(address, &Expected::COORDINATOR, None));
        assert!(dialled.is_err(), "nobody without a name is let in");
        while watch.state().retry_at.is_none() {
            assert!(!watch.look());
        }
        assert!(watch.live().is_ok() && watch.ready().is_err());
        while watch.state().running.is_none() {
            assert!(!watch.look());
        }
        {
            let state = watch.state();
            let running = state.running.as_ref().unwrap();
            assert_eq!((running.address(), running.term()), (address, term + 1));
        }
        assert!(matches!(watch.stop(), Ok(Status::Done)));
    }
}

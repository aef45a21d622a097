//! `rollhouse coordinator`: knows the nodes, places lanes, gathers recordings.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rollhouse_config::{CoordinatorConfig, Store};
use rollhouse_coordinator::{
    Coordinator, CoordinatorError, CoordinatorFigures, DataError, Stopped, StoreConfig,
};
use rollhouse_metrics::{CoordinatorSample, Family, Figures, Health, Page, TransportSample};
use rollhouse_replay::OpenError;
use rollhouse_wire::{Identity, Settings};

use crate::args::CoordinatorArgs;
use crate::certs::private_folder;
use crate::failure::{Failure, Status};
use crate::output::say;
use crate::service::{self, PROGRAM, STOP_DEADLINE, serve_metrics, until_ended};
use crate::{settings, signals, token};

pub(crate) fn run(args: &CoordinatorArgs) -> Result<Status, Failure> {
    let flags =
        [("--listen", "coordinator.listen", &args.listen), ("--data", "coordinator.data", &args.data)];
    let config = settings::of_service::<CoordinatorConfig>(&args.service, &flags)?.config;
    let asked = signals::ending()?;
    let identity = service::identity(&config.tls, &config.data, "coordinator")?;
    private_folder(&config.data)?;
    let quic = service::quic(&config.network, &config.data)?;
    let coordinator = start(config.listen, &config.data, identity, &config.store, quic)?;
    say(&format!("coordinator, term {}, listens on {}", coordinator.term(), coordinator.address()));
    say(&coordinator.effective().to_string());
    if token::open(&config.data)?.list().is_empty() {
        let data = config.data.display();
        say("nobody has a token yet; this makes one:");
        say(&format!("  rollhouse token create --role trainer --name NAME --data {data}"));
    }
    let watch = Arc::new(CoordinatorWatch::new(coordinator));
    let metrics = serve_metrics(config.metrics, vec![watch.clone()], watch.clone())?;
    until_ended(&asked, || watch.failed());
    let stopped = watch.stop();
    // Last, so that probes and scrapes see it stop.
    drop(metrics);
    stopped
}

pub(crate) fn start(
    listen: SocketAddr,
    data: &Path,
    identity: Arc<Identity>,
    store: &Store,
    quic: Settings,
) -> Result<Coordinator, Failure> {
    private_folder(data)?;
    let config = rollhouse_coordinator::CoordinatorConfig {
        data: data.to_owned(),
        listen,
        identity,
        tokens: Arc::new(token::open(data)?),
        store: StoreConfig { budget_bytes: store.budget.0, quarantine_bytes: store.quarantine.0 },
        quic,
        program: PROGRAM.to_owned(),
        log: Arc::new(|line: &str| say(line)),
    };
    Coordinator::start(config).map_err(|error| {
        let status = match &error {
            CoordinatorError::Data(DataError::Held { .. })
            | CoordinatorError::Store(OpenError::Locked { .. }) => Status::Refused,
            CoordinatorError::Identity { .. } => Status::Usage,
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

/// The coordinator while it runs, and what is exported of it.
pub(crate) struct CoordinatorWatch {
    /// `None` once it is being stopped.
    running: Mutex<Option<Coordinator>>,
}

impl CoordinatorWatch {
    pub(crate) fn new(coordinator: Coordinator) -> Self {
        Self { running: Mutex::new(Some(coordinator)) }
    }

    /// Whether it has failed, and nothing but its end is left.
    pub(crate) fn failed(&self) -> bool {
        self.running().as_ref().is_some_and(|coordinator| coordinator.wait_failed(Duration::ZERO))
    }

    /// Stops it in order.
    pub(crate) fn stop(&self) -> Result<Status, Failure> {
        // Not held meanwhile: probes go on asking.
        let taken = self.running().take();
        let Some(coordinator) = taken else { return Ok(Status::Done) };
        match coordinator.stop(STOP_DEADLINE) {
            Stopped::InOrder => Ok(Status::Done),
            Stopped::CutOff => {
                say("segments that were still coming in were cut off; their nodes ship them again");
                Ok(Status::Done)
            }
            Stopped::Failed => {
                Err(Failure::new(Status::Failed, "the coordinator has failed, which is a bug in rollhouse"))
            }
        }
    }

    fn figures(&self) -> Option<CoordinatorFigures> {
        self.running().as_ref()?.figures()
    }

    fn running(&self) -> MutexGuard<'_, Option<Coordinator>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Figures for CoordinatorWatch {
    fn families(&self) -> Vec<&'static Family> {
        CoordinatorSample::FAMILIES.iter().chain(TransportSample::FAMILIES).collect()
    }

    fn put(&self, page: &mut Page) {
        let Some(figures) = self.figures() else { return };
        let CoordinatorFigures {
            status,
            pools_opened,
            store,
            arrivals,
            effective,
            refusals,
            links,
            closed_links,
            ..
        } = figures;
        CoordinatorSample {
            status,
            pools_opened,
            stored_bytes: store.received_bytes,
            store_dropped_segments: store.dropped_segments,
        }
        .put(page);
        let mut transport = TransportSample {
            arrivals: Some(arrivals),
            effective: Some(effective),
            refusals,
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
        match self.figures() {
            Some(figures) if figures.alive => Ok(()),
            Some(_) => Err("the thread that decides does not turn".to_owned()),
            None => Err("the coordinator is starting or stopping".to_owned()),
        }
    }
}

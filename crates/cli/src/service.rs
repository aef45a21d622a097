//! The parts that all processes of a cluster share: identity, sockets, metrics, and how they end.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::park_timeout;
use std::time::Duration;

use rollhouse_config::{Network, Tls};
use rollhouse_metrics::{
    Exporter, ExporterError, Figures, Health, MetricsListener, MetricsServer, ProcessFigures,
};
use rollhouse_wire::{CertificateFiles, Identity, IdentityFileError, ResetKey, Settings, Trust};
use tracing::info;

use crate::failure::{Failure, Status};
use crate::logging::Logging;
use crate::manager::Manager;
use crate::signals::ServiceSignals;

/// Loads the identity in the files of a service; they are read again when they change.
pub(crate) fn identity(tls: &Tls, data: &Path, role: &str) -> Result<Arc<Identity>, Failure> {
    let [ca, certificate, key, revoked] = tls.files(data);
    let files = Some(CertificateFiles { certificate, key });
    Identity::load_refusing(Trust::File(ca), files, &revoked).map_err(|error| {
        let failure = Failure::of(Status::Usage, &error);
        match error {
            IdentityFileError::Read { .. } => {
                let folder = data.join("tls");
                failure.hint("`rollhouse certs init` makes an authority, and this a certificate:").hint(
                    format_args!(
                        "  rollhouse certs issue --role {role} --name NAME --output {}",
                        folder.display()
                    ),
                )
            }
            _ => failure,
        }
    })
}

/// Returns the settings of QUIC. The key by which peers know a restarted service is kept in its data folder, which must
/// exist.
pub(crate) fn quic(network: &Network, data: &Path) -> Result<Settings, Failure> {
    // The configuration bounds neither below what a usize holds.
    let socket_buffer = usize::try_from(network.socket_buffer.0).unwrap_or(usize::MAX);
    let path = data.join("reset.key");
    let reset_key = ResetKey::kept_in(&path).map_err(|error| {
        let what = format_args!("{} can be neither read nor written: {error}", path.display());
        Failure::new(Status::Failed, what)
    })?;
    Ok(Settings { jumbo: network.jumbo, socket_buffer, reset_key: Some(reset_key), ..Settings::default() })
}

/// Listens for requests for metrics and health, if they are wanted: before the parts that they show are started. The key is
/// that of the address.
pub(crate) fn listen_for_metrics(
    address: Option<SocketAddr>,
    key: &str,
) -> Result<Option<MetricsListener>, Failure> {
    address.map(MetricsListener::bind).transpose().map_err(|error| {
        Failure::of(Status::Failed, &error)
            .hint(format_args!("another address is set by --set {key}=ADDRESS:PORT, none by --set {key}="))
    })
}

/// Serves metrics, including those of the process, and health, if they are wanted. Logs the address.
pub(crate) fn serve_metrics(
    listener: Option<MetricsListener>,
    figures: Vec<Arc<dyn Figures>>,
    health: Arc<dyn Health>,
) -> Result<Option<MetricsServer>, Failure> {
    let Some(listener) = listener else { return Ok(None) };
    let mut exporter = Exporter::new();
    for each in figures.into_iter().chain([Arc::new(ProcessFigures::new()) as Arc<dyn Figures>]) {
        exporter.add(each).map_err(|error: ExporterError| Failure::of(Status::Failed, &error))?;
    }
    let server = listener.serve(exporter, health).map_err(|error| Failure::of(Status::Failed, &error))?;
    info!("metrics and health on http://{}", server.address());
    Ok(Some(server))
}

/// Waits until somebody asks the process to end, or until `over` says that there is nothing left to do; it is called
/// every tenth of a second. During the wait the manager that started the process is told that it serves and, while all
/// of `healths` say so, that it lives.
pub(crate) fn until_ended(
    asked: &ServiceSignals,
    logging: &Logging,
    healths: &[&dyn Health],
    mut over: impl FnMut() -> bool,
) {
    let mut manager = Manager::of_environment();
    manager.ready();
    while !asked.wants_end() && !over() {
        logging.look();
        // As the first process of a container it gets all, and as a node those of its workers.
        rollhouse_host::reap_orphans();
        manager.beat(|| healths.iter().all(|health| health.live().is_ok()));
        park_timeout(LOOK_EVERY);
    }
    manager.stopping();
}

/// Longest time that a service takes to stop in order: less than the 30 s after which Kubernetes kills.
pub const STOP_DEADLINE: Duration = Duration::from_secs(20);

/// The name and version that services report.
pub(crate) const PROGRAM: &str = concat!("rollhouse ", env!("CARGO_PKG_VERSION"));

const LOOK_EVERY: Duration = Duration::from_millis(100);

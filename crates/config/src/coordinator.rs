//! The configuration of a coordinator.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::log::Log;
use crate::shared::{Enrolment, Network, Store, Tls};
use crate::traces::Traces;
use crate::{Config, Setting};

/// What a coordinator is told. `config/coordinator.toml` shows every key at its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// Where nodes and clients dial in (UDP). Default port 7600 on all addresses.
    pub listen: SocketAddr,
    /// Folder of its term, tokens and store. A second coordinator on it is refused.
    pub data: PathBuf,
    /// By what it lets nodes in.
    pub enrolment: Enrolment,
    /// Its certificates.
    pub tls: Tls,
    /// What it keeps of recordings.
    pub store: Store,
    /// Where /metrics, /healthz and /readyz answer (TCP, plaintext, read-only); `None` is nowhere.
    pub metrics: Option<SocketAddr>,
    /// How datagrams travel.
    pub network: Network,
    /// How it speaks of itself.
    pub log: Log,
    /// Where it tells of its calls.
    pub traces: Traces,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], COORDINATOR_PORT)),
            data: "./rollhouse-coordinator".into(),
            enrolment: Enrolment::default(),
            tls: Tls::default(),
            store: Store::default(),
            metrics: Some(SocketAddr::from(([0, 0, 0, 0], COORDINATOR_METRICS_PORT))),
            network: Network::default(),
            log: Log::default(),
            traces: Traces::default(),
        }
    }
}

impl Config for CoordinatorConfig {
    fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        let mut settings: Vec<(&'static str, &mut dyn Setting)> =
            vec![("coordinator.listen", &mut self.listen), ("coordinator.data", &mut self.data)];
        settings.extend(self.enrolment.settings());
        settings.extend(self.tls.settings());
        settings.extend(self.store.settings());
        settings.push(("metrics.listen", &mut self.metrics));
        settings.extend(self.network.settings());
        settings.extend(self.log.settings());
        settings.extend(self.traces.settings());
        settings
    }
}

/// UDP port of coordinators.
pub(crate) const COORDINATOR_PORT: u16 = 7600;
/// TCP port of coordinators' metrics.
pub(crate) const COORDINATOR_METRICS_PORT: u16 = 7601;

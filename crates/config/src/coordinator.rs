//! The configuration of a coordinator.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::log::Log;
use crate::setting::{Bounded, Config, Setting};
use crate::shared::{Enrolment, Network, Store, Tls};
use crate::traces::Traces;

/// Configuration of a coordinator. `config/coordinator.toml` shows every key at its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// Address that nodes and clients dial (UDP). Default port 7600 on all addresses.
    pub listen: SocketAddr,
    /// Folder of the coordinator's term, tokens and store. A second coordinator on it is refused.
    pub data: PathBuf,
    /// Least term with which it starts; 0 is the next one of its folder.
    pub least_term: LeastTerm,
    /// Settings by which machines are let in as nodes.
    pub enrolment: Enrolment,
    /// Files of the coordinator's certificates.
    pub tls: Tls,
    /// Settings of the store of recordings.
    pub store: Store,
    /// Address of /metrics, /healthz and /readyz (TCP, plaintext, read-only); `None` is nowhere.
    pub metrics: Option<SocketAddr>,
    /// Settings of how datagrams travel.
    pub network: Network,
    /// Settings of the log.
    pub log: Log,
    /// Settings of traces.
    pub traces: Traces,
}

/// A least term, up to the greatest that coordinators take from outside.
pub type LeastTerm = Bounded<0, { 1 << 48 }>;

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], COORDINATOR_PORT)),
            data: "./rollhouse-coordinator".into(),
            least_term: LeastTerm::default(),
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
        settings.push(("coordinator.least_term", &mut self.least_term));
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

/// Default UDP port of coordinators.
pub(crate) const COORDINATOR_PORT: u16 = 7600;
/// Default TCP port of coordinators' metrics.
pub(crate) const COORDINATOR_METRICS_PORT: u16 = 7601;

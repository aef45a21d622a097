//! The configuration of a node.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::log::Log;
use crate::setting::{Concealed, HostPort};
use crate::shared::{AttachSettings, Network, Spool, Tls, Worker};
use crate::traces::Traces;
use crate::{Config, Setting};

/// What a node is told. Its name is the one in its certificate. `config/node.toml` shows every key at its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its name, when it joins; `None` is the host's. Later it goes by the name in its certificate, which a name that is
    /// set has to be.
    pub name: Option<String>,
    /// A connection string with a join token, or a file that holds one: what a machine without a certificate becomes a
    /// node by. Not used by one that has a certificate.
    pub join: Option<Concealed>,
    /// The coordinator that it dials; `None` is the one that it joined, else the one of this machine.
    pub coordinator: Option<HostPort>,
    /// Where trainers dial in (UDP). Default port 7610 on all addresses.
    pub listen: SocketAddr,
    /// What trainers are told to dial; `None` is the address from which the coordinator is reached, with the
    /// port of `listen`. To be set behind address translation.
    pub advertise: Option<HostPort>,
    /// Folder of its spool. A second node on it is refused.
    pub data: PathBuf,
    /// How it steps.
    pub worker: Worker,
    /// How trainers on its machine reach its sessions' memory.
    pub attach: AttachSettings,
    /// What it keeps until the store has it.
    pub spool: Spool,
    /// Its certificates.
    pub tls: Tls,
    /// Where /metrics, /healthz and /readyz answer (TCP, plaintext, read-only); `None` is nowhere.
    pub metrics: Option<SocketAddr>,
    /// How datagrams travel.
    pub network: Network,
    /// How it speaks of itself.
    pub log: Log,
    /// Where it tells of its calls.
    pub traces: Traces,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            name: None,
            join: None,
            coordinator: None,
            listen: SocketAddr::from(([0, 0, 0, 0], NODE_PORT)),
            advertise: None,
            data: "./rollhouse-node".into(),
            worker: Worker::default(),
            attach: AttachSettings::default(),
            spool: Spool::default(),
            tls: Tls::default(),
            metrics: Some(SocketAddr::from(([0, 0, 0, 0], NODE_METRICS_PORT))),
            network: Network::default(),
            log: Log::default(),
            traces: Traces::default(),
        }
    }
}

impl Config for NodeConfig {
    fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        let mut settings: Vec<(&'static str, &mut dyn Setting)> = vec![
            ("node.name", &mut self.name),
            ("node.join", &mut self.join),
            ("node.coordinator", &mut self.coordinator),
            ("node.listen", &mut self.listen),
            ("node.advertise", &mut self.advertise),
            ("node.data", &mut self.data),
        ];
        settings.extend(self.worker.settings());
        settings.extend(self.attach.settings());
        settings.extend(self.spool.settings());
        settings.extend(self.tls.settings());
        settings.push(("metrics.listen", &mut self.metrics));
        settings.extend(self.network.settings());
        settings.extend(self.log.settings());
        settings.extend(self.traces.settings());
        settings
    }
}

/// UDP port of nodes.
pub(crate) const NODE_PORT: u16 = 7610;
/// TCP port of nodes' metrics.
pub(crate) const NODE_METRICS_PORT: u16 = 7611;

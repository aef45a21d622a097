//! The configuration of a node.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::budget::BudgetSettings;
use crate::hosting::Hosting;
use crate::log::Log;
use crate::setting::{Concealed, Config, HostPort, Setting};
use crate::shared::{AttachSettings, Network, Spool, Tls, Worker};
use crate::traces::Traces;

/// Configuration of a node. `config/node.toml` shows every key at its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// What the node joins, and as whom.
    pub joining: NodeJoining,
    /// Address that trainers dial (UDP). Default port 7610 on all addresses.
    pub listen: SocketAddr,
    /// Address that trainers are told to dial; `None` is the address from which the coordinator is reached, with the
    /// port of `listen`. To be set behind address translation.
    pub advertise: Option<HostPort>,
    /// Folder of the node's spool. A second node on it is refused.
    pub data: PathBuf,
    /// Settings of stepping.
    pub worker: Worker,
    /// Settings of what the node has for lanes, and of what they weigh.
    pub budget: BudgetSettings,
    /// Settings of the socket by which trainers of this machine attach to sessions' memory.
    pub attach: AttachSettings,
    /// Settings of what the node keeps until the store has it.
    pub spool: Spool,
    /// Files of the node's certificates.
    pub tls: Tls,
    /// Address of /metrics, /healthz and /readyz (TCP, plaintext, read-only); `None` is nowhere.
    pub metrics: Option<SocketAddr>,
    /// Settings of how datagrams travel.
    pub network: Network,
    /// Settings of the log.
    pub log: Log,
    /// Settings of traces.
    pub traces: Traces,
    /// Settings of the envs that the node has beside the built-in ones.
    pub hosting: Hosting,
}

/// Settings of what a node joins, and under which name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeJoining {
    /// Name that the node asks for when it joins; `None` is the host's name. Later the node has the name in its
    /// certificate, and a name that is set has to be the same.
    pub name: Option<String>,
    /// Connection string with a join token, or a file that holds one, by which a machine without a certificate becomes
    /// a node. A machine with a certificate does not use it.
    pub join: Option<Concealed>,
    /// Address of the coordinator that the node dials; `None` is the coordinator that the node joined, else the one of
    /// this machine.
    pub coordinator: Option<HostPort>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            joining: NodeJoining::default(),
            listen: SocketAddr::from(([0, 0, 0, 0], NODE_PORT)),
            advertise: None,
            data: "./rollhouse-node".into(),
            worker: Worker::default(),
            budget: BudgetSettings::default(),
            attach: AttachSettings::default(),
            spool: Spool::default(),
            tls: Tls::default(),
            metrics: Some(SocketAddr::from(([0, 0, 0, 0], NODE_METRICS_PORT))),
            network: Network::default(),
            log: Log::default(),
            traces: Traces::default(),
            hosting: Hosting::default(),
        }
    }
}

impl Config for NodeConfig {
    fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        let mut settings: Vec<(&'static str, &mut dyn Setting)> = vec![
            ("node.name", &mut self.joining.name),
            ("node.join", &mut self.joining.join),
            ("node.coordinator", &mut self.joining.coordinator),
            ("node.listen", &mut self.listen),
            ("node.advertise", &mut self.advertise),
            ("node.data", &mut self.data),
        ];
        settings.extend(self.worker.settings());
        settings.extend(self.budget.settings());
        settings.extend(self.attach.settings());
        settings.extend(self.spool.settings());
        settings.extend(self.tls.settings());
        settings.push(("metrics.listen", &mut self.metrics));
        settings.extend(self.network.settings());
        settings.extend(self.log.settings());
        settings.extend(self.traces.settings());
        settings.extend(self.hosting.settings());
        settings
    }
}

/// Default UDP port of nodes.
pub(crate) const NODE_PORT: u16 = 7610;
/// Default TCP port of nodes' metrics.
pub(crate) const NODE_METRICS_PORT: u16 = 7611;

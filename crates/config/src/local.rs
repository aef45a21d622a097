//! The configuration of a coordinator and a node in one process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::coordinator::{COORDINATOR_METRICS_PORT, COORDINATOR_PORT};
use crate::log::Log;
use crate::node::{NODE_METRICS_PORT, NODE_PORT};
use crate::shared::{AttachSettings, Enrolment, Network, Spool, Store, Worker};
use crate::traces::Traces;
use crate::{Config, Setting};

/// What `rollhouse up` is told. `config/local.toml` shows every key at its default. It makes its own certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalConfig {
    /// Folder of everything it keeps: certificates, a token, store and spool.
    pub data: PathBuf,
    /// Where clients and further nodes dial in (UDP). Default this machine only.
    pub coordinator_listen: SocketAddr,
    /// By what the coordinator lets further nodes in; it makes the issuer itself.
    pub enrolment: Enrolment,
    /// Where trainers reach the node (UDP). Default this machine only.
    pub node_listen: SocketAddr,
    /// How the node steps.
    pub worker: Worker,
    /// How trainers on its machine reach its sessions' memory.
    pub attach: AttachSettings,
    /// What the node keeps until the store has it.
    pub spool: Spool,
    /// What the coordinator keeps of recordings.
    pub store: Store,
    /// Where the coordinator's /metrics, /healthz and /readyz answer (TCP); `None` is nowhere.
    pub coordinator_metrics: Option<SocketAddr>,
    /// Where the node's answer.
    pub node_metrics: Option<SocketAddr>,
    /// How datagrams travel.
    pub network: Network,
    /// How it speaks of itself.
    pub log: Log,
    /// Where it tells of its calls.
    pub traces: Traces,
}

impl Default for LocalConfig {
    fn default() -> Self {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            data: "./rollhouse-cluster".into(),
            coordinator_listen: local(COORDINATOR_PORT),
            enrolment: Enrolment::default(),
            node_listen: local(NODE_PORT),
            worker: Worker::default(),
            attach: AttachSettings::default(),
            spool: Spool::default(),
            store: Store::default(),
            coordinator_metrics: Some(local(COORDINATOR_METRICS_PORT)),
            node_metrics: Some(local(NODE_METRICS_PORT)),
            network: Network::default(),
            log: Log::default(),
            traces: Traces::default(),
        }
    }
}

impl Config for LocalConfig {
    fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        let mut settings: Vec<(&'static str, &mut dyn Setting)> =
            vec![("local.data", &mut self.data), ("coordinator.listen", &mut self.coordinator_listen)];
        settings.extend(self.enrolment.settings());
        settings.push(("node.listen", &mut self.node_listen));
        settings.extend(self.worker.settings());
        settings.extend(self.attach.settings());
        settings.extend(self.spool.settings());
        settings.extend(self.store.settings());
        settings.push(("metrics.coordinator", &mut self.coordinator_metrics));
        settings.push(("metrics.node", &mut self.node_metrics));
        settings.extend(self.network.settings());
        settings.extend(self.log.settings());
        settings.extend(self.traces.settings());
        settings
    }
}

//! The configuration of a coordinator and a node in one process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::budget::BudgetSettings;
use crate::coordinator::{COORDINATOR_METRICS_PORT, COORDINATOR_PORT, LeastTerm};
use crate::hosting::Hosting;
use crate::log::Log;
use crate::node::{NODE_METRICS_PORT, NODE_PORT};
use crate::setting::{Config, Setting};
use crate::shared::{AttachSettings, Enrolment, Network, Spool, Store, Worker};
use crate::traces::Traces;

/// Configuration of `rollhouse up`, which makes its own certificates. `config/local.toml` shows every key at its
/// default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalConfig {
    /// Folder of everything that the process keeps: certificates, a token, store and spool.
    pub data: PathBuf,
    /// Addresses at which both are dialled.
    pub listen: LocalListen,
    /// Least term of the coordinator, as in [`CoordinatorConfig`](crate::CoordinatorConfig).
    pub least_term: LeastTerm,
    /// Settings by which the coordinator lets further nodes in. It makes the issuer itself.
    pub enrolment: Enrolment,
    /// Settings of the node's stepping.
    pub worker: Worker,
    /// Settings of what the node has for lanes, and of what they weigh.
    pub budget: BudgetSettings,
    /// Settings of the socket by which trainers of this machine attach to sessions' memory.
    pub attach: AttachSettings,
    /// Settings of what the node keeps until the store has it.
    pub spool: Spool,
    /// Settings of the store of recordings.
    pub store: Store,
    /// Addresses at which both show their figures.
    pub metrics: LocalMetrics,
    /// Settings of how datagrams travel.
    pub network: Network,
    /// Settings of the log.
    pub log: Log,
    /// Settings of traces.
    pub traces: Traces,
    /// Settings of the envs that the node has beside the built-in ones.
    pub hosting: Hosting,
}

/// Addresses that are dialled (UDP). Default this machine only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalListen {
    /// Address that clients and further nodes dial.
    pub coordinator: SocketAddr,
    /// Address at which trainers reach the node.
    pub node: SocketAddr,
}

/// Addresses of /metrics, /healthz and /readyz (TCP); `None` is nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalMetrics {
    /// Address of the coordinator's.
    pub coordinator: Option<SocketAddr>,
    /// Address of the node's.
    pub node: Option<SocketAddr>,
}

impl Default for LocalConfig {
    fn default() -> Self {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            data: "./rollhouse-cluster".into(),
            listen: LocalListen { coordinator: local(COORDINATOR_PORT), node: local(NODE_PORT) },
            least_term: LeastTerm::default(),
            enrolment: Enrolment::default(),
            worker: Worker::default(),
            budget: BudgetSettings::default(),
            attach: AttachSettings::default(),
            spool: Spool::default(),
            store: Store::default(),
            metrics: LocalMetrics {
                coordinator: Some(local(COORDINATOR_METRICS_PORT)),
                node: Some(local(NODE_METRICS_PORT)),
            },
            network: Network::default(),
            log: Log::default(),
            traces: Traces::default(),
            hosting: Hosting::default(),
        }
    }
}

impl Config for LocalConfig {
    fn settings(&mut self) -> Vec<(&'static str, &mut dyn Setting)> {
        let mut settings: Vec<(&'static str, &mut dyn Setting)> =
            vec![("local.data", &mut self.data), ("coordinator.listen", &mut self.listen.coordinator)];
        settings.push(("coordinator.least_term", &mut self.least_term));
        settings.extend(self.enrolment.settings());
        settings.push(("node.listen", &mut self.listen.node));
        settings.extend(self.worker.settings());
        settings.extend(self.budget.settings());
        settings.extend(self.attach.settings());
        settings.extend(self.spool.settings());
        settings.extend(self.store.settings());
        settings.push(("metrics.coordinator", &mut self.metrics.coordinator));
        settings.push(("metrics.node", &mut self.metrics.node));
        settings.extend(self.network.settings());
        settings.extend(self.log.settings());
        settings.extend(self.traces.settings());
        settings.extend(self.hosting.settings());
        settings
    }
}

//! A coordinator and a node in this process, with one env of the bench's own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_client::{Address, Cluster, ConnectOptions};
use rollhouse_coordinator::{Coordinator, CoordinatorConfig, EnrolmentConfig, StoreConfig};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_node::{AttachConfig, ClusterNode, ClusterNodeConfig};
use rollhouse_wire::{CertificateAuthority, CertificateFiles, Identity, Role, Settings, TokenStore, Trust};

use crate::failed::failed;

/// The cluster. The node, which comes first, is dropped first.
pub(super) struct Local {
    _node: ClusterNode,
    coordinator: Coordinator,
    options: ConnectOptions,
}

impl Local {
    /// Starts it in that folder, and waits until the node has joined.
    pub(super) fn start(folder: &Path, env: impl Fn() -> EnvEntry) -> Result<Self, Failure> {
        std::fs::create_dir_all(folder).map_err(failed)?;
        let authority = CertificateAuthority::create(folder, DAY).map_err(failed)?;
        let trust = || Trust::File(folder.join("ca.pem"));
        let files = |role, name: &str| -> Result<CertificateFiles, Failure> {
            let file = |kind: &str| folder.join(format!("{name}.{kind}"));
            let files = CertificateFiles { certificate: file("pem"), key: file("key") };
            let issued = authority.issue(role, name, DAY).map_err(failed)?;
            issued.write(&files.certificate, &files.key).map_err(failed)?;
            Ok(files)
        };
        let identity = |role, name| Identity::load(trust(), Some(files(role, name)?)).map_err(failed);
        let coordinator = Coordinator::start(CoordinatorConfig {
            least_term: 0,
            data: folder.join("coordinator"),
            listen: ([127, 0, 0, 1], 0).into(),
            identity: identity(Role::Coordinator, "main")?,
            tokens: Arc::new(TokenStore::open(folder.join("tokens")).map_err(failed)?),
            enrolment: EnrolmentConfig::in_folder(folder),
            store: StoreConfig { budget_bytes: 1 << 30, quarantine_bytes: 1 << 20 },
            archive: None,
            quic: Settings::default(),
            program: PROGRAM.to_owned(),
        });
        let coordinator = coordinator.map_err(failed)?;
        let address = coordinator.address().to_string();
        let mut config = ClusterNodeConfig::new(identity(Role::Node, "node")?, address, PROGRAM);
        let registry = Registry::empty();
        registry.register(env()).map_err(failed)?;
        config.registry = Arc::new(registry);
        let socket = folder.join("attach.sock");
        config.serving.attach = Some(AttachConfig { path: socket, uids: Vec::new(), sessions: 4 });
        let node = ClusterNode::start(config).map_err(failed)?;
        if !node.wait_joined(JOINED_WITHIN) {
            return Err(Failure::new(Status::Failed, "the node did not join its coordinator"));
        }
        let certificate = Some(files(Role::Trainer, "trainer")?);
        let options = ConnectOptions { ca: Some(trust()), certificate, ..ConnectOptions::default() };
        Ok(Self { _node: node, coordinator, options })
    }

    /// Connects as its trainer.
    pub(super) fn connect(&self) -> Result<Cluster, Failure> {
        let address = format!("rollhouse://{}", self.coordinator.address());
        let address: Address = address.parse().map_err(failed)?;
        Cluster::connect(&address, self.options.clone(), None).map_err(failed)
    }
}

const DAY: Duration = Duration::from_secs(86_400);
const JOINED_WITHIN: Duration = Duration::from_secs(30);
const PROGRAM: &str = "rollhouse-bench";

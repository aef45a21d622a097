//! A coordinator and nodes in this process, with one env of the bench's own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_cli::failure::{Failure, Status};
use rollhouse_client::{Address, AsyncCluster, Cluster, ConnectOptions};
use rollhouse_coordinator::{Coordinator, CoordinatorConfig, EnrolmentConfig, StoreConfig};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_node::{AttachConfig, ClusterNode, ClusterNodeConfig};
use rollhouse_wire::{CertificateAuthority, CertificateFiles, Identity, Role, Settings, TokenStore, Trust};

use crate::failed::failed;

/// The cluster. The nodes, which come first, are dropped first.
pub(super) struct Local {
    _nodes: Vec<ClusterNode>,
    coordinator: Coordinator,
    /// Options of its trainers, each an owner of its own.
    trainers: Vec<ConnectOptions>,
}

impl Local {
    /// Starts it in that folder with so many nodes, each of which has so many threads for what may wait, and waits until they
    /// have joined.
    pub(super) fn start(
        folder: &Path,
        (nodes, waiting_threads): (usize, usize),
        env: impl Fn() -> EnvEntry,
    ) -> Result<Self, Failure> {
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
        let identity = |role, name: &str| Identity::load(trust(), Some(files(role, name)?)).map_err(failed);
        let coordinator = Coordinator::start(CoordinatorConfig {
            least_term: 0,
            data: folder.join("coordinator"),
            listen: ([127, 0, 0, 1], 0).into(),
            identity: identity(Role::Coordinator, "main")?,
            tokens: Arc::new(TokenStore::open(folder.join("tokens")).map_err(failed)?),
            enrolment: EnrolmentConfig::in_folder(folder),
            store: StoreConfig { budget_bytes: 1 << 30, quarantine_bytes: 1 << 20 },
            policies_bytes: 1 << 20,
            archive: None,
            quic: Settings::default(),
            program: PROGRAM.to_owned(),
        });
        let coordinator = coordinator.map_err(failed)?;
        let address = coordinator.address().to_string();
        let node = |number: usize| -> Result<ClusterNode, Failure> {
            let identity = identity(Role::Node, &format!("node{number}"))?;
            let mut config = ClusterNodeConfig::new(identity, address.clone(), PROGRAM);
            let registry = Registry::builtin();
            registry.register(env()).map_err(failed)?;
            config.registry = Arc::new(registry);
            config.stepping.waiting_threads = waiting_threads;
            let path = folder.join(format!("attach{number}.sock"));
            config.serving.attach = Some(AttachConfig { path, uids: Vec::new(), sessions: 4 });
            let node = ClusterNode::start(config).map_err(failed)?;
            if !node.wait_joined(JOINED_WITHIN) {
                return Err(Failure::new(Status::Failed, "a node did not join its coordinator"));
            }
            Ok(node)
        };
        let nodes = (0..nodes).map(node).collect::<Result<_, _>>()?;
        let trainer = |number: usize| -> Result<ConnectOptions, Failure> {
            let certificate = Some(files(Role::Trainer, &format!("trainer{number}"))?);
            Ok(ConnectOptions { ca: Some(trust()), certificate, ..ConnectOptions::default() })
        };
        let trainers = (0..TRAINERS).map(trainer).collect::<Result<_, _>>()?;
        Ok(Self { _nodes: nodes, coordinator, trainers })
    }

    /// Connects as its first trainer.
    pub(super) fn connect(&self) -> Result<Cluster, Failure> {
        Cluster::connect(&self.address()?, self.trainers[0].clone(), None).map_err(failed)
    }

    /// Connects as one of its trainers.
    pub(super) async fn trainer(&self, number: usize) -> Result<AsyncCluster, Failure> {
        AsyncCluster::connect(&self.address()?, self.trainers[number].clone()).await.map_err(failed)
    }

    fn address(&self) -> Result<Address, Failure> {
        format!("rollhouse://{}", self.coordinator.address()).parse().map_err(failed)
    }
}

/// Number of trainers: as many as have sessions at rest.
const TRAINERS: usize = 8;
const DAY: Duration = Duration::from_secs(86_400);
const JOINED_WITHIN: Duration = Duration::from_secs(30);
const PROGRAM: &str = "rollhouse-bench";

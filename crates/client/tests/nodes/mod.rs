//! A cluster in this process: a coordinator and nodes with attach sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rollhouse_client::{Address, Cluster, ConnectOptions};
use rollhouse_coordinator::{Coordinator, CoordinatorConfig, EnrolmentConfig, StoreConfig};
use rollhouse_env::Registry;
use rollhouse_node::{AttachConfig, ClusterNode, ClusterNodeConfig};
use rollhouse_wire::{CertificateAuthority, CertificateFiles, Identity, Role, Settings, TokenStore, Trust};
use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(86_400);
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Nodes {
    nodes: Vec<Option<ClusterNode>>,
    coordinator: Coordinator,
    folder: TempDir,
}

fn identity(folder: &Path, authority: &CertificateAuthority, role: Role, name: &str) -> Arc<Identity> {
    let files = files(folder, name);
    authority.issue(role, name, DAY).unwrap().write(&files.certificate, &files.key).unwrap();
    Identity::load(Trust::File(folder.join("ca.pem")), Some(files)).unwrap()
}

fn files(folder: &Path, name: &str) -> CertificateFiles {
    CertificateFiles {
        certificate: folder.join(format!("{name}.pem")),
        key: folder.join(format!("{name}.key")),
    }
}

impl Nodes {
    pub(crate) fn start(count: usize) -> Self {
        Self::changed(count, |_, _| {})
    }

    /// Ones with these envs, which give sessions up that hang for so long.
    pub(crate) fn of(count: usize, hang_deadline: Duration, envs: impl Fn() -> Registry) -> Self {
        Self::changed(count, |_, config| {
            config.stepping.hang_deadline = hang_deadline;
            config.registry = Arc::new(envs());
        })
    }

    /// One that gives sessions up that hang for so long.
    pub(crate) fn giving_up_after(hang_deadline: Duration) -> Self {
        Self::changed(1, |_, config| config.stepping.hang_deadline = hang_deadline)
    }

    pub(crate) fn without_attach() -> Self {
        Self::changed(1, |_, config| config.serving.attach = None)
    }

    /// Ones with the built-in envs and what `change` makes of their settings; it is given the folder of each.
    pub(crate) fn changed(count: usize, change: impl Fn(&Path, &mut ClusterNodeConfig)) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let authority = CertificateAuthority::create(folder, DAY).unwrap();
        let coordinator = Coordinator::start(CoordinatorConfig {
            least_term: 0,
            data: folder.join("coordinator"),
            listen: ([127, 0, 0, 1], 0).into(),
            identity: identity(folder, &authority, Role::Coordinator, "main"),
            tokens: Arc::new(TokenStore::open(folder.join("tokens")).unwrap()),
            enrolment: EnrolmentConfig::in_folder(folder),
            store: StoreConfig { budget_bytes: 1 << 30, quarantine_bytes: 1 << 20 },
            policies_bytes: 1 << 20,
            archive: None,
            quic: Settings::default(),
            program: "test".to_owned(),
        });
        let coordinator = coordinator.unwrap();
        let node = |index| {
            let name = format!("node-{index}");
            let identity = identity(folder, &authority, Role::Node, &name);
            let mut config = ClusterNodeConfig::new(identity, coordinator.address().to_string(), "test");
            let folder = folder.join(&name);
            std::fs::create_dir(&folder).unwrap();
            config.serving.attach =
                Some(AttachConfig { path: folder.join("a.sock"), uids: Vec::new(), sessions: 4 });
            change(&folder, &mut config);
            let node = ClusterNode::start(config).unwrap();
            assert!(node.wait_joined(PATIENCE));
            Some(node)
        };
        let nodes = (0..count).map(node).collect();
        for (role, name) in [(Role::Trainer, "trainer"), (Role::Admin, "admin")] {
            let _written = identity(folder, &authority, role, name);
        }
        Self { nodes, coordinator, folder: temporary }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn attach_folder(&self, node: usize) -> PathBuf {
        self.folder().join(format!("node-{node}"))
    }

    pub(crate) fn options(&self) -> ConnectOptions {
        ConnectOptions {
            ca: Some(Trust::File(self.folder().join("ca.pem"))),
            certificate: Some(files(self.folder(), "trainer")),
            ..ConnectOptions::default()
        }
    }

    pub(crate) fn connect(&self) -> Cluster {
        self.connect_with(self.options())
    }

    pub(crate) fn connect_as(&self, name: &str) -> Cluster {
        self.connect_with(ConnectOptions { certificate: Some(files(self.folder(), name)), ..self.options() })
    }

    pub(crate) fn address(&self) -> Address {
        format!("rollhouse://{}", self.coordinator.address()).parse().unwrap()
    }

    pub(crate) fn connect_with(&self, options: ConnectOptions) -> Cluster {
        Cluster::connect(&self.address(), options, None).unwrap()
    }

    pub(crate) fn stop(&mut self, node: usize) {
        self.stop_within(node, Duration::from_secs(10));
    }

    /// Stops a node. Owners are given a quarter of that time to move their lanes.
    pub(crate) fn stop_within(&mut self, node: usize, deadline: Duration) {
        self.nodes[node].take().unwrap().stop(deadline);
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.nodes.clear();
    }
}

//! A cluster of real processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Folder, Service, succeed};

/// A cluster's folder, gone at the end of the test: an authority, and certificates for a coordinator and nodes.
#[derive(Debug)]
pub struct Cluster {
    folder: Folder,
}

impl Cluster {
    /// With certificates for a coordinator and these nodes.
    pub fn new(nodes: &[&str]) -> Self {
        let cluster = Self { folder: Folder::new() };
        let ca = cluster.path("ca");
        succeed(&ca, &format!("certs init --dir {}", ca.display()));
        cluster.issue("coordinator", "main", "coordinator");
        nodes.iter().for_each(|node| cluster.issue("node", node, node));
        cluster
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What has that name in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn issue(&self, role: &str, name: &str, folder: &str) {
        let (ca, tls) = (self.path("ca"), self.path(folder).join("tls"));
        let line = format!(
            "certs issue --dir {} --role {role} --name {name} --output {}",
            ca.display(),
            tls.display()
        );
        succeed(&ca, &line);
    }

    /// Starts the coordinator there, and gives its address.
    pub fn coordinator(&self, listen: &str) -> (Service, String) {
        self.coordinator_with(listen, &[], &[])
    }

    /// The same with more settings, each `SECTION.KEY=VALUE`, and environment variables.
    pub fn coordinator_with(
        &self,
        listen: &str,
        settings: &[&str],
        variables: &[(&str, &str)],
    ) -> (Service, String) {
        let mut line = vec!["coordinator", "--data", "coordinator", "--listen", listen];
        for setting in settings {
            line.extend(["--set", setting]);
        }
        let mut coordinator = Service::start_with(self.folder.path(), &line, variables);
        let address = coordinator.hear("listens on ");
        (coordinator, address)
    }

    /// Starts a node and waits until the coordinator knows it.
    pub fn node(&self, name: &str, coordinator: &str) -> Service {
        self.node_with(name, coordinator, &[], &[])
    }

    /// The same with more settings, each `SECTION.KEY=VALUE`, and environment variables.
    pub fn node_with(
        &self,
        name: &str,
        coordinator: &str,
        settings: &[&str],
        variables: &[(&str, &str)],
    ) -> Service {
        let mut line = vec!["node", "--data", name, "--coordinator", coordinator];
        for setting in ["spool.seal_after=200 ms"].iter().chain(settings) {
            line.extend(["--set", setting]);
        }
        let mut node = Service::start_with(self.folder.path(), &line, variables);
        node.hear("joined the coordinator");
        node
    }

    /// A connection string with a new token of that role, in a file.
    pub fn connection(&self, role: &str, address: &str) -> String {
        let data = self.path("coordinator");
        let token =
            succeed(&data, &format!("token create --role {role} --name {role} --data {}", data.display()));
        let ca = self.path("ca").join("ca.pem");
        let file = self.path(&format!("connection-{role}"));
        let line = format!("rollhouse://{address}?token={}&ca={}\n", token.trim(), ca.display());
        fs::write(&file, line).expect("test files can be used");
        file.display().to_string()
    }

    /// Processes that work for this cluster.
    pub fn processes(&self) -> BTreeSet<u32> {
        let folder = fs::canonicalize(self.folder.path()).expect("test files can be used");
        let processes = fs::read_dir("/proc").expect("test files can be used").filter_map(|entry| {
            let entry = entry.ok()?;
            let id = entry.file_name().to_str()?.parse().ok()?;
            (fs::read_link(entry.path().join("cwd")).ok()? == folder).then_some(id)
        });
        processes.collect()
    }
}

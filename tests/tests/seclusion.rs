//! What other processes of a node's user, as the workers of its envs are, see of the node through /proc.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::process::{Command, Stdio};

use rollhouse_tests::{Cluster, Service, succeed};

/// Runs a command as a process of this user, and returns whether it succeeds.
fn succeeds(command: &[&str]) -> bool {
    let (program, arguments) = (command[0], &command[1..]);
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

/// Whether the tests are root's, from whom no process keeps anything.
fn is_root() -> bool {
    fs::metadata("/proc/self").map(|found| std::os::unix::fs::MetadataExt::uid(&found)).unwrap() == 0
}

/// Symptom: code of an env read the node's join token out of `/proc/PID/environ`. Cause: the node was dumpable, and
/// kept its environment. Fix: it is not, and it is executed again with the token in a memory of its own.
#[test]
fn a_process_of_the_nodes_user_reads_neither_its_environment_nor_its_memory_nor_its_descriptors() {
    let cluster = Cluster::new(&[]);
    let (ca, issuer) = (cluster.path("ca"), cluster.path("coordinator/issuer.pem"));
    let line = format!("certs issuer --dir {} --output {}", ca.display(), issuer.display());
    succeed(cluster.folder(), &line);
    let mut coordinator = Service::start(
        cluster.folder(),
        &["coordinator", "--data", "coordinator", "--listen", "127.0.0.1:0"],
    );
    let address = coordinator.hear("listens on ");
    let data = cluster.path("coordinator");
    let line = format!("token create --role join --address {address} --data {}", data.display());
    let join = succeed(cluster.folder(), &line);
    let line = ["node", "--data", "n1", "--name", "n1", "--listen", "127.0.0.1:0"];
    let variables = [("ROLLHOUSE_NODE__JOIN", join.trim()), ("ROLLHOUSE_TOKEN", "rh_not_of_a_node")];
    let mut node = Service::start_with(cluster.folder(), &line, &variables);
    node.hear("joined the coordinator");
    let secret = join.trim().split_once("token=").unwrap().1.split('&').next().unwrap();
    // Root sees the environment in any case.
    let seen = fs::read(format!("/proc/{}/environ", node.id())).unwrap_or_default();
    let seen = String::from_utf8_lossy(&seen);
    assert!(!seen.contains(secret) && !seen.contains("rh_not_of_a_node"), "{seen}");
    // What the kernel keeps from processes of the same user it does not keep from root's.
    for id in [node.id(), coordinator.id()].into_iter().filter(|_| !is_root()) {
        let of = |file: &str| format!("/proc/{id}/{file}");
        assert!(!succeeds(&["cat", &of("environ")]), "environ");
        assert!(!succeeds(&["readlink", &of("fd/0")]), "fd");
        assert!(!succeeds(&["cat", &of("maps")]), "maps");
        assert!(succeeds(&["cat", &of("stat")]), "what it takes is no secret");
    }
    assert!(node.end().success() && coordinator.end().success());
}

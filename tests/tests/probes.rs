//! What managers of containers and machines ask and are told: health, readiness, secrets as files.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rollhouse_client::{Address, ConnectOptions, PoolRequest};
use rollhouse_engine::Reset;
use rollhouse_tests::{Cluster, Done, Folder, Service, rollhouse, run, succeed};
use serde_json::Value;

fn data() -> &'static Path {
    Path::new("/nonexistent")
}

/// What a service says when it has started: where it answers.
fn page_of(service: &mut Service) -> String {
    let page = service.hear("metrics and health on ");
    page.strip_prefix("http://").unwrap().to_owned()
}

#[test]
fn health_tells_by_its_exit_code_whether_a_service_takes_work_and_whether_it_lives() {
    let cluster = Cluster::new(&["one"]);
    // Nobody is there for the node to join.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let line = ["node", "--data", "one", "--coordinator", &nobody];
    let mut node = Service::start(cluster.folder(), &line);
    let page = page_of(&mut node);
    let health = |more: &str| run(data(), &format!("health --at {page}{more}"));
    let alone = health("");
    assert_eq!(alone.code, Some(5), "{}", alone.stderr);
    assert!(alone.stderr.starts_with(&format!("error: {page}: ")), "{}", alone.stderr);
    let lives = health(" --live");
    assert_eq!((lives.code, &*lives.stdout), (Some(0), &*format!("{page}: ok\n")));
    // As in a container: the variables that the service has say where it answers.
    let mut command = rollhouse(data(), "health --live");
    let by_environment = Done::of(command.env("ROLLHOUSE_METRICS__LISTEN", &page).output().unwrap());
    assert_eq!(by_environment.code, Some(0), "{}", by_environment.stderr);
    node.end();
    let gone = health("");
    assert_eq!(gone.code, Some(5), "{}", gone.stderr);
    assert!(gone.stderr.contains("nobody listens on"), "{}", gone.stderr);
}

#[test]
fn the_manager_that_started_a_service_is_told_when_it_serves_lives_and_ends() {
    let cluster = Cluster::new(&[]);
    let path = cluster.path("manager");
    let manager = UnixDatagram::bind(&path).unwrap();
    let line = ["coordinator", "--data", "coordinator", "--listen", "127.0.0.1:0"];
    let socket = path.display().to_string();
    let variables = [("NOTIFY_SOCKET", &*socket), ("WATCHDOG_USEC", "200000")];
    let mut coordinator = Service::start_with(cluster.folder(), &line, &variables);
    let mut heard = [0; 64];
    let mut hear = || {
        let length = manager.recv(&mut heard).unwrap();
        String::from_utf8(heard[..length].to_vec()).unwrap()
    };
    assert_eq!(hear(), "READY=1");
    assert_eq!(hear(), "WATCHDOG=1");
    coordinator.hear("listens on ");
    coordinator.signal("TERM");
    while hear() != "STOPPING=1" {}
    assert_eq!(coordinator.code(), Some(0));
}

#[test]
fn settings_and_tokens_come_from_files_that_variables_name() {
    let cluster = Cluster::new(&[]);
    let key = cluster.path("listen");
    fs::write(&key, "127.0.0.1:0\n").unwrap();
    let path = key.display().to_string();
    let line = ["coordinator", "--data", "coordinator"];
    // The harness sets the plain variable, too, so that both are given.
    let variables = [("ROLLHOUSE_COORDINATOR__LISTEN_FILE", &*path)];
    let mut refused = Service::start_with(cluster.folder(), &line, &variables);
    refused.hear("set the same key: one of them has to go");
    assert_eq!(refused.code(), Some(2));
    let variables = [("ROLLHOUSE_COORDINATOR__DATA_FILE", &*path)];
    fs::write(&key, "coordinator\n").unwrap();
    let mut coordinator = Service::start_with(cluster.folder(), &line[..1], &variables);
    let address = coordinator.hear("listens on ");
    let connection = fs::read_to_string(cluster.connection("viewer", &address)).unwrap();
    let (url, rest) = connection.trim().split_once("?token=").unwrap();
    let (token, ca) = rest.split_once("&ca=").unwrap();
    fs::write(&key, format!("{token}\n")).unwrap();
    let mut command = rollhouse(data(), &format!("status --json --connect {url}?ca={ca}"));
    let status = Done::of(command.env("ROLLHOUSE_TOKEN_FILE", &key).output().unwrap());
    assert_eq!(status.code, Some(0), "{}", status.stderr);
}

/// Files of a certificate that was issued anew are read by a running service: nobody restarts anything.
#[test]
fn a_service_shows_a_renewed_certificate_without_a_restart() {
    let cluster = Cluster::new(&["one"]);
    let line = ["coordinator", "--data", "coordinator", "--listen", "127.0.0.1:0"];
    let mut coordinator = Service::start(cluster.folder(), &line);
    let address = coordinator.hear("listens on ");
    let page = page_of(&mut coordinator);
    // Nothing is known of a coordinator that has only just begun.
    let before = loop {
        match expiry(&page) {
            Some(before) => break before,
            None => std::thread::yield_now(),
        }
    };
    let (ca, tls) = (cluster.path("ca"), cluster.path("coordinator/tls"));
    let issue = format!(
        "certs issue --dir {} --role coordinator --name main --days 700 --output {}",
        ca.display(),
        tls.display()
    );
    assert_eq!(run(data(), &issue).code, Some(0));
    // Whoever asks for something is shown the certificate, for which the files are looked at.
    let node = cluster.node("one", &address);
    while expiry(&page).is_none_or(|end| end <= before) {
        std::thread::yield_now();
    }
    assert!(node.end().success());
    assert!(coordinator.end().success());
}

/// When the certificate of the service with that page ends, if it says.
fn expiry(page: &str) -> Option<f64> {
    figure(page, "rollhouse_certificate_expiry_time_seconds")
}

/// A figure of the service with that page, if it says.
fn figure(page: &str, name: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(page).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ').map(|number| number.parse().unwrap());
    answer.lines().find_map(of)
}

/// Symptom: a node that stopped, which takes up to 20 s, had no figures any more, as if it had done nothing.
/// Cause: they were shown of a node that runs alone. Fix: they are shown until nobody is answered any more.
#[test]
fn a_node_shows_its_figures_while_it_stops() {
    let cluster = Cluster::new(&["one"]);
    let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let mut node = Service::start(cluster.folder(), &["node", "--data", "one", "--coordinator", &address]);
    let page = page_of(&mut node);
    node.hear("joined the coordinator");
    let connect = fs::read_to_string(cluster.connection("trainer", &address)).unwrap();
    let connect: Address = connect.trim().parse().unwrap();
    let trainer = rollhouse_client::Cluster::connect(&connect, ConnectOptions::default(), None).unwrap();
    let mut pool = trainer.open_pool(PoolRequest::new("CartPole-v1", 4)).unwrap();
    pool.reset(&Reset::seeded(1, 4)).unwrap();
    node.signal("TERM");
    // It waits for its trainer to move the lanes, which does not step.
    node.hear("stopping; ");
    assert_eq!(figure(&page, "rollhouse_sessions_opened_total"), Some(1.0));
    drop(pool);
    drop(trainer);
    assert_eq!(node.code(), Some(0));
    assert!(coordinator.end().success());
}

#[test]
fn the_doctor_says_what_is_wrong_before_a_service_is_started_and_what_is_well_while_it_runs() {
    let cluster = Cluster::new(&["one"]);
    let line = ["coordinator", "--data", "coordinator", "--listen", "127.0.0.1:0"];
    let mut coordinator = Service::start(cluster.folder(), &line);
    let address = coordinator.hear("listens on ");
    let page = page_of(&mut coordinator);
    let found = |role: &str, settings: &[&str]| -> (Option<i32>, BTreeMap<String, String>) {
        let mut command = rollhouse(data(), &format!("doctor --for {role} --json"));
        for setting in settings {
            command.args(["--set", setting]);
        }
        let done = Done::of(command.current_dir(cluster.folder()).output().unwrap());
        let findings = done.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (done.code, findings.map(|of| (text(&of["what"]), text(&of["found"]))).collect())
    };
    let coordinator_at = format!("node.coordinator={address}");
    let node = ["node.data=one", "spool.limit=1 MB", "node.listen=127.0.0.1:0", "metrics.listen=127.0.0.1:0"];
    let (code, findings) = found("node", &[&node[..], &[&*coordinator_at]].concat());
    assert_eq!(code, Some(0), "{findings:?}");
    for what in ["data folder", "certificate", "port for QUIC", "port for metrics", "coordinator", "clock"] {
        assert_eq!(findings[what], "well", "{what}: {findings:?}");
    }
    // A port that is taken by the service itself is no fault, one that somebody else has is.
    let (listen, metrics) = (format!("coordinator.listen={address}"), format!("metrics.listen={page}"));
    let running = ["coordinator.data=coordinator", "store.budget=1 MB", "store.quarantine=1 MB", &listen];
    let (code, findings) = found("coordinator", &[&running[..], &[&*metrics]].concat());
    assert_eq!((code, &*findings["port for QUIC"]), (Some(0), "well"), "{findings:?}");
    let (code, findings) = found("coordinator", &[&running[..], &["metrics.listen="]].concat());
    assert_eq!((code, &*findings["port for QUIC"]), (Some(3), "wrong"), "{findings:?}");
    assert!(coordinator.end().success());
    let (code, findings) = found("node", &[&node[..], &[&*coordinator_at]].concat());
    assert_eq!((code, &*findings["coordinator"]), (Some(3), "wrong"), "{findings:?}");
    let (code, findings) = found("node", &["node.data=nowhere", node[2], node[3]]);
    assert_eq!((code, &*findings["certificate"]), (Some(3), "wrong"), "{findings:?}");
}

#[test]
fn the_version_says_from_which_commit_and_with_which_features_the_program_was_built() {
    let version = run(data(), "--version").stdout;
    let lines: Vec<&str> = version.lines().collect();
    assert_eq!(lines[0], format!("rollhouse {}", env!("CARGO_PKG_VERSION")));
    let commit = lines[1].strip_prefix("commit: ").unwrap();
    assert!(commit == "unknown" || commit.chars().all(|c| c.is_ascii_hexdigit()), "{version}");
    assert!(lines[2].starts_with("features: "), "{version}");
    assert_eq!(run(data(), "-V").stdout.lines().count(), 1);
}

#[test]
fn shells_complete_the_command_and_every_command_has_a_page() {
    for shell in ["bash", "zsh", "fish"] {
        let script = succeed(data(), &format!("completions {shell}"));
        assert!(script.contains("coordinator"), "{shell}: {script}");
    }
    let folder = Folder::new();
    succeed(data(), &format!("man {}", folder.path().display()));
    for page in ["rollhouse.1", "rollhouse-node.1", "rollhouse-replay-ls.1"] {
        let text = fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}: {text}");
    }
}

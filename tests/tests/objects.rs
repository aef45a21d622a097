//! `rollhouse store` with a real server of S3-compatible object storage. Wants `$ROLLHOUSE_S3_SERVER`, the program
//! `s3s-fs`, and a binary with the feature `s3`; `cargo xtask test --all` brings both.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rollhouse_tests::{Cluster, Done, Folder, json_lines, rollhouse, segments, succeed};
use serde_json::Value;

/// The server, with a bucket `recordings` in a folder; killed at the end of the test.
struct Server {
    child: Child,
    root: Folder,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let root = Folder::new();
        fs::create_dir(root.path().join("recordings")).unwrap();
        let program = std::env::var_os("ROLLHOUSE_S3_SERVER").expect("$ROLLHOUSE_S3_SERVER names the server");
        let mut command = Command::new(program);
        command.args(["--host", "127.0.0.1", "--port", "0", "--access-key", "KEY", "--secret-key", "hidden"]);
        command.arg(root.path()).env("RUST_LOG", "info").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = loop {
            let line = lines.next().expect("it says where it listens").unwrap();
            if let Some((_, address)) = line.split_once("running at http://127.0.0.1:") {
                break address.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, root, port }
    }

    /// A command line with credentials, that reaches it at a port.
    fn command(&self, data: &Path, port: u16, line: &str) -> Command {
        let mut command = rollhouse(data, line);
        command.env("AWS_ACCESS_KEY_ID", "KEY").env("AWS_SECRET_ACCESS_KEY", "hidden");
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")).env("AWS_REGION", "us-east-1");
        command.env("AWS_ALLOW_HTTP", "true");
        command
    }

    fn run(&self, data: &Path, line: &str) -> Done {
        Done::of(self.command(data, self.port, line).output().unwrap())
    }

    fn told(&self, data: &Path, line: &str) -> Value {
        let done = self.run(data, line);
        assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// The files that have the bucket's objects whose names end so.
    fn objects(&self, end: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![self.root.path().join("recordings")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if path.to_string_lossy().ends_with(end) {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn record(data: &Path, runs: u64) {
    for seed in 1..=runs {
        succeed(data, &format!("rollout --env CartPole-v1 --lanes 8 --episodes 60 --seed {seed}"));
    }
}

fn listed(data: &Path) -> Vec<String> {
    let line = format!("replay ls --json --data {}", data.display());
    json_lines(data, &line).iter().map(Value::to_string).collect()
}

const EXPORT: &str = "store export --all --json --to s3://recordings/daily/one";
const VERIFY: &str = "store verify --json s3://recordings/daily/one";

#[test]
fn recordings_go_to_object_storage_and_back() {
    let (server, data, other) = (Server::start(), Folder::new(), Folder::new());
    record(data.path(), 3);
    let sent = server.told(data.path(), EXPORT);
    assert_eq!((&sent["segments"], &sent["present"]), (&3.into(), &0.into()));
    let again = server.told(data.path(), EXPORT);
    assert_eq!((&again["present"], &again["sent_bytes"]), (&3.into(), &0.into()));
    assert_eq!(server.objects(".seg").len(), 3);
    let verified = server.told(data.path(), VERIFY);
    assert_eq!((&verified["segments"], &verified["episodes"]), (&3.into(), &180.into()));
    let import =
        format!("store import --json --from s3://recordings/daily/one --data {}", other.path().display());
    assert_eq!(server.told(data.path(), &import)["episodes"], 180);
    assert_eq!(listed(other.path()), listed(data.path()));
}

#[test]
fn a_coordinator_archives_into_object_storage_and_reads_from_there_what_left_its_disk() {
    let (server, cluster, data, carried) = (Server::start(), Cluster::new(&[]), Folder::new(), Folder::new());
    record(data.path(), 6);
    succeed(data.path(), &format!("store export --all --to {}", carried.path().display()));
    let store = cluster.path("coordinator/store");
    let import = format!("store import --from {} --data {}", carried.path().display(), store.display());
    succeed(data.path(), &import);
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    let variables = [
        ("AWS_ACCESS_KEY_ID", "KEY"),
        ("AWS_SECRET_ACCESS_KEY", "hidden"),
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    let settings = ["archive.target=s3://recordings/cluster", "store.budget=1 kB"];
    let (coordinator, address) = cluster.coordinator_with("127.0.0.1:0", &settings, &variables);
    let from = format!("--connect {}", cluster.connection("admin", &address));
    let folder = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
    let folder = folder.filter(|path| path.join("segments").is_dir()).next().unwrap();
    while server.objects(".json").len() < 6 || segments(&folder).len() > 1 {
        std::thread::yield_now();
    }
    let told = |from: &str| -> Vec<String> {
        let mut told: Vec<String> = json_lines(data.path(), &format!("replay ls --json {from}"))
            .iter()
            .map(Value::to_string)
            .collect();
        told.sort();
        told
    };
    let all = told(&format!("--data {}", data.path().display()));
    assert_eq!(told(&from), all);
    succeed(data.path(), &format!("replay verify --all {from}"));
    assert_eq!(server.told(data.path(), "store verify --json s3://recordings/cluster")["segments"], 6);
    // Another coordinator with nothing but the archive has all of it.
    coordinator.kill();
    fs::remove_dir_all(&store).unwrap();
    let (mut coordinator, _) = cluster.coordinator_with(&address, &settings, &variables);
    coordinator.hear("are taken into the listing");
    while told(&from).len() < all.len() {
        std::thread::yield_now();
    }
    assert_eq!(told(&from), all);
    succeed(data.path(), &format!("replay verify --all {from}"));
}

#[test]
fn wrong_credentials_a_bucket_that_is_missing_and_plain_http_that_nobody_asked_for_are_told() {
    let (server, data) = (Server::start(), Folder::new());
    record(data.path(), 1);
    for (key, secret) in [("KEY", "mistaken"), ("NOBODY", "hidden")] {
        let mut command = server.command(data.path(), server.port, EXPORT);
        let done = Done::of(
            command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", secret).output().unwrap(),
        );
        assert_eq!(done.code, Some(4), "{}", done.stderr);
        assert!(done.stderr.contains("refused") && !done.stderr.contains(secret), "{}", done.stderr);
    }
    let done = server.run(data.path(), "store export --all --to s3://elsewhere/one");
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("there is no bucket elsewhere"), "{}", done.stderr);
    let done = server.run(data.path(), "store verify s3://elsewhere/one");
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    let mut command = server.command(data.path(), server.port, EXPORT);
    let done = Done::of(command.env_remove("AWS_ALLOW_HTTP").output().unwrap());
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("http://"), "{}", done.stderr);
    let line = format!("{EXPORT} --allow-http --endpoint http://127.0.0.1:{}", server.port);
    let mut command = server.command(data.path(), 1, &line);
    assert_eq!(Done::of(command.env_remove("AWS_ALLOW_HTTP").output().unwrap()).code, Some(0));
}

/// Lets so many bytes through to the server, over all connections; then nothing, and nobody in.
fn cut_after(server: u16, bytes: u64) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let left = Arc::new(AtomicU64::new(bytes));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), false) = (client, left.load(Ordering::Relaxed) == 0) else { return };
            let upstream = TcpStream::connect(("127.0.0.1", server)).unwrap();
            let (back, left) = ((upstream.try_clone().unwrap(), client.try_clone().unwrap()), left.clone());
            std::thread::spawn(move || std::io::copy(&mut { back.0 }, &mut { back.1 }));
            std::thread::spawn(move || pass(client, upstream, &left));
        }
    });
    port
}

fn pass(mut client: TcpStream, mut upstream: TcpStream, left: &AtomicU64) {
    let mut buffer = [0; 512];
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let had = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(read as u64))
        });
        if had.is_ok_and(|had| had < read as u64) || upstream.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _cut = client.shutdown(std::net::Shutdown::Both);
    let _cut = upstream.shutdown(std::net::Shutdown::Both);
}

#[test]
fn an_upload_whose_server_goes_away_in_the_middle_is_unavailable_and_goes_on_later() {
    let (server, data) = (Server::start(), Folder::new());
    record(data.path(), 6);
    let mut there = 0;
    for bytes in [700, 4_000, 11_000, 26_000] {
        let port = cut_after(server.port, bytes);
        let done = Done::of(server.command(data.path(), port, EXPORT).output().unwrap());
        assert_eq!(done.code, Some(5), "after {bytes} bytes: {}", done.stderr);
        let labels = server.objects(".json").len();
        assert!(labels >= there, "what is there stays");
        there = labels;
    }
    assert!(there > 0 && there < 6, "{there}: some came and some did not");
    let done = server.told(data.path(), EXPORT);
    assert_eq!((&done["segments"], &done["present"]), (&6.into(), &there.into()));
    assert_eq!(server.told(data.path(), VERIFY)["segments"], 6);
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    let (server, data) = (Server::start(), Folder::new());
    record(data.path(), 1);
    // Bound and not listening any more: nobody else has it.
    let port = cut_after(server.port, 0);
    let done = Done::of(server.command(data.path(), port, EXPORT).output().unwrap());
    assert_eq!(done.code, Some(5), "{}", done.stderr);
}

#[test]
fn a_damaged_object_is_found_and_never_imported() {
    let (server, data, other) = (Server::start(), Folder::new(), Folder::new());
    record(data.path(), 3);
    server.told(data.path(), EXPORT);
    let object = server.objects(".seg").remove(1);
    let mut bytes = fs::read(&object).unwrap();
    bytes[1000] ^= 4;
    fs::write(&object, bytes).unwrap();
    let found = server.run(data.path(), VERIFY);
    assert_eq!(found.code, Some(3), "{}", found.stderr);
    assert!(found.stdout.contains(object.file_name().unwrap().to_str().unwrap()), "{}", found.stdout);
    let import =
        format!("store import --json --from s3://recordings/daily/one --data {}", other.path().display());
    let done = server.run(data.path(), &import);
    assert_eq!(done.code, Some(3), "{}", done.stderr);
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&told["segments"], &told["left_out"][0]["segment"]), (&2.into(), &2.into()));
    assert_eq!(listed(other.path()).len(), 120);
}

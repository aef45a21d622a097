//! Questions about many recorded episodes, as the commands that ask them: time, memory, and what is sent to a client.
//!
//! `cargo bench -p rollhouse-tests --bench catalogue -- [--episodes N] [--runs R] [--keep DIR]`
//!
//! Records N episodes of CartPole (10,000,000) as R runs (1), which gives at least as many segments, and asks: each
//! question by a process of its own, which opens the folder anew; then the same folder as a cluster's store, of its
//! coordinator, through a relay that counts bytes. As root, what is cold is asked after the system has let go of
//! its cached files; else only a fresh process is. Milliseconds of a question are those of the whole process, its start
//! and the printing included. Bytes are those of all datagrams: on a loopback device a connection looks for the largest
//! that passes, with some 250 kB.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "it is a program for measuring, not for users")]

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rollhouse_tests::{Cluster, Folder, binary, succeed};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let number =
        |name: &str, default: u64| value(name).map_or(default, |text| text.parse().expect("a whole number"));
    let (episodes, runs) = (number("--episodes", 10_000_000), number("--runs", 1).max(1));
    let scratch = Folder::new();
    let folder = value("--keep").map_or_else(|| scratch.path().join("recorded"), PathBuf::from);
    record(&folder, episodes, runs);
    let run = some_run(&folder);
    println!("{episodes} episodes, {runs} runs, in {}", folder.display());

    println!("\n{:<56} {:>9} {:>9} {:>9}", "a folder", "cold ms", "warm ms", "peak MB");
    for question in questions(&run) {
        let line = format!("{question} --data {}", folder.display());
        let cold = cold().then(|| asked(&line)).map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}"));
        let warm = median((0..REPEATS).map(|_| asked(&line)).collect());
        println!("{question:<56} {cold:>9} {warm:>9.0} {:>9.1}", peak(&line));
    }

    let cluster = Cluster::new(&[]);
    let store = cluster.path("coordinator").join("store");
    fs::create_dir_all(&store).expect("test files can be used");
    // As a node's spool that has shipped all of it.
    let shipped = store.join("node-aaaaaaaa");
    fs::create_dir_all(&shipped).expect("test files can be used");
    for inside in ["segments", "summaries", "rows"] {
        copy(&folder.join(inside), &shipped.join(inside));
    }
    let began = Instant::now();
    drop(cluster.coordinator("127.0.0.1:0"));
    println!(
        "\nthe coordinator's first start with a store that it does not know: {:.1} s",
        began.elapsed().as_secs_f64()
    );
    cold();
    let began = Instant::now();
    let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
    println!("its next start: {:.1} s", began.elapsed().as_secs_f64());
    let relay = Relay::start(address.parse().expect("an address"));
    let connection = cluster.connection("viewer", &relay.address.to_string());
    let at_rest = most_memory(coordinator.id());
    println!("memory before the first question: {at_rest:.1} MB");
    println!("\n{:<56} {:>9} {:>9} {:>9}", "--connect", "cold ms", "warm ms", "sent kB");
    for question in questions(&run) {
        let line = format!("{question} --connect {connection}");
        cold();
        let (first, sent) = relay.counted(|| asked(&line));
        let warm = median((0..REPEATS).map(|_| asked(&line)).collect());
        println!("{question:<56} {first:>9.0} {warm:>9.0} {:>9.1}", sent as f64 / 1000.0);
    }
    println!("memory of the coordinator at its peak: {:.1} MB", most_memory(coordinator.id()));
    let long = "replay ls --json --limit 200000";
    let (ms, sent) = relay.counted(|| asked(&format!("{long} --connect {connection}")));
    println!("{long:<56} {ms:>9.0} {:>9} {:>9.1}", "", sent as f64 / 1000.0);
    let line = format!("{long} --data {}", folder.display());
    println!("the same of the folder: {:.0} ms, {:.1} MB", asked(&line), peak(&line));
    println!("memory of the coordinator after it: {:.1} MB", most_memory(coordinator.id()));
}

/// The questions, by the run they ask for.
fn questions(run: &str) -> Vec<String> {
    let ls = |more: &str| format!("replay ls --limit 20 {more}").trim().to_owned();
    vec![
        ls(""),
        ls("--sort -return"),
        ls("--sort -length"),
        ls("--sort -started"),
        ls("--env CartPole-v1 --outcome terminated"),
        ls("--env Acrobot-v1"),
        ls("--min-return 150"),
        ls(&format!("--run {run}")),
        "replay stats".to_owned(),
    ]
}

/// Records, unless that was done before.
fn record(folder: &Path, episodes: u64, runs: u64) {
    if folder.join("segments").is_dir() {
        return;
    }
    let began = Instant::now();
    for run in 0..runs {
        let some = episodes / runs + u64::from(run < episodes % runs);
        let lanes = some.clamp(1, 1024);
        let line = format!("rollout --env CartPole-v1 --lanes {lanes} --episodes {some} --seed {run}");
        succeed(folder, &line);
    }
    println!("recorded in {:.1} s", began.elapsed().as_secs_f64());
}

/// A run in the middle of the listing.
fn some_run(folder: &Path) -> String {
    let listed = succeed(folder, "replay ls --sort -length --limit 1 --json");
    let listed: serde_json::Value = serde_json::from_str(listed.trim()).expect("a line of JSON");
    let name = listed["id"].as_str().expect("a name").to_owned();
    name.split('-').next().unwrap_or_default().to_owned()
}

/// Asks by a process; how many milliseconds it took.
fn asked(line: &str) -> f64 {
    let began = Instant::now();
    let mut command = Command::new(binary());
    command.args(line.split_whitespace());
    let output = command.output().expect("the binary starts");
    let ms = began.elapsed().as_secs_f64() * 1000.0;
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    ms
}

/// Most memory that a process that asks has, in MB, as `time` says; not a number where there is none.
fn peak(line: &str) -> f64 {
    let mut shell = Command::new("/usr/bin/time");
    shell.args(["-f", "%M"]).arg(binary()).args(line.split_whitespace());
    let Ok(output) = shell.output() else { return f64::NAN };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().last().and_then(|line| line.trim().parse::<f64>().ok()).map_or(f64::NAN, |kb| kb / 1000.0)
}

fn most_memory(process: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok())
        .map_or(f64::NAN, |kb| kb / 1000.0)
}

/// Has the system let go of cached files; false if it does not let us.
fn cold() -> bool {
    // What is not written yet would stay.
    let _written = Command::new("sync").status();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

fn copy(from: &Path, to: &Path) {
    // With the times at which the files were changed.
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp starts");
    assert!(copied.success());
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Passes datagrams on between clients and a coordinator, and counts the bytes that come from it.
struct Relay {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
}

impl Relay {
    fn start(to: SocketAddr) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = front.local_addr().expect("a port");
        let sent = Arc::<AtomicU64>::default();
        let counted = sent.clone();
        std::thread::spawn(move || {
            let mut behind: Vec<(SocketAddr, UdpSocket)> = Vec::new();
            let mut datagram = vec![0; 1 << 16];
            loop {
                let Ok((bytes, from)) = front.recv_from(&mut datagram) else { return };
                if !behind.iter().any(|(known, _)| *known == from) {
                    let back = UdpSocket::bind("127.0.0.1:0").expect("a port");
                    back.connect(to).expect("an address");
                    let (answers, front) = (back.try_clone(), front.try_clone());
                    let (answers, front) = (answers.expect("a socket"), front.expect("a socket"));
                    let counted = counted.clone();
                    std::thread::spawn(move || {
                        let mut datagram = vec![0; 1 << 16];
                        while let Ok(bytes) = answers.recv(&mut datagram) {
                            counted.fetch_add(bytes as u64, Ordering::Relaxed);
                            if front.send_to(&datagram[..bytes], from).is_err() {
                                return;
                            }
                        }
                    });
                    behind.push((from, back));
                }
                if let Some((_, back)) = behind.iter().find(|(known, _)| *known == from) {
                    // A datagram that is lost is sent again.
                    let _sent = back.send(&datagram[..bytes]);
                }
            }
        });
        Self { address, sent }
    }

    /// What something takes, and the bytes that were sent meanwhile.
    fn counted<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        let before = self.sent.load(Ordering::Relaxed);
        let done = work();
        std::thread::sleep(SETTLED);
        (done, self.sent.load(Ordering::Relaxed) - before)
    }
}

/// Warm repetitions of a question.
const REPEATS: usize = 5;
/// Until the last datagrams of an answer are counted.
const SETTLED: Duration = Duration::from_millis(50);

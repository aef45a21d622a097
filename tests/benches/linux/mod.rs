//! Who is who: the parent joins two children and has them measure.

mod drive;
mod serve;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rollhouse_core::limits::MAX_LANES;
use rollhouse_tests::emulator::{ENDS, Emulator};
use rollhouse_tests::link::LinkProfile;
use serde::{Deserialize, Serialize};

/// Sessions that step side by side, each waiting for its own answers only.
const SESSIONS: usize = 8;
/// Where the servers listen, in a namespace of their own.
const PORT: u16 = 7610;

/// What is measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Plan {
    delay_ms: u64,
    loss: f64,
    /// Of each session.
    lanes: usize,
    seconds: u64,
    repeats: usize,
    seed: u64,
}

impl Plan {
    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// One transport in one repeat.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Figures {
    /// Env steps per second, over all sessions.
    steps_per_second: f64,
    /// Of single steps of sessions, milliseconds.
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
}

/// A program in a network namespace of its own, which ends when it is dropped.
struct Inside {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

pub(crate) fn main() {
    let mut arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.first().map(String::as_str) {
        Some("child-serve") => serve::run(&plan_of(&arguments[1]), &arguments[2]),
        Some("child-drive") => drive::run(&plan_of(&arguments[1]), &arguments[2]),
        Some("joined") => {
            join(&plan_of(&arguments[1]), arguments.iter().any(|argument| argument == "--json"))
        }
        _ => {
            let plan = parse(&arguments);
            arguments.retain(|argument| argument == "--json");
            let plan = serde_json::to_string(&plan).expect("a plan is plain");
            // Devices are made in a namespace that goes away with us.
            let mut joined = Command::new("unshare");
            joined.arg("--net").arg(ourselves()).args(["joined", &plan]).args(arguments);
            match joined.status() {
                Ok(status) if status.success() => {}
                Ok(status) => {
                    println!("skipped or failed: {status}; it needs the right to make network namespaces")
                }
                Err(error) => println!("skipped: unshare cannot be started: {error}"),
            }
        }
    }
}

fn join(plan: &Plan, json: bool) {
    let temporary = tempfile::tempdir().expect("the temporary folder can be written");
    let folder = temporary.path();
    serve::make_identity(folder);
    let shown = folder.to_str().expect("temporary folders have plain names");
    let text = serde_json::to_string(plan).expect("a plan is plain");
    let mut server = Inside::start(&["child-serve", &text, shown]);
    let mut client = Inside::start(&["child-drive", &text, shown]);
    let profile = LinkProfile {
        delay: Duration::from_millis(plan.delay_ms),
        loss: plan.loss,
        reorder: 0.0,
        held_back: Duration::ZERO,
        rate: 125_000_000,
        queue_bytes: 4 << 20,
    };
    let link = Emulator::join([&server.child, &client.child], profile, plan.seed).expect("the link is made");
    server.tell("go");
    assert_eq!(server.hear(), "ready");
    client.tell("go");
    let measured: Vec<[Figures; 2]> = (0..plan.repeats)
        .map(|_| serde_json::from_str(&client.hear()).expect("the child prints figures"))
        .collect();
    let carried = link.carried();
    report(plan, &measured, json);
    if !json {
        println!("packets: {} carried, {} lost, {} dropped", carried.carried, carried.lost, carried.dropped);
    }
}

fn report(plan: &Plan, measured: &[[Figures; 2]], json: bool) {
    let middle = |value: &dyn Fn(&[Figures; 2]) -> f64| {
        let mut values: Vec<f64> = measured.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        (values[values.len() / 2], values[0], values[values.len() - 1])
    };
    let of = |which: usize, field: &dyn Fn(&Figures) -> f64| middle(&|both| field(&both[which])).0;
    let speed = middle(&|both| both[0].steps_per_second / both[1].steps_per_second);
    let p95 = middle(&|both| both[0].p95_ms / both[1].p95_ms);
    if json {
        let transport = |which| {
            serde_json::json!({
                "steps_per_second": of(which, &|f| f.steps_per_second),
                "p50_ms": of(which, &|f| f.p50_ms),
                "p95_ms": of(which, &|f| f.p95_ms),
                "p99_ms": of(which, &|f| f.p99_ms),
            })
        };
        println!(
            "{}",
            serde_json::json!({
                "plan": plan, "sessions": SESSIONS, "quic": transport(0), "tcp": transport(1),
                "steps_ratio": {"median": speed.0, "min": speed.1, "max": speed.2},
                "p95_ratio": {"median": p95.0, "min": p95.1, "max": p95.2},
            })
        );
        return;
    }
    println!(
        "{SESSIONS} sessions of {} CartPole-v1 lanes, {} ms delay each way, {} % loss, {} repeats of {} s each",
        plan.lanes,
        plan.delay_ms,
        plan.loss * 100.0,
        plan.repeats,
        plan.seconds
    );
    for (which, name) in ["QUIC, one connection", "TCP, one stream"].into_iter().enumerate() {
        println!(
            "  {name:<22} {:>9.0} steps/s   step p50 {:>6.1} ms   p95 {:>6.1} ms   p99 {:>6.1} ms",
            of(which, &|f| f.steps_per_second),
            of(which, &|f| f.p50_ms),
            of(which, &|f| f.p95_ms),
            of(which, &|f| f.p99_ms),
        );
    }
    println!(
        "  QUIC over TCP: steps/s {:.2}x ({:.2} to {:.2}), p95 {:.2}x ({:.2} to {:.2})",
        speed.0, speed.1, speed.2, p95.0, p95.1, p95.2
    );
}

fn parse(arguments: &[String]) -> Plan {
    let mut plan = Plan { delay_ms: 20, loss: 0.01, lanes: 512, seconds: 10, repeats: 5, seed: 1 };
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        if flag == "--json" {
            continue;
        }
        let value = rest.next().unwrap_or_else(|| panic!("{flag} needs a value"));
        let number = || value.parse().unwrap_or_else(|_| panic!("{flag} {value}: a whole number is wanted"));
        match flag.as_str() {
            "--delay-ms" => plan.delay_ms = number(),
            "--loss" => {
                plan.loss = value.parse().unwrap_or_else(|_| panic!("--loss {value}: 0 to 1 is wanted"))
            }
            "--lanes" => plan.lanes = number().clamp(1, MAX_LANES as u64) as usize,
            "--seconds" => plan.seconds = number().max(1),
            "--repeats" => plan.repeats = number().max(1) as usize,
            "--seed" => plan.seed = number(),
            other => panic!("unknown flag {other}"),
        }
    }
    plan
}

fn plan_of(text: &str) -> Plan {
    serde_json::from_str(text).expect("the parent writes plans")
}

fn ourselves() -> std::path::PathBuf {
    std::env::current_exe().expect("a running program has a path")
}

impl Inside {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new("unshare");
        command.arg("--net").arg(ourselves()).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("unshare starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut inside = Self { child, input, output };
        // It says so once it is in its namespace, so that no device is moved to the one it left.
        assert_eq!(inside.hear(), "inside");
        inside
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the child listens");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the child speaks UTF-8");
        line.trim_end().to_owned()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// What every child does first: says that it is there and waits until the link is.
fn wait_for_link() {
    println!("inside");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent speaks");
    assert_eq!(line.trim_end(), "go");
}

fn server() -> std::net::SocketAddr {
    format!("{}:{PORT}", ENDS[0]).parse().expect("it is an address")
}

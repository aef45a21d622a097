//! What it costs a session that it is watched: steps per second watched and not, in turns, medians and spread.
//!
//! `cargo bench -p rollhouse-tests --bench watching -- [--rounds N] [--steps S] [--lanes L] [--watchers W]`
//!
//! A coordinator and a node as processes of their own; a node's own rollout of S steps (40,000,000) of L lanes (64) of
//! CartPole, unrecorded, which is the dearest case: no step is shorter. Each of the N rounds (9) plays it twice, alone
//! and with W processes (1) of `rollhouse watch --json` on one lane; which comes first changes from round to round. The
//! watchers take a core now and then themselves: on a machine with fewer free cores than processes that shows too.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "it is a program for measuring, not for users")]

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rollhouse_tests::{Cluster, binary, succeed, workspace};
use serde_json::Value;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        let given = at.and_then(|at| arguments.get(at + 1));
        given.map_or(default, |text| text.parse().expect("a whole number"))
    };
    let (rounds, steps) = (number("--rounds", 9).max(1), number("--steps", 40_000_000));
    let (lanes, watchers) = (number("--lanes", 64), number("--watchers", 1));
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let _node = cluster.node("one", &address);
    let admin = cluster.connection("admin", &address);
    let line = format!(
        "rollout --env CartPole-v1 --lanes {lanes} --steps {steps} --record none --seed 1 --json --connect {admin}"
    );
    let (mut alone, mut watched, mut seen) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        for watches in [round % 2 == 0, round % 2 != 0] {
            if watches {
                let (rate, frames) = with_watchers(watchers, &admin, || rate_of(&line));
                seen += frames;
                watched.push(rate);
            } else {
                alone.push(rate_of(&line));
            }
        }
    }
    println!(
        "{lanes} lanes of CartPole, {steps} steps, {rounds} rounds, {watchers} watchers, {seen} frames seen"
    );
    println!("{:<10} {:>14} {:>14} {:>14}", "steps/s", "least", "median", "most");
    for (name, rates) in [("alone", &mut alone), ("watched", &mut watched)] {
        rates.sort_by(f64::total_cmp);
        println!("{name:<10} {:>14.0} {:>14.0} {:>14.0}", rates[0], middle(rates), rates[rates.len() - 1]);
    }
    println!("watched / alone, of the medians: {:.4}", middle(&watched) / middle(&alone));
}

fn middle(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

fn rate_of(line: &str) -> f64 {
    let report: Value = serde_json::from_str(&succeed(workspace(), line)).expect("it prints JSON");
    report["steps_per_second"].as_f64().expect("it says how fast it was")
}

/// What `measure` gives while so many processes watch, and how many frames they saw together.
fn with_watchers(watchers: u64, connect: &str, measure: impl FnOnce() -> f64) -> (f64, usize) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = || {
            let mut frames = 0;
            // A session that has not begun, or is over, cannot be watched: asked again until there is one.
            while !over.load(Ordering::Relaxed) {
                let mut command = Command::new(binary());
                command.args(["watch", "one", "--json", "--connect", connect]);
                let shown = command.stdin(Stdio::null()).stderr(Stdio::null()).output().expect("it starts");
                frames += shown.stdout.iter().filter(|&&byte| byte == b'\n').count();
            }
            frames
        };
        let all: Vec<_> = (0..watchers).map(|_| scope.spawn(watch)).collect();
        let rate = measure();
        over.store(true, Ordering::Relaxed);
        (rate, all.into_iter().map(|one| one.join().expect("it does not panic")).sum())
    })
}

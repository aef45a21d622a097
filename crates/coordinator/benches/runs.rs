//! What many recorded runs cost a coordinator's store: the time in which it is opened, and the memory that it has then and
//! after the first questions.
//!
//! `cargo bench -p rollhouse-coordinator --bench runs -- [--runs N] [--together R] [--keep DIR]`
//!
//! Records N runs (80,000) of one lane and a few steps each, R of them (100) in a segment, as a node's spool that has shipped
//! all of it, and opens the store in a process of its own.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::print_stdout, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use rollhouse_coordinator::{Store, StoreConfig};
use rollhouse_replay::{RealDisk, Recorder, RecorderConfig, SegmentSummary, segment_path};
use rollhouse_wire::StoreQuery;
use stage::{Play, play_into};

#[path = "../../replay/tests/stage/mod.rs"]
mod stage;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    if let Some(store) = value("--open") {
        return open(Path::new(store));
    }
    let number = |name: &str, default: u64| value(name).map_or(default, |text| text.parse().unwrap());
    let (runs, together) = (number("--runs", 80_000), number("--together", 100).max(1));
    let scratch = tempfile::tempdir().unwrap();
    let store = value("--keep").map_or_else(|| scratch.path().join("store"), PathBuf::from);
    let spool = store.join("node-aaaaaaaa");
    if !spool.is_dir() {
        let began = Instant::now();
        record(&spool, runs, together);
        println!("recorded {runs} runs, {together} in a segment, in {:.1} s", began.elapsed().as_secs_f64());
    }
    for start in ["first", "next"] {
        print!("{start} start: ");
        let opened = Command::new(std::env::current_exe().unwrap()).arg("--open").arg(&store).status();
        assert!(opened.unwrap().success());
    }
}

/// Records the runs, and writes the entries that a store writes of what it receives.
fn record(spool: &Path, runs: u64, together: u64) {
    let config = RecorderConfig { budget_bytes: u64::MAX, ..RecorderConfig::default() };
    let recorder = Recorder::open(Arc::new(RealDisk), spool, config).unwrap();
    for seed in 0..runs {
        let play = Play { lanes: 1, seed, max_steps: 4, ..Play::new("CartPole-v1", 5) };
        play_into(&recorder, &play, |_, _, _| {});
        if seed % together == together - 1 {
            recorder.seal().unwrap();
        }
    }
    recorder.finish().unwrap();
    for number in 1.. {
        let Ok(bytes) = fs::read(segment_path(spool, number)) else { break };
        SegmentSummary::of(number, &bytes).store(&RealDisk, spool).unwrap();
    }
}

/// Opens a store and tells what that took.
fn open(dir: &Path) {
    let began = Instant::now();
    let config = StoreConfig { budget_bytes: u64::MAX, quarantine_bytes: u64::MAX };
    let store = Store::open(Arc::new(RealDisk), dir, config).unwrap();
    let seconds = began.elapsed().as_secs_f64();
    println!("{:.1} s, {} segments, {}", seconds, store.status().segments, memory());
    let began = Instant::now();
    let stats = store.stats().unwrap();
    println!("  statistics of {} runs: {:.1} s, {}", stats.runs, began.elapsed().as_secs_f64(), memory());
    let began = Instant::now();
    let query = StoreQuery { limit: 20, sort: "-return".into(), ..StoreQuery::default() };
    let listed = store.episodes(&query).unwrap().episodes.len();
    println!("  the best {listed} episodes: {:.1} s, {}", began.elapsed().as_secs_f64(), memory());
    store.gather();
    println!("  gathered: {}", memory());
}

/// Resident memory now and at its peak.
fn memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("0");
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) / 1024
    };
    format!("{} MiB, {} MiB at its peak", of("VmRSS:"), of("VmHWM:"))
}

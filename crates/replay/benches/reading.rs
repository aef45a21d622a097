//! Listing, rebuilding the catalogue and verifying.
//!
//! `cargo bench -p rollhouse-replay --bench reading`
//!
//! With `ROLLHOUSE_BENCH_FOLDER` naming a folder of recordings, `ask` opens that and queries it anew each time; its
//! catalogue is made first. Ten million episodes: `rollhouse rollout --env CartPole-v1 --lanes 1024 --episodes 10000000`.
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]

#[path = "../tests/stage/mod.rs"]
mod stage;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use divan::counter::{BytesCount, ItemsCount};
use rollhouse_core::RunId;
use rollhouse_env::Registry;
use rollhouse_replay::{Library, Query, RealDisk, Replays, repair};
use stage::{Play, play};

fn main() {
    if let Some(folder) = named_folder() {
        repair(Arc::new(RealDisk), &folder).unwrap();
    }
    divan::main();
    if let Some(folder) = FOLDER.get() {
        let _ = std::fs::remove_dir_all(&folder.path);
    }
}

struct Folder {
    path: PathBuf,
    bytes: u64,
    steps: u64,
}

static FOLDER: OnceLock<Folder> = OnceLock::new();

/// 100,000 random CartPole episodes.
fn folder() -> &'static Folder {
    FOLDER.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("rollhouse-bench-{}", RunId::generate()));
        let recorded = play(Arc::new(RealDisk), &path, &Play::new("CartPole-v1", 37_000));
        let steps = open(&path).stats().unwrap().steps;
        println!("{} episodes, {steps} steps, {} bytes", recorded.episodes, recorded.bytes);
        Folder { path, bytes: recorded.bytes, steps }
    })
}

fn open(path: &std::path::Path) -> Replays {
    Replays::open(Arc::new(RealDisk), path).unwrap()
}

#[divan::bench]
fn list_the_20_best_of_100_000(bencher: divan::Bencher<'_, '_>) {
    let folder = folder();
    let query = Query { sort: "-return".parse().unwrap(), limit: Some(20), ..Query::default() };
    bencher.bench(|| open(&folder.path).list(&query).unwrap());
}

fn named_folder() -> Option<PathBuf> {
    std::env::var_os("ROLLHOUSE_BENCH_FOLDER").map(PathBuf::from)
}

/// Order, least return, outcome, limit; the first adds everything up.
const QUESTIONS: [(&str, Option<f64>, Option<&str>, usize); 8] = [
    ("stats", None, None, 0),
    ("name", None, None, 1),
    ("-name", None, None, 50),
    ("-return", None, None, 50),
    ("length", None, None, 50),
    ("-started", None, None, 50),
    ("name", Some(120.0), None, 50),
    ("return", None, Some("truncated"), 50),
];

#[divan::bench(args = 0..QUESTIONS.len())]
fn ask(bencher: divan::Bencher<'_, '_>, question: usize) {
    let path = named_folder().unwrap_or_else(|| folder().path.clone());
    let (sort, min_return, outcome, limit) = QUESTIONS[question];
    bencher.bench(|| {
        let library = Library::open(Arc::new(RealDisk), &path).unwrap();
        if sort == "stats" {
            return library.stats().unwrap().episodes.len();
        }
        let (sort, outcome) = (sort.parse().unwrap(), outcome.map(|word| word.parse().unwrap()));
        let query = Query { sort, min_return, outcome, limit: Some(limit), ..Query::default() };
        library.list(&query).unwrap().len()
    });
}

#[divan::bench]
fn scan_everything(bencher: divan::Bencher<'_, '_>) {
    let folder = folder();
    bencher
        .counter(BytesCount::new(folder.bytes))
        .bench(|| Replays::open_scanning(Arc::new(RealDisk), &folder.path).unwrap());
}

#[divan::bench(sample_count = 10)]
fn verify_everything(bencher: divan::Bencher<'_, '_>) {
    let folder = folder();
    let registry = Registry::builtin();
    bencher.counter(ItemsCount::new(folder.steps)).bench(|| {
        let mut ok = 0u64;
        open(&folder.path).verify_all(&registry, |found| ok += u64::from(found.ok)).unwrap();
        ok
    });
}

#[divan::bench]
fn find_and_load_one(bencher: divan::Bencher<'_, '_>) {
    let replays = open(&folder().path);
    let names: Vec<_> = replays.list(&Query { limit: Some(1000), ..Query::default() }).unwrap();
    let mut next = 0;
    bencher.bench_local(|| {
        next = (next + 1) % names.len();
        replays.load(&replays.find(names[next].name).unwrap()).unwrap()
    });
}

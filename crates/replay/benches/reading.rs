//! Listing, rebuilding the catalogue and verifying.
//!
//! `cargo bench -p rollhouse-replay --bench reading`
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]

#[path = "../tests/stage/mod.rs"]
mod stage;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use divan::counter::{BytesCount, ItemsCount};
use rollhouse_core::RunId;
use rollhouse_env::Registry;
use rollhouse_replay::{Query, RealDisk, Replays};
use stage::{Play, play};

fn main() {
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

//! How fast episodes are written out, on one core, into memory that is thrown away.
//!
//! `cargo bench -p rollhouse-export --features mcap,parquet --bench forms [-- table]`
//!
//! With `table` only many episodes as one Parquet table are measured. Their rows a second are of the time on the core,
//! so that what else runs on the machine hardly counts.
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints what it finds")]

#[path = "../../replay/tests/stage/mod.rs"]
mod stage;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_env::Registry;
#[cfg(feature = "parquet")]
use rollhouse_export::ParquetFile;
use rollhouse_export::{Format, Settings, write};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Episode, Query, Replays};
use stage::{Play, play};

const REPETITIONS: usize = 7;

fn main() {
    if std::env::args().all(|argument| argument != "table") {
        files();
    }
    #[cfg(feature = "parquet")]
    for env in ["CartPole-v1", "Pendulum-v1", "MountainCar-v0"] {
        table(env);
    }
}

/// Measures episodes that become a file each.
fn files() {
    for env in ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "Echo-v0"] {
        let steps = if env == "Echo-v0" { 10_000 } else { 200_000 };
        let forms = [
            Format::Jsonl,
            Format::Npz,
            Format::Rhr,
            #[cfg(feature = "parquet")]
            Format::Parquet,
        ];
        for format in forms {
            measure(format, &episode(env, steps));
        }
    }
    for env in ["CartPole-v1", "Pendulum-v1", "GridBreakout-v0", "MountainCar-v0"] {
        let forms = [
            Format::Gif,
            Format::Html,
            #[cfg(feature = "mcap")]
            Format::Mcap,
        ];
        for format in forms {
            measure(format, &episode(env, 400));
        }
    }
}

/// Measures all episodes of 64 lanes as one table, read from a disk in memory.
#[cfg(feature = "parquet")]
fn table(env: &'static str) {
    let disk = FaultyDisk::new();
    play(Arc::new(disk.clone()), Path::new("/data"), &Play::new(env, 20_000));
    let replays = Replays::open(Arc::new(disk), Path::new("/data")).unwrap();
    let infos = replays.list(&Query { all_outcomes: true, ..Query::default() }).unwrap();
    let registry = Registry::builtin();
    let (mut times, mut bytes, mut loading) = (Vec::new(), 0, Vec::new());
    for _ in 0..REPETITIONS {
        let begun = on_core();
        let episodes: Vec<Episode> = replays.load_many(&infos).map(Result::unwrap).collect();
        loading.push(on_core() - begun);
        let mut counted = Counted(0);
        let begun = on_core();
        let mut file = ParquetFile::new(&registry, &infos[0].run, &mut counted).unwrap();
        for episode in episodes {
            assert!(file.add(episode, &mut |_| true).unwrap().is_empty());
        }
        assert!(file.finish(&mut |_| true).unwrap().is_empty());
        times.push(on_core() - begun);
        bytes = counted.0;
    }
    times.sort_unstable();
    loading.sort_unstable();
    let rows: u64 = infos.iter().map(|info| info.length + 1).sum();
    let rate = |time: Duration| rows as f64 / time.as_secs_f64() / 1e6;
    let (median, worst) = (times[REPETITIONS / 2], times[REPETITIONS - 1]);
    println!(
        "table  {env:<14} {rows:>7} rows of {} episodes  {:.1} M rows/s (worst {:.1}; {:.1} with reading)  {} bytes",
        infos.len(),
        rate(median),
        rate(worst),
        rate(median + loading[REPETITIONS / 2]),
        bytes,
    );
}

/// Time that this thread has had a core for.
#[cfg(feature = "parquet")]
fn on_core() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// An episode of so many steps, or of as many as the env has by itself.
fn episode(env: &'static str, steps: u64) -> Arc<Episode> {
    let disk = FaultyDisk::new();
    let one = Play { lanes: 1, max_steps: steps, ..Play::new(env, steps + 1) };
    play(Arc::new(disk.clone()), Path::new("/data"), &one);
    let replays = Replays::open(Arc::new(disk), Path::new("/data")).unwrap();
    let infos = replays.list(&Query { sort: "-length".parse().unwrap(), ..Query::default() }).unwrap();
    Arc::new(replays.load(&infos[0]).unwrap())
}

fn measure(format: Format, episode: &Arc<Episode>) {
    let registry = Registry::builtin();
    let mut times = Vec::new();
    let mut counted = Counted(0);
    for _ in 0..REPETITIONS {
        counted.0 = 0;
        let begun = Instant::now();
        write(&Settings::new(format), &registry, episode, &mut counted, &mut |_| true).unwrap();
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let rate = |time: Duration, amount: u64| amount as f64 / time.as_secs_f64();
    let (median, worst) = (times[REPETITIONS / 2], times[REPETITIONS - 1]);
    println!(
        "{:<6} {:<14} {:>7} steps  {:>9.1?}  {:>6.1} MB/s (worst {:.1})  {:>9.0} steps/s  {} bytes",
        format.extension(),
        episode.info.env(),
        episode.info.length,
        median,
        rate(median, counted.0) / 1e6,
        rate(worst, counted.0) / 1e6,
        rate(median, episode.info.length),
        counted.0,
    );
}

/// Bytes that were written.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

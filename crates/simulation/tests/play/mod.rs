//! Plays many seeds, and says how to play the one that failed again.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_simulation::Outcome;

/// What happened over all seeds.
#[derive(Debug, Default)]
pub struct Counted {
    pub counted: BTreeMap<&'static str, u64>,
    pub episodes: usize,
    pub events: u64,
    pub recovered_in: Duration,
}

impl Counted {
    pub fn has(&self, what: &str) -> bool {
        self.counted.get(what).is_some_and(|&count| count > 0)
    }

    fn add(&mut self, outcome: Outcome) {
        for (what, count) in outcome.counted {
            *self.counted.entry(what).or_default() += count;
        }
        self.episodes += outcome.episodes;
        self.events += outcome.events;
        self.recovered_in = self.recovered_in.max(outcome.recovered_in);
    }
}

/// The seeds to play: `count` of them, or the one of `ROLLHOUSE_SEED`.
pub fn seeds(count: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    match number("ROLLHOUSE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("ROLLHOUSE_SEEDS").unwrap_or(count)).collect(),
    }
}

/// Whether events are to be told.
pub fn tells() -> bool {
    std::env::var_os("ROLLHOUSE_TELL").is_some()
}

/// Plays each seed once, on as many threads as there are cores.
///
/// # Panics
/// If one fails, after saying how to play it again.
pub fn play_all(file: &str, test: &str, count: u64, play: impl Fn(u64) -> Outcome + Sync) -> Counted {
    let seeds = seeds(count);
    let counted = Mutex::new(Counted::default());
    let failed = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (seeds, counted, failed, play) = (&seeds, &counted, &failed, &play);
            scope.spawn(move || {
                for &seed in seeds.iter().skip(thread).step_by(threads) {
                    match catch_unwind(AssertUnwindSafe(|| play(seed))) {
                        Ok(outcome) => counted.lock().add(outcome),
                        Err(_) => {
                            eprintln!("seed {seed} failed. Play it again with");
                            eprintln!("{}", command(file, test, seed));
                            failed.lock().push(seed);
                        }
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner();
    failed.sort_unstable();
    let first = failed.first().map(|&seed| command(file, test, seed));
    assert!(
        failed.is_empty(),
        "{} of {} seeds failed: {failed:?}; the first: {first:?}",
        failed.len(),
        seeds.len()
    );
    counted.into_inner()
}

fn command(file: &str, test: &str, seed: u64) -> String {
    format!(
        "ROLLHOUSE_SEED={seed} cargo test -p rollhouse-simulation --test all -- --exact {file}::{test} --nocapture"
    )
}

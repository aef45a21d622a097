//! Coming to any step of an episode of 1,000,000 steps, beside verifying it. test/Noise-v0 is recorded in full, as Python
//! envs are, and read at its place.
//!
//! `cargo bench -p rollhouse-replay --bench seeking`
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints what it finds")]

#[path = "../tests/stage/mod.rs"]
mod stage;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::split_mix64;
use rollhouse_env::Registry;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Query, Replays, SeekBounds, Seeker};
use stage::{Play, play};

const STEPS: u64 = 1_000_000;
const REPETITIONS: usize = 5;
const SEEKS: u64 = 2_000;

fn main() {
    let registry = Registry::builtin();
    for env in ["Pendulum-v1", "Acrobot-v1", "Echo-v0", "test/Noise-v0"] {
        let disk = FaultyDisk::new();
        let one = Play { lanes: 1, max_steps: STEPS, ..Play::new(env, STEPS + 1) };
        play(Arc::new(disk.clone()), Path::new("/data"), &one);
        let replays = Replays::open(Arc::new(disk), Path::new("/data")).unwrap();
        let infos = replays.list(&Query { sort: "-length".parse().unwrap(), ..Query::default() }).unwrap();
        let info = &infos[0];
        let episode = Arc::new(replays.load(info).unwrap());
        let (mut verifying, mut passing, mut seeks) = (Vec::new(), Vec::new(), Vec::new());
        let mut keyframes = (0, 0);
        for repetition in 0..REPETITIONS {
            let begun = Instant::now();
            replays
                .verify(std::slice::from_ref(info), &registry, |found| assert!(found.ok, "{found:?}"))
                .unwrap();
            verifying.push(begun.elapsed());
            let mut seeker = Seeker::new(&registry, Arc::clone(&episode), &SeekBounds::default()).unwrap();
            let begun = Instant::now();
            assert!(seeker.pass(u64::MAX));
            passing.push(begun.elapsed());
            keyframes = seeker.keyframes();
            for seek in 0..SEEKS {
                let t = split_mix64(repetition as u64 * SEEKS + seek) % (info.length + 1);
                let begun = Instant::now();
                assert_eq!(seeker.seek(t).unwrap().t, t);
                seeks.push(begun.elapsed());
            }
        }
        for times in [&mut verifying, &mut passing, &mut seeks] {
            times.sort_unstable();
        }
        let rate = |times: &[Duration]| info.length as f64 / times[times.len() / 2].as_secs_f64() / 1e6;
        println!("{env}, {} steps, {} keyframes {} steps apart", info.length, keyframes.0, keyframes.1);
        println!("  verify      {:>9.1?}  {:6.1} M steps/s", verifying[REPETITIONS / 2], rate(&verifying));
        println!("  first pass  {:>9.1?}  {:6.1} M steps/s", passing[REPETITIONS / 2], rate(&passing));
        println!(
            "  seek        {:>9.1?} median, {:.1?} worst",
            seeks[seeks.len() / 2],
            seeks[seeks.len() - 1]
        );
    }
}

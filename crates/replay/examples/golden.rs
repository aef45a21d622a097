//! Writes the golden recordings of this format version: `cargo run -p rollhouse-replay --example golden -- DIR`.
//!
//! Those of a released version are never made again; `tests/golden.rs` reads them for ever.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "../tests/stage/mod.rs"]
mod stage;

use std::path::PathBuf;
use std::sync::Arc;

use rollhouse_core::RecordRule;
use rollhouse_replay::RealDisk;
use stage::{Play, play};

fn main() {
    let dir: PathBuf = std::env::args().nth(1).expect("the folder to write to").into();
    let small = |env| Play { lanes: 5, ..Play::new(env, 150) };
    let plays = [
        small("CartPole-v1"),
        Play { per_episode: false, seed: 8, ..small("CartPole-v1") },
        Play { record: RecordRule::Sample { probability: 0.5 }, seed: 9, ..small("CartPole-v1") },
        Play { record: RecordRule::Trace, lanes: 2, seed: 10, ..small("Acrobot-v1") },
        Play { per_episode: false, ..small("MountainCarContinuous-v0") },
        small("MountainCar-v0"),
        Play { lanes: 2, ..small("Pendulum-v1") },
        Play { lanes: 2, ..small("test/Noise-v0") },
    ];
    for one in &plays {
        let recorded = play(Arc::new(RealDisk), &dir, one);
        println!("{}: {} episodes, {} bytes", one.env, recorded.episodes, recorded.bytes);
    }
}

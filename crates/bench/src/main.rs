//! The `rollhouse-bench` program, which measures how fast this machine, or a cluster on it, is.
//!
//! Each bench is a file with a `run`; start reading at `args::Bench`. Processes that a bench starts are this program
//! again, as the `rollhouse` command. Not a goal: figures of one function, which stand beside the crates
//! (`cargo bench`).
#![forbid(unsafe_code)]

mod args;
mod chaos;
mod cluster;
mod engine;
mod failed;
mod first_done;
mod itself;
mod quic;
mod scratch;
mod seed;
mod shm;
mod spread;

use std::process::ExitCode;

use clap::Parser;
use rollhouse_cli::failure::{Failure, Status};
use rollhouse_cli::output::Output;

use crate::args::{Arguments, Bench};

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if words.by_ref().nth(1).is_some_and(|word| word == itself::COMMAND) {
        return rollhouse_cli::run(std::iter::once("rollhouse".into()).chain(words)).into();
    }
    let arguments = Arguments::parse();
    let mut out = Output::stdout();
    let done = run(&arguments.bench, &mut out);
    let flushed = out.flush().map_err(Failure::from);
    let status = done.and_then(|status| flushed.map(|()| status));
    ExitCode::from(status.unwrap_or_else(|failure| failure.report()) as u8)
}

fn run(bench: &Bench, out: &mut Output) -> Result<Status, Failure> {
    match bench {
        Bench::Engine(args) => engine::run(args, out),
        Bench::Quic(args) => quic::run(args, out),
        Bench::Cluster(args) => cluster::run(args, out),
        Bench::Shm(args) => shm::run(args, out),
        Bench::FirstDone(args) => first_done::run(args, out),
        Bench::Late(args) => first_done::late::run(args, out),
        Bench::Chaos(args) => chaos::run(args, out),
        Bench::ChaosTrainer(args) => chaos::train(args),
        Bench::ChaosTenant(args) => chaos::flood(args),
    }
}

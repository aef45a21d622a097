//! The `rollhouse` command.
//!
//! Parses, hands over to the crates that do the work, and prints: data on stdout, talk on stderr. Start reading
//! at [`args::Cli`], then at the file of a command. Not a goal: deciding anything a library should decide.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod envs;
mod failure;
mod human;
mod output;
mod progress_bar;
mod replay;
mod rollout;
mod table;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::{Failure, Status};
use output::Output;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = Output::stdout();
    let done = run(cli.command, &mut out);
    let flushed = out.flush().map(|()| Status::Done).map_err(Failure::from);
    match done.and_then(|status| flushed.map(|_| status)) {
        Ok(status) => status.into(),
        Err(failure) => failure.report(),
    }
}

fn run(command: Command, out: &mut Output) -> Result<Status, Failure> {
    match command {
        Command::Rollout(args) => rollout::run(&args, out),
        Command::Envs(args) => envs::run(&args, out),
        Command::Replay(args) => replay::run(args.what, out),
        Command::Bench(args) => bench::run(&args, out),
    }
}

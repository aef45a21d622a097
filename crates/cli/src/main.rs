//! The `rollhouse` command.
//!
//! Parses, hands over to the crates that do the work, and prints: data on stdout, talk on stderr. Start reading
//! at [`args::Cli`], then at the file of a command. Not a goal: deciding anything a library should decide.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod certs;
mod close;
mod completions;
mod connect;
mod coordinator;
mod credentials;
mod doctor;
mod envs;
mod failure;
mod health;
mod human;
mod look;
mod manager;
mod node;
mod output;
mod progress_bar;
mod replay;
mod rollout;
mod service;
mod settings;
mod signals;
mod table;
mod token;
mod up;

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
        Command::Node(args) => node::run(&args),
        Command::Up(args) => up::run(&args, out),
        Command::Coordinator(args) => coordinator::run(&args),
        Command::Doctor(args) => doctor::run(&args, out),
        Command::Health(args) => health::run(&args, out),
        Command::Status(args) => look::status(&args, out),
        Command::Nodes(args) => look::nodes(&args, out),
        Command::Sessions(args) => look::sessions(&args, out),
        Command::Close(args) => close::run(&args, out),
        Command::Drain(args) => look::drain(&args, out),
        Command::Undrain(args) => look::undrain(&args, out),
        Command::Certs(args) => certs::run(&args.what, out),
        Command::Token(args) => token::run(&args.what, out),
        Command::Config(args) => settings::run(&args.what, out),
        Command::Completions(args) => completions::for_shell(&args, out),
        Command::Man(args) => completions::pages(&args),
    }
}

//! The `rollhouse` command.
//!
//! It parses arguments, calls the crates that do the work, and prints: data on stdout, messages on stderr. It is a
//! library, so that the Python package has the command too; the binary only calls [`run`]. Start reading at
//! `args::Cli`, then at the file of a command. `rollhouse-bench` shares its public modules. Not a goal: deciding
//! anything a library should decide.
#![forbid(unsafe_code)]

pub mod args;
mod audit;
mod audit_note;
mod bridge;
mod budget;
pub mod certs;
mod close;
mod completions;
mod connect;
mod coordinator;
mod credentials;
mod doctor;
mod envs;
pub mod failure;
#[cfg(feature = "gate")]
mod gate;
mod health;
pub mod human;
mod joining;
pub mod json;
mod logging;
mod look;
mod manager;
mod node;
#[cfg_attr(not(feature = "viewer"), allow(dead_code, reason = "a part serves only playing by hand"))]
mod one_lane;
pub mod output;
#[cfg(feature = "viewer")]
mod play;
mod plugins;
mod policy;
pub mod private_folder;
mod progress_bar;
mod python_envs;
mod recording;
mod replay;
mod rollout;
mod seclusion;
pub mod service;
mod settings;
mod signals;
mod store;
mod store_room;
pub mod table;
mod terminal_line;
pub mod token;
#[cfg(feature = "viewer")]
mod top;
mod traces;
pub mod up;
#[cfg(feature = "viewer")]
mod watch;

use std::ffi::{OsStr, OsString};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::FromArgMatches;

use args::{Cli, Command, command};
use failure::{Failure, Status};
use output::{Output, complain, messages_are_json, say, use_json_messages};
use rollhouse_core::{is_plain, plain};
use traces::Tracer;

/// Runs the command in `line`, whose first word is the program's name, and returns the exit code.
///
/// Blocks until the command has ended. If the command catches Ctrl-C, a second one ends the process. May be called once
/// in a process, which from then on belongs to the command: it takes over signals and stdout.
pub fn run(line: impl IntoIterator<Item = OsString>) -> u8 {
    run_within(None, line)
}

/// Runs the command as [`run`] does, in a process of the Python interpreter `python`, which hosts Python environments
/// where no other is named.
pub fn run_within(python: Option<OsString>, line: impl IntoIterator<Item = OsString>) -> u8 {
    let line: Vec<OsString> = line.into_iter().collect();
    if asks_for_json(&line) {
        use_json_messages();
    }
    let parsed = command().try_get_matches_from(&line);
    let mut cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            return refuse(&error, &line);
        }
    };
    if let Some(python) = &python {
        plugins::run_within(python.clone());
    }
    if let Some(hosting) = cli.command.hosting() {
        hosting.python = hosting.python.take().or_else(|| python.clone());
    }
    let interpreter = python.clone();
    if let Command::Up(args) = &mut cli.command {
        args.python = python;
    }
    if let Err(failure) = clock_is_set(SystemTime::now()) {
        return failure.report() as u8;
    }
    let mut out = Output::stdout();
    let done = match cli.command {
        // These tell of their calls as their settings say.
        command @ (Command::Coordinator(_) | Command::Node(_) | Command::Bridge(_) | Command::Up(_)) => {
            seclusion::seclude(interpreter.as_deref()).and_then(|()| execute(command, &mut out))
        }
        command => Tracer::of_command(|| execute(command, &mut out)),
    };
    let flushed = out.flush().map(|()| Status::Done).map_err(Failure::from);
    let status = done.and_then(|status| flushed.map(|_| status));
    status.unwrap_or_else(|failure| failure.report()) as u8
}

/// Refuses a clock that stands before 1970: what begins at such a time has no name by which it sorts, and no certificate
/// holds.
fn clock_is_set(now: SystemTime) -> Result<(), Failure> {
    now.duration_since(UNIX_EPOCH).map(drop).map_err(|_| {
        Failure::new(Status::Failed, "the clock of this machine stands before 1970")
            .hint("set it, or wait for NTP")
    })
}

/// Prints what clap says instead of a command, and returns the exit code. What was asked for, as help, is no failure.
fn refuse(error: &clap::Error, line: &[OsString]) -> u8 {
    let text = error.render().to_string();
    if messages_are_json() && error.use_stderr() {
        refuse_as_json(error);
    } else if text.lines().all(|line| line.chars().all(is_plain)) && !line.iter().any(|word| has_break(word))
    {
        // Nobody is left to tell if stdout or stderr is gone.
        let _said = error.print();
    } else {
        // It repeats arguments, which a script may have from others: without colours, so that they can be cleaned.
        let mut text = text;
        for word in line {
            let word = word.to_string_lossy();
            let value = word.split_once('=').map_or("", |(_, value)| value);
            for value in [&*word, value].into_iter().filter(|value| value.contains('\n')) {
                text = text.replace(value, &plain(value));
            }
        }
        text.lines().for_each(say);
    }
    u8::try_from(error.exit_code()).unwrap_or(Status::Usage as u8)
}

/// Returns whether a line asks for JSON, also one that cannot be parsed: its error is JSON, too.
fn asks_for_json(line: &[OsString]) -> bool {
    line.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

/// Writes an error of parsing a line as one object: the first sentence, and as hints what else is to be said.
fn refuse_as_json(error: &clap::Error) {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(|paragraph| paragraph.trim().replace('\n', " "));
    let first = paragraphs.next().unwrap_or_default();
    let hints: Vec<String> = paragraphs.filter(|paragraph| !paragraph.is_empty()).collect();
    let code = u8::try_from(error.exit_code()).ok();
    complain(first.strip_prefix("error: ").unwrap_or(&first), &hints, code);
}

fn has_break(word: &OsStr) -> bool {
    word.as_encoded_bytes().contains(&b'\n')
}

fn execute(command: Command, out: &mut Output) -> Result<Status, Failure> {
    match command {
        Command::Rollout(args) => rollout::run(&args, out),
        #[cfg(feature = "viewer")]
        Command::Play(args) => play::run(&args, out),
        Command::Envs(args) => envs::run(&args, out),
        Command::Gate(args) => gate_of(&args, out),
        Command::Replay(args) => replay::run(args.what, out),
        Command::Policy(args) => policy::run(&args.what, out),
        Command::Store(args) => store::run(&args.what, out),
        Command::Node(args) => node::run(&args),
        Command::Bridge(args) => bridge::run(&args.what),
        Command::Up(args) => up::run(&args, out),
        Command::Coordinator(args) => coordinator::run(&args),
        Command::Doctor(args) => doctor::run(&args, out),
        Command::Health(args) => health::run(&args, out),
        Command::Status(args) => look::status(&args, out),
        #[cfg(feature = "viewer")]
        Command::Top(args) => top::run(&args),
        Command::Nodes(args) => look::nodes(&args, out),
        Command::Sessions(args) => look::sessions(&args, out),
        #[cfg(feature = "viewer")]
        Command::Watch(args) => watch::run(&args, out),
        Command::Close(args) => close::run(&args, out),
        Command::Drain(args) => look::drain(&args, out),
        Command::Undrain(args) => look::undrain(&args, out),
        Command::Certs(args) => certs::run(&args.what, out),
        Command::Token(args) => token::run(&args.what, out),
        Command::Audit(args) => audit::run(&args, out),
        Command::Config(args) => settings::run(&args.what, out),
        Command::Completions(args) => completions::for_shell(&args, out),
        Command::Man(args) => completions::pages(&args),
        Command::PluginWorker(args) => plugins::work(args.host),
    }
}

#[cfg(feature = "gate")]
fn gate_of(args: &args::GateArgs, out: &mut Output) -> Result<Status, Failure> {
    gate::run(&args.what, out)
}

#[cfg(not(feature = "gate"))]
fn gate_of(_: &args::GateArgs, _: &mut Output) -> Result<Status, Failure> {
    let message = "this program was built without gates";
    Err(Failure::new(Status::Usage, message)
        .hint("the cargo feature `gate` adds them; images and wheels have it"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_before_1970_is_refused_in_words() {
        assert!(clock_is_set(UNIX_EPOCH).is_ok());
        let failure = clock_is_set(UNIX_EPOCH - Duration::from_secs(1)).unwrap_err();
        assert_eq!(failure.message(), "the clock of this machine stands before 1970");
    }
}

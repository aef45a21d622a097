//! Starts this program once more, as another process.

use std::io;
use std::process::Command;

/// The first word of a command line that is passed to the `rollhouse` command.
pub(crate) const COMMAND: &str = "rollhouse";

/// Returns a command that runs another bench of this program.
pub(crate) fn bench() -> io::Result<Command> {
    std::env::current_exe().map(Command::new)
}

/// Returns a command that runs the `rollhouse` command, in a process of this program.
pub(crate) fn command() -> io::Result<Command> {
    let mut command = bench()?;
    command.arg(COMMAND);
    Ok(command)
}

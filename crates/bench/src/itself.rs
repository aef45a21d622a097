//! Starting this program once more.

use std::io;
use std::process::Command;

/// The first word of a command line that the `rollhouse` command is to run.
pub(crate) const COMMAND: &str = "rollhouse";

/// A command that runs another bench of this program.
pub(crate) fn bench() -> io::Result<Command> {
    std::env::current_exe().map(Command::new)
}

/// A command that runs the `rollhouse` command, in a process of this program.
pub(crate) fn command() -> io::Result<Command> {
    let mut command = bench()?;
    command.arg(COMMAND);
    Ok(command)
}

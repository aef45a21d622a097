//! Starting this program once more.

use std::io;
use std::process::Command;

/// A command that runs this program: the binary, or where an interpreter runs the command, the interpreter.
pub(crate) fn command() -> io::Result<Command> {
    let program = std::env::current_exe()?;
    let is_python = program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let mut command = Command::new(program);
    if is_python {
        command.args(["-m", "rollhouse"]);
    }
    Ok(command)
}

//! The `rollhouse` binary; the command is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    rollhouse_cli::run(std::env::args_os()).into()
}

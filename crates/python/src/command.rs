//! The `rollhouse` command, for whoever has installed the package.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command of that line, whose first word is the program's name, and gives its exit code. The process belongs
/// to it from then on.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, line: Vec<OsString>) -> u8 {
    py.detach(|| rollhouse_cli::run(line))
}

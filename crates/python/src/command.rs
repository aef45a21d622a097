//! The `rollhouse` command, for users who have installed the package.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command `line`, whose first word is the program's name, and returns its exit code. The process belongs to
/// the command from then on. `python` is the interpreter of Python envs where the line names no other.
#[pyfunction]
#[pyo3(signature = (line, python=None))]
pub(crate) fn run_command(py: Python<'_>, line: Vec<OsString>, python: Option<OsString>) -> u8 {
    py.detach(|| rollhouse_cli::run_within(python, line))
}

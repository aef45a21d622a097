//! Processes whose output goes to logs beside their folders.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rollhouse_cli::failure::Failure;

use crate::failed::failed;

/// Starts a process in `folder`; its output goes to the log of that name there.
pub(super) fn spawn(folder: &Path, name: &str, mut command: Command) -> Result<Child, Failure> {
    let log = File::options().create(true).append(true).open(log_of(folder, name)).map_err(failed)?;
    command.current_dir(folder).stdin(Stdio::null());
    command.stdout(log.try_clone().map_err(failed)?).stderr(log);
    command.spawn().map_err(failed)
}

/// Returns the path of the log of the process with that name.
pub(super) fn log_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

/// The name of the coordinator's process and data folder.
pub(super) const COORDINATOR: &str = "coordinator";

//! The end of a step, and the commands that steps run.

use std::fmt;
use std::path::Path;
use std::process::Command;

/// The end of a step.
pub(crate) enum Outcome {
    /// It passed; the text is what it found, in a few words.
    Passed(String),
    /// It could not run here; the text is the reason.
    Skipped(String),
    /// It failed; the text is what is wrong.
    Failed(String),
}

/// Runs a command and shows its output; any ending but success is a failure that names the command.
pub(crate) fn shown(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", line(command))),
        Err(error) => Err(format!("cannot start {}: {error}", line(command))),
    }
}

/// Returns a command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Returns cargo at the workspace's root, with these arguments.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_own_package(&mut command);
    command.args(arguments).current_dir(root);
    command
}

/// Hides from a program what cargo has told this one of its own package. Build scripts of dependencies that look at such
/// variables would run again, and all that depends on them be compiled again, whenever cargo is called with and without
/// xtask in turn.
pub(crate) fn forget_own_package(command: &mut Command) {
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_package)) {
        command.env_remove(name);
    }
}

/// Arguments of cargo that build every binary and every test at once, so that what they share is compiled once: cargo
/// gives a dependency the features that the packages of one call want.
pub(crate) const BUILD_ALL: [&str; 6] = ["build", "--quiet", "--workspace", "--bins", "--tests", "--locked"];

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(found) => write!(f, "ok       {found}"),
            Self::Skipped(why) => write!(f, "skipped  {why}"),
            Self::Failed(what) => write!(f, "FAILED   {what}"),
        }
    }
}

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

/// Returns a command that runs behind others: it has a processor when no other program wants it. Where there is no `nice`
/// it runs as it is.
pub(crate) fn behind(command: Command) -> Command {
    if Command::new("nice").arg("true").status().is_err() {
        return command;
    }
    let mut nice = Command::new("nice");
    nice.args(["-n", LOWEST]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

/// Niceness at which a program gets a seventieth of a processor that another wants.
const LOWEST: &str = "19";

/// Features with which the workspace is built whole: those of the wheel that is tested, so that what is compiled serves both.
pub(crate) const FEATURES_OF_TESTS: &str = "rollhouse-python/as-tested";

/// Arguments of cargo that build every binary, example and test at once, so that what they share is compiled once: cargo
/// gives a dependency the features that the packages of one call want. The program has the features that users' have.
pub(crate) const BUILD_ALL: [&str; 9] = [
    "build",
    "--quiet",
    "--workspace",
    "--bins",
    "--examples",
    "--tests",
    "--locked",
    "--features",
    FEATURES_OF_TESTS,
];

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(found) => write!(f, "ok       {found}"),
            Self::Skipped(why) => write!(f, "skipped  {why}"),
            Self::Failed(what) => write!(f, "FAILED   {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_command_that_runs_behind_others_has_its_arguments_folder_and_variables() {
        let mut command = Command::new("program");
        command.arg("--list").current_dir("/w").env("A", "b").env_remove("C");
        let nice = behind(command);
        assert_eq!(line(&nice), "nice -n 19 program --list");
        assert_eq!(nice.get_current_dir(), Some(Path::new("/w")));
        assert_eq!(nice.get_envs().count(), 2);
    }
}

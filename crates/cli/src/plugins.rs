//! The envs that a command knows: the built-in ones and those of plug-ins.

use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::Duration;

use rollhouse_core::limits::LAUNCH_DEADLINE;
use rollhouse_core::{LaneDeadlines, Plugin};
use rollhouse_env::{Registry, UnknownEnv};
use rollhouse_host::{Census, Launcher, PluginHost, serve_plugin};

use crate::failure::{Failure, Status};
use crate::logging::Logging;

/// Notes the Python interpreter in which this command runs. It runs the workers of plug-ins too.
pub(crate) fn run_within(python: OsString) {
    // The command runs once in a process.
    let _first = INTERPRETER.set(python);
}

/// Interpreter in which this command runs, if it is not a program of its own.
static INTERPRETER: OnceLock<OsString> = OnceLock::new();

/// How processes of plug-ins are waited for and counted.
pub(crate) struct Hosting {
    /// Maximum time in which a worker has to make its lanes, and the first one to try each env out as well.
    pub(crate) launch_deadline: Duration,
    pub(crate) lane_deadlines: LaneDeadlines,
    /// Census in which they are counted, if somebody looks at one.
    pub(crate) census: Option<Census>,
}

impl Default for Hosting {
    /// Returns that of a command, which has no settings of it.
    fn default() -> Self {
        Self { launch_deadline: LAUNCH_DEADLINE, lane_deadlines: LaneDeadlines::default(), census: None }
    }
}

/// Makes the registry of built-in envs and of those of plug-ins, which it loads. Blocks for as long as that takes.
///
/// # Errors
/// If a plug-in cannot be loaded.
pub(crate) fn registry(plugins: &[Plugin], hosting: Hosting) -> Result<Registry, Failure> {
    let registry = Registry::builtin();
    if plugins.is_empty() {
        return Ok(registry);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let host = PluginHost {
        command: worker_command()?,
        workers: None,
        launch_deadline: hosting.launch_deadline,
        lane_deadlines: hosting.lane_deadlines,
        launcher: Launcher::new(cores.max(2)),
        census: hosting.census,
    };
    host.register(&registry, plugins).map_err(|error| Failure::of(Status::Usage, &error))?;
    Ok(registry)
}

/// Returns the command line of this program as a worker, without the process id.
fn worker_command() -> Result<Vec<OsString>, Failure> {
    let mut command = match INTERPRETER.get() {
        Some(python) => {
            vec![python.clone(), "-c".into(), COMMAND.into()]
        }
        None => {
            let program = std::env::current_exe().map_err(|error| {
                Failure::new(
                    Status::Failed,
                    format_args!("plug-ins run in processes of this program, which cannot be found: {error}"),
                )
            })?;
            vec![program.into()]
        }
    };
    command.push("plugin-worker".into());
    Ok(command)
}

/// Logs from here on why lanes of plug-ins are lost, in a command that has no log of its own.
pub(crate) fn log_losses() {
    // Where something else takes what is logged, it takes this as well.
    let _begun = Logging::begin_warnings("plug-ins");
}

/// Steps the lanes of a plug-in for `host`, the process that started this one.
pub(crate) fn work(host: u32) -> Result<Status, Failure> {
    serve_plugin(host).map(|()| Status::Done).map_err(|error| Failure::of(Status::Failed, &error))
}

/// Makes the failure of an env that the command does not know.
pub(crate) fn unknown_env(error: &UnknownEnv) -> Failure {
    let failure = Failure::of(Status::Usage, error)
        .hint("`rollhouse envs` lists all of them; an env of a plug-in needs --plugin PATH");
    let id = &error.id;
    match is_registered_form(id) {
        true => failure.hint(format_args!(
            "one of Gymnasium's is named gymnasium:{id}, or gymnasium:PACKAGE:{id} if a package registers it"
        )),
        false => failure,
    }
}

/// Returns whether an id has the form of those that Gymnasium registers: `Name-v0` or `namespace/Name-v0`.
fn is_registered_form(id: &str) -> bool {
    let version =
        id.rsplit_once("-v").map(|(name, version)| (name.rsplit('/').next().unwrap_or(name), version));
    version.is_some_and(|(name, version)| {
        !name.is_empty() && !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The program of an interpreter that runs this command. It finds no module in the folder that it is started in, which is
/// nobody's package.
const COMMAND: &str = "import sys; sys.path[:] = [path for path in sys.path if path]; from rollhouse_command import main; main()";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_env_that_may_be_gymnasiums_is_answered_with_how_that_is_named() {
        for (id, named) in [
            ("ALE/Pong-v5", true),
            ("LunarLander-v3", true),
            ("Pong", false),
            ("-v1", false),
            ("a-vb", false),
        ] {
            let error = UnknownEnv { id: id.to_owned(), nearest: Vec::new() };
            let hint = format!("gymnasium:{id}, or gymnasium:PACKAGE:{id}");
            assert_eq!(format!("{:?}", unknown_env(&error)).contains(&hint), named, "{id}");
        }
    }
}

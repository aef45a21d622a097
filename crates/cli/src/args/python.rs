//! The arguments by which Python environments are found and started.

use std::ffi::OsString;

use clap::Args;

/// How Python environments are hosted on this machine.
#[derive(Debug, Args)]
#[command(next_help_heading = "Python environments")]
pub(crate) struct PythonArgs {
    /// Interpreter of gymnasium:ID and package.module:Class; it needs the package rollhouse [default: the one that runs
    /// this command, else python3]
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<OsString>,
    /// Package that may be imported beside gymnasium; may be given several times
    #[arg(long, value_name = "PACKAGE")]
    pub(crate) allow: Vec<String>,
    /// The most processes that step lanes [default: one per core]
    #[arg(long, value_name = "W", value_parser = workers)]
    pub(crate) workers: Option<usize>,
    /// Arguments of the environment, a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub(crate) env_kwargs: Option<Object>,
}

/// A JSON object.
pub(crate) type Object = serde_json::Map<String, serde_json::Value>;

impl PythonArgs {
    /// Returns an argument that was given, if there is one.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let Self { python, allow, workers, env_kwargs } = self;
        let given = [
            ("--python", python.is_some()),
            ("--allow", !allow.is_empty()),
            ("--workers", workers.is_some()),
            ("--env-kwargs", env_kwargs.is_some()),
        ];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }
}

fn workers(text: &str) -> Result<usize, String> {
    super::bounded(text, "workers", rollhouse_host::MAX_WORKERS)
}

fn object(text: &str) -> Result<Object, String> {
    serde_json::from_str(text).map_err(|error| format!("no JSON object: {error}"))
}

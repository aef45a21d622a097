//! The arguments by which Python environments are found and started.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use rollhouse_config::{Bytes, Deadline, Given, Setting};
use rollhouse_core::limits::{LANE_DEADLINE, MAX_CONNECT_RETRIES};
use rollhouse_core::{DeadlineSettings, LaneDeadlines};

use super::{help, number};

/// How Python environments are hosted on this machine.
#[derive(Debug, Args)]
pub(crate) struct HostingArgs {
    /// Interpreter of gymnasium:ID and package.module:Class; it needs the package rollhouse [default of rollout: the one
    /// that runs this command, else python3; verify, play and fork import nothing without it]
    #[arg(long, value_name = "PATH", help_heading = help::PYTHON)]
    pub(crate) python: Option<OsString>,
    /// Package that may be imported beside gymnasium; may be given several times
    #[arg(long, value_name = "PACKAGE", help_heading = help::PYTHON)]
    pub(crate) allow: Vec<String>,
    /// The most processes that step lanes [default: one per core]
    #[arg(long, value_name = "W", value_parser = workers, help_heading = help::PYTHON)]
    pub(crate) workers: Option<usize>,
    /// Memory of its own that each of them may have, as in 2 GiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = memory, help_heading = help::PYTHON)]
    pub(crate) worker_memory: Option<u64>,
    /// Times that an environment which is a client of a game or simulator tries again to connect [default: 120]
    #[arg(long, value_name = "N", value_parser = retries, help_heading = help::PYTHON)]
    pub(crate) connect_retries: Option<u32>,
    #[command(flatten)]
    pub(crate) deadlines: DeadlineArgs,
}

/// The times that processes of Python environments and their lanes may take.
#[derive(Debug, Args)]
pub(crate) struct DeadlineArgs {
    /// Time in which a process has to make its environments, as in 10 min, at most 24 h [default: 2 min]
    #[arg(long, value_name = "TIME", value_parser = deadline, help_heading = help::PYTHON)]
    pub(crate) launch_within: Option<Duration>,
    /// Time in which one that is a client of a game or simulator has to connect [default: 2 min]
    #[arg(long, value_name = "TIME", value_parser = deadline, help_heading = help::PYTHON)]
    pub(crate) connect_within: Option<Duration>,
    /// Time that a step may take before the lane is lost as hung [default: 25 s]
    #[arg(long, value_name = "TIME", value_parser = deadline, help_heading = help::PYTHON)]
    pub(crate) step_within: Option<Duration>,
    /// Time that a reset may take before the lane is lost as hung [default: 25 s]
    #[arg(long, value_name = "TIME", value_parser = deadline, help_heading = help::PYTHON)]
    pub(crate) reset_within: Option<Duration>,
}

/// How Python environments are hosted on this machine, and made.
#[derive(Debug, Args)]
pub(crate) struct PythonArgs {
    #[command(flatten)]
    pub(crate) hosting: HostingArgs,
    /// Arguments of the environment, a JSON object
    #[arg(long, value_name = "JSON", value_parser = object, help_heading = help::PYTHON)]
    pub(crate) env_kwargs: Option<Object>,
    /// Take the environment as one whose episodes come out the same again from seed and actions; it is tried out
    #[arg(long, help_heading = help::PYTHON)]
    pub(crate) deterministic: bool,
    /// Engine of OpenRA that openra://MAP may connect to, HOST:PORT as in --env-kwargs; may be given several times
    #[cfg(feature = "openra")]
    #[arg(long, value_name = "HOST:PORT", value_parser = engine)]
    pub(crate) openra_engine: Vec<String>,
}

/// A JSON object.
pub(crate) type Object = serde_json::Map<String, serde_json::Value>;

impl PythonArgs {
    /// Returns an argument that was given, if there is one.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let of_the_env =
            [("--env-kwargs", self.env_kwargs.is_some()), ("--deterministic", self.deterministic)];
        let given = || of_the_env.into_iter().find_map(|(name, given)| given.then_some(name));
        #[cfg(feature = "openra")]
        let engine = (!self.openra_engine.is_empty()).then_some("--openra-engine");
        #[cfg(not(feature = "openra"))]
        let engine = None;
        self.hosting.given().or_else(given).or(engine)
    }

    /// Returns the arguments of the environment as nodes are sent them: JSON, or nothing.
    pub(crate) fn kwargs(&self) -> String {
        let json = |object: &Object| serde_json::Value::Object(object.clone()).to_string();
        self.env_kwargs.as_ref().map(json).unwrap_or_default()
    }
}

impl DeadlineArgs {
    /// Returns the times that lanes have.
    pub(crate) fn of_lanes(&self) -> LaneDeadlines {
        let settings = Some(DeadlineSettings::OF_COMMANDS);
        let step = self.step_within.unwrap_or(LANE_DEADLINE);
        let reset = self.reset_within.unwrap_or(LANE_DEADLINE);
        LaneDeadlines { step, reset, settings, ..LaneDeadlines::default() }
    }
}

impl HostingArgs {
    /// Returns an argument that was given, if there is one.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let Self { python, allow, workers, worker_memory, connect_retries, deadlines } = self;
        let DeadlineArgs { launch_within, connect_within, step_within, reset_within } = deadlines;
        let given = [
            ("--python", python.is_some()),
            ("--allow", !allow.is_empty()),
            ("--workers", workers.is_some()),
            ("--worker-memory", worker_memory.is_some()),
            ("--connect-retries", connect_retries.is_some()),
            ("--launch-within", launch_within.is_some()),
            ("--connect-within", connect_within.is_some()),
            ("--step-within", step_within.is_some()),
            ("--reset-within", reset_within.is_some()),
        ];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }
}

#[cfg(feature = "openra")]
fn engine(text: &str) -> Result<String, String> {
    use rollhouse_worlds::openra::is_engine;
    if is_engine(text) { Ok(text.to_owned()) } else { Err("HOST:PORT of an engine is wanted".to_owned()) }
}

fn retries(text: &str) -> Result<u32, String> {
    let retries = number::any(text).ok().filter(|&retries| retries <= MAX_CONNECT_RETRIES);
    retries.ok_or_else(|| format!("there can be 0 to {MAX_CONNECT_RETRIES} retries"))
}

fn deadline(text: &str) -> Result<Duration, String> {
    let mut time = Deadline::<1>::seconds(1);
    let set = time.set(&Given::Word(text.to_owned()));
    set.map_err(|detail| if detail.is_empty() { time.wanted() } else { detail })?;
    Ok(time.0.0)
}

fn workers(text: &str) -> Result<usize, String> {
    super::bounded(text, "workers", rollhouse_host::MAX_WORKERS)
}

fn memory(text: &str) -> Result<u64, String> {
    let mut bytes = Bytes(0);
    let set = bytes.set(&Given::Word(text.to_owned()));
    set.map_err(|detail| if detail.is_empty() { bytes.wanted() } else { detail })?;
    if bytes.0 == 0 { Err("at least 1 byte".to_owned()) } else { Ok(bytes.0) }
}

fn object(text: &str) -> Result<Object, String> {
    serde_json::from_str(text).map_err(|error| format!("no JSON object: {error}"))
}

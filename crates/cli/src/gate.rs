//! `rollhouse gate`: listeners that speak other simulators' protocols, with lanes behind them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_client::OpenError;
use rollhouse_config::{Log, Traces};
use rollhouse_core::{EnvId, read_regular_text};
use rollhouse_gate::openenv::OpenenvSettings;
use rollhouse_gate::openra::BridgeSettings;
use rollhouse_gate::{BeginRecording, ClusterLanes, EmbeddedLanes, Gate, GateError, Lanes};
use rollhouse_host::ConnectWatch;
use rollhouse_replay::Recorder;
use serde::Serialize;
use tracing::info;

use crate::args::{GateLanesArgs, GateWhat, OpenenvArgs, OpenraArgs};
use crate::connect::{connect, request_failure};
use crate::failure::{Failure, Status};
use crate::logging::Logging;
use crate::output::Output;
use crate::recording::{header_of, open_recorder, record_failure, refuse_store};
use crate::service::until_ended;
use crate::signals::ServiceSignals;
use crate::{python_envs, signals};

pub(crate) fn run(what: &GateWhat, out: &mut Output) -> Result<Status, Failure> {
    let logging = Logging::begin("rollhouse-gate", &Log::default(), &Traces::default())?;
    let done = match what {
        GateWhat::Openra(args) => openra(args, &logging, out),
        GateWhat::Openenv(args) => openenv(args, &logging, out),
    };
    logging.end(done)
}

fn openra(args: &OpenraArgs, logging: &Logging, out: &mut Output) -> Result<Status, Failure> {
    let asked = signals::of_service()?;
    let token = args.token_file.as_deref().map(token).transpose()?;
    let recorder = args.lanes.data.as_deref().map(recorder).transpose()?;
    let lanes = lanes(&args.env, &args.lanes, recorder.as_ref(), "openra")?;
    let settings = BridgeSettings {
        sessions: args.sessions,
        ticks_per_second: args.ticks_per_second.into(),
        any_map: args.any_map,
        seed: args.seed,
    };
    let gate = Gate::openra(args.listen, token.as_deref(), lanes, settings).map_err(gate_failure)?;
    let served = Served { address: gate.address().to_string(), env: &args.env };
    served.print(args.json, out)?;
    info!(address = served.address, env = %args.env, "OpenRA's bridge is served");
    until_stopped(gate, &asked, logging, recorder)
}

fn openenv(args: &OpenenvArgs, logging: &Logging, out: &mut Output) -> Result<Status, Failure> {
    let asked = signals::of_service()?;
    let token = args.token_file.as_deref().map(token).transpose()?;
    let recorder = args.lanes.data.as_deref().map(recorder).transpose()?;
    let lanes = lanes(&args.env, &args.lanes, recorder.as_ref(), "openenv")?;
    let settings = OpenenvSettings { sessions: args.sessions, idle: Duration::from_secs(args.idle) };
    let gate = Gate::openenv(args.listen, token.as_deref(), lanes, settings).map_err(gate_failure)?;
    let served = Served { address: gate.address().to_string(), env: &args.env };
    served.print(args.json, out)?;
    info!(address = served.address, env = %args.env, "OpenEnv's protocol is served");
    until_stopped(gate, &asked, logging, recorder)
}

/// Waits until the gate is to end or has failed, ends it in order, and seals what was recorded.
fn until_stopped(
    gate: Gate,
    asked: &ServiceSignals,
    logging: &Logging,
    recorder: Option<Arc<Recorder>>,
) -> Result<Status, Failure> {
    until_ended(asked, logging, &[], || !gate.is_serving());
    let was_serving = gate.is_serving();
    gate.stop();
    if let Some(recorder) = recorder.map(Arc::into_inner) {
        // A world that hangs may still have it; what it wrote is there all the same.
        recorder.map(Recorder::finish).transpose().map_err(|error| record_failure(&error))?;
    }
    if was_serving { Ok(Status::Done) } else { Err(Failure::new(Status::Failed, "the gate has failed")) }
}

/// Returns where lanes come from: the nodes of a cluster, if one is named, else this process.
fn lanes(
    env: &EnvId,
    args: &GateLanesArgs,
    recorder: Option<&Arc<Recorder>>,
    policy: &'static str,
) -> Result<Arc<dyn Lanes>, Failure> {
    let options = args.env_options.options.clone();
    if args.data.is_none() && args.cluster.url().is_some() {
        let cluster = connect(&args.cluster)?;
        let lanes = ClusterLanes::open(cluster, env.clone(), options);
        return Ok(Arc::new(lanes.map_err(open_failure)?));
    }
    let entry = python_envs::of_id(env, &args.plugins, &args.python, false, &ConnectWatch::default())?;
    let lanes = EmbeddedLanes::new(entry, options, recorder.map(|recorder| recording(recorder, policy)));
    Ok(Arc::new(lanes.map_err(|error| Failure::of(Status::Usage, &error))?))
}

fn open_failure(error: OpenError) -> Failure {
    match &error {
        OpenError::Request(error) => request_failure(error),
        _ => Failure::of(Status::Refused, &error),
    }
}

/// The output of `--json`; the field names are part of the interface.
#[derive(Debug, Serialize)]
struct Served<'a> {
    address: String,
    env: &'a str,
}

impl Served<'_> {
    fn print(&self, is_json: bool, out: &mut Output) -> Result<(), Failure> {
        if is_json {
            out.json(self)?;
        } else {
            writeln!(out, "{}", self.address)?;
        }
        Ok(out.flush()?)
    }
}

fn token(file: &Path) -> Result<String, Failure> {
    let text = read_regular_text(file, MAX_TOKEN_BYTES).map_err(|error| {
        Failure::new(Status::Usage, format_args!("{} cannot be read: {error}", file.display()))
    })?;
    let token = text.trim();
    let is_plain = token.len() >= MIN_TOKEN_BYTES && token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain { Ok(token.to_owned()) } else { Err(bad_token(file)) }
}

fn bad_token(file: &Path) -> Failure {
    let message = format!(
        "{} has no token: {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} letters, digits and signs are wanted",
        file.display()
    );
    Failure::new(Status::Usage, message).hint("openssl rand -hex 32 draws one")
}

fn recorder(dir: &Path) -> Result<Arc<Recorder>, Failure> {
    let way_out = "--data DIR records into another folder";
    refuse_store(dir, way_out)?;
    open_recorder(dir, "--data", way_out).map(Arc::new)
}

/// Returns how sessions are recorded, with a name as the policy of their clients.
fn recording(recorder: &Arc<Recorder>, policy: &'static str) -> Box<BeginRecording> {
    let recorder = Arc::clone(recorder);
    Box::new(move |entry, config| recorder.begin_run(header_of(entry, config.clone(), policy, None)))
}

fn gate_failure(error: GateError) -> Failure {
    match &error {
        GateError::Shape(_) => Failure::of(Status::Usage, &error)
            .hint("`rollhouse envs Skirmish-v0` shows the observations and actions that are wanted"),
        GateError::Open(_) => Failure::of(Status::Usage, &error).hint("--token-file names a file with one"),
        GateError::Listen { .. } => Failure::of(Status::Failed, &error)
            .hint("--listen HOST:PORT listens elsewhere, with port 0 on a free one"),
        _ => Failure::of(Status::Failed, &error),
    }
}

/// Lengths of a token.
const MIN_TOKEN_BYTES: usize = 16;
const MAX_TOKEN_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_text_of_its_file_and_one_that_is_short_or_has_blanks_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            token(&path)
        };
        assert_eq!(read("0123456789abcdef\n").unwrap(), "0123456789abcdef");
        for bad in ["", "0123456789", "0123456789 abcdef"] {
            let failure = read(bad).unwrap_err();
            assert!(failure.message().contains("16 to 4096"), "{}", failure.message());
        }
        assert!(token(&dir.path().join("none")).is_err());
    }
}

//! Environments that this machine learns: what provides them, and how Python is found.

use std::ffi::OsString;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_config::{Hosting, Openra, Python};
use rollhouse_core::limits::{CONNECT_DEADLINE, CONNECT_RETRIES, LAUNCH_DEADLINE};
use rollhouse_core::{EnvId, LaneDeadlines};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_host::{
    Census, Connect, ConnectWatch, EnvProvider, EnvProviders, EnvRequest, InfoRequest, KeptProgram, Launcher,
    LearnError, LearnReason, PythonHost, RecordedEnvs,
};
use rollhouse_replay::{Envs, LearnEnv, RunInfo};

use crate::args::{HostingArgs, PluginArgs, PythonArgs};
use crate::failure::{Failure, Status};
use crate::logging::Logging;
use crate::plugins::unknown_env;

/// Returns the env of an id, for every command that takes one: of this program, of a plug-in, or of Python, which a worker makes
/// and which may `draw` itself; `watch` shows what connects. Blocks until a worker has made one.
pub(crate) fn of_id(
    id: &EnvId,
    plugins: &PluginArgs,
    python: &PythonArgs,
    draw: bool,
    watch: &ConnectWatch,
) -> Result<Arc<EnvEntry>, Failure> {
    if id.source().is_learned() {
        let env = EnvRequest {
            id: id.clone(),
            kwargs: python.env_kwargs.clone().unwrap_or_default(),
            deterministic: python.deterministic.then_some(true),
            infos: InfoRequest::default(),
        };
        let all = with_worlds(providers(&python.hosting, draw), python);
        let learned = all.learn_in_time(&env, watch);
        let entry = learned.and_then(|env| env.entry(watch, None)).map_err(|error| failure_of(id, &error))?;
        return Ok(Arc::new(entry));
    }
    if let Some(name) = python.given() {
        let message =
            format_args!("{name} is for environments of Python and of other programs, and {id} is neither");
        return Err(Failure::new(Status::Usage, message));
    }
    plugins.registry()?.get(id).map_err(|error| unknown_env(&error))
}

/// Returns the Python envs in which recorded episodes are stepped again, and which `draw` themselves then; `None` if no
/// interpreter is named. Reasons for which their lanes are lost are logged from here on, except of those that draw: the
/// screen that shows them has the terminal. Starts nothing.
pub(crate) fn of_recordings(args: &HostingArgs, draw: bool) -> Result<Option<RecordedEnvs>, Failure> {
    match (&args.python, args.given()) {
        (Some(_), _) => {
            if !draw {
                // Where something else takes what is logged, it takes this as well.
                let _begun = Logging::begin_warnings("replay");
            }
            Ok(Some(RecordedEnvs::new(providers(args, draw).into())))
        }
        (None, Some(name)) => {
            let message = format_args!("{name} is for Python environments, which need --python as well");
            Err(Failure::new(Status::Usage, message).hint("--python names the interpreter that hosts them"))
        }
        (None, None) => Ok(None),
    }
}

/// Returns how those envs are learned, each when an episode of it is stepped.
pub(crate) fn learner(hosted: Option<&RecordedEnvs>) -> Option<Box<LearnEnv<'_>>> {
    let hosted = hosted?;
    Some(Box::new(move |run: &RunInfo| {
        let entry = hosted.entry(&run.spec, &run.arguments);
        entry.map_err(|error| Failure::of(Status::Failed, &*error).message().to_owned())
    }))
}

/// Returns the envs of the registry, and those that are learned.
pub(crate) fn envs<'a>(registry: &'a Registry, learn: Option<&'a LearnEnv<'a>>) -> Envs<'a> {
    match learn {
        Some(learn) => Envs::learning(registry, learn),
        None => Envs::from(registry),
    }
}

/// Returns what provides envs to a command that learns them itself, and whether they `draw` themselves.
fn providers(args: &HostingArgs, draw: bool) -> PythonHost {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    PythonHost {
        interpreter: args.python.clone().unwrap_or_else(|| "python3".into()),
        allow: ["gymnasium"]
            .into_iter()
            .chain(args.allow.iter().map(String::as_str))
            .map(String::from)
            .collect(),
        workers: args.workers,
        launch_deadline: args.deadlines.launch_within.unwrap_or(LAUNCH_DEADLINE),
        lane_deadlines: args.deadlines.of_lanes(),
        connect: Connect {
            retries: args.connect_retries.unwrap_or(CONNECT_RETRIES),
            deadline: args.deadlines.connect_within.unwrap_or(CONNECT_DEADLINE),
        },
        launcher: Launcher::new(cores.max(2)),
        memory: args.worker_memory,
        census: None,
        draw,
    }
}

/// Returns what provides envs to a command: Python, and worlds of the engines that it names.
#[cfg(feature = "openra")]
fn with_worlds(host: PythonHost, python: &PythonArgs) -> EnvProviders {
    let worlds = rollhouse_worlds::openra::OpenraWorlds::new(python.openra_engine.iter().cloned());
    EnvProviders::new([Arc::new(worlds) as Arc<dyn EnvProvider>, Arc::new(host)])
}

#[cfg(not(feature = "openra"))]
fn with_worlds(host: PythonHost, _: &PythonArgs) -> EnvProviders {
    EnvProviders::from(host)
}

/// Makes the failure of an env that cannot be learned, with the way to mend it where its kind has another than most.
fn failure_of(id: &EnvId, error: &LearnError) -> Failure {
    if id.starts_with("openra://") && error.reason() == LearnReason::NotAllowed {
        return Failure::of(Status::Failed, error).hint("--openra-engine HOST:PORT permits it");
    }
    failure(error)
}

/// Returns what provides envs to a node, whose processes are counted in that census: Python, if its settings name an
/// interpreter, and worlds of engines, if they name any.
///
/// # Errors
/// If this program was built without what the settings ask for.
pub(crate) fn of_node(
    settings: &Hosting,
    lane_deadlines: LaneDeadlines,
    census: &Census,
) -> Result<EnvProviders, Failure> {
    let python = python_of_node(&settings.python, lane_deadlines, census);
    let python = python.map(|host| Arc::new(host) as Arc<dyn EnvProvider>);
    Ok(EnvProviders::new(engines_of_node(&settings.openra)?.into_iter().chain(python)))
}

/// Starts the engine that a node's settings name; it ends with the value.
pub(crate) fn engine_of_node(settings: &Openra) -> Result<Option<KeptProgram>, Failure> {
    let started = settings.launch.as_deref().map(KeptProgram::start).transpose();
    started.map_err(|error| {
        let line = settings.launch.as_deref().unwrap_or_default();
        Failure::new(Status::Usage, format_args!("openra.launch: `{line}` cannot be started: {error}"))
    })
}

#[cfg(feature = "openra")]
fn engines_of_node(settings: &Openra) -> Result<Option<Arc<dyn EnvProvider>>, Failure> {
    let worlds = rollhouse_worlds::openra::OpenraWorlds::new(settings.engines.0.iter().cloned());
    Ok((!settings.engines.0.is_empty()).then(|| Arc::new(worlds) as Arc<dyn EnvProvider>))
}

#[cfg(not(feature = "openra"))]
fn engines_of_node(settings: &Openra) -> Result<Option<Arc<dyn EnvProvider>>, Failure> {
    if settings.engines.0.is_empty() {
        return Ok(None);
    }
    let what = "openra.engines is set, but this program was built without the feature openra";
    Err(Failure::new(Status::Usage, what))
}

fn python_of_node(settings: &Python, lane_deadlines: LaneDeadlines, census: &Census) -> Option<PythonHost> {
    let interpreter = settings.interpreter.as_ref().map(OsString::from)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Some(PythonHost {
        interpreter,
        allow: settings.allow.0.clone(),
        // Bounded by the type of the setting.
        workers: (settings.workers.0 > 0).then_some(settings.workers.0 as usize),
        launch_deadline: settings.launch_within.0.0,
        lane_deadlines,
        connect: Connect {
            // Bounded by the type of the setting.
            retries: settings.connect_retries.0 as u32,
            deadline: settings.connect_within.0.0,
        },
        launcher: Launcher::new(settings.launches_on(cores)),
        memory: (settings.memory.0 > 0).then_some(settings.memory.0),
        census: Some(census.clone()),
        draw: false,
    })
}

/// Returns the `python3` that is found by `PATH`, if it has what hosting Python envs needs. Blocks for as long as an interpreter
/// takes to start, at most [`LOOK_WITHIN`].
pub(crate) fn of_path() -> Option<String> {
    let mut look = Command::new("python3");
    look.args(["-c", LOOK]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut looking = look.spawn().ok()?;
    let began = Instant::now();
    let ended = loop {
        match looking.try_wait() {
            Ok(Some(ended)) => break ended,
            Ok(None) if began.elapsed() < LOOK_WITHIN => std::thread::sleep(LOOK_AGAIN),
            Ok(None) | Err(_) => {
                let _gone = looking.kill().and_then(|()| looking.wait());
                return None;
            }
        }
    };
    let mut path = String::new();
    looking.stdout.take()?.take(MAX_PATH_BYTES).read_to_string(&mut path).ok()?;
    Some(path.trim().to_owned()).filter(|path| ended.success() && !path.is_empty())
}

/// Program that says where its interpreter is, if that has the packages. It finds no module in the folder that it is started in.
const LOOK: &str = "import sys; sys.path[:] = [path for path in sys.path if path]; from importlib.util import find_spec; \
                    print(sys.executable if find_spec('rollhouse') and find_spec('gymnasium') else '')";
const LOOK_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const MAX_PATH_BYTES: u64 = 4096;

/// Makes the failure of an env that cannot be hosted, with the way to mend it.
pub(crate) fn failure(error: &LearnError) -> Failure {
    let hint = match error.reason() {
        LearnReason::NotInstalled => {
            "install the package there (`pip install ./crates/python` in the repository, or the wheel of a release), or name \
             another interpreter by --python"
        }
        LearnReason::Lost => "--python names the interpreter",
        LearnReason::NotAllowed => "--allow PACKAGE permits it",
        LearnReason::NotConnected => "--connect-retries says how often it tries again",
        LearnReason::Arguments => "--env-kwargs has them, as a JSON object",
        LearnReason::NotFound
        | LearnReason::Request
        | LearnReason::Late
        | LearnReason::Unsupported
        | LearnReason::Internal => return Failure::of(Status::Failed, error),
    };
    Failure::of(Status::Failed, error).hint(hint)
}

//! Kinds of lanes: kernels, plug-ins and a simulator with a timing of its own have the same envs; a trainer's own program and
//! Python have the foretold one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::{EnvId, EnvSource, LaneDeadlines, Plugin};
use rollhouse_env::testing::{Timing, late};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_host::{
    Connect, ConnectWatch, EnvProviders, EnvRequest, InfoRequest, Launcher, PluginHost, PythonHost,
    serve_plugin,
};
use rollhouse_tests::{Chance, Folder};

use super::foretold::{echo, foretold};
use super::own;

/// Built-in envs that lanes of those kinds have which step kernels.
pub(crate) const ENVS: [&str; 4] = ["CartPole-v1", "test/Called-v0", "test/Faulty-v0", "test/Masked-v0"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The lanes are stepped within the call.
    Kernel,
    /// The kernels are a plug-in that three worker processes of a session load.
    Workers,
    /// Lanes are done in an order of their own, the third last.
    Simulator,
    /// The same lanes, which take their default now and then and report what they took.
    Reporting,
    /// Three worker processes that run a program of the trainer's own.
    Own,
    /// Three processes of an interpreter.
    Python,
}

impl Kind {
    /// Returns the id of the foretold env.
    pub(crate) const fn foretold(self) -> &'static str {
        if let Self::Python = self { "foretold:Foretold" } else { "test/Foretold-v0" }
    }
}

/// The envs of a kind, and the folder of the plug-in.
pub(crate) struct Envs {
    pub(crate) registry: Arc<Registry>,
    pub(crate) providers: EnvProviders,
    plugin: Folder,
}

impl Envs {
    /// Makes the envs of a kind. Lane `hangs` of a simulator never finishes from its n-th step on.
    pub(crate) fn of(kind: Kind, hangs: Option<(usize, u64)>) -> Self {
        let plugin = Folder::new();
        let builtin = Registry::builtin();
        let mut providers = EnvProviders::new([]);
        builtin.register(foretold()).unwrap();
        let registry = match kind {
            Kind::Kernel => builtin,
            Kind::Workers => workers(plugin.path()),
            Kind::Own => registry_of([own::entry()]),
            Kind::Python => {
                providers = python(interpreter().unwrap()).into();
                Registry::empty()
            }
            Kind::Simulator | Kind::Reporting => {
                let seed = Chance::new(7).below(u64::MAX);
                let timing = Timing {
                    seed,
                    hangs,
                    last: Some(2),
                    reports: kind == Kind::Reporting,
                    ..Timing::default()
                };
                let entry = |id| Arc::into_inner(late(&builtin.get(id).unwrap(), timing)).unwrap();
                registry_of(ENVS.into_iter().chain([kind.foretold()]).map(entry))
            }
        };
        Self { registry: Arc::new(registry), providers, plugin }
    }

    /// Returns what makes lanes of an env in this process.
    pub(crate) fn entry(&self, id: &str) -> Arc<EnvEntry> {
        let id = EnvId::from(id);
        if let EnvSource::BuiltIn | EnvSource::PlugIn = id.source() {
            return self.registry.get(&id).unwrap();
        }
        let infos = InfoRequest { recorded: vec![echo()], ..InfoRequest::default() };
        let asked = EnvRequest { id, kwargs: serde_json::Map::new(), deterministic: None, infos };
        let watch = ConnectWatch::default();
        Arc::new(self.providers.learn(&asked, &watch).unwrap().entry(&watch, None).unwrap())
    }

    /// The processes of workers, which have mapped the plug-in.
    pub(crate) fn workers(&self) -> Vec<i32> {
        let path = self.plugin.path().to_string_lossy();
        let processes = fs::read_dir("/proc").unwrap().filter_map(|process| {
            let process = process.ok()?;
            let maps = fs::read_to_string(process.path().join("maps")).ok()?;
            maps.contains(&*path).then(|| process.file_name().to_str()?.parse().ok())?
        });
        processes.collect()
    }
}

fn registry_of(entries: impl IntoIterator<Item = EnvEntry>) -> Registry {
    let registry = Registry::empty();
    entries.into_iter().for_each(|entry| registry.register(entry).unwrap());
    registry
}

/// Envs of a plug-in that lies in `folder`, in workers that run this very program.
fn workers(folder: &Path) -> Registry {
    let path = folder.join("kernels.so");
    fs::copy(built_plugin(), &path).unwrap();
    let program = std::env::current_exe().unwrap();
    let host = PluginHost {
        command: vec![program.into(), WORKER.into(), "--exact".into(), "--nocapture".into()],
        workers: Some(3),
        launch_deadline: Duration::from_secs(120),
        lane_deadlines: LaneDeadlines::default(),
        launcher: Launcher::new(3),
        census: None,
    };
    let registry = Registry::empty();
    host.register(&registry, &[Plugin { path, trusted: false }]).unwrap();
    registry
}

/// The interpreter of the tests, with the package and the env; `None`, said by name, where there is none.
#[expect(clippy::print_stdout, reason = "a test that does nothing says so")]
pub(crate) fn interpreter() -> Option<OsString> {
    let named = std::env::var_os("ROLLHOUSE_TEST_PYTHON");
    if named.is_none() {
        println!("skipped: ROLLHOUSE_TEST_PYTHON names no interpreter; the step of the Python tests does");
    }
    named
}

fn python(interpreter: OsString) -> PythonHost {
    PythonHost {
        interpreter,
        allow: vec!["foretold".to_owned()],
        workers: Some(own::WORKERS),
        launch_deadline: Duration::from_secs(120),
        lane_deadlines: LaneDeadlines::default(),
        connect: Connect::default(),
        launcher: Launcher::new(own::WORKERS),
        memory: None,
        census: None,
        draw: false,
    }
}

/// Not a test by itself: what workers run, whose last argument is the process id of their host.
#[test]
fn a_worker_of_its_own() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|name| name == WORKER) {
        serve_plugin(arguments.last().unwrap().parse().unwrap()).unwrap();
    }
}

const WORKER: &str = "lanes::kinds::a_worker_of_its_own";

/// Example `kernels` of this package, which is built with its tests.
fn built_plugin() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples/libkernels.so");
    assert!(path.exists(), "cargo build -p rollhouse-tests --examples makes {}", path.display());
    path
}

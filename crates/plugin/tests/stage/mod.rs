//! Compiles and loads plug-ins, and rolls out their envs.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rollhouse_core::{
    AutoresetMode, ColumnMut, Drawing, Interruption, Options, RecordRule, RunId, SeedSchedule, Space,
    random_bits,
};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_plugin::load;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{EpisodeInfo, PolicyInfo, Recorder, RecorderConfig, Replays, RunHeader};
use tempfile::TempDir;

/// A folder for a test's files, removed at its end.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a plug-in from a source below the crate's folder; None, said by name, where there is no compiler.
pub fn compiled(folder: &Folder, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (compiler, standard) = match source.ends_with(".cpp") {
        true => ("c++", "-std=c++17"),
        false => ("cc", "-std=c99"),
    };
    let out = folder.path().join(format!("{}.so", flags.first().map_or("plugin", |flag| &flag[2..])));
    let mut command = Command::new(compiler);
    command.args([
        standard,
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O3",
        "-ffp-contract=off",
        "-fPIC",
        "-shared",
        "-I",
    ]);
    command.arg(crate_folder().join("include")).args(flags).arg(crate_folder().join(source));
    match command.arg("-o").arg(&out).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(out)
        }
        Err(_) => {
            println!("skipped: there is no `{compiler}`");
            None
        }
    }
}

/// Returns the shared object of an example in Rust, which Cargo has built for the tests.
pub fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.extend(["examples", &format!("lib{name}.so")]);
    path
}

/// The built-in envs and those of a plug-in.
pub fn registry(path: &Path) -> Registry {
    let registry = Registry::builtin();
    for entry in load(path).unwrap() {
        registry.register(entry).unwrap();
    }
    registry
}

/// Steps an engine with actions that depend on lane and step alone.
pub fn step(engine: &mut Engine, space: &Space, step: u64) {
    let bits = |lane: usize| random_bits(3, lane as u32, step);
    match engine.actions().unwrap() {
        ColumnMut::I64(actions) => match space {
            Space::Discrete(space) => {
                for (lane, action) in actions.iter_mut().enumerate() {
                    *action = space.start + (bits(lane) % space.n) as i64;
                }
            }
            Space::Box(space) => {
                let Drawing { elements, settling } = Drawing::of(space);
                for (at, action) in actions.iter_mut().enumerate() {
                    let range = elements[at % elements.len()];
                    *action = range.low as i64 + (bits(at) % (range.high - range.low + 1.0) as u64) as i64;
                }
                settling.settle(ColumnMut::I64(actions));
            }
        },
        ColumnMut::F32(actions) => {
            for (lane, action) in actions.iter_mut().enumerate() {
                *action = (bits(lane) % 401) as f32 / 100.0 - 2.0;
            }
        }
        other => panic!("{other:?}"),
    }
    engine.step().unwrap();
}

pub struct Recording {
    pub disk: Arc<FaultyDisk>,
    pub episodes: Vec<EpisodeInfo>,
}

const FOLDER: &str = "data";
const LANES: usize = 70;

/// Rolls out an env, recorded, and reads the recording.
pub fn record(entry: &Arc<EnvEntry>, steps: u64) -> Recording {
    record_with(entry, steps, |_, _| ())
}

/// Records as [`record`] does, with something that is done with the engine before each step.
pub fn record_with(entry: &Arc<EnvEntry>, steps: u64, mut before: impl FnMut(&mut Engine, u64)) -> Recording {
    let config = EngineConfig { autoreset: AutoresetMode::SameStep, ..EngineConfig::new(LANES) };
    let disk = Arc::new(FaultyDisk::new());
    let recorder = Recorder::open(disk.clone(), Path::new(FOLDER), RecorderConfig::default()).unwrap();
    let run = recorder.begin_run(header(entry, &config)).unwrap();
    let mut engine = Engine::new(entry, config, Some(&run)).unwrap();
    engine.reset(&Reset::seeded(11, LANES)).unwrap();
    for number in 0..steps {
        before(&mut engine, number);
        step(&mut engine, &entry.spec().action_space, number);
    }
    engine.interrupt(Interruption::Cancelled).unwrap();
    engine.close().unwrap();
    drop(run);
    recorder.finish().unwrap();
    let mut episodes = Vec::new();
    replays(&disk).for_each(|info| episodes.push(info)).unwrap();
    Recording { disk, episodes }
}

pub fn replays(disk: &Arc<FaultyDisk>) -> Replays {
    Replays::open(disk.clone(), Path::new(FOLDER)).unwrap()
}

fn header(entry: &EnvEntry, config: &EngineConfig) -> RunHeader {
    let spec = entry.spec().clone();
    RunHeader {
        run: RunId::generate(),
        options: vec![Options::check(&spec.options, &[]).unwrap()],
        lanes: config.lanes as u32,
        schedule: SeedSchedule::Continue,
        autoreset: config.autoreset.name().to_owned(),
        max_episode_steps: spec.max_episode_steps,
        policy: PolicyInfo { name: "test".into(), version: 0 },
        record: RecordRule::All,
        program: "test".into(),
        started_ms: 0,
        parent: None,
        arguments: String::new(),
        spec,
    }
}

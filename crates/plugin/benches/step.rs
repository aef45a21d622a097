//! What a step costs through a plug-in, beside the built-in kernel: 4,096 lanes of CartPole on one thread, stepped in turn.
//!
//! ```text
//! cargo build --release -p rollhouse-plugin --examples && cargo bench -p rollhouse-plugin
//! ```
//!
//! It prints nanoseconds a step, as medians, and median and quartiles of the ratios of neighbouring repetitions: the built-in kernel
//! wrapped as a plug-in in Rust, which is what the way through one costs, and the example in C; each trusted, and isolated
//! in worker processes.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints what it measured")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rollhouse_core::{ColumnMut, LaneDeadlines, Plugin, random_bits};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::Registry;
use rollhouse_host::{Launcher, PluginHost, serve_plugin};

const LANES: usize = 4096;
/// Batches of one repetition.
const BATCHES: u64 = 2000;
const REPETITIONS: usize = 31;

fn main() {
    if let Some(host) = std::env::args().skip_while(|argument| argument != WORKER).nth(1) {
        return serve_plugin(host.parse().unwrap()).unwrap();
    }
    let rust = beside_this().join("examples/libbuiltin.so");
    let c = compiled(&beside_this().join("cartpole.so"));
    let mut contenders = vec![("CartPole-v1".to_owned(), engine(&Registry::builtin(), "CartPole-v1"))];
    for (path, id) in [(Some(rust), "plugin/CartPole-v1"), (c, "c/CartPole-v0")] {
        let Some(path) = path.filter(|path| path.exists()) else {
            println!("left out: {id}, which is not compiled");
            continue;
        };
        for (way, trusted) in [("trusted", true), ("isolated", false)] {
            let registry = Registry::empty();
            host().register(&registry, &[Plugin { path: path.clone(), trusted }]).unwrap();
            contenders.push((format!("{id}, {way}"), engine(&registry, id)));
        }
    }
    let (contenders, mut engines): (Vec<String>, Vec<Engine>) = contenders.into_iter().unzip();
    for engine in &mut engines {
        let _warm = repetition(engine);
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); engines.len()];
    for _ in 0..REPETITIONS {
        for (engine, times) in engines.iter_mut().zip(&mut times) {
            times.push(repetition(engine));
        }
    }
    for (id, own) in contenders.iter().zip(&times) {
        let ratios = times[0].iter().zip(own).map(|(builtin, own)| builtin / own).collect();
        let (ns, [low, ratio, high]) = (quartiles(own.clone())[1], quartiles(ratios));
        println!(
            "{id:30} {ns:7.3} ns a step, {ratio:.3} ({low:.3} to {high:.3}) times as fast as the kernel"
        );
    }
}

/// Returns the folder of what Cargo builds in this profile.
fn beside_this() -> PathBuf {
    let path = std::env::current_exe().unwrap();
    path.ancestors().nth(2).unwrap().to_owned()
}

fn compiled(out: &Path) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-O3", "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-I"]);
    command.arg(folder.join("include")).arg(folder.join("examples/cartpole.c")).arg("-o").arg(out);
    command.status().ok().filter(|status| status.success()).map(|_| out.to_owned())
}

fn engine(registry: &Registry, id: &str) -> Engine {
    let mut engine = Engine::new(&registry.get(id).unwrap(), EngineConfig::new(LANES), None).unwrap();
    engine.reset(&Reset::seeded(1, LANES)).unwrap();
    let ColumnMut::I64(actions) = engine.actions().unwrap() else { panic!("its actions are discrete") };
    for (lane, action) in actions.iter_mut().enumerate() {
        *action = (random_bits(5, lane as u32, 0) & 1) as i64;
    }
    engine
}

/// Steps some batches, each lane with the other action than in the step before, and returns nanoseconds for each step.
fn repetition(engine: &mut Engine) -> f64 {
    let began = Instant::now();
    for _ in 0..BATCHES {
        let ColumnMut::I64(actions) = engine.actions().unwrap() else { panic!("its actions are discrete") };
        actions.iter_mut().for_each(|action| *action = 1 - *action);
        engine.step().unwrap();
    }
    began.elapsed().as_nanos() as f64 / (BATCHES * LANES as u64) as f64
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

/// Returns a host whose workers are this program.
fn host() -> PluginHost {
    let command = vec![std::env::current_exe().unwrap().into(), WORKER.into()];
    let workers = std::env::var("WORKERS").ok().and_then(|workers| workers.parse().ok());
    let (launch_deadline, launcher) = (Duration::from_secs(60), Launcher::new(2));
    let lane_deadlines = LaneDeadlines::default();
    PluginHost { command, workers, launch_deadline, lane_deadlines, launcher, census: None }
}

const WORKER: &str = "plugin-worker";

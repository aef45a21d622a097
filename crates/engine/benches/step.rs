//! Lockstep through the engine: one thread, random actions filled in beforehand.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use rollhouse_core::{AutoresetMode, ColumnMut, random_bits};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::{InstructionSet, Registry};

fn main() {
    divan::main();
}

const LANES: [usize; 3] = [1, 64, 4096];

fn engine(id: &str, config: EngineConfig) -> Engine {
    let lanes = config.lanes;
    let entry = Registry::builtin().get(id).expect("a built-in env");
    let mut engine = Engine::new(&entry, config, None).expect("a good configuration");
    engine.reset(&Reset::seeded(1, lanes)).expect("a reset");
    match engine.actions().expect("no step is in flight") {
        ColumnMut::I64(actions) => {
            (0..).zip(actions).for_each(|(lane, a)| *a = (random_bits(1, lane, 0) & 1) as i64);
        }
        ColumnMut::F32(actions) => actions.fill(0.5),
        _ => unreachable!("built-in envs have int64 and float32 actions"),
    }
    engine
}

fn steps(bencher: Bencher<'_, '_>, id: &str, config: EngineConfig) {
    let lanes = config.lanes;
    let mut engine = engine(id, config);
    bencher.counter(ItemsCount::new(lanes)).bench_local(|| {
        black_box(engine.step().expect("a step").rewards());
    });
}

#[divan::bench(args = LANES, sample_size = 500)]
fn cartpole(bencher: Bencher<'_, '_>, lanes: usize) {
    steps(bencher, "CartPole-v1", EngineConfig::new(lanes));
}

#[divan::bench(args = LANES, sample_size = 500)]
fn cartpole_same_step(bencher: Bencher<'_, '_>, lanes: usize) {
    steps(
        bencher,
        "CartPole-v1",
        EngineConfig { autoreset: AutoresetMode::SameStep, ..EngineConfig::new(lanes) },
    );
}

#[divan::bench(args = LANES, sample_size = 500)]
fn cartpole_portable(bencher: Bencher<'_, '_>, lanes: usize) {
    let config = EngineConfig { instruction_set: InstructionSet::Portable, ..EngineConfig::new(lanes) };
    steps(bencher, "CartPole-v1", config);
}

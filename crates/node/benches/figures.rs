//! What metrics cost a step: its duration is put into a histogram. Beside it the cheapest step there is, of the engine
//! alone; that of a session has a trainer's round trip more. What else is counted is told every 500 ms, not with each step.

use std::time::Duration;

use divan::{Bencher, black_box};
use rollhouse_core::{ColumnMut, random_bits};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::Registry;
use rollhouse_node::Histogram;

fn main() {
    divan::main();
}

#[divan::bench(sample_size = 1000)]
fn noting_a_step(bencher: Bencher<'_, '_>) {
    let histogram = Histogram::default();
    let mut took = Duration::from_nanos(700);
    bencher.bench_local(|| {
        // As durations of steps, they are not all in one bucket.
        took = Duration::from_nanos(700 + (took.subsec_nanos().wrapping_mul(7919) & 0x7fff) as u64);
        histogram.observe(black_box(took));
    });
    assert!(histogram.counts().iter().sum::<u64>() > 0);
}

#[divan::bench(args = [1, 64, 4096], sample_size = 500)]
fn cartpole_step(bencher: Bencher<'_, '_>, lanes: usize) {
    let entry = Registry::builtin().get("CartPole-v1").expect("a built-in env");
    let mut engine = Engine::new(&entry, EngineConfig::new(lanes), None).expect("a good configuration");
    engine.reset(&Reset::seeded(1, lanes)).expect("a reset");
    if let ColumnMut::I64(actions) = engine.actions().expect("no step is in flight") {
        (0..).zip(actions).for_each(|(lane, action)| *action = (random_bits(1, lane, 0) & 1) as i64);
    }
    bencher.bench_local(|| {
        black_box(engine.step().expect("a step").rewards());
    });
}

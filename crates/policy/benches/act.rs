//! What choosing random actions for one block of 64 lanes costs.

use divan::Bencher;
use rollhouse_core::{ColumnMut, Space, limits::BLOCK_LANES};
use rollhouse_policy::{Act, Policy, Random};

fn main() {
    divan::main();
}

#[divan::bench(args = [2, 3, 1 << 20])]
fn random_discrete(bencher: Bencher<'_, '_>, n: u64) {
    let mut policy = Random::new(&Space::discrete(n), 7).expect("a space with values");
    let mut rows = [0i64; BLOCK_LANES];
    let mut step = 0;
    bencher.counter(BLOCK_LANES).bench_local(|| {
        step += 1;
        policy.act(Act { first_lane: 0, step, obs: &[], mask: None, actions: ColumnMut::I64(&mut rows) })
    });
}

#[divan::bench]
fn random_f32_box(bencher: Bencher<'_, '_>) {
    let mut policy = Random::new(&Space::f32_box(&[-2.0], &[2.0]), 7).expect("a bounded space");
    let mut rows = [0f32; BLOCK_LANES];
    let mut step = 0;
    bencher.counter(BLOCK_LANES).bench_local(|| {
        step += 1;
        policy.act(Act { first_lane: 0, step, obs: &[], mask: None, actions: ColumnMut::F32(&mut rows) })
    });
}

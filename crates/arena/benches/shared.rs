//! What a step through shared memory costs beside the step itself: this process is the node, a child of it the trainer.
//!
//! `bare` hands an empty step over and back, and `small` one of 64 lanes of 4 numbers. `both_ways` has the trainer write 64 KiB of actions, the node copy them and
//! write 64 KiB of observations, and the trainer sum those; `copy_of_actions` is the node's copy alone. `on_one_core` is the bare step with both on one core.

use divan::Bencher;
use rollhouse_core::ColumnMut;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::common::pair::{Pair, Size, be_trainer};

#[path = "../tests/common"]
mod common {
    pub(crate) mod pair;
}

fn main() {
    if !be_trainer() {
        divan::main();
    }
}

const BARE: Size = Size { lanes: 1, elements: 1 };
const SMALL: Size = Size { lanes: 64, elements: 4 };
const BOTH_WAYS: Size = Size { lanes: 4096, elements: 4 };

fn steps(bencher: Bencher<'_, '_>, size: Size) {
    let mut pair = Pair::start(size).expect("a trainer starts");
    pair.step();
    bencher.bench_local(|| pair.step());
    pair.finish().expect("the trainer ends well");
}

#[divan::bench(sample_size = 1000)]
fn bare(bencher: Bencher<'_, '_>) {
    steps(bencher, BARE);
}

#[divan::bench(sample_size = 100)]
fn both_ways(bencher: Bencher<'_, '_>) {
    steps(bencher, BOTH_WAYS);
}

#[divan::bench(sample_size = 1000)]
fn small(bencher: Bencher<'_, '_>) {
    steps(bencher, SMALL);
}

/// The node's copy of 64 KiB of actions by itself, in its own cache.
#[divan::bench(sample_size = 100)]
fn copy_of_actions(bencher: Bencher<'_, '_>) {
    let mut pair = Pair::start(BOTH_WAYS).expect("a trainer starts");
    pair.step();
    let mut copy = vec![0.0; BOTH_WAYS.lanes * BOTH_WAYS.elements];
    bencher.bench_local(|| pair.end.copy_actions(ColumnMut::F32(&mut copy)));
    pair.finish().expect("the trainer ends well");
}

#[divan::bench(sample_size = 100)]
fn on_one_core(bencher: Bencher<'_, '_>) {
    let all = sched_getaffinity(None).expect("this thread's cores");
    let first = (0..CpuSet::MAX_CPU).find(|&core| all.is_set(core)).expect("a core");
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).expect("a core of its own");
    steps(bencher, BARE);
    sched_setaffinity(None, &all).expect("the cores it had");
}

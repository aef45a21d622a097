//! A steady step through shared memory allocates nothing in the trainer, though it keeps a log of it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[expect(dead_code, reason = "other tests use the rest of it")]
mod nodes;

use allocation_counter::measure;
use nodes::Nodes;
use rollhouse_client::{Pool, PoolRequest, Transport};
use rollhouse_core::{ColumnMut, RecordRule, random_bits};
use rollhouse_engine::Reset;
use rollhouse_wire::Spread;

fn play(pool: &mut Pool, steps: std::ops::Range<u64>) {
    for step in steps {
        let ColumnMut::I64(actions) = pool.actions() else { panic!("CartPole takes integers") };
        for (lane, action) in (0..).zip(actions) {
            *action = (random_bits(5, lane, step) & 1) as i64;
        }
        pool.step().unwrap();
    }
}

#[test]
fn a_steady_step_through_memory_allocates_nothing() {
    for spread in [Spread::Single, Spread::Even] {
        let nodes = Nodes::start(2);
        let mut request = PoolRequest::new("CartPole-v1", 64);
        // Only what may have to be played again is kept then: episodes that end make room for others.
        request.settings.record = RecordRule::None;
        (request.transport, request.spread) = (Some(Transport::Shm), spread);
        let mut pool = nodes.connect().open_pool(request).unwrap();
        pool.reset(&Reset::seeded(1, 64)).unwrap();
        play(&mut pool, 0..6_000);
        let counted = measure(|| play(&mut pool, 6_000..7_000));
        assert_eq!(counted.count_total, 0, "{spread:?}");
    }
}

//! Bytes on disk of long episodes.

#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{
    ColumnRef, GameResult, LaneSet, Options, Outcome, RecordRule, RunId, SeedSchedule, Space, Start,
    split_mix64,
};
use rollhouse_env::Registry;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{End, Recorder, RecorderConfig, Row, RunHeader};

use crate::model::{DIR, Shape};

/// 64 lanes of 500-step episodes with a reward of 1 a step, as CartPole under a good policy; `stagger` rows lie
/// between the first ends of two neighbouring lanes.
fn bytes_a_step(stagger: u64) -> f64 {
    let disk = FaultyDisk::new();
    let recorder = Recorder::open(Arc::new(disk), Path::new(DIR), RecorderConfig::default()).unwrap();
    let run = recorder.begin_run(Shape::plain(0).header()).unwrap();
    let mut block = run.block(0, 64);
    let mut ages: [u64; 64] = [0; 64];
    let mut limits: [u64; 64] = std::array::from_fn(|lane| 500 - stagger * lane as u64);
    for lane in 0..64 {
        block.begin(lane, Start::default(), &[]);
    }
    let (mut steps, mut resetting) = (0, LaneSet::NONE);
    for row in 0..40_000u64 {
        let actions: [i64; 64] = std::array::from_fn(|lane| (split_mix64(row << 8 | lane as u64) & 1) as i64);
        let stepped = !resetting;
        // A row takes 10 us.
        let now_ms = row / 100;
        let actions = ColumnRef::I64(&actions);
        block.row(Row { stepped, begun: LaneSet::NONE, actions, obs: &[], rewards: &[], infos: &[], now_ms });
        steps += stepped.len() as u64;
        let mut ended = LaneSet::NONE;
        for lane in stepped {
            ages[lane] += 1;
            let hash = split_mix64(ages[lane] ^ row << 20) as u32;
            if ages[lane].is_multiple_of(64) {
                block.window(lane, hash);
            }
            if ages[lane] == limits[lane] {
                let total_reward = ages[lane] as f64;
                let outcome = Outcome::TRUNCATED;
                block.end(lane, End { outcome, total_reward, hash, result: GameResult::None, score: None });
                (ages[lane], limits[lane]) = (0, 500);
                ended.insert(lane);
            }
        }
        for lane in resetting {
            block.begin(lane, Start::default(), &[]);
        }
        resetting = ended;
    }
    drop(block);
    drop(run);
    recorder.finish().unwrap().bytes as f64 / steps as f64
}

#[test]
fn episodes_of_500_steps_cost_at_most_a_fifth_of_a_byte_a_step() {
    for stagger in [0, 1, 5, 7] {
        let bytes = bytes_a_step(stagger);
        assert!(bytes <= 0.2, "{bytes:.4} bytes a step with lanes {stagger} rows apart");
        println!("{bytes:.4} bytes a step with lanes {stagger} rows apart");
    }
}

/// Elements of sixteen orders of sixteen numbers: 1 KiB.
const ORDERS: usize = 256;

/// Bytes a step of lanes of a Box of [`ORDERS`] or of one element, whose actions are `of` (lane, row, element).
fn bytes_a_box_step(lanes: usize, elements: usize, of: impl Fn(usize, u64, usize) -> f32) -> f64 {
    let disk = FaultyDisk::new();
    let recorder = Recorder::open(Arc::new(disk), Path::new(DIR), RecorderConfig::default()).unwrap();
    let actions = Space::f32_box(&vec![-1.0; elements], &vec![1.0; elements]);
    let run = recorder.begin_run(Shape { lanes, actions, ..Shape::plain(0) }.header()).unwrap();
    let mut block = run.block(0, lanes);
    (0..lanes).for_each(|lane| block.begin(lane, Start::default(), &[]));
    for row in 0..1000 {
        let all = (0..lanes * elements).map(|at| of(at / elements, row, at % elements));
        let (actions, stepped) = (all.collect::<Vec<_>>(), LaneSet::first(lanes));
        let (actions, begun) = (ColumnRef::F32(&actions), LaneSet::NONE);
        block.row(Row { stepped, begun, actions, obs: &[], rewards: &[], infos: &[], now_ms: row / 100 });
    }
    drop((block, run));
    recorder.finish().unwrap().bytes as f64 / (1000 * lanes) as f64
}

/// Symptom: an action log of an env whose actions are sixteen orders had 1 KiB a step while nobody gave one. Cause: the
/// elements of a Box stood there as they were. Fix: runs of equal actions, and rows that are packed.
#[test]
fn a_step_without_an_order_costs_a_few_bytes_and_one_with_an_order_what_it_has() {
    let nothing = |_, _, _| -1.0;
    let one = |lane: usize, row: u64, element: usize| {
        let order = split_mix64(row << 8 | lane as u64);
        if element as u64 / 16 == order % 16 {
            (split_mix64(order ^ element as u64) >> 40) as f32
        } else {
            -1.0
        }
    };
    // The run's header is in it, too, with the bounds of all elements.
    for (lanes, most) in [(1, 20.0), (8, 4.0), (64, 2.0)] {
        let (idle, busy) = (bytes_a_box_step(lanes, ORDERS, nothing), bytes_a_box_step(lanes, ORDERS, one));
        println!("{lanes} lanes: {idle:.2} bytes a step without an order, {busy:.2} with one");
        assert!(idle <= most, "{idle} bytes a step of {lanes} lanes");
        assert!(busy <= 180.0, "{busy} bytes a step of {lanes} lanes");
    }
    let held = bytes_a_box_step(64, 1, nothing);
    assert!(held <= 0.2, "{held} bytes a step of one float that stays");
}

#[test]
fn actions_of_a_box_that_are_drawn_cost_no_more_than_their_elements() {
    let drawn = |lane: usize, row: u64, element: usize| {
        f32::from_bits((split_mix64(row << 20 | (lane << 10 | element) as u64) >> 33) as u32)
    };
    for (elements, most) in [(1, 4.3), (ORDERS, 1030.0)] {
        let bytes = bytes_a_box_step(64, elements, drawn);
        println!("{bytes:.3} bytes a step of {elements} elements");
        assert!(bytes <= most, "{bytes} bytes a step of {elements} elements");
    }
}

/// Bytes on disk that a session of one lane adds to the segment of five seconds in which others of its env lie as well.
fn bytes_a_session(sessions: u64) -> f64 {
    let disk = FaultyDisk::new();
    let recorder = Recorder::open(Arc::new(disk), Path::new(DIR), RecorderConfig::default()).unwrap();
    let (mut runs, mut blocks) = (Vec::new(), Vec::new());
    let spec = Registry::builtin().get("CartPole-v1").unwrap().spec().clone();
    for session in 0..sessions {
        let id = u128::from(split_mix64(session)) << 64 | u128::from(split_mix64(!session));
        let header = RunHeader {
            run: RunId::from_u128(id),
            spec: spec.clone(),
            options: vec![Options::check(&spec.options, &[]).unwrap()],
            lanes: 1,
            schedule: SeedSchedule::PerEpisode { run_seed: split_mix64(session ^ 0xA5) },
            started_ms: 1_700_000_000_000 + 37 * session,
            record: RecordRule::All,
            ..Shape::plain(0).header()
        };
        let run = recorder.begin_placed(header, 0..1, split_mix64(session ^ 0x5A)).unwrap();
        blocks.push(run.block(0, 1));
        runs.push(run);
    }
    let actions = ColumnRef::I64(&[1]);
    for block in &mut blocks {
        block.begin(0, Start::default(), &[]);
        let (stepped, begun) = (LaneSet::one(0), LaneSet::NONE);
        block.row(Row { stepped, begun, actions, obs: &[], rewards: &[], infos: &[], now_ms: 0 });
        block.flush();
    }
    recorder.seal().unwrap();
    recorder.status().recorded.bytes as f64 / sessions as f64
}

/// Symptom: 10,000 sessions that do next to nothing wrote 5 MB/s. Cause: each had its header, with all of its env, twice
/// in every segment. Fix: a header is coded against that of another run of the segment.
#[test]
fn a_session_more_of_an_env_costs_a_segment_what_tells_it_from_the_others() {
    let bytes = bytes_a_session(2000);
    println!("{bytes:.0} bytes a session and segment: {:.2} MB/s for 10,000 sessions", bytes * 2e3 / 1e6);
    assert!(bytes <= 450.0, "{bytes:.0} bytes a session and segment");
}

//! Bytes on disk of long episodes.

#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{ColumnRef, GameResult, LaneSet, Outcome, Start, split_mix64};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{End, Recorder, RecorderConfig, Row};

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

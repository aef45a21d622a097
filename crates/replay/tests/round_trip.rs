//! What is recorded reads back: against a plain model, for runs of any shape.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rollhouse_core::{RecordRule, Space};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{RecorderConfig, Replays};

use crate::model::{DIR, Shape, all, assert_same, record};

fn shapes() -> impl Strategy<Value = Shape> {
    let actions = prop_oneof![
        Just(Space::discrete(1)),
        Just(Space::discrete(2)),
        Just(Space::discrete(3)),
        Just(Space::discrete(200)),
        Just(Space::f32_box(&[-2.0], &[2.0])),
        Just(Space::f32_box(&[-1.0; 3], &[1.0; 3])),
        Just(Space::f32_box(&[-1.0; 40], &[1.0; 40])),
    ];
    let mode = prop_oneof![
        Just(RecordRule::All),
        Just(RecordRule::Trace),
        (0.0..=1.0).prop_map(|probability| RecordRule::Sample { probability }),
    ];
    let autoreset = prop_oneof![Just("NextStep"), Just("SameStep"), Just("Disabled")];
    (
        (1usize..=64, actions, autoreset, any::<bool>(), mode, prop::bool::weighted(0.7)),
        (1usize..400, 1u64..300, prop::bool::weighted(0.2), any::<bool>(), any::<bool>(), any::<u64>()),
    )
        .prop_map(
            |(
                (lanes, actions, autoreset, per_episode, mode, deterministic),
                (rows, ends, ragged, noted, images, seed),
            )| {
                Shape {
                    lanes,
                    actions,
                    autoreset,
                    per_episode,
                    record: mode,
                    deterministic,
                    rows,
                    end_one_in: ends,
                    ragged,
                    noted,
                    images,
                    seed,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_episode_of_any_run_reads_back_as_it_was_lived(shape in shapes()) {
        let disk = FaultyDisk::new();
        // The syncer is kept busy all the time.
        let config = RecorderConfig {
            segment_bytes: 64 * 1024,
            commit_every: Duration::ZERO,
            ..RecorderConfig::default()
        };
        let model = record(Arc::new(disk.clone()), &shape, config);
        let replays = Replays::open(Arc::new(disk), Path::new(DIR)).unwrap();
        let listed = all(&replays);
        let sampled = matches!(shape.record, RecordRule::Sample { .. });
        if !sampled {
            prop_assert_eq!(listed.len(), model.len());
        }
        for info in &listed {
            let lived = &model[&(info.name.lane, info.name.number)];
            assert_same(&shape, lived, &replays.load(info).unwrap());
            // As text: returns may be NaN.
            let found = replays.find(info.name).unwrap();
            prop_assert_eq!(format!("{found:?}"), format!("{info:?}"));
        }
    }
}

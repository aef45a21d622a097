use super::*;
use proptest::prelude::*;
use rollhouse_env::Registry;

use rollhouse_core::{RecordRule, RunId};

use crate::code::encode::Encoder;
use crate::code::lanes::BlockState;
use crate::code::run::{RecordKind, Sampling};
use crate::write::handover::Doorbell;

const TERMINATED: Finish =
    Finish { terminated: true, truncated: false, length: 1, total_reward: 1.0, hash: 7 };

fn recorder(skips_after_end: bool) -> BlockRecorder {
    let entry = Registry::builtin().get("CartPole-v1").unwrap();
    let layout = Layout::new(entry.spec(), RecordKind::ActionLog, true);
    BlockRecorder::new(
        RunShared::new(layout, BLOCK_LANES, skips_after_end, Arc::new(Doorbell::default())),
        0,
        BLOCK_LANES,
    )
}

fn started(seed: u64) -> impl Fn(usize) -> Start {
    move |lane| Start {
        seed: seed % 3,
        words: seed % 7 * lane as u64,
        half: seed.is_multiple_of(11).then_some(5),
    }
}

/// The result that a writer makes of the buffers of a recorder.
struct Written {
    encoder: Encoder,
    state: BlockState,
    bytes: Vec<u8>,
}

impl Written {
    fn of(recorder: &BlockRecorder) -> Self {
        let sampling = Sampling::new(RunId::from_u128(1), RecordRule::All);
        let autoreset = if recorder.shared.skips_after_end { "NextStep" } else { "SameStep" };
        let encoder = Encoder::new(recorder.shared.layout.clone(), sampling, autoreset);
        Self { encoder, state: BlockState::new(BLOCK_LANES), bytes: Vec::new() }
    }

    fn take(&mut self, recorder: &mut BlockRecorder) {
        assert!(recorder.shared.take_full().is_none(), "all of it is in the recorder's own buffer");
        self.encoder.encode(&mut recorder.buffer, &mut self.state, &mut self.bytes, |_| ()).unwrap();
        recorder.buffer.clear();
        recorder.set_rules();
    }
}

proptest! {
    #[test]
    fn lanes_that_begin_and_end_together_are_written_as_single_ones(
        steps in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 1..40),
    ) {
        let (mut together, mut apart) = (recorder(true), recorder(true));
        let mut written = [Written::of(&together), Written::of(&apart)];
        for (begun, terminated, truncated, seed) in steps {
            let start = started(seed);
            let [begun, terminated, truncated] = [begun, terminated, truncated].map(LaneSet::of_bits);
            together.begin_each(begun, &std::array::from_fn(&start), &[]);
            // Together, abandoned episodes end before the first begins; a buffer's order within a lane counts.
            (begun & apart.open).into_iter().for_each(|lane| apart.abandon(LaneSet::one(lane)));
            apart.open &= !begun;
            begun.into_iter().for_each(|lane| apart.begin(lane, start(lane), &[]));
            let rewards: [f64; BLOCK_LANES] = std::array::from_fn(|lane| lane as f64 - 20.0);
            let hashes: [u32; BLOCK_LANES] = std::array::from_fn(|lane| seed as u32 ^ lane as u32);
            let over = (terminated | truncated) & together.open;
            together.finish_each(over, |lane| {
                let (terminated, truncated) = (terminated.has(lane), truncated.has(lane));
                Finish { terminated, truncated, length: 0, total_reward: rewards[lane], hash: hashes[lane] }
            });
            for lane in terminated | truncated {
                let outcome = Outcome::Finished { terminated: terminated.has(lane), truncated: truncated.has(lane) };
                let (total_reward, hash) = (rewards[lane], hashes[lane]);
                apart.end(lane, End { outcome, total_reward, hash, result: GameResult::None, score: None });
            }
            prop_assert_eq!(together.open, apart.open);
            written[0].take(&mut together);
            written[1].take(&mut apart);
        }
        prop_assert_eq!(&written[0].bytes, &written[1].bytes);
    }

    #[test]
    fn lanes_whose_starts_follow_are_written_as_those_whose_starts_are_told(
        skips_after_end: bool,
        drawn in 0u32..5,
        rows in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0u8..4), 1..60),
    ) {
        let (mut told, mut following) = (recorder(skips_after_end), recorder(skips_after_end));
        following.follow(drawn);
        let mut starts: [Start; BLOCK_LANES] = std::array::from_fn(|lane| Start::seeded(lane as u64 % 3));
        let (mut begun, mut over) = (LaneSet::NONE, LaneSet::NONE);
        let mut written = [Written::of(&told), Written::of(&following)];
        let draw = |starts: &mut [Start; BLOCK_LANES], lanes| {
            LaneSet::into_iter(lanes).for_each(|lane| starts[lane].words += u64::from(drawn));
        };
        for (row, (lanes, ended, asked, kind)) in rows.into_iter().enumerate() {
            let [lanes, ended, asked] = [lanes, ended, asked].map(LaneSet::of_bits);
            // Between rows, seldom; else in them, mostly as the rule has it.
            let lanes = if begun.is_empty() || kind == 0 { lanes } else { LaneSet::NONE };
            draw(&mut starts, lanes & begun);
            told.begin_each(lanes, &starts, &[]);
            let follow = lanes & begun & !asked;
            following.begin_following(follow, &[]);
            following.begin_each(lanes & !follow, &starts, &[]);
            begun |= lanes;
            let in_row = begun & !told.open & if kind == 1 { asked } else { over };
            draw(&mut starts, in_row);
            let stepped = !in_row & if kind == 2 { !ended } else { LaneSet::ALL };
            let actions = ColumnRef::I64(&[1; BLOCK_LANES]);
            let shown = Row { stepped, begun: LaneSet::NONE, actions, obs: &[], rewards: &[], infos: &[], now_ms: 5 };
            told.row(shown);
            told.begin_each(in_row, &starts, &[]);
            following.row(Row { begun: in_row, ..shown });
            over = ended & told.open & !in_row;
            told.finish_each(over, |_| TERMINATED);
            following.finish_each(over, |_| TERMINATED);
            if row % 8 == 7 {
                written[0].take(&mut told);
                written[1].take(&mut following);
            }
        }
        written[0].take(&mut told);
        written[1].take(&mut following);
        prop_assert_eq!(&written[0].bytes, &written[1].bytes);
    }
}

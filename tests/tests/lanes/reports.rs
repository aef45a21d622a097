//! Lanes that choose for themselves, and report what they took: kernels that are given that do the same.

use rollhouse_core::{AutoresetMode, RecordRule, random_bits};
use rollhouse_engine::Reset;

use super::carriers::{Carrier, LANES, LaneOrder, Pair};
use super::kinds::Kind;
use super::recordings::episodes;
use super::rows::Row;
use super::{Both, Suite};

fn begin(both: &mut Both, seed: u64) {
    both.kernels.reset(&Reset::seeded(seed, LANES));
    both.lanes.reset(&Reset::seeded(seed, LANES));
    compare(&both.lanes.rows, &both.kernels.rows, &both.what);
}

/// Takes steps with actions that the lanes do not always take, and has the kernels take those that they report.
fn play(both: &mut Both, steps: u64) {
    for _ in 0..steps {
        let given: Vec<i64> = (0..LANES as u32).map(|lane| given(lane, both.next)).collect();
        if both.kernels.reset_those_that_are_over(both.next) {
            both.lanes.reset_those_that_are_over(both.next);
            compare(&both.lanes.rows, &both.kernels.rows, &both.what);
        }
        both.lanes.step(&given).unwrap();
        let taken = both.lanes.taken(&both.lanes.rows);
        both.kernels.step(&legal(&taken)).unwrap();
        both.next += 1;
        compare(&both.lanes.rows, &both.kernels.rows, &both.what);
    }
}

/// Takes steps in which each lane is received once it is done.
fn play_apart(both: &mut Both, steps: u64) {
    for _ in 0..steps {
        let lanes: Vec<u32> = (0..LANES as u32).collect();
        let given: Vec<i64> = lanes.iter().map(|&lane| given(lane, both.next)).collect();
        both.lanes.send(&lanes, &given);
        let mut rows = Vec::new();
        while rows.len() < LANES {
            rows.extend(both.lanes.recv(1));
        }
        rows.sort_unstable_by_key(|(lane, _)| *lane);
        let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
        let taken = both.lanes.taken(&rows);
        both.kernels.step(&legal(&taken)).unwrap();
        both.next += 1;
        compare(&rows, &both.kernels.rows, &both.what);
    }
}

fn given(lane: u32, step: u64) -> i64 {
    (random_bits(3, lane, step) & 1) as i64
}

/// Rows that began an episode have no action that was taken, and kernels need some.
fn legal(taken: &[i64]) -> Vec<i64> {
    taken.iter().map(|&action| action.clamp(0, 1)).collect()
}

fn compare(found: &[Row], wanted: &[Row], what: &str) {
    for (lane, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let found = Row { infos: Vec::new(), ..found.clone() };
        assert_eq!(&found, wanted, "{what}, lane {lane}");
    }
}

pub(super) fn what_lanes_took_is_answered_recorded_and_resumed(carrier: Carrier) {
    let pair = Pair::of(Kind::Reporting, carrier);
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep, AutoresetMode::Disabled] {
        let mut suite = Suite::start(pair);
        let mut both = suite.open(&LaneOrder { autoreset, ..LaneOrder::of("CartPole-v1") });
        begin(&mut both, 8);
        play(&mut both, 70);
        if autoreset == AutoresetMode::NextStep && !carrier.is_in_process() {
            play_apart(&mut both, 40);
        }
        // What is played again elsewhere is what the lanes took: the states, and so all that follows, are the same.
        suite.stand.interrupt(&mut both.lanes);
        play(&mut both, 60);
    }
    let suite = Suite::start(pair);
    let asked = LaneOrder { record: RecordRule::All, limit: Some(50), ..LaneOrder::of("CartPole-v1") };
    let mut both = suite.open(&asked);
    begin(&mut both, 11);
    play(&mut both, 120);
    let Both { lanes, kernels, .. } = both;
    let (found, wanted) = (suite.stand.recorded(lanes, episodes), suite.kernels.recorded(kernels, episodes));
    assert!(wanted.len() > LANES, "{}", wanted.len());
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (name, episode) in wanted {
        let shown = &found[&name];
        // A lane's version of the policy follows from the number of its steps.
        assert!(shown != &episode || episode.ends_with("versions []"), "lane and number {name:?}");
        let without = |episode: &str| {
            let (before, rest) = episode.split_once(" versions ").unwrap();
            format!("{before}{}", rest.split_once(']').unwrap().1)
        };
        assert_eq!(without(shown), without(&episode), "lane and number {name:?}");
    }
}

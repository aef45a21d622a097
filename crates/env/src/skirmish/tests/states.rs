//! States that are taken of games, and set.

use proptest::prelude::*;
use rollhouse_core::{OptionValue, StateHasher};

use super::super::state::STATE_NUMBERS;
use super::*;
use crate::StateError;

/// Makes a lane of a map, whose player is a script for so many ticks.
fn played(map: &str, seed: u64, ticks: u32) -> Table {
    let options =
        [(super::super::MAP, OptionValue::Text(map.into())), ("opponent", OptionValue::Text("hard".into()))];
    let mut table = Table::new(&options, seed);
    let mut script = Script::new(Strength::Hard, 0);
    // It thinks every twelfth tick.
    for _ in 0..ticks / 12 {
        script.play(&mut table.world.game);
        table.step(&row_of(&[], 12, 1, &Until::default()));
    }
    table
}

/// Returns the hash of what a lane shows and of its state.
fn look(table: &Table) -> (u32, u32) {
    let bytes = table.obs.iter().flat_map(|column| column.as_ref().bytes().to_vec());
    let shown = bytes.fold(StateHasher::new(), |hash, byte| hash.word(byte.into()));
    (table.world.state_hash(), shown.finish())
}

#[test]
fn a_lane_that_is_put_into_the_state_of_another_goes_on_as_it_does() {
    let mut grouped = 0;
    for (map, seed) in [("duel", 1), ("river", 2), ("highlands", 3)] {
        for ticks in [0, 700, 2500, 5000] {
            let mut table = played(map, seed, ticks);
            if table.world.game.result.is_none() {
                let units = r#"{"group_name": "first", "unit_ids": "all_idle"}"#;
                grouped += usize::from(table.call("assign_group", units).is_ok());
                table
                    .call("advance", r#"{"ticks": 60, "until": {"conditions": [["cash", ">=", 1]]}}"#)
                    .unwrap();
            }
            let state = table.world.state().unwrap();
            assert_eq!(state.len(), STATE_NUMBERS);
            let mut other = played(map, seed + 10, 30);
            other.world.set_state(&state).unwrap();
            assert_eq!(other.world.state_hash(), table.world.state_hash(), "{map} at {ticks}");
            assert_eq!(other.world.state().unwrap(), state);
            for _ in 0..40 {
                let row = row_of(&[Order::new(OrderKind::Scatter).by(97)], 25, 1, &Until::default());
                let ends = (table.step(&row), other.step(&row));
                assert_eq!(ends.0, ends.1);
                assert_eq!(look(&other), look(&table), "{map} after {ticks}");
            }
        }
    }
    assert!(grouped >= 3, "groups are part of a state");
}

#[test]
fn a_state_of_another_length_map_or_number_is_refused_and_changes_nothing() {
    let state = played("duel", 1, 600).world.state().unwrap();
    let mut other = played("river", 1, 10);
    let before = other.world.state_hash();
    assert!(matches!(other.world.set_state(&state), Err(StateError::Value { index: 0, .. })));
    let wanted = STATE_NUMBERS;
    assert_eq!(other.world.set_state(&state[1..]), Err(StateError::Length { given: wanted - 1, wanted }));
    let mut same = played("duel", 1, 10);
    for number in [0.5, -1.0, f64::NAN, f64::INFINITY, 2.0_f64.powi(48)] {
        let mut bad = state.clone();
        bad[2] = number;
        let refused = same.world.set_state(&bad);
        assert!(matches!(refused, Err(StateError::Value { index: 2, .. })), "{refused:?}");
    }
    let mut long = state;
    long[STATE_NUMBERS - 1] = 1.0;
    assert!(matches!(same.world.set_state(&long), Err(StateError::Value { .. })));
    assert_eq!(other.world.state_hash(), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_a_state_says_it_is_refused_or_played_on_without_a_panic(
        places in prop::collection::vec((0..400_usize, any::<u64>()), 1..4), seed in 0..3_u64,
    ) {
        let mut table = played("duel", seed, 300);
        let mut state = table.world.state().unwrap();
        for (place, bits) in places {
            // A bit or all of them.
            let old = state[place] as u64;
            let new = if bits & 1 == 0 { bits >> 16 } else { old ^ (1 << ((bits >> 1) % 48)) };
            state[place] = new as f64;
        }
        if table.world.set_state(&state).is_ok() {
            for _ in 0..10 {
                table.step(&row_of(&[Order::new(OrderKind::AttackMove).by(97).to(Cell::new(9, 9))], 30, 1, &Until::default()));
            }
        }
    }
}

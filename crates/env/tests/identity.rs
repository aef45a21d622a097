//! Results do not depend on the instruction set, on neighbours, or on how steps and resets are combined.
#![allow(clippy::unwrap_used, reason = "test code")]

use crate::driver;

use driver::{BUILTIN, CLASSIC, Driver, options};
use proptest::prelude::*;
use rollhouse_core::{LaneSet, OptionValue, Start};
use rollhouse_env::{Ended, InstructionSet, Registry};

/// Two random sets of lanes that share none; either may be empty.
fn sets() -> impl Strategy<Value = (LaneSet, LaneSet)> {
    let bits = || prop_oneof![3 => Just(0), 2 => any::<u64>(), 2 => (0..64u32).prop_map(|bit| 1 << bit)];
    let set = || bits().prop_map(LaneSet::of_bits);
    (set(), set()).prop_map(|(skip, reset)| (skip & !reset, reset))
}

/// What a run of one driver left behind after each step.
type Trace = Vec<(Ended, Vec<(Vec<u64>, Vec<u32>, u64)>, Vec<u32>)>;

/// Steps with sets drawn beforehand; lanes that ended are reset in the next step unless skipped.
fn run(driver: &mut Driver, seed: u64, plan: &[(LaneSet, LaneSet)]) -> Trace {
    driver.seed_all(seed);
    let _ = driver.reset(LaneSet::ALL);
    let lanes = driver.lanes();
    let mut ended = LaneSet::NONE;
    let steps = plan.iter().enumerate().map(|(step, &(skip, reset))| {
        let actions = driver.actions(seed, step as u64);
        let reset = (reset | ended) & !skip & LaneSet::first(lanes);
        let outcome = driver.step(skip, reset, &actions);
        ended = (ended & skip) | outcome.terminated;
        let rows = (0..lanes).map(|lane| driver.lane_bits(lane)).collect();
        (outcome, rows, driver.hashes()[..lanes].to_vec())
    });
    steps.collect()
}

const STICKY: &str = "sticky_action_probability";

/// Options that reach the rare paths: wide and far angles, every reward.
fn wild_options(id: &str) -> Vec<(&'static str, OptionValue)> {
    let float = OptionValue::Float;
    match id {
        "CartPole-v1" => {
            vec![("low", float(-3e6)), ("high", float(3e6)), ("sutton_barto_reward", OptionValue::Bool(true))]
        }
        "Pendulum-v1" => vec![("x_init", float(3e6)), ("g", float(9.81))],
        "Acrobot-v1" => vec![("low", float(-2000.0)), ("high", float(2000.0))],
        "GridBreakout-v0" => vec![(STICKY, float(0.9))],
        "Echo-v0" => Vec::new(),
        _ => vec![("low", float(-1e6)), ("high", float(1e6)), ("goal_velocity", float(0.01))],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_instruction_set_gives_the_same_bits(
        index in 0..BUILTIN.len(),
        lanes in prop_oneof![Just(1usize), Just(5), Just(8), Just(63), Just(64)],
        seed in any::<u32>(),
        wild in any::<bool>(),
        plan in prop::collection::vec(sets(), 200),
    ) {
        let id = BUILTIN[index];
        let given = if wild { wild_options(id) } else { Vec::new() };
        let mut reference = Driver::new(id, lanes, InstructionSet::Portable, &given);
        let expected = run(&mut reference, u64::from(seed), &plan);
        for set in InstructionSet::available() {
            let mut driver = Driver::new(id, lanes, set, &given);
            let trace = run(&mut driver, u64::from(seed), &plan);
            for (step, (ours, theirs)) in trace.iter().zip(&expected).enumerate() {
                prop_assert_eq!(ours, theirs, "{} on {}, step {}", id, set, step);
            }
        }
    }

    #[test]
    fn a_lane_depends_neither_on_its_neighbours_nor_on_its_place(
        index in 0..BUILTIN.len(),
        place in 0..64usize,
        seed in any::<u32>(),
        wild in any::<bool>(),
    ) {
        let id = BUILTIN[index];
        let entry = Registry::builtin().get(id).unwrap();
        // One tame lane among wild neighbours, or the other way round.
        let (own, others) = (options(&entry, &[]), options(&entry, &wild_options(id)));
        let (own, others) = if wild { (others, own) } else { (own, others) };
        let mut crowd = vec![others; 64];
        crowd[place] = own.clone();
        let mut alone = Driver::with(entry.clone(), InstructionSet::best(), &[own]);
        let mut among = Driver::with(entry, InstructionSet::best(), &crowd);
        among.seed_all(1000);
        alone.block.seed(0, u64::from(seed));
        among.block.seed(place, u64::from(seed));
        let _ = alone.reset(LaneSet::one(0));
        let _ = among.reset(LaneSet::ALL);
        let mut ended = false;
        for step in 0..100 {
            let lane = |lane| if ended { LaneSet::one(lane) } else { LaneSet::NONE };
            let (reset_alone, reset_among) = (lane(0), lane(place));
            let actions = among.actions(7, step);
            ended = alone.step(LaneSet::NONE, reset_alone, &actions.repeated(place, 64, 1)).terminated.has(0);
            let among_ended = among.step(LaneSet::NONE, reset_among, &actions).terminated;
            prop_assert_eq!(among_ended.has(place), ended);
            prop_assert_eq!(among.lane_bits(place), alone.lane_bits(0), "{} step {}", id, step);
            prop_assert_eq!(among.hashes()[place], alone.hashes()[0]);
        }
    }

    #[test]
    fn stepping_with_a_reset_is_stepping_with_a_skip_and_then_resetting(
        index in 0..BUILTIN.len(),
        lanes in 1..=64usize,
        seed in any::<u32>(),
        plan in prop::collection::vec(sets(), 30),
    ) {
        let id = BUILTIN[index];
        let mut at_once = Driver::new(id, lanes, InstructionSet::best(), &[]);
        let mut in_turn = Driver::new(id, lanes, InstructionSet::best(), &[]);
        for driver in [&mut at_once, &mut in_turn] {
            driver.seed_all(u64::from(seed));
            let _ = driver.reset(LaneSet::ALL);
        }
        for (step, &(skip, reset)) in plan.iter().enumerate() {
            let actions = at_once.actions(3, step as u64);
            let first = at_once.step(skip, reset, &actions);
            let second = in_turn.step(skip | reset, LaneSet::NONE, &actions);
            let _ = in_turn.reset(reset);
            prop_assert_eq!(first, second);
            for lane in 0..lanes {
                prop_assert_eq!(at_once.lane_bits(lane), in_turn.lane_bits(lane), "{} lane {}", id, lane);
                prop_assert_eq!(at_once.block.position(lane), in_turn.block.position(lane));
            }
        }
    }

    #[test]
    fn a_generator_put_back_to_a_position_goes_on_from_there(
        seed in any::<u64>(),
        draws in prop::collection::vec(any::<bool>(), 0..40),
        ahead in any::<u64>(),
    ) {
        use rollhouse_env::Generator;
        let mut generator = Generator::seeded(seed);
        for half in draws {
            if half { generator.next_u32(); } else { generator.next_u64(); }
        }
        let position = generator.position();
        prop_assert_eq!(&Generator::at(position), &generator);
        let far = Start { words: ahead, ..position };
        prop_assert_eq!(Generator::at(far).position(), far);
    }
}

#[test]
fn instruction_sets_this_machine_lacks_are_named() {
    let missing: Vec<_> = InstructionSet::ALL.into_iter().filter(|set| !set.is_available()).collect();
    for set in &missing {
        println!("not compared here, this machine has no {set}");
    }
    let compared = InstructionSet::available().count();
    assert_eq!(compared + missing.len(), InstructionSet::ALL.len());
    assert_eq!(InstructionSet::available().next_back(), Some(InstructionSet::best()));
}

#[test]
fn a_skipped_lane_keeps_its_state_and_shows_it_again_with_no_reward() {
    for id in BUILTIN {
        let mut driver = Driver::new(id, 6, InstructionSet::best(), &[]);
        driver.seed_all(5);
        let _ = driver.reset(LaneSet::ALL);
        let _ = driver.step(LaneSet::NONE, LaneSet::NONE, &driver.actions(1, 0));
        let before = driver.lane_bits(2);
        driver.spoil_obs();
        let ended = driver.step(LaneSet::one(2), LaneSet::NONE, &driver.actions(1, 1));
        let (state, obs, reward) = driver.lane_bits(2);
        assert_eq!((&state, &obs), (&before.0, &before.1), "{id}");
        assert_eq!(f64::from_bits(reward), 0.0, "{id}");
        assert!(!ended.terminated.has(2));
        assert!(driver.all_obs_written(), "{id} left a row unwritten");
    }
}

#[test]
fn a_reset_touches_only_the_lanes_it_names() {
    for id in BUILTIN {
        let mut driver = Driver::new(id, 64, InstructionSet::best(), &[]);
        driver.seed_all(5);
        let _ = driver.reset(LaneSet::ALL);
        let _ = driver.step(LaneSet::NONE, LaneSet::NONE, &driver.actions(1, 0));
        let before: Vec<_> = (0..64).map(|lane| driver.lane_bits(lane)).collect();
        let wanted = LaneSet::one(9) | LaneSet::one(40);
        let _ = driver.reset(wanted);
        for (lane, before) in before.iter().enumerate() {
            let unchanged = driver.lane_bits(lane).0 == before.0;
            assert_eq!(unchanged, !wanted.has(lane), "{id} lane {lane}");
        }
    }
}

#[test]
fn a_restored_lane_draws_the_same_episode_again() {
    for id in BUILTIN {
        let mut driver = Driver::new(id, 3, InstructionSet::best(), &[]);
        driver.seed_all(77);
        let _ = driver.reset(LaneSet::ALL);
        let start = driver.block.position(1);
        // An echo has nothing to draw.
        assert_eq!(start == Start::seeded(78), id == "Echo-v0", "{id}");
        let _ = driver.reset(LaneSet::one(1));
        let first = driver.lane_bits(1).0;
        driver.block.restore(1, start);
        let _ = driver.reset(LaneSet::one(1));
        assert_eq!(driver.lane_bits(1).0, first, "{id}");
        let here = driver.block.position(1);
        let _ = driver.reset(LaneSet::one(1));
        let next = driver.lane_bits(1).0;
        // The second time it stands there already.
        driver.block.restore(1, here);
        driver.block.restore(1, here);
        let _ = driver.reset(LaneSet::one(1));
        assert_eq!(driver.lane_bits(1).0, next, "{id}");
    }
}

#[test]
fn a_reset_draws_as_many_words_as_the_block_says_and_a_step_none() {
    for id in BUILTIN {
        let mut driver = Driver::new(id, 64, InstructionSet::best(), &[]);
        let Some(words) = driver.block.words_per_reset() else { continue };
        driver.seed_all(3);
        let resets = [u64::MAX, 0, 1 << 5 | 1 << 60, 1 << 5, 0].map(LaneSet::of_bits);
        for (round, reset) in resets.into_iter().enumerate() {
            let before: Vec<_> = (0..64).map(|lane| driver.block.position(lane)).collect();
            if round == 0 {
                let _ = driver.reset(reset);
            } else {
                let actions = driver.actions(7, round as u64);
                let _ = driver.step(LaneSet::NONE, reset, &actions);
            }
            for (lane, before) in before.into_iter().enumerate() {
                let drawn = if reset.has(lane) { u64::from(words) } else { 0 };
                let after = Start { words: before.words + drawn, ..before };
                assert_eq!(driver.block.position(lane), after, "{id} lane {lane} round {round}");
            }
        }
    }
    assert!(
        CLASSIC
            .iter()
            .all(|id| { Driver::new(id, 1, InstructionSet::best(), &[]).block.words_per_reset().is_some() })
    );
}

#[test]
fn a_state_read_and_put_into_another_lane_goes_on_the_same() {
    for id in BUILTIN {
        // Lanes draw on from generators of their own, which are no part of the state.
        let calm = if id == "GridBreakout-v0" { &[(STICKY, OptionValue::Float(0.0))][..] } else { &[] };
        let mut driver = Driver::new(id, 2, InstructionSet::best(), calm);
        driver.seed_all(3);
        let _ = driver.reset(LaneSet::ALL);
        let state = driver.block.state(0).unwrap();
        driver.block.set_state(1, &state).unwrap();
        assert_eq!(driver.hashes()[0], driver.hashes()[1], "{id}");
        let same = driver.actions(0, 0).repeated(0, 2, 2);
        let _ = driver.step(LaneSet::NONE, LaneSet::NONE, &same);
        assert_eq!(driver.lane_bits(0), driver.lane_bits(1), "{id}");
        let short = driver.block.set_state(1, &state[1..]);
        assert!(short.is_err(), "{id} took a short state");
    }
}

#[test]
fn hashes_are_written_for_the_lanes_asked_for_alone_and_agree_however_many_are_asked_for() {
    for id in BUILTIN {
        let mut driver = Driver::new(id, 64, InstructionSet::best(), &[]);
        driver.seed_all(3);
        let _ = driver.reset(LaneSet::ALL);
        let all = driver.hashes();
        for lanes in [0, 1, 1 << 63, 0xF0F0, u64::MAX >> 1, u64::MAX / 3].map(LaneSet::of_bits) {
            let mut some = [7; 64];
            driver.block.state_hashes(lanes, &mut some);
            for lane in 0..64 {
                let expected = if lanes.has(lane) { all[lane] } else { 7 };
                assert_eq!(some[lane], expected, "{id} lane {lane} of {lanes:?}");
            }
        }
    }
}

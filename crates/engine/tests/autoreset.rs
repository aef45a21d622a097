//! AutoresetMode, step by step as Gymnasium's vector envs do it (traces of its `test_autoreset_mode.py`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::common;

use common::{act, counting};
use rollhouse_core::AutoresetMode;
use rollhouse_engine::{Engine, Frame, Reset, StepError};

const MAX: [i64; 3] = [2, 3, 3];

/// (obs, rewards, terminated, reset rows) of one step with the actions 1, 2, 3.
type Trace = ([f32; 3], [f64; 3], [u8; 3], [u8; 3]);

fn trace(frame: Frame<'_>) -> Trace {
    (
        frame.obs(0).as_f32().unwrap().try_into().unwrap(),
        frame.rewards().try_into().unwrap(),
        frame.terminated().try_into().unwrap(),
        frame.reset().try_into().unwrap(),
    )
}

fn step(engine: &mut Engine) -> Trace {
    act(engine, &[1, 2, 3]);
    trace(engine.step().unwrap())
}

#[test]
fn next_step_resets_in_the_row_after_the_end_and_ignores_its_action() {
    let mut engine = counting(&MAX, AutoresetMode::NextStep);
    assert_eq!(trace(engine.reset(&Reset::all()).unwrap()), ([0.0; 3], [0.0; 3], [0; 3], [1; 3]));
    assert_eq!(step(&mut engine), ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [0, 0, 0], [0, 0, 0]));
    assert_eq!(step(&mut engine), ([2.0, 2.0, 2.0], [1.0, 2.0, 3.0], [1, 0, 0], [0, 0, 0]));
    assert_eq!(step(&mut engine), ([0.0, 3.0, 3.0], [0.0, 2.0, 3.0], [0, 1, 1], [1, 0, 0]));
    assert_eq!(step(&mut engine), ([1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0, 0, 0], [0, 1, 1]));
    assert_eq!(engine.stats().unwrap().steps, 9);
}

#[test]
fn same_step_shows_the_next_episode_and_keeps_the_last_observation() {
    let mut engine = counting(&MAX, AutoresetMode::SameStep);
    engine.reset(&Reset::all()).unwrap();
    assert_eq!(step(&mut engine), ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [0, 0, 0], [0; 3]));
    assert_eq!(step(&mut engine), ([0.0, 2.0, 2.0], [1.0, 2.0, 3.0], [1, 0, 0], [0; 3]));
    assert_eq!(engine.frame().unwrap().final_obs(0).as_f32().unwrap()[0], 2.0);
    assert_eq!(step(&mut engine), ([1.0, 0.0, 0.0], [1.0, 2.0, 3.0], [0, 1, 1], [0; 3]));
    assert_eq!(engine.frame().unwrap().final_obs(0).as_f32().unwrap()[1..], [3.0, 3.0]);
    assert_eq!(step(&mut engine), ([0.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1, 0, 0], [0; 3]));
}

#[test]
fn disabled_refuses_to_step_a_finished_lane_and_moves_nothing_then() {
    let mut engine = counting(&MAX, AutoresetMode::Disabled);
    engine.reset(&Reset::all()).unwrap();
    step(&mut engine);
    assert_eq!(step(&mut engine).2, [1, 0, 0]);
    assert_eq!(engine.step().err(), Some(StepError::NeedsReset { lane: 0 }));
    let reset = Reset { mask: vec![true, false, false], ..Reset::default() };
    let after = trace(engine.reset(&reset).unwrap());
    assert_eq!(after, ([0.0, 2.0, 2.0], [0.0; 3], [0; 3], [1, 0, 0]));
    assert_eq!(step(&mut engine), ([1.0, 3.0, 3.0], [1.0, 2.0, 3.0], [0, 1, 1], [0; 3]));
}

#[test]
fn an_explicit_reset_forgets_that_lanes_had_ended() {
    for mode in [AutoresetMode::NextStep, AutoresetMode::SameStep, AutoresetMode::Disabled] {
        let mut engine = counting(&MAX, mode);
        engine.reset(&Reset::all()).unwrap();
        step(&mut engine);
        step(&mut engine);
        engine.reset(&Reset::all()).unwrap();
        assert_eq!(step(&mut engine), ([1.0; 3], [1.0, 2.0, 3.0], [0; 3], [0; 3]), "{mode:?}");
    }
}

#[test]
fn the_time_limit_truncates_and_both_flags_can_stand_together() {
    for (limit, truncated) in [(None, [0, 0, 0]), (Some(0), [0, 0, 0]), (Some(2), [1, 1, 1])] {
        let mut engine = {
            let options = MAX.iter().map(|&max| common::options(max, -1)).collect();
            let config = rollhouse_engine::EngineConfig {
                max_episode_steps: limit,
                options,
                ..rollhouse_engine::EngineConfig::new(3)
            };
            Engine::new(&common::counter(), config, None).unwrap()
        };
        engine.reset(&Reset::all()).unwrap();
        step(&mut engine);
        assert_eq!(step(&mut engine).2, [1, 0, 0]);
        assert_eq!(engine.frame().unwrap().truncated(), truncated, "{limit:?}");
    }
}

#[test]
fn actions_outside_the_space_are_refused_before_anything_moves() {
    let mut engine = counting(&MAX, AutoresetMode::NextStep);
    assert_eq!(engine.step().err(), Some(StepError::NotReset));
    engine.reset(&Reset::all()).unwrap();
    step(&mut engine);
    act(&mut engine, &[1, 9, 1]);
    let Err(StepError::Action(bad)) = engine.step() else { panic!("taken") };
    assert_eq!((bad.lane, bad.value.as_str()), (1, "9"));
    assert_eq!(step(&mut engine).0, [2.0, 2.0, 2.0]);
    // Lane 0 is reset in the next row, whatever its action is.
    act(&mut engine, &[-5, 2, 3]);
    assert_eq!(trace(engine.step().unwrap()).0, [0.0, 3.0, 3.0]);
}

#[test]
fn lists_of_another_length_than_the_batch_are_refused() {
    let mut engine = counting(&MAX, AutoresetMode::NextStep);
    let reset = Reset { seeds: vec![None; 2], ..Reset::default() };
    assert!(matches!(engine.reset(&reset), Err(StepError::Length { given: 2, wanted: 3, .. })));
    let reset = Reset { mask: vec![true; 4], ..Reset::default() };
    assert!(matches!(engine.reset(&reset), Err(StepError::Length { given: 4, wanted: 3, .. })));
}

//! GridBreakout-v0 and Echo-v0 from outside: what observations show, options, images.
#![allow(clippy::unwrap_used, reason = "test code")]

use crate::driver;

use driver::{Actions, Driver, options};
use rollhouse_core::{ColumnData, DType, LaneSet, OptionValue};
use rollhouse_env::{InstructionSet, MakeError, Registry, StateError};

const SIDE: usize = 10;
const CHANNELS: usize = 4;

/// One lane without sticky actions, in a given state.
fn breakout(state: &[f64; 9]) -> Driver {
    let calm = [("sticky_action_probability", OptionValue::Float(0.0))];
    let mut driver = Driver::new("GridBreakout-v0", 1, InstructionSet::best(), &calm);
    driver.seed_all(1);
    let _ = driver.reset(LaneSet::one(0));
    driver.block.set_state(0, state).unwrap();
    driver
}

fn act(driver: &mut Driver, action: i64) -> rollhouse_env::Ended {
    driver.step(LaneSet::NONE, LaneSet::NONE, &Actions::Integers(vec![action]))
}

/// Cells (column, row) that are lit in a channel.
fn lit(driver: &Driver, channel: usize) -> Vec<(usize, usize)> {
    let pixels = driver.pixels(0);
    let is_lit = |(column, row): &(usize, usize)| match pixels[(row * SIDE + column) * CHANNELS + channel] {
        0 => false,
        255 => true,
        other => panic!("a pixel is {other}"),
    };
    (0..SIDE).flat_map(|row| (0..SIDE).map(move |column| (column, row))).filter(is_lit).collect()
}

const ALL_BRICKS: f64 = ((1u32 << 30) - 1) as f64;

#[test]
fn an_observation_is_an_image_of_paddle_ball_trail_and_bricks() {
    let entry = Registry::builtin().get("GridBreakout-v0").unwrap();
    let space = entry.spec().observation_space.plain().unwrap();
    assert_eq!((space.dtype(), space.shape()), (DType::U8, &[SIDE, SIDE, CHANNELS][..]));
    // Ball at (4, 5) on its way down to the right, paddle at 2.
    let mut driver = breakout(&[4.0, 5.0, 1.0, 1.0, 3.0, 4.0, 2.0, ALL_BRICKS, 0.0]);
    let _ = act(&mut driver, 1);
    assert_eq!(lit(&driver, 0), [(1, 9)]);
    assert_eq!(lit(&driver, 1), [(5, 6)]);
    assert_eq!(lit(&driver, 2), [(4, 5)]);
    let bricks: Vec<_> = (1..4).flat_map(|row| (0..SIDE).map(move |column| (column, row))).collect();
    assert_eq!(lit(&driver, 3), bricks);
}

#[test]
fn a_broken_brick_gives_a_reward_and_leaves_the_picture() {
    let mut driver = breakout(&[4.0, 4.0, 1.0, -1.0, 3.0, 5.0, 2.0, ALL_BRICKS, 0.0]);
    assert_eq!(act(&mut driver, 0).terminated, LaneSet::NONE);
    assert_eq!(driver.rewards, [1.0]);
    assert_eq!(lit(&driver, 1), [(5, 3)]);
    assert!(!lit(&driver, 3).contains(&(5, 3)));
    assert_eq!(lit(&driver, 3).len(), 29);
    let _ = act(&mut driver, 0);
    assert_eq!(driver.rewards, [0.0]);
}

#[test]
fn an_episode_ends_with_the_ball_on_the_bottom_row() {
    let mut driver = breakout(&[4.0, 8.0, 1.0, 1.0, 3.0, 7.0, 0.0, ALL_BRICKS, 0.0]);
    assert_eq!(act(&mut driver, 0).terminated, LaneSet::one(0));
    assert_eq!(lit(&driver, 1), [(5, 9)]);
}

#[test]
fn a_certain_stick_repeats_the_first_move_for_ever() {
    let entry = Registry::builtin().get("GridBreakout-v0").unwrap();
    let stuck = options(&entry, &[("sticky_action_probability", OptionValue::Float(1.0))]);
    let mut driver = Driver::with(entry, InstructionSet::best(), &[stuck]);
    driver.seed_all(1);
    let _ = driver.reset(LaneSet::one(0));
    let paddle = driver.block.state(0).unwrap()[6];
    for _ in 0..3 {
        let _ = act(&mut driver, 2);
        assert_eq!(driver.block.state(0).unwrap()[6], paddle, "no move was the last one");
    }
}

#[test]
fn actions_stick_as_often_as_the_option_says() {
    let mut driver = Driver::new("GridBreakout-v0", 64, InstructionSet::best(), &[]);
    driver.seed_all(5);
    let _ = driver.reset(LaneSet::ALL);
    let (mut stuck, mut steps) = (0u32, 0u32);
    for step in 0..2_000i64 {
        // Left and right by turns: the state says which of them was made.
        let action = 1 + step % 2;
        let ended = driver.step(LaneSet::NONE, LaneSet::NONE, &Actions::Integers(vec![action; 64]));
        if step > 0 {
            let made = (0..64).map(|lane| driver.block.state(lane).unwrap()[8]);
            stuck += made.filter(|&made| made != action as f64).count() as u32;
            steps += 64;
        }
        let _ = driver.reset(ended.terminated);
    }
    // The last move differs from the action in a share p of steps that stick after one that did not, and so on:
    // p / (1 + p). The standard error of 128,000 draws is 0.0008.
    let share = f64::from(stuck) / f64::from(steps);
    assert!((share - 0.1 / 1.1).abs() < 0.01, "{share}");
}

#[test]
fn a_probability_outside_0_to_1_is_refused() {
    let entry = Registry::builtin().get("GridBreakout-v0").unwrap();
    for value in [-0.1, 1.5] {
        let given = options(&entry, &[("sticky_action_probability", OptionValue::Float(value))]);
        let refused = entry.make_block(&[given]).err();
        assert!(matches!(refused, Some(MakeError::Option { lane: 0, .. })), "{refused:?}");
    }
}

#[test]
fn an_image_of_the_game_shows_each_thing_in_its_cell() {
    let driver = breakout(&[4.0, 5.0, 1.0, 1.0, 3.0, 4.0, 2.0, 1.0, 0.0]);
    let image = driver.block.render(0, driver.entry.render_size().unwrap()).unwrap();
    assert_eq!((image.height(), image.width()), (400, 400));
    let pixel = |column: usize, row: usize| {
        let start = ((row * 40 + 20) * 400 + column * 40 + 20) * 3;
        &image.pixels()[start..start + 3]
    };
    let empty = pixel(9, 0);
    let things = [(0, 1), (4, 5), (3, 4), (2, 9)];
    let mut colours: Vec<_> = things.iter().map(|&(column, row)| pixel(column, row)).collect();
    for (&(column, row), colour) in things.iter().zip(&colours) {
        assert_ne!(*colour, empty, "({column}, {row})");
    }
    colours.sort_unstable();
    colours.dedup();
    assert_eq!(colours.len(), things.len(), "each thing has its colour");
}

#[test]
fn a_state_no_game_can_be_in_is_refused_and_changes_nothing() {
    let good = [4.0, 5.0, 1.0, 1.0, 3.0, 4.0, 2.0, 1.0, 0.0];
    let mut driver = breakout(&good);
    let refused = driver.block.set_state(0, &[4.0, 5.0, 1.0, 1.0, 3.0, 4.0, 2.5, 1.0, 0.0]);
    assert_eq!(refused, Err(StateError::Value { index: 6, given: 2.5 }));
    assert_eq!(driver.block.state(0).unwrap(), good);
}

#[test]
fn an_echo_shows_which_actions_were_stepped_and_how_often() {
    let mut driver = Driver::new("Echo-v0", 3, InstructionSet::best(), &[]);
    driver.seed_all(0);
    let _ = driver.reset(LaneSet::ALL);
    assert!(driver.singles().iter().all(|&value| value == 0.0));
    for step in 1..=5u16 {
        let action = |place: usize| (place as f32 - f32::from(step)) / 256.0;
        let _ = driver.step(LaneSet::one(1), LaneSet::NONE, &Actions::Floats((0..36).map(action).collect()));
        for (index, &value) in driver.obs_row(2).iter().enumerate() {
            assert_eq!(value, action(24 + index % 12) + f32::from(step), "element {index}");
        }
        assert_eq!(driver.rewards, [f64::from(action(0)), 0.0, f64::from(action(24))]);
        assert_eq!(driver.infos, [ColumnData::I64(vec![i64::from(step), 0, i64::from(step)])]);
    }
    assert!(driver.obs_row(1).iter().all(|&value| value == 0.0), "a skipped lane stands still");
}

//! MountainCarContinuous-v0, in which the car of MountainCar is pushed by a force of any size.
//!
//! Gymnasium keeps the state in float64 after a reset and in float32 from the first step on, and NumPy 2
//! computes `float32 (op) Python float` in float32. Which of the two each operation uses is part of the
//! dynamics and is followed here, in doubles that are rounded to singles where Gymnasium's are: a sum,
//! difference or product of singles that is rounded to double and then to single is the single-precision
//! result.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Determinism, EnvSource, EnvSpec, LANE_BIT, LaneSet, OptionSpec, OptionValue, Space};

use super::mountain_car::Params;
use crate::block::{Block, Dynamics, Row};
use crate::bounds::reset_bound_options;
use crate::scene::Scene;
use crate::trig::{self, Range};
use crate::{EnvEntry, Generator};

/// A block of mountain cars, whose state is the position, the velocity per step, and 1 once the two are held as
/// singles.
type MountainCarContinuousBlock = Block<MountainCarContinuous, 3, 2>;

/// Makes the registry's entry for the env.
pub(crate) fn mountain_car_continuous() -> EnvEntry {
    EnvEntry::soa(spec(), MountainCarContinuousBlock::new)
        .with_constants(CONSTANTS)
        .drawn(MountainCarContinuous::SIZE, MountainCarContinuous::FPS)
}

fn spec() -> EnvSpec {
    let (low, high) = ([MIN_POSITION as f32, -MAX_SPEED as f32], [MAX_POSITION as f32, MAX_SPEED as f32]);
    let mut options = vec![OptionSpec {
        name: "goal_velocity".into(),
        default: OptionValue::Float(0.0),
        summary: "least velocity at the goal that ends the episode, per step".into(),
    }];
    options.extend(reset_bound_options("the first position", -0.6, -0.4));
    EnvSpec {
        id: "MountainCarContinuous-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "drive a car up a hill with little force".into(),
        observation_space: Space::f32_box(&low, &high).into(),
        action_space: Space::f32_box(&[-1.0], &[1.0]),
        observation_names: ["position", "velocity"].map(String::from).into(),
        action_names: vec!["force".into()],
        max_episode_steps: Some(999),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options,
        info_channels: Vec::new(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0xfa5d_b290_a561_ae45;

pub(crate) struct MountainCarContinuous;

impl Dynamics<3, 2> for MountainCarContinuous {
    type Action = f32;
    type Params = Params;

    const WORDS_PER_RESET: u32 = 1;

    #[inline(always)]
    fn reset(params: &Params, lane: usize, generator: &mut Generator) -> [f64; 3] {
        let (low, high) = params.bounds.lane(lane);
        [generator.uniform(low, high), 0.0, 0.0]
    }

    #[inline(always)]
    fn observe(state: &[f64; 3]) -> [f32; 2] {
        [state[0] as f32, state[1] as f32]
    }

    #[inline(always)]
    fn step(
        params: &Params,
        lanes: usize,
        [position, velocity, single]: &mut [Row; 3],
        actions: &[f32],
        obs: &mut [[f32; 2]],
        rewards: &mut [f64],
    ) -> LaneSet {
        let mut slope = [0.0; BLOCK_LANES];
        for i in 0..lanes {
            slope[i] = rounded_if(single[i] != 0.0, 3.0 * position[i]);
        }
        match trig::range(&slope[..lanes]) {
            Range::Far => cosines(&mut slope[..lanes], trig::sin_cos),
            _ => cosines(&mut slope[..lanes], trig::sin_cos_wide),
        }
        let terminated = advance(lanes, params, position, velocity, single, &slope, actions, rewards);
        for i in 0..lanes {
            obs[i] = [position[i] as f32, velocity[i] as f32];
        }
        terminated
    }
}

/// Replaces each value by its cosine.
#[inline(always)]
fn cosines(values: &mut [f64], sin_cos: impl Fn(f64) -> (f64, f64)) {
    for value in values {
        *value = sin_cos(*value).1;
    }
}

#[inline(always)]
#[expect(
    clippy::too_many_arguments,
    reason = "separate arguments tell the compiler that rows do not overlap"
)]
fn advance(
    lanes: usize,
    params: &Params,
    position: &mut Row,
    velocity: &mut Row,
    single: &mut Row,
    slope: &Row,
    actions: &[f32],
    rewards: &mut [f64],
) -> LaneSet {
    let (position, velocity) = (&mut position[..lanes], &mut velocity[..lanes]);
    let (single, rewards, actions) = (&mut single[..lanes], &mut rewards[..lanes], &actions[..lanes]);
    let mut terminated = 0;
    for i in 0..lanes {
        let action = f64::from(actions[i]);
        let is_single = single[i] != 0.0;
        let limit = |value: f64| rounded_if(is_single, value);

        // A force out of bounds becomes a Python float, and the difference is then one of doubles.
        let pull = 0.0025 * slope[i];
        let inside = rounded(rounded(action * rounded(POWER)) - rounded(pull));
        let outside = (if action > 0.0 { POWER } else { -POWER }) - pull;
        let change = if action.abs() > 1.0 { outside } else { inside };

        let free = rounded_if(is_single, velocity[i] + rounded_if(is_single, change));
        let too_fast = free > limit(MAX_SPEED);
        let speed = if too_fast { MAX_SPEED } else { free };
        let speed = if free < limit(-MAX_SPEED) { -MAX_SPEED } else { speed };
        let place = rounded_if(is_single, position[i] + rounded_if(is_single, speed));
        let place = if place > limit(MAX_POSITION) { limit(MAX_POSITION) } else { place };
        let place = if place < limit(MIN_POSITION) { limit(MIN_POSITION) } else { place };
        let speed = if (place == limit(MIN_POSITION)) & (speed < 0.0) { 0.0 } else { speed };

        // A clipped velocity is a Python float too, and is compared as a double.
        let goal_velocity = rounded_if(is_single & !too_fast, params.goal_velocity[i]);
        let over = (place >= limit(GOAL_POSITION)) & (speed >= goal_velocity);
        rewards[i] = (if over { 100.0 } else { 0.0 }) - (action * action) * 0.1;
        terminated |= if over { LANE_BIT[i] } else { 0 };
        position[i] = rounded(place);
        velocity[i] = rounded(speed);
        single[i] = 1.0;
    }
    LaneSet::of_bits(terminated)
}

#[inline(always)]
fn rounded(value: f64) -> f64 {
    f64::from(value as f32)
}

#[inline(always)]
fn rounded_if(single: bool, value: f64) -> f64 {
    if single { rounded(value) } else { value }
}

const MIN_POSITION: f64 = -1.2;
const MAX_POSITION: f64 = 0.6;
const MAX_SPEED: f64 = 0.07;
pub(crate) const GOAL_POSITION: f64 = 0.45;
const POWER: f64 = 0.0015;

/// Constants by the names that they have in Gymnasium.
const CONSTANTS: &[(&str, f64)] = &[
    ("min_action", -1.0),
    ("max_action", 1.0),
    ("min_position", MIN_POSITION),
    ("max_position", MAX_POSITION),
    ("max_speed", MAX_SPEED),
    ("goal_position", GOAL_POSITION),
    ("power", POWER),
];

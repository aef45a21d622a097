//! MountainCar-v0, in which a car too weak for its hill is pushed left, right or not at all.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{
    Determinism, EnvSource, EnvSpec, LANE_BIT, LaneSet, OptionSpec, OptionValue, Options, Space,
};

use crate::block::{self, Block, Dynamics, Row};
use crate::bounds::{ResetBounds, float, reset_bound_options};
use crate::scene::Scene;
use crate::trig::{self, Range};
use crate::{EnvEntry, Generator, MakeError};

/// A block of mountain cars, whose state is the position and the velocity per step.
type MountainCarBlock = Block<MountainCar, 2, 2>;

/// Makes the registry's entry for the env.
pub(crate) fn mountain_car() -> EnvEntry {
    EnvEntry::soa(spec(), MountainCarBlock::new)
        .with_constants(CONSTANTS)
        .drawn(MountainCar::SIZE, MountainCar::FPS)
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
        id: "MountainCar-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "drive a car up a hill it can only climb with a run-up".into(),
        observation_space: Space::f32_box(&low, &high).into(),
        action_space: Space::discrete(3),
        observation_names: ["position", "velocity"].map(String::from).into(),
        action_names: ["left", "none", "right"].map(String::from).into(),
        max_episode_steps: Some(200),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options,
        info_channels: Vec::new(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0x8b92_885c_dc52_8b57;

/// The options of lanes with a mountain car, pushed by three forces or by any.
pub(crate) struct Params {
    pub(super) bounds: ResetBounds,
    pub(super) goal_velocity: Row,
}

impl Default for Params {
    fn default() -> Self {
        Self { bounds: ResetBounds::default(), goal_velocity: [0.0; BLOCK_LANES] }
    }
}

impl block::Params for Params {
    fn set(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        self.bounds.set(lane, options)?;
        self.goal_velocity[lane] = float(options, lane, "goal_velocity")?;
        Ok(())
    }
}

pub(crate) struct MountainCar;

impl Dynamics<2, 2> for MountainCar {
    type Action = i64;
    type Params = Params;

    const WORDS_PER_RESET: u32 = 1;

    #[inline(always)]
    fn reset(params: &Params, lane: usize, generator: &mut Generator) -> [f64; 2] {
        let (low, high) = params.bounds.lane(lane);
        [generator.uniform(low, high), 0.0]
    }

    #[inline(always)]
    fn observe(state: &[f64; 2]) -> [f32; 2] {
        state.map(|value| value as f32)
    }

    #[inline(always)]
    fn step(
        params: &Params,
        lanes: usize,
        [position, velocity]: &mut [Row; 2],
        actions: &[i64],
        obs: &mut [[f32; 2]],
        rewards: &mut [f64],
    ) -> LaneSet {
        let mut slope = [0.0; BLOCK_LANES];
        for i in 0..lanes {
            slope[i] = 3.0 * position[i];
        }
        match trig::range(&slope[..lanes]) {
            Range::Far => cosines(&mut slope[..lanes], trig::sin_cos),
            _ => cosines(&mut slope[..lanes], trig::sin_cos_wide),
        }
        advance(lanes, position, velocity, &slope, actions);
        finish(lanes, params, position, velocity, obs, rewards)
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
fn advance(lanes: usize, position: &mut Row, velocity: &mut Row, slope: &Row, actions: &[i64]) {
    let (position, velocity) = (&mut position[..lanes], &mut velocity[..lanes]);
    let (slope, actions) = (&slope[..lanes], &actions[..lanes]);
    for i in 0..lanes {
        // Actions are 0 to 2; the cut to 32 bits only matters for lanes that do not step.
        let push = f64::from(actions[i] as i32) - 1.0;
        let free = velocity[i] + (push * FORCE + slope[i] * -GRAVITY);
        let speed = clip(free, -MAX_SPEED, MAX_SPEED);
        let place = clip(position[i] + speed, MIN_POSITION, MAX_POSITION);
        position[i] = place;
        velocity[i] = if (place == MIN_POSITION) & (speed < 0.0) { 0.0 } else { speed };
    }
}

/// Limits `value` to the range from `low` to `high`; NaN stays.
#[inline(always)]
fn clip(value: f64, low: f64, high: f64) -> f64 {
    let value = if value < low { low } else { value };
    if value > high { high } else { value }
}

/// Writes the observations and rewards of the new states and returns the lanes that reached the goal.
#[inline(always)]
fn finish(
    lanes: usize,
    params: &Params,
    position: &Row,
    velocity: &Row,
    obs: &mut [[f32; 2]],
    rewards: &mut [f64],
) -> LaneSet {
    let (obs, rewards) = (&mut obs[..lanes], &mut rewards[..lanes]);
    let mut terminated = 0;
    for i in 0..lanes {
        let over = (position[i] >= GOAL_POSITION) & (velocity[i] >= params.goal_velocity[i]);
        terminated |= if over { LANE_BIT[i] } else { 0 };
        rewards[i] = -1.0;
        obs[i] = [position[i] as f32, velocity[i] as f32];
    }
    LaneSet::of_bits(terminated)
}

pub(crate) const MIN_POSITION: f64 = -1.2;
pub(crate) const MAX_POSITION: f64 = 0.6;
const MAX_SPEED: f64 = 0.07;
pub(crate) const GOAL_POSITION: f64 = 0.5;
const FORCE: f64 = 0.001;
const GRAVITY: f64 = 0.0025;

/// Constants by the names that they have in Gymnasium.
const CONSTANTS: &[(&str, f64)] = &[
    ("min_position", MIN_POSITION),
    ("max_position", MAX_POSITION),
    ("max_speed", MAX_SPEED),
    ("goal_position", GOAL_POSITION),
    ("force", FORCE),
    ("gravity", GRAVITY),
];

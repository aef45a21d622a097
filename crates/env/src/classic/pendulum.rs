//! Pendulum-v1, in which a pendulum is swung up and held by a limited torque.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Determinism, EnvSource, EnvSpec, LaneSet, OptionSpec, OptionValue, Options, Space};

use crate::block::{self, Block, Dynamics, Row};
use crate::bounds::float;
use crate::scene::Scene;
use crate::trig::{self, Range};
use crate::{EnvEntry, Generator, MakeError};

/// A block of pendulums, whose state is the angle (rad, 0 upright, not wrapped) and the angular velocity (rad/s).
type PendulumBlock = Block<Pendulum, 2, 3>;

/// Makes the registry's entry for the env.
pub(crate) fn pendulum() -> EnvEntry {
    EnvEntry::soa(spec(), PendulumBlock::new).with_constants(CONSTANTS).drawn(Pendulum::SIZE, Pendulum::FPS)
}

fn spec() -> EnvSpec {
    let high = [1.0, 1.0, MAX_SPEED as f32];
    let option = |name: &str, default, summary: &str| OptionSpec {
        name: name.into(),
        default: OptionValue::Float(default),
        summary: summary.into(),
    };
    EnvSpec {
        id: "Pendulum-v1".into(),
        source: EnvSource::BuiltIn,
        summary: "swing a pendulum up and keep it upright".into(),
        observation_space: Space::f32_box(&high.map(|bound| -bound), &high).into(),
        action_space: Space::f32_box(&[-MAX_TORQUE], &[MAX_TORQUE]),
        observation_names: ["cos_angle", "sin_angle", "angular_velocity"].map(String::from).into(),
        action_names: vec!["torque".into()],
        max_episode_steps: Some(200),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: vec![
            option("g", 10.0, "gravity in m/s^2"),
            option("x_init", std::f64::consts::PI, "largest first angle in rad, either way"),
            option("y_init", 1.0, "largest first angular velocity in rad/s, either way"),
        ],
        info_channels: Vec::new(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0x805d_4808_0cd2_7db1;

pub(crate) struct Params {
    /// Angular acceleration of a horizontal pendulum, `3 g / (2 l)`.
    fall: Row,
    angle: Row,
    velocity: Row,
}

impl Default for Params {
    fn default() -> Self {
        let zero = [0.0; BLOCK_LANES];
        Self { fall: zero, angle: zero, velocity: zero }
    }
}

impl block::Params for Params {
    fn set(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        let fall = 3.0 * float(options, lane, "g")? / 2.0;
        let (angle, velocity) = (bound(options, lane, "x_init")?, bound(options, lane, "y_init")?);
        (self.fall[lane], self.angle[lane], self.velocity[lane]) = (fall, angle, velocity);
        Ok(())
    }
}

/// Returns a bound that is used with both signs.
fn bound(options: &Options, lane: usize, name: &'static str) -> Result<f64, MakeError> {
    let value = float(options, lane, name)?;
    if (0.0..=f64::MAX / 2.0).contains(&value) {
        Ok(value)
    } else {
        Err(MakeError::option(lane, name, value, format!("from 0 to {:e}", f64::MAX / 2.0)))
    }
}

pub(crate) struct Pendulum;

impl Dynamics<2, 3> for Pendulum {
    type Action = f32;
    type Params = Params;

    const WORDS_PER_RESET: u32 = 2;

    #[inline(always)]
    fn reset(params: &Params, lane: usize, generator: &mut Generator) -> [f64; 2] {
        let mut draw = |bound: f64| generator.uniform(-bound, bound);
        [draw(params.angle[lane]), draw(params.velocity[lane])]
    }

    #[inline(always)]
    fn observe(state: &[f64; 2]) -> [f32; 3] {
        let (sin, cos) = trig::sin_cos(state[0]);
        [cos as f32, sin as f32, state[1] as f32]
    }

    #[inline(always)]
    fn step(
        params: &Params,
        lanes: usize,
        [angle, velocity]: &mut [Row; 2],
        actions: &[f32],
        obs: &mut [[f32; 3]],
        rewards: &mut [f64],
    ) -> LaneSet {
        match trig::range(&angle[..lanes]) {
            Range::Far => {
                advance(lanes, params, angle, velocity, actions, rewards, trig::sin_cos, trig::modulo_tau);
            }
            _ => {
                let modulo = trig::modulo_tau_wide;
                advance(lanes, params, angle, velocity, actions, rewards, trig::sin_cos_wide, modulo);
            }
        }
        match trig::range(&angle[..lanes]) {
            Range::Far => observe_rows(lanes, angle, velocity, obs, trig::sin_cos),
            _ => observe_rows(lanes, angle, velocity, obs, trig::sin_cos_wide),
        }
        LaneSet::NONE
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
    angle: &mut Row,
    velocity: &mut Row,
    actions: &[f32],
    rewards: &mut [f64],
    sin_cos: impl Fn(f64) -> (f64, f64),
    modulo_tau: impl Fn(f64) -> f64,
) {
    let (angle, velocity) = (&mut angle[..lanes], &mut velocity[..lanes]);
    let (actions, rewards) = (&actions[..lanes], &mut rewards[..lanes]);
    for i in 0..lanes {
        // The torque is a single, and so is what Gymnasium computes from it alone.
        let torque = actions[i];
        let torque = if torque < -MAX_TORQUE { -MAX_TORQUE } else { torque };
        let torque = if torque > MAX_TORQUE { MAX_TORQUE } else { torque };
        let (from_upright, speed) = (modulo_tau(angle[i] + PI) - PI, velocity[i]);
        let effort = f64::from(TORQUE_COST * (torque * torque));
        rewards[i] = -((from_upright * from_upright + 0.1 * (speed * speed)) + effort);

        let (sin, _) = sin_cos(angle[i]);
        let free = speed + (params.fall[i] * sin + f64::from(3.0 * torque)) * DT;
        let free = if free < -MAX_SPEED { -MAX_SPEED } else { free };
        velocity[i] = if free > MAX_SPEED { MAX_SPEED } else { free };
        angle[i] += velocity[i] * DT;
    }
}

#[inline(always)]
fn observe_rows(
    lanes: usize,
    angle: &Row,
    velocity: &Row,
    obs: &mut [[f32; 3]],
    sin_cos: impl Fn(f64) -> (f64, f64),
) {
    let (angle, velocity, obs) = (&angle[..lanes], &velocity[..lanes], &mut obs[..lanes]);
    for i in 0..lanes {
        let (sin, cos) = sin_cos(angle[i]);
        obs[i] = [cos as f32, sin as f32, velocity[i] as f32];
    }
}

const PI: f64 = std::f64::consts::PI;
const MAX_SPEED: f64 = 8.0;
const MAX_TORQUE: f32 = 2.0;
const TORQUE_COST: f32 = 0.001;
/// Time between two states, in seconds.
const DT: f64 = 0.05;

/// Constants by the names that they have in Gymnasium. Mass and length are 1 and stand nowhere else.
const CONSTANTS: &[(&str, f64)] =
    &[("max_speed", MAX_SPEED), ("max_torque", MAX_TORQUE as f64), ("dt", DT), ("m", 1.0), ("l", 1.0)];

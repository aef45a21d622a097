//! CartPole-v1: a pole on a cart that is pushed left or right.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{Determinism, EnvSpec, OptionSpec, OptionValue, Options, Space};

use crate::block::{Block, Dynamics, LANE_BIT, Row};
use crate::bounds::{ResetBounds, reset_bound_options};
use crate::trig::{self, Range};
use crate::{EnvEntry, Generator, MakeError};

/// State: position (m), velocity (m/s), angle (rad), angular velocity (rad/s), and 1 once the pole has fallen.
pub(crate) type CartPoleBlock = Block<CartPole, 5, 4>;

/// The registry's entry.
pub(crate) fn cartpole() -> EnvEntry {
    EnvEntry::soa(spec(), |target, options| Ok(CartPoleBlock::new(target, options.len(), params(options)?)))
}

fn spec() -> EnvSpec {
    let high = [(X_LIMIT * 2.0) as f32, f32::INFINITY, (THETA_LIMIT * 2.0) as f32, f32::INFINITY];
    let mut options = vec![OptionSpec {
        name: "sutton_barto_reward".into(),
        default: OptionValue::Bool(false),
        summary: "reward 0 for a step and -1 for the one that ends, instead of 1 for each".into(),
    }];
    options.extend(reset_bound_options("each element of the first state", -0.05, 0.05));
    EnvSpec {
        id: "CartPole-v1".into(),
        summary: "keep a pole upright on a cart that is pushed left or right".into(),
        observation_space: Space::f32_box(&high.map(|bound| -bound), &high),
        action_space: Space::discrete(2),
        observation_names: ["position", "velocity", "angle", "angular_velocity"].map(String::from).into(),
        action_names: ["left", "right"].map(String::from).into(),
        max_episode_steps: Some(500),
        determinism: Determinism::Deterministic,
        options,
        info_channels: Vec::new(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Recomputed by a test.
const DYNAMICS_HASH: u64 = 0x3a04_56c4_9c7b_ad66;

pub(crate) struct Params {
    bounds: ResetBounds,
    /// 1 where `sutton_barto_reward` is set, else 0.
    sutton_barto: Row,
}

fn params(options: &[Options]) -> Result<Params, MakeError> {
    let mut sutton_barto = [0.0; BLOCK_LANES];
    for (flag, options) in sutton_barto.iter_mut().zip(options) {
        *flag = f64::from(u8::from(options.flag("sutton_barto_reward").unwrap_or_default()));
    }
    Ok(Params { bounds: ResetBounds::of(options)?, sutton_barto })
}

pub(crate) struct CartPole;

impl Dynamics<5, 4> for CartPole {
    type Action = i64;
    type Params = Params;

    #[inline(always)]
    fn reset(params: &Params, lane: usize, generator: &mut Generator) -> [f64; 5] {
        let (low, high) = params.bounds.lane(lane);
        let mut draw = || generator.uniform(low, high);
        [draw(), draw(), draw(), draw(), 0.0]
    }

    #[inline(always)]
    fn observe(state: &[f64; 5]) -> [f32; 4] {
        let [x, x_dot, theta, theta_dot, _] = state.map(|value| value as f32);
        [x, x_dot, theta, theta_dot]
    }

    #[inline(always)]
    fn step(
        params: &Params,
        lanes: usize,
        [x, x_dot, theta, theta_dot, fallen]: &mut [Row; 5],
        actions: &[i64],
        obs: &mut [[f32; 4]],
        rewards: &mut [f64],
    ) -> u64 {
        match trig::range(&theta[..lanes]) {
            Range::Small => advance(lanes, x, x_dot, theta, theta_dot, actions, trig::sin_cos_small),
            Range::Wide => advance(lanes, x, x_dot, theta, theta_dot, actions, trig::sin_cos_wide),
            Range::Far => advance(lanes, x, x_dot, theta, theta_dot, actions, trig::sin_cos),
        }
        finish(lanes, params, x, x_dot, theta, theta_dot, fallen, obs, rewards)
    }
}

/// One Euler step. Differs from Gymnasium in the last bits only: the time step and the constant divisors are
/// multiplied into the other constants, because a division costs as much as ten multiplications.
#[inline(always)]
fn advance(
    lanes: usize,
    x: &mut Row,
    x_dot: &mut Row,
    theta: &mut Row,
    theta_dot: &mut Row,
    actions: &[i64],
    sin_cos: impl Fn(f64) -> (f64, f64),
) {
    let (x, x_dot) = (&mut x[..lanes], &mut x_dot[..lanes]);
    let (theta, theta_dot) = (&mut theta[..lanes], &mut theta_dot[..lanes]);
    let actions = &actions[..lanes];
    for i in 0..lanes {
        let (sin, cos) = sin_cos(theta[i]);
        // 1 pushes right, 0 left: the action's lowest bit flips the sign.
        let push = f64::from_bits((-PUSH).to_bits() ^ ((actions[i] as u64) << 63));
        let change = push + SWING * (theta_dot[i] * theta_dot[i]) * sin;
        let theta_dot_change =
            (TAU * GRAVITY * sin - cos * change) / (LENGTH * 4.0 / 3.0 - LENGTH * MASS_RATIO * (cos * cos));
        let x_dot_change = change - LENGTH * MASS_RATIO * theta_dot_change * cos;
        x[i] += TAU * x_dot[i];
        x_dot[i] += x_dot_change;
        theta[i] += TAU * theta_dot[i];
        theta_dot[i] += theta_dot_change;
    }
}

/// What follows from the new state.
#[inline(always)]
#[expect(
    clippy::too_many_arguments,
    reason = "separate arguments tell the compiler that rows do not overlap"
)]
fn finish(
    lanes: usize,
    params: &Params,
    x: &Row,
    x_dot: &Row,
    theta: &Row,
    theta_dot: &Row,
    fallen: &mut Row,
    obs: &mut [[f32; 4]],
    rewards: &mut [f64],
) -> u64 {
    let (obs, rewards, fallen) = (&mut obs[..lanes], &mut rewards[..lanes], &mut fallen[..lanes]);
    let mut terminated = 0;
    for i in 0..lanes {
        let over = (x[i].abs() > X_LIMIT) | (theta[i].abs() > THETA_LIMIT);
        // 0 or 1 each: a fallen pole gives 1 less than a standing one, the fall itself only if so chosen.
        let (sutton_barto, before) = (params.sutton_barto[i], fallen[i]);
        let penalty = if sutton_barto > before { sutton_barto } else { before };
        rewards[i] = (1.0 - sutton_barto) - if over { penalty } else { 0.0 };
        fallen[i] = if over { 1.0 } else { before };
        terminated |= if over { LANE_BIT[i] } else { 0 };
        obs[i] = [x[i] as f32, x_dot[i] as f32, theta[i] as f32, theta_dot[i] as f32];
    }
    terminated
}

const GRAVITY: f64 = 9.8;
const CART_MASS: f64 = 1.0;
const POLE_MASS: f64 = 0.1;
const MASS_RATIO: f64 = POLE_MASS / (POLE_MASS + CART_MASS);
/// Half the pole's.
const LENGTH: f64 = 0.5;
const FORCE: f64 = 10.0;
/// Seconds between two states.
const TAU: f64 = 0.02;
/// What the force adds to the velocity in a step.
const PUSH: f64 = TAU * FORCE / (POLE_MASS + CART_MASS);
/// What the pole's swing adds to it, per squared angular velocity.
const SWING: f64 = TAU * LENGTH * MASS_RATIO;
const THETA_LIMIT: f64 = 12.0 * 2.0 * std::f64::consts::PI / 360.0;
const X_LIMIT: f64 = 2.4;

//! CartPole-v1: a pole on a cart that is pushed left or right.

use rollhouse_core::{Determinism, EnvSpec, OptionSpec, OptionValue, Options, Space};

use crate::block::{Block, Dynamics, GROUP, GroupStep, Row};
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
const DYNAMICS_HASH: u64 = 0;

/// What one group was made with.
#[derive(Clone)]
pub(crate) struct Params {
    bounds: ResetBounds,
    /// 1 where `sutton_barto_reward` is set, else 0.
    sutton_barto: Row,
}

fn params(options: &[Options]) -> Result<Vec<Params>, MakeError> {
    let bounds = ResetBounds::of(options)?;
    let groups = options.chunks(GROUP).zip(bounds).map(|(options, bounds)| {
        let mut sutton_barto = [0.0; GROUP];
        for (flag, options) in sutton_barto.iter_mut().zip(options) {
            *flag = f64::from(u8::from(options.flag("sutton_barto_reward").unwrap_or_default()));
        }
        Params { bounds, sutton_barto }
    });
    Ok(groups.collect())
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
    fn step(params: &Params, state: &mut [Row; 5], step: GroupStep<'_, i64, 4>) {
        let theta = state[2];
        match trig::range(&theta) {
            Range::Small => advance(params, state, step, &theta, trig::sin_cos_small),
            Range::Wide => advance(params, state, step, &theta, trig::sin_cos_wide),
            Range::Far => advance(params, state, step, &theta.map(trig::fold), trig::sin_cos_wide),
        }
    }
}

/// One Euler step. Differs from Gymnasium in the last bits only: divisions by constants are multiplications
/// here, because a division costs as much as ten of them.
#[inline(always)]
fn advance(
    params: &Params,
    state: &mut [Row; 5],
    step: GroupStep<'_, i64, 4>,
    theta_folded: &Row,
    sin_cos: impl Fn(f64) -> (f64, f64),
) {
    let [x, x_dot, theta, theta_dot, fallen] = *state;
    let mut next = [[0.0; GROUP]; 5];
    for i in 0..GROUP {
        let (sin, cos) = sin_cos(theta_folded[i]);
        // 1 pushes right, 0 left: the action's lowest bit is the sign.
        let force = f64::from_bits(FORCE.to_bits() ^ (((step.actions[i] ^ 1) as u64) << 63));
        let temp = (force + POLE_MASS_LENGTH * (theta_dot[i] * theta_dot[i]) * sin) * (1.0 / TOTAL_MASS);
        let theta_acc = (GRAVITY * sin - cos * temp)
            / (LENGTH * 4.0 / 3.0 - (LENGTH * POLE_MASS / TOTAL_MASS) * (cos * cos));
        let x_acc = temp - (POLE_MASS_LENGTH / TOTAL_MASS) * theta_acc * cos;

        let next_x = x[i] + TAU * x_dot[i];
        let next_theta = theta[i] + TAU * theta_dot[i];
        next[0][i] = next_x;
        next[1][i] = x_dot[i] + TAU * x_acc;
        next[2][i] = next_theta;
        next[3][i] = theta_dot[i] + TAU * theta_acc;
        let terminated = (next_x.abs() > X_LIMIT) | (next_theta.abs() > THETA_LIMIT);
        step.terminated[i] = terminated;
        next[4][i] = if terminated { 1.0 } else { fallen[i] };

        let sutton_barto = params.sutton_barto[i];
        let penalty = if fallen[i] == 0.0 { sutton_barto } else { 1.0 };
        step.rewards[i] = (1.0 - sutton_barto) - if terminated { penalty } else { 0.0 };
        step.obs[i] = [next[0][i] as f32, next[1][i] as f32, next[2][i] as f32, next[3][i] as f32];
    }
    *state = next;
}

const GRAVITY: f64 = 9.8;
const CART_MASS: f64 = 1.0;
const POLE_MASS: f64 = 0.1;
const TOTAL_MASS: f64 = POLE_MASS + CART_MASS;
/// Half the pole's.
const LENGTH: f64 = 0.5;
const POLE_MASS_LENGTH: f64 = POLE_MASS * LENGTH;
const FORCE: f64 = 10.0;
/// Seconds between two states.
const TAU: f64 = 0.02;
const THETA_LIMIT: f64 = 12.0 * 2.0 * std::f64::consts::PI / 360.0;
const X_LIMIT: f64 = 2.4;

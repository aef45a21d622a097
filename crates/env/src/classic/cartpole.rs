//! CartPole-v1, in which a pole stands on a cart that is pushed left or right.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{
    Determinism, EnvSource, EnvSpec, LANE_BIT, LaneSet, OptionSpec, OptionValue, Options, Space,
};

use crate::block::{self, Block, Dynamics, Row};
use crate::bounds::{ResetBounds, reset_bound_options};
use crate::scene::Scene;
use crate::trig::{self, Range};
use crate::{EnvEntry, Generator, MakeError};

/// A block of cart-poles, whose state is position (m), velocity (m/s), angle (rad) and angular velocity (rad/s). The
/// state does not say that the pole has fallen: lanes are reset before they are stepped again.
pub(crate) type CartPoleBlock = Block<CartPole, 4, 4>;

/// Makes the registry's entry for the env.
pub(crate) fn cartpole() -> EnvEntry {
    EnvEntry::soa(spec(), CartPoleBlock::new).with_constants(CONSTANTS).drawn(CartPole::SIZE, CartPole::FPS)
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
        source: EnvSource::BuiltIn,
        summary: "keep a pole upright on a cart that is pushed left or right".into(),
        observation_space: Space::f32_box(&high.map(|bound| -bound), &high).into(),
        action_space: Space::discrete(2),
        observation_names: ["position", "velocity", "angle", "angular_velocity"].map(String::from).into(),
        action_names: ["left", "right"].map(String::from).into(),
        max_episode_steps: Some(500),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options,
        info_channels: Vec::new(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0x8162_0ef0_e3d8_c050;

#[derive(Default)]
pub(crate) struct Params {
    bounds: ResetBounds,
    /// Lanes whose option `sutton_barto_reward` is on.
    sutton_barto: LaneSet,
}

impl block::Params for Params {
    fn set(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        self.bounds.set(lane, options)?;
        self.sutton_barto.remove(lane);
        self.sutton_barto.insert_if(lane, options.flag("sutton_barto_reward").unwrap_or_default());
        Ok(())
    }
}

pub(crate) struct CartPole;

impl Dynamics<4, 4> for CartPole {
    type Action = i64;
    type Params = Params;

    const WORDS_PER_RESET: u32 = 4;

    #[inline(always)]
    fn reset(params: &Params, lane: usize, generator: &mut Generator) -> [f64; 4] {
        let (low, high) = params.bounds.lane(lane);
        let mut draw = || generator.uniform(low, high);
        [draw(), draw(), draw(), draw()]
    }

    #[inline(always)]
    fn observe(state: &[f64; 4]) -> [f32; 4] {
        state.map(|value| value as f32)
    }

    #[inline(always)]
    fn step(
        params: &Params,
        lanes: usize,
        [x, x_dot, theta, theta_dot]: &mut [Row; 4],
        actions: &[i64],
        obs: &mut [[f32; 4]],
        rewards: &mut [f64],
    ) -> LaneSet {
        match trig::range(&theta[..lanes]) {
            Range::Near => advance(lanes, x, x_dot, theta, theta_dot, actions, trig::sin_cos_near),
            Range::Wide => advance(lanes, x, x_dot, theta, theta_dot, actions, |angle| {
                trig::sin_cos_mostly_near(angle, trig::sin_cos_wide)
            }),
            Range::Far => advance(lanes, x, x_dot, theta, theta_dot, actions, |angle| {
                trig::sin_cos_mostly_near(angle, trig::sin_cos)
            }),
        }
        rewards[..lanes].fill(1.0);
        let fallen = finish(lanes, x, x_dot, theta, theta_dot, obs);
        for lane in params.sutton_barto & LaneSet::first(lanes) {
            rewards[lane] = if fallen.has(lane) { -1.0 } else { 0.0 };
        }
        fallen
    }
}

/// Makes one Euler step. It differs from Gymnasium in the last bits only: divisions cost as much as ten multiplications
/// or more, so the time step and the constant divisors are multiplied into the other constants, and the one divisor
/// that changes is inverted by [`inverse_inertia`].
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
    // Three loops, not one: a lane's operations wait for one another, and the shorter a loop's body, the more lanes
    // a processor has under way at a time.
    let (mut sin, mut cos, mut inverse) = (Aligned::default(), Aligned::default(), Aligned::default());
    let (sin, cos, inverse) = (&mut sin.0[..lanes], &mut cos.0[..lanes], &mut inverse.0[..lanes]);
    for i in 0..lanes {
        (sin[i], cos[i]) = sin_cos(theta[i]);
    }
    for i in 0..lanes {
        inverse[i] = inverse_inertia(cos[i] * cos[i]);
    }
    for i in 0..lanes {
        // 1 pushes right, 0 left: the action's lowest bit flips the sign.
        let push = f64::from_bits((-PUSH).to_bits() ^ ((actions[i] as u64) << 63));
        let change = push + SWING * (theta_dot[i] * theta_dot[i]) * sin[i];
        let theta_dot_change = (TAU * GRAVITY * sin[i] - cos[i] * change) * inverse[i];
        let x_dot_change = change - LENGTH * MASS_RATIO * theta_dot_change * cos[i];
        x[i] += TAU * x_dot[i];
        x_dot[i] += x_dot_change;
        theta[i] += TAU * theta_dot[i];
        theta_dot[i] += theta_dot_change;
    }
}

/// A row that begins at a cache line, as the rows of a state do.
#[repr(align(64))]
struct Aligned(Row);

impl Default for Aligned {
    #[inline(always)]
    fn default() -> Self {
        Self([0.0; BLOCK_LANES])
    }
}

/// Returns 1 / (LENGTH * 4 / 3 - LENGTH * MASS_RATIO * u) for u in [0, 1], to 2 ulp. It takes the parabola through the
/// Chebyshev nodes, which is within 1.1e-5, and two of Newton's iterations, each of which squares the error.
#[inline(always)]
fn inverse_inertia(u: f64) -> f64 {
    let inertia = LENGTH * 4.0 / 3.0 - LENGTH * MASS_RATIO * u;
    let guess = INVERSE_INERTIA[0] + u * (INVERSE_INERTIA[1] + u * INVERSE_INERTIA[2]);
    let closer = guess * (2.0 - inertia * guess);
    closer * (2.0 - inertia * closer)
}

/// Writes the observations of the new states and returns the lanes whose pole has fallen or whose cart has left the
/// track.
#[inline(always)]
fn finish(lanes: usize, x: &Row, x_dot: &Row, theta: &Row, theta_dot: &Row, obs: &mut [[f32; 4]]) -> LaneSet {
    let obs = &mut obs[..lanes];
    let mut fallen = 0;
    for i in 0..lanes {
        let over = (x[i].abs() > X_LIMIT) | (theta[i].abs() > THETA_LIMIT);
        fallen |= if over { LANE_BIT[i] } else { 0 };
        obs[i] = [x[i] as f32, x_dot[i] as f32, theta[i] as f32, theta_dot[i] as f32];
    }
    LaneSet::of_bits(fallen)
}

const GRAVITY: f64 = 9.8;
const CART_MASS: f64 = 1.0;
const POLE_MASS: f64 = 0.1;
const MASS_RATIO: f64 = POLE_MASS / (POLE_MASS + CART_MASS);
/// Half the length of the pole, in metres.
pub(crate) const LENGTH: f64 = 0.5;
const FORCE: f64 = 10.0;
/// Time between two states, in seconds.
const TAU: f64 = 0.02;
/// Velocity that the force adds in a step.
const PUSH: f64 = TAU * FORCE / (POLE_MASS + CART_MASS);
/// Velocity that the pole's swing adds in a step, per squared angular velocity.
const SWING: f64 = TAU * LENGTH * MASS_RATIO;
const INVERSE_INERTIA: [f64; 3] =
    [1.500_016_502_288_928_7, 0.101_976_811_228_075_89, 0.007_745_074_270_486_776];
pub(crate) const THETA_LIMIT: f64 = 12.0 * 2.0 * std::f64::consts::PI / 360.0;
pub(crate) const X_LIMIT: f64 = 2.4;

/// Constants by the names that they have in Gymnasium.
const CONSTANTS: &[(&str, f64)] = &[
    ("gravity", GRAVITY),
    ("masscart", CART_MASS),
    ("masspole", POLE_MASS),
    ("total_mass", POLE_MASS + CART_MASS),
    ("length", LENGTH),
    ("polemass_length", POLE_MASS * LENGTH),
    ("force_mag", FORCE),
    ("tau", TAU),
    ("theta_threshold_radians", THETA_LIMIT),
    ("x_threshold", X_LIMIT),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_is_that_of_a_division_to_two_units_in_the_last_place() {
        for step in 0..=100_000 {
            let u = f64::from(step) / 100_000.0;
            let exact = 1.0 / (LENGTH * 4.0 / 3.0 - LENGTH * MASS_RATIO * u);
            assert!((inverse_inertia(u) - exact).abs() <= 2.0 * f64::EPSILON * exact, "{u}");
        }
    }
}

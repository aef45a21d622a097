//! Acrobot-v1, in which a pendulum of two links is swung up by a torque between the links.

use rollhouse_core::{Determinism, EnvSource, EnvSpec, LANE_BIT, LaneSet, Space};

use crate::block::{Block, Dynamics, Row};
use crate::bounds::{ResetBounds, reset_bound_options};
use crate::scene::Scene;
use crate::trig;
use crate::{EnvEntry, Generator};

/// A block of acrobots, whose state is the angle of the first link (rad, 0 hanging), the angle of the second link
/// against the first, and both angular velocities (rad/s).
type AcrobotBlock = Block<Acrobot, 4, 6>;

/// Makes the registry's entry for the env.
pub(crate) fn acrobot() -> EnvEntry {
    EnvEntry::soa(spec(), AcrobotBlock::new).with_constants(CONSTANTS).drawn(Acrobot::SIZE, Acrobot::FPS)
}

fn spec() -> EnvSpec {
    let high = [1.0, 1.0, 1.0, 1.0, MAX_VELOCITY_1 as f32, MAX_VELOCITY_2 as f32];
    let names = [
        "cos_angle_1",
        "sin_angle_1",
        "cos_angle_2",
        "sin_angle_2",
        "angular_velocity_1",
        "angular_velocity_2",
    ];
    EnvSpec {
        id: "Acrobot-v1".into(),
        source: EnvSource::BuiltIn,
        summary: "swing the tip of a two-link pendulum above a line".into(),
        observation_space: Space::f32_box(&high.map(|bound| -bound), &high).into(),
        action_space: Space::discrete(3),
        observation_names: names.map(String::from).into(),
        action_names: ["negative_torque", "no_torque", "positive_torque"].map(String::from).into(),
        max_episode_steps: Some(500),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: reset_bound_options("each element of the first state", -0.1, 0.1).into(),
        info_channels: Vec::new(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0x25ef_aa82_eb16_0e2e;

pub(crate) struct Acrobot;

impl Dynamics<4, 6> for Acrobot {
    type Action = i64;
    type Params = ResetBounds;

    const WORDS_PER_RESET: u32 = 4;

    #[inline(always)]
    fn reset(params: &ResetBounds, lane: usize, generator: &mut Generator) -> [f64; 4] {
        let (low, high) = params.lane(lane);
        // Gymnasium keeps the first state in single precision and computes from it in double.
        let mut draw = || f64::from(generator.uniform(low, high) as f32);
        [draw(), draw(), draw(), draw()]
    }

    #[inline(always)]
    fn observe(state: &[f64; 4]) -> [f32; 6] {
        observation(state, trig::sin_cos)
    }

    #[inline(always)]
    fn step(
        _: &ResetBounds,
        lanes: usize,
        state: &mut [Row; 4],
        actions: &[i64],
        obs: &mut [[f32; 6]],
        rewards: &mut [f64],
    ) -> LaneSet {
        let [angle_1, angle_2, velocity_1, velocity_2] = state;
        if is_tame(lanes, angle_1, angle_2, velocity_1, velocity_2) {
            integrate(lanes, angle_1, angle_2, velocity_1, velocity_2, actions, trig::sin_cos_wide);
        } else {
            integrate(lanes, angle_1, angle_2, velocity_1, velocity_2, actions, trig::sin_cos);
        }
        wrap_rows(&mut angle_1[..lanes]);
        wrap_rows(&mut angle_2[..lanes]);
        finish(lanes, angle_1, angle_2, velocity_1, velocity_2, obs, rewards)
    }
}

/// Returns whether no angle met inside the step can leave the range of [`trig::sin_cos_wide`].
///
/// From angles up to 1,024 and velocities up to 64 the accelerations of the first stage are below 7,850, the
/// velocities of the second below 850, of the third below 140,000, and so the angles of the fourth below
/// 1,024 + 0.2 * 140,000 < [`trig::FAR`]. Every state a step leaves is within these bounds.
#[inline(always)]
fn is_tame(lanes: usize, angle_1: &Row, angle_2: &Row, velocity_1: &Row, velocity_2: &Row) -> bool {
    let within = |row: &Row, bound: f64| row[..lanes].iter().fold(true, |all, x| all & (x.abs() <= bound));
    within(angle_1, 1024.0) & within(angle_2, 1024.0) & within(velocity_1, 64.0) & within(velocity_2, 64.0)
}

/// Makes one step of the classical Runge-Kutta method, in Gymnasium's order of operations. Angles are not wrapped yet,
/// velocities are bounded.
#[inline(always)]
fn integrate(
    lanes: usize,
    angle_1: &mut Row,
    angle_2: &mut Row,
    velocity_1: &mut Row,
    velocity_2: &mut Row,
    actions: &[i64],
    sin_cos: impl Fn(f64) -> (f64, f64),
) {
    let (angle_1, angle_2) = (&mut angle_1[..lanes], &mut angle_2[..lanes]);
    let (velocity_1, velocity_2) = (&mut velocity_1[..lanes], &mut velocity_2[..lanes]);
    let actions = &actions[..lanes];
    for i in 0..lanes {
        // Actions are 0 to 2; the cut to 32 bits only matters for lanes that do not step.
        let torque = f64::from(actions[i] as i32) - 1.0;
        let start = [angle_1[i], angle_2[i], velocity_1[i], velocity_2[i]];
        let k1 = derivatives(&start, torque, &sin_cos);
        let k2 = derivatives(&along(&start, DT / 2.0, &k1), torque, &sin_cos);
        let k3 = derivatives(&along(&start, DT / 2.0, &k2), torque, &sin_cos);
        let k4 = derivatives(&along(&start, DT, &k3), torque, &sin_cos);
        let mut end = [0.0; 4];
        for (j, end) in end.iter_mut().enumerate() {
            *end = start[j] + DT / 6.0 * (((k1[j] + 2.0 * k2[j]) + 2.0 * k3[j]) + k4[j]);
        }
        angle_1[i] = end[0];
        angle_2[i] = end[1];
        velocity_1[i] = bound(end[2], MAX_VELOCITY_1);
        velocity_2[i] = bound(end[3], MAX_VELOCITY_2);
    }
}

#[inline(always)]
fn along(start: &[f64; 4], time: f64, slope: &[f64; 4]) -> [f64; 4] {
    std::array::from_fn(|j| start[j] + time * slope[j])
}

/// Returns the derivatives of the state by the equations of motion ("book" form). All lengths and masses are 1, centres
/// of mass at 0.5.
#[inline(always)]
fn derivatives(state: &[f64; 4], torque: f64, sin_cos: &impl Fn(f64) -> (f64, f64)) -> [f64; 4] {
    let [angle_1, angle_2, velocity_1, velocity_2] = *state;
    let (sin_2, cos_2) = sin_cos(angle_2);
    let d1 = 0.25 + (1.25 + cos_2) + 1.0 + 1.0;
    let d2 = (0.25 + 0.5 * cos_2) + 1.0;
    let phi_2 = (0.5 * GRAVITY) * sin_cos(angle_1 + angle_2 - FRAC_PI_2).1;
    let phi_1 = -0.5 * (velocity_2 * velocity_2) * sin_2 - velocity_2 * velocity_1 * sin_2
        + (1.5 * GRAVITY) * sin_cos(angle_1 - FRAC_PI_2).1
        + phi_2;
    let acceleration_2 = (torque + d2 / d1 * phi_1 - 0.5 * (velocity_1 * velocity_1) * sin_2 - phi_2)
        / (1.25 - (d2 * d2) / d1);
    let acceleration_1 = -(d2 * acceleration_2 + phi_1) / d1;
    [velocity_1, velocity_2, acceleration_1, acceleration_2]
}

/// Limits `value` to the range from `-limit` to `limit`; NaN stays.
#[inline(always)]
fn bound(value: f64, limit: f64) -> f64 {
    let value = if value < -limit { -limit } else { value };
    if value > limit { limit } else { value }
}

/// Brings angles to `[-pi, pi]` by adding or subtracting turns one by one, as Gymnasium does: each subtraction rounds.
/// An angle that would take more than [`MAX_TURNS`] is reduced by a remainder instead; Gymnasium's loop takes ever
/// longer for such an angle and, from about 1e17, forever.
#[inline(always)]
fn wrap_rows(angles: &mut [f64]) {
    for _ in 0..MAX_TURNS {
        let mut outside = false;
        for angle in angles.iter_mut() {
            let x = if *angle > PI { *angle - TAU } else { *angle };
            // A turn down never lands below -pi, so an angle takes one of the two.
            let x = if x < -PI { x + TAU } else { x };
            outside |= x.abs() > PI;
            *angle = x;
        }
        if !outside {
            return;
        }
    }
    for angle in angles {
        if angle.abs() > PI {
            *angle = trig::modulo_tau(*angle + PI) - PI;
        }
    }
}

/// Writes the observations and rewards of the new states and returns the lanes that reached the goal.
#[inline(always)]
fn finish(
    lanes: usize,
    angle_1: &Row,
    angle_2: &Row,
    velocity_1: &Row,
    velocity_2: &Row,
    obs: &mut [[f32; 6]],
    rewards: &mut [f64],
) -> LaneSet {
    let (obs, rewards) = (&mut obs[..lanes], &mut rewards[..lanes]);
    let mut terminated = 0;
    for i in 0..lanes {
        let (sin_1, cos_1) = trig::sin_cos_wide(angle_1[i]);
        let (sin_2, cos_2) = trig::sin_cos_wide(angle_2[i]);
        let (_, cos_both) = trig::sin_cos_wide(angle_2[i] + angle_1[i]);
        let over = -cos_1 - cos_both > 1.0;
        terminated |= if over { LANE_BIT[i] } else { 0 };
        rewards[i] = if over { 0.0 } else { -1.0 };
        obs[i] = [
            cos_1 as f32,
            sin_1 as f32,
            cos_2 as f32,
            sin_2 as f32,
            velocity_1[i] as f32,
            velocity_2[i] as f32,
        ];
    }
    LaneSet::of_bits(terminated)
}

#[inline(always)]
fn observation(state: &[f64; 4], sin_cos: impl Fn(f64) -> (f64, f64)) -> [f32; 6] {
    let ((sin_1, cos_1), (sin_2, cos_2)) = (sin_cos(state[0]), sin_cos(state[1]));
    [cos_1 as f32, sin_1 as f32, cos_2 as f32, sin_2 as f32, state[2] as f32, state[3] as f32]
}

const PI: f64 = std::f64::consts::PI;
const TAU: f64 = std::f64::consts::TAU;
const FRAC_PI_2: f64 = std::f64::consts::FRAC_PI_2;
const MAX_VELOCITY_1: f64 = 4.0 * PI;
const MAX_VELOCITY_2: f64 = 9.0 * PI;
const GRAVITY: f64 = 9.8;
/// Time between two states, in seconds.
const DT: f64 = 0.2;
/// Maximum number of turns that are taken off one by one. From a state that a step left, 40 are far more than enough.
const MAX_TURNS: usize = 40;

/// Constants by the names that they have in Gymnasium. The constants of the links stand as literals in [`derivatives`],
/// multiplied out.
const CONSTANTS: &[(&str, f64)] = &[
    ("dt", DT),
    ("LINK_LENGTH_1", 1.0),
    ("LINK_LENGTH_2", 1.0),
    ("LINK_MASS_1", 1.0),
    ("LINK_MASS_2", 1.0),
    ("LINK_COM_POS_1", 0.5),
    ("LINK_COM_POS_2", 0.5),
    ("LINK_MOI", 1.0),
    ("MAX_VEL_1", MAX_VELOCITY_1),
    ("MAX_VEL_2", MAX_VELOCITY_2),
    ("torque_noise_max", 0.0),
];

//! test/Noise-v0, a random walk that no seed repeats.

use std::hash::{BuildHasher, RandomState};

use rollhouse_core::{
    ColumnMut, ColumnRef, ColumnSpec, DType, Determinism, EnvSource, EnvSpec, Role, Space, StateHasher,
};

use super::faulty::write;
use crate::{Env, EnvEntry, Generator, StepResult};

/// Makes the registry's entry for the env.
pub(crate) fn noise() -> EnvEntry {
    EnvEntry::per_lane(spec(), |_| Ok(Noise { entropy: RandomState::new(), drawn: 0, position: 0.0 }))
}

fn spec() -> EnvSpec {
    EnvSpec {
        id: "test/Noise-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "for tests of the machinery: a random walk driven by the operating system's entropy".into(),
        observation_space: Space::f32_box(&[-f32::INFINITY], &[f32::INFINITY]).into(),
        action_space: Space::discrete(2),
        observation_names: vec!["position".into()],
        action_names: ["left", "right"].map(String::from).into(),
        max_episode_steps: Some(100),
        determinism: Determinism::NonDeterministic,
        methods: Vec::new(),
        options: Vec::new(),
        info_channels: vec![ColumnSpec {
            path: "noise".into(),
            dtype: DType::F32,
            shape: Vec::new(),
            names: Vec::new(),
            role: Role::Info,
        }],
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Hash of the spec alone; a test recomputes it.
const DYNAMICS_HASH: u64 = 0x7549_244f_9297_7bbf;

/// Distance from 0 at which an episode ends.
const GOAL: f64 = 5.0;

/// One walk, which starts at 0. Each step adds half of the action and a noise in `[-0.5, 0.5)`.
struct Noise {
    /// Source of the noise, keyed anew by the operating system for every lane.
    entropy: RandomState,
    drawn: u64,
    position: f64,
}

impl Env for Noise {
    fn reset(&mut self, _: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        self.position = 0.0;
        write(obs, self.position);
    }

    fn step(
        &mut self,
        _: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        infos: &mut [ColumnMut<'_>],
    ) -> StepResult {
        self.drawn += 1;
        let noise = (self.entropy.hash_one(self.drawn) >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        let right = matches!(action, ColumnRef::I64([1]));
        let push = if right { 0.5 } else { -0.5 };
        self.position += push + noise;
        write(obs, self.position);
        write(infos, noise);
        StepResult { reward: -noise.abs(), terminated: self.position.abs() > GOAL, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        StateHasher::new().f64(self.position).finish()
    }
}

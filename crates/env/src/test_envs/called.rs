//! test/Called-v0, a walk whose lanes can be asked and moved by calls.

use std::num::NonZeroU32;

use rollhouse_core::{ColumnMut, ColumnRef, Determinism, EnvSource, EnvSpec, MethodSpec, Space, StateHasher};

use super::faulty::write;
use crate::{CallError, Env, EnvEntry, Generator, StateError, StepResult};

/// Makes the registry's entry for the env.
pub(crate) fn called() -> EnvEntry {
    EnvEntry::per_lane(spec(), |_| Ok(Called { place: 0.0, pushed: 0 }))
}

fn spec() -> EnvSpec {
    const NUMBER: &str = r#"{"type": "number", "minimum": -100, "maximum": 100}"#;
    EnvSpec {
        id: "test/Called-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "for tests of the machinery: a walk on a line whose lanes can be asked and moved by calls"
            .into(),
        observation_space: Space::f32_box(&[-f32::INFINITY], &[f32::INFINITY]).into(),
        action_space: Space::discrete(2),
        observation_names: vec!["place".into()],
        action_names: ["left", "right"].map(String::from).into(),
        max_episode_steps: Some(200),
        determinism: Determinism::Deterministic,
        methods: vec![
            MethodSpec::reading("where", "tells the place, and how often the lane was pushed"),
            MethodSpec::changing("push", "moves the walker by a number of units").with_params(NUMBER),
            MethodSpec::changing("shake", "moves the walker by up to a unit, drawn from its generator"),
            MethodSpec::changing("seldom", "counts as a push of nothing").at_most(TWICE),
            MethodSpec::changing("panic", "panics"),
            MethodSpec::reading("shout", "answers with that many letters")
                .with_params(r#"{"type": "integer"}"#),
        ],
        options: Vec::new(),
        info_channels: Vec::new(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0xd3ee_cf57_9ea0_70dc;

/// Limit of a method that may be called seldom.
const TWICE: NonZeroU32 = NonZeroU32::new(2).expect("2 is not 0");

/// Distance from 0 at which an episode ends.
const GOAL: f64 = 50.0;

/// One walk, which begins near 0 and goes one unit a step.
struct Called {
    place: f64,
    pushed: u64,
}

impl Called {
    fn push(&mut self, by: f64) -> Result<String, CallError> {
        self.place += by;
        self.pushed += 1;
        Ok(format!("{}", self.place))
    }
}

impl Env for Called {
    fn reset(&mut self, generator: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        (self.place, self.pushed) = (generator.uniform(-1.0, 1.0), 0);
        write(obs, self.place);
    }

    fn step(
        &mut self,
        _: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        self.place += if matches!(action, ColumnRef::I64([1])) { 1.0 } else { -1.0 };
        write(obs, self.place);
        StepResult { reward: self.place, terminated: self.place.abs() > GOAL, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        StateHasher::new().f64(self.place).word(self.pushed).finish()
    }

    fn state(&self) -> Result<Vec<f64>, StateError> {
        Ok(vec![self.place, self.pushed as f64])
    }

    fn set_state(&mut self, state: &[f64]) -> Result<(), StateError> {
        let &[place, pushed] = state else {
            return Err(StateError::Length { given: state.len(), wanted: 2 });
        };
        (self.place, self.pushed) = (place, pushed as u64);
        Ok(())
    }

    fn call(&mut self, generator: &mut Generator, method: &str, payload: &str) -> Result<String, CallError> {
        match method {
            "where" => Ok(format!(r#"{{"place": {}, "pushed": {}}}"#, self.place, self.pushed)),
            "push" => match payload.parse::<f64>() {
                Ok(by) if by.abs() <= 100.0 => self.push(by),
                _ => Err(CallError::refused(format!("`{payload}` is no number from -100 to 100"))),
            },
            "shake" => self.push(generator.uniform(-1.0, 1.0)),
            "seldom" => self.push(0.0),
            "panic" => panic!("asked to panic"),
            "shout" => Ok(format!("\"{}\"", "a".repeat(payload.parse().unwrap_or(0)))),
            _ => Err(CallError::Unsupported),
        }
    }
}

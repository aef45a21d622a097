//! test/Faulty-v0, a random walk that panics or blocks when its options say so.

use rollhouse_core::{
    ColumnMut, ColumnRef, Determinism, EnvSource, EnvSpec, GameResult, OptionSpec, OptionValue, Options,
    Space, StateHasher, Verdict,
};

use crate::{Env, EnvEntry, Generator, MakeError, StateError, StepResult};

/// Makes the registry's entry for the env.
pub(crate) fn faulty() -> EnvEntry {
    EnvEntry::per_lane(spec(), |options| {
        Ok(Faulty {
            panic_at: step(options, "panic_at")?,
            hang_at: step(options, "hang_at")?,
            position: 0.0,
            steps: 0,
        })
    })
}

fn spec() -> EnvSpec {
    let option = |name: &str, what: &str| OptionSpec {
        name: name.into(),
        default: OptionValue::Int(-1),
        summary: format!("step of an episode, from 1, at which it {what}; 0 in its reset, -1 never"),
    };
    EnvSpec {
        id: "test/Faulty-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "for tests of the machinery: a random walk that panics or blocks when told to".into(),
        observation_space: Space::f32_box(&[-f32::INFINITY], &[f32::INFINITY]).into(),
        action_space: Space::discrete(2),
        observation_names: vec!["position".into()],
        action_names: ["left", "right"].map(String::from).into(),
        max_episode_steps: Some(100),
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: vec![option("panic_at", "panics"), option("hang_at", "blocks forever")],
        info_channels: Vec::new(),
        dynamics_hash: DYNAMICS_HASH,
    }
}

/// Hash that ties the spec to the dynamics; a test recomputes it.
const DYNAMICS_HASH: u64 = 0xa1ce_9d5a_7d87_14f0;

/// Distance from 0 at which an episode ends.
const GOAL: f64 = 5.0;

/// Returns the step that an option names; None for never.
fn step(options: &Options, name: &'static str) -> Result<Option<u64>, MakeError> {
    let value = options.int(name).ok_or(MakeError::Missing { lane: 0, name })?;
    match value {
        -1 => Ok(None),
        step => u64::try_from(step)
            .map(Some)
            .map_err(|_| MakeError::option(0, name, step as f64, "-1 or more".into())),
    }
}

/// One walk, whose state is the position and the number of steps since the reset. Each step draws from the generator. It
/// is won on the right and lost on the left; the score is how far it came.
struct Faulty {
    panic_at: Option<u64>,
    hang_at: Option<u64>,
    position: f64,
    steps: u64,
}

impl Faulty {
    /// Fails if the options name this step.
    fn fail(&self) {
        if self.panic_at == Some(self.steps) {
            panic!("panic asked for by option panic_at at step {}", self.steps);
        }
        while self.hang_at == Some(self.steps) {
            std::thread::park();
        }
    }
}

impl Env for Faulty {
    fn reset(&mut self, generator: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        self.steps = 0;
        self.fail();
        self.position = generator.uniform(-1.0, 1.0);
        write(obs, self.position);
    }

    fn step(
        &mut self,
        generator: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        self.steps += 1;
        self.fail();
        let right = matches!(action, ColumnRef::I64([1]));
        let push = if right { 0.5 } else { -0.5 };
        self.position += push + generator.uniform(-0.1, 0.1);
        write(obs, self.position);
        StepResult { reward: 1.0, terminated: self.position.abs() > GOAL, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        StateHasher::new().f64(self.position).word(self.steps).finish()
    }

    fn verdict(&self) -> Verdict {
        let result = match self.position {
            right if right > GOAL => GameResult::Win,
            left if left < -GOAL => GameResult::Lose,
            _ => GameResult::Draw,
        };
        Verdict::new(result, Some(self.position.abs()))
    }

    fn state(&self) -> Result<Vec<f64>, StateError> {
        Ok(vec![self.position, self.steps as f64])
    }

    fn set_state(&mut self, state: &[f64]) -> Result<(), StateError> {
        let &[position, steps] = state else {
            return Err(StateError::Length { given: state.len(), wanted: 2 });
        };
        (self.position, self.steps) = (position, steps as u64);
        Ok(())
    }
}

/// Writes `value` as the one element of the columns.
pub(super) fn write(columns: &mut [ColumnMut<'_>], value: f64) {
    let column = columns.first_mut().and_then(ColumnMut::as_f32_mut);
    column.expect("the column has the spec's type")[0] = value as f32;
}

//! A counting env: its observation is the number of steps taken, its reward the action.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;

use rollhouse_core::{
    AutoresetMode, ColumnMut, ColumnRef, Determinism, EnvSource, EnvSpec, OptionSpec, OptionValue, Options,
    RecordRule, RunId, Space, StateHasher,
};
use rollhouse_engine::{Engine, EngineConfig};
use rollhouse_env::{Env, EnvEntry, Generator, MakeError, StepResult};
use rollhouse_replay::{PolicyInfo, RunHeader};

struct Counter {
    count: i64,
    max: i64,
    panic_at: i64,
}

impl Env for Counter {
    fn reset(&mut self, _: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        self.count = 0;
        self.show(obs);
    }

    fn step(
        &mut self,
        _: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        self.count += 1;
        assert_ne!(self.count, self.panic_at, "told to panic");
        self.show(obs);
        let reward = action.as_i64().map_or(0.0, |a| a[0] as f64);
        StepResult { reward, terminated: self.count >= self.max, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        StateHasher::new().word(self.count as u64).finish()
    }
}

impl Counter {
    fn show(&self, obs: &mut [ColumnMut<'_>]) {
        obs[0].as_f32_mut().unwrap()[0] = self.count as f32;
    }
}

/// An env of 8 actions whose lanes count to their option `max`.
pub(crate) fn counter() -> Arc<EnvEntry> {
    counter_that_refuses(None)
}

/// The same env, whose lanes cannot be made to count to `refused`.
pub(crate) fn counter_that_refuses(refused: Option<i64>) -> Arc<EnvEntry> {
    counter_that(move |max| refused == Some(max))
}

/// The same env, whose lanes cannot be made to count to what `refuses`; it is asked each time that one is made.
pub(crate) fn counter_that(refuses: impl Fn(i64) -> bool + Send + Sync + 'static) -> Arc<EnvEntry> {
    let option = |name: &str, default| OptionSpec {
        name: name.into(),
        default: OptionValue::Int(default),
        summary: String::new(),
    };
    let spec = EnvSpec {
        id: "test/Counter-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "counts its steps".into(),
        observation_space: Space::f32_box(&[0.0], &[1e9]).into(),
        action_space: Space::discrete(8),
        observation_names: vec!["count".into()],
        action_names: vec![],
        max_episode_steps: None,
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: vec![option("max", 3), option("panic_at", -1)],
        info_channels: vec![],
        dynamics_hash: 0,
    };
    Arc::new(EnvEntry::per_lane(spec, move |options: &Options| {
        let max = options.int("max");
        if max.is_some_and(&refuses) {
            return Err(MakeError::Kept);
        }
        Ok(Counter { count: 0, max: max.unwrap_or(0), panic_at: options.int("panic_at").unwrap_or(-1) })
    }))
}

/// The options of one lane.
pub(crate) fn options(max: i64, panic_at: i64) -> Options {
    let given =
        [("max".to_owned(), OptionValue::Int(max)), ("panic_at".to_owned(), OptionValue::Int(panic_at))];
    Options::check(&counter().spec().options, &given).unwrap()
}

/// An engine whose lanes count to the given numbers.
pub(crate) fn counting(max: &[i64], autoreset: AutoresetMode) -> Engine {
    let options = max.iter().map(|&max| options(max, -1)).collect();
    let config = EngineConfig { autoreset, options, ..EngineConfig::new(max.len()) };
    Engine::new(&counter(), config, None).unwrap()
}

/// Writes the actions of all lanes.
pub(crate) fn act(engine: &mut Engine, actions: &[i64]) {
    engine.actions().unwrap().as_i64_mut().unwrap().copy_from_slice(actions);
}

/// The header of a run of an engine's lanes.
pub(crate) fn header(entry: &EnvEntry, config: &EngineConfig, record: RecordRule) -> RunHeader {
    let spec = entry.spec().clone();
    RunHeader {
        run: RunId::generate(),
        options: vec![Options::check(&spec.options, &[]).unwrap()],
        lanes: config.lanes as u32,
        schedule: config.schedule,
        autoreset: config.autoreset.name().to_owned(),
        max_episode_steps: config.max_episode_steps.or(spec.max_episode_steps),
        policy: PolicyInfo { name: "test".into(), version: 0 },
        record,
        program: "test".into(),
        started_ms: 0,
        parent: None,
        arguments: String::new(),
        spec,
    }
}

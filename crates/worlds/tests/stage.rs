//! Lanes of worlds, as tests play them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::{ColumnMut, Options, RecordRule, RunId};
use rollhouse_engine::{Engine, EngineConfig};
use rollhouse_env::EnvEntry;
use rollhouse_host::{ConnectWatch, EnvProviders, EnvRequest, InfoRequest};
use rollhouse_replay::{PolicyInfo, RunHeader};
use rollhouse_worlds::openra::OpenraWorlds;
use serde_json::{Value, json};

/// Time after which a test fails that waits for something.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Sides of the map `river`.
pub(crate) const RIVER: [usize; 2] = [32, 32];

/// Returns the world of an engine.
pub(crate) fn world(engine: &str, more: Value) -> Arc<EnvEntry> {
    let mut kwargs = json!({"engine": engine, "map_size": RIVER, "bots": "Multi1:rl-agent,Multi0:beginner"});
    for (name, value) in more.as_object().unwrap() {
        kwargs[name] = value.clone();
    }
    let asked = EnvRequest {
        id: "openra://river".into(),
        kwargs: kwargs.as_object().unwrap().clone(),
        deterministic: None,
        infos: InfoRequest::default(),
    };
    let providers = EnvProviders::from(OpenraWorlds::new([engine.to_owned()]));
    let watch = ConnectWatch::default();
    Arc::new(providers.learn(&asked, &watch).unwrap().entry(&watch, None).unwrap())
}

/// Has all lanes do nothing for so many ticks, but for those that give up.
pub(crate) fn act(engine: &mut Engine, ticks: i64, surrender: &[usize]) {
    let lanes = engine.lanes();
    let ColumnMut::I64(actions) = engine.actions().unwrap() else { panic!("integers") };
    actions.fill(0);
    let width = actions.len() / lanes;
    for (lane, row) in actions.chunks_exact_mut(width).enumerate() {
        row[0] = 1;
        row[width - 1] = ticks;
        if surrender.contains(&lane) {
            row[width - 2] = 1;
            // Kind of the first order.
            row[11 + 2] = 20;
        }
    }
}

/// Steps until `done`, and fails after [`LONG`].
pub(crate) fn step_until(engine: &mut Engine, mut done: impl FnMut(&mut Engine) -> bool) {
    let began = Instant::now();
    while !done(engine) {
        assert!(began.elapsed() < LONG, "it did not come to that: lane 0 {:?}", engine.loss(0));
        act(engine, 20, &[]);
        engine.step().unwrap();
    }
}

pub(crate) fn header(entry: &EnvEntry, config: &EngineConfig) -> RunHeader {
    let spec = entry.spec().clone();
    RunHeader {
        run: RunId::generate(),
        options: vec![Options::check(&spec.options, &[]).unwrap()],
        lanes: config.lanes as u32,
        schedule: config.schedule,
        autoreset: config.autoreset.name().to_owned(),
        max_episode_steps: None,
        policy: PolicyInfo { name: "test".into(), version: 0 },
        record: RecordRule::All,
        program: "test".into(),
        started_ms: 0,
        parent: None,
        arguments: entry.arguments().to_owned(),
        spec,
    }
}

/// Returns why a lane is lost, as it is told to whoever has it.
pub(crate) fn why_lost(engine: &mut Engine, lane: usize) -> String {
    engine.words(lane).unwrap().lost.unwrap_or_default()
}

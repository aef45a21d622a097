//! A panic in any method of an env loses what it is in: the lane of an [`Env`], the block of a [`BatchEnv`]. Others go on.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{act, header};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{
    AutoresetMode, ColumnMut, ColumnRef, ColumnSpec, DType, Determinism, Distribution, EnvSource, EnvSpec,
    Interruption, LaneSet, MethodSpec, OptionSpec, OptionValue, Options, Outcome, RecordRule, Role, Space,
    Start,
};
use rollhouse_engine::{ConfigError, Engine, EngineConfig, LaneOptions, Reset, StepError};
use rollhouse_env::testing::{Timing, late};
use rollhouse_env::{
    BatchEnv, BlockStep, CallError, Ended, Env, EnvEntry, Generator, Image, ImageSize, LaneBlock, MakeError,
    RenderError, StateError, StepResult,
};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Query, Recorder, RecorderConfig, Replays};

const LONG: Duration = Duration::from_secs(30);
/// A lane of the second block.
const LANE: usize = 66;
const LANES: usize = 70;

/// A method of an env that panics in the lane that is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Seed,
    Position,
    Restore,
    SetOptions,
    StateHash,
    State,
    SetState,
    Call,
    Render,
    Text,
    WordsPerReset,
    HasVerdicts,
    FirstInfos,
}

const OF_A_LANE: [At; 8] =
    [At::SetOptions, At::StateHash, At::State, At::SetState, At::Call, At::Render, At::Text, At::FirstInfos];
const OF_A_BLOCK: [At; 11] = [
    At::Seed,
    At::Position,
    At::Restore,
    At::SetOptions,
    At::StateHash,
    At::State,
    At::SetState,
    At::Call,
    At::Render,
    At::Text,
    At::FirstInfos,
];

/// Whether the fault is armed. It fires once.
type Fuse = Arc<AtomicBool>;

/// An env of which lane [`LANE`] is armed: it has the option `armed`, and its method panics while the fuse burns.
struct Panicky {
    at: At,
    armed: bool,
    fuse: Fuse,
    count: u64,
}

impl Panicky {
    fn pass(&self, here: At) {
        if self.armed && self.at == here && self.fuse.swap(false, Ordering::Relaxed) {
            panic!("told to panic in {here:?}");
        }
    }

    fn show(&self, obs: &mut [ColumnMut<'_>]) {
        obs[0].as_f32_mut().unwrap()[0] = self.count as f32;
    }
}

impl Env for Panicky {
    fn reset(&mut self, _: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        self.count = 0;
        self.show(obs);
    }

    fn step(
        &mut self,
        _: &mut Generator,
        _: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        self.count += 1;
        self.show(obs);
        StepResult { reward: 1.0, terminated: self.count == 3, truncated: false }
    }

    fn first_infos(&self, _: &mut [ColumnMut<'_>]) {
        self.pass(At::FirstInfos);
    }

    fn state_hash(&self) -> u32 {
        self.pass(At::StateHash);
        self.count as u32
    }

    fn state(&self) -> Result<Vec<f64>, StateError> {
        self.pass(At::State);
        Ok(vec![self.count as f64])
    }

    fn set_state(&mut self, state: &[f64]) -> Result<(), StateError> {
        self.pass(At::SetState);
        self.count = state[0] as u64;
        Ok(())
    }

    fn call(&mut self, _: &mut Generator, _: &str, _: &str) -> Result<String, CallError> {
        self.pass(At::Call);
        Ok(String::new())
    }

    fn render(&self, size: ImageSize) -> Result<Image, RenderError> {
        self.pass(At::Render);
        Image::new(size, vec![0; size.bytes()])
    }

    fn text(&self, _: usize) -> Result<String, RenderError> {
        self.pass(At::Text);
        Ok(String::new())
    }
}

/// A block whose methods panic as those of a [`Panicky`] do, without anything that contains them.
struct Whole {
    lanes: Vec<Panicky>,
    starts: Vec<Start>,
}

impl LaneBlock for Whole {
    fn lanes(&self) -> usize {
        self.lanes.len()
    }
    fn words_per_reset(&self) -> Option<u32> {
        self.lanes[0].pass(At::WordsPerReset);
        None
    }
    fn has_verdicts(&self) -> bool {
        self.lanes[0].pass(At::HasVerdicts);
        false
    }
    fn seed(&mut self, lane: usize, seed: u64) {
        self.lanes[lane].pass(At::Seed);
        self.starts[lane] = Start::seeded(seed);
    }
    fn position(&self, lane: usize) -> Start {
        self.lanes[lane].pass(At::Position);
        self.starts[lane]
    }
    fn restore(&mut self, lane: usize, start: Start) {
        self.lanes[lane].pass(At::Restore);
        self.starts[lane] = start;
    }
    fn set_options(&mut self, lane: usize, _: &Options) -> Result<(), MakeError> {
        self.lanes[lane].pass(At::SetOptions);
        Ok(())
    }
    fn state_hash(&self, lane: usize) -> u32 {
        self.lanes[lane].state_hash()
    }
    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        self.lanes[lane].state()
    }
    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        self.lanes[lane].set_state(state)
    }
    fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, CallError> {
        Env::call(&mut self.lanes[lane], &mut Generator::seeded(0), method, payload)
    }
    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        self.lanes[lane].render(size)
    }
    fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        self.lanes[lane].text(columns)
    }
}

impl BatchEnv for Whole {
    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
        for lane in lanes & LaneSet::first(self.lanes.len()) {
            self.lanes[lane].count = 0;
            obs[0].as_f32_mut().unwrap()[lane] = 0.0;
        }
        LaneSet::NONE
    }
    fn first_infos(&mut self, lanes: LaneSet, infos: &mut [ColumnMut<'_>]) -> LaneSet {
        for lane in lanes & LaneSet::first(self.lanes.len()) {
            Env::first_infos(&self.lanes[lane], infos);
        }
        LaneSet::NONE
    }
    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        let mut ended = Ended::default();
        for (lane, env) in self.lanes.iter_mut().enumerate() {
            step.rewards[lane] = 0.0;
            if step.reset.has(lane) {
                env.count = 0;
            } else if !step.skip.has(lane) {
                env.count += 1;
                step.rewards[lane] = 1.0;
                ended.terminated.insert_if(lane, env.count == 3);
            }
            step.obs[0].as_f32_mut().unwrap()[lane] = env.count as f32;
        }
        ended
    }
}

fn spec() -> EnvSpec {
    let option = |name: &str, default| OptionSpec { name: name.into(), default, summary: String::new() };
    EnvSpec {
        id: "test/Panicky-v0".into(),
        source: EnvSource::BuiltIn,
        summary: "panics in one of its methods".into(),
        observation_space: Space::f32_box(&[0.0], &[1e9]).into(),
        action_space: Space::discrete(2),
        observation_names: vec!["count".into()],
        action_names: vec![],
        max_episode_steps: None,
        determinism: Determinism::Deterministic,
        methods: vec![MethodSpec { changes: true, ..MethodSpec::reading("do", "panics") }],
        options: vec![option("armed", OptionValue::Bool(false)), option("drawn", OptionValue::Int(0))],
        info_channels: vec![ColumnSpec {
            path: "action_mask".into(),
            dtype: DType::Bool,
            shape: vec![2],
            names: vec![],
            role: Role::ActionMask,
        }],
        dynamics_hash: 0,
    }
}

/// Who is to be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Lane,
    /// The lane of a simulator, whose lanes are late.
    LateLane,
    Block,
}

fn entry(unit: Unit, at: At, fuse: &Fuse) -> Arc<EnvEntry> {
    let fuse = Arc::clone(fuse);
    let make = move |options: &Options| {
        let env =
            Panicky { at, armed: options.flag("armed") == Some(true), fuse: Arc::clone(&fuse), count: 0 };
        env.pass(At::SetOptions);
        env
    };
    match unit {
        Unit::Lane => Arc::new(EnvEntry::per_lane(spec(), move |options| Ok(make(options)))),
        Unit::LateLane => {
            late(&Arc::new(EnvEntry::per_lane(spec(), move |options| Ok(make(options)))), Timing::default())
        }
        Unit::Block => {
            let entry = EnvEntry::new(spec(), move |_, options| {
                let lanes: Vec<_> = options.iter().map(&make).collect();
                let starts = vec![Start::default(); lanes.len()];
                Ok(Box::new(Whole { lanes, starts }) as Box<dyn BatchEnv>)
            });
            Arc::new(entry.with_drawn_options())
        }
    }
}

/// Has the engine call the method in lane [`LANE`], whose fuse burns.
fn provoke(engine: &mut Engine, at: At) {
    let lanes = LANE..LANE + 1;
    let one = || Reset { mask: (0..LANES).map(|lane| lane == LANE).collect(), ..Reset::default() };
    match at {
        At::Seed => drop(engine.reset(&Reset { seeds: vec![Some(1); LANES], ..one() }).unwrap()),
        At::FirstInfos => drop(engine.reset(&one()).unwrap()),
        // They draw their options.
        At::Position | At::Restore | At::SetOptions => drop(engine.reset(&one()).unwrap()),
        At::StateHash => {
            // It is asked for at the end of an episode that is recorded.
            act(engine, &[1; LANES]);
            engine.step().unwrap();
        }
        At::State => {
            let error = engine.states(lanes).unwrap_err();
            assert_eq!(error, StepError::State { lane: LANE, source: StateError::Lost });
        }
        At::SetState => {
            let error = engine.set_states(lanes, vec![vec![1.0]]).unwrap_err();
            assert_eq!(error, StepError::State { lane: LANE, source: StateError::Lost });
        }
        At::Call => drop(engine.call(LANE, "do", "").unwrap_err()),
        At::Render => {
            let error = engine.render(LANE, Some(ImageSize::new(2, 2).unwrap())).unwrap_err();
            assert!(matches!(error, StepError::Render { lane: LANE, source: RenderError::Lost }), "{error}");
        }
        At::Text => {
            let error = engine.text(LANE, 80).unwrap_err();
            assert!(matches!(error, StepError::Render { lane: LANE, source: RenderError::Lost }), "{error}");
        }
        At::WordsPerReset | At::HasVerdicts => unreachable!("they are asked for as the engine is made"),
    }
}

/// Symptom: an env that panicked in `words_per_reset` or `has_verdicts` took along whoever made the engine.
/// Cause: both were asked for where nothing contained them. Fix: they are asked for as the env is made.
#[test]
fn a_panic_in_what_an_env_is_asked_for_as_it_is_made_is_the_refusal() {
    for at in [At::WordsPerReset, At::HasVerdicts] {
        let fuse = Fuse::new(AtomicBool::new(true));
        let entry = entry(Unit::Block, at, &fuse);
        let armed = [("armed".to_owned(), OptionValue::Bool(true))];
        let options = vec![Options::check(&entry.spec().options, &armed).unwrap()];
        let refused =
            Engine::new(&entry, EngineConfig { options, ..EngineConfig::new(2) }, None).unwrap_err();
        assert!(matches!(refused, ConfigError::MakePanicked(_)), "{at:?}: {refused}");
    }
}

/// Symptom: a panic in `state_hash`, `position`, `seed` or `set_options` of an env ended the thread that stepped it, one in
/// `state`, `render` or `text` left an env in use that had panicked.
/// Cause: some calls were not contained, and some were without losing what they were in.
/// Fix: one place calls envs between steps, and loses the lane or the block.
#[test]
fn a_panic_in_any_method_loses_the_lane_or_the_block_alone() {
    let of_a_lane = |unit| OF_A_LANE.map(|at| (unit, at));
    let of_a_block = OF_A_BLOCK.map(|at| (Unit::Block, at));
    for (unit, at) in of_a_lane(Unit::Lane).into_iter().chain(of_a_lane(Unit::LateLane)).chain(of_a_block) {
        let what = format!("{at:?} of a {unit:?}");
        let fuse = Fuse::default();
        let entry = entry(unit, at, &fuse);
        let recorded = at == At::StateHash;
        let disk = Arc::new(FaultyDisk::new());
        let recorder = Recorder::open(disk.clone(), Path::new("data"), RecorderConfig::default()).unwrap();
        let draws = matches!(at, At::Position | At::Restore | At::SetOptions);
        let options = (0..LANES).map(|lane| {
            let drawn = OptionValue::Drawn(Distribution::Integers([1, 1_000_000]));
            let given = [
                ("armed".to_owned(), OptionValue::Bool(lane == LANE)),
                ("drawn".to_owned(), if draws { drawn } else { OptionValue::Int(0) }),
            ];
            Options::check(&entry.spec().options, &given).unwrap()
        });
        let config = EngineConfig { options: options.collect(), ..EngineConfig::new(LANES) };
        let run = recorder.begin_run(header(&entry, &config, RecordRule::All)).unwrap();
        let mut engine = Engine::new(&entry, config, recorded.then_some(&run)).unwrap();
        engine.reset(&Reset::all()).unwrap();
        for _ in 0..2 {
            act(&mut engine, &[1; LANES]);
            engine.step().unwrap();
        }
        fuse.store(true, Ordering::Relaxed);
        provoke(&mut engine, at);
        assert!(!fuse.load(Ordering::Relaxed), "{what}: it was not called");
        let lost = if unit == Unit::Block { BLOCK_LANES..LANES } else { LANE..LANE + 1 };
        for lane in 0..LANES {
            let cause = lost.contains(&lane).then_some(Interruption::Crashed);
            assert_eq!(engine.loss(lane), cause, "{what}, lane {lane}");
        }
        let crashed = Outcome::Interrupted(Interruption::Crashed).code();
        let stats = engine.stats().unwrap();
        // An episode that was to begin was cancelled before.
        let cancelled = matches!(at, At::Seed | At::Position | At::Restore | At::SetOptions | At::FirstInfos);
        let wanted = lost.len() - usize::from(cancelled);
        assert_eq!(stats.outcomes[usize::from(crashed)], wanted as u64, "{what}");
        let began = Instant::now();
        while engine.lost() > 0 {
            assert!(began.elapsed() < LONG, "{what}: it does not come back");
            act(&mut engine, &[1; LANES]);
            let frame = engine.step().unwrap();
            assert!(frame.terminated().iter().zip(frame.reset()).all(|(&over, &begun)| over & begun == 0));
        }
        act(&mut engine, &[1; LANES]);
        assert_eq!(engine.step().unwrap().rewards()[LANE], 1.0, "{what}");
        engine.close().unwrap();
        drop(run);
        recorder.finish().unwrap();
        if recorded {
            let replays = Replays::open(disk, Path::new("data")).unwrap();
            let found = replays.list(&Query::default()).unwrap();
            let crashed =
                found.iter().filter(|info| info.outcome == Outcome::Interrupted(Interruption::Crashed));
            let crashed: Vec<_> = crashed.map(|info| (info.name.lane as usize, info.length)).collect();
            // The step was taken; what cannot be told is the state after it.
            let mut wanted: Vec<_> = lost.map(|lane| (lane, 3)).collect();
            wanted.sort_unstable();
            let mut crashed = crashed;
            crashed.sort_unstable();
            assert_eq!(crashed, wanted, "{what}");
        }
    }
}

/// Options that are changed between two episodes are carried over with positions and states, which the env is asked for.
#[test]
fn a_panic_of_an_env_whose_state_is_carried_over_loses_it_and_changes_no_option() {
    let fuse = Fuse::default();
    let entry = entry(Unit::Lane, At::State, &fuse);
    let given = [("armed".to_owned(), OptionValue::Bool(true))];
    let options = vec![
        Options::check(&entry.spec().options, &[]).unwrap(),
        Options::check(&entry.spec().options, &given).unwrap(),
    ];
    let config = EngineConfig { options, autoreset: AutoresetMode::NextStep, ..EngineConfig::new(2) };
    let mut engine = Engine::new(&entry, config, None).unwrap();
    engine.reset(&Reset::all()).unwrap();
    fuse.store(true, Ordering::Relaxed);
    let values = LaneOptions::from([("drawn".to_owned(), vec![OptionValue::Int(7)])]);
    engine.set_options(0..2, values).unwrap_err();
    assert_eq!([0, 1].map(|lane| engine.loss(lane)), [None, Some(Interruption::Crashed)]);
    let had = engine.options(0..2).unwrap();
    assert_eq!([0, 1].map(|lane| had[lane].int("drawn")), [Some(0); 2]);
}

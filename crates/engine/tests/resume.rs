//! An engine that is given what another one's lanes did goes on exactly where that one stood.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rollhouse_core::{
    AutoresetMode, Began, ColumnData, ColumnMut, ColumnRef, Determinism, Distribution, EnvSource, EnvSpec,
    Interruption, OptionValue, Options, Outcome, Past, PastEvent, PlayedActions, RecordRule, RunId,
    SeedSchedule, Space, Start, random_bits,
};
use rollhouse_engine::{
    Engine, EngineConfig, LaneOptions, LogEvent, Received, Reset, ResumeError, StepError,
};
use rollhouse_env::testing::{Timing, late};
use rollhouse_env::{Env, EnvEntry, Generator, Registry, StepResult};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{
    EpisodeInfo, Library, PolicyInfo, Query, Recorder, RecorderConfig, RunHeader, Verification,
};

fn played(count: usize, actions: ColumnData) -> PastEvent {
    PastEvent::Played(PlayedActions { count, actions })
}

/// What an owner keeps of its lanes: all that ever happened.
#[derive(Default)]
struct Log {
    past: Vec<Past>,
    events: Vec<LogEvent>,
}

impl Log {
    fn played(&mut self, lane: usize, action: ColumnData) {
        self.past.push(Past { lane: lane as u32, what: played(1, action) });
    }

    fn take(&mut self, engine: &Engine) {
        self.events.clear();
        engine.take_log(&mut self.events);
        let past = self.events.iter().map(|event| match *event {
            LogEvent::Began(Began { lane, number, start }) => {
                Past { lane, what: PastEvent::Began { number, start } }
            }
            LogEvent::Hash { lane, hash } => Past { lane, what: PastEvent::Stood(hash) },
        });
        self.past.extend(past);
    }

    /// From each lane's last `episodes` beginnings on.
    fn last(&self, episodes: usize) -> Vec<Past> {
        let mut lanes: BTreeMap<u32, Vec<&Past>> = BTreeMap::new();
        self.past.iter().for_each(|past| lanes.entry(past.lane).or_default().push(past));
        let of_lane = |past: Vec<&Past>| -> Vec<Past> {
            let began = past.iter().enumerate().filter(|(_, p)| matches!(p.what, PastEvent::Began { .. }));
            let from = began.map(|(at, _)| at).rev().nth(episodes - 1).unwrap_or(0);
            // Options hold until others are given.
            let given = past[..from].iter().rfind(|past| matches!(past.what, PastEvent::Given(_)));
            given.into_iter().chain(&past[from..]).map(|&past| past.clone()).collect()
        };
        lanes.into_values().flat_map(of_lane).collect()
    }
}

/// How lanes are played.
#[derive(Debug, Clone)]
struct Game {
    id: &'static str,
    lanes: usize,
    autoreset: AutoresetMode,
    schedule: SeedSchedule,
    limit: Option<u32>,
    seed: u64,
    first_done: bool,
    partial: bool,
    /// True if lanes finish late, in an order of their own.
    late: bool,
    /// True if each episode draws an option.
    drawn: bool,
    /// True if some resets give lanes options.
    given: bool,
}

impl Game {
    fn entry(&self) -> Arc<EnvEntry> {
        let kernel = entry(self.id);
        if self.late { late(&kernel, Timing { seed: self.seed, ..Timing::default() }) } else { kernel }
    }

    fn config(&self) -> EngineConfig {
        EngineConfig {
            autoreset: self.autoreset,
            schedule: self.schedule,
            max_episode_steps: self.limit,
            first_lane: 5,
            options: vec![self.options()],
            ..EngineConfig::new(self.lanes)
        }
    }

    /// An option of the env, and a range of its values.
    fn range(&self) -> (&'static str, f64, f64) {
        match self.id {
            "Pendulum-v1" => ("g", 9.0, 10.5),
            "MountainCar-v0" => ("low", -0.6, -0.5),
            _ => ("low", -0.05, -0.01),
        }
    }

    /// Options that a reset gives to the lanes of `mask`, which the log has as well.
    fn give(&self, log: &mut Log, turn: u64, mask: &[bool]) -> LaneOptions {
        if !self.given || turn.is_multiple_of(2) {
            return LaneOptions::new();
        }
        let (name, low, high) = self.range();
        let value = |lane: usize| match lane % 3 {
            0 => OptionValue::Float(low),
            1 => OptionValue::Float(low + (high - low) * (turn % 97) as f64 / 97.0),
            _ => OptionValue::Drawn(Distribution::Uniform([low, high])),
        };
        let values: Vec<_> = (0..self.lanes).map(value).collect();
        for lane in (0..self.lanes).filter(|&lane| mask[lane]) {
            let what = PastEvent::Given(BTreeMap::from([(name.to_owned(), values[lane].clone())]));
            log.past.push(Past { lane: lane as u32, what });
        }
        LaneOptions::from([(name.to_owned(), values)])
    }

    fn options(&self) -> Options {
        let (name, low, high) = self.range();
        let range = OptionValue::Drawn(Distribution::Uniform([low, high]));
        let given = [(name.to_owned(), range)];
        let given = if self.drawn { &given[..] } else { &[] };
        Options::check(&entry(self.id).spec().options, given).unwrap()
    }

    fn engine(&self) -> Engine {
        let mut engine = Engine::new(&self.entry(), self.config(), None).unwrap();
        engine.keep_log().unwrap();
        engine
    }

    fn begin(&self, engine: &mut Engine, log: &mut Log) {
        let seeds = match self.schedule {
            SeedSchedule::Continue => (0..self.lanes as u64).map(|lane| Some(lane + self.seed)).collect(),
            SeedSchedule::PerEpisode { .. } => vec![],
        };
        engine.reset(&Reset { seeds, ..Reset::default() }).unwrap();
        log.take(engine);
    }

    fn action(&self, lane: usize, turn: u64) -> ColumnData {
        let bits = random_bits(self.seed, lane as u32, turn);
        match self.id {
            "Pendulum-v1" => ColumnData::F32(vec![bits as f32 / u64::MAX as f32 * 4.0 - 2.0]),
            "Acrobot-v1" | "MountainCar-v0" => ColumnData::I64(vec![(bits % 3) as i64]),
            _ => ColumnData::I64(vec![(bits & 1) as i64]),
        }
    }

    /// One turn; what it showed.
    fn turn(&self, engine: &mut Engine, log: &mut Log, turn: u64) -> Received {
        let before = self.partial_reset(engine, log, turn);
        let mut received = if self.first_done && !random_bits(1, 1, turn).is_multiple_of(3) {
            self.send(engine, log, turn)
        } else {
            self.step(engine, log, turn)
        };
        // Of rows that end no episode they are unspecified.
        if !received.terminated.contains(&1) && !received.truncated.contains(&1) {
            received.final_obs.clear();
        }
        let over: Vec<bool> =
            received.terminated.iter().zip(&received.truncated).map(|(a, b)| a | b == 1).collect();
        for column in &mut received.final_obs {
            let width = column.len() / over.len();
            let blank = ColumnData::zeros(column.as_ref().dtype(), width);
            for row in (0..over.len()).filter(|&row| !over[row]) {
                assert!(column.copy_row(row, &blank, 0, width));
            }
        }
        if self.autoreset != AutoresetMode::Disabled {
            return join(before, received);
        }
        let over: Vec<bool> = (0..self.lanes)
            .map(|lane| {
                let row = received.lanes.iter().position(|&of| of as usize == lane);
                row.is_some_and(|row| received.terminated[row] | received.truncated[row] == 1)
            })
            .collect();
        if !over.contains(&true) {
            return join(before, received);
        }
        let reset = engine.reset(&Reset { mask: over, ..Reset::default() }).unwrap();
        let shown = shown(&reset);
        log.take(engine);
        join(before, join(Some(received), shown))
    }

    /// Some lanes begin anew, some of them with a seed.
    fn partial_reset(&self, engine: &mut Engine, log: &mut Log, turn: u64) -> Option<Received> {
        if !self.partial || !turn.is_multiple_of(7) {
            return None;
        }
        let mask: Vec<bool> =
            (0..self.lanes).map(|lane| random_bits(3, lane as u32, turn).is_multiple_of(5)).collect();
        let seeded = self.schedule == SeedSchedule::Continue;
        let seeds = (0..self.lanes as u64).map(|lane| (seeded && lane % 2 == 0).then_some(turn)).collect();
        let options = self.give(log, turn, &mask);
        let frame = engine.reset(&Reset { seeds, mask, options }).unwrap();
        let shown = shown(&frame);
        log.take(engine);
        Some(shown)
    }

    fn step(&self, engine: &mut Engine, log: &mut Log, turn: u64) -> Received {
        for lane in 0..self.lanes {
            let set = engine.actions().unwrap().slice_of(lane, &self.action(lane, turn));
            assert!(set);
        }
        let frame = engine.step().unwrap();
        let shown = shown(&frame);
        for lane in (0..self.lanes).filter(|&lane| shown.reset[lane] == 0) {
            log.played(lane, self.action(lane, turn));
        }
        log.take(engine);
        shown
    }

    fn send(&self, engine: &mut Engine, log: &mut Log, turn: u64) -> Received {
        let chosen: Vec<u32> =
            (0..self.lanes as u32).filter(|&lane| random_bits(2, lane, turn).is_multiple_of(2)).collect();
        if chosen.is_empty() {
            // Else what an earlier turn told would count as told by this one.
            log.take(engine);
            return Received::default();
        }
        let mut actions = ColumnData::zeros(entry(self.id).spec().action_column().dtype, 0);
        for &lane in &chosen {
            assert!(actions.extend(self.action(lane as usize, turn).as_ref()));
        }
        engine.send(&chosen, actions.as_ref()).unwrap();
        let received = engine.recv(chosen.len(), Duration::from_secs(60)).unwrap();
        for (&lane, _) in received.lanes.iter().zip(&received.reset).filter(|(_, reset)| **reset == 0) {
            log.played(lane as usize, self.action(lane as usize, turn));
        }
        log.take(engine);
        received
    }
}

trait SliceOf {
    fn slice_of(self, lane: usize, action: &ColumnData) -> bool;
}

impl SliceOf for rollhouse_core::ColumnMut<'_> {
    fn slice_of(mut self, lane: usize, action: &ColumnData) -> bool {
        let width = action.len();
        self.slice(lane * width, (lane + 1) * width).copy_from(action.as_ref())
    }
}

fn join(first: Option<Received>, second: Received) -> Received {
    let Some(mut first) = first else { return second };
    first.lanes.extend(second.lanes);
    first.rewards.extend(second.rewards);
    first.terminated.extend(second.terminated);
    first.truncated.extend(second.truncated);
    first.reset.extend(second.reset);
    first.obs.extend(second.obs);
    first.final_obs.extend(second.final_obs);
    first
}

fn shown(frame: &rollhouse_engine::Frame<'_>) -> Received {
    Received {
        lanes: (0..frame.lanes() as u32).collect(),
        obs: vec![ColumnData::from(frame.obs(0))],
        final_obs: vec![],
        infos: vec![],
        rewards: frame.rewards().to_vec(),
        terminated: frame.terminated().to_vec(),
        truncated: frame.truncated().to_vec(),
        reset: frame.reset().to_vec(),
    }
}

fn entry(id: &str) -> Arc<EnvEntry> {
    Registry::builtin().get(id).unwrap()
}

fn games() -> impl Strategy<Value = Game> {
    let ids = prop::sample::select(vec!["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0"]);
    let modes =
        prop::sample::select(vec![AutoresetMode::NextStep, AutoresetMode::SameStep, AutoresetMode::Disabled]);
    let schedules =
        prop::sample::select(vec![SeedSchedule::Continue, SeedSchedule::PerEpisode { run_seed: 9 }]);
    let limits = prop::sample::select(vec![None, Some(0), Some(20)]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let parts = (ids, 1usize..80, modes, schedules, limits, any::<u32>(), flags);
    parts.prop_map(
        |(id, lanes, autoreset, schedule, limit, seed, (first_done, partial, late, drawn, given))| Game {
            id,
            lanes,
            autoreset,
            schedule,
            limit,
            seed: u64::from(seed),
            // Late lanes are done in another order each time.
            first_done: first_done && autoreset != AutoresetMode::Disabled && !late,
            partial,
            late,
            drawn,
            given,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn an_engine_that_is_dropped_at_any_turn_and_resumed_goes_on_bit_by_bit(
        game in games(), turns in 0u64..200, episodes in 1usize..4, parts in 1usize..6,
    ) {
        let (mut engine, mut log) = (game.engine(), Log::default());
        game.begin(&mut engine, &mut log);
        for turn in 0..turns {
            game.turn(&mut engine, &mut log, turn);
        }
        let mut resumed = game.engine();
        let past = log.last(episodes);
        for part in past.chunks(past.len().div_ceil(parts).max(1)) {
            resumed.replay(part.to_vec()).unwrap();
        }
        let mut other = Log::default();
        for turn in turns..turns + 150 {
            let goes_on = game.turn(&mut engine, &mut log, turn);
            let again = game.turn(&mut resumed, &mut other, turn);
            prop_assert_eq!(&goes_on, &again, "turn {}", turn);
            prop_assert_eq!(&log.events, &other.events, "turn {}", turn);
        }
        // And nothing that was played again is counted: only what came after it.
        prop_assert!(resumed.stats().unwrap().steps <= engine.stats().unwrap().steps);
    }
}

fn cartpole(lanes: usize) -> Game {
    Game {
        id: "CartPole-v1",
        lanes,
        autoreset: AutoresetMode::NextStep,
        schedule: SeedSchedule::Continue,
        limit: None,
        seed: 3,
        first_done: false,
        partial: false,
        late: false,
        drawn: false,
        given: false,
    }
}

#[test]
fn a_state_that_differs_is_told_with_lane_step_and_both_hashes() {
    let game = Game { id: "Pendulum-v1", ..cartpole(3) };
    let (mut engine, mut log) = (game.engine(), Log::default());
    game.begin(&mut engine, &mut log);
    (0..100).for_each(|turn| drop(game.turn(&mut engine, &mut log, turn)));
    let mut past = log.last(1);
    let first = past.iter_mut().find(|past| past.lane == 1 && matches!(past.what, PastEvent::Played(_)));
    first.unwrap().what = played(1, ColumnData::F32(vec![0.123]));
    let error = game.engine().replay(past).unwrap_err();
    let ResumeError::Differs { lane: 1, number: 0, step: 64, wanted, found } = error else {
        panic!("{error}")
    };
    assert_ne!(wanted, found);
    let words = error.to_string();
    assert!(
        words.contains("lane 1") && words.contains("step 64") && words.contains(&format!("{wanted:08x}"))
    );
}

/// An env whose action has no element; its observation is the number of its steps.
struct Ticking(u64);

impl Env for Ticking {
    fn reset(&mut self, _: &mut Generator, obs: &mut [ColumnMut<'_>]) {
        self.0 = 0;
        obs[0].as_f32_mut().unwrap()[0] = 0.0;
    }

    fn step(
        &mut self,
        _: &mut Generator,
        _: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        self.0 += 1;
        obs[0].as_f32_mut().unwrap()[0] = self.0 as f32;
        StepResult { reward: 1.0, terminated: false, truncated: false }
    }

    fn state_hash(&self) -> u32 {
        self.0 as u32
    }
}

/// Symptom: lanes whose action has no element stood at the reset after their node was lost. Cause: how often they stepped was
/// counted in elements of their actions. Fix: the past has the number of steps.
#[test]
fn lanes_whose_action_has_no_element_play_their_steps_again() {
    let spec = EnvSpec {
        id: "Ticking-v0".into(),
        source: EnvSource::BuiltIn,
        summary: String::new(),
        observation_space: Space::f32_box(&[0.0], &[1e9]).into(),
        action_space: Space::f32_box(&[], &[]),
        observation_names: vec!["steps".into()],
        action_names: vec![],
        max_episode_steps: None,
        determinism: Determinism::Deterministic,
        methods: Vec::new(),
        options: vec![],
        info_channels: vec![],
        dynamics_hash: 0,
    };
    let entry = Arc::new(EnvEntry::per_lane(spec, |_| Ok(Ticking(0))));
    let mut engine = Engine::new(&entry, EngineConfig::new(2), None).unwrap();
    let of = |lane, what| Past { lane, what };
    let begun = |lane| of(lane, PastEvent::Began { number: 0, start: Start::seeded(1) });
    let none = || ColumnData::F32(Vec::new());
    let past = vec![
        begun(0),
        begun(1),
        of(0, played(3, none())),
        of(0, PastEvent::Stood(3)),
        of(1, played(7, none())),
    ];
    engine.replay(past).unwrap();
    engine.step().unwrap();
    assert_eq!(engine.frame().unwrap().obs(0).as_f32().unwrap(), [4.0, 8.0]);
}

#[test]
fn what_cannot_have_happened_is_refused() {
    let game = cartpole(2);
    let of = |lane, count, actions| Past { lane, what: played(count, actions) };
    let step_of = |lane| of(lane, 1, ColumnData::I64(vec![0]));
    let refused = |past: Vec<Past>| game.engine().replay(past).unwrap_err();
    assert_eq!(refused(vec![step_of(2)]), ResumeError::NoSuchLane { lane: 2, lanes: 2 });
    assert_eq!(refused(vec![step_of(1)]), ResumeError::NotPlaying { lane: 1, next: 0 });
    for (count, actions) in [
        (1, ColumnData::F32(vec![0.0])),
        (2, ColumnData::I64(vec![0])),
        (usize::MAX, ColumnData::I64(vec![0])),
    ] {
        assert_eq!(refused(vec![of(0, count, actions)]), ResumeError::Column { lane: 0 });
    }
    let bad = refused(vec![of(1, 1, ColumnData::I64(vec![7]))]);
    assert!(matches!(&bad, ResumeError::Action(bad) if bad.lane == 1), "{bad}");
    let begun = Past { lane: 0, what: PastEvent::Began { number: u64::MAX, start: Default::default() } };
    // More steps than the episode has.
    let long = of(0, 200, ColumnData::I64(vec![0; 200]));
    assert_eq!(refused(vec![begun, long]), ResumeError::NotPlaying { lane: 0, next: 0 });
    let mut engine = game.engine();
    engine.reset(&Reset::all()).unwrap();
    assert_eq!(engine.replay(vec![]), Err(ResumeError::Engine(StepError::Begun)));
}

#[test]
fn a_lane_whose_past_is_lost_begins_its_next_episode_and_stands_still_before_if_it_is_held() {
    let game = cartpole(2);
    let (mut engine, mut log) = (game.engine(), Log::default());
    let lost = |lane, held| Past {
        lane,
        what: PastEvent::Lost { next: 7, start: Start::seeded(u64::from(lane)), held },
    };
    engine.replay(vec![lost(0, false), lost(1, true)]).unwrap();
    let first = game.turn(&mut engine, &mut log, 0);
    assert_eq!((first.reset, first.rewards), (vec![1, 0], vec![0.0, 0.0]));
    let second = game.turn(&mut engine, &mut log, 1);
    assert_eq!((second.reset, second.rewards), (vec![0, 1], vec![1.0, 0.0]));
    let numbers = log.past.iter().filter_map(|past| match past.what {
        PastEvent::Began { number, .. } => Some((past.lane, number)),
        _ => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [(0, 7), (1, 7)]);
}

fn header(game: &Game, run: RunId, record: RecordRule) -> RunHeader {
    let spec = entry(game.id).spec().clone();
    RunHeader {
        run,
        options: vec![game.options()],
        lanes: game.lanes as u32,
        schedule: game.schedule,
        autoreset: game.autoreset.name().to_owned(),
        max_episode_steps: game.limit.or(spec.max_episode_steps),
        policy: PolicyInfo { name: "test".into(), version: 0 },
        record,
        program: "test".into(),
        started_ms: 0,
        parent: None,
        arguments: String::new(),
        spec,
    }
}

/// Records the parts one after the other, each in the folder and for the turns it says; each but the first goes on
/// where the one before was dropped.
fn recorded(game: &Game, record: RecordRule, parts: &[(&str, u64)]) -> Library {
    let run = RunId::from_u128(77);
    let disk = Arc::new(FaultyDisk::new());
    let mut recorders = BTreeMap::new();
    let mut log = Log::default();
    let mut turn = 0;
    for (index, &(folder, turns)) in (0..).zip(parts) {
        let recorder = recorders.entry(folder).or_insert_with(|| {
            let dir = Path::new("data").join(folder);
            Recorder::open(disk.clone(), &dir, RecorderConfig::default()).unwrap()
        });
        let lanes = 0..game.lanes as u32;
        let recording = recorder.begin_placed(header(game, run, record), lanes, index).unwrap();
        let config = EngineConfig { first_lane: 0, ..game.config() };
        let mut engine = Engine::new(&game.entry(), config, Some(&recording)).unwrap();
        engine.keep_log().unwrap();
        if index == 0 {
            game.begin(&mut engine, &mut log);
        } else {
            engine.replay(log.last(2)).unwrap();
        }
        for _ in 0..turns {
            game.turn(&mut engine, &mut log, turn);
            turn += 1;
        }
        engine.interrupt(Interruption::NodeLost).unwrap();
        engine.close().unwrap();
    }
    for recorder in recorders.into_values() {
        recorder.finish().unwrap();
    }
    let library = Library::open(disk, Path::new("data")).unwrap();
    let check = |verification: Verification| assert!(verification.ok, "{verification:?}");
    library.verify_all(&Registry::builtin(), check).unwrap();
    library
}

/// Start, length, return and outcome.
type Facts = (Start, u64, Option<f64>, Outcome);

/// What a library lists: lane and number, with start, length, return and outcome.
fn listed(library: &Library) -> BTreeMap<(u32, u64), Facts> {
    let query = Query { limit: None, ..Query::default() };
    let all = library.list(&query).unwrap();
    let count = all.len();
    let facts = |info: &EpisodeInfo| (info.start, info.length, info.total_reward, info.outcome);
    let by_name = all.iter().map(|e| ((e.info.name.lane, e.info.name.number), facts(&e.info)));
    let by_name: BTreeMap<_, _> = by_name.collect();
    assert_eq!((by_name.len(), library.count().unwrap()), (count, count as u64), "one is listed twice");
    for episode in all {
        assert_eq!(facts(&library.find(episode.info.name).unwrap().info), facts(&episode.info));
    }
    by_name
}

#[test]
fn an_episode_that_goes_on_elsewhere_is_recorded_whole_and_read_once_under_its_name() {
    for schedule in [SeedSchedule::Continue, SeedSchedule::PerEpisode { run_seed: 4 }] {
        for (autoreset, mode, drawn) in [
            (AutoresetMode::NextStep, RecordRule::All, false),
            (AutoresetMode::SameStep, RecordRule::Trace, false),
            (AutoresetMode::NextStep, RecordRule::All, true),
        ] {
            let game = Game { schedule, autoreset, partial: true, drawn, ..cartpole(9) };
            let whole = listed(&recorded(&game, mode, &[("a", 300)]));
            assert!(whole.values().filter(|facts| facts.3.is_finished()).count() > 50);
            for moves in [
                vec![("a", 90), ("b", 70), ("c", 140)],
                // Back where it was, and on the same place twice.
                vec![("a", 60), ("b", 10), ("a", 100), ("a", 10), ("a", 120)],
            ] {
                assert_eq!(listed(&recorded(&game, mode, &moves)), whole, "{moves:?}");
            }
        }
    }
}

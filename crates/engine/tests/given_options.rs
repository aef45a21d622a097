//! Options that lanes are given at resets: what their episodes have, and what a recording says of them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{act, counter, counter_that, counter_that_refuses, header};
use rollhouse_core::limits::MAX_EPISODE_OPTIONS_BYTES;
use rollhouse_core::{
    AutoresetMode, Distribution, LaneState, OptionValue, Options, Outcome, RecordRule, SeedSchedule,
    random_bits,
};
use rollhouse_engine::{Engine, EngineConfig, LaneOptions, OptionsError, Reset, StepError};
use rollhouse_env::testing::{Timing, late};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{
    Library, Portable, Query, Recorder, RecorderConfig, SeekBounds, Seeker, Unrolled, Unroller,
    write_portable,
};

const LANES: usize = 70;

fn cartpole() -> Arc<EnvEntry> {
    Registry::builtin().get("CartPole-v1").unwrap()
}

fn fill(engine: &mut Engine, step: u64) {
    let mut actions = engine.actions().unwrap();
    for (lane, action) in (0..).zip(actions.as_i64_mut().unwrap()) {
        *action = (random_bits(3, lane, step) & 1) as i64;
    }
}

/// A reset of some lanes, most of which are given bounds of their own, and some a distribution.
fn reset(turn: u64) -> Reset {
    let mask = (0..LANES as u32).map(|lane| turn == 0 || random_bits(1, lane, turn).is_multiple_of(4));
    let low = |lane: usize| match lane % 3 {
        0 => OptionValue::Float(-0.05),
        1 => OptionValue::Float(-0.05 + lane as f64 * 1e-4 + turn as f64 * 1e-6),
        _ => OptionValue::Drawn(Distribution::Uniform([-0.04, -0.01])),
    };
    let options = LaneOptions::from([("low".to_owned(), (0..LANES).map(low).collect())]);
    Reset { mask: mask.collect(), options, ..Reset::default() }
}

/// Plays lanes that are given options again and again, and returns the options that each lane's episodes had.
fn play(engine: &mut Engine, autoreset: AutoresetMode) -> Vec<Vec<Options>> {
    let mut had = vec![Vec::new(); LANES];
    let mut note = |engine: &mut Engine, begun: &dyn Fn(usize) -> bool| {
        let now = engine.options(0..LANES).unwrap();
        let begun = now.into_iter().enumerate().filter(|&(lane, _)| begun(lane));
        begun.for_each(|(lane, options)| had[lane].push(options));
    };
    engine.reset(&Reset::all()).unwrap();
    note(engine, &|_| true);
    for step in 0..400 {
        if step % 29 == 0 {
            let reset = reset(step / 29);
            engine.reset(&reset).unwrap();
            note(engine, &|lane| reset.mask[lane]);
        }
        fill(engine, step);
        let frame = engine.step().unwrap();
        let over = frame.terminated().iter().zip(frame.truncated()).map(|(a, b)| a | b == 1);
        let (over, reset): (Vec<bool>, _) = (over.collect(), frame.reset().to_vec());
        match autoreset {
            AutoresetMode::SameStep => note(engine, &|lane| over[lane]),
            _ => note(engine, &|lane| reset[lane] == 1),
        }
    }
    had
}

#[test]
fn each_recorded_episode_has_the_options_that_its_lane_was_given_last() {
    let kernel = cartpole();
    for (entry, autoreset, schedule) in [
        (kernel.clone(), AutoresetMode::NextStep, SeedSchedule::Continue),
        (kernel.clone(), AutoresetMode::SameStep, SeedSchedule::PerEpisode { run_seed: 5 }),
        (
            late(&kernel, Timing { seed: 3, ..Timing::default() }),
            AutoresetMode::NextStep,
            SeedSchedule::Continue,
        ),
    ] {
        let disk = Arc::new(FaultyDisk::new());
        let recorder = Recorder::open(disk.clone(), Path::new("data"), RecorderConfig::default()).unwrap();
        let config = EngineConfig { autoreset, schedule, ..EngineConfig::new(LANES) };
        let recording = recorder.begin_run(header(&entry, &config, RecordRule::All)).unwrap();
        let mut engine = Engine::new(&entry, config, Some(&recording)).unwrap();
        let had = play(&mut engine, autoreset);
        engine.close().unwrap();
        drop(recording);
        recorder.finish().unwrap();
        // Once from what the writer kept, and once from the segments alone.
        for scan in [false, true] {
            let open = if scan { Library::open_scanning } else { Library::open };
            let library = open(disk.clone(), Path::new("data")).unwrap();
            check(&library, &kernel, &had);
        }
    }
}

fn check(library: &Library, kernel: &EnvEntry, had: &[Vec<Options>]) {
    let registry = Registry::builtin();
    let mut verified = 0;
    let all = |verification: rollhouse_replay::Verification| {
        assert!(verification.ok, "{verification:?}");
        verified += 1;
    };
    library.verify_all(&registry, all).unwrap();
    assert_eq!(verified, had.iter().map(Vec::len).sum::<usize>());
    let listed = library.list(&Query::default()).unwrap();
    assert_eq!(listed.len(), verified);
    let mut episodes = Vec::new();
    for listed in &listed {
        let info = &listed.info;
        assert_eq!(info.options(), had[info.name.lane as usize][info.name.number as usize], "{}", info.name);
        if info.name.number % 4 == 1 {
            episodes.push(listed.folder.load(info).unwrap());
        }
    }
    for episode in episodes.iter().step_by(7) {
        assert!(episode.recompute(&registry).is_ok());
        let mut seeker = Seeker::new(&registry, Arc::new(episode.clone()), &SeekBounds::default()).unwrap();
        seeker.seek(episode.info.length).unwrap();
        assert!(seeker.divergence().is_none());
        let mut file = Vec::new();
        write_portable(episode, &mut file, |_| true).unwrap();
        let alone = Portable::episode_of(file).unwrap();
        assert_eq!(alone.info.options(), episode.info.options());
    }
    let mut table = Unrolled::default();
    Unroller::new(&registry).unroll(&kernel.spec().obs_columns(), &episodes, &mut table);
    assert!(table.failed.is_empty(), "{:?}", table.failed);
    let wanted = vec![("low".to_owned(), OptionValue::Float(-0.05))];
    let of_that = library.list(&Query { options: wanted, ..Query::default() }).unwrap();
    let those = |options: &&Options| options.float("low") == Some(-0.05);
    assert_eq!(of_that.len(), had.iter().flatten().filter(those).count());
    assert!(!of_that.is_empty() && of_that.len() < listed.len());
}

#[test]
fn a_run_whose_lanes_are_given_nothing_is_written_as_before_and_one_that_goes_back_to_its_own_says_so() {
    let counter = counter();
    let play = |given: &[i64]| {
        let disk = Arc::new(FaultyDisk::new());
        let recorder = Recorder::open(disk.clone(), Path::new("data"), RecorderConfig::default()).unwrap();
        let config = EngineConfig { autoreset: AutoresetMode::SameStep, ..EngineConfig::new(1) };
        let recording = recorder.begin_run(header(&counter, &config, RecordRule::All)).unwrap();
        let mut engine = Engine::new(&counter, config, Some(&recording)).unwrap();
        engine.reset(&Reset::seeded(1, 1)).unwrap();
        for &max in given {
            let options = LaneOptions::from([("max".to_owned(), vec![OptionValue::Int(max)])]);
            engine.reset(&Reset { options, ..Reset::default() }).unwrap();
            for _ in 0..max {
                act(&mut engine, &[1]);
                engine.step().unwrap();
            }
        }
        engine.close().unwrap();
        drop(recording);
        recorder.finish().unwrap();
        let library = Library::open(disk, Path::new("data")).unwrap();
        let listed = library.list(&Query::default()).unwrap();
        listed.iter().map(|listed| (listed.info.length, listed.info.options().int("max"))).collect::<Vec<_>>()
    };
    assert_eq!(play(&[]), [(0, Some(3))]);
    assert_eq!(
        play(&[3, 5, 3])[1..],
        [(3, Some(3)), (0, Some(3)), (5, Some(5)), (0, Some(5)), (3, Some(3)), (0, Some(3))]
    );
}

fn give(values: &[i64]) -> Reset {
    let values = values.iter().map(|&max| OptionValue::Int(max)).collect();
    Reset { options: LaneOptions::from([("max".to_owned(), values)]), ..Reset::default() }
}

#[test]
fn options_that_an_env_refuses_at_its_hundredth_reset_are_refused_and_change_nothing() {
    let config = EngineConfig { autoreset: AutoresetMode::SameStep, ..EngineConfig::new(3) };
    let mut engine = Engine::new(&counter_that_refuses(Some(100)), config, None).unwrap();
    for number in 1..100 {
        engine.reset(&give(&[number, 5, 6])).unwrap();
    }
    let refused = engine.reset(&give(&[100, 5, 7])).unwrap_err();
    assert!(matches!(refused, StepError::Options(OptionsError::Make { .. })), "{refused}");
    let now: Vec<_> = engine.options(0..3).unwrap().iter().map(|options| options.int("max")).collect();
    assert_eq!(now, [Some(99), Some(5), Some(6)]);
    assert_eq!(engine.lane_states().unwrap(), [LaneState::Playing; 3]);
}

#[test]
fn options_that_an_env_took_when_they_were_tried_and_refuses_as_the_episode_begins_cost_that_lane_alone() {
    let made = AtomicUsize::new(0);
    let entry = counter_that(move |max| max == 100 && made.fetch_add(1, Ordering::Relaxed) > 0);
    let disk = Arc::new(FaultyDisk::new());
    let recorder = Recorder::open(disk.clone(), Path::new("data"), RecorderConfig::default()).unwrap();
    let config = EngineConfig { autoreset: AutoresetMode::SameStep, ..EngineConfig::new(3) };
    let recording = recorder.begin_run(header(&entry, &config, RecordRule::All)).unwrap();
    let mut engine = Engine::new(&entry, config, Some(&recording)).unwrap();
    for number in 1..100 {
        engine.reset(&give(&[4, number, 6])).unwrap();
    }
    engine.reset(&give(&[4, 100, 6])).unwrap();
    let states = engine.lane_states().unwrap();
    assert_eq!(states, [LaneState::Playing, LaneState::BackOff, LaneState::Playing]);
    for _ in 0..4 {
        act(&mut engine, &[1; 3]);
        engine.step().unwrap();
    }
    engine.close().unwrap();
    drop(recording);
    recorder.finish().unwrap();
    let library = Library::open(disk, Path::new("data")).unwrap();
    let finished = Query { outcome: Some(Outcome::TERMINATED), ..Query::default() };
    let listed = library.list(&finished).unwrap();
    let finished = |listed: &rollhouse_replay::LibraryEpisode| (listed.info.name.lane, listed.info.length);
    assert_eq!(listed.iter().map(finished).collect::<Vec<_>>(), [(0, 4)]);
}

#[test]
fn recorded_lanes_take_no_options_that_are_too_long_to_repeat_and_none_while_they_play() {
    let kernel = cartpole();
    let disk = Arc::new(FaultyDisk::new());
    let recorder = Recorder::open(disk, Path::new("data"), RecorderConfig::default()).unwrap();
    let config = EngineConfig::new(2);
    let recording = recorder.begin_run(header(&kernel, &config, RecordRule::All)).unwrap();
    let mut engine = Engine::new(&kernel, config, Some(&recording)).unwrap();
    engine.reset(&Reset::seeded(1, 2)).unwrap();
    let choices = |count: usize| {
        let values = (0..count).map(|at| OptionValue::Float(-0.01 - at as f64 * 1e-6)).collect();
        LaneOptions::from([("low".to_owned(), vec![OptionValue::Drawn(Distribution::Choice(values))])])
    };
    let refused = engine.reset(&Reset { options: choices(1000), ..Reset::default() }).unwrap_err();
    let StepError::Options(OptionsError::TooLarge { lane: 0, bytes }) = refused else { panic!("{refused}") };
    assert!(bytes > MAX_EPISODE_OPTIONS_BYTES);
    engine.reset(&Reset { options: choices(100), ..Reset::default() }).unwrap();
    let playing = engine.set_options(0..2, choices(2)).unwrap_err();
    assert_eq!(playing, StepError::Options(OptionsError::Recorded));
}

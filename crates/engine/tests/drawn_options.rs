//! Options that each episode draws: what lanes have of them, and what a recording says.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use common::{act, counter, header};
use rollhouse_core::{
    AutoresetMode, Distribution, OptionValue, Options, RecordRule, SeedSchedule, random_bits,
};
use rollhouse_engine::{ConfigError, Engine, EngineConfig, LaneOptions, OptionsError, Reset, StepError};
use rollhouse_env::{EnvEntry, MakeError, Registry};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Library, Query, Recorder, RecorderConfig, SeekBounds, Seeker, Unrolled, Unroller};

const LANES: usize = 70;

fn uniform(low: f64, high: f64) -> OptionValue {
    OptionValue::Drawn(Distribution::Uniform([low, high]))
}

fn entry(id: &str) -> Arc<EnvEntry> {
    Registry::builtin().get(id).unwrap()
}

fn given(entry: &EnvEntry, given: &[(&str, OptionValue)]) -> Options {
    let given: Vec<_> = given.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    Options::check(&entry.spec().options, &given).unwrap()
}

/// CartPoles whose first states are drawn from bounds that are drawn themselves.
fn config(autoreset: AutoresetMode, schedule: SeedSchedule) -> EngineConfig {
    let options = given(
        &entry("CartPole-v1"),
        &[
            ("low", uniform(-0.04, -0.01)),
            (
                "sutton_barto_reward",
                OptionValue::Drawn(Distribution::Choice(vec![
                    OptionValue::Bool(true),
                    OptionValue::Bool(false),
                ])),
            ),
        ],
    );
    EngineConfig { autoreset, schedule, options: vec![options], ..EngineConfig::new(LANES) }
}

fn fill(engine: &mut Engine, step: u64) {
    let mut actions = engine.actions().unwrap();
    for (lane, action) in (0..).zip(actions.as_i64_mut().unwrap()) {
        *action = (random_bits(3, lane, step) & 1) as i64;
    }
}

/// The lower bounds of all lanes.
fn lows(engine: &mut Engine) -> Vec<f64> {
    engine.options(0..LANES).unwrap().iter().map(|options| options.float("low").unwrap()).collect()
}

#[test]
fn every_episode_draws_a_value_of_its_own_and_a_seed_draws_the_same_again() {
    let play = |seed| {
        let config = config(AutoresetMode::NextStep, SeedSchedule::Continue);
        let mut engine = Engine::new(&entry("CartPole-v1"), config, None).unwrap();
        engine.reset(&Reset::seeded(seed, LANES)).unwrap();
        let mut drawn = lows(&mut engine);
        for step in 0..200 {
            fill(&mut engine, step);
            let frame = engine.step().unwrap();
            let begun: Vec<bool> = frame.reset().iter().map(|&flag| flag == 1).collect();
            let smallest = frame.obs(0).as_f32().unwrap().as_chunks::<4>().0.iter();
            let smallest: Vec<f32> = smallest.map(|row| row.iter().copied().fold(1.0, f32::min)).collect();
            let now = lows(&mut engine);
            for lane in (0..LANES).filter(|&lane| begun[lane]) {
                // The env has it.
                assert!(smallest[lane] >= now[lane] as f32);
                drawn.push(now[lane]);
            }
        }
        drawn
    };
    let drawn = play(7);
    assert_eq!(drawn, play(7));
    assert_ne!(drawn, play(8));
    assert!(drawn.len() > 500);
    let different: BTreeSet<u64> = drawn.iter().map(|low| low.to_bits()).collect();
    assert_eq!(different.len(), drawn.len());
    let mut parts = [0; 6];
    drawn.iter().for_each(|low| parts[((low + 0.04) / 0.005).floor() as usize] += 1);
    // Six standard deviations of a sixth of them.
    let (mean, most) = (drawn.len() as f64 / 6.0, 6.0 * (drawn.len() as f64 * 5.0 / 36.0).sqrt());
    assert!(parts.iter().all(|&part| (f64::from(part) - mean).abs() < most), "{parts:?}");
}

#[test]
fn a_lane_that_is_seeded_again_draws_again_what_that_seed_draws() {
    let config = config(AutoresetMode::NextStep, SeedSchedule::Continue);
    let mut engine = Engine::new(&entry("CartPole-v1"), config, None).unwrap();
    engine.reset(&Reset::seeded(7, LANES)).unwrap();
    let first = lows(&mut engine);
    engine.reset(&Reset::all()).unwrap();
    assert_ne!(lows(&mut engine), first);
    engine.reset(&Reset::seeded(7, LANES)).unwrap();
    assert_eq!(lows(&mut engine), first);
}

#[test]
fn episodes_of_an_env_that_draws_nothing_itself_draw_different_options() {
    let entry = counter();
    let max = OptionValue::Drawn(Distribution::Integers([1, 1_000_000]));
    let options = vec![given(&entry, &[("max", max)])];
    let config = EngineConfig { options, autoreset: AutoresetMode::SameStep, ..EngineConfig::new(1) };
    let mut engine = Engine::new(&entry, config, None).unwrap();
    let mut drawn = BTreeSet::new();
    engine.reset(&Reset::seeded(3, 1)).unwrap();
    for _ in 0..50 {
        drawn.insert(engine.options(0..1).unwrap()[0].int("max").unwrap());
        engine.reset(&Reset::all()).unwrap();
    }
    assert_eq!(drawn.len(), 50);
}

#[test]
fn what_is_recorded_is_verified_sought_and_unrolled_with_the_options_that_each_episode_had() {
    for schedule in [SeedSchedule::Continue, SeedSchedule::PerEpisode { run_seed: 5 }] {
        let (disk, entry) = (Arc::new(FaultyDisk::new()), entry("CartPole-v1"));
        let recorder = Recorder::open(disk.clone(), Path::new("data"), RecorderConfig::default()).unwrap();
        let config = config(AutoresetMode::SameStep, schedule);
        let mut header = header(&entry, &config, RecordRule::All);
        header.options.clone_from(&config.options);
        let recording = recorder.begin_run(header).unwrap();
        let mut engine = Engine::new(&entry, config, Some(&recording)).unwrap();
        let seeded = schedule == SeedSchedule::Continue;
        engine.reset(&if seeded { Reset::seeded(7, LANES) } else { Reset::all() }).unwrap();
        let mut had: Vec<Vec<Options>> =
            engine.options(0..LANES).unwrap().into_iter().map(|options| vec![options]).collect();
        for step in 0..300 {
            fill(&mut engine, step);
            let begun: Vec<bool> = engine.step().unwrap().reset().iter().map(|&flag| flag == 1).collect();
            let frame = engine.frame().unwrap();
            let over: Vec<bool> =
                frame.terminated().iter().zip(frame.truncated()).map(|(a, b)| a | b == 1).collect();
            let now = engine.options(0..LANES).unwrap();
            for (lane, options) in now.into_iter().enumerate().filter(|&(lane, _)| begun[lane] || over[lane])
            {
                had[lane].push(options);
            }
        }
        engine.close().unwrap();
        drop(recording);
        recorder.finish().unwrap();

        let library = Library::open(disk, Path::new("data")).unwrap();
        let registry = Registry::builtin();
        let mut verified = 0;
        library
            .verify_all(&registry, |verification| {
                assert!(verification.ok, "{verification:?}");
                verified += 1;
            })
            .unwrap();
        assert!(verified > 500);
        let listed = library.list(&Query { limit: Some(200), ..Query::default() }).unwrap();
        let mut episodes = Vec::new();
        for listed in &listed {
            let info = &listed.info;
            assert_eq!(info.options(), had[info.name.lane as usize][info.name.number as usize]);
            let episode = listed.folder.load(info).unwrap();
            assert!(episode.recompute(&registry).is_ok());
            let mut seeker =
                Seeker::new(&registry, Arc::new(episode.clone()), &SeekBounds::default()).unwrap();
            seeker.seek(info.length).unwrap();
            seeker.seek(0).unwrap();
            assert!(seeker.divergence().is_none());
            episodes.push(episode);
        }
        let mut table = Unrolled::default();
        Unroller::new(&registry).unroll(&entry.spec().obs_columns(), &episodes, &mut table);
        assert!(table.failed.is_empty(), "{:?}", table.failed);
    }
}

#[test]
fn a_range_that_the_env_cannot_work_with_is_refused_with_option_value_and_limit() {
    let pendulum = entry("Pendulum-v1");
    let refused = |options: &[(&str, OptionValue)]| {
        let options = vec![given(&pendulum, options)];
        let config = EngineConfig { options, ..EngineConfig::new(2) };
        let error = Engine::new(&pendulum, config, None).unwrap_err();
        std::error::Error::source(&error).unwrap().to_string()
    };
    let error = refused(&[("x_init", uniform(-0.5, 1.0))]);
    assert!(error.contains("`x_init`") && error.contains("-0.5") && error.contains("from 0 to"), "{error}");
    // Bounds that only some episodes would cross.
    let cartpole = entry("CartPole-v1");
    let options = vec![given(&cartpole, &[("low", uniform(-0.1, 0.0)), ("high", uniform(-0.05, 0.1))])];
    let error = Engine::new(&cartpole, EngineConfig { options, ..EngineConfig::new(2) }, None).unwrap_err();
    assert!(matches!(&error, ConfigError::Make(MakeError::Option { name: "low", .. })), "{error}");
}

#[test]
fn lanes_are_given_a_distribution_at_a_reset_and_keep_it() {
    let counter = counter();
    let mut engine = Engine::new(&counter, EngineConfig::new(3), None).unwrap();
    let max = OptionValue::Drawn(Distribution::Integers([1, 1_000_000]));
    let reset = |values: Vec<OptionValue>| {
        let options = LaneOptions::from([("max".to_owned(), values)]);
        Reset { seeds: vec![Some(4); 3], mask: vec![], options }
    };
    engine.reset(&Reset::seeded(4, 3)).unwrap();
    engine.reset(&reset(vec![OptionValue::Int(3), max.clone(), max])).unwrap();
    let drawn = |engine: &mut Engine| -> Vec<i64> {
        engine.options(0..3).unwrap().iter().map(|options| options.int("max").unwrap()).collect()
    };
    let first = drawn(&mut engine);
    assert_eq!(first[0], 3);
    assert!(first[1] != 3 && first[1] == first[2], "of the same seed: {first:?}");
    engine.reset(&Reset::all()).unwrap();
    let second = drawn(&mut engine);
    assert!(second[0] == 3 && second[1] != first[1] && second[1] == second[2], "{second:?}");
    act(&mut engine, &[1, 1, 1]);
    engine.step().unwrap();
    assert_eq!(drawn(&mut engine), second);
    let none = reset(vec![OptionValue::Drawn(Distribution::Integers([2, 1]))]);
    assert!(matches!(engine.reset(&none), Err(StepError::Options(OptionsError::Option { .. }))));
    assert_eq!(drawn(&mut engine), second);
}

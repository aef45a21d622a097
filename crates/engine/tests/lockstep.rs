//! Seeds, threads, quotas, failures.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::common;

use common::{act, counter, counting};
use proptest::prelude::*;
use rollhouse_core::limits::MAX_LANES;
use rollhouse_core::{
    AutoresetMode, Interruption, LaneState, Outcome, SeedSchedule, per_episode_seed, random_bits,
};
use rollhouse_engine::{ConfigError, Engine, EngineConfig, Reset, SAMPLE_EVERY, StepError};
use rollhouse_env::Registry;
use rollhouse_policy::{Builtin, Model};

fn cartpole(config: EngineConfig) -> Engine {
    Engine::new(&Registry::builtin().get("CartPole-v1").unwrap(), config, None).unwrap()
}

fn act_randomly(engine: &mut Engine, step: u64) {
    for (lane, action) in (0..).zip(engine.actions().unwrap().as_i64_mut().unwrap()) {
        *action = (random_bits(5, lane, step) & 1) as i64;
    }
}

fn obs(engine: &mut Engine) -> Vec<u32> {
    engine.frame().unwrap().obs(0).as_f32().unwrap().iter().map(|v| v.to_bits()).collect()
}

/// Symptom: a lane that had played its quota showed its last two observations in turn.
/// Cause: envs of one lane write nothing for a lane that stands still, and frames alternate between two places.
/// Fix: the engine copies its row from the frame before.
#[test]
fn a_lane_that_stands_still_shows_its_last_observation_in_every_frame() {
    let mut engine = counting(&[2, 9], AutoresetMode::NextStep);
    engine.limit_episodes(|row| if row == 0 { 1 } else { 9 }).unwrap();
    engine.reset(&Reset::all()).unwrap();
    for step in 1..=5u8 {
        act(&mut engine, &[1, 1]);
        let frame = engine.step().unwrap();
        assert_eq!(frame.obs(0).as_f32(), Some(&[f32::from(step.min(2)), f32::from(step)][..]));
    }
}

#[test]
fn any_number_of_threads_gives_the_same_frames_and_stats() {
    let lanes = 1_000;
    let mut engines: Vec<_> = [1, 2, 3]
        .map(|threads| {
            let schedule = SeedSchedule::PerEpisode { run_seed: 3 };
            cartpole(EngineConfig { threads, schedule, ..EngineConfig::new(lanes) })
        })
        .into();
    assert_eq!(engines.iter().map(Engine::threads).collect::<Vec<_>>(), [1, 2, 3]);
    for engine in &mut engines {
        engine.reset(&Reset::all()).unwrap();
    }
    for step in 0..200 {
        let frames: Vec<_> = engines
            .iter_mut()
            .map(|engine| {
                act_randomly(engine, step);
                let frame = engine.step().unwrap();
                let flags = (frame.terminated().to_vec(), frame.truncated().to_vec(), frame.reset().to_vec());
                let rewards = frame.rewards().to_vec();
                (obs(engine), rewards, flags)
            })
            .collect();
        assert!(frames[0] == frames[1] && frames[0] == frames[2], "step {step}");
    }
    let stats: Vec<_> = engines.iter_mut().map(|engine| engine.stats().unwrap()).collect();
    assert!(stats[0].finished() > 1_000);
    assert_eq!(stats[0], stats[1]);
    assert_eq!(stats[0], stats[2]);
    for engine in engines {
        assert_eq!(engine.close().unwrap().batches, 200);
    }
}

#[test]
fn a_small_batch_is_not_split_among_threads() {
    assert_eq!(cartpole(EngineConfig { threads: 8, ..EngineConfig::new(64) }).threads(), 1);
}

#[test]
fn every_episode_of_the_per_episode_schedule_starts_as_its_seed_alone_does() {
    let schedule = SeedSchedule::PerEpisode { run_seed: 11 };
    let mut engine = cartpole(EngineConfig { schedule, ..EngineConfig::new(3) });
    let mut alone = cartpole(EngineConfig::new(1));
    let mut numbers = [0u64; 3];
    engine.reset(&Reset::all()).unwrap();
    for step in 0..300 {
        let began: Vec<usize> = {
            let frame = engine.frame().unwrap();
            (0..3).filter(|&lane| frame.reset()[lane] == 1).collect()
        };
        for lane in began {
            let seed = per_episode_seed(11, lane as u32, numbers[lane]);
            numbers[lane] += 1;
            alone.reset(&Reset::seeded(seed, 1)).unwrap();
            assert_eq!(obs(&mut engine)[lane * 4..lane * 4 + 4], obs(&mut alone));
        }
        act_randomly(&mut engine, step);
        engine.step().unwrap();
    }
    assert!(numbers.iter().all(|&n| n > 5), "{numbers:?}");
}

/// Symptom: a seed given to a lane of a scheduled run had no effect. Cause: the schedule seeded over it.
/// Fix: it is refused.
#[test]
fn a_seed_that_the_schedule_would_override_is_refused() {
    let schedule = SeedSchedule::PerEpisode { run_seed: 11 };
    let mut engine = cartpole(EngineConfig { schedule, ..EngineConfig::new(2) });
    assert_eq!(engine.reset(&Reset::seeded(1, 2)).err(), Some(StepError::SeedsScheduled));
    engine.reset(&Reset { seeds: vec![None; 2], ..Reset::default() }).unwrap();
}

#[test]
fn a_partial_reset_with_a_seed_touches_its_lane_only() {
    let mut engine = cartpole(EngineConfig::new(2));
    engine.reset(&Reset::seeded(0, 2)).unwrap();
    act_randomly(&mut engine, 0);
    engine.step().unwrap();
    let before = obs(&mut engine);
    engine.reset(&Reset { seeds: vec![None, Some(0)], mask: vec![false, true], ..Reset::default() }).unwrap();
    let after = obs(&mut engine);
    assert_eq!(after[..4], before[..4]);
    engine.reset(&Reset::seeded(0, 2)).unwrap();
    assert_eq!(after[4..], obs(&mut engine)[..4]);
}

#[test]
fn lanes_without_a_seed_are_seeded_differently() {
    let mut engine = cartpole(EngineConfig::new(2));
    engine.reset(&Reset::all()).unwrap();
    let obs = obs(&mut engine);
    assert_ne!(obs[..4], obs[4..]);
}

#[test]
fn lanes_that_have_played_their_quota_stand_still() {
    let mut engine = counting(&[2, 2, 2], AutoresetMode::NextStep);
    engine.limit_episodes(|lane| lane as u64).unwrap();
    engine.reset(&Reset::all()).unwrap();
    let mut rows = 0;
    while engine.playing() > 0 {
        act(&mut engine, &[1, 1, 1]);
        engine.step().unwrap();
        rows += 1;
    }
    // Lane 2: two steps, one reset row, two steps.
    assert_eq!(rows, 5);
    let stats = engine.stats().unwrap();
    assert_eq!((stats.steps, stats.finished()), (2 + 4, 3));
    assert_eq!(
        (stats.returns.mean(), stats.lengths.min(), stats.lengths.max()),
        (Some(2.0), Some(2.0), Some(2.0))
    );
}

#[test]
fn interrupted_episodes_are_counted_as_such_and_not_as_finished() {
    let mut engine = counting(&[5, 5], AutoresetMode::NextStep);
    engine.reset(&Reset::all()).unwrap();
    act(&mut engine, &[1, 1]);
    engine.step().unwrap();
    engine.interrupt(Interruption::Cancelled).unwrap();
    let stats = engine.stats().unwrap();
    let cancelled = Outcome::Interrupted(Interruption::Cancelled);
    assert_eq!((stats.outcomes[usize::from(cancelled.code())], stats.finished()), (2, 0));
    assert_eq!(engine.lane_states().unwrap(), [LaneState::Over; 2]);
    engine.step().unwrap();
    assert_eq!(engine.frame().unwrap().reset(), [1, 1]);
}

#[test]
fn a_panic_loses_its_lane_and_no_other() {
    let options = vec![common::options(9, -1), common::options(9, 2), common::options(9, -1)];
    let config = EngineConfig { options, ..EngineConfig::new(3) };
    let mut engine = Engine::new(&counter(), config, None).unwrap();
    engine.reset(&Reset::all()).unwrap();
    for _ in 0..4 {
        act(&mut engine, &[1, 1, 1]);
        engine.step().unwrap();
    }
    let frame = engine.frame().unwrap();
    // The lost lane shows its last observation and earns nothing.
    assert_eq!(frame.obs(0).as_f32().unwrap(), [4.0, 1.0, 4.0]);
    assert_eq!(frame.rewards(), [1.0, 0.0, 1.0]);
    assert_eq!((engine.lost(), engine.is_lost(1)), (1, true));
    let states = [LaneState::Playing, LaneState::BackOff, LaneState::Playing];
    assert_eq!(engine.lane_states().unwrap(), states);
    let crashed = Outcome::Interrupted(Interruption::Crashed);
    assert_eq!(engine.stats().unwrap().outcomes[usize::from(crashed.code())], 1);
}

#[test]
fn absurd_configurations_are_refused() {
    let make = |config| Engine::new(&counter(), config, None).err();
    assert!(matches!(make(EngineConfig::new(0)), Some(ConfigError::Lanes(0))));
    assert!(matches!(make(EngineConfig::new(MAX_LANES + 1)), Some(ConfigError::Lanes(_))));
    let threads = EngineConfig { threads: 0, ..EngineConfig::new(1) };
    assert!(matches!(make(threads), Some(ConfigError::Threads(0))));
    let options = EngineConfig { options: vec![common::options(1, -1); 2], ..EngineConfig::new(3) };
    assert!(matches!(make(options), Some(ConfigError::Options { given: 2, lanes: 3 })));
}

#[test]
fn some_batches_are_timed_in_parts() {
    let mut engine = counting(&[3; 4], AutoresetMode::NextStep);
    engine.reset(&Reset::all()).unwrap();
    let batches = 2 * SAMPLE_EVERY + 1;
    for _ in 0..batches {
        act(&mut engine, &[1; 4]);
        assert!(!matches!(engine.step(), Err(StepError::Hung)));
    }
    let timings = engine.close().unwrap();
    assert_eq!((timings.batches, timings.batch.samples, timings.step.samples), (batches, 3, 3));
    assert!(timings.batch.max_ns >= timings.step.max_ns);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn lanes_of_a_run_play_the_same_on_one_engine_and_on_several(
        lanes in 2usize..200, cut in any::<prop::sample::Index>(), run_seed in any::<u64>(), same_step in any::<bool>()
    ) {
        let cut = 1 + cut.index(lanes - 1);
        let config = EngineConfig {
            schedule: SeedSchedule::PerEpisode { run_seed },
            autoreset: if same_step { AutoresetMode::SameStep } else { AutoresetMode::NextStep },
            ..EngineConfig::new(lanes)
        };
        let mut whole = cartpole(config.clone());
        let mut first = cartpole(EngineConfig { lanes: cut, ..config.clone() });
        let mut second = cartpole(EngineConfig { lanes: lanes - cut, first_lane: cut as u32, ..config });
        for engine in [&mut whole, &mut first, &mut second] {
            engine.reset(&Reset::all()).unwrap();
        }
        let step = |engine: &mut Engine, first_lane: u32, at: u64| {
            for (lane, action) in (first_lane..).zip(engine.actions().unwrap().as_i64_mut().unwrap()) {
                *action = (random_bits(5, lane, at) & 1) as i64;
            }
            engine.step().unwrap();
            obs(engine)
        };
        for at in 0..60 {
            let mut parts = step(&mut first, 0, at);
            parts.extend(step(&mut second, cut as u32, at));
            prop_assert_eq!(step(&mut whole, 0, at), parts);
        }
    }
}

#[test]
fn lanes_beyond_what_can_be_numbered_are_refused() {
    let env = Registry::builtin().get("CartPole-v1").unwrap();
    let config = EngineConfig { first_lane: u32::MAX, ..EngineConfig::new(1) };
    assert!(matches!(
        Engine::new(&env, config, None),
        Err(ConfigError::FirstLane { first_lane: u32::MAX, lanes: 1 })
    ));
}

#[test]
fn a_random_player_of_a_strategy_game_orders_mostly_what_the_masks_of_its_lane_allow() {
    let entry = Registry::builtin().get("Skirmish-v0").unwrap();
    let channels = &entry.spec().info_channels;
    let rejected = channels.iter().position(|channel| channel.path == "rejected_orders").unwrap();
    let mut policy = Model::make(&Builtin::Random, entry.spec(), 4).unwrap();
    let mut engine = Engine::new(&entry, EngineConfig::new(5), None).unwrap();
    engine.reset(&Reset::all()).unwrap();
    // The number of orders stands behind the 16 that there may be, of 7 numbers each.
    const COUNT: usize = 1 + 16 * 7;
    let (mut given, mut refused) = (0, 0);
    for step in 0..60 {
        engine.act(&mut *policy, step).unwrap();
        let (frame, actions) = engine.frame_and_actions().unwrap();
        let begins = frame.terminated().iter().zip(frame.truncated()).map(|(end, cut)| end | cut == 1);
        let rows = actions.as_ref().as_i64().unwrap().chunks(actions.as_ref().len() / 5);
        // The action after an episode's end is not taken.
        given += rows.zip(begins).map(|(row, begins)| if begins { 0 } else { row[COUNT] }).sum::<i64>();
        let frame = engine.step().unwrap();
        refused +=
            frame.info(rejected).as_i32().unwrap().iter().map(|&orders| i64::from(orders)).sum::<i64>();
    }
    assert!(given > 1000 && refused * 5 < given, "{refused} of {given}");
}

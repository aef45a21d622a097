//! Commands between two steps: options, states, images, statistics.
#![allow(clippy::unwrap_used, reason = "test code")]

use crate::common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{act, counter};
use rollhouse_core::{AutoresetMode, ColumnRef, OptionValue, Options};
use rollhouse_engine::{
    AttributeValue, CommandError, CommandFault, CommandLanes, Dispatch, Engine, EngineConfig, GetAttributes,
    GetParams, LaneOptions, LaneRange, METHODS, Method, Nothing, OptionsError, Render, RenderParams, Reset,
    ResetLanes, ResetParams, SAMPLE_EVERY, Schema, SetAttributes, SetParams, Statistics, StepError, dispatch,
};
use rollhouse_env::{Registry, RenderError, StateError};

fn engine(id: &str, lanes: usize, threads: usize) -> Engine {
    let config = EngineConfig { threads, ..EngineConfig::new(lanes) };
    Engine::new(&Registry::builtin().get(id).unwrap(), config, None).unwrap()
}

fn run<M: Method>(engine: &mut Engine, params: M::Params) -> Result<M::Answer, CommandError> {
    M::run(&mut CommandLanes::of(engine), params)
}

fn get(engine: &mut Engine, name: &str, first: u32, count: u32) -> Result<Vec<AttributeValue>, CommandError> {
    let params = GetParams { name: name.into(), lanes: LaneRange { first, count } };
    run::<GetAttributes>(engine, params).map(|answer| answer.values)
}

fn set(
    engine: &mut Engine,
    name: &str,
    first: u32,
    values: Vec<AttributeValue>,
    count: u32,
) -> Result<(), CommandError> {
    let params = SetParams { name: name.into(), lanes: LaneRange { first, count }, values };
    run::<SetAttributes>(engine, params).map(|Nothing {}| ())
}

fn float(value: f64) -> AttributeValue {
    AttributeValue::Scalar(OptionValue::Float(value))
}

fn options(pairs: &[(&str, &[f64])]) -> LaneOptions {
    let values = |values: &[f64]| values.iter().map(|&value| OptionValue::Float(value)).collect();
    pairs.iter().map(|&(name, each)| (name.to_owned(), values(each))).collect()
}

fn first_column(engine: &mut Engine) -> Vec<f32> {
    let frame = engine.frame().unwrap();
    frame.obs(0).as_f32().unwrap().chunks(4).map(|row| row[0]).collect()
}

#[test]
fn a_reset_gives_options_to_the_lanes_it_resets_and_they_keep_them() {
    for threads in [1, 2] {
        let lanes = 600;
        let mut engine = engine("CartPole-v1", lanes, threads);
        engine.reset(&Reset::seeded(1, lanes)).unwrap();
        let before = first_column(&mut engine);
        let mask: Vec<bool> = (0..lanes).map(|lane| lane % 3 == 0).collect();
        let each: Vec<f64> = (0..lanes).map(|lane| lane as f64 / 10_000.0).collect();
        let given = options(&[("low", &each), ("high", &[0.06])]);
        engine.reset(&Reset { mask: mask.clone(), options: given.clone(), ..Reset::default() }).unwrap();
        let after = first_column(&mut engine);
        for lane in 0..lanes {
            if mask[lane] {
                assert!(f64::from(after[lane]) >= each[lane] - 1e-6 && after[lane] <= 0.06, "lane {lane}");
            } else {
                assert_eq!(after[lane], before[lane], "lane {lane} was left alone");
            }
        }
        assert_eq!(get(&mut engine, "low", 3, 2).unwrap(), [float(each[3]), float(-0.05)]);
        // The next reset, without options, draws from the bounds it was given.
        engine.reset(&Reset::all()).unwrap();
        let later = first_column(&mut engine);
        assert!(
            (0..lanes).filter(|lane| mask[*lane]).all(|lane| f64::from(later[lane]) >= each[lane] - 1e-6)
        );
    }
}

#[test]
fn lanes_that_play_go_on_where_they_are_when_others_get_options() {
    let mut changed = engine("CartPole-v1", 70, 1);
    let mut plain = engine("CartPole-v1", 70, 1);
    for engine in [&mut changed, &mut plain] {
        engine.reset(&Reset::seeded(5, 70)).unwrap();
    }
    for step in 0..200i64 {
        if step == 7 {
            // An option of reset bounds has no part in a step.
            changed.set_options(10..69, options(&[("low", &[-0.04])])).unwrap();
        }
        let actions: Vec<i64> = (0..70).map(|lane| (lane * 7 + step) % 2).collect();
        for engine in [&mut changed, &mut plain] {
            act(engine, &actions);
            engine.step().unwrap();
        }
        let (ours, theirs) = (changed.frame().unwrap(), plain.frame().unwrap());
        assert_eq!(ours.obs(0).as_f32().unwrap()[..40], theirs.obs(0).as_f32().unwrap()[..40], "step {step}");
        assert_eq!(ours.rewards()[..10], theirs.rewards()[..10]);
    }
}

#[test]
fn several_options_are_set_at_once_so_that_none_meets_the_others_old_value() {
    let mut engine = engine("CartPole-v1", 4, 1);
    engine.reset(&Reset::seeded(1, 4)).unwrap();
    let params = rollhouse_engine::SetOptionsParams {
        mask: vec![false, true, false, true],
        options: options(&[("low", &[1.0, 1.5, 2.0, 2.5]), ("high", &[3.0])]),
        kept: false,
    };
    run::<rollhouse_engine::SetOptions>(&mut engine, params).unwrap();
    let low = get(&mut engine, "low", 0, 4).unwrap();
    assert_eq!(low, [float(-0.05), float(1.5), float(-0.05), float(2.5)]);
    engine.reset(&Reset::all()).unwrap();
    let first = first_column(&mut engine);
    assert!((1.5..=3.0).contains(&first[1]) && (2.5..=3.0).contains(&first[3]), "{first:?}");
    let short = rollhouse_engine::SetOptionsParams { mask: vec![true], ..Default::default() };
    assert!(run::<rollhouse_engine::SetOptions>(&mut engine, short).is_err());
}

#[test]
fn an_option_that_is_set_counts_from_the_next_step_on() {
    let mut engine = engine("CartPole-v1", 3, 1);
    engine.reset(&Reset::seeded(1, 3)).unwrap();
    set(&mut engine, "sutton_barto_reward", 1, vec![AttributeValue::Scalar(OptionValue::Bool(true))], 1)
        .unwrap();
    act(&mut engine, &[0, 1, 0]);
    assert_eq!(engine.step().unwrap().rewards(), [1.0, 0.0, 1.0]);
    let flags = get(&mut engine, "sutton_barto_reward", 0, 3).unwrap();
    let flag = |value| AttributeValue::Scalar(OptionValue::Bool(value));
    assert_eq!(flags, [flag(false), flag(true), flag(false)]);
}

#[test]
fn options_that_are_refused_change_nothing_in_any_block() {
    let mut engine = engine("CartPole-v1", 130, 1);
    let refused = |engine: &mut Engine, given: LaneOptions| match engine
        .reset(&Reset { options: given, ..Reset::default() })
    {
        Err(StepError::Options(error)) => error,
        other => panic!("{other:?}"),
    };
    // The last block cannot be made: its lower bound is above the upper.
    let mut low = vec![0.0; 130];
    low[129] = 0.3;
    let error = refused(&mut engine, options(&[("low", &low)]));
    assert!(matches!(&error, OptionsError::Make { lane: 128, .. }), "{error}");
    let error = refused(&mut engine, options(&[("gravity", &[1.0])]));
    assert!(matches!(&error, OptionsError::Option { lane: 0, .. }), "{error}");
    let error = refused(&mut engine, options(&[("low", &[0.0, 0.0])]));
    assert_eq!(error, OptionsError::Length { name: "low".into(), given: 2, lanes: 130 });
    assert_eq!(get(&mut engine, "low", 0, 130).unwrap(), vec![float(-0.05); 130]);
}

#[test]
fn an_env_that_shows_no_state_takes_options_only_in_lanes_that_are_reset() {
    let entry = counter();
    let mut engine = Engine::new(&entry, EngineConfig::new(2), None).unwrap();
    let max = |value| LaneOptions::from([("max".to_owned(), vec![OptionValue::Int(value)])]);
    engine.set_options(0..2, max(9)).unwrap();
    engine.reset(&Reset::all()).unwrap();
    let refused = engine.set_options(0..1, max(4));
    let source = StateError::Unsupported;
    assert_eq!(refused, Err(StepError::Options(OptionsError::State { lane: 0, source })));
    engine.reset(&Reset { options: max(1), ..Reset::default() }).unwrap();
    act(&mut engine, &[1, 1]);
    assert_eq!(engine.step().unwrap().terminated(), [1, 1]);
}

#[test]
fn a_state_that_is_set_is_where_the_lane_goes_on() {
    let mut engine = engine("CartPole-v1", 66, 1);
    engine.reset(&Reset::seeded(3, 66)).unwrap();
    let states = get(&mut engine, "state", 0, 1).unwrap();
    set(&mut engine, "state", 64, states.clone(), 2).unwrap();
    assert_eq!(get(&mut engine, "state", 64, 2).unwrap(), [states[0].clone(), states[0].clone()]);
    act(&mut engine, &[1; 66]);
    let frame = engine.step().unwrap();
    let obs = frame.obs(0).as_f32().unwrap();
    assert_eq!(obs[..4], obs[64 * 4..65 * 4]);
    assert_eq!(obs[..4], obs[65 * 4..]);
    let short = vec![AttributeValue::Vector(vec![1.0])];
    let error = set(&mut engine, "state", 5, short, 1).unwrap_err();
    let source = StateError::Length { given: 1, wanted: 4 };
    assert_eq!(error, CommandError::Step(StepError::State { lane: 5, source }));
}

#[test]
fn attributes_are_refused_by_name_kind_and_lane() {
    let mut engine = engine("CartPole-v1", 4, 1);
    let error = get(&mut engine, "viscosity", 0, 1).unwrap_err();
    assert!(
        error.to_string().contains("`viscosity`; they have sutton_barto_reward, low, high, state"),
        "{error}"
    );
    assert_eq!(error.fault(), CommandFault::Caller);
    let error = get(&mut engine, "low", 3, u32::MAX).unwrap_err();
    assert!(matches!(error, CommandError::Step(StepError::NoSuchLane { lanes: 4, .. })), "{error}");
    for name in ["max_episode_steps", "generator", "gravity"] {
        let error = set(&mut engine, name, 0, vec![float(1.0)], 4).unwrap_err();
        assert_eq!(error, CommandError::ReadOnly { name: name.into() });
        assert_eq!(error.fault(), CommandFault::Unsupported);
    }
    assert_eq!(get(&mut engine, "gravity", 1, 2).unwrap(), [float(9.8), float(9.8)]);
    let error = set(&mut engine, "state", 0, vec![float(1.0)], 4).unwrap_err();
    assert!(matches!(error, CommandError::Value { .. }), "{error}");
    let error = set(&mut engine, "low", 0, vec![float(0.0); 3], 4).unwrap_err();
    assert!(matches!(error, CommandError::Length { given: 3, lanes: 4, .. }), "{error}");
    assert_eq!(
        get(&mut engine, "max_episode_steps", 0, 1).unwrap(),
        [AttributeValue::Scalar(OptionValue::Int(500))]
    );
}

#[test]
fn a_generator_stands_where_its_seed_and_what_was_drawn_put_it() {
    let mut engine = engine("CartPole-v1", 70, 1);
    engine.reset(&Reset::seeded((1 << 33) + 5, 70)).unwrap();
    // A reset of CartPole draws four words.
    let stands =
        |seed_low: f64, words: f64| AttributeValue::Vector(vec![seed_low, 2.0, words, 0.0, 0.0, 0.0]);
    assert_eq!(get(&mut engine, "generator", 64, 2).unwrap(), [stands(69.0, 4.0), stands(70.0, 4.0)]);
    let mask = (0..70).map(|lane| lane == 64).collect();
    engine.reset(&Reset { mask, ..Reset::default() }).unwrap();
    assert_eq!(get(&mut engine, "generator", 64, 2).unwrap(), [stands(69.0, 8.0), stands(70.0, 4.0)]);
}

#[test]
fn lanes_that_are_under_way_cannot_be_looked_at_and_stay_under_way() {
    let mut engine = engine("CartPole-v1", 4, 1);
    engine.reset(&Reset::seeded(1, 4)).unwrap();
    engine.send(&[2], ColumnRef::I64(&[1])).unwrap();
    let outstanding = CommandError::Step(StepError::LaneOutstanding { lane: 2 });
    assert_eq!(get(&mut engine, "state", 0, 1), Err(outstanding.clone()));
    assert_eq!(run::<Statistics>(&mut engine, Nothing {}).unwrap_err(), outstanding);
    assert_eq!(engine.recv(1, Duration::ZERO).unwrap().lanes, [2]);
    assert!(get(&mut engine, "state", 0, 1).is_ok());
}

#[test]
fn an_env_draws_itself_in_any_size_or_says_that_it_does_not() {
    let mut drawn = engine("CartPole-v1", 3, 1);
    drawn.reset(&Reset::seeded(1, 3)).unwrap();
    let params = RenderParams { lane: 2, ..RenderParams::default() };
    let image = run::<Render>(&mut drawn, params).unwrap();
    assert_eq!((image.height, image.width, image.pixels.len()), (400, 600, 600 * 400 * 3));
    let packed = run::<Render>(&mut drawn, RenderParams { packed: true, ..params }).unwrap();
    assert!(packed.pixels.len() < image.pixels.len() / 50, "{packed:?}");
    assert_eq!(packed.image().unwrap(), image.image().unwrap());
    let small = run::<Render>(&mut drawn, RenderParams { size: Some((64, 48)), ..params }).unwrap();
    assert_eq!((small.height, small.width, small.pixels.len()), (48, 64, 48 * 64 * 3));
    let error = run::<Render>(&mut drawn, RenderParams { size: Some((0, 48)), ..params }).unwrap_err();
    let source = RenderError::Size { width: 0, height: 48 };
    assert_eq!(error, CommandError::Step(StepError::Render { lane: 2, source }));
    assert_eq!(error.fault(), CommandFault::Caller);
    let error = run::<Render>(&mut drawn, RenderParams { lane: 3, ..params }).unwrap_err();
    assert!(matches!(error, CommandError::Step(StepError::NoSuchLane { .. })), "{error}");
    let mut plain = engine("test/Faulty-v0", 1, 1);
    let error = run::<Render>(&mut plain, RenderParams::default()).unwrap_err();
    assert_eq!(error, CommandError::Step(StepError::Render { lane: 0, source: RenderError::Unsupported }));
    assert_eq!(error.fault(), CommandFault::Unsupported);
}

#[test]
fn statistics_count_the_steps_of_all_threads() {
    let mut engine = engine("CartPole-v1", 600, 2);
    assert_eq!(engine.threads(), 2);
    engine.reset(&Reset::seeded(1, 600)).unwrap();
    for _ in 0..=2 * SAMPLE_EVERY {
        act(&mut engine, &[1; 600]);
        engine.step().unwrap();
    }
    let answer = run::<Statistics>(&mut engine, Nothing {}).unwrap();
    assert_eq!(answer.timings.batches, 2 * SAMPLE_EVERY + 1);
    // From the first on, of each of both threads.
    assert_eq!((answer.timings.batch.samples, answer.timings.step.samples), (3, 6));
    let stats = engine.stats().unwrap();
    assert_eq!((answer.steps, answer.restarts, answer.lost), (stats.steps, 0, 0));
    assert_eq!(answer.outcomes, BTreeMap::from([("terminated".to_owned(), stats.finished())]));
    assert_eq!(answer.returns.mean, stats.returns.mean());
    assert!(stats.finished() > 0);
}

#[test]
fn a_schema_says_what_the_lanes_are() {
    let config = EngineConfig {
        autoreset: AutoresetMode::SameStep,
        max_episode_steps: Some(0),
        ..EngineConfig::new(2)
    };
    let mut engine = Engine::new(&Registry::builtin().get("Echo-v0").unwrap(), config, None).unwrap();
    let schema = run::<Schema>(&mut engine, Nothing {}).unwrap();
    assert_eq!((schema.lanes, schema.autoreset.as_str(), schema.max_episode_steps), (2, "SameStep", None));
    let columns: Vec<_> =
        schema.columns.iter().map(|column| (column.path.as_str(), column.elements())).collect();
    assert_eq!(columns, [("", 12), ("", 100), ("steps", 1)]);
    assert!(schema.renders && !schema.recorded);
    assert_eq!(schema.methods, METHODS);
    let writable = schema.attributes.iter().map(|attribute| (attribute.name.as_str(), attribute.writable));
    assert_eq!(
        writable.collect::<Vec<_>>(),
        [("state", true), ("max_episode_steps", false), ("generator", false)]
    );
}

#[test]
fn lanes_that_are_to_be_recorded_begin_to_be_with_the_first_reset_and_keep_their_options() {
    let mut engine = engine("CartPole-v1", 2, 1);
    let mut begun = 0;
    let mut begin = |_: &mut Engine| {
        begun += 1;
        Ok(())
    };
    let mut lanes = CommandLanes::recorded_by(&mut engine, &mut begin);
    let params =
        SetParams { name: "low".into(), lanes: LaneRange { first: 0, count: 2 }, values: vec![float(0.0)] };
    let refused = SetAttributes::run(&mut lanes, params).unwrap_err();
    assert_eq!(refused, CommandError::Step(StepError::Options(OptionsError::Recorded)));
    assert_eq!(refused.fault(), CommandFault::Unsupported);
    ResetLanes::run(&mut lanes, ResetParams::default()).unwrap();
    ResetLanes::run(&mut lanes, ResetParams::default()).unwrap();
    assert_eq!(begun, 1);
}

type Change = dyn Fn(&mut Engine) -> Result<(), CommandError>;

#[test]
fn a_log_of_starts_and_actions_ends_when_lanes_are_changed_by_anything_else() {
    let high = |engine: &mut Engine| set(engine, "high", 0, vec![float(0.06)], 2);
    let still = |engine: &mut Engine| set(engine, "state", 0, vec![AttributeValue::Vector(vec![0.0; 4])], 2);
    let reset = |engine: &mut Engine| {
        let reset = ResetParams { options: options(&[("high", &[0.06])]), ..ResetParams::default() };
        run::<ResetLanes>(engine, reset).map(drop)
    };
    let changes: [&Change; 3] = [&high, &still, &reset];
    for change in changes {
        let mut engine = engine("CartPole-v1", 2, 1);
        engine.keep_log().unwrap();
        engine.reset(&Reset::seeded(1, 2)).unwrap();
        let mut log = Vec::new();
        engine.take_log(&mut log);
        assert_eq!(log.len(), 2, "both lanes begin an episode");
        get(&mut engine, "state", 0, 2).unwrap();
        assert!(engine.keeps_log(), "looking changes nothing");
        change(&mut engine).unwrap();
        assert!(!engine.keeps_log());
        engine.reset(&Reset::all()).unwrap();
        log.clear();
        engine.take_log(&mut log);
        assert_eq!(log, []);
    }
    let mut engine = engine("CartPole-v1", 2, 1);
    high(&mut engine).unwrap();
    assert_eq!(engine.keep_log(), Err(StepError::Begun));
}

/// The name of a method.
struct Name;

impl Dispatch for Name {
    type Output = &'static str;

    fn with<M: Method>(self) -> &'static str {
        M::NAME
    }
}

#[test]
fn every_method_is_found_by_its_name_and_no_two_share_one() {
    for &name in METHODS {
        assert_eq!(dispatch(name, Name), Some(name));
    }
    let mut sorted = METHODS.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), METHODS.len());
    assert_eq!(dispatch("close", Name), None);
    assert!(Options::default().get("low").is_none());
}

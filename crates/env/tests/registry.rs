//! Finding and making envs.
#![allow(clippy::unwrap_used, reason = "test code")]

use crate::driver;

use driver::{CLASSIC, options};
use rollhouse_core::limits::{BLOCK_LANES, MAX_ENV_ID_BYTES, MAX_OBS_COLUMNS};
use rollhouse_core::{EnvSource, LaneSet, OptionValue, Options};
use rollhouse_env::{
    BatchEnv, EnvEntry, InstructionSet, LaneBlock, MakeError, RegisterError, Registry, is_for_tests,
};

#[test]
fn an_unknown_id_is_answered_with_the_nearest_ones() {
    let registry = Registry::builtin();
    let error = registry.get("cartpole-v0").unwrap_err();
    assert_eq!(error.nearest[0], "CartPole-v1");
    assert!(error.to_string().starts_with("unknown env `cartpole-v0`; nearest are CartPole-v1"), "{error}");
    assert_eq!(registry.get("MountainCar").unwrap_err().nearest[0], "MountainCar-v0");
    assert_eq!(Registry::empty().get("x").unwrap_err().to_string(), "unknown env `x`");
}

#[test]
fn envs_for_tests_are_shown_and_suggested_only_to_who_asks_for_them() {
    let registry = Registry::builtin();
    assert!(registry.ids().iter().any(|id| is_for_tests(id)));
    assert!(!registry.shown_ids().iter().any(|id| is_for_tests(id)));
    // Nothing is spelt more like it than an env for tests.
    let nearest = registry.get("tst/Noise-v0").unwrap_err().nearest;
    assert!(!nearest.iter().any(|id| is_for_tests(id)), "{nearest:?}");
    assert_eq!(registry.get("test/Nose-v0").unwrap_err().nearest[0], "test/Noise-v0");
    assert!(registry.get("test/Noise-v0").is_ok());
}

#[test]
fn an_absurdly_long_id_is_not_echoed_in_full() {
    let error = Registry::builtin().get(&"a".repeat(1 << 20)).unwrap_err();
    assert_eq!(error.id.len(), MAX_ENV_ID_BYTES);
}

#[test]
fn ids_are_sorted_and_every_one_can_be_made_with_defaults() {
    let registry = Registry::builtin();
    let ids = registry.ids();
    assert!(ids.is_sorted());
    assert!(CLASSIC.iter().all(|id| ids.iter().any(|known| known == id)));
    for id in ids {
        let entry = registry.get(&id).unwrap();
        assert_eq!(entry.spec().id, id);
        let spec = entry.spec();
        let names = spec.observation_names.len();
        assert!(names == 0 || names == spec.observation_space.elements(), "{id}");
        let block = entry.make_block(&vec![options(&entry, &[]); BLOCK_LANES]).unwrap();
        assert_eq!(block.lanes(), BLOCK_LANES);
    }
}

/// A block of no use, of an env from outside.
struct Idle;

impl LaneBlock for Idle {
    fn lanes(&self) -> usize {
        1
    }
    fn seed(&mut self, _: usize, _: u64) {}
    fn position(&self, _: usize) -> rollhouse_core::Start {
        rollhouse_core::Start::default()
    }
    fn restore(&mut self, _: usize, _: rollhouse_core::Start) {}
    fn state_hash(&self, _: usize) -> u32 {
        0
    }
}

impl BatchEnv for Idle {
    fn reset(&mut self, _: LaneSet, _: &mut [rollhouse_core::ColumnMut<'_>]) -> LaneSet {
        LaneSet::NONE
    }
    fn step(&mut self, _: rollhouse_env::BlockStep<'_, '_>) -> rollhouse_env::Ended {
        rollhouse_env::Ended::default()
    }
}

fn idle(id: &str) -> EnvEntry {
    let mut spec = Registry::builtin().get("test/Noise-v0").unwrap().spec().clone();
    spec.id = id.into();
    EnvEntry::new(spec, |_, _| Ok(Box::new(Idle)))
}

#[test]
fn an_env_from_outside_is_found_and_a_taken_or_bad_id_is_refused() {
    let registry = Registry::builtin();
    registry.register(idle("outside/Idle-v0")).unwrap();
    let entry = registry.get("outside/Idle-v0").unwrap();
    assert_eq!(entry.make_block(&[Options::default()]).unwrap().lanes(), 1);
    let taken = registry.register(idle("outside/Idle-v0"));
    assert_eq!(taken, Err(RegisterError::Taken { id: "outside/Idle-v0".into() }));
    assert_eq!(registry.register(idle("")), Err(RegisterError::Length { bytes: 0 }));
    let long = registry.register(idle(&"x".repeat(MAX_ENV_ID_BYTES + 1)));
    assert_eq!(long, Err(RegisterError::Length { bytes: MAX_ENV_ID_BYTES + 1 }));
}

#[test]
fn an_id_that_does_not_fit_its_source_is_refused() {
    let registry = Registry::empty();
    let register = |id: &str, source: EnvSource| {
        let mut spec = Registry::builtin().get("test/Noise-v0").unwrap().spec().clone();
        (spec.id, spec.source) = (id.into(), source);
        registry.register(EnvEntry::new(spec, |_, _| Ok(Box::new(Idle))))
    };
    let (python, foreign) = (EnvSource::of_id("my_envs:Maze"), EnvSource::of_id("bullet://Maze"));
    for (id, source) in [
        ("my_envs:Maze", EnvSource::BuiltIn),
        ("my_envs:Maze", EnvSource::PlugIn),
        ("bullet://Maze", EnvSource::PlugIn),
        (":", EnvSource::BuiltIn),
    ] {
        assert_eq!(register(id, source), Err(RegisterError::Colon { id: id.into() }));
    }
    for (id, source) in
        [("Maze", &python), ("other:Maze", &python), ("my_envs:Maze", &foreign), ("Maze", &foreign)]
    {
        assert_eq!(register(id, source.clone()), Err(RegisterError::Kind { id: id.into() }));
    }
    assert!(registry.ids().is_empty());
    register("my_envs:Maze", python).unwrap();
    register("bullet://Maze", foreign).unwrap();
    register("Maze", EnvSource::PlugIn).unwrap();
}

#[test]
fn an_env_with_too_many_info_channels_is_refused() {
    let mut spec = Registry::builtin().get("test/Noise-v0").unwrap().spec().clone();
    spec.id = "outside/Wide-v0".into();
    spec.info_channels = vec![spec.info_channels[0].clone(); MAX_OBS_COLUMNS + 1];
    let registry = Registry::empty();
    let refused = registry.register(EnvEntry::new(spec, |_, _| Ok(Box::new(Idle))));
    assert_eq!(refused, Err(RegisterError::Columns { count: MAX_OBS_COLUMNS + 1 }));
    assert!(registry.ids().is_empty());
}

#[test]
fn a_block_has_1_to_64_lanes() {
    let entry = Registry::builtin().get("CartPole-v1").unwrap();
    for given in [0, BLOCK_LANES + 1] {
        let error = entry.make_block(&vec![options(&entry, &[]); given]).err();
        assert!(matches!(error, Some(MakeError::Lanes { given: g }) if g == given), "{error:?}");
    }
}

#[test]
fn options_no_env_can_work_with_are_refused_by_lane_and_name() {
    let refused = |id: &str, given: &[(&str, OptionValue)]| {
        let entry = Registry::builtin().get(id).unwrap();
        let error = entry.make_block(&[options(&entry, &[]), options(&entry, given)]).err();
        let Some(MakeError::Option { lane, name, .. }) = error else {
            panic!("{id} took {given:?}: {error:?}")
        };
        assert_eq!(lane, 1);
        name
    };
    let float = OptionValue::Float;
    for id in ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"] {
        assert_eq!(refused(id, &[("low", float(0.2)), ("high", float(0.1))]), "low");
        assert_eq!(refused(id, &[("low", float(-1e308)), ("high", float(1e308))]), "low");
    }
    assert_eq!(refused("Pendulum-v1", &[("x_init", float(-1.0))]), "x_init");
    assert_eq!(refused("Pendulum-v1", &[("y_init", float(1e308))]), "y_init");
    assert_eq!(refused("test/Faulty-v0", &[("panic_at", OptionValue::Int(-2))]), "panic_at");
}

#[test]
fn options_of_another_env_are_refused() {
    let registry = Registry::builtin();
    let foreign = options(&registry.get("Pendulum-v1").unwrap(), &[]);
    let error = registry.get("CartPole-v1").unwrap().make_block(&[foreign]).err();
    assert!(matches!(error, Some(MakeError::Missing { lane: 0, .. })), "{error:?}");
}

#[test]
fn lanes_of_one_block_may_have_different_options() {
    let entry = Registry::builtin().get("CartPole-v1").unwrap();
    let at = |value| {
        let bound = OptionValue::Float(value);
        options(&entry, &[("low", bound.clone()), ("high", bound)])
    };
    let mut driver = driver::Driver::with(entry.clone(), InstructionSet::best(), &[at(0.0), at(0.125)]);
    driver.seed_all(0);
    let _ = driver.reset(LaneSet::ALL);
    assert_eq!(driver.obs_row(0), [0.0; 4]);
    assert_eq!(driver.obs_row(1), [0.125; 4]);
}

#[test]
fn instruction_sets_are_read_by_name() {
    for set in InstructionSet::ALL {
        assert_eq!(set.name().parse(), Ok(set));
    }
    assert_eq!("portable".parse(), Ok(InstructionSet::Portable));
    let error = "mmx".parse::<InstructionSet>().unwrap_err();
    assert!(error.to_string().contains("mmx"), "{error}");
}

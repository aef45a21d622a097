//! Any step of an episode, in any order, is the step that a straight pass gives.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use rollhouse_core::{ColumnData, ColumnMut, LaneSet, RecordRule, Start};
use rollhouse_env::{BatchEnv, BlockStep, Ended, EnvEntry, ImageSize, LaneBlock, Registry, StateError};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{
    Episode, Playback, PlayedStep, Query, RecomputeError, Replays, SeekBounds, Seeker, SimulateError,
    Unrolled, Unroller,
};

use crate::stage::{Play, play};

const DIR: &str = "/data";

/// Every env of the registry: those that are built in.
static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);

fn recorded(one: &Play) -> Vec<Arc<Episode>> {
    let disk = FaultyDisk::new();
    play(Arc::new(disk.clone()), Path::new(DIR), one);
    let replays = Replays::open(Arc::new(disk), Path::new(DIR)).unwrap();
    let mut infos = replays.list(&Query::default()).unwrap();
    infos.sort_by_key(|info| std::cmp::Reverse(info.length));
    infos.iter().take(3).map(|info| Arc::new(replays.load(info).unwrap())).collect()
}

/// The three longest episodes of each env, as an action log and, for those that can be, as a trace.
static EPISODES: LazyLock<Vec<Arc<Episode>>> = LazyLock::new(|| {
    let mut episodes = Vec::new();
    for id in REGISTRY.ids() {
        for mode in [RecordRule::All, RecordRule::Trace] {
            let env = id.clone().leak();
            episodes.extend(recorded(&Play { record: mode, lanes: 5, ..Play::new(env, 450) }));
        }
    }
    episodes
});

/// Each step of it, one after another.
fn straight(registry: &Registry, episode: &Episode) -> Vec<PlayedStep> {
    let mut playback = Playback::new(registry, episode).unwrap();
    std::iter::from_fn(|| playback.next_step().unwrap()).collect()
}

fn bounds() -> impl Strategy<Value = SeekBounds> {
    let few = prop_oneof![Just(0), 1usize..6, Just(4096)];
    let bytes = prop_oneof![Just(0), 1usize..600, Just(1 << 20)];
    (few, bytes, 0u64..20, 0usize..9).prop_map(|(keyframes, bytes, spacing, buckets)| SeekBounds {
        keyframes,
        bytes,
        spacing,
        buckets,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn after_any_seeks_within_any_bounds_each_step_is_that_of_a_straight_pass(
        bounds in bounds(),
        moves in prop::collection::vec((any::<u16>(), any::<bool>()), 1..12),
    ) {
        for episode in EPISODES.iter() {
            let straight = straight(&REGISTRY, episode);
            let mut seeker = Seeker::new(&*REGISTRY, Arc::clone(episode), &bounds).unwrap();
            for &(place, passes) in &moves {
                let t = u64::from(place) % (episode.info.length + 1);
                if passes {
                    seeker.pass(t);
                }
                let mut found = seeker.seek(t).unwrap();
                let wanted = &straight[t as usize];
                if episode.steps.is_some() {
                    found.state = None;
                }
                // As text: floats of equal bits.
                prop_assert_eq!(format!("{:?}", found), format!("{:?}", wanted));
                prop_assert!(seeker.keyframes().0 <= bounds.keyframes);
                prop_assert!(seeker.divergence().is_none(), "{:?}", seeker.divergence());
                prop_assert!(seeker.passed() >= t);
            }
        }
    }
}

#[test]
fn the_timeline_of_a_whole_pass_ends_with_the_return() {
    for episode in EPISODES.iter() {
        let mut seeker = Seeker::new(&*REGISTRY, Arc::clone(episode), &SeekBounds::default()).unwrap();
        while !seeker.pass(7) {}
        assert!(seeker.has_passed_all());
        let last = seeker.timeline().buckets().last().map_or(0.0, |bucket| bucket.total_reward);
        assert_eq!(Some(last.to_bits()), episode.info.total_reward.map(f64::to_bits));
    }
}

#[test]
fn the_return_at_each_step_of_a_long_full_recording_is_that_of_a_straight_pass() {
    let many = Play { lanes: 32, max_steps: 2_000, ..Play::new("test/Noise-v0", 2_001) };
    let episode = recorded(&many).into_iter().max_by_key(|episode| episode.info.length).unwrap();
    // Beyond the first point at which a seeker keeps the running return.
    assert!(episode.info.length > 300 && episode.steps.is_some(), "{} steps", episode.info.length);
    let straight = straight(&REGISTRY, &episode);
    // Only what was recorded is there: the env is another one.
    let mut foreign = Episode::clone(&episode);
    let mut run = foreign.info.run.as_ref().clone();
    run.spec.id = "somebody/Else-v0".into();
    foreign.info.run = Arc::new(run);
    let mut seeker = Seeker::new(&*REGISTRY, Arc::new(foreign), &SeekBounds::default()).unwrap();
    let length = episode.info.length;
    for t in (0..=length).rev().step_by(7).chain([256, 257, 255, length, 0, 1]) {
        let found = seeker.seek(t).unwrap();
        let wanted = &straight[t as usize];
        assert_eq!(
            (found.t, found.total_reward.to_bits(), found.reward.map(f64::to_bits), found.obs),
            (wanted.t, wanted.total_reward.to_bits(), wanted.reward.map(f64::to_bits), wanted.obs.clone())
        );
    }
}

#[test]
fn a_step_past_the_end_is_refused_and_any_other_can_be_come_to_then() {
    let episode = &EPISODES[0];
    let length = episode.info.length;
    let mut seeker = Seeker::new(&*REGISTRY, Arc::clone(episode), &SeekBounds::default()).unwrap();
    let error = seeker.seek(length + 1).unwrap_err();
    assert!(matches!(error, SimulateError::NoSuchStep { .. }), "{error}");
    assert_eq!(seeker.seek(length).unwrap().t, length);
}

#[test]
fn other_actions_than_were_taken_show_as_a_divergence_once_they_are_passed() {
    let lie = Play { lie_from: Some(70), ..Play::new("MountainCar-v0", 400) };
    let episode = recorded(&lie).remove(0);
    let mut seeker = Seeker::new(&*REGISTRY, episode, &SeekBounds::default()).unwrap();
    seeker.seek(100).unwrap();
    assert_eq!(seeker.divergence(), None);
    seeker.seek(130).unwrap();
    let found = seeker.divergence().unwrap();
    assert_eq!((found.from, found.to, found.field.as_str()), (65, 128, "state"));
}

#[test]
fn an_env_with_other_dynamics_is_refused_unless_its_steps_are_recorded() {
    let changed = Registry::empty();
    let original = REGISTRY.get("MountainCar-v0").unwrap();
    let mut spec = original.spec().clone();
    spec.dynamics_hash ^= 1;
    changed.register(EnvEntry::new(spec, move |set, options| original.make_block_on(set, options))).unwrap();
    for (mode, is_refused) in [(RecordRule::All, true), (RecordRule::Trace, false)] {
        let episode = recorded(&Play { record: mode, ..Play::new("MountainCar-v0", 100) }).remove(0);
        match Seeker::new(&changed, Arc::clone(&episode), &SeekBounds::default()) {
            Err(RecomputeError::Simulate(SimulateError::Dynamics { recorded, now })) => {
                assert!(is_refused);
                assert_eq!(recorded ^ 1, now);
                assert!(matches!(Playback::new(&changed, &episode), Err(SimulateError::Dynamics { .. })));
            }
            Err(error) => panic!("{error}"),
            Ok(mut seeker) => {
                assert!(!is_refused);
                assert!(matches!(
                    seeker.refused(),
                    Some(RecomputeError::Simulate(SimulateError::Dynamics { .. }))
                ));
                assert_eq!(seeker.seek(50).unwrap().obs, straight(&REGISTRY, &episode)[50].obs);
                assert!(seeker.render(ImageSize::new(8, 8).unwrap()).is_err());
            }
        }
    }
}

/// MountainCar with a defect.
struct Defective {
    env: Box<dyn BatchEnv>,
    defect: Defect,
    /// Steps since the last reset.
    steps: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    /// It does not show its state.
    Closed,
    /// It says that it came into a state and did not.
    Lies,
    /// It panics in that step.
    Panics(u64),
}

impl LaneBlock for Defective {
    fn lanes(&self) -> usize {
        self.env.lanes()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.env.seed(lane, seed);
    }

    fn position(&self, lane: usize) -> Start {
        self.env.position(lane)
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.env.restore(lane, start);
    }

    fn state_hash(&self, lane: usize) -> u32 {
        self.env.state_hash(lane)
    }

    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        if self.defect == Defect::Closed { Err(StateError::Unsupported) } else { self.env.state(lane) }
    }

    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        match self.defect {
            Defect::Closed => Err(StateError::Unsupported),
            Defect::Lies => Ok(()),
            Defect::Panics(_) => self.env.set_state(lane, state),
        }
    }
}

impl BatchEnv for Defective {
    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
        self.steps = 0;
        self.env.reset(lanes, obs)
    }

    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        self.steps += 1;
        assert_ne!(self.defect, Defect::Panics(self.steps));
        self.env.step(step)
    }
}

fn defective(defect: Defect) -> Registry {
    let (registry, original) = (Registry::empty(), REGISTRY.get("MountainCar-v0").unwrap());
    let entry = EnvEntry::new(original.spec().clone(), move |set, options| {
        Ok(Box::new(Defective { env: original.make_block_on(set, options)?, defect, steps: 0 }))
    });
    registry.register(entry).unwrap();
    registry
}

#[test]
fn an_env_that_does_not_come_into_its_state_again_is_recomputed_from_the_first_step_on() {
    let episode = recorded(&Play::new("MountainCar-v0", 300)).remove(0);
    let straight = straight(&REGISTRY, &episode);
    for defect in [Defect::Closed, Defect::Lies] {
        let registry = defective(defect);
        let mut seeker = Seeker::new(&registry, Arc::clone(&episode), &SeekBounds::default()).unwrap();
        for t in [180, 20, 150, 17, 0, 33] {
            let found = seeker.seek(t).unwrap();
            assert_eq!(found.obs, straight[t as usize].obs, "{defect:?}");
            assert_eq!(found.total_reward, straight[t as usize].total_reward);
        }
        assert_eq!(seeker.keyframes().0, 0, "{defect:?}");
    }
}

#[test]
fn steps_before_a_panic_can_be_come_to_and_those_after_it_are_refused() {
    let episode = recorded(&Play::new("MountainCar-v0", 300)).remove(0);
    let straight = straight(&REGISTRY, &episode);
    let registry = defective(Defect::Panics(90));
    let mut seeker = Seeker::new(&registry, episode, &SeekBounds::default()).unwrap();
    for t in [30, 120, 89, 90, 5] {
        match seeker.seek(t) {
            Ok(found) => assert_eq!(found.obs, straight[t as usize].obs),
            Err(error) => {
                assert!(t >= 90, "{error}");
                assert!(matches!(error, SimulateError::Panicked { steps: 89 }), "{error:?}");
            }
        }
    }
    assert!(seeker.has_passed_all());
    assert_eq!(seeker.divergence().unwrap().field, "panic");
}

/// Symptom: what a recording has as an action reached the env, and a plug-in as an index, although it was none of the space's.
/// Cause: only engines looked at actions. Fix: whoever plays recorded actions again looks at them as well.
#[test]
fn a_recorded_action_that_is_none_reaches_no_env_and_is_reported_where_it_stands() {
    let mut episode = (*recorded(&Play::new("MountainCar-v0", 300)).remove(0)).clone();
    let ColumnData::I64(actions) = &mut episode.actions else { panic!("discrete") };
    actions[40] = 9;
    let says = "the recorded action 9 after 40 steps is not an integer from 0 to 2";
    assert_eq!(episode.recompute(&REGISTRY).unwrap_err().to_string(), says);
    let mut table = Unrolled::default();
    let columns = episode.info.run.spec.obs_columns();
    Unroller::new(&REGISTRY).unroll(&columns, &[episode.clone()], &mut table);
    assert_eq!(table.failed.iter().map(|(_, error)| error.to_string()).collect::<Vec<_>>(), [says]);
    let mut seeker = Seeker::new(&*REGISTRY, Arc::new(episode), &SeekBounds::default()).unwrap();
    seeker.seek(40).unwrap();
    assert_eq!(seeker.seek(41).unwrap_err().to_string(), says);
    let found = seeker.divergence().unwrap();
    assert_eq!((found.field.as_str(), found.from, found.to), ("action", 41, 41));
}

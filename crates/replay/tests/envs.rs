//! Recordings of real envs: verified, gone through, and told apart from changed ones.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{ColumnData, Determinism, Outcome, RecordRule, SeedSchedule};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{
    Divergence, EpisodeInfo, Playback, Query, RecomputeError, RecordKind, Replays, SimulateError, Value,
    Verification,
};

use crate::stage::{Play, play};

const DIR: &str = "/data";

fn recorded(plays: &[Play]) -> Replays {
    let disk = FaultyDisk::new();
    for play_ in plays {
        play(Arc::new(disk.clone()), Path::new(DIR), play_);
    }
    Replays::open(Arc::new(disk), Path::new(DIR)).unwrap()
}

fn verify_all(replays: &Replays, registry: &Registry) -> Vec<Verification> {
    let mut found = Vec::new();
    replays.verify_all(registry, |verification| found.push(verification)).unwrap();
    found
}

fn list(replays: &Replays) -> Vec<EpisodeInfo> {
    replays.list(&Query::default()).unwrap()
}

const BUILTIN: [&str; 7] = [
    "CartPole-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Acrobot-v1",
    "GridBreakout-v0",
    "Echo-v0",
];

#[test]
fn every_recording_of_every_env_in_every_mode_verifies() {
    let registry = Registry::builtin();
    for env in BUILTIN {
        for (mode, per_episode) in
            [(RecordRule::All, true), (RecordRule::All, false), (RecordRule::Trace, false)]
        {
            let one = Play { record: mode, per_episode, ..Play::new(env, 900) };
            let replays = recorded(&[one]);
            let episodes = list(&replays);
            let found = verify_all(&replays, &registry);
            assert_eq!(found.len(), episodes.len(), "{env}");
            assert_eq!(replays.count().unwrap(), episodes.len() as u64);
            assert!(!found.is_empty());
            for verification in &found {
                assert!(verification.ok, "{env} {mode:?}: {verification:?}");
            }
            let steps: u64 = found.iter().map(|v| v.steps).sum();
            assert_eq!(steps, episodes.iter().map(|info| info.length).sum::<u64>());
            let mut by_name = Vec::new();
            replays.verify(&episodes[..3], &registry, |v| by_name.push(v)).unwrap();
            assert!(by_name.iter().all(|v| v.ok), "{by_name:?}");
        }
    }
}

#[test]
fn an_env_that_is_not_deterministic_is_recorded_in_full_and_checked_for_completeness() {
    let replays = recorded(&[Play { lanes: 6, ..Play::new("test/Noise-v0", 300) }]);
    let episodes = list(&replays);
    assert!(!episodes.is_empty());
    for info in &episodes {
        assert_eq!(info.recorded(), RecordKind::Full);
        let episode = replays.load(info).unwrap();
        let steps = episode.steps.as_ref().unwrap();
        assert_eq!(steps.rewards.len() as u64, info.length);
        assert_eq!(steps.infos.len(), info.run.spec.info_channels.len());
    }
    for verification in verify_all(&replays, &Registry::builtin()) {
        assert!(verification.ok, "{verification:?}");
        assert!(verification.note.unwrap().contains("not deterministic"));
    }
}

#[test]
fn changed_actions_are_found_in_the_window_in_which_they_first_matter() {
    let registry = Registry::builtin();
    // The recorder is shown other actions than the env is given, from step 70 of every episode on.
    let lie = Play { lie_from: Some(70), ..Play::new("MountainCar-v0", 400) };
    let found = verify_all(&recorded(&[lie]), &registry);
    assert!(!found.is_empty());
    for verification in &found {
        let Some(Divergence { from, to, field, .. }) = &verification.first_divergence else {
            panic!("{verification:?}");
        };
        assert!(!verification.ok);
        assert_eq!((*from, *to, field.as_str()), (65, 128, "state"), "{verification:?}");
    }
}

/// Verifying a folder goes through chunks as they were recorded, verifying by name reads each episode on its own.
#[test]
fn verifying_all_says_of_each_episode_what_verifying_it_by_name_says() {
    let registry = Registry::builtin();
    let sample = RecordRule::Sample { probability: 0.6 };
    let plays = [
        Play::new("CartPole-v1", 1_000),
        Play { per_episode: false, lanes: 37, ..Play::new("CartPole-v1", 1_200) },
        Play { record: sample, ..Play::new("Acrobot-v1", 900) },
        Play { lie_from: Some(20), ..Play::new("CartPole-v1", 800) },
        Play { lie_from: Some(100), max_steps: 150, ..Play::new("MountainCar-v0", 800) },
    ];
    for (one, damaged) in plays.iter().flat_map(|one| [(one, false), (one, true)]) {
        let disk = FaultyDisk::new();
        play(Arc::new(disk.clone()), Path::new(DIR), one);
        if damaged {
            let path =
                disk.paths().into_iter().find(|path| path.extension().is_some_and(|e| e == "seg")).unwrap();
            let mut bytes = disk.read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle..middle + 100].fill(0xAA);
            disk.write(&path, bytes);
        }
        let replays = Replays::open(Arc::new(disk), Path::new(DIR)).unwrap();
        let mut by_name = Vec::new();
        replays.verify(&list(&replays), &registry, |v| by_name.push(v)).unwrap();
        let mut all = verify_all(&replays, &registry);
        for found in [&mut all, &mut by_name] {
            found.sort_by_key(|v| (v.name.lane, v.name.number));
        }
        assert_eq!(all, by_name, "{one:?}, damaged {damaged}");
        assert!(all.iter().any(|v| v.ok), "{one:?}");
        assert_eq!(all.iter().any(|v| !v.ok), one.lie_from.is_some(), "{one:?}, damaged {damaged}");
        assert_eq!(replays.incomplete().unwrap() > 0, damaged, "{one:?}");
    }
}

#[test]
fn a_trace_names_the_exact_step_and_element_that_differ() {
    let lie = Play { lie_from: Some(70), record: RecordRule::Trace, ..Play::new("MountainCar-v0", 400) };
    let found = verify_all(&recorded(&[lie]), &Registry::builtin());
    for verification in &found {
        let divergence = verification.first_divergence.as_ref().unwrap();
        assert_eq!(divergence.from, divergence.to);
        // Lying about step 70 shows in the observation after it; a lie may by chance be the truth.
        assert!((70..80).contains(&divergence.from), "{divergence:?}");
        assert!(["position", "velocity"].contains(&divergence.field.as_str()), "{divergence:?}");
        assert!(
            matches!((&divergence.recorded, &divergence.replayed), (Value::Number(a), Value::Number(b)) if a != b)
        );
    }
}

#[test]
fn changed_dynamics_are_a_finding_of_their_own() {
    let replays = recorded(&[Play::new("CartPole-v1", 100)]);
    let changed = Registry::empty();
    let original = Registry::builtin().get("CartPole-v1").unwrap();
    let mut spec = original.spec().clone();
    spec.dynamics_hash ^= 1;
    changed.register(EnvEntry::new(spec, move |set, options| original.make_block_on(set, options))).unwrap();
    for verification in verify_all(&replays, &changed) {
        assert!(!verification.ok);
        assert_eq!(verification.first_divergence.unwrap().field, "dynamics");
    }
}

#[test]
fn an_env_this_program_does_not_have_is_said_and_no_divergence() {
    let replays = recorded(&[Play::new("CartPole-v1", 60)]);
    for verification in verify_all(&replays, &Registry::empty()) {
        assert!(!verification.ok);
        assert_eq!(verification.first_divergence, None);
        assert!(verification.note.unwrap().contains("CartPole-v1"));
    }
}

#[test]
fn any_step_of_an_action_log_is_what_a_trace_of_the_same_run_has() {
    let registry = Registry::builtin();
    for env in BUILTIN {
        let log = recorded(&[Play { per_episode: true, ..Play::new(env, 300) }]);
        let trace = recorded(&[Play { per_episode: true, record: RecordRule::Trace, ..Play::new(env, 300) }]);
        let (logs, traces) = (list(&log), list(&trace));
        assert_eq!(logs.len(), traces.len());
        for (a, b) in logs.iter().zip(&traces).step_by(13) {
            let (a, b) = (log.load(a).unwrap(), trace.load(b).unwrap());
            assert_eq!(a.actions, b.actions);
            let (mut simulated, mut read) =
                (Playback::new(&registry, &a).unwrap(), Playback::new(&registry, &b).unwrap());
            let mut steps = 0;
            while let Some(step) = simulated.next_step().unwrap() {
                let mut other = read.next_step().unwrap().unwrap();
                other.state = step.state.clone();
                assert_eq!(step, other, "{env}");
                steps += 1;
            }
            assert_eq!(read.next_step().unwrap(), None);
            assert_eq!(steps, a.info.length + 1, "{env}");
            let middle = a.info.length / 2;
            let found = a.seek(&registry, middle).unwrap();
            assert_eq!(found.obs, b.seek(&registry, middle).unwrap().obs);
            assert_eq!(found.t, middle);
            assert!(a.seek(&registry, a.info.length + 1).is_err());
        }
    }
}

#[test]
fn recomputing_an_action_log_gives_what_a_trace_of_the_same_run_has() {
    let registry = Registry::builtin();
    for env in BUILTIN {
        let log = recorded(&[Play { per_episode: true, ..Play::new(env, 300) }]);
        let trace = recorded(&[Play { per_episode: true, record: RecordRule::Trace, ..Play::new(env, 300) }]);
        for (a, b) in list(&log).iter().zip(&list(&trace)).step_by(13) {
            let recomputed = log.load(a).unwrap().recompute(&registry).unwrap();
            assert_eq!(Some(recomputed), trace.load(b).unwrap().steps, "{env}");
        }
    }
}

#[test]
fn recomputing_refuses_what_is_not_the_recorded_episode() {
    let registry = Registry::builtin();
    let lie = recorded(&[Play { lie_from: Some(70), ..Play::new("MountainCar-v0", 400) }]);
    let error = lie.load(&list(&lie)[0]).unwrap().recompute(&registry).unwrap_err();
    assert!(matches!(error, RecomputeError::Differs { field: "state", step: 128, .. }), "{error}");
    let changed = Registry::empty();
    let original = registry.get("MountainCar-v0").unwrap();
    let mut spec = original.spec().clone();
    spec.dynamics_hash ^= 1;
    changed.register(EnvEntry::new(spec, move |set, options| original.make_block_on(set, options))).unwrap();
    let error = lie.load(&list(&lie)[0]).unwrap().recompute(&changed).unwrap_err();
    assert!(matches!(error, RecomputeError::Simulate(SimulateError::Dynamics { .. })), "{error}");
}

#[test]
fn a_plain_seed_gives_the_first_observation_by_reset_alone() {
    let replays = recorded(&[Play { per_episode: true, ..Play::new("CartPole-v1", 100) }]);
    let registry = Registry::builtin();
    let entry = registry.get("CartPole-v1").unwrap();
    for info in list(&replays).iter().step_by(17) {
        let seed = info.seed().expect("per-episode seeds are plain");
        let mut env = entry.make_block(&[info.options()]).unwrap();
        let mut obs = ColumnData::zeros(rollhouse_core::DType::F32, 4);
        env.seed(0, seed);
        assert!(env.reset(rollhouse_core::LaneSet::one(0), &mut [obs.as_mut()]).is_empty());
        let first = replays.load(info).unwrap().seek(&registry, 0).unwrap();
        assert_eq!(first.obs, [obs]);
    }
}

#[test]
fn queries_filter_sort_and_limit_as_a_sorted_list_of_everything_would() {
    let replays =
        recorded(&[Play::new("CartPole-v1", 600), Play { lanes: 10, ..Play::new("Pendulum-v1", 450) }]);
    let everything = list(&replays);
    assert!(everything.iter().any(|info| info.env() == "Pendulum-v1"));
    for sort in ["return", "-return", "length", "-length", "started", "-started", "name", "-name"] {
        for (env, min_return, outcome) in [
            (None, None, None),
            (Some("CartPole-v1"), Some(30.0), None),
            (Some("Pendulum-v1"), None, Some(Outcome::TRUNCATED)),
        ] {
            let query = Query {
                env: env.map(str::to_owned),
                min_return,
                outcome,
                all_outcomes: true,
                sort: sort.parse().unwrap(),
                ..Query::default()
            };
            let all = replays.list(&query).unwrap();
            let expected = everything.iter().filter(|info| {
                env.is_none_or(|env| info.env() == env)
                    && min_return.is_none_or(|least| info.total_reward.is_some_and(|r| r >= least))
                    && outcome.is_none_or(|outcome| outcome.word() == info.outcome.word())
            });
            assert_eq!(all.len(), expected.count(), "{sort}");
            let key = |info: &EpisodeInfo| match sort.trim_start_matches('-') {
                "return" => info.total_reward.unwrap_or(f64::NEG_INFINITY),
                "length" => info.length as f64,
                "started" => info.started_ms as f64,
                _ => 0.0,
            };
            let ordered = all
                .is_sorted_by(|a, b| if sort.starts_with('-') { key(a) >= key(b) } else { key(a) <= key(b) });
            assert!(ordered, "{sort}");
            let limited = replays.list(&Query { limit: Some(7), ..query }).unwrap();
            assert_eq!(limited[..], all[..limited.len()], "{sort}");
            assert_eq!(limited.len(), all.len().min(7));
        }
    }
}

#[test]
fn the_stage_plays_deterministic_envs_under_both_schedules() {
    // Guards the tests above: what they verify is recorded as an action log, under the schedule they name.
    let replays = recorded(&[Play { per_episode: false, ..Play::new("CartPole-v1", 50) }]);
    for info in list(&replays) {
        assert_eq!(info.run.spec.determinism, Determinism::Deterministic);
        assert_eq!(info.run.schedule(), SeedSchedule::Continue);
        assert_eq!(info.recorded(), RecordKind::ActionLog);
    }
}

//! The examples are rolled out, recorded, verified and gone through again like built-in envs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::stage;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{
    AutoresetMode, ColumnMut, ColumnRef, Distribution, GameResult, LaneSet, OptionValue, Options,
};
use rollhouse_engine::{CallFault, CallRefused, Engine, EngineConfig, Reset};
use rollhouse_env::{BatchEnv, BlockStep, EnvEntry, ImageSize, MakeError, Registry};
use rollhouse_replay::{SeekBounds, Seeker, Verification};
use stage::{Folder, Recording, compiled, example, record, record_with, registry, replays, step};

/// The examples in Rust and the env of each.
const IN_RUST: [(&str, &str); 2] =
    [("corridor", "example/Corridor-v0"), ("corridors", "example/Corridors-v0")];

/// Records an env of a plug-in, and verifies and seeks every episode with the plug-in loaded, and with it not.
fn plays_and_verifies(path: &Path, id: &str) {
    let registry = registry(path);
    let recording = record(&registry.get(id).unwrap(), 400);
    assert!(recording.episodes.len() > 70, "{id}: {} episodes", recording.episodes.len());
    verifies_and_seeks(&registry, id, &recording);
}

fn verifies_and_seeks(registry: &Registry, id: &str, recording: &Recording) {
    let replays = replays(&recording.disk);
    let mut verified = 0;
    let mut check = |found: Verification| {
        assert!(found.ok, "{id}: {found:?}");
        assert!(found.note.is_none(), "{id}: {found:?}");
        verified += 1;
    };
    replays.verify_all(registry, &mut check).unwrap();
    assert_eq!(verified, recording.episodes.len());
    let info = recording.episodes.iter().max_by_key(|info| info.length).unwrap();
    let episode = Arc::new(replays.load(info).unwrap());
    let mut seeker = Seeker::new(registry, Arc::clone(&episode), &SeekBounds::default()).unwrap();
    for at in [info.length, 0, info.length / 2] {
        seeker.seek(at).unwrap();
    }
    let mut notes = Vec::new();
    replays.verify_all(&Registry::builtin(), |found| notes.extend(found.note)).unwrap();
    assert!(notes.iter().all(|note| note.starts_with("unknown env")), "{notes:?}");
    assert_eq!(notes.len(), recording.episodes.len());
}

#[test]
fn each_example_has_less_than_150_lines() {
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).unwrap() {
        let path = file.unwrap().path();
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 150, "{}: {lines} lines", path.display());
    }
}

#[test]
fn the_example_in_c_plays_and_its_recordings_verify() {
    let folder = Folder::new();
    let Some(path) = compiled(&folder, "examples/cartpole.c", &[]) else { return };
    plays_and_verifies(&path, "c/CartPole-v0");
}

#[test]
fn the_example_in_cpp_plays_and_its_recordings_verify() {
    let folder = Folder::new();
    let Some(path) = compiled(&folder, "examples/gridworld.cpp", &[]) else { return };
    plays_and_verifies(&path, "cpp/Gridworld-v0");
}

#[test]
fn the_examples_in_rust_play_and_their_recordings_verify() {
    for (name, id) in IN_RUST {
        plays_and_verifies(&example(name), id);
    }
}

#[test]
fn methods_of_a_plugin_in_rust_are_recorded_with_their_steps_and_repeated() {
    let (id, path) = ("example/Corridor-v0", example("corridor"));
    let registry = registry(&path);
    let entry = registry.get(id).unwrap();
    let mut done = 0;
    let recording = record_with(&entry, 400, |engine, number| {
        for lane in (0..70).filter(|lane| (lane + number as usize).is_multiple_of(9)) {
            let (method, payload) = if number % 3 == 0 { ("carry", "3") } else { ("lure", "null") };
            match engine.call(lane, method, payload) {
                Ok(cell) => assert_eq!(engine.call(lane, "where", "null").unwrap(), cell),
                Err(CallRefused::Lane { source: CallFault::NoEpisode, .. }) => continue,
                Err(other) => panic!("{other}"),
            }
            done += 1;
        }
        let refused = engine.call(0, "where", "null").and_then(|_| engine.call(0, "fly", "1")).unwrap_err();
        assert_eq!(refused.to_string(), "example/Corridor-v0 has no method `fly`; it has where, carry, lure");
    });
    assert!(done > 1000, "{done} calls");
    verifies_and_seeks(&registry, id, &recording);
    let calls =
        recording.episodes.iter().map(|info| replays(&recording.disk).load(info).unwrap().calls.len());
    assert_eq!(calls.sum::<usize>(), done);
    let mut engine = Engine::new(&entry, EngineConfig::new(1), None).unwrap();
    engine.reset(&Reset::seeded(1, 1)).unwrap();
    let refused = engine.call(0, "carry", "10").unwrap_err().to_string();
    assert!(refused.contains("`10` is no cell before the end"), "{refused}");
}

#[test]
fn a_plugin_says_how_episodes_ended_and_recordings_keep_it() {
    for (name, id) in IN_RUST {
        let recording = record(&registry(&example(name)).get(id).unwrap(), 400);
        for info in &recording.episodes {
            let wanted = match info.outcome.flags() {
                _ if !info.outcome.is_finished() => GameResult::None,
                (true, _) => GameResult::Win,
                (false, _) => GameResult::Lose,
            };
            assert_eq!(info.result, wanted, "{info:?}");
            assert_eq!(info.score.is_some(), info.outcome.is_finished(), "{info:?}");
            assert_eq!(info.score.is_some_and(|score| score >= 1.0), wanted == GameResult::Win, "{info:?}");
        }
        assert!(recording.episodes.iter().any(|info| info.result == GameResult::Win));
    }
}

#[test]
fn an_env_of_many_lanes_is_the_one_of_one_lane() {
    let [one, many] = IN_RUST.map(|(name, id)| {
        let entry = registry(&example(name)).get(id).unwrap();
        let mut engine = Engine::new(&entry, EngineConfig::new(9), None).unwrap();
        engine.reset(&Reset::seeded(5, 9)).unwrap();
        let space = entry.spec().action_space.clone();
        let rows = (0..200).map(|number| {
            step(&mut engine, &space, number);
            engine.frame().unwrap().obs(0).as_f32().unwrap().to_vec()
        });
        rows.collect::<Vec<_>>()
    });
    assert_eq!(one, many);
}

#[test]
fn the_way_through_a_plugin_changes_no_number_in_any_mode() {
    let plugged = registry(&example("builtin"));
    for (own, id) in [
        ("CartPole-v1", "plugin/CartPole-v1"),
        ("Pendulum-v1", "plugin/Pendulum-v1"),
        ("test/Orders-v0", "plugin/Orders-v0"),
    ] {
        let [space, through] = [own, id].map(|id| plugged.get(id).unwrap().spec().clone());
        assert_eq!(space.observation_space, through.observation_space);
        assert_eq!(space.action_space, through.action_space);
        for mode in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
            let engine = |id: &str| {
                let config = EngineConfig { autoreset: mode, ..EngineConfig::new(131) };
                let mut engine = Engine::new(&plugged.get(id).unwrap(), config, None).unwrap();
                engine.reset(&Reset::seeded(3, 131)).unwrap();
                engine
            };
            let (mut a, mut b) = (engine(own), engine(id));
            let space = plugged.get(own).unwrap().spec().action_space.clone();
            for number in 0..300 {
                step(&mut a, &space, number);
                step(&mut b, &space, number);
                let (a, b) = (a.frame().unwrap(), b.frame().unwrap());
                assert_eq!(a.obs_columns(), b.obs_columns(), "{id}, step {number}");
                assert_eq!(a.rewards(), b.rewards(), "{id}, step {number}");
            }
        }
    }
}

/// Moves, their number, the code points of a word, and their number: of each what is refused, and why.
#[test]
fn an_action_that_is_no_text_or_sequence_is_refused_before_an_env_of_a_plugin_gets_it() {
    let plugged = registry(&example("builtin"));
    for id in ["test/Orders-v0", "plugin/Orders-v0"] {
        let mut engine = Engine::new(&plugged.get(id).unwrap(), EngineConfig::new(2), None).unwrap();
        engine.reset(&Reset::seeded(3, 2)).unwrap();
        let good = [1, 3, 0, 2, 97, 223, 9731, 0, 0, 3];
        let mut act = |row: [i64; 10]| {
            let ColumnMut::I64(actions) = engine.actions().unwrap() else { panic!("integers") };
            actions.copy_from_slice(&[good, row].concat());
            let done = engine.step().map(drop).map_err(|error| error.to_string());
            done.map(|()| engine.stats().unwrap().steps)
        };
        assert_eq!(act(good), Ok(2));
        for (element, value, wanted) in [
            (0, 4, "an integer from 0 to 3"),
            (2, 1, "0 behind the last item"),
            (3, 4, "a number of items from 0 to 3"),
            (3, -1, "a number of items from 0 to 3"),
            (5, 98, "the code point of a character of the text's"),
            (9, 6, "a number of items from 0 to 5"),
        ] {
            let mut row = good;
            row[element] = value;
            let refused = act(row).unwrap_err();
            let said = format!("action {value} in element {element} of lane 1 is not {wanted}");
            assert!(refused.contains(&said), "{id}: {refused}");
        }
        assert_eq!(act(good), Ok(4), "nothing moved meanwhile");
    }
}

#[test]
fn states_options_and_pictures_pass_through_a_plugin() {
    let plugged = registry(&example("builtin"));
    let (own, through) = (plugged.get("CartPole-v1").unwrap(), plugged.get("plugin/CartPole-v1").unwrap());
    assert_eq!((own.render_size(), own.render_fps()), (through.render_size(), through.render_fps()));
    let given = [("low".to_owned(), OptionValue::Float(0.01)), ("high".to_owned(), OptionValue::Float(0.02))];
    let options = vec![Options::check(&own.spec().options, &given).unwrap(); 3];
    let size = ImageSize::new(90, 60).unwrap();
    let shown = [own, through].map(|entry| {
        let mut block = entry.make_block(&options).unwrap();
        let mut obs = [0.0; 12];
        (0..3).for_each(|lane| block.seed(lane, lane as u64));
        let lanes = LaneSet::first(3);
        let lost = block.reset(lanes, &mut [ColumnMut::F32(&mut obs)]);
        assert!(lost.is_empty());
        assert!(obs.iter().all(|value| (0.01..=0.02).contains(value)), "{obs:?}");
        block.set_state(1, &[1.0, 2.0, 0.1, 3.0]).unwrap();
        assert!(block.set_state(1, &[1.0]).is_err());
        let states: Vec<_> = (0..3).map(|lane| block.state(lane).unwrap()).collect();
        (obs, states, block.position(2), block.render(1, size).unwrap(), block.text(1, 60).unwrap())
    });
    assert_eq!(shown[0], shown[1]);
}

#[test]
fn a_panic_of_an_env_in_rust_loses_its_lane_alone() {
    let registry = registry(&example("corridor"));
    let entry = registry.get("example/Corridor-v0").unwrap();
    let options = |length| {
        Options::check(&entry.spec().options, &[("length".to_owned(), OptionValue::Int(length))]).unwrap()
    };
    let mut block = entry.make_block(&[options(10), options(13), options(10)]).unwrap();
    let mut obs = [0.0; 3];
    assert!(block.reset(LaneSet::first(3), &mut [ColumnMut::F32(&mut obs)]).is_empty());
    let ended = block.step(BlockStep {
        skip: LaneSet::NONE,
        reset: LaneSet::NONE,
        actions: ColumnRef::I64(&[1; 3]),
        obs: &mut [ColumnMut::F32(&mut obs)],
        infos: &mut [],
        rewards: &mut [0.0; 3],
    });
    let lost = LaneSet::one(1);
    assert_eq!(ended.lost, lost);
    assert_eq!(block.revive(LaneSet::ALL), lost);
}

/// Options of a Corridor.
fn corridor_options(entry: &EnvEntry, given: &[(&str, OptionValue)]) -> Options {
    let given: Vec<_> = given.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    Options::check(&entry.spec().options, &given).unwrap()
}

/// Goes right in each lane until all are at the end; returns the cells that each lane showed, and its last reward.
fn walked(block: &mut dyn BatchEnv) -> Vec<(Vec<f32>, f64)> {
    let lanes = block.lanes();
    let (mut obs, mut rewards) = (vec![0.0; lanes], vec![0.0; lanes]);
    (0..lanes).for_each(|lane| block.seed(lane, 5));
    assert!(block.reset(LaneSet::first(lanes), &mut [ColumnMut::F32(&mut obs)]).is_empty());
    let mut seen: Vec<_> = obs.iter().map(|&cell| (vec![cell], 0.0)).collect();
    let mut over = LaneSet::NONE;
    while over != LaneSet::first(lanes) {
        let ended = block.step(BlockStep {
            skip: over,
            reset: LaneSet::NONE,
            actions: ColumnRef::I64(&vec![1; lanes]),
            obs: &mut [ColumnMut::F32(&mut obs)],
            infos: &mut [],
            rewards: &mut rewards,
        });
        for lane in LaneSet::first(lanes) & !over {
            seen[lane].0.push(obs[lane]);
            seen[lane].1 = rewards[lane];
        }
        over |= ended.terminated;
    }
    seen
}

#[test]
fn texts_and_lists_reach_an_env_of_a_plugin() {
    let registry = registry(&example("corridor"));
    let entry = registry.get("example/Corridor-v0").unwrap();
    let defaults = corridor_options(&entry, &[]);
    assert_eq!((defaults.text("pay"), defaults.list("ice")), (Some("steps"), Some(&[][..])));
    let given = corridor_options(
        &entry,
        &[("pay", OptionValue::Text("end".to_owned())), ("ice", OptionValue::List(vec![4.0, 7.0]))],
    );
    let mut block = entry.make_block(&[defaults, given]).unwrap();
    let seen = walked(&mut *block);
    assert_eq!((seen[0].1, seen[1].1), (-1.0, 1.0));
    assert!(seen[1].0.len() > seen[0].0.len(), "ice takes time: {seen:?}");
    let bad = corridor_options(&entry, &[("pay", OptionValue::Text("nothing".to_owned()))]);
    let error = entry.make_block(&[bad]).map(drop).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("\"nothing\""), "{source}");
}

#[test]
fn a_lane_of_a_plugin_takes_other_options_for_its_next_episode() {
    let registry = registry(&example("corridor"));
    let entry = registry.get("example/Corridor-v0").unwrap();
    let pays = OptionValue::Drawn(Distribution::Choice(
        ["steps", "end"].map(|text| OptionValue::Text(text.to_owned())).into(),
    ));
    let drawn = corridor_options(&entry, &[("pay", pays)]);
    entry.check_drawn(&drawn).unwrap();
    let mut block = entry.make_block(&[corridor_options(&entry, &[])]).unwrap();
    for (pay, last) in [("end", 1.0), ("steps", -1.0), ("end", 1.0)] {
        let options = corridor_options(&entry, &[("pay", OptionValue::Text(pay.to_owned()))]);
        block.set_options(0, &options).unwrap();
        assert_eq!(walked(&mut *block)[0].1, last);
    }
    let nothing = OptionValue::Drawn(Distribution::Choice(vec![OptionValue::Text("nothing".to_owned())]));
    assert!(entry.check_drawn(&corridor_options(&entry, &[("pay", nothing)])).is_err());
}

#[test]
fn options_of_a_plugin_without_set_options_cannot_be_drawn() {
    let folder = Folder::new();
    let Some(path) = compiled(&folder, "examples/cartpole.c", &[]) else { return };
    let entry = registry(&path).get("c/CartPole-v0").unwrap();
    let range = OptionValue::Drawn(Distribution::Uniform([0.01, 0.02]));
    let error = entry.check_drawn(&corridor_options(&entry, &[("bound", range)])).unwrap_err();
    assert!(matches!(&error, MakeError::NotDrawn { name } if name == "bound"), "{error}");
}

#[test]
fn a_plugin_says_why_it_refuses_an_option() {
    let folder = Folder::new();
    let Some(path) = compiled(&folder, "examples/cartpole.c", &[]) else { return };
    let entry = registry(&path).get("c/CartPole-v0").unwrap();
    let given = [("bound".to_owned(), OptionValue::Float(-1.0))];
    let options = Options::check(&entry.spec().options, &given).unwrap();
    let error = entry.make_block(&[options]).map(drop).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "`bound` must not be negative");
}

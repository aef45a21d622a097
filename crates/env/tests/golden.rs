//! Agreement with Gymnasium and NumPy, against data that `golden/generate.py` wrote with them.
#![allow(clippy::unwrap_used, reason = "test code")]

use crate::driver;

use std::path::{Path, PathBuf};

use driver::{Actions, CLASSIC, Driver};
use rollhouse_core::{LaneSet, OptionValue, Space};
use rollhouse_env::{Generator, InstructionSet, Registry, sin_cos};

/// One step from the same state: relative to max(1, |value|).
const STEP_TOLERANCE: f64 = 1e-14;

/// Observations of whole seeded episodes.
const EPISODE_TOLERANCE: f64 = 1e-5;

fn golden(name: &str) -> Vec<Vec<String>> {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    // Data made anew elsewhere is held against the same tolerances.
    let path = std::env::var_os("ROLLHOUSE_GOLDEN").map_or(committed, PathBuf::from).join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(' ').filter(|token| !token.is_empty()).map(String::from).collect()).collect()
}

/// The records of one kind, which there must be some of.
fn records(name: &str, kind: &str) -> Vec<Vec<String>> {
    let found: Vec<_> = golden(name).into_iter().filter(|r| r[0] == kind).map(|r| r[1..].to_vec()).collect();
    assert!(!found.is_empty(), "no {kind} records in {name}");
    found
}

fn hex(token: &str) -> u64 {
    u64::from_str_radix(token, 16).unwrap()
}

fn double(token: &str) -> f64 {
    assert_eq!(token.len(), 16, "{token} is not a double");
    f64::from_bits(hex(token))
}

fn single(token: &str) -> f32 {
    assert_eq!(token.len(), 8, "{token} is not a single");
    f32::from_bits(hex(token) as u32)
}

fn doubles(tokens: &[String]) -> Vec<f64> {
    tokens.iter().map(|token| double(token)).collect()
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn close(ours: f64, theirs: f64, tolerance: f64) -> bool {
    (ours - theirs).abs() <= tolerance * theirs.abs().max(1.0)
}

#[test]
fn the_generator_yields_numpys_words_for_every_seed() {
    for record in records("generator.txt", "words") {
        let mut generator = Generator::seeded(record[0].parse().unwrap());
        for (index, word) in record[1..].iter().enumerate() {
            assert_eq!(generator.next_u64(), hex(word), "word {index} of seed {}", record[0]);
        }
        assert_eq!(generator.position().words, record.len() as u64 - 1);
    }
}

#[test]
fn draws_of_32_bits_take_the_lower_half_first_and_keep_the_upper_as_numpy_does() {
    for record in records("generator.txt", "mixed") {
        let mut generator = Generator::seeded(record[0].parse().unwrap());
        for token in &record[1..] {
            let (width, word) = token.split_once(':').unwrap();
            let drawn = match width {
                "32" => u64::from(generator.next_u32()),
                _ => generator.next_u64(),
            };
            assert_eq!(drawn, hex(word), "seed {}, {token}", record[0]);
        }
    }
}

#[test]
fn uniform_draws_are_numpys_bit_by_bit() {
    for record in records("generator.txt", "uniform") {
        let mut generator = Generator::seeded(record[0].parse().unwrap());
        let (low, high) = (double(&record[1]), double(&record[2]));
        for value in doubles(&record[3..]) {
            assert_eq!(generator.uniform(low, high).to_bits(), value.to_bits(), "seed {}", record[0]);
        }
    }
}

#[test]
fn advancing_skips_words_as_numpys_advance_does() {
    for record in records("generator.txt", "advance") {
        let mut generator = Generator::seeded(record[0].parse().unwrap());
        generator.advance(record[1].parse().unwrap());
        assert_eq!(generator.next_u64(), hex(&record[2]), "seed {} after {}", record[0], record[1]);
    }
}

#[test]
fn sine_and_cosine_err_by_at_most_one_unit_in_the_last_place() {
    let ulp = |value: f64| (value.abs().next_up() - value.abs()).max(f64::MIN_POSITIVE);
    let mut worst: f64 = 0.0;
    for record in records("trig.txt", "at") {
        let [x, sin, sin_rest, cos, cos_rest] = doubles(&record)[..] else { panic!("malformed") };
        let (our_sin, our_cos) = sin_cos(x);
        for (ours, value, rest) in [(our_sin, sin, sin_rest), (our_cos, cos, cos_rest)] {
            let error = ((ours - value) - rest).abs();
            // 2^-100 is the bound's absolute part: it shows next to multiples of pi / 2 alone.
            assert!(error <= ulp(value) + 2f64.powi(-100), "x {x:e}: {ours:e}, should be {value:e}");
            worst = worst.max(error / (ulp(value) + 2f64.powi(-100)));
        }
    }
    println!("largest error {worst:.3} ulp");
}

#[test]
fn spaces_and_time_limits_are_gymnasiums() {
    let registry = Registry::builtin();
    for id in CLASSIC {
        let entry = registry.get(id).unwrap();
        let limit = &records(&format!("{id}.txt"), "limit")[0][0];
        assert_eq!(entry.spec().max_episode_steps, Some(limit.parse().unwrap()), "{id}");
        for record in records(&format!("{id}.txt"), "space") {
            let space = match record[0].as_str() {
                "obs" => entry.spec().observation_space.plain().unwrap(),
                _ => &entry.spec().action_space,
            };
            let theirs = if record[1] == "discrete" {
                Space::discrete(record[2].parse().unwrap())
            } else {
                let middle = record.iter().position(|token| token == "/").unwrap();
                let singles = |tokens: &[String]| tokens.iter().map(|t| single(t)).collect::<Vec<_>>();
                Space::f32_box(&singles(&record[1..middle]), &singles(&record[middle + 1..]))
            };
            assert_eq!(*space, theirs, "{} space of {id}", record[0]);
        }
    }
}

#[test]
fn seeded_resets_and_the_ones_after_them_give_gymnasiums_states_bit_by_bit() {
    for id in CLASSIC {
        for record in records(&format!("{id}.txt"), "starts") {
            let mut driver = Driver::new(id, 1, InstructionSet::best(), &[]);
            driver.block.seed(0, record[0].parse().unwrap());
            for (index, state) in record[1..].split(|token| token == "/").enumerate() {
                let _ = driver.reset(LaneSet::one(0));
                let ours = driver.block.state(0).unwrap();
                assert_eq!(bits(&ours), bits(&doubles(state)), "{id}, seed {}, reset {index}", record[0]);
            }
        }
    }
}

#[test]
fn bounds_of_the_first_state_act_as_gymnasiums_reset_options() {
    for id in CLASSIC {
        for record in records(&format!("{id}.txt"), "options-start") {
            let colon = record.iter().position(|token| token == ":").unwrap();
            let mut driver = driver_with(id, &record[1..colon]);
            driver.block.seed(0, record[0].parse().unwrap());
            let _ = driver.reset(LaneSet::one(0));
            let ours = driver.block.state(0).unwrap();
            assert_eq!(bits(&ours), bits(&doubles(&record[colon + 1..])), "{id} {:?}", &record[1..colon]);
        }
    }
}

/// A lane made with `name=value` tokens.
fn driver_with(id: &str, tokens: &[String]) -> Driver {
    let entry = Registry::builtin().get(id).unwrap();
    let given = tokens.iter().map(|token| {
        let (name, value) = token.split_once('=').unwrap();
        let schema = entry.spec().options.iter().find(|option| option.name == name).unwrap();
        let value = match schema.default {
            OptionValue::Bool(_) => OptionValue::Bool(double(value) != 0.0),
            _ => OptionValue::Float(double(value)),
        };
        (name, value)
    });
    Driver::new(id, 1, InstructionSet::best(), &given.collect::<Vec<_>>())
}

fn action(id: &str, token: &str) -> Actions {
    match id {
        "MountainCarContinuous-v0" | "Pendulum-v1" => Actions::Floats(vec![single(token)]),
        _ => Actions::Integers(vec![token.parse().unwrap()]),
    }
}

/// Whether two elements of a state agree; those of Acrobot that are angles do so modulo a turn.
fn states_agree(id: &str, index: usize, ours: f64, theirs: f64) -> bool {
    let turn = std::f64::consts::TAU;
    close(ours, theirs, STEP_TOLERANCE)
        || id == "Acrobot-v1"
            && index < 2
            && (close(ours + turn, theirs, STEP_TOLERANCE) || close(ours - turn, theirs, STEP_TOLERANCE))
}

#[test]
fn one_step_from_any_state_is_gymnasiums_to_1e_14() {
    for id in CLASSIC {
        let mut worst: f64 = 0.0;
        let mut terminations = [0; 2];
        for (number, record) in records(&format!("{id}.txt"), "step").into_iter().enumerate() {
            let colon = record.iter().position(|token| token == ":").unwrap();
            let mut driver = driver_with(id, &record[..colon]);
            let (states, columns) = (driver.block.state(0).unwrap().len(), driver.obs.len());
            let rest = &record[colon + 1..];
            let (state, rest) = (doubles(&rest[..states]), &rest[states..]);
            let (action, rest) = (action(id, &rest[0]), &rest[1..]);
            let (next, rest) = (doubles(&rest[..states]), &rest[states..]);
            let (obs, rest) = (&rest[..columns], &rest[columns..]);
            let (reward, terminated) = (double(&rest[0]), rest[1] == "1");

            driver.block.set_state(0, &state).unwrap();
            let ended = driver.step(LaneSet::NONE, LaneSet::NONE, &action);
            let ours = driver.block.state(0).unwrap();
            for (index, (&ours, &theirs)) in ours.iter().zip(&next).enumerate() {
                assert!(
                    states_agree(id, index, ours, theirs),
                    "{id} step {number} from {state:?} with {action:?}, element {index}: {ours:?}, Gymnasium {theirs:?}"
                );
                worst = worst.max(((ours - theirs).abs() / theirs.abs().max(1.0)).min(1.0));
            }
            for (&ours, theirs) in driver.singles().iter().zip(obs) {
                let theirs = single(theirs);
                assert!(close(ours.into(), theirs.into(), 1e-6), "{id} step {number} obs: {ours} {theirs}");
            }
            let our_reward = driver.rewards[0];
            assert!(close(our_reward, reward, STEP_TOLERANCE), "{id} step {number}: {our_reward} {reward}");
            assert_eq!(ended.terminated.has(0), terminated, "{id} step {number} from {state:?}");
            terminations[usize::from(terminated)] += 1;
        }
        println!("{id}: largest difference of a state {worst:e}; {terminations:?} steps went on, ended");
        assert!(
            terminations[0] > 0 && (terminations[1] > 0 || id == "Pendulum-v1"),
            "{id}: one side untested"
        );
    }
}

#[test]
fn whole_seeded_episodes_run_and_end_as_gymnasiums_across_autoreset() {
    for id in CLASSIC {
        let mut driver = Driver::new(id, 1, InstructionSet::best(), &[]);
        let limit = driver.entry.spec().max_episode_steps.unwrap();
        let (mut reset, mut steps, mut episodes) = (true, 0, 0);
        let mut worst: f64 = 0.0;
        for record in golden(&format!("{id}.txt")) {
            match record[0].as_str() {
                "stream" => {
                    driver.block.seed(0, record[1].parse().unwrap());
                    reset = true;
                }
                "start" => {
                    // Streams of Acrobot are cut short before its dynamics amplify the last bit.
                    assert!(reset || id == "Acrobot-v1", "{id}: our episode {episodes} goes on");
                    let _ = driver.step(LaneSet::NONE, LaneSet::one(0), &driver.actions(0, 0));
                    let ours = driver.block.state(0).unwrap();
                    assert_eq!(bits(&ours), bits(&doubles(&record[1..])), "{id} episode {episodes}");
                    (reset, steps) = (false, 0);
                    episodes += 1;
                }
                "move" => {
                    assert!(!reset, "{id}: our episode {episodes} ended at step {steps}");
                    let ended = driver.step(LaneSet::NONE, LaneSet::NONE, &action(id, &record[1]));
                    steps += 1;
                    let columns = driver.obs.len();
                    let theirs = record[2..2 + columns].iter().map(|token| single(token));
                    for (&ours, theirs) in driver.singles().iter().zip(theirs) {
                        let difference = f64::from((ours - theirs).abs());
                        assert!(difference <= EPISODE_TOLERANCE, "{id} step {steps}: {ours} {theirs}");
                        worst = worst.max(difference);
                    }
                    let rest = &record[2 + columns..];
                    assert!(
                        close(driver.rewards[0], double(&rest[0]), EPISODE_TOLERANCE),
                        "{id} step {steps}"
                    );
                    let flags = [ended.terminated.has(0), steps == limit];
                    assert_eq!(flags, [rest[1] == "1", rest[2] == "1"], "{id} step {steps}");
                    reset = flags[0] || flags[1];
                }
                _ => {}
            }
        }
        assert!(episodes > 1, "{id} has no stream");
        println!("{id}: {episodes} episodes, largest difference of an observation {worst:e}");
    }
}

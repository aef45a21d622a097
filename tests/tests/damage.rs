//! Damaged segments and damaged catalogues.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rollhouse_tests::{Chance, Folder, json_lines, run, segments, soak, succeed};
use serde_json::Value;

fn names(lines: &[Value]) -> BTreeSet<String> {
    lines.iter().filter_map(|line| line["id"].as_str().map(str::to_owned)).collect()
}

/// Three runs, each with a segment of its own.
fn recorded() -> Folder {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 64 --episodes 900 --seed 1");
    succeed(data.path(), "rollout --env Pendulum-v1 --lanes 3 --episodes 5 --seed 2");
    succeed(data.path(), "rollout --env Acrobot-v1 --lanes 5 --episodes 5 --seed 3 --record trace");
    data
}

#[test]
fn every_flipped_bit_is_noticed_and_the_other_episodes_stay_readable() {
    let data = recorded();
    let all = names(&json_lines(data.path(), "replay ls --json"));
    let files = segments(data.path());
    let mut chance = Chance::new(200);
    for flip in 0..200 * soak() {
        let file = &files[chance.below(files.len() as u64) as usize];
        let intact = fs::read(file).unwrap();
        let mut damaged = intact.clone();
        let bit = chance.below(8 * intact.len() as u64);
        damaged[(bit / 8) as usize] ^= 1 << (bit % 8);
        fs::write(file, &damaged).unwrap();
        let place = format!("flip {flip}: bit {bit} of {}", file.display());
        let verified = run(data.path(), "replay verify --all --json");
        let stats = &json_lines(data.path(), "replay stats --json")[0];
        let damaged = !stats["damage"].as_array().unwrap().is_empty();
        // Behind the last mark of the newest segment, where a crash leaves half a record, no reader can tell
        // one from the other.
        let torn = stats["torn_bytes"].as_u64().unwrap() > 0;
        assert!(damaged || torn, "{place}: not noticed");
        assert_eq!(verified.code, Some(if damaged { 3 } else { 0 }), "{place}: {}", verified.stderr);
        let lines: Vec<Value> =
            verified.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // No episode that was never recorded, and what is called intact is.
        assert!(names(&lines).is_subset(&all), "{place}");
        assert!(lines.iter().any(|line| line["ok"] == true), "{place}: one bit lost everything");
        fs::write(file, &intact).unwrap();
    }
    assert_eq!(run(data.path(), "replay verify --all").code, Some(0));
}

#[test]
fn repair_lists_damage_and_keeps_it() {
    let data = recorded();
    let file = &segments(data.path())[0];
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(file, &bytes).unwrap();
    let repaired = run(data.path(), "replay repair");
    assert_eq!(repaired.code, Some(3), "{}", repaired.stderr);
    assert!(repaired.stdout.contains("damaged stretch"), "{}", repaired.stdout);
    assert_eq!(fs::read(file).unwrap(), bytes, "a damaged segment must stay as it is");
}

/// Everything in the folder that is not a segment or the lock.
fn catalogue(data: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| !path.ends_with("segments") && !path.ends_with("writer.lock")).collect()
}

fn scramble(path: &Path, chance: &mut Chance) {
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| scramble(&entry.unwrap().path(), chance));
        return;
    }
    let mut bytes = fs::read(path).unwrap();
    for byte in &mut bytes {
        if chance.below(3) == 0 {
            *byte = chance.below(256) as u8;
        }
    }
    fs::write(path, bytes).unwrap();
}

fn remove(path: &Path) {
    if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}

#[test]
fn the_catalogue_may_be_scrambled_deleted_or_impossible_to_open() {
    let data = Folder::new();
    // Each segment has an entry and rows beside it.
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 64 --steps 30000000 --seed 4");
    let listing = "replay ls --json --sort -return --limit 50";
    let wanted = succeed(data.path(), listing);
    let parts = catalogue(data.path());
    assert!(!parts.is_empty(), "the recorder leaves a catalogue");
    let mut chance = Chance::new(7);
    for _ in 0..10 * soak() {
        parts.iter().filter(|path| path.exists()).for_each(|path| scramble(path, &mut chance));
        assert_eq!(succeed(data.path(), listing), wanted, "scrambled");
        succeed(data.path(), "replay repair");
        assert_eq!(succeed(data.path(), listing), wanted, "repaired");
    }
    parts.iter().filter(|path| path.exists()).for_each(|path| remove(path));
    assert_eq!(succeed(data.path(), listing), wanted, "deleted");
    // A file where a folder should be and the other way round.
    for path in &parts {
        if path.extension().is_none() {
            fs::write(path, b"not a folder").unwrap()
        } else {
            fs::create_dir(path).unwrap()
        }
    }
    assert_eq!(succeed(data.path(), listing), wanted, "impossible to open");
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 64 --episodes 100 --seed 5");
    assert_eq!(run(data.path(), "replay verify --all").code, Some(0));
}

//! `rollhouse replay export` as a user runs it.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rollhouse_tests::{Folder, Running, json_lines, run, segment_bytes, succeed};

/// A folder with 12 episodes of CartPole and 2 of Pendulum.
fn recorded() -> Folder {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 4 --episodes 12 --seed 1");
    succeed(data.path(), "rollout --env Pendulum-v1 --lanes 2 --episodes 2 --seed 1");
    data
}

fn ids(data: &Path, line: &str) -> Vec<String> {
    let listed = json_lines(data, line);
    listed.iter().map(|episode| episode["id"].as_str().unwrap().to_owned()).collect()
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn files(ids: &[String], extension: &str) -> BTreeSet<String> {
    ids.iter().map(|id| format!("{id}.{extension}")).collect()
}

#[test]
fn the_best_episodes_become_a_file_each_and_the_same_line_again_writes_only_what_is_missing() {
    let data = recorded();
    let into = data.path().join("best");
    let line = format!("replay export --env CartPole-v1 --best 3 --into {}", into.display());
    assert!(succeed(data.path(), &line).starts_with("3 episodes written into "));
    let best = ids(data.path(), "replay ls --env CartPole-v1 --sort -return --limit 3 --json");
    assert_eq!(names(&into), files(&best, "jsonl"));
    for id in &best {
        let written = fs::read_to_string(into.join(format!("{id}.jsonl"))).unwrap();
        assert_eq!(written, succeed(data.path(), &format!("replay export {id}")));
    }
    fs::remove_file(into.join(format!("{}.jsonl", best[1]))).unwrap();
    fs::write(into.join(format!("{}.jsonl.part", best[1])), "left by a process that was killed").unwrap();
    let again = succeed(data.path(), &line);
    assert!(again.starts_with("1 episode written") && again.contains("2 files there already"), "{again}");
    assert_eq!(names(&into), files(&best, "jsonl"));
    // Whatever is there counts as whole: it is not read.
    let all = succeed(data.path(), &format!("replay export --into {}", into.display()));
    assert!(all.starts_with("11 episodes written") && all.contains("3 files there already"), "{all}");
    assert_eq!(names(&into), files(&ids(data.path(), "replay ls --json"), "jsonl"));
}

#[test]
fn names_are_taken_together_and_filters_choose_as_a_listing_does() {
    let data = recorded();
    let all = ids(data.path(), "replay ls --json");
    let into = data.path().join("some");
    let line = format!("replay export {} {} --into {}", all[3], all[13], into.display());
    assert!(succeed(data.path(), &line).starts_with("2 episodes written"));
    assert_eq!(names(&into), files(&[all[3].clone(), all[13].clone()], "jsonl"));
    for filter in ["--outcome truncated", "--min-return 20 --sort -length --limit 2", "--env Pendulum-v1"] {
        let into = data.path().join(filter.replace(' ', ""));
        succeed(data.path(), &format!("replay export {filter} --into {}", into.display()));
        assert_eq!(names(&into), files(&ids(data.path(), &format!("replay ls {filter} --json")), "jsonl"));
    }
    let one = succeed(data.path(), "replay export --env Pendulum-v1 --best 1");
    assert_eq!(one.lines().count(), 201);
}

#[test]
fn several_episodes_for_one_file_none_at_all_and_names_beside_filters_are_refused() {
    let data = recorded();
    let all = ids(data.path(), "replay ls --json");
    let (one, two, into) = (&all[0], &all[1], data.path().join("into"));
    for (line, wanted) in [
        ("replay export".to_owned(), "several episodes are chosen"),
        (format!("replay export {one} {two}"), "2 episodes are named"),
        ("replay export --env Acrobot-v1".to_owned(), "no episode is chosen"),
        (format!("replay export --env Acrobot-v1 --into {}", into.display()), "no episode is chosen"),
        (format!("replay export {one} --best 2"), "cannot be used with"),
        (format!("replay export --into {} -o x.jsonl", into.display()), "cannot be used with"),
        (format!("replay export --best 2 --sort name --into {}", into.display()), "cannot be used with"),
    ] {
        let done = run(data.path(), &line);
        assert_eq!(done.code, Some(2), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(wanted), "{line}: {}", done.stderr);
        assert_eq!(done.stdout, "", "{line}");
    }
}

#[test]
fn ctrl_c_leaves_whole_files_only_and_the_same_line_goes_on() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env Echo-v0 --lanes 64 --episodes 640 --seed 1");
    let into = data.path().join("into");
    let line = format!("replay export --into {}", into.display());
    let mut running = Running::start(data.path(), &line);
    while !into.exists() || names(&into).len() < 2 && running.ended().is_none() {
        std::thread::yield_now();
    }
    running.signal("INT");
    let done = running.wait();
    assert_eq!(done.code, Some(130), "{}", done.stderr);
    let (written, all) = (names(&into), ids(data.path(), "replay ls --json"));
    assert!(written.len() < 640 && written.is_subset(&files(&all, "jsonl")), "{written:?}");
    for name in &written {
        let id = name.strip_suffix(".jsonl").unwrap();
        let text = fs::read_to_string(into.join(name)).unwrap();
        assert_eq!(text, succeed(data.path(), &format!("replay export {id}")));
    }
    let rest = succeed(data.path(), &line);
    assert!(rest.starts_with(&format!("{} episode", 640 - written.len())), "{rest}");
    assert_eq!(names(&into), files(&all, "jsonl"));
}

#[test]
fn an_old_file_stays_until_the_new_one_is_whole_and_what_is_no_file_is_written_to() {
    let data = recorded();
    let id = &ids(data.path(), "replay ls --json")[0];
    let path = data.path().join("episode.jsonl");
    fs::write(&path, "old").unwrap();
    succeed(data.path(), &format!("replay export {id} -o {}", path.display()));
    assert_eq!(fs::read_to_string(&path).unwrap(), succeed(data.path(), &format!("replay export {id}")));
    succeed(data.path(), &format!("replay export {id} -o /dev/null"));
    let done = run(data.path(), &format!("replay export {id} -o /nowhere/at/all"));
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("/nowhere/at/all"), "{}", done.stderr);
}

#[test]
fn pictures_go_to_files_that_say_what_they_are() {
    let data = recorded();
    let id = &ids(data.path(), "replay ls --json")[0];
    let into = data.path().join("pictures");
    let line = |form: &str| format!("replay export {id} --size 60x40 --into {} {form}", into.display());
    for (form, name, begins) in [
        ("--format gif --every 4", format!("{id}.gif"), &b"GIF89a"[..]),
        ("--format html", format!("{id}.html"), b"<!doctype html>"),
        ("--format png", format!("{id}.png"), b"\x89PNG"),
        ("--format png --at 2", format!("{id}.2.png"), b"\x89PNG"),
        ("--format mcap --every 20", format!("{id}.mcap"), b"\x89MCAP0\r\n"),
    ] {
        succeed(data.path(), &line(form));
        assert!(fs::read(into.join(name)).unwrap().starts_with(begins), "{form}");
    }
    let beyond = run(data.path(), &line("--format png --at 5000"));
    assert_eq!(beyond.code, Some(1), "{}", beyond.stderr);
    assert!(beyond.stderr.contains("step 5000 was asked for"), "{}", beyond.stderr);
    assert_eq!(names(&into).len(), 5);
    for bad in ["--size 0x3", "--size 9", "--every 0", "--fps 51"] {
        assert_eq!(run(data.path(), &line(bad)).code, Some(2), "{bad}");
    }
}

#[test]
fn episodes_that_went_out_as_files_come_into_another_folder_as_they_were() {
    let data = recorded();
    let (into, other) = (data.path().join("files"), Folder::new());
    succeed(data.path(), &format!("replay export --format rhr --into {}", into.display()));
    let all = ids(data.path(), "replay ls --json");
    assert_eq!(names(&into), files(&all, "rhr"));
    let paths: Vec<String> =
        all.iter().map(|id| into.join(format!("{id}.rhr")).display().to_string()).collect();
    let (first, rest) = (&paths[0], paths[1..].join(" "));
    let taken = succeed(other.path(), &format!("replay import {first}"));
    assert!(taken.contains(&all[0]) && taken.contains("1 episode of 1 file taken into"), "{taken}");
    assert_eq!(json_lines(other.path(), &format!("replay import {rest} --json")).len(), all.len() - 1);
    let facts = |data: &Path| {
        let mut listed = json_lines(data, "replay ls --json");
        // What an episode takes on the disk is another.
        listed.iter_mut().for_each(|one| drop(one.as_object_mut().unwrap().remove("bytes")));
        listed
    };
    assert_eq!(facts(other.path()), facts(data.path()));
    succeed(other.path(), "replay verify --all");
    succeed(other.path(), &format!("replay show {}", all[2]));
    for id in [&all[0], &all[13]] {
        let export = format!("replay export {id}");
        assert_eq!(succeed(other.path(), &export), succeed(data.path(), &export));
        let again =
            format!("replay export {id} --format rhr -o {}", other.path().join("again.rhr").display());
        succeed(other.path(), &again);
        succeed(Folder::new().path(), &format!("replay import {}", other.path().join("again.rhr").display()));
    }
    // The folder can be recorded into as before.
    succeed(other.path(), "rollout --env CartPole-v1 --lanes 2 --episodes 4");
    assert_eq!(json_lines(other.path(), "replay ls --json").len(), all.len() + 4);
    assert_eq!(run(other.path(), "replay stats").code, Some(0));
}

#[test]
fn what_is_there_damaged_or_no_recording_is_left_out_and_said() {
    let data = recorded();
    let other = Folder::new();
    let into = data.path().join("files");
    succeed(data.path(), &format!("replay export --best 2 --format rhr --into {}", into.display()));
    let paths: Vec<_> = names(&into).iter().map(|name| into.join(name)).collect();
    let mut bytes = fs::read(&paths[1]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let (damaged, text) = (data.path().join("damaged.rhr"), data.path().join("text.rhr"));
    fs::write(&damaged, &bytes).unwrap();
    fs::write(&text, "no recording").unwrap();
    let line = format!("replay import {} {} {}", damaged.display(), text.display(), paths[0].display());
    let done = run(other.path(), &line);
    assert_eq!(done.code, Some(3), "{}", done.stderr);
    assert!(
        done.stderr.contains("damaged at byte") && done.stderr.contains("not a recording"),
        "{}",
        done.stderr
    );
    assert!(done.stdout.contains("1 episode of 3 files taken into"), "{}", done.stdout);
    let again = run(other.path(), &format!("replay import {}", paths[0].display()));
    assert_eq!(again.code, Some(4), "{}", again.stderr);
    assert!(again.stderr.contains("is there already"), "{}", again.stderr);
    assert_eq!(ids(other.path(), "replay ls --json").len(), 1);
    let mut running =
        Running::start(other.path(), "rollout --env Acrobot-v1 --lanes 2 --steps 1000000000000");
    running.until_written(other.path(), segment_bytes(other.path()) + 1);
    let locked = run(other.path(), &format!("replay import {}", paths[1].display()));
    assert_eq!(locked.code, Some(4), "{}", locked.stderr);
    running.kill();
}

#[test]
fn any_number_of_episodes_is_one_table_and_those_of_another_env_want_one_of_their_own() {
    let data = recorded();
    let path = data.path().join("all.parquet");
    succeed(data.path(), &format!("replay export --env CartPole-v1 --format parquet -o {}", path.display()));
    let table = fs::read(&path).unwrap();
    assert!(table.starts_with(b"PAR1") && table.ends_with(b"PAR1"));
    // Its rows and names of episodes are looked at where Parquet is read: crates/export and crates/python.
    let one = ids(data.path(), "replay ls --env CartPole-v1 --limit 1 --json").remove(0);
    let smaller = data.path().join("one.parquet");
    succeed(data.path(), &format!("replay export {one} --format parquet -o {}", smaller.display()));
    assert!(fs::read(&smaller).unwrap().len() < table.len());
    let mixed = data.path().join("mixed.parquet");
    let done = run(data.path(), &format!("replay export --format parquet -o {}", mixed.display()));
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("have different columns"), "{}", done.stderr);
    let line = format!("replay export --env Acrobot-v1 --format parquet -o {}", mixed.display());
    let none = run(data.path(), &line);
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    assert!(!names(data.path()).iter().any(|name| name.starts_with("mixed")));
    let into = data.path().join("each");
    let line = format!("replay export --format parquet --into {}", into.display());
    assert!(succeed(data.path(), &line).starts_with("14 episodes written into "));
    assert_eq!(names(&into), files(&ids(data.path(), "replay ls --json"), "parquet"));
}

//! Episodes go on otherwise from one of their steps, through the binary.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use rollhouse_tests::{Cluster, Done, Folder, json_lines, rollhouse, run, succeed};
use serde_json::Value;

/// A folder with some episodes of an env, and the name of the longest.
fn recorded(env: &str) -> (Folder, String, u64) {
    let data = Folder::new();
    succeed(data.path(), &format!("rollout --env {env} --lanes 2 --episodes 4 --seed 5"));
    let longest = &json_lines(data.path(), "replay ls --sort -length --limit 1 --json")[0];
    (data, id(longest), longest["length"].as_u64().expect("it has a length"))
}

fn id(listed: &Value) -> String {
    listed["id"].as_str().expect("it has a name").to_owned()
}

/// Forks, and gives what is said of the fork.
fn fork(data: &Path, line: &str) -> Value {
    json_lines(data, &format!("replay fork {line} --json")).remove(0)
}

/// The lines of an episode's export.
fn steps(data: &Path, name: &str) -> Vec<Value> {
    json_lines(data, &format!("replay export {name} --format jsonl"))
}

/// Every episode of the folder is what living through it again gives.
fn assert_verified(data: &Path) {
    let done = run(data, "replay verify");
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
}

/// A net that remembers what a lane has shown has to have seen the steps before the fork: with the seed of the parent it then goes on as
/// the parent did.
#[test]
fn a_net_that_remembers_goes_on_in_a_fork_as_it_did_in_its_parent() {
    let folder = Folder::new();
    let data = folder.path();
    let net = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/policy/tests/onnx/cartpole_gru.onnx");
    succeed(data, &format!("rollout --env CartPole-v1 --lanes 1 --episodes 1 --seed 3 --policy {net}"));
    let parent = &json_lines(data, "replay ls --json")[0];
    let (name, length) = (id(parent), parent["length"].as_u64().unwrap());
    // A fork notes nothing of its steps.
    let seen = |name: &str| {
        let steps = steps(data, name).into_iter();
        steps.map(|step| (step["action"].clone(), step["obs"].clone())).collect::<Vec<_>>()
    };
    for at in [1, length / 2, length - 1] {
        let child = id(&fork(data, &format!("{name} --at {at} --policy {net} --seed 3")));
        assert_eq!(seen(&child), seen(&name), "a fork at step {at} of {length}");
    }
    assert_verified(data);
}

#[test]
fn a_fork_is_its_parent_up_to_the_step_and_says_so_everywhere() {
    let (data, parent, _) = recorded("CartPole-v1");
    let data = data.path();
    let told = fork(data, &format!("{parent} --at 5 --policy random --seed 3"));
    let child = id(&told);
    assert_eq!((&told["parent"]["id"], &told["parent"]["step"]), (&parent.clone().into(), &5.into()));
    assert_eq!((&told["policy"], &told["seed"]), (&"random".into(), &3.into()));
    assert_verified(data);
    let (before, after) = (steps(data, &parent), steps(data, &child));
    assert_eq!(before[..6], after[..6]);
    // The same seed gives the same fork, another one another.
    let again = id(&fork(data, &format!("{parent} --at 5 --policy random --seed 3")));
    assert_eq!(after, steps(data, &again));
    let other = id(&fork(data, &format!("{parent} --at 5 --policy random --seed 4")));
    assert_ne!(after, steps(data, &other));

    let listed = json_lines(data, "replay ls --json");
    let of = |name: &str| listed.iter().find(|listed| listed["id"] == name).expect("it is listed").clone();
    assert_eq!(of(&child)["parent"], told["parent"]);
    assert_eq!(of(&parent)["parent"], Value::Null);
    assert_eq!(json_lines(data, &format!("replay show {child} --json"))[0]["parent"], told["parent"]);
    let shown = succeed(data, &format!("replay show {child}"));
    assert!(shown.contains(&format!("fork of    {parent}, step 5")), "{shown}");
    let table = succeed(data, "replay ls");
    let rows = table.lines().filter(|line| line.ends_with(&format!("  fork of {parent} at 5"))).count();
    assert_eq!(rows, 3, "{table}");
    assert!(table.lines().next().is_some_and(|head| head.ends_with("STARTED (UTC)")), "{table}");
    let page = succeed(data, &format!("replay export {child} --format html"));
    assert!(page.contains(&format!("{parent} at step 5")));
}

#[test]
fn a_fork_is_whole_without_its_parent_and_keeps_its_name_in_a_file() {
    let (data, parent, _) = recorded("CartPole-v1");
    let (alone, file) = (Folder::new(), data.path().join("fork.rhr"));
    let into = alone.path().display();
    let child = id(&fork(data.path(), &format!("{parent} --at 6 --policy noop --into {into}")));
    assert_verified(alone.path());
    assert_eq!(json_lines(alone.path(), "replay ls --json").len(), 1);
    succeed(alone.path(), &format!("replay export {child} --format rhr -o {}", file.display()));
    succeed(data.path(), &format!("replay import {}", file.display()));
    let shown = &json_lines(data.path(), &format!("replay show {child} --json"))[0];
    assert_eq!(shown["parent"], serde_json::json!({"id": parent, "step": 6}));
}

#[test]
fn a_fork_can_be_forked_and_an_episode_at_its_first_step() {
    let (data, parent, _) = recorded("MountainCar-v0");
    let data = data.path();
    let first = id(&fork(data, &format!("{parent} --at 70 --policy random --seed 1 --steps 40")));
    let second = fork(data, &format!("{first} --at 100 --policy noop --steps 30"));
    assert_eq!(second["parent"], serde_json::json!({"id": first, "step": 100}));
    assert_eq!((&second["length"], &second["outcome"]), (&130.into(), &"cancelled".into()));
    assert_eq!(steps(data, &first)[..101], steps(data, &id(&second))[..101]);
    let at_reset = fork(data, &format!("{parent} --at 0 --policy noop"));
    // Its time limit holds.
    assert_eq!((&at_reset["length"], &at_reset["outcome"]), (&200.into(), &"truncated".into()));
    assert_eq!(steps(data, &parent)[0], steps(data, &id(&at_reset))[0]);
    assert_verified(data);
}

#[test]
fn an_episode_that_was_cut_goes_on_from_its_last_step_and_one_that_is_over_does_not() {
    let data = Folder::new();
    let data = data.path();
    succeed(data, "rollout --env Pendulum-v1 --lanes 1 --steps 90 --seed 5");
    let cut = id(&json_lines(data, "replay ls --json")[0]);
    let whole = fork(data, &format!("{cut} --at 90 --policy random --seed 2"));
    assert_eq!((&whole["length"], &whole["outcome"]), (&200.into(), &"truncated".into()));
    assert_verified(data);
    let over = id(&whole);
    let done = run(data, &format!("replay fork {over} --at 200 --policy noop"));
    assert_eq!(done.code, Some(2));
    assert!(
        done.stderr.contains("is over at step 200") && done.stderr.contains("--at 199"),
        "{}",
        done.stderr
    );
    let done = run(data, &format!("replay fork {over} --at 201 --policy noop"));
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("step 201 was asked for, but the episode has 200 steps"), "{}", done.stderr);
    assert_eq!(json_lines(data, "replay ls --json").len(), 2, "nothing is recorded of what is refused");
}

#[test]
fn actions_come_from_an_export_or_a_list_and_stop_where_they_end() {
    let (data, parent, length) = recorded("CartPole-v1");
    let data = data.path();
    let file = data.join("actions.jsonl");
    fs::write(&file, succeed(data, &format!("replay export {parent} --format jsonl"))).unwrap();
    // With the actions that it took it is the same once more.
    let same = fork(data, &format!("{parent} --at 4 --actions {}", file.display()));
    assert_eq!((&same["length"], &same["outcome"]), (&length.into(), &"terminated".into()));
    assert_eq!((&same["policy"], same.get("seed")), (&"file".into(), Some(&Value::Null)));
    let done = run(data, &format!("replay diff {parent} {}", id(&same)));
    assert_eq!(done.code, Some(0), "{}", done.stdout);
    let done = piped(data, &format!("replay fork {parent} --at 2 --actions - --json"), "0\n{\"action\":1}\n");
    let short: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&short["length"], &short["outcome"]), (&4.into(), &"cancelled".into()));
    let taken: Vec<Value> = steps(data, &id(&short))[3..].iter().map(|step| step["action"].clone()).collect();
    assert_eq!(taken, [Value::from(0), Value::from(1)]);
    let all_left = "0\n".repeat(100);
    let done = piped(data, &format!("replay fork {parent} --at 2 --actions -"), &all_left);
    assert!(done.stdout.contains("terminated") && done.stderr.contains("of the file were not taken"));
    let done = piped(data, &format!("replay fork {parent} --at 2 --actions -"), "0\n2\n");
    assert_eq!(done.code, Some(2));
    assert!(
        done.stderr.contains("line 2 of the actions: 2 is not an integer from 0 to 1"),
        "{}",
        done.stderr
    );
    let done = run(data, &format!("replay fork {parent} --at 2 --actions nowhere.jsonl"));
    assert!(done.code == Some(2) && done.stderr.contains("nowhere.jsonl cannot be read"), "{}", done.stderr);
    assert_verified(data);
}

fn piped(data: &Path, line: &str, text: &str) -> Done {
    let mut child = rollhouse(data, line).stdin(Stdio::piped()).spawn().expect("the binary starts");
    child.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("it reads");
    Done::of(child.wait_with_output().expect("it was started"))
}

#[test]
fn actions_of_numbers_are_taken_to_the_bit() {
    let (data, parent, _) = recorded("MountainCarContinuous-v0");
    let data = data.path();
    let file = data.join("actions.jsonl");
    fs::write(&file, succeed(data, &format!("replay export {parent} --format jsonl"))).unwrap();
    let same = id(&fork(data, &format!("{parent} --at 0 --actions {}", file.display())));
    assert_eq!(run(data, &format!("replay diff {parent} {same}")).code, Some(0));
}

#[test]
fn a_name_that_no_episode_has_is_answered_with_the_nearest() {
    let (data, parent, _) = recorded("CartPole-v1");
    let run_id = parent.split('-').next().unwrap();
    let done = run(data.path(), &format!("replay fork {run_id}-0-7 --at 1 --policy noop"));
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains(&format!("nearest are {run_id}-0-1, {run_id}-0-0")), "{}", done.stderr);
    let done = run(data.path(), "replay fork 00000000-0-7 --at 1 --policy noop");
    assert!(done.code == Some(2) && !done.stderr.contains("nearest"), "{}", done.stderr);
}

#[test]
fn what_cannot_be_lived_through_again_is_refused() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env test/Noise-v0 --lanes 1 --episodes 1 --seed 5");
    let full = id(&json_lines(data.path(), "replay ls --json")[0]);
    let done = run(data.path(), &format!("replay fork {full} --at 1 --policy noop"));
    assert!(done.code == Some(1) && done.stderr.contains("not deterministic"), "{}", done.stderr);
    // One of the ways is to be named, and only one.
    for line in
        [format!("replay fork {full} --at 1"), format!("replay fork {full} --at 1 --policy noop --actions x")]
    {
        assert_eq!(run(data.path(), &line).code, Some(2), "{line}");
    }
}

#[test]
fn a_fork_of_an_episode_in_a_clusters_store_is_recorded_here_and_a_stored_one_names_its_parent() {
    let (data, parent, _) = recorded("CartPole-v1");
    let stored = id(&fork(data.path(), &format!("{parent} --at 5 --policy noop")));
    let (cluster, carried, here) = (Cluster::new(&[]), Folder::new(), Folder::new());
    let store = cluster.path("coordinator/store");
    succeed(data.path(), &format!("store export --all --to {}", carried.path().display()));
    let import = format!("store import --from {} --data {}", carried.path().display(), store.display());
    succeed(data.path(), &import);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let connect = format!("--connect {}", cluster.connection("admin", &address));
    let listed = json_lines(here.path(), &format!("replay ls --json {connect}"));
    let found = listed.iter().find(|listed| id(listed) == stored).expect("it is stored");
    assert_eq!(found["parent"], serde_json::json!({"id": parent, "step": 5}));
    let child = fork(here.path(), &format!("{stored} --at 6 --policy random --seed 1 {connect}"));
    assert_eq!(child["parent"], serde_json::json!({"id": stored, "step": 6}));
    let recorded = json_lines(here.path(), "replay ls --json");
    assert_eq!(recorded.iter().map(id).collect::<Vec<_>>(), [id(&child)]);
    assert_verified(here.path());
    // What a store holds is its coordinator's to say.
    let line = format!("replay fork {stored} --at 6 --policy noop --data {}", store.display());
    let done = run(here.path(), &line);
    assert!(done.code == Some(4) && done.stderr.contains("only its coordinator writes"), "{}", done.stderr);
}

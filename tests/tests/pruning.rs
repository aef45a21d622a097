//! Labels, pruning and watching of recorded episodes, through the binary.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::io::{BufRead, BufReader};

use rollhouse_tests::{Cluster, Folder, json_lines, rollhouse, run, segment_bytes, succeed};

/// A folder of some episodes of a seed.
fn recorded(episodes: u32) -> Folder {
    let data = Folder::new();
    succeed(data.path(), &format!("rollout --env CartPole-v1 --lanes 8 --episodes {episodes} --seed 7"));
    data
}

fn names(data: &Folder, line: &str) -> Vec<String> {
    let listed = json_lines(data.path(), &format!("replay ls --json {line}"));
    listed.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn labels_are_shown_by_show_and_ls_and_narrow_listings_and_exports() {
    let data = recorded(40);
    let all = names(&data, "");
    let (first, second) = (&all[3], &all[7]);
    succeed(data.path(), &format!("replay pin {first} {second}"));
    succeed(data.path(), &format!("replay tag {first} best slow"));
    let noted = rollhouse(data.path(), &format!("replay note {first} --json"))
        .arg("\u{1b}[2Jred\u{7}")
        .output()
        .unwrap();
    let noted: serde_json::Value = serde_json::from_slice(&noted.stdout).unwrap();
    assert_eq!((&noted["pinned"], &noted["note"]), (&true.into(), &"\u{1b}[2Jred\u{7}".into()));
    let shown = succeed(data.path(), &format!("replay show {first}"));
    assert!(shown.contains("best, slow") && shown.contains("\\u{1b}[2Jred\\u{7}"), "{shown}");
    let listing = succeed(data.path(), "replay ls");
    assert!(listing.contains("LABELS") && listing.contains("pinned best,slow \"\\u{1b}[2Jred"), "{listing}");
    assert!(!shown.contains('\u{1b}') && !listing.contains('\u{1b}'));
    assert_eq!(names(&data, "--tag best"), std::slice::from_ref(first));
    assert_eq!(names(&data, "--pinned"), [first.clone(), second.clone()]);
    assert_eq!(names(&data, "--pinned --tag slow --sort -return"), std::slice::from_ref(first));
    let into = data.path().join("out");
    succeed(data.path(), &format!("replay export --pinned --format rhr --into {}", into.display()));
    assert_eq!(std::fs::read_dir(&into).unwrap().count(), 2);
    // All of it can be taken back.
    succeed(data.path(), &format!("replay unpin {first} {second}"));
    succeed(data.path(), &format!("replay untag {first} best slow"));
    succeed(data.path(), &format!("replay note {first} --remove"));
    assert!(!succeed(data.path(), "replay ls").contains("LABELS"));
    assert!(names(&data, "--pinned").is_empty());
    for (line, says) in [
        (format!("replay tag {first} a,b"), "a tag cannot contain"),
        (format!("replay note {first}"), "required"),
        ("replay pin zzzzzzz0-0-0".to_owned(), "no episode"),
    ] {
        let refused = run(data.path(), &line);
        assert_eq!(refused.code, Some(2), "{line}: {}", refused.stderr);
        assert!(refused.stderr.contains(says), "{line}: {}", refused.stderr);
    }
}

#[test]
fn pruning_says_what_would_go_and_does_it_when_it_is_told_to() {
    let data = recorded(2000);
    let best = names(&data, "--sort -return --limit 3");
    let pinned = names(&data, "--sort return --limit 1").remove(0);
    succeed(data.path(), &format!("replay pin {pinned}"));
    let before = (segment_bytes(data.path()), names(&data, ""));
    let would = run(data.path(), "replay prune --keep-best 3");
    assert_eq!(would.code, Some(0));
    assert!(would.stdout.contains("Would remove 1,996 episodes in 1 segment"), "{}", would.stdout);
    assert!(would.stderr.contains("--yes does it"), "{}", would.stderr);
    assert_eq!((segment_bytes(data.path()), names(&data, "")), before);
    let mut shown = Vec::new();
    for name in best.iter().chain([&pinned]) {
        shown.push(succeed(data.path(), &format!("replay export {name}")));
    }
    let done = &json_lines(data.path(), "replay prune --keep-best 3 --yes --json")[0];
    assert_eq!((done["episodes"].as_u64(), done["recorded_again"].as_u64()), (Some(1996), Some(4)), "{done}");
    assert!(segment_bytes(data.path()) < before.0 / 5);
    let mut left = names(&data, "");
    let mut wanted = [best.clone(), vec![pinned.clone()]].concat();
    left.sort();
    wanted.sort();
    assert_eq!(left, wanted);
    for (name, shown) in best.iter().chain([&pinned]).zip(shown) {
        assert_eq!(succeed(data.path(), &format!("replay export {name}")), shown);
    }
    assert_eq!(run(data.path(), "replay verify --all").code, Some(0));
    assert_eq!(names(&data, "--pinned"), [pinned]);
    let nothing = succeed(data.path(), "replay prune --older-than 1h");
    assert!(nothing.contains("Nothing"), "{nothing}");
}

#[test]
fn pruning_without_a_rule_is_refused_and_a_running_recording_is_left_alone() {
    let data = recorded(100);
    let refused = run(data.path(), "replay prune --yes");
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("which episodes"), "{}", refused.stderr);
    let mut running = rollhouse_tests::Running::start(
        data.path(),
        "rollout --env CartPole-v1 --lanes 8 --steps 100000000000 --seed 8",
    );
    running.until_written(data.path(), segment_bytes(data.path()) + 100_000);
    let left = run(data.path(), "replay prune --older-than 0s --yes");
    assert_eq!(left.code, Some(0));
    assert!(left.stderr.contains("left alone"), "{}", left.stderr);
    running.kill();
}

#[test]
fn a_spool_that_may_not_have_been_shipped_is_left_alone_unless_that_is_wanted() {
    let data = recorded(100);
    // A node draws such a name for the folder that it ships from.
    std::fs::write(data.path().join("spool"), "k3f9q2tz").unwrap();
    let before = names(&data, "");
    let left = run(data.path(), "replay prune --older-than 0s --yes");
    assert_eq!(left.code, Some(0));
    assert!(left.stderr.contains("left alone without --unshipped"), "{}", left.stderr);
    assert_eq!(names(&data, ""), before);
    succeed(data.path(), "replay prune --older-than 0s --yes --unshipped");
    assert!(names(&data, "").is_empty());
}

#[test]
fn new_episodes_are_listed_as_they_come() {
    let data = recorded(10);
    let there = names(&data, "");
    let mut watch = rollhouse(data.path(), "replay ls --watch --json --limit 25").spawn().unwrap();
    let mut said = BufReader::new(watch.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains("watching"));
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 4 --episodes 25 --seed 9");
    let done = rollhouse_tests::Done::of(watch.wait_with_output().unwrap());
    assert_eq!(done.code, Some(0));
    let come: Vec<serde_json::Value> =
        done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut come: Vec<String> = come.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    come.sort();
    let mut wanted: Vec<String> = names(&data, "").into_iter().filter(|name| !there.contains(name)).collect();
    wanted.sort();
    assert_eq!(come, wanted);
}

#[test]
fn a_clusters_store_is_watched_and_labelled_by_its_admin() {
    let cluster = Cluster::new(&["a"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let _node = cluster.node("a", &address);
    let connect = cluster.connection("trainer", &address);
    let line = format!("replay ls --watch --json --limit 12 --connect {connect}");
    let mut watch = rollhouse(cluster.folder(), &line).spawn().unwrap();
    let mut said = BufReader::new(watch.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains("watching"));
    succeed(
        cluster.folder(),
        &format!("rollout --env CartPole-v1 --lanes 4 --episodes 12 --seed 9 --connect {connect}"),
    );
    let done = rollhouse_tests::Done::of(watch.wait_with_output().unwrap());
    assert_eq!((done.code, done.stdout.lines().count()), (Some(0), 12));
    let listed = json_lines(cluster.folder(), &format!("replay ls --json --limit 1 --connect {connect}"));
    let name = listed[0]["id"].as_str().unwrap();
    let refused = run(cluster.folder(), &format!("replay prune --older-than 0s --connect {connect}"));
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.stderr.contains("cluster's store"), "{}", refused.stderr);
    let refused = run(cluster.folder(), &format!("replay tag {name} best --connect {connect}"));
    assert_eq!(refused.code, Some(4), "a trainer may not: {}", refused.stderr);
    succeed(cluster.folder(), &format!("replay pin {name} --connect {connect}"));
    succeed(cluster.folder(), &format!("replay unpin {name} --connect {connect}"));
    let admin = cluster.connection("admin", &address);
    succeed(cluster.folder(), &format!("replay pin {name} --connect {admin}"));
    succeed(cluster.folder(), &format!("replay tag {name} best slow --connect {admin}"));
    succeed(cluster.folder(), &format!("replay untag {name} slow --connect {admin}"));
    let line = format!("replay note {name} why_it_matters --json --connect {admin}");
    let said = &json_lines(cluster.folder(), &line)[0];
    assert_eq!((&said["pinned"], &said["tags"][0]), (&true.into(), &"best".into()), "{said}");
    // Whoever may look sees it.
    let shown = &json_lines(cluster.folder(), &format!("replay show {name} --json --connect {connect}"))[0];
    assert_eq!((&shown["pinned"], &shown["note"]), (&true.into(), &"why_it_matters".into()), "{shown}");
    for filter in ["--pinned", "--tag best"] {
        let listed = json_lines(cluster.folder(), &format!("replay ls {filter} --json --connect {connect}"));
        assert_eq!(listed.len(), 1, "{filter}");
        assert_eq!(listed[0]["id"], name);
    }
    let listed = succeed(cluster.folder(), &format!("replay ls --connect {connect}"));
    let line = listed.lines().find(|line| line.contains(name)).unwrap();
    assert!(line.contains("pinned best \"why_it_matters\""), "{line}");
    let unknown = format!("{}9", &name[..name.len() - 1]);
    let refused = run(cluster.folder(), &format!("replay pin {unknown}9 --connect {admin}"));
    assert!(refused.stderr.contains("nearest are"), "{}", refused.stderr);
    succeed(cluster.folder(), &format!("replay unpin {name} --connect {admin}"));
    assert!(
        json_lines(cluster.folder(), &format!("replay ls --pinned --json --connect {connect}")).is_empty()
    );
}

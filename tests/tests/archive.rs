//! `rollhouse store`: recordings are carried to a folder and back, whatever happens on the way.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rollhouse_tests::{Chance, Cluster, Folder, json_lines, rollhouse, run, soak, succeed};
use serde_json::Value;

/// Records that many runs, each in a segment of its own.
fn record(data: &Path, runs: u64) {
    for seed in 1..=runs {
        succeed(data, &format!("rollout --env CartPole-v1 --lanes 8 --episodes 60 --seed {seed}"));
    }
}

/// What listings say of all episodes, but for the bytes they take.
fn listed(data: &Path) -> BTreeSet<String> {
    let line = format!("replay ls --json --data {}", data.display());
    let episodes = json_lines(data, &line);
    let count = episodes.len();
    let listed: BTreeSet<String> = episodes.iter().map(Value::to_string).collect();
    assert_eq!(listed.len(), count, "none is listed twice");
    listed
}

/// The files of a target whose names end so, in order.
fn objects(target: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![target.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|end| end == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = fs::read(path).unwrap();
    let at = byte % bytes.len();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_was_exported_is_imported_elsewhere_as_it_was_and_is_sent_and_taken_in_once() {
    let (data, target, other) = (Folder::new(), Folder::new(), Folder::new());
    record(data.path(), 3);
    let export = format!("store export --all --json --to {}", target.path().display());
    let sent = json_lines(data.path(), &export).remove(0);
    assert_eq!((&sent["segments"], &sent["present"], &sent["runs"]), (&3.into(), &0.into(), &3.into()));
    let again = json_lines(data.path(), &export).remove(0);
    assert_eq!(
        (&again["segments"], &again["present"], &again["sent_bytes"]),
        (&3.into(), &3.into(), &0.into())
    );
    assert_eq!(objects(target.path(), "json").len(), 4, "three labels and one manifest");
    let verified =
        json_lines(data.path(), &format!("store verify --json {}", target.path().display())).remove(0);
    assert_eq!((&verified["segments"], &verified["episodes"]), (&3.into(), &180.into()));
    let import = format!("store import --from {} --json --data", target.path().display());
    let here = other.path().join("new");
    let taken = json_lines(data.path(), &format!("{import} {}", here.display())).remove(0);
    assert_eq!(
        (&taken["segments"], &taken["episodes"], &taken["present"]),
        (&3.into(), &180.into(), &0.into())
    );
    let taken = json_lines(data.path(), &format!("{import} {}", here.display())).remove(0);
    assert_eq!((&taken["segments"], &taken["present"]), (&0.into(), &3.into()));
    assert_eq!(listed(&here), listed(data.path()));
    succeed(&here, "replay verify --all");
    // Beside what is there still, nothing comes a second time; what is gone comes back.
    let before = listed(data.path());
    fs::remove_file(data.path().join("segments/0000000002.seg")).unwrap();
    let restored = json_lines(data.path(), &format!("{import} {}", data.path().display())).remove(0);
    assert_eq!((&restored["segments"], &restored["present"]), (&1.into(), &2.into()));
    assert_eq!(listed(data.path()), before);
}

#[test]
fn an_export_that_is_killed_at_any_moment_goes_on_from_what_is_there() {
    let (data, target) = (Folder::new(), Folder::new());
    let runs = 12 * soak();
    record(data.path(), runs);
    let to = target.path().join("deep/inside");
    let export = format!("store export --all --json --to {}", to.display());
    let mut chance = Chance::new(41);
    let mut there = 0;
    for _ in 0..6 {
        // A few segments further, or in the middle of the next one.
        let wanted = there + chance.below(3) as usize;
        let mut child = rollhouse(data.path(), &export).spawn().unwrap();
        while objects(&to, "seg").len() < wanted && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        there = objects(&to, "seg").len();
        let labelled = objects(&to.join("labels"), "json").len();
        assert!(labelled <= there, "a label comes after its segment");
        if labelled > 0 {
            succeed(data.path(), &format!("store verify {}", to.display()));
        }
    }
    let done = json_lines(data.path(), &export).remove(0);
    assert_eq!(done["segments"], runs);
    let left = fs::read_dir(to.join("parts")).unwrap().count();
    assert_eq!(left, 0, "nothing half written is left");
    let verified = json_lines(data.path(), &format!("store verify --json {}", to.display())).remove(0);
    assert_eq!((&verified["segments"], &verified["manifests"]), (&runs.into(), &1.into()));
}

#[test]
fn an_import_that_is_killed_at_any_moment_goes_on_and_has_each_episode_once() {
    let (data, target, other) = (Folder::new(), Folder::new(), Folder::new());
    let runs = 12 * soak();
    record(data.path(), runs);
    succeed(data.path(), &format!("store export --all --to {}", target.path().display()));
    let here = other.path().join("store");
    let import = format!("store import --from {} --json --data {}", target.path().display(), here.display());
    let mut chance = Chance::new(43);
    for _ in 0..6 {
        let wanted = objects(&here, "seg").len() + chance.below(3) as usize;
        let mut child = rollhouse(data.path(), &import).spawn().unwrap();
        while objects(&here, "seg").len() < wanted && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if here.join("arrivals").exists() {
            succeed(&here, "replay verify --all");
        }
    }
    succeed(data.path(), &import);
    assert_eq!(listed(&here), listed(data.path()));
    assert_eq!(objects(&here, "part"), Vec::<PathBuf>::new());
}

#[test]
fn what_is_damaged_or_missing_at_the_target_is_named_and_never_imported() {
    let (data, target) = (Folder::new(), Folder::new());
    record(data.path(), 4);
    succeed(data.path(), &format!("store export --all --to {}", target.path().display()));
    let segments = objects(target.path(), "seg");
    let verify = format!("store verify {}", target.path().display());
    let import = |into: &Folder| {
        let line = format!(
            "store import --json --from {} --data {}",
            target.path().display(),
            into.path().display()
        );
        let done = run(data.path(), &line);
        (done.code, serde_json::from_str::<Value>(&done.stdout).unwrap_or_default())
    };
    // One bit of one, the end of another, all of a third.
    let mut chance = Chance::new(47);
    flip(&segments[0], chance.below(1 << 20) as usize);
    let bytes = fs::read(&segments[1]).unwrap();
    fs::write(&segments[1], &bytes[..bytes.len() - 64]).unwrap();
    fs::remove_file(&segments[2]).unwrap();
    let found = run(data.path(), &verify);
    assert_eq!(found.code, Some(3));
    for segment in &segments[..3] {
        let name = segment.file_name().unwrap().to_str().unwrap();
        assert!(found.stdout.contains(name), "{name} in {}", found.stdout);
    }
    let other = Folder::new();
    let (code, taken) = import(&other);
    assert_eq!((code, &taken["segments"]), (Some(3), &1.into()));
    assert_eq!(taken["left_out"].as_array().unwrap().len(), 3);
    let whole = listed(data.path());
    let here = listed(other.path());
    assert!(here.len() == 60 && here.is_subset(&whole), "the one that is whole");
    // Exported again once it was removed, it is whole again, and the rest comes.
    fs::remove_file(&segments[0]).unwrap();
    fs::remove_file(&segments[1]).unwrap();
    succeed(data.path(), &format!("store export --all --to {}", target.path().display()));
    succeed(data.path(), &verify);
    let (code, taken) = import(&other);
    assert_eq!((code, &taken["segments"], &taken["present"]), (Some(0), &3.into(), &1.into()));
    assert_eq!(listed(other.path()), whole);
    // A label that is gone takes its segment with it, which the manifest misses; one that was changed fits nothing.
    let labels = objects(&target.path().join("labels"), "json");
    fs::remove_file(&labels[3]).unwrap();
    flip(&labels[2], 40);
    let found = run(data.path(), &verify);
    assert_eq!(found.code, Some(3));
    for label in &labels[2..] {
        assert!(found.stdout.contains(label.file_name().unwrap().to_str().unwrap()), "{}", found.stdout);
    }
    let manifest = objects(&target.path().join("manifests"), "json").remove(0);
    flip(&manifest, 100);
    assert!(run(data.path(), &verify).stdout.contains("manifests/"));
}

/// A folder that has taken something in is a store beside what was recorded into it: each part keeps its name.
#[test]
fn a_folder_that_was_recorded_into_and_has_taken_something_in_is_exported_as_both() {
    let (data, first, second, other) = (Folder::new(), Folder::new(), Folder::new(), Folder::new());
    record(data.path(), 2);
    succeed(data.path(), &format!("store export --all --to {}", first.path().display()));
    let here = other.path().join("here");
    // As processes of one program record side by side, under a name that a store's folder could have.
    let beside = here.join("worker-00000001");
    record(&here, 1);
    record(&beside, 1);
    succeed(&here, &format!("store import --from {} --data {}", first.path().display(), here.display()));
    let told =
        json_lines(&here, &format!("store export --all --json --to {}", second.path().display())).remove(0);
    assert_eq!(told["segments"], 4);
    let folders = fs::read_dir(second.path().join("segments")).unwrap();
    let folders: BTreeSet<String> =
        folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(folders.len() == 3 && folders.iter().all(|name| name.starts_with("local-")), "{folders:?}");
    let again = other.path().join("again");
    succeed(&here, &format!("store import --from {} --data {}", second.path().display(), again.display()));
    assert_eq!(listed(&again), listed(&here));
}

#[test]
fn a_damaged_segment_is_not_exported_and_the_command_says_so() {
    let (data, target) = (Folder::new(), Folder::new());
    record(data.path(), 2);
    flip(&data.path().join("segments/0000000001.seg"), 900);
    let done = run(data.path(), &format!("store export --all --json --to {}", target.path().display()));
    assert_eq!(done.code, Some(3), "{}", done.stderr);
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&told["segments"], &told["left_out"][0]["segment"]), (&1.into(), &1.into()));
    succeed(data.path(), &format!("store verify {}", target.path().display()));
}

#[test]
fn one_run_is_exported_alone_and_a_mistake_in_its_name_is_told() {
    let (data, target, other) = (Folder::new(), Folder::new(), Folder::new());
    record(data.path(), 2);
    let all = listed(data.path());
    let name =
        json_lines(data.path(), "replay ls --json --limit 1").remove(0)["id"].as_str().unwrap().to_owned();
    let run_id = name.split('-').next().unwrap();
    let to = target.path().display();
    succeed(data.path(), &format!("store export --run {run_id} --to {to}"));
    succeed(data.path(), &format!("store import --from {to} --data {}", other.path().display()));
    let of_run: BTreeSet<String> =
        all.into_iter().filter(|line| line.contains(&format!("\"{run_id}-"))).collect();
    assert_eq!(listed(other.path()), of_run);
    assert_eq!(of_run.len(), 60);
    for (line, words) in [
        (format!("store export --run aaaaaaaa --to {to}"), "in no sealed segment"),
        (format!("store verify {to}/elsewhere"), "there is no folder"),
        (format!("store import --from {to}/manifests --data {to}/x"), "nothing was exported"),
        ("store verify ftp://somewhere".to_owned(), "names no target"),
    ] {
        let done = run(data.path(), &line);
        assert_eq!(done.code, Some(2), "{line}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{line}: {}", done.stderr);
    }
}

#[test]
fn a_coordinators_store_is_exported_while_it_runs_and_nothing_is_imported_into_it() {
    let cluster = Cluster::new(&["a"]);
    let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let node = cluster.node("a", &address);
    let connection = cluster.connection("trainer", &address);
    let (folder, target, other) = (cluster.folder(), Folder::new(), Folder::new());
    for seed in 1..=2 {
        let line = "rollout --env CartPole-v1 --lanes 8 --episodes 60";
        succeed(folder, &format!("{line} --seed {seed} --connect {connection}"));
    }
    let to = target.path().display();
    let export = format!("store export --all --json --to {to} --connect {connection}");
    let sent = json_lines(folder, &export).remove(0);
    assert_eq!((&sent["runs"], &sent["episodes"]), (&2.into(), &120.into()));
    let again = json_lines(folder, &export).remove(0);
    assert_eq!((&again["present"], &again["sent_bytes"]), (&sent["segments"], &0.into()));
    let store = cluster.path("coordinator").join("store");
    let refused = run(folder, &format!("store import --from {to} --data {}", store.display()));
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    succeed(folder, &format!("store import --from {to} --data {}", other.path().display()));
    let there = listed(other.path());
    assert_eq!(there.len(), 120);
    assert!(node.end().success() && coordinator.end().success());
    assert_eq!(listed(&store), there);
    // It is the store's own folder: all of it is known.
    let known =
        json_lines(folder, &format!("store import --json --from {to} --data {}", store.display())).remove(0);
    assert_eq!((&known["segments"], &known["present"]), (&0.into(), &sent["segments"]));
}

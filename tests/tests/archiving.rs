//! A coordinator with an archive: recordings go there by themselves, leave the store's disk, and are listed and read as
//! before, whatever happens on the way.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rollhouse_tests::{Chance, Cluster, Folder, json_lines, run, soak, succeed};
use serde_json::Value;

/// The files in a folder and below it whose names end so.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let (mut found, mut dirs) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for path in fs::read_dir(&dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())) {
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

/// Segments on the disk of a cluster's store.
fn here(cluster: &Cluster) -> usize {
    let store = cluster.path("coordinator/store");
    let folders = fs::read_dir(store).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    folders.map(|folder| files(&folder.join("segments"), "seg").len()).sum()
}

/// What listings say of all episodes, but for the bytes they take.
fn listed(data: &Path, from: &str) -> BTreeSet<String> {
    let episodes = json_lines(data, &format!("replay ls --json {from}"));
    let listed: BTreeSet<String> = episodes.iter().map(Value::to_string).collect();
    assert_eq!(listed.len(), episodes.len(), "none is listed twice");
    listed
}

/// Waits until the archive has labels of so many segments.
fn until_archived(archive: &Path, segments: usize) {
    while files(&archive.join("labels"), "json").len() < segments {
        std::thread::yield_now();
    }
}

/// Gives a cluster's store recordings of that many runs, each in a segment of its own; what listings say of them.
fn stocked(cluster: &Cluster, runs: u64) -> BTreeSet<String> {
    let (data, carried) = (Folder::new(), Folder::new());
    for seed in 1..=runs {
        succeed(data.path(), &format!("rollout --env CartPole-v1 --lanes 8 --episodes 60 --seed {seed}"));
    }
    succeed(data.path(), &format!("store export --all --to {}", carried.path().display()));
    let store = cluster.path("coordinator/store");
    succeed(
        data.path(),
        &format!("store import --from {} --data {}", carried.path().display(), store.display()),
    );
    listed(data.path(), &format!("--data {}", data.path().display()))
}

#[test]
fn what_left_for_the_archive_is_listed_verified_and_exported_through_the_coordinator_and_imported_without_it()
{
    let (cluster, archive) = (Cluster::new(&["node-a"]), Folder::new());
    let target = format!("archive.target={}", archive.path().display());
    // As much as two of the segments.
    let settings = [target.as_str(), "store.budget=10 kB", "archive.cache=10 kB"];
    let (coordinator, address) = cluster.coordinator_with("127.0.0.1:0", &settings, &[]);
    let node = cluster.node("node-a", &address);
    let connect = cluster.connection("admin", &address);
    for seed in 1..=6 {
        let line = "rollout --env CartPole-v1 --lanes 8 --episodes 200 --policy random";
        succeed(cluster.folder(), &format!("{line} --seed {seed} --connect {connect}"));
    }
    let stats =
        || json_lines(cluster.folder(), &format!("replay stats --json --connect {connect}")).remove(0);
    let segments = stats()["segments"].as_u64().unwrap() as usize;
    until_archived(archive.path(), segments);
    while here(&cluster) > segments / 2 {
        std::thread::yield_now();
    }
    let from = format!("--connect {connect}");
    let all = listed(cluster.folder(), &from);
    assert_eq!(all.len(), 1200);
    assert_eq!(stats()["segments"], segments);
    succeed(cluster.folder(), &format!("replay verify --all {from}"));
    let first: Value = serde_json::from_str(all.first().unwrap()).unwrap();
    let name = first["id"].as_str().unwrap();
    succeed(cluster.folder(), &format!("replay show {name} {from}"));
    succeed(cluster.folder(), &format!("store verify {}", archive.path().display()));
    // Beside the coordinator nobody is shown a part for the whole.
    let store = cluster.path("coordinator/store");
    let refused = run(cluster.folder(), &format!("replay ls --data {}", store.display()));
    assert_eq!(refused.code, Some(2));
    for words in ["in the archive", archive.path().to_str().unwrap(), "rollhouse store import", "--connect"] {
        assert!(refused.stderr.contains(words), "{words} in {}", refused.stderr);
    }
    // Without it everything is brought back, and it goes on from that.
    node.kill();
    coordinator.kill();
    let import = format!("store import --from {} --data {}", archive.path().display(), store.display());
    succeed(cluster.folder(), &import);
    assert_eq!(here(&cluster), segments);
    assert_eq!(listed(cluster.folder(), &format!("--data {}", store.display())), all);
    succeed(cluster.folder(), &format!("replay verify --all --data {}", store.display()));
    let (_coordinator, _) = cluster.coordinator_with(&address, &settings, &[]);
    while here(&cluster) > segments / 2 {
        std::thread::yield_now();
    }
    assert_eq!(listed(cluster.folder(), &from), all);
}

#[test]
fn a_coordinator_that_is_killed_at_any_moment_while_it_archives_loses_nothing_and_doubles_nothing() {
    let (cluster, archive) = (Cluster::new(&[]), Folder::new());
    let runs = 16 * soak() as usize;
    let all = stocked(&cluster, runs as u64);
    let to = archive.path().join("deep/inside");
    let target = format!("archive.target={}", to.display());
    let settings = [target.as_str(), "store.budget=10 kB"];
    let (coordinator, address) = cluster.coordinator_with("127.0.0.1:0", &settings, &[]);
    let from = format!("--connect {}", cluster.connection("admin", &address));
    coordinator.kill();
    let mut chance = Chance::new(53);
    for round in 0..8 {
        let before = files(&to.join("labels"), "json").len();
        let (coordinator, _) = cluster.coordinator_with(&address, &settings, &[]);
        // A few segments further, or in the middle of the next one, or of the removal of one.
        until_archived(&to, (before + chance.below(4) as usize).min(runs));
        for _ in 0..chance.below(2000) {
            std::thread::yield_now();
        }
        if round % 4 == 3 {
            // It is read meanwhile.
            succeed(cluster.folder(), &format!("replay verify --all {from}"));
        }
        coordinator.kill();
        if before > 0 {
            succeed(cluster.folder(), &format!("store verify {}", to.display()));
        }
    }
    // For a while the archive is away.
    let away = archive.path().join("away");
    fs::rename(&to, &away).unwrap();
    let (mut coordinator, _) = cluster.coordinator_with(&address, &settings, &[]);
    assert_eq!(listed(cluster.folder(), &from), all, "listings do not need it");
    let is_unfinished = files(&away.join("labels"), "json").len() < runs;
    if is_unfinished {
        coordinator.hear("archiving waits");
    }
    fs::rename(&away, &to).unwrap();
    until_archived(&to, runs);
    while here(&cluster) > runs / 2 {
        std::thread::yield_now();
    }
    assert_eq!(listed(cluster.folder(), &from), all);
    succeed(cluster.folder(), &format!("replay verify --all {from}"));
    assert_eq!(files(&to.join("segments"), "seg").len(), runs);
    succeed(cluster.folder(), &format!("store verify {}", to.display()));
    let left = fs::read_dir(to.join("parts")).unwrap().count();
    assert!(!is_unfinished || left == 0, "what was half written is removed by whoever goes on");
}

#[test]
fn what_is_damaged_in_the_archive_is_refused_by_name_and_the_rest_is_read() {
    let (cluster, archive) = (Cluster::new(&[]), Folder::new());
    let all = stocked(&cluster, 4);
    let target = format!("archive.target={}", archive.path().display());
    let settings = [target.as_str(), "store.budget=1 kB"];
    let (_coordinator, address) = cluster.coordinator_with("127.0.0.1:0", &settings, &[]);
    let from = format!("--connect {}", cluster.connection("admin", &address));
    until_archived(archive.path(), 4);
    while here(&cluster) > 1 {
        std::thread::yield_now();
    }
    let damaged = files(&archive.path().join("segments"), "seg").remove(0);
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[300] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    assert_eq!(listed(cluster.folder(), &from), all);
    let verified = run(cluster.folder(), &format!("replay verify --all {from}"));
    assert_ne!(verified.code, Some(0));
    let file = damaged.file_name().unwrap().to_str().unwrap();
    assert!(
        verified.stderr.contains(file) && verified.stderr.contains("damaged in the archive"),
        "{}",
        verified.stderr
    );
    let told = run(cluster.folder(), &format!("store verify {}", archive.path().display()));
    assert_eq!(told.code, Some(3));
}

#[cfg(not(feature = "s3"))]
#[test]
fn a_program_without_object_storage_refuses_an_archive_there_by_name() {
    let cluster = Cluster::new(&[]);
    let line = format!(
        "coordinator --data {} --listen 127.0.0.1:0 --set metrics.listen=127.0.0.1:0 --set archive.target=s3://bucket/runs",
        cluster.path("coordinator").display()
    );
    let refused = run(cluster.folder(), &line);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    for words in ["archive.target", "built without object storage"] {
        assert!(refused.stderr.contains(words), "{words} in {}", refused.stderr);
    }
}

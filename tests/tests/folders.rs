//! Recordings of several processes: a folder is read together with those in it.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rollhouse_tests::{Cluster, Folder, Running, json_lines, run, segment_bytes, segments, succeed};
use serde_json::Value;

/// A run in the folder itself and one in each of two folders in it, as Python processes leave them.
fn recorded() -> (Folder, [PathBuf; 3]) {
    let data = Folder::new();
    let places = [data.path().to_path_buf(), data.path().join("python-a"), data.path().join("python-b")];
    succeed(&places[0], "rollout --env CartPole-v1 --lanes 8 --episodes 30 --seed 1");
    succeed(&places[1], "rollout --env CartPole-v1 --lanes 4 --episodes 20 --seed 2");
    succeed(&places[2], "rollout --env Pendulum-v1 --lanes 2 --episodes 4 --seed 3");
    (data, places)
}

fn ids(lines: &[Value]) -> Vec<String> {
    lines.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
}

fn flip_in_the_middle(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

#[test]
fn listings_cover_the_folders_in_the_folder() {
    let (data, [_, a, b]) = recorded();
    let all = json_lines(data.path(), "replay ls --json --sort -return");
    assert_eq!(all.len(), 54);
    let returns: Vec<f64> = all.iter().map(|line| line["return"].as_f64().unwrap()).collect();
    assert!(returns.is_sorted_by(|a, b| a >= b));
    assert_eq!(ids(&json_lines(data.path(), "replay ls --json --sort -return --limit 7")), ids(&all)[..7]);
    assert_eq!(json_lines(data.path(), "replay ls --json --env Pendulum-v1").len(), 4);
    assert_eq!(succeed(data.path(), "replay ls").lines().count(), 1 + 54);
    // A folder that is named by itself is read by itself.
    assert_eq!((json_lines(&a, "replay ls --json").len(), json_lines(&b, "replay ls --json").len()), (20, 4));
}

#[test]
fn an_episode_is_shown_exported_and_verified_in_whichever_folder_it_is() {
    let (data, places) = recorded();
    let mut both = String::new();
    for (place, folder) in places[1..].iter().zip(["python-a", "python-b"]) {
        let id = ids(&json_lines(place, "replay ls --json --limit 1")).remove(0);
        let mut shown = json_lines(data.path(), &format!("replay show {id} --json")).remove(0);
        assert_eq!(shown["folder"].take(), folder);
        assert_eq!(shown, json_lines(place, &format!("replay show {id} --json"))[0]);
        assert!(succeed(data.path(), &format!("replay show {id}")).contains(folder));
        let export = format!("replay export {id}");
        assert_eq!(succeed(data.path(), &export), succeed(place, &export));
        both.push_str(&format!(" {id}"));
    }
    let verified = json_lines(data.path(), &format!("replay verify --json{both}"));
    assert_eq!(verified.len(), 2);
    assert!(verified.iter().all(|line| line["ok"] == true));
}

#[test]
fn a_copy_of_a_folder_adds_no_episode() {
    let (data, [_, a, _]) = recorded();
    let before = ids(&json_lines(data.path(), "replay ls --json"));
    let copy = data.path().join("copy");
    fs::create_dir_all(copy.join("segments")).unwrap();
    for file in segments(&a) {
        fs::copy(&file, copy.join("segments").join(file.file_name().unwrap())).unwrap();
    }
    assert_eq!(ids(&json_lines(data.path(), "replay ls --json")), before);
    let id = ids(&json_lines(&a, "replay ls --json --limit 1")).remove(0);
    let export = format!("replay export {id}");
    assert_eq!(succeed(data.path(), &export), succeed(&copy, &export));
}

#[test]
fn stats_and_verify_cover_the_folders_in_the_folder_and_name_those_that_are_damaged() {
    let (data, places) = recorded();
    let stats = |data: &Path| json_lines(data, "replay stats --json").remove(0);
    let sum = stats(data.path());
    assert_eq!((&sum["episodes"], &sum["runs"], &sum["segments"]), (&54.into(), &3.into(), &3.into()));
    let listed = json_lines(data.path(), "replay ls --json");
    assert_eq!(sum["steps"], listed.iter().map(|line| line["length"].as_u64().unwrap()).sum::<u64>());
    let bytes: u64 = places.iter().map(|place| segment_bytes(place)).sum();
    assert_eq!(sum["bytes"], bytes);
    assert_eq!(sum["envs"]["Pendulum-v1"], stats(&places[2])["envs"]["Pendulum-v1"]);
    assert!(succeed(data.path(), "replay stats").contains("over it and 2 folders in it"));
    assert!(!succeed(&places[1], "replay stats").contains("Added up"));
    assert_eq!(json_lines(data.path(), "replay verify --all --json").len(), 54);

    flip_in_the_middle(&segments(&places[2])[0]);
    let damage = stats(data.path())["damage"].as_array().unwrap().clone();
    assert!(!damage.is_empty() && damage.iter().all(|stretch| stretch["folder"] == "python-b"), "{damage:?}");
    // By itself the folder needs no name.
    assert!(stats(&places[2])["damage"][0]["folder"].is_null());
    for line in ["replay verify --all", "replay repair"] {
        let done = run(data.path(), line);
        assert_eq!(done.code, Some(3), "{line}: {}", done.stderr);
        assert!(done.stdout.contains("python-b"), "{line}: {}", done.stdout);
    }
    assert_eq!(run(&places[1], "replay verify --all").code, Some(0));
}

#[test]
fn repair_repairs_every_folder_but_those_that_are_being_written() {
    let (data, [_, a, b]) = recorded();
    for place in [data.path(), &a] {
        let file = segments(place).remove(0);
        let bytes = fs::read(&file).unwrap();
        // The seal and a little more, as a crash leaves it.
        fs::write(&file, &bytes[..bytes.len() - 70]).unwrap();
    }
    let before = segment_bytes(&b);
    let mut writer = Running::start(&b, "rollout --env Acrobot-v1 --lanes 2 --steps 1000000000000");
    writer.until_written(&b, before + 1);
    let repaired = succeed(data.path(), "replay repair");
    assert!(repaired.contains(&format!("{}: 1 segment sealed", a.display())), "{repaired}");
    assert!(repaired.contains(&format!("{}: 1 segment sealed", data.path().display())), "{repaired}");
    assert!(repaired.contains("2 folders repaired"), "{repaired}");
    let busy = format!("{} is being recorded into by process {}", b.display(), writer.id());
    assert!(repaired.contains(&busy), "{repaired}");
    assert_eq!(json_lines(data.path(), "replay stats --json")[0]["writing"], true);
    // By itself it is refused, as one folder always was.
    assert_eq!(run(&b, "replay repair").code, Some(4));
    writer.signal("INT");
    assert_eq!(writer.wait().code, Some(130));
    assert!(succeed(data.path(), "replay repair").contains("3 folders repaired"));
    assert_eq!(run(data.path(), "replay verify --all").code, Some(0));
}

#[test]
fn a_folder_that_only_has_folders_in_it_is_read_and_left_as_it_is() {
    let data = Folder::new();
    succeed(&data.path().join("python-a"), "rollout --env CartPole-v1 --lanes 2 --episodes 3");
    fs::create_dir(data.path().join("notes")).unwrap();
    assert_eq!(json_lines(data.path(), "replay ls --json").len(), 3);
    for line in ["replay stats", "replay verify --all", "replay repair"] {
        succeed(data.path(), line);
    }
    let mut names: Vec<_> =
        fs::read_dir(data.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["notes", "python-a"]);
}

/// Both read more pages than one, and the coordinator looks up more episodes than it keeps at a time.
#[test]
fn a_long_listing_is_whole_in_a_folder_and_from_a_coordinator() {
    let cluster = Cluster::new(&[]);
    let spool = cluster.path("coordinator").join("store").join("node-aaaaaaaa");
    succeed(&spool, "rollout --env CartPole-v1 --lanes 512 --episodes 40000 --seed 5");
    let (coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let connection = cluster.connection("viewer", &address);
    for query in ["--sort name", "--sort -return --min-return 20"] {
        let here = succeed(&spool, &format!("replay ls --json {query}"));
        let asked = succeed(&spool, &format!("replay ls --json {query} --connect {connection}"));
        let lines = here.lines().count();
        assert!(lines > 16_384 + 1000, "{lines} episodes");
        assert!(here == asked, "{query}: the coordinator gives other lines");
        let first: Vec<&str> = here.lines().take(1234).collect();
        let some = succeed(&spool, &format!("replay ls --json {query} --limit 1234 --connect {connection}"));
        assert_eq!(some.lines().collect::<Vec<_>>(), first);
    }
    let all = ids(&json_lines(&spool, "replay ls --json"));
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 40_000);
    let table = succeed(&spool, "replay ls");
    assert_eq!(table.lines().count(), 1 + 40_000, "one head, however many pages");
    coordinator.end();
}

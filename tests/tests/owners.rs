//! Owners whose sessions are on one node, which records all of them into the same segments.

use std::fs;

use rollhouse_tests::{Cluster, Service, json_lines, run, succeed};
use serde_json::Value;

/// A token's connection string, in a file.
fn token(cluster: &Cluster, address: &str, name: &str) -> String {
    let data = cluster.path("coordinator");
    let line = format!("token create --role trainer --name {name} --json --data {}", data.display());
    let made = &json_lines(cluster.folder(), &line)[0];
    let (file, ca) = (cluster.path(&format!("with-{name}")), cluster.path("ca").join("ca.pem"));
    let token = made["token"].as_str().unwrap();
    fs::write(&file, format!("rollhouse://{address}?token={token}&ca={}\n", ca.display())).unwrap();
    file.display().to_string()
}

/// Number of runs with a record in each segment of the coordinator's store.
fn runs_of_segments(cluster: &Cluster) -> Vec<usize> {
    let mut found = Vec::new();
    for folder in fs::read_dir(cluster.path("coordinator").join("store")).unwrap() {
        let Ok(segments) = fs::read_dir(folder.unwrap().path().join("segments")) else { continue };
        for segment in segments {
            let bytes = fs::read(segment.unwrap().path()).unwrap();
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let (mut at, mut runs) = (0, std::collections::BTreeSet::new());
            while at < bytes.len() {
                if bytes[at + 9] == 2 {
                    runs.insert(word(at + 48));
                }
                at += 64 + word(at + 12) as usize;
            }
            found.push(runs.len());
        }
    }
    found
}

/// Symptom: a trainer whose episodes stood in one segment with those of others listed them, and could neither show,
/// verify nor export them. Cause: readers read whole segments. Fix: an owner is given the part that is his own.
#[test]
fn a_trainer_shows_verifies_and_exports_his_episodes_from_segments_that_others_share() {
    let cluster = Cluster::new(&["one"]);
    let (_coordinator, address) = cluster.coordinator("127.0.0.1:0");
    let _node = cluster.node("one", &address);
    let (ada, eve) = (token(&cluster, &address, "ada"), token(&cluster, &address, "eve"));
    let line = format!("rollout --connect {eve} --env CartPole-v1 --lanes 4 --steps 1000000000000");
    let playing = Service::start(cluster.folder(), &line.split(' ').collect::<Vec<_>>());
    loop {
        let open = json_lines(cluster.folder(), &format!("sessions --json --connect {eve}"));
        if open.first().is_some_and(|open| open["episodes"] != 0) {
            break;
        }
        std::thread::yield_now();
    }
    let line = format!("rollout --connect {ada} --env CartPole-v1 --lanes 4 --episodes 40 --seed 3 --json");
    let report: Value = serde_json::from_str(&succeed(cluster.folder(), &line)).unwrap();
    assert_eq!(report["stored"], true);
    drop(playing);
    assert!(runs_of_segments(&cluster).contains(&2), "{:?}", runs_of_segments(&cluster));

    let listed = json_lines(cluster.folder(), &format!("replay ls --json --limit 1000 --connect {ada}"));
    assert_eq!(listed.len(), 40);
    let name = listed[0]["id"].as_str().unwrap();
    let run_of_ada = name.split('-').next().unwrap();
    assert!(listed.iter().all(|episode| episode["id"].as_str().unwrap().starts_with(run_of_ada)));
    let shown = json_lines(cluster.folder(), &format!("replay show {name} --json --connect {ada}"));
    assert_eq!(shown[0]["length"], listed[0]["length"]);
    let verified = run(cluster.folder(), &format!("replay verify --all --connect {ada}"));
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    assert!(!verified.stdout.contains("damage"), "{}", verified.stdout);
    let steps = json_lines(cluster.folder(), &format!("replay export {name} --connect {ada}"));
    assert!(steps.len() as u64 >= listed[0]["length"].as_u64().unwrap());
    let file = cluster.path("alone.rhr");
    succeed(
        cluster.folder(),
        &format!("replay export {name} --format rhr -o {} --connect {ada}", file.display()),
    );
    succeed(
        cluster.folder(),
        &format!("replay import {} --data {}", file.display(), cluster.path("own").display()),
    );

    // Of others' episodes he reads none.
    let others = json_lines(cluster.folder(), &format!("replay ls --json --limit 1 --connect {eve}"));
    let other = others[0]["id"].as_str().unwrap();
    let refused = run(cluster.folder(), &format!("replay show {other} --connect {ada}"));
    assert_ne!(refused.code, Some(0), "{}", refused.stdout);
}

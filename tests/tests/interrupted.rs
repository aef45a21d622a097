//! Runs that are ended early, and readers beside a run that goes on.

use std::collections::BTreeSet;

use rollhouse_tests::{Chance, Folder, Running, json_lines, run, soak, succeed};

/// Long episodes on few lanes: thousands of them a second, not hundreds of thousands, since readers list them all.
const ENDLESS: &str = "rollout --env Acrobot-v1 --lanes 4 --steps 1000000000000 --threads 1";

fn names(data: &Folder) -> BTreeSet<String> {
    let lines = json_lines(data.path(), "replay ls --json");
    lines.iter().map(|line| line["id"].as_str().map(str::to_owned).unwrap_or_default()).collect()
}

#[test]
fn ctrl_c_ends_a_run_with_what_was_recorded() {
    let data = Folder::new();
    let mut running = Running::start(data.path(), &format!("{ENDLESS} --json"));
    running.until_written(data.path(), 20_000);
    running.signal("INT");
    let done = running.wait();
    assert_eq!(done.code, Some(130), "{}", done.stderr);
    let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(report["outcomes"]["cancelled"], 4);
    let counted = |what: &str| report[what].as_u64().unwrap();
    let all = counted("episodes") + counted("interrupted");
    assert_eq!((&report["recorded"]["episodes"], names(&data).len() as u64), (&all.into(), all));
    assert_eq!(run(data.path(), "replay verify --all").code, Some(0));
}

#[test]
fn a_second_ctrl_c_leaves_at_once_and_what_was_written_stays_readable() {
    let data = Folder::new();
    let mut running = Running::start(data.path(), ENDLESS);
    running.until_written(data.path(), 20_000);
    // Whether the second one still meets the process is up to chance; both ends are right.
    running.signal("INT");
    running.signal("INT");
    assert_eq!(running.wait().code, Some(130));
    assert_eq!(run(data.path(), "replay verify --all").code, Some(0));
    assert!(!names(&data).is_empty());
}

#[test]
fn a_folder_can_be_read_while_a_run_is_writing_into_it() {
    let data = Folder::new();
    succeed(data.path(), "rollout --env CartPole-v1 --lanes 8 --episodes 40");
    let before = names(&data);
    let mut running = Running::start(data.path(), ENDLESS);
    for bytes in [30_000, 60_000, 90_000] {
        running.until_written(data.path(), bytes);
        let found = names(&data);
        assert!(found.is_superset(&before));
        assert!(found.len() > before.len());
        let one = found.last().unwrap();
        for line in [format!("replay show {one}"), format!("replay export {one}")] {
            assert_eq!(run(data.path(), &line).code, Some(0), "{line}");
        }
        assert_eq!(run(data.path(), "replay stats").code, Some(0));
    }
    running.signal("INT");
    running.wait();
    assert_eq!(run(data.path(), "replay verify --all").code, Some(0));
}

/// Kills runs at random moments, one after another in the same folder: before anything is written, and after
/// any number of bytes.
#[test]
fn runs_killed_at_random_moments_lose_nothing_a_reader_had_seen() {
    let mut chance = Chance::new(30);
    for round in 0..soak() {
        let data = Folder::new();
        let mut seen = BTreeSet::new();
        for kill in 0..30 {
            let written = rollhouse_tests::segment_bytes(data.path());
            let mut running = Running::start(data.path(), ENDLESS);
            running.until_written(data.path(), written + chance.below(12_000));
            if chance.below(3) == 0 {
                // A run of another reader between the look and the kill.
                seen.extend(names_if_any(&data));
            }
            running.kill();
            let found = names_if_any(&data);
            let lost: Vec<_> = seen.difference(&found).collect();
            assert!(lost.is_empty(), "round {round}, kill {kill}: lost {lost:?}");
            let verified = run(data.path(), "replay verify --all");
            let nothing_yet = verified.code == Some(2) && found.is_empty();
            assert!(
                verified.code == Some(0) || nothing_yet,
                "kill {kill}: {}{}",
                verified.stdout,
                verified.stderr
            );
            seen = found;
        }
        assert!(!seen.is_empty());
        succeed(data.path(), "replay repair");
        assert_eq!(names(&data), seen);
    }
}

/// The names of all episodes that were ended when they were looked at; of those still open the recording may
/// break off elsewhere next time, but they are there too.
fn names_if_any(data: &Folder) -> BTreeSet<String> {
    if data.path().join("segments").exists() { names(data) } else { BTreeSet::new() }
}

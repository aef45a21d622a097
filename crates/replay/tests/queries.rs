//! Queries that are answered from the catalogue give what going through every chunk gives, whatever state it is in.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{EpisodeName, GameResult, Outcome, RecordRule};
use rollhouse_replay::{
    EpisodeInfo, Library, Query, RealDisk, RecorderConfig, Replays, Sort, repair, rows_path, segment_path,
    summary_path,
};
use tempfile::TempDir;

use crate::stage::{Play, play_with};

/// Several runs and envs in hundreds of segments, as a recorder leaves them: each with its entry, and all gathered.
fn recorded() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    for one in [
        Play::new("CartPole-v1", 900),
        Play { lanes: 20, seed: 5, per_episode: false, ..Play::new("CartPole-v1", 700) },
        Play { lanes: 9, seed: 6, max_steps: 150, record: RecordRule::Trace, ..Play::new("Acrobot-v1", 400) },
        Play { lanes: 3, seed: 7, max_steps: 90, ..Play::new("Pendulum-v1", 300) },
        Play { lanes: 6, seed: 8, max_steps: 60, ..Play::new("test/Faulty-v0", 300) },
    ] {
        play_with(Arc::new(RealDisk), dir, RecorderConfig::default(), &one, |row, recorder, block| {
            if row % 10 == 9 {
                block.flush();
                recorder.seal().unwrap();
            }
        });
    }
    assert!(fs::read_dir(dir.join("segments")).unwrap().count() > 200);
    assert!(summary_path(dir, 1).is_file() && rows_path(dir, 1).is_file());
    assert!(dir.join("catalogue.sum").is_file(), "the entries are gathered");
    folder
}

fn names(replays: &Replays, query: &Query) -> Vec<EpisodeName> {
    replays.list(query).unwrap().iter().map(|info| info.name).collect()
}

/// Orders, filters and limits in many combinations.
fn queries(dir: &Path) -> Vec<Query> {
    let run = Replays::open(Arc::new(RealDisk), dir).unwrap().list(&Query::default()).unwrap()[0].name.run;
    let sorts = ["name", "-name", "return", "-return", "length", "-length", "started", "-started"];
    let truncated: Outcome = "truncated".parse().unwrap();
    let filters = [
        Query::default(),
        Query { env: Some("CartPole-v1".into()), ..Query::default() },
        Query { min_return: Some(40.0), ..Query::default() },
        Query { min_return: Some(-1000.0), outcome: Some(truncated), ..Query::default() },
        Query { run: Some(run), ..Query::default() },
        Query { all_outcomes: true, ..Query::default() },
        Query { result: Some(GameResult::Win), ..Query::default() },
        Query { result: Some(GameResult::None), min_return: Some(30.0), ..Query::default() },
    ];
    let mut queries = Vec::new();
    for (sort, filter) in sorts.iter().flat_map(|sort| filters.iter().map(move |filter| (sort, filter))) {
        let sort: Sort = sort.parse().unwrap();
        for limit in [Some(1), Some(13), None] {
            queries.push(Query { sort, limit, ..filter.clone() });
        }
    }
    queries
}

#[test]
fn packed_rows_give_the_episodes_that_chunks_give() {
    let folder = recorded();
    let (disk, dir) = (Arc::new(RealDisk), folder.path());
    let scanned = Replays::open_scanning(disk.clone(), dir).unwrap();
    let packed = Replays::open(disk, dir).unwrap();
    assert_eq!(packed.stats().unwrap(), scanned.stats().unwrap());
    for query in queries(dir) {
        let wanted = scanned.list(&query).unwrap();
        assert_eq!(packed.list(&query).unwrap(), wanted, "{query:?}");
        let mut sorted = wanted.clone();
        sorted.sort_by(|a, b| query.sort.compare(a, b));
        assert_eq!(sorted, wanted, "{query:?}");
    }
}

/// Symptom: reading an episode by name took 8.5 ms where reading it from a listing took 0.2. Cause: `find` decoded every
/// chunk of the extents that may hold the name. Fix: it goes through the packed rows, as listings do.
#[test]
fn an_episode_is_found_by_its_name_without_reading_a_segment() {
    let folder = recorded();
    let replays = Replays::open(Arc::new(RealDisk), folder.path()).unwrap();
    let listed = replays.list(&Query { all_outcomes: true, ..Query::default() }).unwrap();
    fs::remove_dir_all(folder.path().join("segments")).unwrap();
    for info in listed.iter().step_by(37) {
        assert_eq!(replays.find(info.name).unwrap(), *info);
    }
}

#[test]
fn an_episode_is_listed_under_the_result_that_its_env_gave_it() {
    let folder = recorded();
    let replays = Replays::open(Arc::new(RealDisk), folder.path()).unwrap();
    let all = replays.list(&Query::default()).unwrap();
    for result in GameResult::ALL.into_iter().chain([GameResult::None]) {
        let listed = replays.list(&Query { result: Some(result), ..Query::default() }).unwrap();
        let wanted: Vec<_> = all.iter().filter(|info| info.result == result).cloned().collect();
        assert!(!wanted.is_empty(), "{result:?}");
        assert_eq!(listed, wanted, "{result:?}");
    }
}

#[test]
fn pages_joined_are_the_whole_listing() {
    let folder = recorded();
    let replays = Replays::open(Arc::new(RealDisk), folder.path()).unwrap();
    for query in queries(folder.path()).into_iter().filter(|query| query.limit.is_none()) {
        let whole = names(&replays, &query);
        let (mut joined, mut page) = (Vec::new(), Query { limit: Some(97), ..query.clone() });
        loop {
            let found = replays.list(&page).unwrap();
            joined.extend(found.iter().map(|info| info.name));
            let Some(last) = found.last() else { break };
            page.after = Some(query.sort.rank_of(last));
        }
        assert_eq!(joined, whole, "{query:?}");
    }
}

/// What is asked and what a reader of every byte answers.
fn answers(dir: &Path) -> Vec<(Query, Vec<EpisodeInfo>)> {
    let scanned = Replays::open_scanning(Arc::new(RealDisk), dir).unwrap();
    queries(dir).into_iter().map(|query| (query.clone(), scanned.list(&query).unwrap())).collect()
}

fn check(dir: &Path, wanted: &[(Query, Vec<EpisodeInfo>)], what: &str) {
    let replays = Replays::open(Arc::new(RealDisk), dir).unwrap();
    for (query, wanted) in wanted {
        assert_eq!(replays.list(query).unwrap(), *wanted, "{what}: {query:?}");
    }
    for info in wanted.iter().flat_map(|(_, infos)| infos.iter().step_by(701)) {
        assert_eq!(replays.find(info.name).unwrap(), *info, "{what}: {}", info.name);
    }
    let library = Library::open(Arc::new(RealDisk), dir).unwrap();
    let scanned = Library::open_scanning(Arc::new(RealDisk), dir).unwrap();
    assert_eq!(library.stats().unwrap(), scanned.stats().unwrap(), "{what}");
}

fn each_file(dir: &Path, change: impl Fn(&Path)) {
    fs::read_dir(dir).unwrap().for_each(|file| change(&file.unwrap().path()));
}

fn scramble(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes.iter_mut().step_by(3).for_each(|byte| *byte ^= 0x5A);
    fs::write(path, bytes).unwrap();
}

#[test]
fn rows_and_entries_that_are_missing_or_scrambled_cost_reading_and_nothing_else() {
    let folder = recorded();
    let dir = folder.path();
    let wanted = answers(dir);
    check(dir, &wanted, "as recorded");
    each_file(&dir.join("rows"), scramble);
    check(dir, &wanted, "rows scrambled");
    each_file(&dir.join("rows"), |path| fs::remove_file(path).unwrap());
    check(dir, &wanted, "no rows");
    each_file(&dir.join("summaries"), scramble);
    check(dir, &wanted, "entries scrambled, those gathered are whole");
    fs::remove_dir_all(dir.join("catalogue")).unwrap();
    check(dir, &wanted, "nothing gathered");
    fs::remove_dir_all(dir.join("summaries")).unwrap();
    check(dir, &wanted, "nothing left");
    repair(Arc::new(RealDisk), dir).unwrap();
    assert!(summary_path(dir, 1).is_file() && dir.join("catalogue").is_dir());
    check(dir, &wanted, "made anew");
}

#[test]
fn entries_of_segments_that_were_dropped_or_changed_say_nothing() {
    let folder = recorded();
    let dir = folder.path();
    // As a budget drops the oldest, in the middle of a run: heads are gone.
    for number in 1..30 {
        fs::remove_file(segment_path(dir, number)).unwrap();
    }
    // Others of the same length where both the entry and what is gathered know what was there.
    for number in [70, 120, 170] {
        let mut bytes = fs::read(segment_path(dir, number)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(segment_path(dir, number), bytes).unwrap();
    }
    let wanted = answers(dir);
    let (_, all) = wanted.iter().find(|(query, _)| *query == Query::default()).unwrap();
    let (before, now) = (Replays::open(Arc::new(RealDisk), dir).unwrap().incomplete().unwrap(), all.len());
    assert!(before > 0 && now > 0, "{before} without a head, {now} listed");
    check(dir, &wanted, "stale");
}

/// Readers take no turns: sled locks its files, and who comes second reads what stands beside the segments.
#[test]
fn a_second_reader_and_one_who_may_not_write_find_the_same() {
    let folder = recorded();
    let dir = folder.path();
    let wanted = answers(dir);
    let held = sled::Config::new().path(dir.join("catalogue")).open().unwrap();
    check(dir, &wanted, "in use");
    drop(held);
    check(dir, &wanted, "closed by somebody else");
}

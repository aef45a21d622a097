//! Queries that are answered from packed rows give what going through every chunk gives.
#![allow(missing_docs, clippy::unwrap_used)]

mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_core::{EpisodeName, Outcome};
use rollhouse_replay::{
    Query, RealDisk, Replays, SegmentSummary, Sort, rows_path, segment_number, segment_path,
};
use stage::{Play, play};

/// A folder of this test's own, removed at its end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Several runs and envs, and beside each segment what a store keeps.
fn recorded(name: &str) -> Folder {
    let dir = std::env::temp_dir().join(format!("rollhouse-queries-{name}-{}", std::process::id()));
    let disk = Arc::new(RealDisk);
    for one in [
        Play::new("CartPole-v1", 900),
        Play { lanes: 20, seed: 5, per_episode: false, ..Play::new("CartPole-v1", 700) },
        Play { lanes: 9, seed: 6, max_steps: 150, ..Play::new("Acrobot-v1", 400) },
        Play { lanes: 3, seed: 7, max_steps: 90, ..Play::new("Pendulum-v1", 300) },
    ] {
        play(disk.clone(), &dir, &one);
    }
    for file in fs::read_dir(dir.join("segments")).unwrap() {
        let name = file.unwrap().file_name();
        let Some(number) = segment_number(name.to_str().unwrap()) else { continue };
        let file = rollhouse_replay::Disk::open(&*disk, &segment_path(&dir, number)).unwrap();
        SegmentSummary::read(number, &*file).unwrap().store(&*disk, &dir).unwrap();
        assert!(rows_path(&dir, number).is_file());
    }
    Folder(dir)
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
    let folder = recorded("same");
    let (disk, dir) = (Arc::new(RealDisk), &folder.0);
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

#[test]
fn pages_joined_are_the_whole_listing() {
    let folder = recorded("pages");
    let replays = Replays::open(Arc::new(RealDisk), &folder.0).unwrap();
    for query in queries(&folder.0).into_iter().filter(|query| query.limit.is_none()) {
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

#[test]
fn rows_that_are_missing_or_scrambled_cost_reading_and_nothing_else() {
    let folder = recorded("scrambled");
    let (disk, dir) = (Arc::new(RealDisk), &folder.0);
    let wanted: Vec<_> = {
        let scanned = Replays::open_scanning(disk.clone(), dir).unwrap();
        queries(dir).iter().map(|query| names(&scanned, query)).collect()
    };
    for missing in [false, true] {
        for file in fs::read_dir(dir.join("rows")).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            match missing {
                true => fs::remove_file(&path).unwrap(),
                false => {
                    bytes.iter_mut().step_by(3).for_each(|byte| *byte ^= 0x5A);
                    fs::write(&path, bytes).unwrap();
                }
            }
        }
        let replays = Replays::open(disk.clone(), dir).unwrap();
        for (query, wanted) in queries(dir).iter().zip(&wanted) {
            assert_eq!(names(&replays, query), *wanted, "{query:?}");
        }
    }
}

//! Questions about the episodes of a store: the answers are those of a reader of all of it, a page at a time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::stage;

use std::path::Path;
use std::sync::Arc;

use rollhouse_coordinator::{Receive, Store, StoreConfig, StoreError};
use rollhouse_core::GameResult;
use rollhouse_replay::testing::{Faults, FaultyDisk};
use rollhouse_replay::{FolderStats, Library, Query, RecorderConfig, segment_path};
use rollhouse_wire::{RefusalCode, Ship, Shipped, StoreQuery};
use stage::{Play, play_with};

const DIR: &str = "/store";

/// The segments of a play, as a node seals them.
fn recorded(what: &Play) -> Vec<Vec<u8>> {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/spool"));
    let config = RecorderConfig { budget_bytes: u64::MAX, ..RecorderConfig::default() };
    play_with(Arc::new(disk.clone()), dir, config, what, |row, recorder, block| {
        if row % 60 == 59 {
            block.flush();
            recorder.seal().unwrap();
        }
    });
    (1..).map_while(|number| disk.read(&segment_path(dir, number))).collect()
}

fn ship(store: &Store, number: usize, bytes: &[u8]) {
    assert_eq!(ship_from(store, "node-a", number, bytes).unwrap(), Shipped::Durable);
}

fn ship_from(store: &Store, node: &str, number: usize, bytes: &[u8]) -> Result<Shipped, StoreError> {
    let (len, crc) = (bytes.len() as u64, crc32c::crc32c(bytes));
    let ship =
        Ship { spool: "aaaaaaaa".into(), segment: number as u64 + 1, bytes: len, crc, owned: Vec::new() };
    match store.receive(node, &ship)? {
        Receive::Bytes(mut receiving) => {
            receiving.write(bytes)?;
            receiving.finish()
        }
        Receive::Answer(shipped) => Ok(shipped),
    }
}

/// Names of the episodes that a store gives in pages of seven.
fn pages(store: &Store, query: &StoreQuery) -> Vec<String> {
    let (mut names, mut query) = (Vec::new(), StoreQuery { limit: 7, ..query.clone() });
    loop {
        let page = store.episodes(&query).unwrap();
        assert!(page.episodes.len() <= 7);
        names.extend(page.episodes.iter().map(|e| format!("{}-{}-{}", e.run, e.lane, e.number)));
        if !page.more || page.episodes.is_empty() {
            return names;
        }
        query.after = page.after;
    }
}

#[test]
fn pages_of_a_store_are_what_a_reader_of_it_lists_also_while_segments_come() {
    let disk = FaultyDisk::new();
    let config = StoreConfig { budget_bytes: 1 << 30, quarantine_bytes: 1 << 20 };
    let store = Store::open(Arc::new(disk.clone()), Path::new(DIR), config).unwrap();
    let segments = recorded(&Play { lanes: 5, max_steps: 60, ..Play::new("test/Faulty-v0", 400) });
    assert!(segments.len() > 3);
    for (number, bytes) in segments.iter().enumerate() {
        ship(&store, number, bytes);
        check(&store, &disk, &format!("after segment {number}"));
    }
}

/// What the store answers is what a reader of every byte of it finds.
fn check(store: &Store, disk: &FaultyDisk, when: &str) -> FolderStats {
    let library = Library::open_scanning(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
    let outcome = Some("truncated".parse().unwrap());
    // The last is the first of the next check: the coordinator still knows what it looked up for it.
    for (sort, min_return, all_outcomes) in [
        ("name", None, false),
        ("-return", Some(12.0), false),
        ("-return", Some(12.0), true),
        ("length", Some(12.0), false),
        ("-name", None, false),
        ("name", None, false),
    ] {
        for (outcome, result) in [(None, None), (outcome, None), (None, Some(GameResult::Win))] {
            let sort_by = sort.parse().unwrap();
            let query =
                Query { sort: sort_by, min_return, outcome, result, all_outcomes, ..Query::default() };
            let wanted = library.list(&query).unwrap();
            let name = |info: &rollhouse_replay::EpisodeInfo| {
                format!("{}-{}-{}", info.run_id(), info.name.lane, info.name.number)
            };
            let wanted: Vec<String> = wanted.iter().map(|episode| name(&episode.info)).collect();
            let outcome = outcome.map(|_| "truncated".to_owned());
            let (sort, result) = (sort.to_owned(), result.and_then(GameResult::word).map(str::to_owned));
            let asked =
                StoreQuery { sort, min_return, outcome, result, all_outcomes, ..StoreQuery::default() };
            assert_eq!(pages(store, &asked), wanted, "{query:?} {when}");
        }
    }
    let (told, read) = (store.stats().unwrap(), library.stats().unwrap());
    assert_eq!((told.steps, told.segments, told.bytes), (read.steps, read.segments, read.bytes), "{when}");
    assert_eq!((told.runs, told.incomplete), (read.runs, read.incomplete), "{when}");
    for ((env, outcome), episodes) in &read.episodes {
        let mut counts = told.episodes.iter().filter(|count| (&count.env, &*count.outcome) == (env, outcome));
        assert_eq!(counts.next().map(|count| count.episodes), Some(*episodes), "{when}");
    }
    read
}

#[test]
fn copies_contradictions_and_lost_heads_are_counted_as_a_reader_of_all_counts_them() {
    let disk = FaultyDisk::new();
    let play = Play { lanes: 5, ..Play::new("CartPole-v1", 400) };
    let (first, other) = (recorded(&play), recorded(&Play { max_steps: 30, ..play.clone() }));
    let bytes = |segments: &[Vec<u8>]| segments.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
    // Room for all but the first.
    let budget_bytes = bytes(&first[1..]) + bytes(&first[1..4]) + bytes(&other[2..]) + 10;
    let config = StoreConfig { budget_bytes, quarantine_bytes: 1 << 20 };
    let store = Store::open(Arc::new(disk.clone()), Path::new(DIR), config).unwrap();
    for (number, bytes) in first.iter().enumerate() {
        ship(&store, number, bytes);
    }
    for (node, from, segments) in [("node-b", 1, &first[1..4]), ("node-c", 2, &other[2..])] {
        for (number, bytes) in (from..).zip(segments) {
            assert_eq!(ship_from(&store, node, number, bytes).unwrap(), Shipped::Durable);
            check(&store, &disk, &format!("after segment {number} of {node}"));
        }
    }
    assert!(store.counts().dropped_segments > 0 && store.counts().set_aside > 0, "{:?}", store.counts());
    assert!(check(&store, &disk, "at the end").incomplete > 0);
    drop(store);
    let store = Store::open(Arc::new(disk.clone()), Path::new(DIR), config).unwrap();
    check(&store, &disk, "opened anew");
}

#[test]
fn a_crash_at_any_operation_of_the_disk_leaves_no_wrong_answer() {
    let segments = recorded(&Play { lanes: 5, ..Play::new("CartPole-v1", 200) });
    let config = StoreConfig { budget_bytes: 1 << 30, quarantine_bytes: 1 << 20 };
    let mut crashes = 0;
    for at in 1.. {
        let disk = FaultyDisk::new();
        disk.set_faults(Faults { fail_at: Some(at), fail_on: true, ..Faults::default() });
        let whole = Store::open(Arc::new(disk.clone()), Path::new(DIR), config).is_ok_and(|store| {
            let shipped =
                segments.iter().enumerate().map(|(number, bytes)| ship_from(&store, "node-a", number, bytes));
            shipped.filter(Result::is_err).count() == 0
        });
        for tail in [0, 1, 7, usize::MAX] {
            let left = disk.after_power_cut(|_, unsynced| unsynced.min(tail));
            let store = Store::open(Arc::new(left.clone()), Path::new(DIR), config).unwrap();
            check(&store, &left, &format!("crashed at operation {at}, {tail} more bytes of each file"));
        }
        if whole && disk.operations() < at {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 30, "{crashes} operations");
}

#[test]
fn a_question_that_makes_no_sense_is_refused() {
    let config = StoreConfig { budget_bytes: 1 << 30, quarantine_bytes: 1 << 20 };
    let store = Store::open(Arc::new(FaultyDisk::new()), Path::new(DIR), config).unwrap();
    let plain = StoreQuery { sort: "name".into(), limit: 1, ..StoreQuery::default() };
    assert_eq!(store.episodes(&plain).unwrap().episodes, []);
    for asked in [
        StoreQuery { sort: "colour".into(), ..plain.clone() },
        StoreQuery { outcome: Some("bored".into()), ..plain.clone() },
        StoreQuery { result: Some("none".into()), ..plain.clone() },
        StoreQuery { after: vec![1, 2], ..plain.clone() },
    ] {
        let refusal = store.episodes(&asked).unwrap_err().refusal();
        assert_eq!(refusal.code, RefusalCode::BadRequest, "{asked:?}: {}", refusal.message);
    }
    // However much is asked for, a page is bounded.
    assert!(store.episodes(&StoreQuery { limit: u32::MAX, ..plain }).is_ok());
}

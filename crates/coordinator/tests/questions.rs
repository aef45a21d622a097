//! Questions about the episodes of a store: the answers are those of a reader of all of it, a page at a time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../replay/tests/stage/mod.rs"]
mod stage;

use std::path::Path;
use std::sync::Arc;

use rollhouse_coordinator::{Receive, Store, StoreConfig};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Library, Query, RecorderConfig, segment_path};
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
    let (len, crc) = (bytes.len() as u64, crc32c::crc32c(bytes));
    let ship = Ship { spool: "aaaaaaaa".into(), segment: number as u64 + 1, bytes: len, crc };
    let Receive::Bytes(mut receiving) = store.receive("node-a", &ship).unwrap() else { panic!("known") };
    receiving.write(bytes).unwrap();
    assert_eq!(receiving.finish().unwrap(), Shipped::Durable);
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
    let segments = recorded(&Play { lanes: 5, ..Play::new("CartPole-v1", 400) });
    assert!(segments.len() > 3);
    for (number, bytes) in segments.iter().enumerate() {
        ship(&store, number, bytes);
        let library = Library::open_scanning(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
        for sort in ["name", "-return", "length"] {
            let query = Query { sort: sort.parse().unwrap(), min_return: Some(12.0), ..Query::default() };
            let wanted = library.list(&query).unwrap();
            let name = |info: &rollhouse_replay::EpisodeInfo| {
                format!("{}-{}-{}", info.run_id(), info.name.lane, info.name.number)
            };
            let wanted: Vec<String> = wanted.iter().map(|episode| name(&episode.info)).collect();
            let asked =
                StoreQuery { sort: sort.to_owned(), min_return: query.min_return, ..StoreQuery::default() };
            assert_eq!(pages(&store, &asked), wanted, "{sort} after segment {number}");
        }
        let (told, read) = (store.stats().unwrap(), library.stats().unwrap());
        assert_eq!((told.steps, told.segments, told.bytes), (read.steps, read.segments, read.bytes));
        let sum = |counts: Vec<u64>| counts.into_iter().sum::<u64>();
        let told = sum(told.episodes.iter().map(|count| count.episodes).collect());
        assert_eq!(told, sum(read.episodes.values().copied().collect()));
    }
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
        StoreQuery { after: vec![1, 2], ..plain.clone() },
    ] {
        let refusal = store.episodes(&asked).unwrap_err().refusal();
        assert_eq!(refusal.code, RefusalCode::BadRequest, "{asked:?}: {}", refusal.message);
    }
    // However much is asked for, a page is bounded.
    assert!(store.episodes(&StoreQuery { limit: u32::MAX, ..plain }).is_ok());
}

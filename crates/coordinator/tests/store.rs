//! The store: what it takes, what it keeps aside, and what a crash leaves of it.
#![allow(missing_docs, clippy::unwrap_used)]

use crate::stage;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollhouse_coordinator::{Receive, Store, StoreConfig, StoreError};
use rollhouse_core::RunId;
use rollhouse_env::Registry;
use rollhouse_replay::limits::LEAST_SEGMENT_COST;
use rollhouse_replay::testing::{Faults, FaultyDisk};
use rollhouse_replay::{
    Disk, Library, LibraryEpisode, OpenError, Query, RealDisk, Recorder, RecorderConfig, Replays, SetAside,
    rows_path, segment_path, summary_path,
};
use rollhouse_wire::limits::MAX_SHIP_BYTES;
use rollhouse_wire::{OwnerPart, PoolStatus, RefusalCode, Ship, Shipped, pool_id_of};
use stage::{Play, play_into, play_with, run_of};

#[path = "store_parts/aside.rs"]
mod aside;
#[path = "store_parts/labels.rs"]
mod labels;
#[path = "store_parts/many.rs"]
mod many;
#[path = "store_parts/order.rs"]
mod order;
#[path = "store_parts/rivals.rs"]
mod rivals;

const DIR: &str = "/store";

/// One segment in which a node recorded several runs.
fn recorded_together(node: &'static str, plays: &[Play]) -> Parcel {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/spool"));
    let config = RecorderConfig { budget_bytes: u64::MAX, ..RecorderConfig::default() };
    let recorder = Recorder::open(Arc::new(disk.clone()), dir, config).unwrap();
    plays.iter().for_each(|play| play_into(&recorder, play, |_, _, _| {}));
    recorder.finish().unwrap();
    parcel(node, "aaaaaaaa", 1, disk.read(&segment_path(dir, 1)).unwrap())
}

/// A segment as a node ships it.
#[derive(Clone)]
struct Parcel {
    node: &'static str,
    ship: Ship,
    bytes: Vec<u8>,
}

fn parcel(node: &'static str, spool: &str, segment: u64, bytes: Vec<u8>) -> Parcel {
    let crc = crc32c::crc32c(&bytes);
    Parcel {
        node,
        ship: Ship { spool: spool.into(), segment, bytes: bytes.len() as u64, crc, owned: Vec::new() },
        bytes,
    }
}

/// What a node records of `what`, in segments of 60 rows.
fn recorded(node: &'static str, what: &Play) -> Vec<Parcel> {
    let disk = FaultyDisk::new();
    let dir = Path::new("/spool");
    let config = RecorderConfig { budget_bytes: u64::MAX, ..RecorderConfig::default() };
    play_with(Arc::new(disk.clone()), dir, config, what, |row, recorder, block| {
        if row % 60 == 59 {
            block.flush();
            recorder.seal().unwrap();
        }
    });
    let of =
        |number| disk.read(&segment_path(dir, number)).map(|bytes| parcel(node, "aaaaaaaa", number, bytes));
    (1..).map_while(of).collect()
}

fn cart_pole() -> Play {
    Play { lanes: 4, ..Play::new("CartPole-v1", 200) }
}

/// The budget for just these segments: each counts as a block of the disk at least.
fn room_for(sizes: &[u64]) -> u64 {
    sizes.iter().map(|bytes| (*bytes).max(LEAST_SEGMENT_COST)).sum()
}

fn open_with(disk: &FaultyDisk, budget_bytes: u64) -> Result<Store, OpenError> {
    let config = StoreConfig { budget_bytes, quarantine_bytes: 1 << 20 };
    Store::open(Arc::new(disk.clone()), Path::new(DIR), config)
}

fn open(disk: &FaultyDisk) -> Store {
    open_with(disk, 1 << 30).unwrap()
}

fn ship(store: &Store, parcel: &Parcel) -> Result<Shipped, StoreError> {
    match store.receive(parcel.node, &parcel.ship)? {
        Receive::Answer(answer) => Ok(answer),
        Receive::Bytes(mut receiving) => {
            for piece in parcel.bytes.chunks(1000) {
                receiving.write(piece)?;
            }
            receiving.finish()
        }
    }
}

fn library(disk: &FaultyDisk) -> Library {
    Library::open_scanning(Arc::new(disk.clone()), Path::new(DIR)).unwrap()
}

fn listed(disk: &FaultyDisk) -> Vec<String> {
    let list = library(disk).list(&Query::default()).unwrap();
    list.iter().map(|episode| format!("{} {}", episode.info.name, episode.info.length)).collect()
}

/// Lengths of finished episodes by name.
fn finished(disk: &FaultyDisk) -> BTreeMap<String, u64> {
    let list = library(disk).list(&Query::default()).unwrap();
    let finished = list.iter().map(|episode| &episode.info).filter(|info| info.outcome.is_finished());
    let lengths: Vec<_> = finished.map(|info| (info.name.to_string(), info.length)).collect();
    let by_name: BTreeMap<_, _> = lengths.iter().cloned().collect();
    assert_eq!(by_name.len(), lengths.len(), "an episode is listed twice");
    by_name
}

/// The same play recorded in one folder.
fn alone(what: &Play) -> Vec<String> {
    let disk = FaultyDisk::new();
    stage::play(Arc::new(disk.clone()), Path::new("/alone"), what);
    let list = Replays::open(Arc::new(disk), Path::new("/alone")).unwrap().list(&Query::default()).unwrap();
    list.iter().map(|info| format!("{} {}", info.name, info.length)).collect()
}

#[test]
fn what_two_nodes_shipped_of_a_run_is_read_as_one_and_verifies() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let whole = Play { lanes: 8, ..cart_pole() };
    for (node, first_lane) in [("node-a", 0), ("node-b", 4)] {
        for parcel in recorded(node, &Play { first_lane, run_lanes: 8, ..cart_pole() }) {
            assert_eq!(ship(&store, &parcel).unwrap(), Shipped::Durable);
        }
    }
    assert_eq!(listed(&disk), alone(&whole));
    let mut verified = 0;
    library(&disk).verify_all(&Registry::builtin(), |found| verified += u64::from(found.ok)).unwrap();
    assert_eq!(verified, alone(&whole).len() as u64);
    assert_eq!(library(&disk).damage().count(), 0);
    assert_eq!((store.status().segments, store.counts().received), (8, 8));
}

#[test]
fn a_segment_that_is_there_is_known_without_its_bytes() {
    let disk = FaultyDisk::new();
    let parcels = recorded("node-a", &cart_pole());
    let store = open(&disk);
    ship(&store, &parcels[0]).unwrap();
    for _ in 0..2 {
        let begun = store.receive("node-a", &parcels[0].ship).unwrap();
        assert!(matches!(begun, Receive::Answer(Shipped::Known)));
    }
    drop(store);
    let store = open(&disk);
    assert!(matches!(store.receive("node-a", &parcels[0].ship).unwrap(), Receive::Answer(Shipped::Known)));
    assert_eq!(store.counts().known, 1);
}

#[test]
fn the_same_segment_received_twice_at_a_time_is_placed_once() {
    let disk = FaultyDisk::new();
    let parcel = &recorded("node-a", &cart_pole())[0];
    let store = open(&disk);
    let begin = || match store.receive("node-a", &parcel.ship).unwrap() {
        Receive::Bytes(receiving) => receiving,
        Receive::Answer(answer) => panic!("{answer:?}"),
    };
    let (mut one, mut other) = (begin(), begin());
    one.write(&parcel.bytes).unwrap();
    other.write(&parcel.bytes).unwrap();
    assert_eq!(one.finish().unwrap(), Shipped::Durable);
    assert_eq!(other.finish().unwrap(), Shipped::Known);
    assert_eq!((store.status().segments, store.counts().failed), (1, 0));
}

#[test]
fn bytes_other_than_announced_are_refused_and_leave_nothing() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let good = recorded("node-a", &cart_pole()).remove(0);
    let files = disk.paths();
    let mut flipped = good.clone();
    flipped.bytes[700] ^= 1;
    let shorter = Parcel { bytes: good.bytes[..good.bytes.len() - 1].to_vec(), ..good.clone() };
    let mut longer = good.clone();
    longer.bytes.push(0);
    for bad in [&flipped, &shorter, &longer] {
        let refused = ship(&store, bad).unwrap_err();
        assert!(matches!(refused, StoreError::Arrived { .. }), "{refused}");
        assert_eq!(refused.refusal().code, RefusalCode::Busy, "it may be sent again");
    }
    let Receive::Bytes(mut begun) = store.receive("node-a", &good.ship).unwrap() else { panic!() };
    begun.write(&good.bytes[..2000]).unwrap();
    drop(begun);
    assert_eq!(disk.paths(), files);
    assert_eq!(store.counts().failed, 4);
    assert_eq!(ship(&store, &good).unwrap(), Shipped::Durable);
}

#[test]
fn names_numbers_and_lengths_out_of_bounds_are_refused_before_anything_is_made() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let good = recorded("node-a", &cart_pole()).remove(0).ship;
    let files = disk.paths();
    for node in ["", "..", "a/b", ".a", "a\0", "/etc", "ä", &"n".repeat(300)] {
        let refused = store.receive(node, &good).unwrap_err();
        assert!(matches!(refused, StoreError::Name(_)), "{node:?}: {refused}");
    }
    for spool in
        ["", "a/..", "../x", "x y", "1-aaaaaa", "aaaaaaa", "aaaaaaaaa", "2-aaaaaaaa", "aaaa.aaa", "aaaaaaaä"]
    {
        let refused = store.receive("node-a", &Ship { spool: spool.into(), ..good.clone() }).unwrap_err();
        assert!(matches!(refused, StoreError::Spool(_)), "{spool:?}: {refused}");
        assert_eq!(refused.refusal().code, RefusalCode::BadRequest);
    }
    for bad in
        [Ship { bytes: MAX_SHIP_BYTES + 1, ..good.clone() }, Ship { segment: 10_000_000_000, ..good.clone() }]
    {
        let refused = store.receive("node-a", &bad).unwrap_err();
        assert!(matches!(refused, StoreError::Segment { .. }), "{refused}");
        assert_eq!(refused.refusal().code, RefusalCode::BadRequest);
    }
    assert_eq!(disk.paths(), files);
}

#[test]
fn no_more_than_a_bounded_number_is_received_at_a_time() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let ship = recorded("node-a", &cart_pole()).remove(0).ship;
    let mut open: Vec<_> = (0..4).map(|_| store.receive("node-a", &ship).unwrap()).collect();
    let refused = store.receive("node-a", &ship).unwrap_err();
    assert_eq!(refused.refusal().code, RefusalCode::Busy, "a node takes no more than its share");
    open.extend((0..60).map(|node| store.receive(&format!("other-{}", node / 4), &ship).unwrap()));
    let refused = store.receive("node-b", &ship).unwrap_err();
    assert_eq!(refused.refusal().code, RefusalCode::Busy);
    open.pop();
    assert!(store.receive("node-b", &ship).is_ok());
    open.remove(0);
    open.pop();
    assert!(store.receive("node-a", &ship).is_ok());
}

#[test]
fn equal_copies_from_another_spool_are_listed_once() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    for parcel in recorded("node-a", &cart_pole()) {
        assert_eq!(ship(&store, &parcel).unwrap(), Shipped::Durable);
        let mut copy = parcel.clone();
        copy.ship.spool = "bbbbbbbb".into();
        assert_eq!(ship(&store, &copy).unwrap(), Shipped::Durable);
    }
    assert_eq!(listed(&disk), alone(&cart_pole()));
    assert_eq!(library(&disk).count().unwrap(), alone(&cart_pole()).len() as u64);
}

#[test]
fn episodes_under_way_are_no_broken_ones_while_the_store_is_open() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let parcels = recorded("node-a", &Play { lanes: 4, ..Play::new("Pendulum-v1", 190) });
    ship(&store, &parcels[0]).unwrap();
    assert!(listed(&disk).is_empty(), "all four are 60 steps old and go on");
    assert!(library(&disk).is_writing());
    drop(store);
    assert_eq!(listed(&disk).len(), 4, "nobody will bring the rest");
    let store = open(&disk);
    for parcel in &parcels[1..] {
        ship(&store, parcel).unwrap();
    }
    assert_eq!(listed(&disk).len(), 4);
    assert!(library(&disk).list(&Query::default()).unwrap().iter().all(|e| e.info.length == 189));
}

#[test]
fn beyond_the_budget_the_oldest_segments_are_dropped_whole_and_counted() {
    let disk = FaultyDisk::new();
    let parcels = recorded("node-a", &cart_pole());
    let sizes: Vec<u64> = parcels.iter().map(|parcel| parcel.ship.bytes).collect();
    let store = open_with(&disk, room_for(&sizes[2..])).unwrap();
    for parcel in &parcels {
        ship(&store, parcel).unwrap();
    }
    let counts = store.counts();
    assert_eq!((counts.dropped_segments, counts.dropped_bytes), (2, sizes[0] + sizes[1]));
    assert_eq!((store.status().segments, store.status().bytes), (2, sizes[2] + sizes[3]));
    let dir = Path::new("/store/node-a-aaaaaaaa");
    let left: Vec<PathBuf> = disk.paths().into_iter().filter(|path| path.starts_with(dir)).collect();
    let kept = [3, 4]
        .iter()
        .flat_map(|&number| [segment_path(dir, number), summary_path(dir, number), rows_path(dir, number)]);
    let mut kept: Vec<PathBuf> = kept.collect();
    kept.sort_unstable();
    assert_eq!(left, kept);
    drop(store);
    assert_eq!(open_with(&disk, 1).unwrap().status().segments, 1, "the newest stays in any case");
}

#[test]
fn a_folder_whose_last_segment_was_dropped_goes_with_it_and_comes_back_when_its_node_ships_again() {
    let disk = FaultyDisk::new();
    let [first, second, third] = ["node-a", "node-b", "node-c"].map(|node| recorded(node, &cart_pole()));
    let store = open_with(&disk, room_for(&[first[0].ship.bytes, second[0].ship.bytes])).unwrap();
    let names = || {
        let listing = store.list("", "").unwrap().entries;
        listing.into_iter().filter(|entry| entry.bytes.is_none()).map(|entry| entry.name).collect::<Vec<_>>()
    };
    ship(&store, &first[0]).unwrap();
    ship(&store, &second[0]).unwrap();
    assert_eq!(names(), ["node-a-aaaaaaaa", "node-b-aaaaaaaa"]);
    ship(&store, &third[0]).unwrap();
    assert_eq!(names(), ["node-b-aaaaaaaa", "node-c-aaaaaaaa"]);
    assert!(disk.real_dir(Path::new("/store/node-a-aaaaaaaa")).is_none());
    assert_eq!(ship(&store, &first[3]).unwrap(), Shipped::Durable);
    assert!(names().contains(&"node-a-aaaaaaaa".to_owned()));
}

#[test]
fn a_store_has_one_owner_and_is_repaired_by_nobody_else() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    ship(&store, &recorded("node-a", &cart_pole())[0]).unwrap();
    assert!(matches!(open_with(&disk, 1), Err(OpenError::Locked { .. })));
    let repairs =
        rollhouse_replay::repair_all(&(Arc::new(disk.clone()) as Arc<dyn Disk>), Path::new(DIR)).unwrap();
    assert!(repairs.iter().all(|repair| repair.result.is_err()), "{repairs:?}");
    drop(store);
    open(&disk);
}

#[test]
fn lists_and_reads_what_it_has_and_nothing_else() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let parcels = recorded("node-a", &cart_pole());
    for parcel in &parcels {
        ship(&store, parcel).unwrap();
    }
    disk.write(Path::new("/secret"), b"secret".to_vec());
    disk.write(Path::new("/store/node-a-aaaaaaaa/segments/0000000099.seg"), b"secret".to_vec());
    let names = |path: &str, after: &str| -> Vec<String> {
        store.list(path, after).unwrap().entries.into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(names("", ""), ["node-a-aaaaaaaa", "store.lock"]);
    assert_eq!(names("", "node-a-aaaaaaaa"), ["store.lock"]);
    assert_eq!(names("node-a-aaaaaaaa", ""), ["rows", "segments", "summaries"]);
    let segments = store.list("node-a-aaaaaaaa/segments", "0000000002.seg").unwrap();
    let sizes: Vec<Option<u64>> = segments.entries.iter().map(|entry| entry.bytes).collect();
    assert_eq!(sizes, parcels[2..].iter().map(|parcel| Some(parcel.ship.bytes)).collect::<Vec<_>>());
    for path in [
        "/",
        "..",
        "node-a-aaaaaaaa/",
        "node-a-aaaaaaaa/..",
        "incoming",
        "quarantine",
        "a",
        "./node-a-aaaaaaaa",
    ] {
        assert!(matches!(store.list(path, ""), Err(StoreError::NotFound(_))), "{path}");
    }
    let segment = "node-a-aaaaaaaa/segments/0000000002.seg";
    let bytes = &parcels[1].bytes;
    let (read, len) = store.read(segment, 0, 4 << 20).unwrap();
    assert_eq!((&read, len), (bytes, bytes.len() as u64));
    assert_eq!(store.read(segment, 100, 50).unwrap().0, bytes[100..150]);
    assert_eq!(store.read(segment, len - 1, 50).unwrap().0, bytes[bytes.len() - 1..]);
    assert!(store.read(segment, len + 5, 50).unwrap().0.is_empty());
    assert!(store.read("node-a-aaaaaaaa/summaries/0000000002.sum", 0, 50).is_ok());
    assert!(store.read("node-a-aaaaaaaa/rows/0000000002.rows", 0, 50).is_ok());
    for path in [
        "",
        "/secret",
        "../secret",
        "node-a-aaaaaaaa/../../secret",
        "node-a-aaaaaaaa/segments/../../../secret",
        "node-a-aaaaaaaa/segments/0000000099.seg",
        "node-a-aaaaaaaa/segments/2.seg",
        "store.lock",
        "node-a-aaaaaaaa/segments/0000000002.seg/x",
        "node-a-aaaaaaaa/summaries/0000000099.sum",
        "node-a-aaaaaaaa/rows/0000000099.rows",
    ] {
        assert!(matches!(store.read(path, 0, 10), Err(StoreError::NotFound(_))), "{path}");
    }
    assert!(matches!(store.read(segment, 0, (4 << 20) + 1), Err(StoreError::TooMuch { .. })));
}

#[test]
fn links_in_the_folder_lead_nowhere() {
    let dir = std::env::temp_dir().join(format!("rollhouse-store-{}", std::process::id()));
    let segments = dir.join("node-a-aaaaaaaa").join("segments");
    std::fs::create_dir_all(&segments).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", segments.join("0000000001.seg")).unwrap();
    std::os::unix::fs::symlink("/etc", dir.join("etc")).unwrap();
    let config = StoreConfig { budget_bytes: 1 << 30, quarantine_bytes: 1 << 20 };
    let store = Store::open(Arc::new(RealDisk), &dir, config).unwrap();
    for path in ["node-a-aaaaaaaa/segments/0000000001.seg", "etc/passwd", "etc/segments/0000000001.seg"] {
        assert!(matches!(store.read(path, 0, 10), Err(StoreError::NotFound(_))), "{path}");
    }
    assert!(store.list("node-a-aaaaaaaa/segments", "").unwrap().entries.is_empty());
    // And it works on a real disk.
    let parcel = parcel("node-b", "aaaaaaaa", 1, recorded("node-b", &cart_pole())[0].bytes.clone());
    assert_eq!(ship(&store, &parcel).unwrap(), Shipped::Durable);
    let library = Library::open(Arc::new(RealDisk), &dir).unwrap();
    assert!(library.count().unwrap() > 0 && library.is_writing());
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_panic_at_any_operation_costs_its_request_alone_and_the_same_store_goes_on() {
    let parcels = recorded("node-a", &cart_pole());
    let clean = FaultyDisk::new();
    let store = open(&clean);
    let before = clean.operations();
    parcels.iter().for_each(|parcel| assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable));
    for at in 1..=clean.operations() - before {
        let disk = FaultyDisk::new();
        let store = open(&disk);
        let fail_at = Some(disk.operations() + at);
        disk.set_faults(Faults { fail_at, panics: true, ..Faults::default() });
        let ships = parcels.iter().map(|parcel| catch_unwind(AssertUnwindSafe(|| ship(&store, parcel))));
        assert_eq!(ships.filter(Result::is_err).count(), 1, "operation {at}");
        disk.set_faults(Faults::default());
        for parcel in &parcels {
            let answer = ship(&store, parcel).unwrap();
            assert!(matches!(answer, Shipped::Durable | Shipped::Known), "operation {at}: {answer:?}");
        }
        assert_eq!(listed(&disk), alone(&cart_pole()), "operation {at}");
    }
}

#[test]
fn a_crash_at_any_operation_leaves_whole_segments_and_all_that_were_acknowledged() {
    let parcels = recorded("node-a", &cart_pole());
    let contradiction = recorded("node-b", &Play { max_steps: 9, ..cart_pole() }).remove(0);
    let work = |disk: &FaultyDisk| -> Vec<usize> {
        let Ok(store) = open_with(disk, 1 << 30) else { return Vec::new() };
        let mut acknowledged = Vec::new();
        for (at, parcel) in parcels.iter().enumerate() {
            if ship(&store, parcel).is_ok_and(|answer| answer == Shipped::Durable) {
                acknowledged.push(at);
            }
        }
        if acknowledged.len() == parcels.len() {
            let _tried = ship(&store, &contradiction);
        }
        acknowledged
    };
    let counting = FaultyDisk::new();
    assert_eq!(work(&counting).len(), parcels.len());
    let operations = counting.operations();
    let whole = {
        let disk = FaultyDisk::new();
        let store = open(&disk);
        parcels.iter().for_each(|parcel| assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable));
        finished(&disk)
    };
    for fail_on in [false, true] {
        for at in 1..=operations {
            let disk = FaultyDisk::new();
            disk.set_faults(Faults { fail_at: Some(at), fail_on, ..Faults::default() });
            let acknowledged = work(&disk);
            disk.set_faults(Faults::default());
            for kept in [0, usize::MAX] {
                let disk = disk.after_power_cut(|_, _| kept);
                let store = open(&disk);
                let library = library(&disk);
                assert_eq!(library.damage().count(), 0, "operation {at}, {fail_on}");
                for &index in &acknowledged {
                    let again = store.receive("node-a", &parcels[index].ship).unwrap();
                    assert!(
                        matches!(again, Receive::Answer(Shipped::Known)),
                        "operation {at}: {index} is lost"
                    );
                }
                assert!(disk.paths().iter().all(|path| !path.starts_with("/store/incoming")));
                for parcel in &parcels {
                    let answer = ship(&store, parcel).unwrap();
                    assert!(
                        matches!(answer, Shipped::Durable | Shipped::Known),
                        "operation {at}: {answer:?}"
                    );
                }
                assert_eq!(
                    finished(&disk).iter().filter(|known| whole.get(known.0) == Some(known.1)).count(),
                    whole.len()
                );
                let answer = ship(&store, &contradiction).unwrap();
                assert!(matches!(answer, Shipped::Durable | Shipped::Known), "operation {at}: {answer:?}");
                let now = finished(&disk);
                let (mut kept, all) = (0, whole.len());
                whole.iter().for_each(|(name, length)| kept += usize::from(now.get(name) == Some(length)));
                assert_eq!(kept, all, "operation {at}: what came first is listed");
                assert!(store.status().set_aside > 0, "operation {at}");
            }
        }
    }
}

#[test]
fn repair_reads_a_segment_again_renews_its_summary_and_has_readers_find_what_is_damaged() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let parcels = recorded("node-a", &cart_pole());
    for parcel in &parcels[..2] {
        assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable);
    }
    let dir = Path::new(DIR).join("node-a-aaaaaaaa");
    let path = |number: u64| format!("node-a-aaaaaaaa/segments/{number:010}.seg");
    let readers = || Library::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap().damage().count();
    // One loses its summary, the other a bit, of which its summary knows nothing.
    disk.remove(&summary_path(&dir, 1)).unwrap();
    let mut rotten = parcels[1].bytes.clone();
    rotten[700] ^= 1;
    disk.write(&segment_path(&dir, 2), rotten.clone());
    assert_eq!(readers(), 0);
    let repaired = store.repair(&path(1)).unwrap();
    assert_eq!((repaired.bytes, repaired.damaged), (parcels[0].ship.bytes, false));
    assert!(disk.read(&summary_path(&dir, 1)).is_some());
    let repaired = store.repair(&path(2)).unwrap();
    assert_eq!((repaired.bytes, repaired.damaged), (parcels[1].ship.bytes, true));
    assert_eq!(readers(), 1);
    assert_eq!(disk.read(&segment_path(&dir, 2)), Some(rotten), "it stays as it is");
    for missing in ["", "node-a-aaaaaaaa", "node-b/segments/0000000001.seg", &path(9), "store.lock"] {
        assert!(matches!(store.repair(missing), Err(StoreError::NotFound(_))), "{missing}");
    }
}

/// What the store's disk does for a while, and where.
const OUTAGES: [(&str, Faults); 9] = [
    ("full", Faults { capacity: Some(0), ..NO_FAULTS }),
    ("full after a part", Faults { capacity: Some(60_000), short_writes: Some(701), ..NO_FAULTS }),
    ("arriving segments cannot be synced", Faults { fail_syncs: true, only: Some("incoming"), ..NO_FAULTS }),
    ("nothing can be synced", Faults { fail_syncs: true, ..NO_FAULTS }),
    ("read-only", Faults { read_only: true, ..NO_FAULTS }),
    ("places are read-only", Faults { read_only: true, only: Some("segments"), ..NO_FAULTS }),
    (
        "folders cannot be synced",
        Faults { fail_at: Some(0), fail_on: true, only: Some("/segments"), ..NO_FAULTS },
    ),
    (
        "arriving segments cannot be made",
        Faults { fail_at: Some(0), fail_on: true, only: Some(".part"), ..NO_FAULTS },
    ),
    ("nothing works", Faults { fail_at: Some(0), fail_on: true, ..NO_FAULTS }),
];

const NO_FAULTS: Faults = Faults {
    panics: false,
    fail_at: None,
    fail_on: false,
    short_writes: None,
    capacity: None,
    fail_syncs: false,
    stall_syncs: false,
    read_only: false,
    only: None,
    pretend_syncs: None,
    pretend_dir_syncs: None,
};

#[test]
fn a_disk_that_takes_nothing_is_told_by_name_loses_nothing_and_is_used_again_when_it_does() {
    let parcels = recorded("node-a", &Play { lanes: 60, ..cart_pole() });
    for (what, faults) in OUTAGES {
        let disk = FaultyDisk::new();
        let store = open(&disk);
        for parcel in &parcels[..2] {
            assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable, "{what}");
        }
        let before = listed(&disk);
        let room = faults.capacity.map(|room| if room == 0 { 0 } else { disk.used() + 3_000 });
        disk.set_faults(Faults { capacity: room, ..faults });
        for _ in 0..3 {
            let refused = ship(&store, &parcels[2]).expect_err(what);
            let StoreError::Disk(error) = &refused else { panic!("{what}: {refused}") };
            assert_eq!(error.is_full(), what.starts_with("full"), "{what}: {error}");
            let code = if error.is_full() { RefusalCode::Busy } else { RefusalCode::Internal };
            assert_eq!(refused.refusal().code, code, "{what}");
            // What was there can be read and is known; after a power cut too.
            assert_eq!(listed(&disk), before, "{what}");
            assert_eq!(ship(&store, &parcels[0]).unwrap(), Shipped::Known, "{what}");
            let left = disk.after_power_cut(|_, unsynced| unsynced);
            let after = open(&left);
            assert_eq!(after.status().segments, 2, "{what}");
            assert_eq!(listed(&left), before, "{what}");
        }
        assert_eq!(store.counts().failed, 3, "{what}");
        disk.set_faults(NO_FAULTS);
        for parcel in &parcels[2..] {
            assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable, "{what}");
        }
        let left = disk.after_power_cut(|_, _| 0);
        assert_eq!(listed(&left).len(), alone(&Play { lanes: 60, ..cart_pole() }).len(), "{what}");
        assert_eq!(library(&left).damage().count(), 0, "{what}");
    }
}

#[test]
fn a_flipped_bit_in_the_store_is_named_and_costs_no_other_segment() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let parcels = recorded("node-a", &cart_pole());
    for parcel in &parcels {
        ship(&store, parcel).unwrap();
    }
    drop(store);
    let whole = listed(&disk);
    let path = segment_path(Path::new("/store/node-a-aaaaaaaa"), 2);
    for byte in (0..parcels[1].bytes.len()).step_by(61) {
        disk.flip(&path, byte, byte as u32);
        let library = library(&disk);
        let torn = library.stats().unwrap().torn_bytes;
        assert!(library.damage().count() > 0 || torn > 0, "byte {byte}");
        // Whatever is still listed is what was recorded, and the other segments' episodes are.
        let found = listed(&disk);
        let known = found.iter().filter(|episode| whole.contains(episode)).count();
        assert!(known * 2 >= whole.len(), "byte {byte}: {known} of {}", whole.len());
        // Without its summary the store sees it when it is opened, and says so.
        disk.remove(&summary_path(Path::new("/store/node-a-aaaaaaaa"), 2)).ok();
        assert_eq!(open(&disk).counts().damaged, 1, "byte {byte}");
        disk.flip(&path, byte, byte as u32);
    }
    assert_eq!(listed(&disk), whole);
}

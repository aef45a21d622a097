//! What a store keeps in memory of many runs.

use allocation_counter::measure;
use rollhouse_wire::StoreQuery;

use super::*;

/// Segments in each of which a node recorded so many short runs.
fn of_many(segments: u64, runs: u64) -> Vec<Parcel> {
    let (disk, dir) = (FaultyDisk::new(), Path::new("/spool"));
    let config = RecorderConfig { budget_bytes: u64::MAX, ..RecorderConfig::default() };
    let recorder = Recorder::open(Arc::new(disk.clone()), dir, config).unwrap();
    for seed in 0..segments * runs {
        let play = Play { lanes: 1, seed, max_steps: 4, ..Play::new("CartPole-v1", 5) };
        play_into(&recorder, &play, |_, _, _| {});
        if seed % runs == runs - 1 {
            recorder.seal().unwrap();
        }
    }
    recorder.finish().unwrap();
    let bytes = |number| disk.read(&segment_path(dir, number));
    (1..=segments).map(|number| parcel("node-a", "aaaaaaaa", number, bytes(number).unwrap())).collect()
}

/// Bytes that a store keeps after it was opened, the most that it took meanwhile, and what it keeps after questions.
fn bytes_of(disk: &FaultyDisk) -> (i64, u64, i64) {
    let mut store = None;
    let opened = measure(|| store = Some(open(disk)));
    let store = store.unwrap();
    let asked = measure(|| {
        store.stats().unwrap();
        let query = StoreQuery { limit: 20, sort: "-return".into(), ..StoreQuery::default() };
        store.episodes(&query).unwrap();
    });
    (opened.bytes_current, opened.bytes_max, asked.bytes_current)
}

/// Symptom: a coordinator's memory grew by 8 KiB with each run that was ever recorded, and 80,000 runs took 1.5 to 1.9 GB as
/// it started. Cause: it read the headers of all runs together, and kept them decoded for questions, with a tree of its own
/// for each run. Fix: what tells runs apart stands in the segments' entries, which are read one after the other; a header is
/// read when it is needed, through a bounded cache, and the runs are kept in one flat set.
#[test]
fn a_run_more_costs_a_store_hundreds_of_bytes_and_no_header() {
    const FEW: u64 = 10;
    const MANY: u64 = 30;
    const RUNS: u64 = 40;
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let parcels = of_many(MANY, RUNS);
    let mut known = None;
    for (at, parcel) in (1..).zip(&parcels) {
        assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable);
        if at == FEW {
            // Another process cannot open it meanwhile.
            let copy = disk.after_power_cut(|_, unsynced| unsynced);
            known = Some(bytes_of(&copy));
        }
    }
    drop(store);
    let (few, many) = (known.unwrap(), bytes_of(&disk));
    let more = ((MANY - FEW) * RUNS) as i64;
    let kept = (many.0 - few.0) / more;
    let most = (many.1 as i64 - few.1 as i64) / more;
    let asked = (many.2 - few.2) / more;
    assert!(kept < 300 && most < 600 && asked < 600, "of a run more: {kept}, at most {most}, asked {asked}");
}

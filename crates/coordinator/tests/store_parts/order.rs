//! In which order the store drops what it has, whatever the clocks say; and whose folders are whose.

use super::*;

/// The segment as a node records it whose clock shows `ms`.
fn with_clock(parcel: &Parcel, ms: u64) -> Parcel {
    let mut bytes = parcel.bytes.clone();
    bytes[40..48].copy_from_slice(&ms.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    let ship = Ship { crc: crc32c::crc32c(&bytes), ..parcel.ship.clone() };
    Parcel { node: parcel.node, ship, bytes }
}

/// Segments of some nodes, each with its own run.
fn of_nodes(nodes: &[&'static str]) -> Vec<Parcel> {
    let play = |seed: usize| Play { seed: 100 + seed as u64, ..cart_pole() };
    nodes.iter().enumerate().map(|(seed, node)| recorded(node, &play(seed)).remove(0)).collect()
}

fn is_there(store: &Store, parcel: &Parcel) -> bool {
    matches!(store.receive(parcel.node, &parcel.ship).unwrap(), Receive::Answer(Shipped::Known))
}

/// Symptom: a node whose clock was behind was told `durable`, and its segment was dropped in the same moment, for good.
/// Cause: what was oldest was decided by the times in the segments, which are the nodes'. Fix: the order of arrival is
/// kept, durably.
#[test]
fn what_came_first_is_dropped_first_whatever_the_clocks_of_nodes_show() {
    let parcels = of_nodes(&["node-a", "node-b", "node-c", "node-d"]);
    let years = 40 * 365 * 86_400_000;
    // The second node is decades ahead, the third decades behind, and the fourth's clock goes back.
    let clocks = [1_700_000_000_000, 1_700_000_000_000 + years, 1_700_000_000_000 - years, 1];
    let parcels: Vec<Parcel> = parcels.iter().zip(clocks).map(|(p, ms)| with_clock(p, ms)).collect();
    let sizes: Vec<u64> = parcels.iter().map(|parcel| parcel.ship.bytes).collect();
    let disk = FaultyDisk::new();
    let budget = room_for(&sizes[1..]);
    let store = open_with(&disk, budget).unwrap();
    for (at, parcel) in parcels.iter().enumerate() {
        assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable);
        assert!(is_there(&store, parcel), "{at}: what is told as durable is there");
    }
    assert!(!is_there(&store, &parcels[0]) && parcels[1..].iter().all(|parcel| is_there(&store, parcel)));
    drop(store);
    // Also after a power cut, and if the summaries are gone.
    disk.remove(&summary_path(Path::new("/store/node-c-aaaaaaaa"), 1)).unwrap();
    let left = disk.after_power_cut(|_, _| 0);
    let store = open_with(&left, room_for(&sizes[2..])).unwrap();
    assert!(!is_there(&store, &parcels[1]) && parcels[2..].iter().all(|parcel| is_there(&store, parcel)));
    drop(store);
    let store = open_with(&left, sizes[3]).unwrap();
    assert!(!is_there(&store, &parcels[2]) && is_there(&store, &parcels[3]));
}

#[test]
fn a_store_of_an_earlier_version_is_read_and_drops_what_it_had_before_what_comes() {
    let parcels = of_nodes(&["node-a", "node-b", "node-c"]);
    let disk = FaultyDisk::new();
    let store = open(&disk);
    ship(&store, &with_clock(&parcels[0], 9_000_000_000_000)).unwrap();
    ship(&store, &with_clock(&parcels[1], 8_000_000_000_000)).unwrap();
    drop(store);
    disk.remove(Path::new("/store/arrivals")).unwrap();
    // A folder by a name that no node can have any more is read all the same.
    let odd = Path::new("/store/node-2-b-cccc");
    disk.create_dir(&odd.join("segments")).unwrap();
    disk.write(&segment_path(odd, 1), parcels[2].bytes.clone());
    let episodes = finished(&disk);
    let store = open(&disk);
    assert_eq!(store.status().segments, 3);
    assert_eq!(finished(&disk), episodes);
    drop(store);
    let newest = with_clock(&parcels[2], 1);
    let sizes = parcels[0].ship.bytes + newest.ship.bytes;
    let store = open_with(&disk, sizes).unwrap();
    assert_eq!(ship(&store, &newest).unwrap(), Shipped::Durable);
    assert!(is_there(&store, &newest), "what came last stays");
}

/// Symptom: what was set aside was dropped in the order of names, so that the newest went first. Fix: by arrival.
#[test]
fn what_was_set_aside_first_is_dropped_first_whatever_its_name() {
    let bad = |node, byte: u8| parcel(node, "aaaaaaaa", 1, vec![byte; 400_000]);
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let names = |store: &Store| -> Vec<String> {
        let listing = store.list("quarantine", "").unwrap();
        listing.entries.into_iter().map(|entry| entry.name.split('-').next().unwrap().to_owned()).collect()
    };
    for (at, node) in ["z", "m", "a", "k"].into_iter().enumerate() {
        assert_eq!(ship(&store, &bad(node, at as u8)).unwrap(), Shipped::Quarantined);
    }
    // A megabyte holds two of them.
    assert_eq!(names(&store), ["a", "k"]);
    drop(store);
    let store = open(&disk.after_power_cut(|_, _| 0));
    assert_eq!(names(&store), ["a", "k"]);
    assert_eq!(ship(&store, &bad("c", 9)).unwrap(), Shipped::Quarantined);
    assert_eq!(names(&store), ["c", "k"]);
}

/// Symptom: segments of an earlier version's quarantine could be read by nothing. Fix: each has a folder of its own,
/// also those that are there.
#[test]
fn what_an_earlier_version_set_aside_is_listed_and_read() {
    let first = recorded("node-a", &cart_pole()).remove(0);
    let disk = FaultyDisk::new();
    drop(open(&disk));
    disk.create_dir(Path::new("/store/quarantine/node-a-aaaaaaaa")).unwrap();
    let name = format!("/store/quarantine/node-a-aaaaaaaa/{:010}-{:08x}.seg", 1, first.ship.crc);
    disk.write(Path::new(&name), first.bytes.clone());
    let store = open(&disk);
    assert_eq!(store.status().quarantined, 1);
    assert!(matches!(store.receive("node-a", &first.ship).unwrap(), Receive::Answer(Shipped::Quarantined)));
    let aside = Library::open_set_aside(&(Arc::new(disk.clone()) as _), Path::new(DIR)).unwrap();
    let episodes = aside.list(&Query::default()).unwrap();
    assert!(!episodes.is_empty());
    for episode in episodes {
        episode.folder.load(&episode.info).unwrap();
    }
    // From afar it is found by the same names.
    let folder = format!("quarantine/{}", store.list("quarantine", "").unwrap().entries[0].name);
    let segment = &store.list(&format!("{folder}/segments"), "").unwrap().entries[0];
    let (bytes, _) = store.read(&format!("{folder}/segments/{}", segment.name), 0, 4 << 20).unwrap();
    assert_eq!(bytes, first.bytes);
    assert!(store.list("", "").unwrap().entries.iter().any(|entry| entry.name == "quarantine"));
}

/// Symptom: node `node` with spool `2-yfph53s9` wrote into the folder of node `node-2`, whose own segments were set
/// aside then. Cause: a folder is named by both, and a spool's name was not looked at. Fix: it has 8 letters and digits.
#[test]
fn no_node_can_name_the_folder_of_another() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let victim = recorded("node-2", &cart_pole()).remove(0);
    let mut culprit = recorded("node", &Play { seed: 8, ..cart_pole() }).remove(0);
    culprit.ship.spool = "2-aaaaaaaa".into();
    let refused = ship(&store, &culprit).unwrap_err();
    assert_eq!(refused.refusal().code, RefusalCode::BadRequest, "{refused}");
    assert_eq!(ship(&store, &victim).unwrap(), Shipped::Durable);
    culprit.ship.spool = "aaaaaaaa".into();
    assert_eq!(ship(&store, &culprit).unwrap(), Shipped::Durable);
    let folders: Vec<String> = store.list("", "").unwrap().entries.into_iter().map(|e| e.name).collect();
    assert_eq!(folders, ["node-2-aaaaaaaa", "node-aaaaaaaa", "store.lock"]);
}

/// Symptom: once 4,096 nodes had come and gone, the store took nothing of new ones, and readers refused it. Fix: a store
/// may have sixteen times as many folders, and no node more than 4,096 of them.
#[test]
fn thousands_of_short_lived_nodes_end_neither_taking_nor_reading() {
    let disk = FaultyDisk::new();
    let short = recorded("node-a", &Play { lanes: 1, ..Play::new("Pendulum-v1", 60) }).remove(0);
    for node in 0..5_000 {
        let dir = PathBuf::from(format!("/store/short-{node}-aaaaaaaa"));
        disk.create_dir(&dir.join("segments")).unwrap();
        disk.write(&segment_path(&dir, 1), short.bytes.clone());
    }
    let store = open(&disk);
    let next = recorded("node-b", &cart_pole()).remove(0);
    assert_eq!(ship(&store, &next).unwrap(), Shipped::Durable);
    let library = Library::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
    assert_eq!(library.folders().len(), 5_002);
    assert!(library.list(&Query::default()).unwrap().len() > 3);
    // One that draws spool after spool takes no more than its share.
    let spool = |at: usize| Ship { spool: format!("{at:08}"), ..short.ship.clone() };
    for at in 0..4_096 {
        let dir = PathBuf::from(format!("/store/greedy-{at:08}"));
        disk.create_dir(&dir.join("segments")).unwrap();
        disk.write(&segment_path(&dir, 1), short.bytes.clone());
    }
    drop(store);
    let store = open(&disk);
    let refused = store.receive("greedy", &spool(4_096)).unwrap_err();
    assert_eq!(refused.refusal().code, RefusalCode::Quota, "{refused}");
    assert!(store.receive("greedier", &spool(4_096)).is_ok());
}

/// A segment with a run of that owner, as a node ships it that says so, from a spool of its own.
fn of_owner(node: &'static str, owner: &str, number: u64) -> Parcel {
    let run = pool_id_of(owner, RunId::from_u128(u128::from(number) << 80 | u128::from(number) << 40));
    let play = Play { run: Some(run), seed: number, ..cart_pole() };
    let one = recorded(node, &play).remove(0);
    let bytes = one.bytes.len() as u64;
    let owned = vec![OwnerPart { owner: owner.to_owned(), operates: false, bytes }];
    Parcel { ship: Ship { spool: format!("{number:08}"), owned, ..one.ship.clone() }, ..one }
}

/// Symptom: an owner who records without end had everybody's episodes dropped from the store. Cause: what was oldest was
/// dropped, whoever had recorded it. Fix: the oldest of the owner who is furthest beyond its share goes first; whose a
/// segment is is kept with the order in which it came.
#[test]
fn an_owner_who_records_without_end_has_his_own_dropped_and_nobody_elses_also_after_a_start() {
    let bobs: Vec<Parcel> = (1..=3).map(|number| of_owner("node-a", "bob", number)).collect();
    let adas: Vec<Parcel> = (4..=20).map(|number| of_owner("node-a", "ada", number)).collect();
    let budget = room_for(&[0; 8]);
    let disk = FaultyDisk::new();
    let store = open_with(&disk, budget).unwrap();
    for parcel in bobs.iter().chain(&adas[..10]) {
        assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable);
    }
    assert!(bobs.iter().all(|parcel| is_there(&store, parcel)), "what came first is another owner's");
    assert!(adas[5..10].iter().all(|parcel| is_there(&store, parcel)), "of his own the newest are there");
    drop(store);
    let store = open_with(&disk.after_power_cut(|_, _| 0), budget).unwrap();
    for parcel in &adas[10..] {
        assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable);
    }
    assert!(bobs.iter().all(|parcel| is_there(&store, parcel)), "also after a start");
    assert_eq!(store.status().segments, 8);
}

/// Symptom: a node could have had others' episodes dropped by recording more. Cause and fix as above: what is of no
/// owner who has a run in it counts for its node, whatever that says.
#[test]
fn what_a_node_says_of_an_owner_without_a_run_in_the_segment_counts_for_the_node_itself() {
    let bobs: Vec<Parcel> = (1..=3).map(|number| of_owner("node-a", "bob", number)).collect();
    let store = open_with(&FaultyDisk::new(), room_for(&[0; 8])).unwrap();
    bobs.iter().for_each(|parcel| assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable));
    for number in 4..=20 {
        let mut forged = of_owner("node-b", "eve", number);
        forged.ship.owned[0].owner = "bob".to_owned();
        forged.ship.owned[0].bytes = u64::MAX;
        assert_eq!(ship(&store, &forged).unwrap(), Shipped::Durable);
    }
    assert!(bobs.iter().all(|parcel| is_there(&store, parcel)));
}

//! What the store sets aside, and what it says of it.

use super::*;

#[test]
fn segments_that_are_damaged_unsealed_or_misnamed_are_kept_aside() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let good = recorded("node-a", &cart_pole()).remove(0);
    let mut flipped = good.bytes.clone();
    flipped[700] ^= 1;
    let unsealed = good.bytes[..good.bytes.len() - 64].to_vec();
    let bad = [
        parcel("node-a", "aaaaaaaa", 1, flipped),
        parcel("node-a", "aaaaaaaa", 1, unsealed),
        parcel("node-a", "aaaaaaaa", 2, good.bytes.clone()),
        parcel("node-a", "aaaaaaaa", 3, b"no segment at all".to_vec()),
        parcel("node-a", "aaaaaaaa", 4, Vec::new()),
    ];
    for bad in &bad {
        assert_eq!(ship(&store, bad).unwrap(), Shipped::Quarantined);
        assert_eq!(ship(&store, bad).unwrap(), Shipped::Quarantined, "and again without its bytes");
    }
    assert_eq!(ship(&store, &good).unwrap(), Shipped::Durable);
    assert_eq!((store.status().segments, store.status().quarantined), (1, 5));
    assert_eq!(library(&disk).damage().count(), 0, "readers do not see them");
    drop(store);
    let store = open(&disk);
    assert_eq!((store.status().segments, store.status().quarantined), (1, 5));
    assert!(matches!(store.receive("node-a", &bad[1].ship).unwrap(), Receive::Answer(Shipped::Quarantined)));
}

#[test]
fn the_first_durable_copy_of_an_episode_wins() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let first = recorded("node-a", &cart_pole());
    // The same run and lanes, whose episodes end earlier.
    let other = recorded("node-b", &Play { max_steps: 9, ..cart_pole() });
    for parcel in &first {
        assert_eq!(ship(&store, parcel).unwrap(), Shipped::Durable);
    }
    let before = finished(&disk);
    // Also when the store was opened anew, with and without its summaries.
    assert_eq!(ship(&store, &other[0]).unwrap(), Shipped::Durable);
    drop(store);
    let store = open(&disk);
    assert_eq!(ship(&store, &other[1]).unwrap(), Shipped::Durable);
    drop(store);
    for number in 1..=4 {
        disk.remove(&summary_path(Path::new("/store/node-a-aaaaaaaa"), number)).unwrap();
    }
    let third = recorded("node-c", &Play { max_steps: 12, ..cart_pole() });
    let store = open(&disk);
    assert_eq!(ship(&store, &third[0]).unwrap(), Shipped::Durable);
    let after = finished(&disk);
    assert!(
        before.iter().all(|(name, length)| after.get(name) == Some(length)),
        "the first stay as they are"
    );
    assert!(store.status().set_aside > 0);
    assert_eq!(store.status().quarantined, 0);
}

/// Symptom: one trainer that finished an episode twice, with different contents, had every episode of every tenant set
/// aside that stood in the same segment; their nodes deleted them, and their rollouts were told that they are stored.
/// Cause: the segment was the unit that was set aside. Fix: the episode is.
#[test]
fn an_episode_that_contradicts_another_is_set_aside_and_its_neighbours_in_the_segment_are_not() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let mean = Play { max_steps: 9, ..cart_pole() };
    let honest = Play { seed: 3, ..cart_pole() };
    let (victim, culprit) = (run_of(&honest), run_of(&mean));
    for parcel in recorded("node-a", &cart_pole()) {
        assert_eq!(ship(&store, &parcel).unwrap(), Shipped::Durable);
    }
    // On the other node both tenants' episodes are in the same segment.
    let both = recorded_together("node-b", &[mean, honest.clone()]);
    assert_eq!(ship(&store, &both).unwrap(), Shipped::Durable, "the node may remove what the store has");
    let of = |run: RunId, list: Vec<LibraryEpisode>| -> Vec<String> {
        let of_it = list.into_iter().filter(|episode| episode.info.run_id() == run);
        of_it.map(|episode| format!("{} {}", episode.info.name, episode.info.length)).collect()
    };
    let check = |store: &Store| {
        let kept = library(&disk).list(&Query::default()).unwrap();
        assert_eq!(of(victim, kept.clone()), alone(&honest), "not one is missing");
        assert_eq!(library(&disk).count().unwrap(), kept.len() as u64);
        let episodes: u64 = library(&disk).stats().unwrap().episodes.values().sum();
        assert_eq!(episodes, kept.len() as u64);
        let mut verified = 0;
        library(&disk).verify_all(&Registry::builtin(), |found| verified += u64::from(found.ok)).unwrap();
        assert_eq!(verified, kept.len() as u64, "what is set aside is not verified, all else is");
        let aside = Library::open_set_aside(&(Arc::new(disk.clone()) as _), Path::new(DIR)).unwrap();
        let aside = aside.list(&Query::default()).unwrap();
        assert!(!aside.is_empty() && of(victim, aside.clone()).is_empty());
        assert!(aside.iter().all(|episode| episode.info.length <= 9), "the first came first");
        for episode in &aside {
            assert_eq!(episode.folder.load(&episode.info).unwrap().info.length, episode.info.length);
            let found = library(&disk).find(episode.info.name).unwrap();
            assert!(
                found.folder.dir().ends_with("node-a-aaaaaaaa"),
                "what is set aside is not found by name"
            );
        }
        let status = |run| store.confirm(run, PoolStatus { shipped: true, ..PoolStatus::default() });
        assert!(status(victim).shipped && status(victim).set_aside == 0);
        let told = status(culprit);
        assert!(!told.shipped && told.settled, "what is set aside is not told as stored");
        assert_eq!((told.set_aside, store.status().set_aside), (aside.len() as u64, aside.len() as u64));
        assert_eq!(store.status().quarantined, 0);
    };
    check(&store);
    drop(store);
    let left = disk.after_power_cut(|_, _| 0);
    check(&open(&disk));
    assert_eq!(listed(&left), listed(&disk));
}

/// Symptom (traced): a pool was told as stored of which a segment had come damaged, if none of its episodes could be read
/// there, as without its run's header. Cause: only what could be read was missed. Fix: every record's header names a run.
#[test]
fn a_run_of_which_a_damaged_segment_shows_nothing_is_not_told_as_stored() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let (lost, beside) = (cart_pole(), Play { seed: 3, ..cart_pole() });
    let elsewhere = Play { seed: 4, ..cart_pole() };
    let mut bytes = recorded_together("node-a", &[beside.clone(), lost.clone()]).bytes;
    // No other header is coded against that of the second run.
    // A record begins with its mark, has its kind (2 is a run) at byte 9, the run's tag at byte 48, its payload at 64.
    let tag = (run_of(&lost).as_u128() as u32).to_le_bytes();
    let is_it =
        |record: &[u8]| record.starts_with(b"\x89RHrec\r\n") && record[9] == 2 && record[48..52] == tag;
    let headers: Vec<usize> = (0..bytes.len() - 64).filter(|&at| is_it(&bytes[at..])).collect();
    headers.iter().for_each(|at| bytes[at + 64 + 9] ^= 1);
    assert_eq!(ship(&store, &parcel("node-a", "aaaaaaaa", 1, bytes)).unwrap(), Shipped::Quarantined);
    for parcel in recorded("node-b", &elsewhere) {
        assert_eq!(ship(&store, &parcel).unwrap(), Shipped::Durable);
    }
    let check = |store: &Store| {
        let told = |play| store.confirm(run_of(play), PoolStatus { shipped: true, ..PoolStatus::default() });
        let (lost, beside, elsewhere) = (told(&lost), told(&beside), told(&elsewhere));
        assert_eq!((lost.shipped, lost.settled, lost.set_aside), (false, true, 0));
        assert!(!beside.shipped && beside.set_aside > 0);
        assert_eq!((elsewhere.shipped, elsewhere.set_aside), (true, 0));
    };
    check(&store);
    drop(store);
    check(&open(&disk.after_power_cut(|_, _| 0)));
}

#[test]
fn a_number_that_comes_with_other_bytes_is_kept_aside() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let first = recorded("node-a", &cart_pole());
    let other = recorded("node-a", &Play { seed: 8, ..cart_pole() });
    ship(&store, &first[0]).unwrap();
    let before = listed(&disk);
    assert_eq!(ship(&store, &other[0]).unwrap(), Shipped::Quarantined);
    assert_eq!(listed(&disk), before);
}

/// What is taken in from elsewhere keeps what was set aside there, in whatever order it comes, and is known when it comes
/// again.
#[test]
fn what_was_set_aside_elsewhere_stays_so_when_it_is_taken_in() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let mean = Play { max_steps: 9, ..cart_pole() };
    for parcel in recorded("node-a", &cart_pole()) {
        assert_eq!(ship(&store, &parcel).unwrap(), Shipped::Durable);
    }
    let other = recorded("node-b", &mean).remove(0);
    assert_eq!(ship(&store, &other).unwrap(), Shipped::Durable);
    let aside = SetAside::load(&disk, Path::new("/store/node-b-aaaaaaaa"), 1).unwrap();
    assert!(!aside.is_empty());
    let before = listed(&disk);
    let there = FaultyDisk::new();
    let restored = open(&there);
    let none = SetAside::default();
    let take =
        |parcel: &Parcel, aside| restored.take_in(parcel.node, &parcel.ship, &parcel.bytes, aside).unwrap();
    assert_eq!(take(&other, &aside), Shipped::Durable, "the one that came last comes first");
    for parcel in recorded("node-a", &cart_pole()) {
        assert_eq!(take(&parcel, &none), Shipped::Durable);
        assert_eq!(take(&parcel, &none), Shipped::Known);
    }
    assert_eq!(take(&other, &aside), Shipped::Known);
    assert_eq!(listed(&there), before);
    assert_eq!(restored.status().set_aside, aside.len() as u64);
    let left = SetAside::load(&there, Path::new("/store/node-b-aaaaaaaa"), 1).unwrap();
    assert_eq!(left, aside, "nothing else is set aside");
}

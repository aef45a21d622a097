//! What people say of the store's episodes is kept with them, and what is pinned stays.

use rollhouse_replay::EpisodeKey;
use rollhouse_wire::{StoreLabel, StoreLabelChange, StoreLabelPlace, StoreLabelled, StoreLabels};

use super::*;

/// The first episode that ended in the first segment of a folder.
fn first(disk: &FaultyDisk, folder: &str) -> EpisodeKey {
    let replays = Replays::open_scanning(Arc::new(disk.clone()), &Path::new(DIR).join(folder)).unwrap();
    let listed = replays.list(&Query { limit: Some(1), ..Query::default() }).unwrap();
    EpisodeKey::of(&listed[0])
}

fn said(key: &EpisodeKey, change: StoreLabelChange) -> StoreLabel {
    StoreLabel { run: RunId::from_u128(key.run), lane: key.lane, number: key.number, change }
}

const PIN: StoreLabelChange = StoreLabelChange::Pin { pinned: true };
const UNPIN: StoreLabelChange = StoreLabelChange::Pin { pinned: false };

fn all(store: &Store) -> Vec<StoreLabelled> {
    store.labels(StoreLabels::default()).labels
}

#[test]
fn what_is_said_is_told_and_read_by_readers_of_the_folder_and_outlives_the_coordinator() {
    let mut disk = FaultyDisk::new();
    let store = open(&disk);
    for parcel in &recorded("node-a", &cart_pole()) {
        ship(&store, parcel).unwrap();
    }
    let key = first(&disk, "node-a-aaaaaaaa");
    let tags = vec!["best".to_owned(), "slow".to_owned()];
    store.label(&said(&key, StoreLabelChange::Tag { tags })).unwrap();
    let note = Some("\u{1b}[31mlook".to_owned());
    let labelled = store.label(&said(&key, StoreLabelChange::Note { note })).unwrap();
    assert_eq!((labelled.pinned, labelled.tags.len()), (false, 2));
    let labelled = store.label(&said(&key, PIN)).unwrap();
    assert!(labelled.pinned && labelled.note.is_some());
    assert_eq!(all(&store), std::slice::from_ref(&labelled));
    let labels = library(&disk).labels().unwrap();
    assert!(labels.is_pinned(&key) && labels.iter().count() == 1);
    // It was durable when it was answered.
    drop(store);
    disk = disk.after_power_cut(|_, _| 0);
    let store = open(&disk);
    assert_eq!(all(&store), [labelled]);
    for change in [UNPIN, StoreLabelChange::Note { note: None }] {
        store.label(&said(&key, change)).unwrap();
    }
    let tags = vec!["best".to_owned(), "slow".to_owned(), "never".to_owned()];
    store.label(&said(&key, StoreLabelChange::Untag { tags })).unwrap();
    assert!(all(&store).is_empty());
}

#[test]
fn copies_in_several_folders_are_labelled_together_and_told_once() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    for node in ["node-a", "node-b"] {
        for parcel in &recorded(node, &cart_pole()) {
            ship(&store, parcel).unwrap();
        }
    }
    let key = first(&disk, "node-a-aaaaaaaa");
    store.label(&said(&key, PIN)).unwrap();
    assert_eq!(all(&store).len(), 1);
    for folder in ["node-a-aaaaaaaa", "node-b-aaaaaaaa"] {
        let labels = rollhouse_replay::Labels::load(&disk, &Path::new(DIR).join(folder)).unwrap();
        assert!(labels.is_pinned(&key), "{folder}");
    }
}

#[test]
fn segments_of_pinned_episodes_are_not_dropped_and_are_once_nothing_pins_them() {
    let disk = FaultyDisk::new();
    let parcels = recorded("node-a", &cart_pole());
    let sizes: Vec<u64> = parcels.iter().map(|parcel| parcel.ship.bytes).collect();
    let budget = sizes[2] + sizes[3];
    let store = open_with(&disk, budget).unwrap();
    ship(&store, &parcels[0]).unwrap();
    let key = first(&disk, "node-a-aaaaaaaa");
    store.label(&said(&key, PIN)).unwrap();
    let has = |number| disk.read(&segment_path(Path::new("/store/node-a-aaaaaaaa"), number)).is_some();
    for parcel in &parcels[1..] {
        ship(&store, parcel).unwrap();
    }
    assert_eq!([1, 2, 3, 4].map(has), [true, false, false, true], "the oldest that is not pinned goes first");
    drop(store);
    let store = open_with(&disk, budget).unwrap();
    assert!(has(1), "also after a restart");
    store.label(&said(&key, UNPIN)).unwrap();
    drop(store);
    open_with(&disk, sizes[3]).unwrap();
    assert_eq!([1, 4].map(has), [false, true]);
}

#[test]
fn of_a_folder_whose_labels_are_damaged_nothing_is_dropped_and_nothing_is_labelled() {
    let disk = FaultyDisk::new();
    let parcels = recorded("node-a", &cart_pole());
    let store = open(&disk);
    for parcel in &parcels {
        ship(&store, parcel).unwrap();
    }
    let key = first(&disk, "node-a-aaaaaaaa");
    store.label(&said(&key, PIN)).unwrap();
    drop(store);
    disk.flip(Path::new("/store/node-a-aaaaaaaa/labels"), 9, 1);
    let store = open_with(&disk, 1).unwrap();
    assert_eq!((store.status().segments, store.counts().damaged), (parcels.len() as u64, 1));
    let error = store.label(&said(&key, UNPIN)).unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
}

#[test]
fn unknown_episodes_and_what_is_no_tag_or_note_are_refused_by_name() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    for parcel in &recorded("node-a", &cart_pole()) {
        ship(&store, parcel).unwrap();
    }
    let key = first(&disk, "node-a-aaaaaaaa");
    let error = store.label(&said(&EpisodeKey { number: 9999, ..key }, PIN)).unwrap_err();
    assert_eq!(error.refusal().code, RefusalCode::NotFound);
    let other = EpisodeKey { run: key.run ^ 1 << 100, ..key };
    assert!(store.label(&said(&other, PIN)).is_err(), "of another run");
    for change in [
        StoreLabelChange::Tag { tags: vec!["a b".to_owned()] },
        StoreLabelChange::Note { note: Some("x".repeat(5000)) },
        StoreLabelChange::Tag { tags: (0..17).map(|at| format!("t{at}")).collect() },
    ] {
        let error = store.label(&said(&key, change)).unwrap_err();
        assert_eq!(error.refusal().code, RefusalCode::BadRequest, "{error}");
    }
    assert!(all(&store).is_empty());
}

#[test]
fn labels_come_in_pages_that_are_bounded_and_have_each_once() {
    let disk = FaultyDisk::new();
    let store = open(&disk);
    let many = Play { lanes: 64, max_steps: 3, ..Play::new("CartPole-v1", 60) };
    for parcel in &recorded("node-a", &many) {
        ship(&store, parcel).unwrap();
    }
    let listed = library(&disk).list(&Query { limit: Some(200), ..Query::default() }).unwrap();
    for episode in &listed {
        let note = Some("n".repeat(4096));
        let key = EpisodeKey::of(&episode.info);
        store.label(&said(&key, StoreLabelChange::Note { note })).unwrap();
    }
    let (mut after, mut found, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = store.labels(StoreLabels { after });
        assert!(page.labels.len() <= 128, "{}", page.labels.len());
        let last = page.labels.last().unwrap();
        after = Some(StoreLabelPlace { run: last.run, lane: last.lane, number: last.number });
        found.extend(page.labels.iter().map(|one| (one.run, one.lane, one.number)));
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert!(pages > 1);
    let mut once = found.clone();
    once.dedup();
    assert_eq!((found.len(), once.len()), (listed.len(), listed.len()));
}

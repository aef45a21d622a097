//! What is said of episodes is durable, and what is pinned is not dropped.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::EpisodeName;
use rollhouse_replay::testing::{Faults, FaultyDisk};
use rollhouse_replay::{
    BlockRecorder, EpisodeKey, LabelChange, LabelError, Library, Query, ReadError, Recorder, RecorderConfig,
};

use crate::stage::{Play, play, play_with};

const DIR: &str = "/data";

fn library(disk: &FaultyDisk) -> Library {
    Library::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap()
}

fn names(disk: &FaultyDisk) -> Vec<EpisodeName> {
    library(disk).list(&Query::default()).unwrap().iter().map(|one| one.info.name).collect()
}

/// Small segments, whatever is recorded.
fn seal_often(row: u64, recorder: &Recorder, block: &mut BlockRecorder) {
    if row % 500 == 499 {
        block.flush();
        recorder.seal().unwrap();
    }
}

/// What has room for a segment of the smallest size and about so many bytes more.
fn budget(more: u64) -> RecorderConfig {
    RecorderConfig { segment_bytes: 64 * 1024, budget_bytes: 64 * 1024 + more, ..RecorderConfig::default() }
}

fn changes() -> [LabelChange; 3] {
    [
        LabelChange::Pin(true),
        LabelChange::Tag(vec!["best".parse().unwrap(), "slow".parse().unwrap()]),
        LabelChange::Note(Some("why\u{1b}[31m".parse().unwrap())),
    ]
}

#[test]
fn what_is_said_of_an_episode_survives_a_power_cut_and_narrows_listings() {
    let disk = FaultyDisk::new();
    play(Arc::new(disk.clone()), Path::new(DIR), &Play { lanes: 4, ..Play::new("CartPole-v1", 200) });
    let name = names(&disk)[3];
    for change in changes() {
        library(&disk).label(name, &change).unwrap();
    }
    let left = disk.after_power_cut(|_, _| 0);
    let labels = library(&left).labels().unwrap();
    let (key, label) = labels.iter().next().unwrap();
    assert_eq!((label.pinned, label.tags.len()), (true, 2));
    assert_eq!(label.note.as_ref().unwrap().as_str(), "why\u{1b}[31m");
    let only = Query { only: Some(Arc::new(BTreeSet::from([*key]))), ..Query::default() };
    let listed = library(&left).list(&only).unwrap();
    assert_eq!(listed.iter().map(|one| one.info.name).collect::<Vec<_>>(), [name]);
    let none = Query { only: Some(Arc::default()), ..Query::default() };
    assert!(library(&left).list(&none).unwrap().is_empty());
    let gone: EpisodeName = "zzzzzzz0-0-0".parse().unwrap();
    let refused = library(&left).label(gone, &LabelChange::Pin(true));
    assert!(matches!(refused, Err(LabelError::Read(ReadError::NoEpisode(_)))), "{refused:?}");
}

#[test]
fn labels_can_be_changed_while_the_folder_is_recorded_into() {
    let disk = FaultyDisk::new();
    let one = Play { lanes: 4, ..Play::new("CartPole-v1", 300) };
    play_with(
        Arc::new(disk.clone()),
        Path::new(DIR),
        RecorderConfig::default(),
        &one,
        |row, recorder, block| {
            if row == 200 {
                block.flush();
                recorder.sync().unwrap();
                let name = names(&disk)[0];
                assert!(library(&disk).label(name, &LabelChange::Pin(true)).unwrap().pinned);
            }
        },
    );
    assert_eq!(library(&disk).labels().unwrap().iter().count(), 1);
}

#[test]
fn whichever_disk_operation_fails_labels_are_as_before_or_as_after() {
    let disk = FaultyDisk::new();
    play(Arc::new(disk.clone()), Path::new(DIR), &Play { lanes: 2, ..Play::new("CartPole-v1", 100) });
    let names = names(&disk);
    library(&disk).label(names[0], &LabelChange::Pin(true)).unwrap();
    let (mut failed, mut worked) = (0, false);
    for fail_at in 1..50 {
        // A disk of its own, on which nothing was done yet.
        let disk = disk.after_power_cut(|_, _| 0);
        disk.set_faults(Faults { fail_at: Some(fail_at), fail_on: true, ..Faults::default() });
        let done = library(&disk).label(names[1], &LabelChange::Pin(true));
        let left = disk.after_power_cut(|_, unsynced| unsynced / 2);
        let pinned = library(&left).labels().unwrap().iter().filter(|(_, label)| label.pinned).count();
        match done {
            Ok(_) => assert_eq!(pinned, 2, "{fail_at}"),
            Err(_) => assert!((1..=2).contains(&pinned), "{fail_at}"),
        }
        failed += u32::from(done.is_err());
        worked |= done.is_ok();
        library(&left).label(names[1], &LabelChange::Pin(true)).unwrap();
        assert_eq!(library(&left).labels().unwrap().iter().count(), 2);
    }
    assert!(failed > 3 && worked);
}

#[test]
fn a_budget_drops_no_segment_with_a_pinned_episode() {
    let first = Play { lanes: 8, seed: 1, ..Play::new("CartPole-v1", 6000) };
    for pinned in [false, true] {
        let disk = FaultyDisk::new();
        play_with(Arc::new(disk.clone()), Path::new(DIR), RecorderConfig::default(), &first, seal_often);
        // The first episode of all: in the oldest segment.
        let name = names(&disk).into_iter().find(|name| (name.lane, name.number) == (0, 0)).unwrap();
        library(&disk).label(name, &LabelChange::Pin(pinned)).unwrap();
        let segments = || disk.paths().iter().filter(|path| path.to_string_lossy().ends_with(".seg")).count();
        let before = segments();
        assert!(before > 4, "{before} segments");
        let more = Play { seed: 2, ..first.clone() };
        let recorded = play_with(Arc::new(disk.clone()), Path::new(DIR), budget(20_000), &more, seal_often);
        assert!(recorded.dropped_segments > 3, "{recorded:?}");
        let found = library(&disk).find(name);
        assert_eq!(found.is_ok(), pinned, "{found:?}");
        if let Ok(found) = found {
            assert!(found.folder.load(&found.info).is_ok());
            let key = EpisodeKey::of(&found.info);
            assert!(library(&disk).labels().unwrap().is_pinned(&key));
        }
    }
}

#[test]
fn a_folder_whose_labels_are_damaged_drops_nothing_and_says_why() {
    let disk = FaultyDisk::new();
    let one = Play { lanes: 8, ..Play::new("CartPole-v1", 3000) };
    play_with(Arc::new(disk.clone()), Path::new(DIR), RecorderConfig::default(), &one, seal_often);
    let name = names(&disk)[0];
    library(&disk).label(name, &LabelChange::Pin(true)).unwrap();
    disk.flip(Path::new("/data/labels"), 10, 0);
    let read = library(&disk).labels();
    assert!(matches!(read, Err(LabelError::Damaged { .. })), "{read:?}");
    let changed = library(&disk).label(name, &LabelChange::Pin(false));
    assert!(matches!(changed, Err(LabelError::Damaged { .. })), "{changed:?}");
    let recorder = Recorder::open(Arc::new(disk.clone()), Path::new(DIR), budget(10)).unwrap();
    crate::stage::play_into(&recorder, &Play { seed: 9, ..one }, seal_often);
    let error = recorder.status().error.map(|error| error.source.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("damaged")), "{error:?}");
    recorder.finish().unwrap();
    assert!(library(&disk).find(name).is_ok());
}

#[test]
fn a_store_has_no_labels() {
    let disk = FaultyDisk::new();
    play(
        Arc::new(disk.clone()),
        Path::new("/data/node-abcdefgh"),
        &Play { lanes: 1, ..Play::new("CartPole-v1", 60) },
    );
    drop(rollhouse_replay::lock_store(&disk, Path::new(DIR)).unwrap());
    let name = names(&disk)[0];
    let refused = library(&disk).label(name, &LabelChange::Pin(true));
    assert!(matches!(refused, Err(LabelError::Store(_))), "{refused:?}");
}

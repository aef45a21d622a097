//! An episode in a file of its own is the episode as it was recorded, and comes into another folder as that.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rollhouse_core::RecordRule;
use rollhouse_env::Registry;
use rollhouse_replay::testing::{Faults, FaultyDisk};
use rollhouse_replay::{
    Episode, ImportError, Importer, Library, OpenError, Portable, PortableError, Query, Recorder,
    RecorderConfig, Replays, write_portable,
};

use crate::stage::{Play, play};

const FROM: &str = "/from";
const TO: &str = "/to";

fn replays(disk: &FaultyDisk, dir: &str) -> Replays {
    Replays::open_scanning(Arc::new(disk.clone()), Path::new(dir)).unwrap()
}

/// Every episode of a folder, in the order of their names.
fn episodes(disk: &FaultyDisk, dir: &str) -> Vec<Episode> {
    let replays = replays(disk, dir);
    assert_eq!(replays.damage().count(), 0);
    let listed = replays.list(&Query::default()).unwrap();
    listed.iter().map(|info| replays.load(info).unwrap()).collect()
}

fn packed(episode: &Episode) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_portable(episode, &mut bytes, |_| true).unwrap();
    bytes
}

fn importer(disk: &FaultyDisk) -> Importer {
    Importer::open(Arc::new(disk.clone()), Path::new(TO)).unwrap()
}

/// What of an episode does not depend on where it stands.
fn facts(episode: &Episode) -> String {
    let Episode { info, actions, windows, end_hash, policy_versions, step_columns, calls, steps, from } =
        episode;
    let all = format!(
        "{actions:?} {windows:?} {end_hash:?} {policy_versions:?} {step_columns:?} {calls:?} {steps:?} {from:?}"
    );
    format!(
        "{} {:?} {} {:?} {:?} {:?} {:?} {} {:?} {:016x}",
        info.name,
        info.start,
        info.length,
        info.total_reward,
        info.outcome,
        info.result,
        info.score,
        info.started_ms,
        info.options(),
        all.bytes().fold(0, |sum, byte| rollhouse_core::split_mix64(sum ^ u64::from(byte))),
    )
}

fn assert_same(a: &[Episode], b: &[Episode]) {
    assert_eq!(a.iter().map(facts).collect::<Vec<_>>(), b.iter().map(facts).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn each_episode_comes_through_a_file_as_it_was(
        env in prop::sample::select(vec!["CartPole-v1", "Pendulum-v1", "test/Noise-v0", "GridBreakout-v0"]),
        lanes in 1usize..5,
        rows in 1u64..300,
        per_episode in any::<bool>(),
        mode in prop::sample::select(vec![RecordRule::All, RecordRule::Trace, RecordRule::Sample { probability: 0.6 }]),
        version_rows in prop::sample::select(vec![0u64, 1, 7, 100]),
        noted in any::<bool>(),
    ) {
        let disk = FaultyDisk::new();
        let one = Play { lanes, per_episode, record: mode, version_rows, noted, max_steps: 70, ..Play::new(env, rows) };
        play(Arc::new(disk.clone()), Path::new(FROM), &one);
        let recorded = episodes(&disk, FROM);
        let mut importer = importer(&disk);
        // In another order than they were played.
        for episode in recorded.iter().rev() {
            let bytes = packed(episode);
            prop_assert_eq!(&bytes, &packed(episode));
            let portable = Portable::read(bytes).unwrap();
            prop_assert_eq!(portable.info().name, episode.info.name);
            importer.add(&portable).unwrap();
        }
        drop(importer);
        let imported = episodes(&disk, TO);
        assert_same(&recorded, &imported);
        // What was packed again is the same file.
        for (before, after) in recorded.iter().zip(&imported) {
            prop_assert_eq!(Portable::read(packed(after)).unwrap().info().name, before.info.name);
        }
        let verified = |dir| {
            let mut found = Vec::new();
            replays(&disk, dir).verify_all(&Registry::builtin(), |one| found.push((one.name, one.ok))).unwrap();
            found.sort_unstable();
            found
        };
        prop_assert_eq!(verified(FROM), verified(TO));
    }
}

#[test]
fn long_episodes_take_many_chunks_and_little_more_than_their_actions() {
    let disk = FaultyDisk::new();
    let one = Play { lanes: 1, max_steps: 100_000, ..Play::new("Pendulum-v1", 100_001) };
    play(Arc::new(disk.clone()), Path::new(FROM), &one);
    let recorded = episodes(&disk, FROM);
    let bytes = packed(&recorded[0]);
    assert!(bytes.len() < 100_000 * 5, "{}", bytes.len());
    importer(&disk).add(&Portable::read(bytes).unwrap()).unwrap();
    assert_same(&recorded, &episodes(&disk, TO));
}

#[test]
fn an_episode_that_broke_off_comes_through_as_one_that_did() {
    let disk = FaultyDisk::new();
    let recorder =
        Recorder::open(Arc::new(disk.clone()), Path::new(FROM), RecorderConfig::default()).unwrap();
    let one = Play { lanes: 2, ..Play::new("Pendulum-v1", 50) };
    // The power goes while both lanes are in their first episode.
    let mut cut = None;
    crate::stage::play_into(&recorder, &one, |row, recorder, block| {
        if row == 40 {
            block.flush();
            recorder.sync().unwrap();
            cut = Some(disk.after_power_cut(|_, _| 0));
        }
    });
    let cut = cut.unwrap();
    let recorded = episodes(&cut, FROM);
    assert_eq!((recorded.len(), recorded[0].info.total_reward), (2, None));
    let mut importer = importer(&cut);
    for episode in &recorded {
        importer.add(&Portable::read(packed(episode)).unwrap()).unwrap();
    }
    assert_same(&recorded, &episodes(&cut, TO));
}

#[test]
fn one_that_is_there_is_refused_by_name_and_so_is_a_folder_that_somebody_writes_to() {
    let disk = FaultyDisk::new();
    play(Arc::new(disk.clone()), Path::new(FROM), &Play { lanes: 1, ..Play::new("CartPole-v1", 60) });
    let recorded = episodes(&disk, FROM);
    let portable = Portable::read(packed(&recorded[0])).unwrap();
    let mut into = importer(&disk);
    into.add(&portable).unwrap();
    let again = into.add(&portable);
    assert!(matches!(&again, Err(ImportError::Present(name)) if *name == recorded[0].info.name), "{again:?}");
    let second = Importer::open(Arc::new(disk.clone()), Path::new(TO));
    assert!(matches!(second, Err(ImportError::Open(OpenError::Locked { .. }))), "{second:?}");
    drop(into);
    assert_eq!(episodes(&disk, TO).len(), 1);
    // So does a folder that was recorded into, beside which the episode stands.
    let inside = Importer::open(Arc::new(disk.clone()), Path::new("/")).unwrap().add(&portable);
    assert!(matches!(inside, Err(ImportError::Present(_))), "{inside:?}");
}

#[test]
fn a_store_takes_no_episode_behind_its_coordinators_back() {
    let disk = FaultyDisk::new();
    let store = rollhouse_replay::lock_store(&disk, Path::new("/store")).unwrap();
    drop(store);
    for dir in ["/store", "/store/node-abcdefgh"] {
        let opened = Importer::open(Arc::new(disk.clone()), Path::new(dir));
        assert!(matches!(opened, Err(ImportError::Store(_))), "{dir}: {opened:?}");
    }
    assert_eq!(disk.paths(), [Path::new("/store/store.lock")]);
}

#[test]
fn every_flipped_bit_and_every_cut_is_refused() {
    let disk = FaultyDisk::new();
    play(Arc::new(disk.clone()), Path::new(FROM), &Play { lanes: 1, ..Play::new("CartPole-v1", 60) });
    let bytes = packed(&episodes(&disk, FROM)[0]);
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(Portable::read(flipped).is_err(), "byte {at}");
        assert!(Portable::read(bytes[..at].to_vec()).is_err(), "cut at {at}");
    }
    assert!(matches!(Portable::read(b"GIF89a".to_vec()), Err(PortableError::NoRecording)));
    let mut longer = bytes.clone();
    longer.extend_from_slice(&bytes);
    assert!(Portable::read(longer).is_err());
}

#[test]
fn a_segment_of_several_episodes_is_no_file_of_one() {
    let disk = FaultyDisk::new();
    play(Arc::new(disk.clone()), Path::new(FROM), &Play { lanes: 2, ..Play::new("CartPole-v1", 200) });
    let replays = replays(&disk, FROM);
    let read = Portable::read(replays.segment_bytes(1).unwrap());
    assert!(matches!(read, Err(PortableError::NotOne { episodes }) if episodes > 2), "{read:?}");
}

#[test]
fn an_import_whose_disk_fails_at_any_moment_leaves_a_folder_as_it_was_or_with_all_of_it() {
    let disk = FaultyDisk::new();
    play(Arc::new(disk.clone()), Path::new(FROM), &Play { lanes: 1, ..Play::new("CartPole-v1", 60) });
    let recorded = episodes(&disk, FROM);
    let (first, second) = (&recorded[0], &recorded[1]);
    let (mut failed, mut worked) = (0, false);
    for fail_at in 1..200 {
        let disk = FaultyDisk::new();
        importer(&disk).add(&Portable::read(packed(first)).unwrap()).unwrap();
        let before = disk.operations();
        disk.set_faults(Faults { fail_at: Some(before + fail_at), fail_on: true, ..Faults::default() });
        let added = Importer::open(Arc::new(disk.clone()), Path::new(TO))
            .and_then(|mut importer| importer.add(&Portable::read(packed(second)).unwrap()));
        disk.set_faults(Faults::default());
        let there = Library::open(Arc::new(disk.after_power_cut(|_, _| 0)), Path::new(TO)).unwrap();
        let names: Vec<_> = there.list(&Query::default()).unwrap().iter().map(|one| one.info.name).collect();
        match added {
            Ok(()) => assert_eq!(names, [first.info.name, second.info.name], "{fail_at}"),
            Err(_) => {
                failed += 1;
                assert!(names.contains(&first.info.name) && names.len() <= 2, "{fail_at}: {names:?}");
            }
        }
        // Whatever was left half done is in nobody's way.
        let mut again = importer(&disk);
        let added_now = again.add(&Portable::read(packed(second)).unwrap());
        assert!(matches!(added_now, Ok(()) | Err(ImportError::Present(_))), "{fail_at}: {added_now:?}");
        drop(again);
        assert_same(&[first.clone(), second.clone()], &episodes(&disk, TO));
        worked = added.is_ok();
        if worked && failed > 3 {
            break;
        }
    }
    assert!(failed > 3 && worked);
}

//! A part of a segment is a segment of its own: what stands in it of one run, as it was.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rollhouse_core::RunId;
use rollhouse_env::Registry;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{
    AsideEpisode, Disk, Query, Recorder, RecorderConfig, Replays, SegmentSummary, SetAside, is_spool_name,
    name_of_part, part_of_run, segment_path,
};

use crate::stage::{Play, play_into, run_of};

const DIR: &str = "/data";

/// Plays one after another into one recorder, whose segments are sealed now and then, also amid episodes.
fn recorded(plays: &[Play], rows_a_segment: u64) -> FaultyDisk {
    let disk = FaultyDisk::new();
    let config = RecorderConfig { budget_bytes: u64::MAX, ..RecorderConfig::default() };
    let recorder = Recorder::open(Arc::new(disk.clone()), Path::new(DIR), config).unwrap();
    let mut rows = 0;
    for play in plays {
        play_into(&recorder, play, |_, recorder, block| {
            rows += 1;
            if rows % rows_a_segment == 0 {
                block.flush();
                recorder.seal().unwrap();
            }
        });
    }
    recorder.finish().unwrap();
    disk
}

fn put(disk: &FaultyDisk, path: &Path, bytes: &[u8]) {
    disk.create_dir(path.parent().unwrap()).unwrap();
    disk.create(path).unwrap().append_all(bytes).unwrap();
}

/// What a listing says of the episodes of a run, which all verify.
fn listed(disk: &FaultyDisk, run: RunId) -> Vec<String> {
    let replays = Replays::open_scanning(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
    assert_eq!(replays.damage().count(), 0);
    let mut listed = Vec::new();
    replays
        .for_each(|info| {
            if info.run_id() == run {
                let (name, length, outcome) = (info.name, info.length, info.outcome.word());
                listed.push(format!("{name} {length} {outcome} {:?} {}", info.total_reward, info.started_ms));
            }
        })
        .unwrap();
    let mut bad = 0;
    replays.verify_all(&Registry::builtin(), |found| bad += u64::from(!found.ok)).unwrap();
    assert_eq!(bad, 0);
    listed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The parts of all segments that are about a run read as the run does among the others, and all parts together have
    /// every run.
    #[test]
    fn the_parts_of_a_run_are_read_as_the_run_is_among_others(
        runs in 1usize..4,
        lanes in 1usize..65,
        rows in 20u64..200,
        rows_a_segment in 15u64..120,
        trace in any::<bool>(),
    ) {
        let mode = if trace { rollhouse_core::RecordRule::Trace } else { rollhouse_core::RecordRule::All };
        let envs = ["CartPole-v1", "MountainCar-v0", "CartPole-v1"];
        let plays: Vec<Play> = (0..runs)
            .map(|at| Play { lanes, record: mode, seed: 3 + at as u64, max_steps: 40, ..Play::new(envs[at], rows) })
            .collect();
        let disk = recorded(&plays, rows_a_segment);
        for play in &plays {
            let parts = FaultyDisk::new();
            let run = run_of(play);
            let numbers = (1..).take_while(|&number| disk.read(&segment_path(Path::new(DIR), number)).is_some());
            for number in numbers {
                let bytes = disk.read(&segment_path(Path::new(DIR), number)).unwrap();
                let has = SegmentSummary::of(number, &bytes).runs().contains(&run);
                let (part, _) = part_of_run(&bytes, run, &SetAside::default()).unwrap();
                let summary = SegmentSummary::of(number, &part);
                prop_assert!(summary.is_whole());
                prop_assert_eq!(summary.runs().into_iter().collect::<Vec<_>>(), if has { vec![run] } else { vec![] });
                if runs == 1 {
                    prop_assert_eq!(&part, &bytes, "nothing was left out");
                }
                if has {
                    put(&parts, &segment_path(Path::new(DIR), number), &part);
                }
            }
            prop_assert_eq!(listed(&parts, run), listed(&disk, run));
        }
    }
}

#[test]
fn what_is_set_aside_in_a_segment_is_in_its_part() {
    let plays =
        [Play { seed: 3, ..Play::new("CartPole-v1", 60) }, Play { seed: 4, ..Play::new("CartPole-v1", 60) }];
    let disk = recorded(&plays, u64::MAX);
    let path = segment_path(Path::new(DIR), 1);
    let bytes = disk.read(&path).unwrap();
    let summary = SegmentSummary::of(1, &bytes);
    let finished = summary.finished(&*disk.open(&path).unwrap()).unwrap();
    let mut aside = SetAside::default();
    for episode in finished.iter().step_by(3) {
        aside.insert(AsideEpisode { offset: episode.offset, key: episode.key });
    }
    for play in &plays {
        let run = run_of(play).as_u128();
        let (part, kept) = part_of_run(&bytes, run_of(play), &aside).unwrap();
        let parts = FaultyDisk::new();
        put(&parts, &path, &part);
        kept.store(&parts, Path::new(DIR), 1).unwrap();
        let count = |aside: &SetAside| aside.episodes().filter(|episode| episode.key.run == run).count();
        assert!(count(&kept) > 0 && count(&kept) == count(&aside) && kept.len() == count(&kept));
        let here = SegmentSummary::of(1, &part).finished(&*parts.open(&path).unwrap()).unwrap();
        assert!(kept.episodes().all(|of| here.iter().any(|at| (at.offset, at.key) == (of.offset, of.key))));
        let library = rollhouse_replay::Library::open(Arc::new(parts), Path::new(DIR)).unwrap();
        let all = here.len() - kept.len();
        let finished = library.list(&Query::default()).unwrap().into_iter();
        assert_eq!(finished.filter(|episode| episode.info.outcome.is_finished()).count(), all);
    }
}

#[test]
fn of_a_damaged_or_unsealed_segment_there_is_no_part() {
    let play = Play::new("CartPole-v1", 60);
    let disk = recorded(std::slice::from_ref(&play), u64::MAX);
    let bytes = disk.read(&segment_path(Path::new(DIR), 1)).unwrap();
    let none = SetAside::default();
    assert!(part_of_run(&bytes[..bytes.len() - 64], run_of(&play), &none).is_none());
    for byte in (0..bytes.len()).step_by(97) {
        let mut flipped = bytes.clone();
        flipped[byte] ^= 1;
        assert!(part_of_run(&flipped, run_of(&play), &none).is_none(), "byte {byte}");
    }
}

#[test]
fn the_name_of_a_part_is_a_spools_and_another_for_each_run_and_folder() {
    let runs = [1, 2, u128::MAX, 1 << 64].map(RunId::from_u128);
    let names = runs.iter().flat_map(|run| ["aaaaaaaa", "aaaaaaab"].map(|spool| name_of_part(spool, *run)));
    let names: std::collections::BTreeSet<String> = names.collect();
    assert_eq!(names.len(), 8);
    assert!(names.iter().all(|name| is_spool_name(name)));
    assert_eq!(name_of_part("aaaaaaaa", runs[0]), name_of_part("aaaaaaaa", runs[0]));
}

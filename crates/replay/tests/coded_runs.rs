//! Headers of runs that are coded against another run's of their segment: what is read, and what damage costs.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{ColumnRef, GameResult, LaneSet, Outcome, RunId, Start, split_mix64};
use rollhouse_env::Registry;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{
    DamageCause, Disk, End, EpisodeInfo, Query, RealDisk, Recorder, RecorderConfig, Replays, Row, RunHeader,
    SegmentSummary, SetAside, part_of_run, repair, segment_path, summary_path,
};

use crate::model::Shape;
use crate::stage::{Play, play_into, run_of};

const DIR: &str = "/coded";
const RUNS: u64 = 5;

fn plays() -> impl Iterator<Item = Play> {
    (0..RUNS).map(|seed| Play { lanes: 2, seed, max_steps: 30, ..Play::new("CartPole-v1", 120) })
}

/// Records runs of one env into one segment.
fn record(disk: Arc<dyn Disk>, dir: &Path) {
    let recorder = Recorder::open(disk, dir, RecorderConfig::default()).unwrap();
    for play in plays() {
        play_into(&recorder, &play, |_, _, block| block.flush());
    }
    recorder.finish().unwrap();
}

/// A folder's disk and the bytes of its one segment.
fn recorded() -> (FaultyDisk, Vec<u8>) {
    let disk = FaultyDisk::new();
    record(Arc::new(disk.clone()), Path::new(DIR));
    let bytes = disk.read(&segment_path(Path::new(DIR), 1)).unwrap();
    (disk, bytes)
}

fn with(bytes: &[u8]) -> Replays {
    let disk = FaultyDisk::new();
    let path = segment_path(Path::new(DIR), 1);
    disk.create_dir(path.parent().unwrap()).unwrap();
    disk.write(&path, bytes.to_vec());
    Replays::open_scanning(Arc::new(disk), Path::new(DIR)).unwrap()
}

/// What a listing says of an episode.
fn line(info: &EpisodeInfo) -> String {
    let EpisodeInfo { name, start, length, total_reward, run, .. } = info;
    format!("{name} {start:?} {length} {total_reward:?} {} {}", run.started_ms, run.spec.id)
}

fn listed(replays: &Replays) -> BTreeSet<String> {
    replays.list(&Query::default()).unwrap().iter().map(line).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Offset, run and `prev` of each run record.
fn run_records(bytes: &[u8]) -> Vec<(usize, u32, u32)> {
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        if bytes[at + 9] == 2 {
            found.push((at, u32_at(bytes, at + 16), u32_at(bytes, at + 28)));
        }
        at += 64 + u32_at(bytes, at + 12) as usize;
    }
    found
}

/// Says something else in a record's `prev`, under a right checksum.
fn put_prev(bytes: &mut [u8], at: usize, prev: u32) {
    bytes[at + 28..at + 32].copy_from_slice(&prev.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[at..at + 60]);
    bytes[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn the_second_run_of_an_env_and_those_after_it_are_coded_against_the_first() {
    let (disk, bytes) = recorded();
    let records = run_records(&bytes);
    assert_eq!(records.len() as u64, 2 * RUNS);
    assert!(records.iter().all(|&(_, run, prev)| prev == u32::from(run > 0)), "{records:?}");
    let replays = Replays::open_scanning(Arc::new(disk), Path::new(DIR)).unwrap();
    let runs: BTreeSet<RunId> =
        replays.list(&Query::default()).unwrap().iter().map(|info| info.run_id()).collect();
    assert_eq!(runs, plays().map(|play| run_of(&play)).collect());
    let mut found = 0;
    let verified = replays.verify_all(&Registry::builtin(), |verification| {
        found += 1;
        assert!(verification.ok, "{verification:?}");
    });
    verified.unwrap();
    assert_eq!(found, listed(&replays).len());
}

#[test]
fn one_damaged_copy_of_any_header_costs_no_episode() {
    let (_, bytes) = recorded();
    let whole = listed(&with(&bytes));
    for (at, ..) in run_records(&bytes) {
        let mut damaged = bytes.clone();
        damaged[at + 70] ^= 4;
        let replays = with(&damaged);
        let causes: Vec<_> = replays.damage().map(|damage| damage.cause).collect();
        assert_eq!(causes, [DamageCause::Payload], "record at {at}");
        assert!(listed(&replays) == whole, "record at {at}");
    }
}

#[test]
fn a_header_whose_base_is_gone_is_damage_of_its_own_cause_and_never_another_header() {
    let (disk, bytes) = recorded();
    let mut damaged = bytes.clone();
    for (at, ..) in run_records(&bytes).into_iter().filter(|record| record.1 == 0) {
        damaged[at + 70] ^= 4;
    }
    let replays = with(&damaged);
    assert_eq!(listed(&replays).len(), 0);
    let count = |cause| replays.damage().filter(|damage| damage.cause == cause).count() as u64;
    assert_eq!((count(DamageCause::Payload), count(DamageCause::Base)), (2, 2 * (RUNS - 1)));
    assert!(count(DamageCause::Content) > 0, "chunks of runs without a header");
    assert_eq!(DamageCause::Base.word(), "base");
    let path = segment_path(Path::new(DIR), 1);
    disk.write(&path, damaged.clone());
    let report = repair(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
    assert_eq!(report.damage.len(), replays.damage().count());
    assert_eq!(disk.read(&path).unwrap(), damaged, "damage is never cut away");
    assert!(part_of_run(&damaged, run_of(&plays().last().unwrap()), &SetAside::default()).is_none());
}

#[test]
fn a_header_that_names_a_wrong_base_is_damage() {
    let (_, bytes) = recorded();
    let whole = listed(&with(&bytes));
    let records = run_records(&bytes);
    // Itself, one that is coded as well, and one that is not there.
    for base in [3, 2, 77, u32::MAX] {
        let mut damaged = bytes.clone();
        for &(at, ..) in records.iter().filter(|record| record.1 == 2) {
            put_prev(&mut damaged, at, base);
        }
        let replays = with(&damaged);
        let found = replays.damage().filter(|damage| damage.cause == DamageCause::Base).count();
        assert_eq!(found, 2, "base {base}");
        let rest = listed(&replays);
        assert!(rest.is_subset(&whole) && rest.len() < whole.len() && !rest.is_empty(), "base {base}");
    }
    // A whole header that is no base of it: of another env.
    let disk = FaultyDisk::new();
    let recorder = Recorder::open(Arc::new(disk.clone()), Path::new(DIR), RecorderConfig::default()).unwrap();
    for (seed, env) in ["CartPole-v1", "Pendulum-v1", "CartPole-v1"].into_iter().enumerate() {
        let play = Play { lanes: 1, seed: seed as u64, max_steps: 30, ..Play::new(env, 60) };
        play_into(&recorder, &play, |_, _, block| block.flush());
    }
    recorder.finish().unwrap();
    let mut bytes = disk.read(&segment_path(Path::new(DIR), 1)).unwrap();
    let records = run_records(&bytes);
    assert_eq!(records.iter().map(|record| record.2).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1]);
    for (at, ..) in records.into_iter().filter(|record| record.2 == 1) {
        put_prev(&mut bytes, at, 2);
    }
    let found = with(&bytes).damage().filter(|damage| damage.cause == DamageCause::Base).count();
    assert_eq!(found, 2);
}

#[test]
fn a_part_of_a_segment_has_the_whole_header_of_its_run() {
    let (_, bytes) = recorded();
    let whole = with(&bytes);
    for play in plays() {
        let (part, _) = part_of_run(&bytes, run_of(&play), &SetAside::default()).unwrap();
        assert!(run_records(&part).iter().all(|record| record.2 == 0));
        let part = with(&part);
        let all = whole.list(&Query::default()).unwrap();
        let of_run = all.iter().filter(|info| info.run_id() == run_of(&play)).map(line);
        assert_eq!(listed(&part), of_run.collect());
        assert_eq!(part.damage().count(), 0);
    }
}

/// A segment's summary has the headers of its runs, so that its episodes are listed without the segment.
#[test]
fn summaries_have_coded_headers_and_readers_need_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    record(Arc::new(RealDisk), dir);
    let (path, summary) = (segment_path(dir, 1), summary_path(dir, 1));
    let whole = listed(&Replays::open(Arc::new(RealDisk), dir).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    let records = run_records(&bytes);
    let header = u64::from(u32_at(&bytes, records[0].0 + 12));
    let size = std::fs::metadata(&summary).unwrap().len();
    assert!(size < header * 2 + 100 * RUNS, "{size} bytes with {RUNS} headers of {header} bytes");
    let finished = SegmentSummary::load(&RealDisk, dir, 1);
    assert!(finished.is_none(), "no store has put it there");
    // No record of a run is intact any more, and nothing shows that the file was changed.
    let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
    for (at, ..) in records {
        bytes[at + 70] ^= 4;
    }
    std::fs::write(&path, bytes).unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(changed).unwrap();
    assert_eq!(listed(&Replays::open(Arc::new(RealDisk), dir).unwrap()), whole);
}

#[test]
fn the_episodes_that_finished_in_a_segment_are_known_by_their_coded_headers() {
    let (disk, bytes) = recorded();
    let path = segment_path(Path::new(DIR), 1);
    let file = disk.open(&path).unwrap();
    let finished = SegmentSummary::of(1, &bytes).finished(&*file).unwrap();
    let runs: BTreeSet<u128> = finished.iter().map(|episode| episode.key.run).collect();
    assert_eq!(runs, plays().map(|play| run_of(&play).as_u128()).collect());
}

/// Coded headers are few bytes, of which readers make as many as there are: a segment has no more than they take.
#[test]
fn many_short_runs_with_long_headers_go_into_several_segments_that_are_read() {
    let disk = FaultyDisk::new();
    let recorder = Recorder::open(Arc::new(disk.clone()), Path::new(DIR), RecorderConfig::default()).unwrap();
    let actions = ColumnRef::I64(&[1]);
    let shape = Shape { lanes: 1, ..Shape::plain(0) };
    for run in 0..600u64 {
        let id = u128::from(split_mix64(run)) << 64 | u128::from(split_mix64(!run));
        let arguments = format!("\"{}\"", "x".repeat(100_000));
        let header = RunHeader { run: RunId::from_u128(id), arguments, ..shape.header() };
        let run = recorder.begin_run(header).unwrap();
        let mut block = run.block(0, 1);
        block.begin(0, Start::default(), &[]);
        let (stepped, begun) = (LaneSet::one(0), LaneSet::NONE);
        block.row(Row { stepped, begun, actions, obs: &[], rewards: &[], infos: &[], now_ms: 0 });
        let (outcome, result) = (Outcome::TERMINATED, GameResult::None);
        block.end(0, End { outcome, total_reward: 1.0, hash: 7, result, score: None });
    }
    let segments = recorder.finish().unwrap().segments;
    assert_eq!(segments, 2, "each with some 64 MiB of headers");
    let replays = Replays::open_scanning(Arc::new(disk), Path::new(DIR)).unwrap();
    assert_eq!(replays.damage().count(), 0);
    assert_eq!(listed(&replays).len(), 600);
}

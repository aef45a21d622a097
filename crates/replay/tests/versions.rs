//! Each step of an episode has the version of the policy that chose its action.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{
    ColumnRef, GameResult, Interruption, LaneSet, Options, Outcome, RecordRule, RunId, SeedSchedule, Start,
};
use rollhouse_env::Registry;
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{End, Episode, PolicyInfo, Query, Recorder, RecorderConfig, Replays, Row, RunHeader};

use crate::stage::{Play, play};

fn recorded(disk: &FaultyDisk) -> Vec<Episode> {
    let replays = Replays::open_scanning(Arc::new(disk.clone()), Path::new("/data")).unwrap();
    let listed = replays.list(&Query::default()).unwrap();
    listed.iter().map(|info| replays.load(info).unwrap()).collect()
}

#[test]
fn versions_change_with_the_rows_over_chunks_episodes_and_lanes_that_stand_still() {
    // Lane 1 stands still in every third row. More rows than a chunk has, in which most versions last longer than one.
    let disk = FaultyDisk::new();
    let recorder =
        Recorder::open(Arc::new(disk.clone()), Path::new("/data"), RecorderConfig::default()).unwrap();
    let spec = Registry::builtin().get("CartPole-v1").unwrap().spec().clone();
    let header = RunHeader {
        run: RunId::generate(),
        options: vec![Options::check(&spec.options, &[]).unwrap()],
        spec,
        lanes: 2,
        schedule: SeedSchedule::Continue,
        autoreset: "Disabled".into(),
        max_episode_steps: None,
        policy: PolicyInfo { name: "test".into(), version: 0 },
        record: RecordRule::All,
        program: "test".into(),
        started_ms: 0,
        parent: None,
        arguments: String::new(),
    };
    let run = recorder.begin_run(header).unwrap();
    let mut block = run.block(0, 2);
    block.begin_each(LaneSet::first(2), &[Start::seeded(1); 64], &[]);
    let version = |row: u64| if row < 5 { 0 } else { (row / 3_000) * 10 + 1 };
    let mut wanted = [Vec::new(), Vec::new()];
    for row in 0..10_000u64 {
        block.policy_version(version(row));
        let stepped = if row % 3 == 0 { LaneSet::one(0) } else { LaneSet::first(2) };
        stepped.into_iter().for_each(|lane| wanted[lane].push(version(row)));
        let actions = ColumnRef::I64(&[0, 1]);
        block.row(Row {
            stepped,
            begun: LaneSet::NONE,
            actions,
            obs: &[],
            rewards: &[],
            infos: &[],
            now_ms: row,
        });
    }
    for lane in 0..2 {
        let outcome = Outcome::Interrupted(Interruption::Cancelled);
        block.end(lane, End { outcome, total_reward: 0.0, hash: 0, result: GameResult::None, score: None });
    }
    drop((block, run));
    recorder.finish().unwrap();
    let replays = Replays::open_scanning(Arc::new(disk.clone()), Path::new("/data")).unwrap();
    let mut seen = 0;
    for info in replays.list(&Query::default()).unwrap() {
        let episode = replays.load(&info).unwrap();
        let found: Vec<u64> = (0..info.length).map(|step| episode.policy_versions.of_step(step)).collect();
        assert_eq!(found, wanted[info.name.lane as usize], "lane {}", info.name.lane);
        assert_eq!(episode.policy_versions.changes().len(), 4);
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[test]
fn episodes_of_which_nobody_says_a_version_have_none_and_take_no_byte_more() {
    let (with, without) = (FaultyDisk::new(), FaultyDisk::new());
    let of = |disk: &FaultyDisk, version_rows| {
        let one = Play { version_rows, ..Play::new("CartPole-v1", 500) };
        play(Arc::new(disk.clone()), Path::new("/data"), &one).bytes
    };
    assert!(of(&without, 0) < of(&with, 100));
    assert!(recorded(&without).iter().all(|episode| episode.policy_versions.is_unknown()));
    let mut with = recorded(&with).into_iter().filter(|episode| episode.info.length > 0);
    assert!(with.all(|episode| !episode.policy_versions.is_unknown()));
}

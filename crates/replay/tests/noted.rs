//! What those who choose actions note of each step stands in the recording, and costs little where it repeats.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{ColumnData, DType, RecordRule, StepColumn, StepColumns};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{
    BeginError, Beside, Episode, Query, Recorder, RecorderConfig, Replays, SeekBounds, Seeker,
};

use crate::model::Shape;
use crate::stage::{Play, noted, play, step_columns};

fn recorded(play_of: &Play) -> (Vec<Episode>, u64) {
    let disk = FaultyDisk::new();
    let bytes = play(Arc::new(disk.clone()), Path::new("/data"), play_of).bytes;
    let replays = Replays::open_scanning(Arc::new(disk), Path::new("/data")).unwrap();
    let listed = replays.list(&Query::default()).unwrap();
    (listed.iter().map(|info| replays.load(info).unwrap()).collect(), bytes)
}

#[test]
fn each_step_of_any_recording_has_what_was_noted_of_its_lane_and_row() {
    let sample = RecordRule::Sample { probability: 0.5 };
    for (env, record) in [
        ("CartPole-v1", RecordRule::All),
        ("Pendulum-v1", RecordRule::All),
        ("CartPole-v1", RecordRule::Trace),
        ("test/Noise-v0", RecordRule::All),
        ("CartPole-v1", sample),
    ] {
        let one = Play { lanes: 5, record, noted: true, ..Play::new(env, 600) };
        let (episodes, _) = recorded(&one);
        assert!(episodes.len() > 5, "{env}");
        for episode in episodes {
            assert_eq!(episode.info.run.step_columns, step_columns());
            let ColumnData::I64(rows) = &episode.step_columns[0] else { panic!("rows are int64") };
            assert_eq!(rows.len() as u64, episode.info.length);
            assert!(rows.windows(2).all(|pair| pair[1] == pair[0] + 1), "{rows:?}");
            let lane = episode.info.name.lane as usize;
            for (step, row) in rows.iter().enumerate() {
                let wanted = noted(*row as u64, 5);
                for ((column, wanted), spec) in
                    episode.step_columns.iter().zip(&wanted).zip(step_columns().specs())
                {
                    let differs = column.first_difference(step, wanted, lane, spec.elements());
                    assert_eq!(differs, None, "{env}: {} of step {step}", spec.path);
                }
            }
        }
    }
}

#[test]
fn a_recording_with_notes_of_its_steps_verifies_and_is_sought_as_one_without() {
    let (mut with, _) = recorded(&Play { noted: true, ..Play::new("CartPole-v1", 500) });
    let (without, _) = recorded(&Play::new("CartPole-v1", 500));
    assert_eq!(with.len(), without.len());
    with.truncate(20);
    for (with, without) in with.iter().zip(&without) {
        assert_eq!(
            (&with.actions, &with.windows, with.end_hash),
            (&without.actions, &without.windows, without.end_hash)
        );
        let registry = rollhouse_env::Registry::builtin();
        let mut seeker = Seeker::new(&registry, with.clone().into(), &SeekBounds::default()).unwrap();
        assert_eq!(seeker.seek(with.info.length).unwrap().t, with.info.length);
    }
}

#[test]
fn columns_in_which_nobody_notes_anything_cost_a_few_bytes_a_chunk() {
    let record = |step_columns: StepColumns| {
        let disk = FaultyDisk::new();
        let recorder = Recorder::open(Arc::new(disk), Path::new("/data"), RecorderConfig::default()).unwrap();
        let shape = Shape { noted: !step_columns.is_empty(), ..Shape::plain(0) };
        let beside = Beside { step_columns, ..Beside::default() };
        let run = recorder.begin_run_with(shape.header(), beside).unwrap();
        let mut driver = crate::model::Driver::new(&Shape { noted: false, ..shape }, run.block(0, 64));
        (0..3000).for_each(|_| driver.row());
        driver.end_all();
        drop((driver, run));
        recorder.finish().unwrap().bytes
    };
    let (without, with) = (record(StepColumns::default()), record(step_columns()));
    assert!(without < with && with < without + without / 20, "{without}, {with}");
}

#[test]
fn a_run_may_have_as_many_columns_as_readers_take() {
    let column = |index| StepColumn { name: format!("column_{index}"), dtype: DType::F64, shape: vec![32] };
    let columns = StepColumns::new((0..16).map(column).collect()).unwrap();
    let disk = FaultyDisk::new();
    let recorder =
        Recorder::open(Arc::new(disk.clone()), Path::new("/data"), RecorderConfig::default()).unwrap();
    let shape = Shape { lanes: 3, ..Shape::plain(0) };
    let begun = recorder
        .begin_run_with(shape.header(), Beside { step_columns: columns.clone(), ..Beside::default() });
    let run = begun.map_err(|error: BeginError| error.to_string()).unwrap();
    let mut driver = crate::model::Driver::new(&shape, run.block(0, 3));
    let values: Vec<ColumnData> = columns.unknown(3);
    driver.recorder.note(&values.iter().map(ColumnData::as_ref).collect::<Vec<_>>());
    (0..300).for_each(|_| driver.row());
    driver.end_all();
    drop((driver, run));
    recorder.finish().unwrap();
    let replays = Replays::open_scanning(Arc::new(disk), Path::new("/data")).unwrap();
    assert_eq!(replays.damage().count(), 0);
    let listed = replays.list(&Query::default()).unwrap();
    assert!(listed.len() > 3);
    for info in &listed {
        let episode = replays.load(info).unwrap();
        let wanted = columns.unknown(episode.info.length as usize);
        assert!(episode.step_columns.iter().zip(&wanted).all(|(column, wanted)| column.has_bits_of(wanted)));
    }
}

//! What is noted of a lane's step stands beside its action, however lanes are stepped.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::header;
use rollhouse_core::{
    AutoresetMode, ColumnData, ColumnRef, DType, RecordRule, StepColumn, StepColumns, random_bits,
};
use rollhouse_engine::{
    CommandFault, CommandLanes, Engine, EngineConfig, Method, NoteParams, NoteSteps, NotedColumn, Nothing,
    Reset, StepError,
};
use rollhouse_env::testing::{Timing, late};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Beside, Query, Recorder, RecorderConfig, Replays};

const LONG: Duration = Duration::from_secs(30);

/// A column that says again which action was taken, one that says which lane took it, and one of which nothing is said.
fn columns() -> StepColumns {
    let column = |name: &str, dtype, shape| StepColumn { name: name.to_owned(), dtype, shape };
    StepColumns::new(vec![
        column("again", DType::F32, vec![2]),
        column("lane", DType::I64, vec![]),
        column("explored", DType::Bool, vec![]),
    ])
    .unwrap()
}

fn cartpole() -> Arc<EnvEntry> {
    Registry::builtin().get("CartPole-v1").unwrap()
}

/// Records what `play` does, and returns the number of steps, each of which has what was noted of it.
fn noted_steps(entry: &Arc<EnvEntry>, config: EngineConfig, play: impl FnOnce(&mut Engine)) -> u64 {
    let disk = Arc::new(FaultyDisk::new());
    let recorder = Recorder::open(disk.clone(), Path::new("data"), RecorderConfig::default()).unwrap();
    let beside = Beside { step_columns: columns(), ..Beside::default() };
    let run = recorder.begin_run_with(header(entry, &config, RecordRule::All), beside).unwrap();
    let mut engine = Engine::new(entry, config, Some(&run)).unwrap();
    let lanes: Vec<i64> = (0..engine.lanes() as i64).collect();
    engine.note(1, None, ColumnRef::I64(&lanes)).unwrap();
    engine.reset(&Reset::seeded(3, engine.lanes())).unwrap();
    play(&mut engine);
    engine.close().unwrap();
    drop(run);
    recorder.finish().unwrap();
    let replays = Replays::open(disk, Path::new("data")).unwrap();
    let mut steps = 0;
    for info in replays.list(&Query::default()).unwrap() {
        let episode = replays.load(&info).unwrap();
        let ColumnData::I64(actions) = &episode.actions else { panic!("discrete") };
        let [ColumnData::F32(again), ColumnData::I64(lanes), ColumnData::U8(explored)] =
            &episode.step_columns[..]
        else {
            panic!("{:?}", episode.step_columns)
        };
        let wanted: Vec<f32> = actions.iter().flat_map(|&action| note_of(info.name.lane, action)).collect();
        assert_eq!(again, &wanted, "lane {}", info.name.lane);
        assert!(lanes.iter().all(|&lane| lane == i64::from(info.name.lane)));
        assert_eq!(explored, &vec![0; actions.len()]);
        steps += info.length;
    }
    steps
}

fn note_of(lane: u32, action: i64) -> [f32; 2] {
    [action as f32 + 0.5, lane as f32]
}

fn step(engine: &mut Engine, at: u64) {
    let actions: Vec<i64> =
        (0..engine.lanes() as u32).map(|lane| (random_bits(3, lane, at) & 1) as i64).collect();
    let notes: Vec<f32> = (0..).zip(&actions).flat_map(|(lane, &action)| note_of(lane, action)).collect();
    engine.note(0, None, ColumnRef::F32(&notes)).unwrap();
    if engine.autoreset() == AutoresetMode::Disabled {
        let frame = engine.frame().unwrap();
        let over = |lane: usize| frame.terminated()[lane] | frame.truncated()[lane] == 1;
        let mask: Vec<bool> = (0..actions.len()).map(over).collect();
        if mask.contains(&true) {
            engine.reset(&Reset { mask, ..Reset::default() }).unwrap();
        }
    }
    engine.actions().unwrap().as_i64_mut().unwrap().copy_from_slice(&actions);
    engine.step().unwrap();
}

#[test]
fn lanes_of_both_kinds_on_any_threads_are_recorded_with_what_was_noted_of_their_steps() {
    let simulator = late(&cartpole(), Timing { seed: 8, ..Timing::default() });
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep, AutoresetMode::Disabled] {
        for (entry, lanes, threads) in [(cartpole(), 70, 1), (cartpole(), 600, 2), (simulator.clone(), 70, 1)]
        {
            let config = EngineConfig { autoreset, threads, ..EngineConfig::new(lanes) };
            let steps = noted_steps(&entry, config, |engine| (0..60).for_each(|at| step(engine, at)));
            assert!(steps > 50 * lanes as u64, "{steps}");
        }
    }
}

#[test]
fn lanes_that_are_sent_some_at_a_time_have_what_was_noted_of_them_before() {
    let simulator = late(&cartpole(), Timing { seed: 8, ..Timing::default() });
    for (entry, lanes, threads) in [(cartpole(), 600, 2), (simulator, 70, 1)] {
        let config = EngineConfig { threads, ..EngineConfig::new(lanes) };
        let steps = noted_steps(&entry, config, |engine| {
            let mut free: Vec<u32> = (0..lanes as u32).collect();
            for at in 0..60 {
                let sent: Vec<u32> = free
                    .iter()
                    .copied()
                    .filter(|&lane| !random_bits(5, lane, at).is_multiple_of(3))
                    .collect();
                free.retain(|lane| !sent.contains(lane));
                let actions: Vec<i64> =
                    sent.iter().map(|&lane| (random_bits(4, lane, at) & 1) as i64).collect();
                let notes: Vec<f32> =
                    sent.iter().zip(&actions).flat_map(|(&lane, &action)| note_of(lane, action)).collect();
                engine.note(0, Some(&sent), ColumnRef::F32(&notes)).unwrap();
                engine.send(&sent, ColumnRef::I64(&actions)).unwrap();
                let refused = engine.note(0, Some(&sent[..1]), ColumnRef::F32(&[9.0, 9.0]));
                assert_eq!(refused, Err(StepError::LaneOutstanding { lane: sent[0] as usize }));
                free.extend(engine.recv(1, LONG).unwrap().lanes);
            }
            while let Ok(_rest) = engine.recv(1, LONG) {}
        });
        assert!(steps > 10 * lanes as u64, "{steps}");
    }
}

#[test]
fn notes_that_fit_no_column_are_refused_and_change_nothing() {
    noted_steps(&cartpole(), EngineConfig::new(3), |engine| {
        step(engine, 0);
        for (column, values) in
            [(0, ColumnRef::F64(&[0.0; 6])), (3, ColumnRef::F32(&[0.0; 6])), (2, ColumnRef::U8(&[0, 2, 1]))]
        {
            let refused = engine.note(column, None, values);
            assert_eq!(refused, Err(StepError::StepColumn { column, dtype: values.dtype() }));
        }
        let refused = engine.note(0, None, ColumnRef::F32(&[0.0; 5]));
        let what = "elements of a step column";
        assert_eq!(refused, Err(StepError::Length { what, given: 5, wanted: 6 }));
        let command = |lanes: &[u32], column, values: &[f32]| NoteParams {
            lanes: lanes.to_vec(),
            columns: vec![NotedColumn {
                column,
                values: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            }],
        };
        let mut ask = |params| NoteSteps::run(&mut CommandLanes::of(engine), params).map(|Nothing {}| ());
        let refused = ask(command(&[0, 1], 0, &[0.0; 3])).unwrap_err();
        assert_eq!(refused.fault(), CommandFault::Caller, "{refused}");
        let refused = ask(command(&[0, 1], 7, &[0.0; 4])).unwrap_err();
        assert_eq!(refused.fault(), CommandFault::Caller, "{refused}");
        assert_eq!(ask(command(&[2, 0], 0, &[5.0; 4])), Ok(()));
        // Of several columns none is noted if one is refused.
        let explored = NotedColumn { column: 2, values: vec![1] };
        for wrong in
            [NotedColumn { column: 7, values: vec![0] }, NotedColumn { column: 1, values: vec![0; 9] }]
        {
            let columns = vec![explored.clone(), wrong];
            ask(NoteParams { lanes: vec![0], columns }).unwrap_err();
        }
        let refused = engine.note(0, Some(&[0, 3]), ColumnRef::F32(&[0.0; 4]));
        assert_eq!(refused, Err(StepError::NoSuchLane { lane: 3, lanes: 3 }));
        step(engine, 1);
    });
    let mut unrecorded = Engine::new(&cartpole(), EngineConfig::new(2), None).unwrap();
    assert!(unrecorded.step_columns().is_empty());
    let refused = unrecorded.note(0, None, ColumnRef::F32(&[0.0; 2]));
    assert_eq!(refused, Err(StepError::StepColumn { column: 0, dtype: DType::F32 }));
}

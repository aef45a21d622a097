//! Methods of plug-ins: called in worker processes as in this one, recorded with their steps, repeated, and refused by
//! name.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::stage;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::limits::{BLOCK_LANES, MAX_ANSWER_BYTES};
use rollhouse_core::{
    Began, Call, ColumnData, ColumnMut, ColumnRef, Interruption, LaneState, Options, Past, PastEvent,
    PlayedActions, RecordRule, RunId, SeedSchedule, random_bits,
};
use rollhouse_engine::{CallFault, CallRefused, Engine, EngineConfig, LogEvent, Reset};
use rollhouse_env::{CallError, EnvEntry};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{PolicyInfo, Recorder, RecorderConfig, Replays, RunHeader};
use stage::{Folder, entry, registry};

const SOURCE: &str = "host/tests/stage/called.c";

/// Two blocks, each with a worker of its own.
const LANES: usize = 70;

/// The plug-in, trusted and isolated.
fn entries(folder: &Folder) -> Option<[Arc<EnvEntry>; 2]> {
    let path = folder.compiled(SOURCE, "-DCALLED")?;
    Some([entry(&path, true), entry(&path, false)])
}

fn begun(entry: &Arc<EnvEntry>) -> Engine {
    let mut engine = Engine::new(entry, EngineConfig::new(LANES), None).unwrap();
    engine.keep_log().unwrap();
    engine.reset(&Reset::seeded(3, LANES)).unwrap();
    engine
}

/// Calls lanes and steps all. Returns the answers.
fn turn(engine: &mut Engine, number: u64) -> Vec<Result<String, CallRefused>> {
    let mut answers = Vec::new();
    for lane in (0..LANES).filter(|&lane| random_bits(5, lane as u32, number).is_multiple_of(8)) {
        let (method, payload) = match random_bits(6, lane as u32, number) % 3 {
            0 => ("push", ["1.5", "-2", "10"][number as usize % 3]),
            1 => ("shake", "null"),
            _ => ("where", "null"),
        };
        answers.push(engine.call(lane, method, payload));
    }
    step(engine, number);
    answers
}

fn step(engine: &mut Engine, number: u64) {
    let ColumnMut::I64(actions) = engine.actions().unwrap() else { panic!("it is discrete") };
    actions.iter_mut().enumerate().for_each(|(lane, action)| *action = chosen(lane, number));
    engine.step().unwrap();
}

fn chosen(lane: usize, number: u64) -> i64 {
    (random_bits(7, lane as u32, number) & 1) as i64
}

fn places(engine: &mut Engine) -> Vec<u64> {
    let frame = engine.frame().unwrap();
    let ColumnRef::F64(places) = frame.obs(0) else { panic!("a column of doubles") };
    places.iter().map(|place| place.to_bits()).collect()
}

#[test]
fn calls_are_answered_alike_wherever_the_plugin_is_and_leave_the_same_log() {
    let folder = Folder::new();
    let Some(entries) = entries(&folder) else { return };
    assert_eq!(entries[0].spec(), entries[1].spec());
    let mut engines = entries.each_ref().map(begun);
    let (mut answered, mut refused) = (0, 0);
    for number in 0..150 {
        let [trusted, isolated] = engines.each_mut().map(|engine| {
            let (answers, mut log) = (turn(engine, number), Vec::new());
            engine.take_log(&mut log);
            let log: Vec<_> = log.iter().map(|event| format!("{event:?}")).collect();
            (answers, places(engine), log)
        });
        assert_eq!(trusted, isolated, "{number}");
        answered += trusted.0.iter().flatten().count();
        let asked_too_much = |refused: &&CallRefused| refused.to_string().contains("a push is at most 9");
        refused += trusted.0.iter().filter_map(|answer| answer.as_ref().err()).filter(asked_too_much).count();
    }
    assert!(answered > 500 && refused > 20, "{answered} answered, {refused} refused");
}

fn header(entry: &EnvEntry, config: &EngineConfig) -> RunHeader {
    let spec = entry.spec().clone();
    RunHeader {
        run: RunId::generate(),
        options: vec![Options::check(&spec.options, &[]).unwrap()],
        lanes: LANES as u32,
        schedule: SeedSchedule::Continue,
        autoreset: config.autoreset.name().to_owned(),
        max_episode_steps: spec.max_episode_steps,
        policy: PolicyInfo { name: "test".into(), version: 0 },
        record: RecordRule::All,
        program: "test".into(),
        started_ms: 0,
        parent: None,
        arguments: String::new(),
        spec,
    }
}

#[test]
fn what_was_recorded_with_calls_in_workers_is_verified_by_a_trusted_plugin_and_in_workers() {
    let folder = Folder::new();
    let Some(path) = folder.compiled(SOURCE, "-DCALLED") else { return };
    let isolated = entry(&path, false);
    let (config, disk) = (EngineConfig::new(LANES), Arc::new(FaultyDisk::new()));
    let recorder = Recorder::open(disk.clone(), Path::new("data"), RecorderConfig::default()).unwrap();
    let run = recorder.begin_run(header(&isolated, &config)).unwrap();
    let mut engine = Engine::new(&isolated, config, Some(&run)).unwrap();
    engine.reset(&Reset::seeded(3, LANES)).unwrap();
    (0..150).for_each(|number| drop(turn(&mut engine, number)));
    engine.close().unwrap();
    drop(run);
    recorder.finish().unwrap();
    let replays = Replays::open(disk, Path::new("data")).unwrap();
    let mut calls = 0;
    replays.for_each(|info| calls += replays.load(&info).unwrap().calls.len()).unwrap();
    assert!(calls > 300, "{calls}");
    for trusted in [true, false] {
        let (registry, _) = registry(&path, trusted);
        let mut verified = 0;
        replays
            .verify_all(&registry, |found| {
                assert!(found.ok && found.note.is_none(), "{found:?}");
                verified += 1;
            })
            .unwrap();
        assert!(verified > LANES, "{verified}");
    }
}

#[test]
fn a_session_in_workers_goes_on_from_a_past_with_calls_where_a_trusted_one_stood() {
    let folder = Folder::new();
    let Some([trusted, isolated]) = entries(&folder) else { return };
    let (mut first, mut past) = (begun(&trusted), Vec::new());
    let take = |engine: &Engine, past: &mut Vec<Past>| {
        let mut log = Vec::new();
        engine.take_log(&mut log);
        past.extend(log.into_iter().map(|event| match event {
            LogEvent::Began(Began { lane, number, start }) => {
                Past { lane, what: PastEvent::Began { number, start } }
            }
            LogEvent::Hash { lane, hash } => Past { lane, what: PastEvent::Stood(hash) },
        }));
    };
    take(&first, &mut past);
    for number in 0..100 {
        let playing: Vec<bool> =
            first.lane_states().unwrap().iter().map(|&state| state == LaneState::Playing).collect();
        for (lane, _) in playing.iter().enumerate().filter(|(_, playing)| **playing) {
            let mut called = |method: &str, payload: &str| {
                first.call(lane, method, payload).unwrap();
                let call = Call { method: method.to_owned(), payload: payload.to_owned() };
                past.push(Past { lane: lane as u32, what: PastEvent::Called(call) });
            };
            match random_bits(5, lane as u32, number) % 12 {
                0 => called("push", "0.25"),
                1 => called("shake", "null"),
                _ => {}
            }
            let actions = ColumnData::I64(vec![chosen(lane, number)]);
            let played = PastEvent::Played(PlayedActions { count: 1, actions });
            past.push(Past { lane: lane as u32, what: played });
        }
        step(&mut first, number);
        take(&first, &mut past);
    }
    let mut second = Engine::new(&isolated, EngineConfig::new(LANES), None).unwrap();
    second.replay(past).unwrap();
    for number in 100..150 {
        let answers = [turn(&mut first, number), turn(&mut second, number)];
        assert_eq!(answers[0], answers[1], "{number}");
        assert_eq!(places(&mut first), places(&mut second), "{number}");
    }
}

/// Calls a lane of the first block, and returns how that went, the states of lanes after the next step.
fn broken(entry: &Arc<EnvEntry>, method: &str) -> (CallFault, Vec<LaneState>) {
    let mut engine = begun(entry);
    let mut whole = begun(entry);
    step(&mut engine, 0);
    step(&mut whole, 0);
    let refused = engine.call(5, method, "null").unwrap_err();
    let CallRefused::Lane { source, .. } = refused else { panic!("{refused}") };
    step(&mut engine, 1);
    step(&mut whole, 1);
    assert_eq!(places(&mut engine)[BLOCK_LANES..], places(&mut whole)[BLOCK_LANES..], "the other block's");
    let states = engine.lane_states().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let mut number = 2;
    while engine.lost() > 0 {
        assert!(Instant::now() < until, "{} lanes are lost", engine.lost());
        step(&mut engine, number);
        number += 1;
    }
    (source, states)
}

#[test]
fn a_call_that_breaks_costs_the_lane_or_the_block_and_it_comes_back() {
    let folder = Folder::new();
    let Some(entries) = entries(&folder) else { return };
    let lost = |states: &[LaneState]| states.iter().filter(|&&state| state == LaneState::BackOff).count();
    for entry in &entries {
        let (source, states) = broken(entry, "lose");
        assert_eq!((source, lost(&states)), (CallFault::Lost, 1));
        let (source, states) = broken(entry, "fail");
        assert_eq!((source, lost(&states)), (CallFault::Lost, BLOCK_LANES));
    }
    let (source, states) = broken(&entries[1], "crash");
    assert_eq!((source, lost(&states)), (CallFault::Lost, BLOCK_LANES));
}

#[test]
fn answers_that_are_lies_or_no_texts_change_no_memory_and_are_told() {
    let folder = Folder::new();
    let Some(entries) = entries(&folder) else { return };
    for entry in &entries {
        let mut engine = begun(entry);
        let fault = |refused| match refused {
            CallRefused::Lane { source, .. } => source,
            other => panic!("{other}"),
        };
        let lie = engine.call(1, "lie", "null").map_err(fault);
        assert_eq!(lie, Err(CallFault::Answer { bytes: MAX_ANSWER_BYTES + 1 }));
        assert!(engine.call(1, "where", "null").unwrap().ends_with("\"pushed\": 1}"), "it was done");
        assert_eq!(engine.call(1, "shout", "1048576").unwrap(), "a".repeat(MAX_ANSWER_BYTES));
        let longer = engine.call(1, "shout", "1048577").map_err(fault);
        assert_eq!(longer, Err(CallFault::Answer { bytes: MAX_ANSWER_BYTES + 1 }));
        assert_eq!(engine.call(1, "latin", "null").unwrap(), "Stra\u{fffd}e");
        let nothing = engine.call(1, "nothing", "null").map_err(fault);
        assert_eq!(nothing, Err(CallFault::Env(CallError::Unsupported)));
        engine.interrupt(Interruption::Cancelled).unwrap();
        assert_eq!(engine.call(1, "push", "1").map_err(fault), Err(CallFault::NoEpisode));
    }
}

//! What the rows of late lanes report is what is shown, recorded and resumed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::header;
use rollhouse_core::{
    AutoresetMode, Began, ColumnData, ColumnRef, DType, Interruption, Past, PastEvent, PlayedActions,
    RecordRule, StepColumn, StepColumns, random_bits,
};
use rollhouse_engine::{Engine, EngineConfig, LogEvent, Reset, ResumeError};
use rollhouse_env::testing::{FIRST_VERSION, Misreport, Timing, late};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Beside, Query, Recorder, RecorderConfig, Replays, Verification};

const LANES: usize = 70;
const STEPS: u64 = 60;
const LONG: Duration = Duration::from_secs(30);

fn cartpole() -> Arc<EnvEntry> {
    Registry::builtin().get("CartPole-v1").unwrap()
}

fn simulator() -> Arc<EnvEntry> {
    late(&cartpole(), Timing { seed: 8, reports: true, ..Timing::default() })
}

/// What a lane reported of a step: action, version of the policy, number of the step, and whether it took its default.
type Report = (i64, i64, i64, u8);

fn report(infos: &[ColumnRef<'_>], row: usize) -> Report {
    let [ColumnRef::I64(actions), ColumnRef::I64(versions), ColumnRef::I64(ticks), ColumnRef::U8(defaulted)] =
        infos
    else {
        panic!("{infos:?}")
    };
    (actions[row], versions[row], ticks[row], defaulted[row])
}

fn given(lane: u32, at: u64) -> i64 {
    (random_bits(3, lane, at) & 1) as i64
}

/// Steps all lanes, and adds what those reported that stepped.
fn step(engine: &mut Engine, at: u64, reports: &mut [Vec<Report>]) {
    if engine.autoreset() == AutoresetMode::Disabled {
        let frame = engine.frame().unwrap();
        let over = |lane: usize| frame.terminated()[lane] | frame.truncated()[lane] == 1;
        let mask: Vec<bool> = (0..LANES).map(over).collect();
        if mask.contains(&true) {
            engine.reset(&Reset { mask, ..Reset::default() }).unwrap();
        }
    }
    let actions: Vec<i64> = (0..LANES as u32).map(|lane| given(lane, at)).collect();
    common::act(engine, &actions);
    let same_step = engine.autoreset() == AutoresetMode::SameStep;
    let frame = engine.step().unwrap();
    let infos: Vec<_> = (0..4).map(|column| frame.info(column)).collect();
    for (lane, reports) in reports.iter_mut().enumerate() {
        if same_step || frame.reset()[lane] == 0 {
            reports.push(report(&infos, lane));
        }
    }
}

/// Sends lanes some at a time, and adds what they reported.
fn send(engine: &mut Engine, reports: &mut [Vec<Report>]) {
    let mut free: Vec<u32> = (0..LANES as u32).collect();
    for at in 0..STEPS {
        let (sent, rest) = free.iter().partition(|&&lane| !random_bits(5, lane, at).is_multiple_of(3));
        free = rest;
        let actions: Vec<i64> = Vec::from_iter(&sent).into_iter().map(|&lane| given(lane, at)).collect();
        engine.send(&sent, ColumnRef::I64(&actions)).unwrap();
        take(engine, reports, &mut free);
    }
    while engine.outstanding() > 0 {
        take(engine, reports, &mut free);
    }
}

fn take(engine: &mut Engine, reports: &mut [Vec<Report>], free: &mut Vec<u32>) {
    let received = engine.recv(1, LONG).unwrap();
    let infos: Vec<_> = received.infos.iter().map(ColumnData::as_ref).collect();
    for (row, &lane) in received.lanes.iter().enumerate() {
        if received.reset[row] == 0 {
            reports[lane as usize].push(report(&infos, row));
        }
    }
    free.extend(received.lanes);
}

/// Records what `play` does with lanes that report, and compares it with what they reported.
fn check(config: EngineConfig, play: impl FnOnce(&mut Engine, &mut [Vec<Report>])) {
    let (entry, disk) = (simulator(), Arc::new(FaultyDisk::new()));
    let recorder = Recorder::open(disk.clone(), Path::new("data"), RecorderConfig::default()).unwrap();
    let column = StepColumn { name: "own".to_owned(), dtype: DType::F32, shape: vec![] };
    let beside = Beside { step_columns: StepColumns::new(vec![column]).unwrap(), ..Beside::default() };
    let run = recorder.begin_run_with(header(&entry, &config, RecordRule::All), beside).unwrap();
    let mut engine = Engine::new(&entry, config, Some(&run)).unwrap();
    let own: Vec<f32> = (0..LANES).map(|lane| lane as f32).collect();
    engine.note(0, None, ColumnRef::F32(&own)).unwrap();
    engine.set_policy_version(5);
    engine.reset(&Reset::seeded(3, LANES)).unwrap();
    let mut reports = vec![Vec::new(); LANES];
    play(&mut engine, &mut reports);
    engine.close().unwrap();
    drop(run);
    recorder.finish().unwrap();
    let replays = Replays::open(disk, Path::new("data")).unwrap();
    let mut found: BTreeMap<(u32, u64), Vec<Report>> = BTreeMap::new();
    for info in replays.list(&Query::default()).unwrap() {
        assert_eq!(info.run.spec, *cartpole().spec(), "no channel with a report is one of the recording");
        let episode = replays.load(&info).unwrap();
        let ColumnData::I64(actions) = &episode.actions else { panic!("discrete") };
        let [ColumnData::F32(own), ColumnData::I64(ticks), ColumnData::U8(defaulted)] =
            &episode.step_columns[..]
        else {
            panic!("{:?}", episode.step_columns)
        };
        assert!(own.iter().all(|&own| own == info.name.lane as f32));
        let of_step = |at: usize| {
            (actions[at], episode.policy_versions.of_step(at as u64) as i64, ticks[at], defaulted[at])
        };
        found.insert((info.name.lane, info.name.number), (0..actions.len()).map(of_step).collect());
    }
    // A kernel that is given what was recorded comes to the same states.
    let verified = |verification: Verification| assert!(verification.ok, "{verification:?}");
    replays.verify_all(&Registry::builtin(), verified).unwrap();
    for (lane, reports) in (0..).zip(&reports) {
        let recorded: Vec<_> = found.range((lane, 0)..=(lane, u64::MAX)).flat_map(|(_, of)| of).collect();
        assert_eq!(recorded, reports.iter().collect::<Vec<_>>(), "lane {lane}");
        let numbers: Vec<_> =
            reports.iter().map(|&(_, version, tick, _)| (version - FIRST_VERSION, tick)).collect();
        assert!(numbers.iter().all(|(version, tick)| version == tick), "lane {lane}: {numbers:?}");
    }
    let defaults = reports.iter().flatten().filter(|&&(action, .., defaulted)| action == 0 && defaulted == 1);
    assert!(defaults.count() > LANES, "lanes took their default");
}

#[test]
fn what_a_row_reports_is_what_is_shown_recorded_and_verified() {
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep, AutoresetMode::Disabled] {
        check(EngineConfig { autoreset, ..EngineConfig::new(LANES) }, |engine, reports| {
            (0..STEPS).for_each(|at| step(engine, at, reports));
        });
    }
    check(EngineConfig::new(LANES), send);
}

#[test]
fn a_lane_that_reports_what_cannot_be_is_lost_alone_with_the_cause() {
    for (what, why) in [
        (
            Misreport::Action,
            "the action that the lane took is none: action -1 of lane 65 is not an integer from 0 to 1",
        ),
        (Misreport::Version, "the policy's version went back from 104 to 1"),
        (Misreport::Note, "step column `defaulted` has a boolean of 2"),
    ] {
        for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
            let timing = Timing { reports: true, misreports: Some((65, 5, what)), ..Timing::default() };
            let config = EngineConfig { autoreset, ..EngineConfig::new(LANES) };
            let mut engine = Engine::new(&late(&cartpole(), timing), config, None).unwrap();
            engine.reset(&Reset::seeded(3, LANES)).unwrap();
            let mut reports = vec![Vec::new(); LANES];
            (0..4).for_each(|at| step(&mut engine, at, &mut reports));
            assert_eq!(engine.lost(), 0);
            (4..7).for_each(|at| step(&mut engine, at, &mut reports));
            let lost: Vec<_> = (0..LANES).filter(|&lane| engine.is_lost(lane)).collect();
            assert_eq!((lost, engine.loss(65)), (vec![65], Some(Interruption::Crashed)), "{what:?}");
            let words = engine.words(65).unwrap().lost.unwrap();
            assert!(words.contains(why), "{words}");
            assert_eq!(reports[64].len(), 7);
            while engine.lost() > 0 {
                engine.restart_lost().unwrap();
            }
            // It comes back, and may begin with any version.
            (7..20).for_each(|at| step(&mut engine, at, &mut reports));
            assert_eq!(engine.lost(), 0);
        }
    }
}

/// Plays lanes that report, and returns what an owner's log has of them: starts, hashes, and the actions that were taken, or
/// with `taken` false those that were given.
fn played(engine: &mut Engine, taken: bool) -> Vec<Past> {
    engine.keep_log().unwrap();
    engine.reset(&Reset::seeded(3, LANES)).unwrap();
    let mut past = Vec::new();
    for at in 0..200 {
        let mut reports = vec![Vec::new(); LANES];
        if at > 0 {
            step(engine, at, &mut reports);
        }
        for (lane, reports) in (0..).zip(&reports) {
            for &(action, ..) in reports {
                let actions = ColumnData::I64(vec![if taken { action } else { given(lane, at) }]);
                past.push(Past { lane, what: PastEvent::Played(PlayedActions { count: 1, actions }) });
            }
        }
        let mut events = Vec::new();
        engine.take_log(&mut events);
        past.extend(events.into_iter().map(|event| match event {
            LogEvent::Began(Began { lane, number, start }) => {
                Past { lane, what: PastEvent::Began { number, start } }
            }
            LogEvent::Hash { lane, hash } => Past { lane, what: PastEvent::Stood(hash) },
        }));
    }
    past
}

/// The states of all lanes, as bits.
fn states(engine: &mut Engine) -> Vec<Vec<u64>> {
    let states = engine.states(0..LANES).unwrap();
    states.iter().map(|state| state.iter().map(|value| value.to_bits()).collect()).collect()
}

#[test]
fn lanes_that_chose_their_actions_are_resumed_by_those_that_they_took() {
    for autoreset in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
        let config = EngineConfig { autoreset, ..EngineConfig::new(LANES) };
        let make = || Engine::new(&simulator(), config.clone(), None).unwrap();
        let mut first = make();
        let past = played(&mut first, true);
        let mut second = make();
        second.replay(past).unwrap();
        assert_eq!(states(&mut second), states(&mut first));
        // What they were given leads elsewhere.
        let (past, mut third) = (played(&mut make(), false), make());
        assert!(third.replay(past).is_err() || states(&mut third) != states(&mut first));
    }
}

#[test]
fn a_lane_that_does_not_repeat_what_it_took_is_not_resumed() {
    let config = EngineConfig::new(LANES);
    let past = played(&mut Engine::new(&simulator(), config.clone(), None).unwrap(), true);
    let timing =
        Timing { reports: true, misreports: Some((2, 9, Misreport::Otherwise)), ..Timing::default() };
    let mut other = Engine::new(&late(&cartpole(), timing), config, None).unwrap();
    let error = other.replay(past).unwrap_err();
    assert_eq!(error, ResumeError::Crashed { lane: 2, number: 0 });
}

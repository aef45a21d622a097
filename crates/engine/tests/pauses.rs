//! What was recorded before stepping pauses is handed over in the pause, and costs nothing that is under way.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollhouse_core::{ColumnRef, LaneDeadlines, RecordRule};
use rollhouse_engine::{Engine, EngineConfig, Reset};
use rollhouse_env::EnvEntry;
use rollhouse_env::testing::{Gate, Timing, late};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Recorder, RecorderConfig, RunRecorder};

use crate::common::{act, counter, header, options};

const LONG: Duration = Duration::from_secs(30);

/// A recorder of a run of `config`, whose open run keeps the engine's recorders valid.
fn recorder(entry: &EnvEntry, config: &EngineConfig) -> (Recorder, RunRecorder) {
    let disk = Arc::new(FaultyDisk::new());
    let recorder = Recorder::open(disk, Path::new("data"), RecorderConfig::default()).unwrap();
    let run = recorder.begin_run(header(entry, config, RecordRule::All)).unwrap();
    (recorder, run)
}

/// Lanes whose episodes end with every step.
fn short_episodes(lanes: usize, threads: usize) -> EngineConfig {
    EngineConfig { threads, options: vec![options(1, -1)], ..EngineConfig::new(lanes) }
}

/// Returns the episodes that have reached the writer.
fn written(recorder: &Recorder) -> u64 {
    recorder.write_out().unwrap().episodes
}

/// Symptom: a trainer that handed over what was recorded between `send` and `recv` lost the rows of its lanes.
/// Cause: handing over was a job between two steps, for which first-done mode ended. Fix: it is done beside what is under way.
#[test]
fn handing_over_leaves_what_was_sent_to_be_received() {
    for threads in [1, 2] {
        let (lanes, config) = (600, short_episodes(600, threads));
        let (recorder, run) = recorder(&counter(), &config);
        let mut engine = Engine::new(&counter(), config, Some(&run)).unwrap();
        engine.reset(&Reset::all()).unwrap();
        let all: Vec<u32> = (0..lanes as u32).collect();
        engine.send(&all, ColumnRef::I64(&vec![1; lanes])).unwrap();
        engine.flush().unwrap();
        assert_eq!(engine.recv(lanes, LONG).unwrap().lanes.len(), lanes, "{threads} threads");
        let began = Instant::now();
        while written(&recorder) < lanes as u64 {
            assert!(began.elapsed() < LONG, "{threads} threads hand over");
        }
    }
}

/// Symptom: while a lane of a game took long for its step, a kill lost the episodes that had ended before it.
/// Cause: only the next row closed a chunk. Fix: who waits for lanes hands over what they have recorded.
#[test]
fn what_late_lanes_have_recorded_is_handed_over_while_they_are_waited_for() {
    static GATE: Gate = Gate::new();
    let entry = late(&counter(), Timing { gate: Some(&GATE), together: true, ..Timing::default() });
    let config = EngineConfig { lane_deadlines: LaneDeadlines::both(LONG), ..short_episodes(2, 1) };
    let (recorder, run) = recorder(&entry, &config);
    let mut engine = Engine::new(&entry, config, Some(&run)).unwrap();
    engine.reset(&Reset::all()).unwrap();
    act(&mut engine, &[1, 1]);
    engine.step().unwrap();
    assert_eq!(written(&recorder), 0, "the chunk is open");
    GATE.close(true);
    act(&mut engine, &[1, 1]);
    engine.begin_step().unwrap();
    let began = Instant::now();
    while written(&recorder) < 2 {
        assert!(began.elapsed() < LONG / 2, "nothing is handed over while lanes are waited for");
        assert!(!engine.finish(Duration::from_millis(20)).unwrap());
    }
    GATE.close(false);
    while !engine.finish(LONG).unwrap() {}
}

/// Symptom and cause as above, of an owner that sleeps on the descriptor of the lanes and looks without waiting.
#[test]
fn one_who_sleeps_is_called_to_hand_over_and_a_look_does() {
    static GATE: Gate = Gate::new();
    let entry = late(&counter(), Timing { gate: Some(&GATE), together: true, ..Timing::default() });
    let config = EngineConfig { lane_deadlines: LaneDeadlines::both(LONG), ..short_episodes(2, 1) };
    let (recorder, run) = recorder(&entry, &config);
    let mut engine = Engine::new(&entry, config, Some(&run)).unwrap();
    engine.reset(&Reset::all()).unwrap();
    act(&mut engine, &[1, 1]);
    engine.step().unwrap();
    GATE.close(true);
    let began = Instant::now();
    assert_eq!(engine.arm(began), Ok(None), "nothing is under way");
    act(&mut engine, &[1, 1]);
    engine.begin_step().unwrap();
    let until = engine.arm(Instant::now()).unwrap().unwrap();
    assert!(began < until && until < began + LONG / 2, "the deadline of lanes is later");
    while written(&recorder) < 2 {
        assert!(began.elapsed() < LONG / 2, "a look hands nothing over");
        assert!(!engine.finish(Duration::ZERO).unwrap());
    }
    GATE.close(false);
    let now = Instant::now();
    assert_eq!(engine.arm(now), Ok(Some(now)), "the lanes have finished");
    assert!(engine.finish(Duration::ZERO).unwrap());
}

/// Symptom and cause as above, of an owner that does something else while lanes step.
#[test]
fn handing_over_does_not_wait_for_lanes_that_are_under_way() {
    static GATE: Gate = Gate::new();
    let entry = late(&counter(), Timing { gate: Some(&GATE), together: true, ..Timing::default() });
    let config = EngineConfig {
        lane_deadlines: LaneDeadlines::both(Duration::from_secs(3600)),
        ..short_episodes(2, 1)
    };
    let (recorder, run) = recorder(&entry, &config);
    let mut engine = Engine::new(&entry, config, Some(&run)).unwrap();
    engine.reset(&Reset::all()).unwrap();
    act(&mut engine, &[1, 1]);
    engine.step().unwrap();
    GATE.close(true);
    act(&mut engine, &[1, 1]);
    engine.begin_step().unwrap();
    engine.flush().unwrap();
    assert_eq!(written(&recorder), 2);
    assert!(!engine.finish(Duration::ZERO).unwrap(), "the step is under way");
    GATE.close(false);
    while !engine.finish(LONG).unwrap() {}
}

/// Symptom: after a rollout of 50 steps and a kill while the trainer learned, all episodes that had ended were gone.
/// Cause: only the next step handed over what was recorded. Fix: a pause does, whoever steps the lanes.
#[test]
fn a_pause_between_two_steps_hands_over_what_has_ended_on_every_thread() {
    for threads in [1, 2] {
        let lanes = 600;
        let config = short_episodes(lanes, threads);
        let (recorder, run) = recorder(&counter(), &config);
        let mut engine = Engine::new(&counter(), config, Some(&run)).unwrap();
        engine.reset(&Reset::all()).unwrap();
        act(&mut engine, &vec![1; lanes]);
        engine.step().unwrap();
        assert_eq!(written(&recorder), 0, "the chunks are open");
        assert!(!engine.hand_over(Duration::from_millis(100)).unwrap(), "nothing stays");
        assert_eq!(written(&recorder), lanes as u64, "{threads} threads");
        let (frame, _) = engine.frame_and_actions().unwrap();
        assert!(frame.terminated().iter().all(|&flag| flag == 1), "the frame stays as it is");
        act(&mut engine, &vec![1; lanes]);
        engine.step().unwrap();
        engine.close().unwrap();
    }
}

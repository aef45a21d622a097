//! Those who step a run end although the writer takes nothing.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rollhouse_replay::testing::{Faults, FaultyDisk};
use rollhouse_replay::{OnOutage, Recorder, RecorderConfig, Replays};

use crate::model::{DIR, Driver, Model, Shape, all, assert_same};

/// Steps on a thread of its own until `ending` is raised while the writer takes nothing, and gives what was lived. Whoever
/// is not let go is given up.
fn step_until_asked_to_end(recorder: &Recorder, shape: &Shape) -> Model {
    let run = recorder.begin_run(shape.header()).unwrap();
    let ending = Arc::new(AtomicBool::new(false));
    run.end_with(Arc::clone(&ending));
    let mut driver = Driver::new(shape, run.block(0, shape.lanes));
    let (ended, ends) = sync_channel(1);
    let asked = Arc::clone(&ending);
    std::thread::spawn(move || {
        while !asked.load(Ordering::Relaxed) {
            driver.row();
        }
        driver.recorder.flush();
        let Driver { recorder, model, .. } = driver;
        drop(recorder);
        ended.send(model).unwrap();
    });
    while !run.is_behind() {
        std::thread::yield_now();
    }
    ending.store(true, Ordering::Relaxed);
    ends.recv_timeout(Duration::from_secs(60)).expect("it waits for the writer although it is asked to end")
}

fn shape() -> Shape {
    Shape { lanes: 8, end_one_in: 12, ..Shape::plain(0) }
}

/// Symptom: `rollout --connect` did not end on SIGTERM while a node's spool was full, nor did the node's session. Cause:
/// who waits for the writer in the middle of a step did not look whether he is asked to end. Fix: he looks, and what he
/// holds waits for the writer in memory.
#[test]
fn who_is_asked_to_end_does_not_wait_for_a_writer_that_is_held_and_what_he_stepped_is_written_when_it_is_not()
{
    let disk = FaultyDisk::new();
    let recorder = Recorder::open(Arc::new(disk.clone()), Path::new(DIR), RecorderConfig::default()).unwrap();
    recorder.hold(true);
    let model = step_until_asked_to_end(&recorder, &shape());
    recorder.hold(false);
    let recorded = recorder.finish().unwrap();
    assert_eq!((recorded.lost_chunks, recorded.lost_episodes), (0, 0));
    let replays = Replays::open(Arc::new(disk), Path::new(DIR)).unwrap();
    let listed = all(&replays);
    let ended = model.iter().filter(|(_, lived)| lived.end.is_some());
    let mut compared = 0;
    for (&(lane, number), lived) in ended {
        let info = listed.iter().find(|info| (info.name.lane, info.name.number) == (lane, number));
        let info = info.unwrap_or_else(|| panic!("{lane}-{number} is missing"));
        if compared % 100 == 0 {
            assert_same(&shape(), lived, &replays.load(info).unwrap());
        }
        compared += 1;
    }
    assert_eq!(recorded.episodes, compared);
}

#[test]
fn who_is_asked_to_end_does_not_wait_for_a_full_disk_and_what_he_stepped_is_counted_as_written_or_lost() {
    let disk = FaultyDisk::new();
    let config = RecorderConfig { on_outage: OnOutage::Wait, ..RecorderConfig::default() };
    let recorder = Recorder::open(Arc::new(disk.clone()), Path::new(DIR), config).unwrap();
    disk.set_faults(Faults { capacity: Some(0), ..Faults::default() });
    let model = step_until_asked_to_end(&recorder, &shape());
    // As whoever ends a session does.
    recorder.write_out().unwrap_err();
    let recorded = recorder.status().recorded;
    let ended = model.values().filter(|lived| lived.end.is_some()).count() as u64;
    assert!(recorded.lost_episodes > 0);
    assert_eq!(recorded.episodes + recorded.lost_episodes, ended);
}

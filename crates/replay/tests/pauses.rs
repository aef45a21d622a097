//! A pause in stepping holds no ended episode back, and leaves chunks of images open in which none has ended.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rollhouse_core::Outcome;
use rollhouse_replay::limits::{CHUNK_AGE_MS, PACKED_AGE_MS};
use rollhouse_replay::testing::{DrivenRecorder, Faults, FaultyDisk};
use rollhouse_replay::{RecorderConfig, RunRecorder};

use crate::model::{DIR, Driver, Shape};

const SHORT: Duration = Duration::from_millis(CHUNK_AGE_MS);
const LONG: Duration = Duration::from_millis(PACKED_AGE_MS);

/// A recorder of lanes whose episodes end only when a test ends them.
struct Stage {
    recorder: DrivenRecorder,
    driver: Driver,
    _run: RunRecorder,
}

impl Stage {
    fn new(images: bool) -> Self {
        let shape =
            Shape { images, lanes: 4, end_one_in: u64::MAX, deterministic: !images, ..Shape::plain(0) };
        let disk = Arc::new(FaultyDisk::new());
        let opened = DrivenRecorder::open(disk, Path::new(DIR), RecorderConfig::default(), 1, Duration::ZERO);
        let mut recorder = opened.unwrap();
        let run = recorder.recorder().begin_run(shape.header()).unwrap();
        recorder.turn(Duration::ZERO);
        let mut driver = Driver::new(&shape, run.block(0, shape.lanes));
        driver.row();
        Self { recorder, driver, _run: run }
    }

    /// Hands over after a pause. Returns whether something stays, and the lane-steps that were written by then.
    fn pause(&mut self, paused: Duration) -> (bool, u64) {
        let stays = self.driver.recorder.hand_over(paused);
        self.recorder.write_out(Duration::ZERO);
        (stays, self.recorder.recorder().status().recorded.steps)
    }
}

#[test]
fn a_short_pause_hands_over_everything_that_is_not_packed() {
    let mut stage = Stage::new(false);
    assert_eq!(stage.pause(SHORT), (false, 4));
    assert_eq!(stage.pause(SHORT), (false, 4), "there is nothing more");
}

#[test]
fn a_short_pause_leaves_a_chunk_of_images_open_in_which_no_episode_has_ended_and_a_long_one_does_not() {
    let mut stage = Stage::new(true);
    assert_eq!(stage.pause(SHORT), (true, 0));
    stage.driver.row();
    assert_eq!(stage.pause(LONG - Duration::from_millis(1)), (true, 0));
    assert_eq!(stage.pause(LONG), (false, 8));
}

#[test]
fn a_short_pause_hands_over_images_of_an_episode_that_has_ended() {
    let mut stage = Stage::new(true);
    stage.driver.end(2, Outcome::Finished { terminated: true, truncated: false });
    assert_eq!(stage.pause(SHORT), (false, 4));
    assert_eq!(stage.recorder.recorder().status().recorded.episodes, 1);
}

#[test]
fn a_recorder_says_since_when_its_disk_takes_nothing_and_how_much_room_there_is() {
    let disk = FaultyDisk::new();
    let shape = Shape { lanes: 8, end_one_in: 4, ..Shape::plain(0) };
    let config = RecorderConfig::default();
    let shared = Arc::new(disk.clone());
    let mut recorder = DrivenRecorder::open(shared, Path::new(DIR), config, 1, Duration::ZERO).unwrap();
    let watch = recorder.recorder().watch();
    let run = recorder.recorder().begin_run(shape.header()).unwrap();
    let mut driver = Driver::new(&shape, run.block(0, shape.lanes));
    let mut now = Duration::ZERO;
    let mut live = |recorder: &mut DrivenRecorder, seconds: u64| {
        for _ in 0..seconds * 10 {
            now += Duration::from_millis(100);
            driver.row();
            driver.recorder.flush();
            recorder.turn(now);
        }
    };
    live(&mut recorder, 3);
    let status = watch.status();
    assert_eq!((status.failing_since_ms, status.room), (None, None), "nobody knows the size of this disk");
    assert!(status.recorded.raw_bytes >= 8 * status.recorded.steps && status.recorded.steps > 0);
    // Something else lies there, beside which what is recorded is little.
    disk.write(Path::new("/else"), vec![0; 1 << 20]);
    let of = |free| Faults { capacity: Some(disk.used() + free), ..Faults::default() };
    disk.set_faults(of(1 << 20));
    live(&mut recorder, 3);
    assert!(!watch.status().room.unwrap().is_short());
    disk.set_faults(of(40 << 10));
    live(&mut recorder, 3);
    assert!(watch.status().room.unwrap().is_short());
    assert_eq!(watch.status().recorded.lost_episodes, 0, "it is known before anything is lost");
    disk.set_faults(of(0));
    live(&mut recorder, 2);
    let since = watch.status().failing_since_ms.unwrap();
    live(&mut recorder, 10);
    assert_eq!(watch.status().failing_since_ms, Some(since), "it has failed since then");
    disk.set_faults(Faults::default());
    live(&mut recorder, 5);
    let status = watch.status();
    assert_eq!((status.failing, status.failing_since_ms), (false, None));
    assert!(status.recorded.lost_episodes > 0);
}

//! A run whose stepping thread hangs: nobody ends what it holds, so the recorder does, by what it has.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use rollhouse_core::{Interruption, Outcome, RecordRule};
use rollhouse_replay::testing::FaultyDisk;
use rollhouse_replay::{Recorder, RecorderConfig, Replays};

use crate::model::{DIR, Driver, Shape, all, assert_same};

#[test]
fn open_episodes_of_a_run_that_is_cut_short_end_as_told_with_the_steps_that_were_handed_over() {
    let hung = Outcome::Interrupted(Interruption::Hung);
    for (per_episode, mode) in [(true, RecordRule::All), (false, RecordRule::All), (true, RecordRule::Trace)]
    {
        let shape = Shape { lanes: 8, end_one_in: 12, per_episode, record: mode, ..Shape::plain(0) };
        let disk = FaultyDisk::new();
        let config = RecorderConfig::default();
        let recorder = Recorder::open(Arc::new(disk.clone()), Path::new(DIR), config).unwrap();
        let run = recorder.begin_run(shape.header()).unwrap();
        let mut driver = Driver::new(&shape, run.block(0, shape.lanes));
        for _ in 0..50 {
            driver.row();
        }
        driver.recorder.flush();
        let handed_over = driver.model.clone();
        // The thread hangs with one more row in its hands.
        driver.row();
        run.cut_short(Interruption::Hung);
        recorder.write_out().unwrap();
        // Should it ever come back, it waits for nobody, and nothing of it is taken.
        for _ in 0..20_000 {
            driver.row();
        }
        drop((driver, run));
        let recorded = recorder.finish().unwrap();
        assert_eq!((recorded.lost_chunks, recorded.lost_episodes), (0, 0));

        let replays = Replays::open(Arc::new(disk), Path::new(DIR)).unwrap();
        let listed = all(&replays);
        let mut open = 0;
        for (&(lane, number), lived) in handed_over.iter().filter(|(_, lived)| lived.length > 0) {
            let info = listed.iter().find(|info| (info.name.lane, info.name.number) == (lane, number));
            let info = info.unwrap_or_else(|| panic!("{lane}-{number} is missing"));
            if lived.end.is_some() {
                assert_same(&shape, lived, &replays.load(info).unwrap());
            } else {
                open += 1;
                assert_eq!((info.outcome, info.total_reward, info.length), (hung, None, lived.length));
                replays.load(info).unwrap();
            }
        }
        assert!(open > 0);
        let known = |lane, number| handed_over.contains_key(&(lane, number));
        assert!(listed.iter().all(|info| known(info.name.lane, info.name.number)), "nothing came after it");
    }
}

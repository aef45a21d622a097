//! Sending some lanes and receiving those that are done.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::common;

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::{act, counter, counting, options};
use rollhouse_core::{AutoresetMode, ColumnMut, ColumnRef, random_bits};
use rollhouse_engine::{Engine, EngineConfig, MAX_SUB_BATCHES, Reset, StepError};
use rollhouse_env::{Env, EnvEntry, Generator, Registry, StepResult};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn lanes_sent_in_any_order_play_the_same_episodes_as_in_lockstep() {
    let (lanes, steps) = (600, 60);
    let entry = Registry::builtin().get("CartPole-v1").unwrap();
    let action = |lane: u32, step: u64| (random_bits(9, lane, step) & 1) as i64;
    let mut lockstep = Engine::new(&entry, EngineConfig::new(lanes), None).unwrap();
    lockstep.reset(&Reset::seeded(4, lanes)).unwrap();
    let expected: Vec<Vec<u32>> = (0..steps)
        .map(|step| {
            for (lane, a) in (0..).zip(lockstep.actions().unwrap().as_i64_mut().unwrap()) {
                *a = action(lane, step);
            }
            let frame = lockstep.step().unwrap();
            frame.obs(0).as_f32().unwrap().iter().map(|v| v.to_bits()).collect()
        })
        .collect();

    for threads in [1, 2] {
        let config = EngineConfig { threads, ..EngineConfig::new(lanes) };
        let mut engine = Engine::new(&entry, config, None).unwrap();
        engine.reset(&Reset::seeded(4, lanes)).unwrap();
        let mut taken = vec![0u64; lanes];
        let mut turn = 0;
        while taken.iter().any(|&n| n < steps) {
            // A third of the lanes that are not finished, differently chosen every time.
            let chosen: Vec<u32> = (0..lanes as u32)
                .rev()
                .filter(|&lane| taken[lane as usize] < steps && random_bits(1, lane, turn).is_multiple_of(3))
                .collect();
            turn += 1;
            let actions: Vec<i64> = chosen.iter().map(|&lane| action(lane, taken[lane as usize])).collect();
            engine.send(&chosen, ColumnRef::I64(&actions)).unwrap();
            let mut received = 0;
            while received < chosen.len() {
                let result = engine.recv(1, LONG).unwrap();
                received += result.lanes.len();
                let obs = result.obs[0].as_ref();
                for (row, &lane) in result.lanes.iter().enumerate() {
                    let lane = lane as usize;
                    let row: Vec<u32> = obs
                        .slice(row * 4, row * 4 + 4)
                        .as_f32()
                        .unwrap()
                        .iter()
                        .map(|v| v.to_bits())
                        .collect();
                    assert_eq!(row, expected[taken[lane] as usize][lane * 4..lane * 4 + 4], "lane {lane}");
                    taken[lane] += 1;
                }
            }
        }
        assert_eq!(engine.stats().unwrap(), lockstep.stats().unwrap());
    }
}

#[test]
fn receiving_more_than_is_outstanding_is_an_error_and_not_a_wait() {
    let mut engine = counting(&[3, 3], AutoresetMode::NextStep);
    engine.reset(&Reset::all()).unwrap();
    let nothing = |wanted, outstanding| Some(StepError::NothingOutstanding { wanted, outstanding });
    assert_eq!(engine.recv(1, LONG).err(), nothing(1, 0));
    assert_eq!(engine.recv(0, LONG).err(), nothing(0, 0));
    engine.send(&[1], ColumnRef::I64(&[2])).unwrap();
    assert_eq!(engine.recv(2, LONG).err(), nothing(2, 1));
    let received = engine.recv(1, LONG).unwrap();
    assert_eq!((received.lanes, received.rewards), (vec![1], vec![2.0]));
    assert_eq!(engine.recv(1, LONG).err(), nothing(1, 0));
}

#[test]
fn a_lane_cannot_be_sent_twice_and_a_refused_send_moves_nothing() {
    let mut engine = counting(&[3, 3], AutoresetMode::NextStep);
    assert_eq!(engine.send(&[0], ColumnRef::I64(&[1])), Err(StepError::NotReset));
    engine.reset(&Reset::all()).unwrap();
    let twice = Err(StepError::LaneOutstanding { lane: 1 });
    assert_eq!(engine.send(&[1, 1], ColumnRef::I64(&[1, 1])), twice);
    engine.send(&[1], ColumnRef::I64(&[1])).unwrap();
    assert_eq!(engine.send(&[0, 1], ColumnRef::I64(&[1, 1])), twice);
    assert_eq!(engine.send(&[7], ColumnRef::I64(&[1])), Err(StepError::NoSuchLane { lane: 7, lanes: 2 }));
    assert!(matches!(engine.send(&[0], ColumnRef::I64(&[1, 1])), Err(StepError::Length { .. })));
    assert!(matches!(engine.send(&[0], ColumnRef::I64(&[8])), Err(StepError::Action(_))));
    engine.recv(1, LONG).unwrap();
    engine.send(&[0, 1], ColumnRef::I64(&[1, 1])).unwrap();
    assert_eq!(engine.recv(2, LONG).unwrap().obs[0].as_ref().as_f32(), Some(&[1.0, 2.0][..]));
}

#[test]
fn a_full_work_queue_answers_busy_until_something_is_received() {
    let lanes = MAX_SUB_BATCHES + 1;
    let mut engine = counting(&vec![3; lanes], AutoresetMode::NextStep);
    engine.reset(&Reset::all()).unwrap();
    for lane in 0..MAX_SUB_BATCHES as u32 {
        engine.send(&[lane], ColumnRef::I64(&[1])).unwrap();
    }
    let last = MAX_SUB_BATCHES as u32;
    assert!(matches!(engine.send(&[last], ColumnRef::I64(&[1])), Err(StepError::Busy { .. })));
    assert_eq!(engine.recv(1, LONG).unwrap().lanes.len(), MAX_SUB_BATCHES);
    engine.send(&[last], ColumnRef::I64(&[1])).unwrap();
}

#[test]
fn lockstep_goes_on_where_first_done_stopped() {
    let mut engine = counting(&[9, 9], AutoresetMode::NextStep);
    engine.reset(&Reset::all()).unwrap();
    engine.send(&[1], ColumnRef::I64(&[1])).unwrap();
    act(&mut engine, &[1, 1]);
    let frame = engine.step().unwrap();
    assert_eq!(frame.obs(0).as_f32(), Some(&[1.0, 2.0][..]));
    assert!(matches!(engine.recv(1, LONG), Err(StepError::NothingOutstanding { .. })));
}

/// Symptom: a lane that was lost in first-done mode showed the observation of a reset long ago, or zeros.
/// Cause: a lost lane's row was copied from the frame before, which only lockstep writes in turn with the newest.
/// Fix: in first-done mode its row stays as it is.
#[test]
fn a_lane_that_is_lost_after_it_was_sent_shows_its_last_observation() {
    let options = vec![options(9, -1), options(9, 4)];
    let mut engine = Engine::new(&counter(), EngineConfig { options, ..EngineConfig::new(2) }, None).unwrap();
    engine.reset(&Reset::all()).unwrap();
    for step in 1..=3 {
        engine.send(&[0, 1], ColumnRef::I64(&[1, 1])).unwrap();
        let obs = &engine.recv(2, LONG).unwrap().obs[0];
        assert_eq!(obs.as_ref().as_f32(), Some(&[step as f32; 2][..]));
    }
    engine.send(&[0, 1], ColumnRef::I64(&[1, 1])).unwrap();
    let received = engine.recv(2, LONG).unwrap();
    assert!(engine.is_lost(1));
    assert_eq!(received.obs[0].as_ref().as_f32(), Some(&[4.0, 3.0][..]));
    assert_eq!(received.rewards, [1.0, 0.0]);
}

/// Symptom: a column of another type that was sent to lanes which waited for their reset cost their block its env.
/// Cause: actions of waiting lanes are ignored, and their column's type was not looked at either.
/// Fix: a column of another type has no action of any lane.
#[test]
fn actions_of_another_type_are_refused_though_all_lanes_wait_for_a_reset() {
    let entry = Registry::builtin().get("CartPole-v1").unwrap();
    let config = EngineConfig { max_episode_steps: Some(1), ..EngineConfig::new(2) };
    let mut engine = Engine::new(&entry, config, None).unwrap();
    engine.reset(&Reset::seeded(1, 2)).unwrap();
    engine.send(&[0, 1], ColumnRef::I64(&[1, 0])).unwrap();
    assert_eq!(engine.recv(2, LONG).unwrap().truncated, [1, 1]);
    let refused = engine.send(&[0, 1], ColumnRef::F32(&[1.0, 0.0])).unwrap_err();
    assert_eq!(refused.to_string(), "action of float32 of lane 0 is not of int64");
    // Whatever is sent in the right type begins their episodes.
    engine.send(&[0, 1], ColumnRef::I64(&[7, -7])).unwrap();
    assert_eq!(engine.recv(2, LONG).unwrap().reset, [1, 1]);
    assert_eq!(engine.lost(), 0);
}

/// Symptom: an engine that was dropped while its threads stepped lanes that had been sent waited for them, for a minute at
/// most, and its threads waited for a turn that never came if that did not help.
/// Cause: to be told to stop, threads had to come back to lockstep.
/// Fix: a thread ends when its engine no longer sends.
#[test]
fn an_engine_that_is_dropped_while_lanes_are_sent_waits_for_none_and_its_threads_end() {
    let (stepping, steps) = sync_channel(512);
    let (dropped, drops) = sync_channel(512);
    let gate: &'static Gate = Box::leak(Box::default());
    let spec = counter().spec().clone();
    let entry = Arc::new(EnvEntry::per_lane(spec, move |_| {
        Ok(Gated { gate, stepping: stepping.clone(), _dropped: Dropped(dropped.clone()) })
    }));
    let config = EngineConfig { threads: 2, step_deadline: 10 * LONG, ..EngineConfig::new(512) };
    let mut engine = Engine::new(&entry, config, None).unwrap();
    assert_eq!(engine.threads(), 2);
    engine.reset(&Reset::all()).unwrap();
    gate.close(true);
    engine.send(&[511], ColumnRef::I64(&[1])).unwrap();
    steps.recv_timeout(LONG).unwrap();
    let owner = std::thread::spawn(move || drop(engine));
    // The envs of the caller's own crew go with the engine; the other thread is inside one of its own.
    (0..256).for_each(|_| drops.recv_timeout(LONG).expect("the engine does not wait"));
    owner.join().unwrap();
    gate.close(false);
    (0..256).for_each(|_| drops.recv_timeout(LONG).expect("the thread ends"));
}

/// An env whose steps wait at a gate.
struct Gated {
    gate: &'static Gate,
    stepping: SyncSender<()>,
    _dropped: Dropped,
}

/// Tells when it is dropped.
struct Dropped(SyncSender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// A gate at which steps wait while it is closed.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn close(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }
}

impl Env for Gated {
    fn reset(&mut self, _: &mut Generator, _: &mut [ColumnMut<'_>]) {}

    fn step(
        &mut self,
        _: &mut Generator,
        _: ColumnRef<'_>,
        _: &mut [ColumnMut<'_>],
        _: &mut [ColumnMut<'_>],
    ) -> StepResult {
        let _ = self.stepping.try_send(());
        let closed = self.gate.closed.lock().unwrap();
        drop(self.gate.opened.wait_while(closed, |closed| *closed).unwrap());
        StepResult::default()
    }

    fn state_hash(&self) -> u32 {
        0
    }
}

#[test]
fn disabled_refuses_to_send_a_finished_lane() {
    let mut engine = counting(&[1, 2], AutoresetMode::Disabled);
    engine.reset(&Reset::all()).unwrap();
    engine.send(&[0, 1], ColumnRef::I64(&[1, 1])).unwrap();
    assert_eq!(engine.recv(2, LONG).unwrap().terminated, [1, 0]);
    assert_eq!(engine.send(&[0, 1], ColumnRef::I64(&[1, 1])), Err(StepError::NeedsReset { lane: 0 }));
    engine.send(&[1], ColumnRef::I64(&[1])).unwrap();
}

#[test]
fn same_step_sends_the_last_observation_along() {
    let mut engine = counting(&[1, 2], AutoresetMode::SameStep);
    engine.reset(&Reset::all()).unwrap();
    engine.send(&[0, 1], ColumnRef::I64(&[1, 1])).unwrap();
    let received = engine.recv(2, LONG).unwrap();
    assert_eq!(received.obs[0].as_ref().as_f32(), Some(&[0.0, 1.0][..]));
    assert_eq!(received.final_obs[0].as_ref().as_f32().unwrap()[0], 1.0);
}

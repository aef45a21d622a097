//! What a pool gives is what an engine in this process gives, whatever the network does meanwhile.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::double;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use double::{Double, Fault, cart_pole};
use rollhouse_client::{Address, Cluster, ConnectError, ConnectOptions, Look, Pool, PoolRequest, StepError};
use rollhouse_core::{AutoresetMode, ColumnMut, ColumnRef, Outcome, random_bits};
use rollhouse_engine::{Engine, EngineConfig, Frame, Received, Reset, StepError as Rules};
use rollhouse_env::Registry;
use rollhouse_wire::{DialError, EndCause, RefusalCode};

const LANES: usize = 7;

/// The engine that a pool of CartPole is compared with.
fn engine(autoreset: AutoresetMode) -> Engine {
    let entry = Registry::builtin().get("CartPole-v1").unwrap();
    Engine::new(&entry, EngineConfig { autoreset, ..EngineConfig::new(LANES) }, None).unwrap()
}

fn pool_of(double: &Double, autoreset: AutoresetMode) -> Pool {
    let mut request = cart_pole(LANES as u32);
    request.settings.autoreset = autoreset;
    double.connect().open_pool(request).unwrap()
}

fn fill(actions: ColumnMut<'_>, step: u64) {
    let ColumnMut::I64(actions) = actions else { panic!("CartPole takes integers") };
    for (lane, action) in actions.iter_mut().enumerate() {
        *action = (random_bits(3, lane as u32, step) & 1) as i64;
    }
}

/// Everything a frame says, by value.
#[derive(Debug, PartialEq)]
struct FrameValues {
    obs: Vec<u32>,
    final_obs: Vec<u32>,
    rewards: Vec<f64>,
    flags: [Vec<u8>; 3],
}

fn shown(frame: Frame<'_>, same_step: bool) -> FrameValues {
    let bits = |column: ColumnRef<'_>| -> Vec<u32> {
        column.as_f32().unwrap().iter().map(|v| v.to_bits()).collect()
    };
    let flags = [frame.terminated(), frame.truncated(), frame.reset()].map(<[u8]>::to_vec);
    let over: Vec<bool> = flags[0].iter().zip(&flags[1]).map(|(a, b)| (a | b) == 1).collect();
    // Rows without an end have no last observation.
    let rows = over.iter().enumerate().filter(|(_, over)| same_step && **over);
    let final_obs = rows.flat_map(|(row, _)| bits(frame.final_obs(0).slice(row * 4, row * 4 + 4))).collect();
    FrameValues { obs: bits(frame.obs(0)), final_obs, rewards: frame.rewards().to_vec(), flags }
}

/// Steps both for a while, and compares each frame.
fn compare(pool: &mut Pool, engine: &mut Engine, same_step: bool, steps: u64) {
    let reset = Reset::seeded(42, LANES);
    assert_eq!(shown(pool.reset(&reset).unwrap(), false), shown(engine.reset(&reset).unwrap(), false));
    for step in 0..steps {
        fill(pool.actions(), step);
        fill(engine.actions().unwrap(), step);
        let (here, there) =
            (shown(engine.step().unwrap(), same_step), shown(pool.step().unwrap(), same_step));
        assert_eq!(there, here, "step {step}");
    }
}

/// Symptom: who was believed when a connection was made was believed for as long as it lasted. Fix: certificates are looked
/// at again while lanes are stepped. (Their times are told in seconds: this takes two.)
#[test]
fn a_node_whose_certificate_expires_is_stepped_no_more() {
    let double = Double::start_for(1, Duration::from_secs(2));
    let mut pool = pool_of(&double, AutoresetMode::NextStep);
    pool.set_timeout(Duration::from_secs(1));
    pool.reset(&Reset::seeded(1, LANES)).unwrap();
    let mut steps = 0;
    while double.refused().is_empty() && steps < 10_000_000 {
        fill(pool.actions(), steps);
        // The last one is answered by nobody.
        if pool.step().is_err() {
            break;
        }
        steps += 1;
    }
    let refused = double.refused();
    assert!(refused.iter().any(|why| why.starts_with("the certificate expired")), "{refused:?}");
}

#[test]
fn lanes_of_one_and_of_several_nodes_are_an_engines_lanes() {
    for nodes in [1, 3] {
        for mode in [AutoresetMode::NextStep, AutoresetMode::SameStep] {
            let double = Double::start(nodes);
            let mut pool = pool_of(&double, mode);
            assert_eq!(pool.sessions().count(), nodes);
            compare(&mut pool, &mut engine(mode), mode == AutoresetMode::SameStep, 120);
        }
    }
}

#[test]
fn what_the_network_loses_is_asked_again_and_stepped_once() {
    let double = Double::start(2);
    let mut pool = pool_of(&double, AutoresetMode::NextStep);
    double.fail(0, [Fault::CutBefore, Fault::CutAfter, Fault::Busy, Fault::CutAfter]);
    double.fail(1, [Fault::Busy, Fault::Busy, Fault::CutAfter, Fault::CutBefore, Fault::Busy]);
    compare(&mut pool, &mut engine(AutoresetMode::NextStep), false, 40);
    assert_eq!(double.faults_left(), 0);
    // 40 steps and a reset, each on two nodes.
    assert_eq!(double.handled(), 82);
}

#[test]
fn partial_resets_reach_the_lanes_they_name() {
    let double = Double::start(3);
    let (mut pool, mut engine) = (pool_of(&double, AutoresetMode::Disabled), engine(AutoresetMode::Disabled));
    compare(&mut pool, &mut engine, false, 1);
    let mut resets = 0;
    for step in 1..200 {
        fill(pool.actions(), step);
        fill(engine.actions().unwrap(), step);
        let frame = engine.step().unwrap();
        let over: Vec<bool> = frame.terminated().iter().map(|&flag| flag == 1).collect();
        let here = shown(frame, false);
        assert_eq!(shown(pool.step().unwrap(), false), here, "step {step}");
        if over.contains(&true) {
            let refused = pool.step().unwrap_err();
            assert!(matches!(refused, StepError::Rules(Rules::NeedsReset { .. })), "{refused}");
            let reset = Reset { mask: over, ..Reset::default() };
            let here = shown(engine.reset(&reset).unwrap(), false);
            assert_eq!(shown(pool.reset(&reset).unwrap(), false), here);
            resets += 1;
        }
    }
    assert!(resets > 3, "{resets}");
}

/// One row of a result, by value.
fn row_of(received: &Received, row: usize) -> (u32, Vec<u32>, u64, [u8; 3]) {
    let obs = received.obs[0].row(row, 4).unwrap().as_f32().unwrap().iter().map(|v| v.to_bits()).collect();
    let flags = [received.terminated[row], received.truncated[row], received.reset[row]];
    (received.lanes[row], obs, received.rewards[row].to_bits(), flags)
}

#[test]
fn first_done_gives_what_an_engine_gives_lane_by_lane() {
    let double = Double::start(3);
    let (mut pool, mut engine) = (pool_of(&double, AutoresetMode::NextStep), engine(AutoresetMode::NextStep));
    let reset = Reset::seeded(1, LANES);
    pool.reset(&reset).unwrap();
    engine.reset(&reset).unwrap();
    double.fail(0, [Fault::Busy, Fault::CutAfter]);
    double.fail(2, [Fault::CutBefore]);
    let timeout = Duration::from_secs(30);
    for round in 0..60u64 {
        // Two parts, which cross the borders of sessions, and of which lanes are handed in out of order.
        let parts: [Vec<u32>; 2] = [vec![6, 0, 3], vec![5, 1, 2, 4]];
        for part in &parts {
            let actions: Vec<i64> = part.iter().map(|&l| (random_bits(9, l, round) & 1) as i64).collect();
            pool.send(part, ColumnRef::I64(&actions)).unwrap();
            engine.send(part, ColumnRef::I64(&actions)).unwrap();
        }
        let refused = pool.send(&[6], ColumnRef::I64(&[0])).unwrap_err();
        assert!(matches!(refused, StepError::Rules(Rules::LaneOutstanding { lane: 6 })), "{refused}");
        let mut rows = Vec::new();
        while pool.outstanding() > 0 {
            let received = pool.recv(1, timeout).unwrap();
            rows.extend((0..received.lanes.len()).map(|row| row_of(&received, row)));
        }
        let here = engine.recv(LANES, timeout).unwrap();
        let mut expected: Vec<_> = (0..LANES).map(|row| row_of(&here, row)).collect();
        rows.sort();
        expected.sort();
        assert_eq!(rows, expected, "round {round}");
    }
    assert_eq!(double.faults_left(), 0);
    let nothing = pool.recv(1, timeout).unwrap_err();
    assert!(matches!(nothing, StepError::Rules(Rules::NothingOutstanding { .. })), "{nothing}");
}

#[test]
fn lanes_of_a_node_that_forgot_them_are_lost_and_the_others_go_on() {
    let double = Double::start(2);
    let mut pool = pool_of(&double, AutoresetMode::NextStep);
    pool.reset(&Reset::seeded(5, LANES)).unwrap();
    fill(pool.actions(), 0);
    let before = shown(pool.step().unwrap(), false);
    double.fail(1, [Fault::Forget]);
    fill(pool.actions(), 1);
    let after = shown(pool.step().unwrap(), false);
    let lost: Vec<usize> = (0..LANES).filter(|&lane| pool.loss(lane).is_some()).collect();
    assert_eq!(lost, [4, 5, 6]);
    assert_eq!(pool.loss(4).map(Outcome::word), Some("node_lost"));
    assert_eq!(after.obs[16..], before.obs[16..], "lost lanes stand still");
    assert_ne!(after.obs[..16], before.obs[..16], "the others do not");
    assert_eq!((&after.flags[1][4..], &after.rewards[4..]), (&[1, 1, 1][..], &[0.0, 0.0, 0.0][..]));
    fill(pool.actions(), 2);
    assert_eq!(shown(pool.step().unwrap(), false).flags[1][4..], [0, 0, 0], "the loss is shown once");
    double.fail(0, [Fault::Forget]);
    let error = pool.step().unwrap_err();
    assert!(matches!(error, StepError::AllLost { .. }), "{error}");
}

#[test]
fn lanes_that_were_sent_to_a_node_that_went_away_are_received_as_lost() {
    let double = Double::start(2);
    let mut pool = pool_of(&double, AutoresetMode::NextStep);
    pool.reset(&Reset::seeded(5, LANES)).unwrap();
    double.fail(1, [Fault::Forget]);
    let lanes: Vec<u32> = (0..LANES as u32).collect();
    pool.send(&lanes, ColumnRef::I64(&[0; LANES])).unwrap();
    let received = pool.recv(LANES, Duration::from_secs(30)).unwrap();
    for (row, &lane) in received.lanes.iter().enumerate() {
        assert_eq!(received.truncated[row], u8::from(lane >= 4), "lane {lane}");
        assert_eq!(pool.loss(lane as usize).is_some(), lane >= 4);
    }
    let refused = pool.send(&[5], ColumnRef::I64(&[0])).unwrap_err();
    assert!(matches!(refused, StepError::Rules(Rules::LaneLost { lane: 5 })), "{refused}");
}

#[test]
fn bad_actions_are_refused_before_anything_moves() {
    let double = Double::start(2);
    let (mut pool, mut engine) = (pool_of(&double, AutoresetMode::NextStep), engine(AutoresetMode::NextStep));
    compare(&mut pool, &mut engine, false, 3);
    let handled = double.handled();
    if let ColumnMut::I64(actions) = pool.actions() {
        actions.copy_from_slice(&[0, 0, 0, 0, 0, 2, 0]);
    }
    let error = pool.step().unwrap_err();
    assert_eq!(error.to_string(), "action 2 of lane 5 is not an integer from 0 to 1");
    assert_eq!(double.handled(), handled);
    fill(pool.actions(), 3);
    fill(engine.actions().unwrap(), 3);
    assert_eq!(shown(pool.step().unwrap(), false), shown(engine.step().unwrap(), false));
}

#[test]
fn a_lost_lane_says_why_as_its_node_or_else_the_coordinator_tells() {
    let double = Double::start(4);
    let mut pool = pool_of(&double, AutoresetMode::NextStep);
    pool.reset(&Reset::all()).unwrap();
    double.fail(0, [Fault::End(EndCause::Drained)]);
    double.fail(1, [Fault::End(EndCause::Hung)]);
    // Its node cannot be reached: without the coordinator's word it would be waited for as long as a lease lasts.
    double.fail(2, [Fault::Vanish]);
    pool.set_timeout(Duration::from_secs(25));
    pool.step().unwrap();
    let losses: Vec<_> = (0..LANES).map(|lane| pool.loss(lane).map(Outcome::word)).collect();
    let (evicted, hung, lost) = (Some("evicted"), Some("hung"), Some("node_lost"));
    assert_eq!(losses, [evicted, evicted, hung, hung, lost, lost, None]);
    assert_eq!(double.handled(), 4 + 1);
    pool.step().unwrap();
}

#[test]
fn a_refusal_of_the_only_node_moves_nothing_and_one_of_several_asks_for_a_reset() {
    let double = Double::start(1);
    let (mut pool, mut engine) = (pool_of(&double, AutoresetMode::NextStep), engine(AutoresetMode::NextStep));
    compare(&mut pool, &mut engine, false, 3);
    let before = shown(pool.frame().unwrap(), false);
    double.fail(0, [Fault::Refuse]);
    let error = pool.step().unwrap_err();
    assert!(
        matches!(&error, StepError::Refused { refusal, .. } if refusal.code == RefusalCode::Internal),
        "{error}"
    );
    assert_eq!(shown(pool.frame().unwrap(), false), before);
    pool.step().unwrap();

    let double = Double::start(2);
    let mut pool = pool_of(&double, AutoresetMode::NextStep);
    pool.reset(&Reset::all()).unwrap();
    double.fail(1, [Fault::Refuse]);
    assert!(matches!(pool.step().unwrap_err(), StepError::Refused { .. }));
    assert!(matches!(pool.step().unwrap_err(), StepError::Rules(Rules::NotReset)));
    pool.reset(&Reset::all()).unwrap();
    pool.step().unwrap();
}

#[test]
fn a_node_that_does_not_answer_is_waited_for_until_the_timeout_and_a_reset_goes_on() {
    let double = Double::start(2);
    let mut pool = pool_of(&double, AutoresetMode::NextStep);
    pool.reset(&Reset::all()).unwrap();
    double.fail(1, [Fault::Hang]);
    // Long enough for the other node's answer on a machine that is busy with more.
    pool.set_timeout(Duration::from_secs(1));
    let error = pool.step().unwrap_err();
    assert!(matches!(&error, StepError::TimedOut(by) if by.node == "node-1"), "{error}");
    assert!(matches!(pool.step().unwrap_err(), StepError::Rules(Rules::NotReset)));
}

#[test]
fn a_waiting_call_can_be_interrupted() {
    let double = Double::start(1);
    let wanted = Arc::new(AtomicBool::new(false));
    let look = {
        let wanted = Arc::clone(&wanted);
        Arc::new(move || wanted.load(Ordering::Relaxed)) as Look
    };
    let cluster = Cluster::connect(&double.address(), double.options(), Some(look)).unwrap();
    let mut pool = cluster.open_pool(cart_pole(2)).unwrap();
    pool.reset(&Reset::all()).unwrap();
    double.fail(0, [Fault::Hang]);
    wanted.store(true, Ordering::Relaxed);
    assert!(matches!(pool.step().unwrap_err(), StepError::Interrupted));
    assert!(matches!(pool.step().unwrap_err(), StepError::Rules(Rules::NotReset)));
}

#[test]
fn a_node_that_sends_nonsense_is_not_believed_any_more() {
    let double = Double::start(2);
    let mut pool = pool_of(&double, AutoresetMode::NextStep);
    pool.reset(&Reset::all()).unwrap();
    double.fail(0, [Fault::Short]);
    pool.step().unwrap();
    assert_eq!((0..LANES).filter(|&lane| pool.loss(lane).is_some()).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn a_pool_that_is_dropped_is_closed() {
    let double = Double::start(1);
    let cluster = double.connect();
    drop(cluster.open_pool(cart_pole(2)).unwrap());
    cluster.open_pool(cart_pole(2)).unwrap().close().unwrap();
    assert_eq!(double.closed(), 2);
}

#[test]
fn who_is_not_admitted_or_does_not_trust_is_told_why() {
    let double = Double::start(1);
    let mut address = double.address();
    address.token = Some("rh_1_wrong".into());
    let error = Cluster::connect(&address, double.options(), None).unwrap_err();
    let refused =
        |error: &DialError| matches!(error, DialError::Refused(r) if r.code == RefusalCode::Unauthenticated);
    assert!(matches!(&error, ConnectError::Dial(error) if refused(error)), "{error:?}");

    let other = Double::start(1);
    let address = Address { ca: other.address().ca, ..double.address() };
    let error = Cluster::connect(&address, double.options(), None).unwrap_err();
    assert!(matches!(&error, ConnectError::Dial(DialError::Identity { .. })), "{error:?}");

    let address = Address { ca: None, ..double.address() };
    assert!(matches!(Cluster::connect(&address, ConnectOptions::default(), None), Err(ConnectError::NoCa)));
}

#[test]
fn an_env_that_no_node_has_is_refused_by_name() {
    let double = Double::start(1);
    let error = double.connect().open_pool(PoolRequest::new("CartPole-v7", 1)).unwrap_err();
    assert!(error.to_string().contains("CartPole-v7"), "{error}");
}

#[tokio::test]
async fn the_same_calls_are_there_for_a_runtime_of_the_callers() {
    let double = Double::start(2);
    let cluster = double.connect_async().await;
    let mut pool = cluster.open_pool(cart_pole(LANES as u32)).await.unwrap();
    let mut engine = engine(AutoresetMode::NextStep);
    let reset = Reset::seeded(8, LANES);
    let here = shown(engine.reset(&reset).unwrap(), false);
    assert_eq!(shown(pool.reset(&reset).await.unwrap(), false), here);
    for step in 0..30 {
        fill(pool.actions(), step);
        fill(engine.actions().unwrap(), step);
        let here = shown(engine.step().unwrap(), false);
        assert_eq!(shown(pool.step().await.unwrap(), false), here);
    }
    pool.close().await.unwrap();
    cluster.close().await;
}

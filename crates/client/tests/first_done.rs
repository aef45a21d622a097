//! First-done stepping waits for no lane that takes long, and goes on elsewhere, embedded, through memory and over QUIC.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test uses some of it")]
use crate::nodes;

use std::sync::Arc;
use std::time::Duration;

use nodes::Nodes;
use rollhouse_client::{Pool, PoolRequest, Transport};
use rollhouse_core::{ColumnMut, ColumnRef, LaneDeadlines, random_bits};
use rollhouse_engine::{Engine, EngineConfig, Received, Reset};
use rollhouse_env::testing::{Timing, late};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_node::HANG_DEADLINE;
use rollhouse_wire::Spread;

const LANES: usize = 64;
const STEPS: u64 = 60;
const LONG: Duration = Duration::from_secs(60);
const TRANSPORTS: [Transport; 2] = [Transport::Quic, Transport::Shm];

fn kernel() -> Arc<EnvEntry> {
    Registry::builtin().get("CartPole-v1").unwrap()
}

/// CartPole whose lanes finish late.
fn simulator(timing: Timing) -> EnvEntry {
    Arc::into_inner(late(&kernel(), timing)).unwrap()
}

fn nodes_of(count: usize, timing: Timing) -> Nodes {
    Nodes::of(count, HANG_DEADLINE, || {
        let registry = Registry::empty();
        registry.register(simulator(timing)).unwrap();
        registry
    })
}

fn pool_of(nodes: &Nodes, transport: Transport, spread: Spread) -> Pool {
    let mut request = PoolRequest::new("CartPole-v1", LANES as u32);
    (request.transport, request.spread) = (Some(transport), spread);
    nodes.connect().open_pool(request).unwrap()
}

/// An engine, or lanes of a cluster.
trait FirstDone {
    fn begin(&mut self, reset: &Reset);
    fn send(&mut self, lanes: &[u32], actions: &[i64]);
    fn recv(&mut self, min: usize) -> Received;
}

impl FirstDone for Engine {
    fn begin(&mut self, reset: &Reset) {
        self.reset(reset).unwrap();
    }
    fn send(&mut self, lanes: &[u32], actions: &[i64]) {
        Self::send(self, lanes, ColumnRef::I64(actions)).unwrap();
    }
    fn recv(&mut self, min: usize) -> Received {
        Self::recv(self, min, LONG).unwrap()
    }
}

impl FirstDone for Pool {
    fn begin(&mut self, reset: &Reset) {
        self.reset(reset).unwrap();
    }
    fn send(&mut self, lanes: &[u32], actions: &[i64]) {
        Self::send(self, lanes, ColumnRef::I64(actions)).unwrap();
    }
    fn recv(&mut self, min: usize) -> Received {
        Self::recv(self, min, LONG).unwrap()
    }
}

fn action(lane: u32, step: u64) -> i64 {
    (random_bits(3, lane, step) & 1) as i64
}

/// A row: observation, reward, flags.
type Row = (Vec<u32>, f64, [u8; 3]);

fn bits(column: ColumnRef<'_>, row: usize) -> Vec<u32> {
    let row = column.slice(row * 4, row * 4 + 4);
    row.as_f32().unwrap().iter().map(|value| value.to_bits()).collect()
}

fn row_of(received: &Received, row: usize) -> Row {
    let flags = [received.terminated[row], received.truncated[row], received.reset[row]];
    (bits(received.obs[0].as_ref(), row), received.rewards[row], flags)
}

/// The rows of every lane in lockstep, step by step.
fn lockstep() -> Vec<Vec<Row>> {
    let mut engine = Engine::new(&kernel(), EngineConfig::new(LANES), None).unwrap();
    engine.reset(&Reset::seeded(4, LANES)).unwrap();
    let mut rows = vec![Vec::new(); LANES];
    for step in 0..STEPS {
        let ColumnMut::I64(actions) = engine.actions().unwrap() else { panic!("discrete") };
        (0..).zip(actions.iter_mut()).for_each(|(lane, to)| *to = action(lane, step));
        let frame = engine.step().unwrap();
        for (lane, rows) in rows.iter_mut().enumerate() {
            let flags = [frame.terminated()[lane], frame.truncated()[lane], frame.reset()[lane]];
            rows.push((bits(frame.obs(0), lane), frame.rewards()[lane], flags));
        }
    }
    rows
}

/// Sends each lane as soon as it is received, until each has played all steps. `between` is called before each receipt
/// with the number of rows that have come.
fn play(lanes: &mut impl FirstDone, expected: &[Vec<Row>], min: usize, mut between: impl FnMut(usize)) {
    lanes.begin(&Reset::seeded(4, LANES));
    let mut taken = [0u64; LANES];
    let (mut idle, mut outstanding): (Vec<u32>, usize) = ((0..LANES as u32).collect(), 0);
    loop {
        // Some wait until the next time, so that lanes are sent while others are under way.
        let held = if outstanding > 0 { idle.len() / 3 } else { 0 };
        let sent: Vec<u32> = idle.drain(held..).collect();
        let actions: Vec<i64> = sent.iter().map(|&lane| action(lane, taken[lane as usize])).collect();
        lanes.send(&sent, &actions);
        outstanding += sent.len();
        if outstanding == 0 {
            return;
        }
        between(taken.iter().sum::<u64>() as usize);
        let received = lanes.recv(min.min(outstanding));
        assert!(received.lanes.len() >= min.min(outstanding));
        outstanding -= received.lanes.len();
        for (row, &lane) in received.lanes.iter().enumerate() {
            let steps = &mut taken[lane as usize];
            let wanted = &expected[lane as usize][*steps as usize];
            assert_eq!(&row_of(&received, row), wanted, "lane {lane}, step {steps}");
            *steps += 1;
            if *steps < STEPS {
                idle.push(lane);
            }
        }
    }
}

#[test]
fn lanes_under_way_on_a_node_that_goes_play_on_elsewhere() {
    for (transport, spread) in
        [(Transport::Quic, Spread::Pack), (Transport::Quic, Spread::Even), (Transport::Shm, Spread::Pack)]
    {
        let expected = lockstep();
        let timing = Timing { seed: 8, last: Some(2), ..Timing::default() };
        let mut nodes = nodes_of(2, timing);
        let mut pool = pool_of(&nodes, transport, spread);
        let node = pool.sessions().next().unwrap().0;
        let node: usize = node.strip_prefix("node-").unwrap().parse().unwrap();
        let mut stopped = false;
        play(&mut pool, &expected, 24, |rows| {
            if rows > 1_000 && !std::mem::replace(&mut stopped, true) {
                nodes.stop(node);
            }
        });
        assert!(stopped);
    }
}

/// `alone` tells whether the slow lane finishes while nobody waits for lanes, once no other is under way.
fn is_not_waited_for(lanes: &mut impl FirstDone, slow: u32, alone: bool) {
    lanes.begin(&Reset::seeded(4, LANES));
    let all: Vec<u32> = (0..LANES as u32).collect();
    lanes.send(&all, &[1; LANES]);
    for _ in 0..100 {
        let received = lanes.recv(32);
        assert!(received.lanes.len() >= 32 && (alone || !received.lanes.contains(&slow)));
        lanes.send(&received.lanes, &vec![1; received.lanes.len()]);
    }
    // Alone it is.
    let mut received = lanes.recv(LANES).lanes;
    received.sort_unstable();
    assert_eq!(received, all);
}

/// Symptom: over a cluster a session answered lanes that were sent together as a whole, so that the fast ones waited for the
/// slowest. Cause: a request had one answer, about all that it named. Fix: it is answered with those that are done, and
/// the next one names the others again.
#[test]
fn the_slowest_lane_is_not_waited_for_on_any_transport() {
    let slow = 2;
    let timing = Timing { seed: 1, last: Some(slow), ..Timing::default() };
    let mut engine = Engine::new(&Arc::new(simulator(timing)), EngineConfig::new(LANES), None).unwrap();
    is_not_waited_for(&mut engine, slow as u32, false);
    let nodes = nodes_of(1, timing);
    for transport in TRANSPORTS {
        let mut pool = pool_of(&nodes, transport, Spread::Pack);
        is_not_waited_for(&mut pool, slow as u32, transport == Transport::Shm);
    }
}

/// A lane that hangs is sent before all others, so that its session has nothing else to wait for at first. Returns the
/// lanes that are under way then.
fn others_are_not_held_up(lanes: &mut impl FirstDone, hangs: u32) -> Vec<u32> {
    lanes.begin(&Reset::seeded(4, LANES));
    let others: Vec<u32> = (0..LANES as u32).filter(|&lane| lane != hangs).collect();
    lanes.send(&[hangs], &[1]);
    lanes.send(&others, &[1; LANES - 1]);
    let mut idle = Vec::new();
    for _ in 0..30 {
        let sent = std::mem::take(&mut idle);
        lanes.send(&sent, &vec![1; sent.len()]);
        let received = lanes.recv(40);
        assert!(!received.lanes.contains(&hangs));
        idle = received.lanes;
    }
    let mut left: Vec<u32> = others.into_iter().filter(|lane| !idle.contains(lane)).collect();
    left.push(hangs);
    left.sort_unstable();
    left
}

/// The lane that hangs is lost alone, when its time is over.
fn it_is_lost_alone(lanes: &mut impl FirstDone, hangs: u32, left: &[u32]) {
    let last = lanes.recv(left.len());
    let row = last.lanes.iter().position(|&lane| lane == hangs).unwrap();
    assert_eq!((last.rewards[row], last.terminated[row]), (0.0, 0));
    let mut received = last.lanes;
    received.sort_unstable();
    assert_eq!(received, left);
}

#[test]
fn lanes_that_are_sent_behind_one_that_hangs_are_not_held_up() {
    let timing = Timing { seed: 3, hangs: Some((2, 0)), ..Timing::default() };
    let config = EngineConfig {
        lane_deadlines: LaneDeadlines::both(Duration::from_secs(6)),
        ..EngineConfig::new(LANES)
    };
    let mut engine = Engine::new(&Arc::new(simulator(timing)), config, None).unwrap();
    let nodes = nodes_of(1, timing);
    let pool = |transport| pool_of(&nodes, transport, Spread::Pack);
    let mut pools = TRANSPORTS.map(pool);
    let left = pools.each_mut().map(|pool| others_are_not_held_up(pool, 2));
    let left_embedded = others_are_not_held_up(&mut engine, 2);
    it_is_lost_alone(&mut engine, 2, &left_embedded);
    // All at about the same time.
    pools.iter_mut().zip(&left).for_each(|(pool, left)| it_is_lost_alone(pool, 2, left));
}

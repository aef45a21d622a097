//! Many tasks step lanes of one pool: each its own, whatever becomes of the futures of any.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test uses some of it")]
use crate::nodes;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nodes::Nodes;
use proptest::prelude::*;
use rollhouse_client::{
    AsyncCluster, ConnectOptions, MAX_WAITING_OF_ONE, MAX_WAITING_REQUESTS, PoolRequest, SharedError,
    SharedLanes, SharedPool, StepError, Transport,
};
use rollhouse_core::{ColumnMut, ColumnRef, random_bits};
use rollhouse_engine::{Engine, EngineConfig, Received, Reset, StepError as Rules};
use rollhouse_env::testing::{Timing, late};
use rollhouse_env::{EnvEntry, Registry};
use rollhouse_node::HANG_DEADLINE;
use tokio::task::JoinSet;

const LONG: Duration = Duration::from_secs(60);
const TRANSPORTS: [Transport; 2] = [Transport::Quic, Transport::Shm];

fn kernel() -> Arc<EnvEntry> {
    Registry::builtin().get("CartPole-v1").unwrap()
}

fn action(lane: u32, step: usize) -> i64 {
    (random_bits(3, lane, step as u64) & 1) as i64
}

/// The observation's bits, the reward and the flags of a row.
type Row = (Vec<u32>, f64, [u8; 3]);

fn bits(column: ColumnRef<'_>, row: usize) -> Vec<u32> {
    column.slice(row * 4, row * 4 + 4).as_f32().unwrap().iter().map(|value| value.to_bits()).collect()
}

fn row_of(received: &Received, row: usize) -> Row {
    let flags = [received.terminated[row], received.truncated[row], received.reset[row]];
    (bits(received.obs[0].as_ref(), row), received.rewards[row], flags)
}

/// The rows that each lane shows: that of the reset, and those of its steps.
fn expected(lanes: usize, steps: usize) -> Vec<Vec<Row>> {
    let mut engine = Engine::new(&kernel(), EngineConfig::new(lanes), None).unwrap();
    let mut rows = vec![Vec::new(); lanes];
    for step in 0..=steps {
        let frame = if step == 0 {
            engine.reset(&Reset::seeded(4, lanes)).unwrap()
        } else {
            let ColumnMut::I64(actions) = engine.actions().unwrap() else { panic!("discrete") };
            (0..).zip(actions.iter_mut()).for_each(|(lane, to)| *to = action(lane, step));
            engine.step().unwrap()
        };
        for (lane, rows) in rows.iter_mut().enumerate() {
            let flags = [frame.terminated()[lane], frame.truncated()[lane], frame.reset()[lane]];
            rows.push((bits(frame.obs(0), lane), frame.rewards()[lane], flags));
        }
    }
    rows
}

async fn shared(nodes: &Nodes, transport: Transport, lanes: usize, timeout: Duration) -> SharedPool {
    let options = ConnectOptions { timeout, ..nodes.options() };
    let cluster = AsyncCluster::connect(&nodes.address(), options).await.unwrap();
    let mut request = PoolRequest::new("CartPole-v1", lanes as u32);
    request.transport = Some(transport);
    let pool = cluster.open_pool(request).await.unwrap();
    SharedPool::start(pool, &Reset::seeded(4, lanes)).await.unwrap()
}

fn on_a_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn rules(error: SharedError) -> Rules {
    let SharedError::Step(error) = error else { panic!("{error}") };
    match Arc::into_inner(error) {
        Some(StepError::Rules(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hundreds_of_tasks_step_their_own_lanes_as_if_each_were_alone() {
    let (lanes, steps) = (600, 25);
    let nodes = Nodes::start(2);
    let expected = Arc::new(expected(lanes, steps));
    for transport in TRANSPORTS {
        on_a_runtime(async {
            let pool = shared(&nodes, transport, lanes, LONG).await;
            let mut tasks = JoinSet::new();
            for first in (0..lanes as u32).step_by(2) {
                let (pool, expected) = (pool.clone(), Arc::clone(&expected));
                tasks.spawn(async move {
                    let own = [first + 1, first];
                    let mut mine = pool.take(&own).unwrap();
                    for step in 0..=steps {
                        let rows = match step {
                            0 => mine.recv(2, LONG).await.unwrap(),
                            _ => {
                                let actions = own.map(|lane| action(lane, step));
                                mine.step(ColumnRef::I64(&actions)).await.unwrap()
                            }
                        };
                        assert_eq!(rows.lanes, own);
                        for (row, lane) in own.into_iter().enumerate() {
                            assert_eq!(row_of(&rows, row), expected[lane as usize][step], "lane {lane}");
                        }
                    }
                });
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
            let stepped: u64 = pool.statistics().await.unwrap().iter().map(|session| session.steps).sum();
            let began = expected.iter().flat_map(|rows| &rows[1..]).filter(|row| row.2[2] == 1).count();
            assert_eq!(stepped as usize, lanes * steps - began, "each was stepped once");
            pool.close().await.unwrap();
        });
    }
}

/// Polls a future so many times and drops it; `None` if it was not done by then.
async fn polled<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await
}

/// A caller whose futures are dropped, and what its lanes have shown and were sent.
struct Fickle {
    lanes: SharedLanes,
    shown: Vec<usize>,
    sent: Vec<usize>,
}

impl Fickle {
    /// Steps, sends or receives, and gives up after so many polls.
    async fn act(&mut self, what: u8, polls: usize, expected: &[Vec<Row>]) {
        let own = self.lanes.lanes().to_vec();
        // Lanes that nobody waits for any more, and others.
        let free = (0..own.len()).filter(|&row| self.sent[row] < self.shown[row]);
        let free: Vec<usize> = free.collect();
        let named: Vec<u32> = free.iter().map(|&row| own[row]).collect();
        let actions: Vec<i64> = free.iter().map(|&row| action(own[row], self.sent[row] + 1)).collect();
        let rows = if what == 0 && named.len() == own.len() {
            let rows = polled(polls, self.lanes.step(ColumnRef::I64(&actions))).await;
            self.is_sent(&free, polls, rows.is_some());
            rows
        } else if what <= 1 && !named.is_empty() {
            let done = polled(polls, self.lanes.send(&named, ColumnRef::I64(&actions))).await;
            self.is_sent(&free, polls, done.is_some());
            done.map(|sent| sent.map(|()| Received::default()))
        } else if named.len() < own.len() {
            polled(polls, self.lanes.recv(1, LONG)).await
        } else {
            None
        };
        if let Some(rows) = rows {
            self.see(&rows.unwrap(), expected);
        }
    }

    fn is_sent(&mut self, rows: &[usize], polls: usize, done: bool) {
        if polls > 0 || done {
            rows.iter().for_each(|&row| self.sent[row] += 1);
        }
    }

    fn see(&mut self, received: &Received, expected: &[Vec<Row>]) {
        for (row, lane) in received.lanes.iter().enumerate() {
            let own = self.lanes.lanes().iter().position(|own| own == lane).unwrap();
            let shown = &mut self.shown[own];
            assert_eq!(row_of(received, row), expected[*lane as usize][*shown], "lane {lane}, row {shown}");
            *shown += 1;
        }
    }
}

#[test]
fn a_call_that_is_dropped_wherever_it_waits_neither_loses_a_row_nor_steps_a_lane_twice() {
    let (lanes, rounds) = (6, 40);
    let nodes = Nodes::start(1);
    let expected = expected(lanes, rounds + 1);
    let turns = prop::collection::vec((0..3usize, 0..3u8, 0..9usize), rounds);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(24));
    let played = runner.run(&(0..2usize, turns), |(transport, turns)| {
        on_a_runtime(async {
            let pool = shared(&nodes, TRANSPORTS[transport], lanes, LONG).await;
            let mut callers: Vec<Fickle> = (0..3u32)
                .map(|caller| {
                    let lanes = pool.take(&[2 * caller, 2 * caller + 1]).unwrap();
                    Fickle { lanes, shown: vec![0; 2], sent: vec![0; 2] }
                })
                .collect();
            for (caller, what, polls) in turns {
                callers[caller].act(what, polls, &expected).await;
            }
            // Whoever has the lanes next has what was left.
            for caller in callers {
                let Fickle { lanes, shown, sent } = caller;
                let own = lanes.lanes().to_vec();
                drop(lanes);
                let mut next = Fickle { lanes: pool.take(&own).unwrap(), shown, sent };
                while next.sent.iter().zip(&next.shown).any(|(sent, shown)| sent >= shown) {
                    let rows = next.lanes.recv(1, LONG).await.unwrap();
                    next.see(&rows, &expected);
                }
                assert_eq!(rules(next.lanes.recv(1, LONG).await.unwrap_err()), nothing(1, 0));
            }
            pool.close().await.unwrap();
        });
        Ok(())
    });
    played.unwrap();
}

const fn nothing(wanted: usize, outstanding: usize) -> Rules {
    Rules::NothingOutstanding { wanted, outstanding }
}

#[test]
fn nobody_waits_for_a_lane_of_another_caller_and_what_is_asked_of_all_says_that_it_would() {
    let timing = Timing { seed: 3, hangs: Some((2, 0)), ..Timing::default() };
    let nodes = Nodes::of(1, HANG_DEADLINE, || {
        let registry = Registry::empty();
        registry.register(Arc::into_inner(late(&kernel(), timing)).unwrap()).unwrap();
        registry
    });
    for transport in TRANSPORTS {
        on_a_runtime(async {
            let pool = shared(&nodes, transport, 4, Duration::from_secs(4)).await;
            let mut slow = pool.take(&[2]).unwrap();
            let mut fast = pool.take(&[0, 3]).unwrap();
            slow.recv(1, LONG).await.unwrap();
            fast.recv(2, LONG).await.unwrap();
            slow.send(&[2], ColumnRef::I64(&[1])).await.unwrap();
            for _ in 0..50 {
                let rows = fast.step(ColumnRef::I64(&[1, 0])).await.unwrap();
                assert_eq!(rows.lanes, [0, 3]);
            }
            assert_eq!(rules(slow.recv(1, Duration::ZERO).await.unwrap_err()), Rules::TimedOut);
            assert!(matches!(pool.statistics().await, Err(SharedError::UnderWay { .. })));
            fast.step(ColumnRef::I64(&[1, 0])).await.unwrap();
        });
    }
}

#[test]
fn lanes_are_one_callers_and_what_breaks_a_rule_is_refused_by_name() {
    let nodes = Nodes::start(1);
    on_a_runtime(async {
        let pool = shared(&nodes, Transport::Quic, 4, LONG).await;
        let mut mine = pool.take(&[1, 2]).unwrap();
        assert!(matches!(pool.take(&[0, 2]), Err(SharedError::InUse { lane: 2 })));
        assert_eq!(rules(pool.take(&[3, 3]).unwrap_err()), Rules::LaneOutstanding { lane: 3 });
        assert_eq!(rules(pool.take(&[4]).unwrap_err()), Rules::NoSuchLane { lane: 4, lanes: 4 });
        let other = mine.send(&[0], ColumnRef::I64(&[1])).await;
        assert!(matches!(other, Err(SharedError::NotTaken { lane: 0 })));
        // Their first rows were not received.
        let early = rules(mine.step(ColumnRef::I64(&[0, 0])).await.unwrap_err());
        assert_eq!(early, Rules::LaneOutstanding { lane: 1 });
        mine.recv(2, LONG).await.unwrap();
        let Rules::Action(bad) = rules(mine.step(ColumnRef::I64(&[0, 9])).await.unwrap_err()) else {
            panic!()
        };
        assert_eq!(bad.lane, 2);
        // One whose caller has gone is returned by the next call, once.
        assert!(polled(1, mine.step(ColumnRef::I64(&[9, 9]))).await.is_none());
        assert!(matches!(rules(mine.recv(1, LONG).await.unwrap_err()), Rules::Action(_)));
        assert_eq!(mine.step(ColumnRef::I64(&[0, 1])).await.unwrap().lanes, [1, 2]);
        // A reset of theirs leaves all others as they are.
        let reset = Reset { mask: vec![false, true], seeds: vec![None, Some(6)], ..Reset::default() };
        let begun = mine.reset(&reset).await.unwrap();
        assert_eq!((begun.lanes, begun.reset), (vec![2], vec![1]));
        drop(mine);
        let mut all = pool.take(&[0, 1, 2, 3]).unwrap();
        let left = all.recv(1, LONG).await.unwrap();
        assert_eq!(left.lanes, [0, 3], "the rows that nobody has received");
        let states = pool.get_attr("state".to_owned()).await.unwrap();
        pool.set_attr("max_episode_steps".to_owned(), vec![states[0].clone()]).await.unwrap_err();
        assert_eq!(states.len(), 4);
        assert_eq!(all.render(None).await.unwrap().len(), 4);
        assert_eq!(all.words().await.unwrap().len(), 4);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_caller_with_too_many_requests_is_told_so_at_once_and_others_have_room() {
    let nodes = Nodes::start(1);
    on_a_runtime(async {
        let pool = shared(&nodes, Transport::Quic, 2, LONG).await;
        // The owner does not run before this task waits.
        let callers: Vec<SharedPool> =
            (0..MAX_WAITING_REQUESTS / MAX_WAITING_OF_ONE + 2).map(|_| pool.clone()).collect();
        let (mut asked, mut busy) = (Vec::new(), 0);
        for caller in &callers {
            for _ in 0..=MAX_WAITING_OF_ONE {
                let mut asking = Box::pin(caller.statistics());
                match asking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Err(SharedError::Busy)) => busy += 1,
                    Poll::Ready(other) => panic!("{other:?}"),
                    Poll::Pending => asked.push(asking),
                }
            }
            // Each has its share, until all is taken.
            assert_eq!(asked.len().min(MAX_WAITING_REQUESTS), asked.len());
            assert!(asked.len() % MAX_WAITING_OF_ONE == 0);
        }
        assert_eq!(asked.len(), MAX_WAITING_REQUESTS);
        assert_eq!(busy, callers.len() * (MAX_WAITING_OF_ONE + 1) - MAX_WAITING_REQUESTS);
        for asking in asked {
            asking.await.unwrap();
        }
        pool.statistics().await.unwrap();
    });
}

#[test]
fn a_pool_that_was_closed_or_has_lost_its_owner_says_which() {
    let nodes = Nodes::start(1);
    on_a_runtime(async {
        let pool = shared(&nodes, Transport::Quic, 2, LONG).await;
        let (mut one, mut other) = (pool.take(&[0]).unwrap(), pool.take(&[1]).unwrap());
        one.recv(1, LONG).await.unwrap();
        let closer = pool.clone();
        let (closed, late, waited) =
            tokio::join!(closer.close(), pool.statistics(), async { one.step(ColumnRef::I64(&[1])).await });
        closed.unwrap();
        assert!(matches!(late, Err(SharedError::Closed)), "{late:?}");
        assert!(matches!(waited, Err(SharedError::Closed)), "{waited:?}");
        assert_eq!(other.recv(1, LONG).await.unwrap().lanes, [1], "a row that lay ready");
        assert!(matches!(other.step(ColumnRef::I64(&[1])).await, Err(SharedError::Closed)));
        assert!(matches!(pool.close().await, Err(SharedError::Closed)));
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pool = runtime.block_on(shared(&nodes, Transport::Quic, 1, LONG));
    drop(runtime);
    on_a_runtime(async {
        let mut lanes = pool.take(&[0]).unwrap();
        lanes.recv(1, LONG).await.unwrap();
        assert!(matches!(lanes.step(ColumnRef::I64(&[1])).await, Err(SharedError::Failed)));
        assert!(matches!(pool.statistics().await, Err(SharedError::Failed)));
    });
}

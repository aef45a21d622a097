//! The trainer: steps a pool and an engine of its own side by side, and compares every frame.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rollhouse_client::Pool;
use rollhouse_core::{ColumnMut, random_bits};
use rollhouse_engine::{Engine, EngineConfig, Frame, Reset};
use rollhouse_env::Registry;

use super::{ENV, LANES, failed};
use crate::bench::SEED;
use crate::failure::Failure;

/// What others see of it while it steps.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Batches that were stepped.
    pub(super) batches: AtomicU64,
    /// Nodes that had lanes after the last of them.
    pub(super) nodes: Mutex<Vec<String>>,
    /// When the disk of which node was full, and until when, once it has room again.
    pub(super) fills: Mutex<Vec<Fill>>,
    /// It is to end.
    pub(super) end: AtomicBool,
    /// A step has failed.
    pub(super) failed: AtomicBool,
}

/// A time in which a node's disk took nothing. What was recorded shortly before may be lost: it was not durable.
#[derive(Debug, Clone)]
pub(super) struct Fill {
    pub(super) node: String,
    pub(super) from: Instant,
    pub(super) until: Option<Instant>,
}

impl Progress {
    pub(super) fn nodes(&self) -> MutexGuard<'_, Vec<String>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fills(&self) -> MutexGuard<'_, Vec<Fill>> {
        self.fills.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What it saw.
#[derive(Debug)]
pub(super) struct Seen {
    /// Batches in which the pool showed something else than the engine, or lanes as lost.
    pub(super) differing: u64,
    /// Of each lane.
    pub(super) lanes: Vec<Episodes>,
    /// Episodes that ended while the disk of their node was full, or too short a time before to be durable: their part
    /// of the lane's digest, by lane and number.
    pub(super) at_risk: BTreeMap<(usize, u64), u64>,
    /// Why it ended before it was told to.
    pub(super) failure: Option<Failure>,
}

/// The episodes of a lane that finished.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Episodes {
    /// How many: they are numbered from 0.
    pub(super) count: u64,
    /// Of the numbers, lengths and returns of all of them, in any order.
    pub(super) digest: u64,
}

impl Episodes {
    /// One more; gives its part of the digest.
    pub(super) fn add(&mut self, length: u64, total_reward: f64) -> u64 {
        let part = digest(self.count, length, total_reward);
        self.count += 1;
        self.digest = self.digest.wrapping_add(part);
        part
    }
}

/// An episode's part of its lane's digest.
pub(super) fn digest(number: u64, length: u64, total_reward: f64) -> u64 {
    random_bits(random_bits(total_reward.to_bits(), 0, length), 0, number)
}

pub(super) struct Trainer {
    pool: Pool,
    engine: Engine,
    turn: u64,
    seen: Seen,
    open: Vec<(u64, f64)>,
    /// Which node has each lane.
    nodes: Vec<String>,
    /// Episodes that ended of late, and whether they are at risk is not known yet.
    recent: VecDeque<Recent>,
}

struct Recent {
    ended: Instant,
    node: String,
    name: (usize, u64),
    digest: u64,
}

impl Trainer {
    /// Begins the episodes of both.
    pub(super) fn begin(mut pool: Pool) -> Result<Self, Failure> {
        let entry = Registry::builtin().get(ENV).map_err(failed)?;
        let mut engine = Engine::new(&entry, EngineConfig::new(LANES), None).map_err(failed)?;
        let reset = Reset::seeded(SEED, LANES);
        let same = same(&pool.reset(&reset).map_err(failed)?, &engine.reset(&reset).map_err(failed)?);
        let lanes = vec![Episodes::default(); LANES];
        let seen = Seen { differing: u64::from(!same), lanes, at_risk: BTreeMap::new(), failure: None };
        let (open, nodes) = (vec![(0, 0.0); LANES], vec![String::new(); LANES]);
        Ok(Self { pool, engine, turn: 0, seen, open, nodes, recent: VecDeque::new() })
    }

    /// Steps until it is told to end or a step fails.
    pub(super) fn play(mut self, progress: &Progress) -> (Pool, Seen) {
        while !progress.end.load(Ordering::Relaxed) {
            if let Err(failure) = self.step(progress) {
                self.seen.failure = Some(failure);
                progress.failed.store(true, Ordering::Relaxed);
                break;
            }
            self.judge(&progress.fills(), Instant::now().checked_sub(JUDGED_AFTER));
            progress.batches.fetch_add(1, Ordering::Release);
        }
        self.judge(&progress.fills(), None);
        (self.pool, self.seen)
    }

    /// Tells the episodes that are at risk, of those that ended before then; of all, without a time.
    fn judge(&mut self, fills: &[Fill], before: Option<Instant>) {
        while let Some(Recent { ended, .. }) = self.recent.front()
            && before.is_none_or(|before| *ended < before)
            && let Some(Recent { ended, node, name, digest }) = self.recent.pop_front()
        {
            let hit = |fill: &&Fill| {
                fill.node == node
                    && ended + NOT_DURABLE_FOR >= fill.from
                    && fill.until.is_none_or(|until| ended <= until + NOT_DURABLE_FOR)
            };
            if fills.iter().rev().any(|fill| hit(&fill)) {
                self.seen.at_risk.insert(name, digest);
            }
        }
    }

    fn step(&mut self, progress: &Progress) -> Result<(), Failure> {
        fill(self.pool.actions(), self.turn);
        fill(self.engine.actions().map_err(failed)?, self.turn);
        self.turn += 1;
        let there = self.pool.step().map_err(failed)?;
        let here = self.engine.step().map_err(failed)?;
        self.seen.differing += u64::from(!same(&there, &here));
        look(&self.pool, &mut self.nodes, progress);
        for (lane, open) in self.open.iter_mut().enumerate() {
            if here.reset()[lane] == 0 {
                *open = (open.0 + 1, open.1 + here.rewards()[lane]);
            }
            if here.terminated()[lane] | here.truncated()[lane] != 0 {
                let (length, total_reward) = std::mem::take(open);
                let episodes = &mut self.seen.lanes[lane];
                let name = (lane, episodes.count);
                let digest = episodes.add(length, total_reward);
                let node = self.nodes[lane].clone();
                self.recent.push_back(Recent { ended: Instant::now(), node, name, digest });
            }
        }
        Ok(())
    }
}

/// Notes which node has each lane now.
fn look(pool: &Pool, nodes: &mut [String], progress: &Progress) {
    let moved = |(node, lanes): (&str, Range<usize>)| nodes[lanes.start] != node;
    if pool.sessions().any(moved) {
        for (node, lanes) in pool.sessions() {
            nodes[lanes].fill(node.to_owned());
        }
        *progress.nodes() = pool.sessions().map(|(node, _)| node.to_owned()).collect();
    }
}

fn fill(actions: ColumnMut<'_>, turn: u64) {
    if let ColumnMut::I64(actions) = actions {
        for (lane, action) in (0..).zip(actions) {
            *action = (random_bits(SEED, lane, turn) % ACTIONS) as i64;
        }
    }
}

/// To the bit.
fn same(a: &Frame<'_>, b: &Frame<'_>) -> bool {
    let bits = |frame: &Frame<'_>| -> Option<Vec<u32>> {
        Some(frame.obs(0).as_f32()?.iter().map(|value| value.to_bits()).collect())
    };
    bits(a) == bits(b)
        && a.rewards() == b.rewards()
        && a.terminated() == b.terminated()
        && a.truncated() == b.truncated()
        && a.reset() == b.reset()
}

/// How long what is recorded is not durable: a chunk is handed over after 100 ms, and synced once a second.
const NOT_DURABLE_FOR: Duration = Duration::from_secs(2);
/// More than that, so that a fault that comes shortly after an episode's end is known.
const JUDGED_AFTER: Duration = Duration::from_secs(4);
/// Of the env.
const ACTIONS: u64 = 3;

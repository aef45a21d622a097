//! The trainer: steps a pool and an engine of its own side by side, and compares every frame.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    /// It is to end.
    pub(super) end: AtomicBool,
    /// A step has failed.
    pub(super) failed: AtomicBool,
}

/// What it saw.
#[derive(Debug)]
pub(super) struct Seen {
    /// Batches in which the pool showed something else than the engine, or lanes as lost.
    pub(super) differing: u64,
    /// Of each lane.
    pub(super) lanes: Vec<Episodes>,
    /// Why it ended before it was told to.
    pub(super) failure: Option<Failure>,
}

/// The episodes of a lane that finished.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Episodes {
    /// How many: they are numbered from 0.
    pub(super) count: u64,
    /// Of the lengths and returns of all of them, in their order.
    pub(super) digest: u64,
}

impl Episodes {
    /// One more.
    pub(super) fn add(&mut self, length: u64, total_reward: f64) {
        self.count += 1;
        for word in [length, total_reward.to_bits()] {
            self.digest = random_bits(self.digest ^ word, 0, self.count);
        }
    }
}

pub(super) struct Trainer {
    pool: Pool,
    engine: Engine,
    turn: u64,
    seen: Seen,
    open: Vec<(u64, f64)>,
}

impl Trainer {
    /// Begins the episodes of both.
    pub(super) fn begin(mut pool: Pool) -> Result<Self, Failure> {
        let entry = Registry::builtin().get(ENV).map_err(failed)?;
        let mut engine = Engine::new(&entry, EngineConfig::new(LANES), None).map_err(failed)?;
        let reset = Reset::seeded(SEED, LANES);
        let same = same(&pool.reset(&reset).map_err(failed)?, &engine.reset(&reset).map_err(failed)?);
        let lanes = vec![Episodes::default(); LANES];
        let seen = Seen { differing: u64::from(!same), lanes, failure: None };
        Ok(Self { pool, engine, turn: 0, seen, open: vec![(0, 0.0); LANES] })
    }

    /// Steps until it is told to end or a step fails.
    pub(super) fn play(mut self, progress: &Progress) -> (Pool, Seen) {
        let mut nodes = Vec::new();
        while !progress.end.load(Ordering::Relaxed) {
            if let Err(failure) = self.step() {
                self.seen.failure = Some(failure);
                progress.failed.store(true, Ordering::Relaxed);
                break;
            }
            let changed = !self.pool.sessions().map(|(node, _)| node).eq(nodes.iter().map(String::as_str));
            if changed {
                nodes = self.pool.sessions().map(|(node, _)| node.to_owned()).collect();
                progress.nodes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone_from(&nodes);
            }
            progress.batches.fetch_add(1, Ordering::Release);
        }
        (self.pool, self.seen)
    }

    fn step(&mut self) -> Result<(), Failure> {
        fill(self.pool.actions(), self.turn);
        fill(self.engine.actions().map_err(failed)?, self.turn);
        self.turn += 1;
        let there = self.pool.step().map_err(failed)?;
        let here = self.engine.step().map_err(failed)?;
        self.seen.differing += u64::from(!same(&there, &here));
        for (lane, open) in self.open.iter_mut().enumerate() {
            if here.reset()[lane] == 0 {
                *open = (open.0 + 1, open.1 + here.rewards()[lane]);
            }
            if here.terminated()[lane] | here.truncated()[lane] != 0 {
                let (length, total_reward) = std::mem::take(open);
                self.seen.lanes[lane].add(length, total_reward);
            }
        }
        Ok(())
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

/// Of the env.
const ACTIONS: u64 = 3;

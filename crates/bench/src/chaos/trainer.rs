//! The trainer: steps a pool and an engine of its own side by side, and compares every frame.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rollhouse_cli::failure::Failure;
use rollhouse_client::Pool;
use rollhouse_core::{ColumnMut, random_bits};
use rollhouse_engine::{Engine, EngineConfig, Frame, Reset};
use rollhouse_env::Registry;

use super::{ENV, LANES, failed};
use crate::SEED;

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
    /// The episodes that ended, of each lane, numbered from 0.
    pub(super) lanes: Vec<Vec<Ended>>,
    /// Nodes that had lanes, as [`Ended::node`] counts them.
    pub(super) nodes: Vec<String>,
    /// Why it ended before it was told to.
    pub(super) failure: Option<Failure>,
}

/// An episode that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// [`digest`] of its length and return.
    pub(super) digest: u64,
    /// When the batch before it was asked for: that which ended the episode before it, if there was one.
    pub(super) began: Instant,
    /// When the batch that ended it was asked for.
    pub(super) asked: Instant,
    /// When all of that batch was answered. Its node stepped it somewhere between the two.
    pub(super) answered: Instant,
    /// Which node had its lane then.
    pub(super) node: usize,
}

impl Ended {
    /// Whether the disk of its node was full while it was open, or so shortly afterwards that it was not durable, or had
    /// room that its recorder had not found yet: what begins, or is under way, unrecorded cannot be read.
    pub(super) fn is_at_risk(&self, node: &str, fills: &[Fill]) -> bool {
        let hit = |fill: &Fill| {
            fill.node == node
                && self.answered + NOT_DURABLE_FOR >= fill.from
                && fill.until.is_none_or(|until| self.began <= until + FOUND_WITHIN)
        };
        fills.iter().any(hit)
    }
}

/// What is compared of an episode's length and return.
pub(super) fn digest(length: u64, total_reward: f64) -> u64 {
    random_bits(total_reward.to_bits(), 0, length)
}

pub(super) struct Trainer {
    pool: Pool,
    engine: Engine,
    turn: u64,
    seen: Seen,
    began: Instant,
    open: Vec<(u64, f64)>,
    /// Which node has each lane.
    nodes: Vec<usize>,
}

impl Trainer {
    /// Begins the episodes of both.
    pub(super) fn begin(mut pool: Pool) -> Result<Self, Failure> {
        let entry = Registry::builtin().get(ENV).map_err(failed)?;
        let mut engine = Engine::new(&entry, EngineConfig::new(LANES), None).map_err(failed)?;
        let reset = Reset::seeded(SEED, LANES);
        let same = same(&pool.reset(&reset).map_err(failed)?, &engine.reset(&reset).map_err(failed)?);
        let lanes = vec![Vec::new(); LANES];
        let seen = Seen { differing: u64::from(!same), lanes, nodes: Vec::new(), failure: None };
        let (open, nodes) = (vec![(0, 0.0); LANES], vec![usize::MAX; LANES]);
        Ok(Self { pool, engine, turn: 0, seen, began: Instant::now(), open, nodes })
    }

    /// Steps until it is told to end or a step fails.
    pub(super) fn play(mut self, progress: &Progress) -> (Pool, Seen) {
        while !progress.end.load(Ordering::Relaxed) {
            if let Err(failure) = self.step(progress) {
                self.seen.failure = Some(failure);
                progress.failed.store(true, Ordering::Relaxed);
                break;
            }
            progress.batches.fetch_add(1, Ordering::Release);
        }
        (self.pool, self.seen)
    }

    fn step(&mut self, progress: &Progress) -> Result<(), Failure> {
        fill(self.pool.actions(), self.turn);
        fill(self.engine.actions().map_err(failed)?, self.turn);
        self.turn += 1;
        let asked = Instant::now();
        let there = self.pool.step().map_err(failed)?;
        let answered = Instant::now();
        let here = self.engine.step().map_err(failed)?;
        self.seen.differing += u64::from(!same(&there, &here));
        look(&self.pool, &mut self.nodes, &mut self.seen.nodes, progress);
        for (lane, open) in self.open.iter_mut().enumerate() {
            if here.reset()[lane] == 0 {
                *open = (open.0 + 1, open.1 + here.rewards()[lane]);
            }
            if here.terminated()[lane] | here.truncated()[lane] != 0 {
                let (length, total_reward) = std::mem::take(open);
                let (digest, node) = (digest(length, total_reward), self.nodes[lane]);
                let began = self.seen.lanes[lane].last().map_or(self.began, |last| last.asked);
                self.seen.lanes[lane].push(Ended { digest, began, asked, answered, node });
            }
        }
        Ok(())
    }
}

/// Notes which node has each lane now.
fn look(pool: &Pool, lanes: &mut [usize], names: &mut Vec<String>, progress: &Progress) {
    let known = |names: &[String], node: &str| names.iter().position(|name| name == node);
    let moved = |(node, range): (&str, Range<usize>)| known(names, node) != Some(lanes[range.start]);
    if pool.sessions().any(moved) {
        for (node, range) in pool.sessions() {
            let index = known(names, node).unwrap_or(names.len());
            if index == names.len() {
                names.push(node.to_owned());
            }
            lanes[range].fill(index);
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
/// A recorder tries a disk that failed again with pauses of at most so long.
pub(super) const FOUND_WITHIN: Duration = Duration::from_secs(4);
/// Of the env.
const ACTIONS: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_episode_is_at_risk_if_its_nodes_disk_was_full_between_its_beginning_and_its_being_durable() {
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let ended = |began, answered| {
            let (began, answered) = (at(began), at(answered));
            Ended { digest: 0, began, asked: answered, answered, node: 0 }
        };
        let fill = |until: Option<u64>| Fill { node: "a".to_owned(), from: at(10_000), until: until.map(at) };
        let fills = [fill(Some(12_000))];
        for (began, answered, is_at_risk) in [
            (7_000, 7_900, false),
            (7_000, 8_100, true),
            (11_000, 11_001, true),
            (11_000, 40_000, true),
            (15_900, 17_900, true),
            (16_100, 16_101, false),
        ] {
            assert_eq!(ended(began, answered).is_at_risk("a", &fills), is_at_risk, "{began} to {answered}");
            assert!(!ended(began, answered).is_at_risk("b", &fills), "of another node");
        }
        assert!(ended(90_000, 90_001).is_at_risk("a", &[fill(None)]), "it still is full");
    }
}

//! The trainer: steps a pool and an engine of its own side by side, and compares every frame.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rollhouse_cli::failure::Failure;
use rollhouse_client::Pool;
use rollhouse_core::{ColumnMut, random_bits};
use rollhouse_engine::{Engine, EngineConfig, Frame, Reset};
use rollhouse_env::Registry;

use super::waits::{Call, WaitBook};
use super::{ENV, LANES};
use crate::failed::failed;
use crate::seed::SEED;

/// The trainer's progress, which other threads read while it steps.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Number of batches that were stepped.
    pub(super) batches: AtomicU64,
    /// Names of the nodes that had lanes after the last of them.
    pub(super) nodes: Mutex<Vec<String>>,
    /// The times in which a node's disk was full; the end of a time is known once the disk has room again.
    pub(super) fills: Mutex<Vec<Fill>>,
    /// How long honest clients waited.
    pub(super) waits: WaitBook,
    /// Whether it is to end.
    pub(super) end: AtomicBool,
    /// Whether a step has failed.
    pub(super) failed: AtomicBool,
}

/// A time in which a node's disk accepted nothing. Episodes recorded shortly before may be lost: they were not durable.
#[derive(Debug, Clone)]
pub(super) struct Fill {
    pub(super) node: String,
    pub(super) from: Instant,
    pub(super) until: Option<Instant>,
}

impl Progress {
    pub(super) fn nodes(&self) -> MutexGuard<'_, Vec<String>> {
        self.nodes.lock()
    }

    pub(super) fn fills(&self) -> MutexGuard<'_, Vec<Fill>> {
        self.fills.lock()
    }
}

/// The results that the trainer saw.
#[derive(Debug)]
pub(super) struct Seen {
    /// Number of batches in which the pool's frame differed from the engine's, or lanes were lost.
    pub(super) differing: u64,
    /// The episodes that ended, by lane, numbered from 0.
    pub(super) lanes: Vec<Vec<Ended>>,
    /// Names of the nodes that had lanes; [`Ended::node`] is an index of it.
    pub(super) nodes: Vec<String>,
    /// The reason why it ended before it was told to.
    pub(super) failure: Option<Failure>,
}

/// An episode that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// [`digest`] of the episode's length and return.
    pub(super) digest: u64,
    /// The time at which the batch before it was requested: the one that ended the episode before it, if there was one.
    pub(super) began: Instant,
    /// The time at which the batch that ended it was requested.
    pub(super) asked: Instant,
    /// The time at which that batch was answered completely. Its node stepped it somewhere between the two.
    pub(super) answered: Instant,
    /// Index of the node that had its lane at that time.
    pub(super) node: usize,
}

impl Ended {
    /// Returns whether the episode may be missing: the disk of its node was full while it was open or shortly
    /// afterwards, before it was durable, or had room that its recorder had not found yet. An episode that begins, or
    /// is under way, while nothing is recorded cannot be read.
    pub(super) fn is_at_risk(&self, node: &str, fills: &[Fill]) -> bool {
        let hit = |fill: &Fill| {
            fill.node == node
                && self.answered + NOT_DURABLE_FOR >= fill.from
                && fill.until.is_none_or(|until| self.began <= until + FOUND_WITHIN)
        };
        fills.iter().any(hit)
    }
}

/// Returns a digest of an episode's length and return, for comparison.
pub(super) fn digest(length: u64, total_reward: f64) -> u64 {
    random_bits(total_reward.to_bits(), 0, length)
}

pub(super) struct Trainer {
    pool: Pool,
    engine: Engine,
    /// Pause after each step.
    thinks: Duration,
    turn: u64,
    seen: Seen,
    began: Instant,
    open: Vec<(u64, f64)>,
    /// Index of the node that has each lane.
    nodes: Vec<usize>,
}

impl Trainer {
    /// Begins the episodes of the pool and the engine.
    pub(super) fn begin(mut pool: Pool, thinks: Duration) -> Result<Self, Failure> {
        let entry = Registry::builtin().get(ENV).map_err(failed)?;
        let mut engine = Engine::new(&entry, EngineConfig::new(LANES), None).map_err(failed)?;
        let reset = Reset::seeded(SEED, LANES);
        let same = same(&pool.reset(&reset).map_err(failed)?, &engine.reset(&reset).map_err(failed)?);
        let lanes = vec![Vec::new(); LANES];
        let seen = Seen { differing: u64::from(!same), lanes, nodes: Vec::new(), failure: None };
        let (open, nodes) = (vec![(0, 0.0); LANES], vec![usize::MAX; LANES]);
        Ok(Self { pool, engine, thinks, turn: 0, seen, began: Instant::now(), open, nodes })
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
            if !self.thinks.is_zero() {
                thread::sleep(self.thinks);
            }
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
        progress.waits.add(Call::Step, answered - asked);
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

/// Notes the node that has each lane now.
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

/// Returns whether two frames are equal to the bit.
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

/// Time until a record is durable: a chunk is handed over after 100 ms, and synced once a second.
const NOT_DURABLE_FOR: Duration = Duration::from_secs(2);
/// Longest pause before a recorder tries a failed disk again.
pub(super) const FOUND_WITHIN: Duration = Duration::from_secs(4);
/// Number of actions of the env.
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

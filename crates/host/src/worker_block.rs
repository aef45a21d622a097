//! A block of lanes that the workers of a pool step.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, ColumnRef, EnvSpec, LaneSet, Options, Start, Verdict};
use rollhouse_env::{
    BatchEnv, BlockStep, CallError, Collected, Ended, EnvEntry, Image, ImageSize, LateLanes, LateRows,
    MakeError, Post, RenderError, StateError,
};

use crate::pool::{Protocol, WorkerPool};
use crate::workforce::OwnWorkers;

/// A range of a session's lanes. All blocks of the session share its pool.
pub(crate) struct WorkerBlock<P: Protocol> {
    pool: Arc<Mutex<WorkerPool<P>>>,
    lanes: Range<usize>,
    /// Lanes that were asked to be revived and did not come back at once.
    asked: LaneSet,
}

impl<P: Protocol> WorkerBlock<P> {
    /// Makes the blocks of that many lanes.
    pub(crate) fn all(pool: &Arc<Mutex<WorkerPool<P>>>, lanes: usize) -> Vec<Box<dyn BatchEnv>> {
        let starts = (0..lanes).step_by(BLOCK_LANES);
        let block = |start: usize| {
            let lanes = start..(start + BLOCK_LANES).min(lanes);
            Box::new(Self { pool: Arc::clone(pool), lanes, asked: LaneSet::NONE }) as Box<dyn BatchEnv>
        };
        starts.map(block).collect()
    }

    fn pool(&self) -> MutexGuard<'_, WorkerPool<P>> {
        self.pool.lock()
    }

    fn range(&self) -> Range<usize> {
        self.lanes.clone()
    }

    /// Posts, and waits until all lanes have answered or are lost. Lanes that take longer than the deadline of what they do,
    /// or the longer of both, are given up.
    fn complete(&mut self, post: Post<'_>, rows: LateRows<'_, '_>) -> Collected {
        let mut missing = (post.step | post.reset) & LaneSet::first(self.lanes.len());
        let deadlines = self.pool().deadlines();
        let (time, resetting) = deadlines.longest(!post.step.is_empty(), !post.reset.is_empty());
        let deadline = Instant::now() + time;
        let mut all = Collected::default();
        self.post(post);
        self.flush();
        while !missing.is_empty() {
            self.linger();
            let rows = LateRows { obs: &mut *rows.obs, infos: &mut *rows.infos, rewards: &mut *rows.rewards };
            let collected = self.collect(rows);
            missing &= !collected.lanes();
            all.add(collected);
            if !missing.is_empty() && deadline <= Instant::now() {
                all.hung |= self.give_up(missing, &deadlines.why_hung(resetting));
                missing &= !all.hung;
            } else if !missing.is_empty() {
                self.wait(deadline.min(Instant::now() + LOOK_AGAIN));
            }
        }
        all.lost |= all.hung;
        all
    }
}

impl<P: Protocol> LateLanes for WorkerBlock<P> {
    fn post(&mut self, post: Post<'_>) {
        P::post(&mut self.pool(), self.range(), &post);
    }

    fn flush(&mut self) {
        self.pool().dispatch();
    }

    fn linger(&mut self) {
        let pool = &mut *self.pool.lock();
        pool.protocol.linger(self.lanes.clone(), pool.host.memories());
    }

    fn wait(&mut self, deadline: Instant) {
        self.pool().wait(deadline);
    }

    fn collect(&mut self, rows: LateRows<'_, '_>) -> Collected {
        P::collect(&mut self.pool(), self.range(), rows)
    }

    fn give_up(&mut self, lanes: LaneSet, why: &str) -> LaneSet {
        self.pool().give_up(self.range(), lanes, why)
    }

    fn connecting(&mut self) -> LaneSet {
        P::connecting(&mut self.pool(), self.range())
    }

    fn gone(&self) -> Collected {
        self.pool().protocol.gone(self.range())
    }

    fn refuse(&mut self, lane: usize, why: &str) {
        self.pool().protocol.refuse(self.lanes.start + lane, why);
    }

    fn why_lost(&mut self, lane: usize) -> Option<String> {
        P::why_lost(&mut self.pool(), self.lanes.start + lane)
    }

    fn further_infos(&mut self, lane: usize) -> Option<String> {
        let pool = self.pool();
        pool.protocol.further_infos(self.lanes.start + lane, pool.host.memories())
    }

    fn take_pictures(&mut self, lanes: LaneSet, begun: bool) -> Vec<(usize, Vec<u8>)> {
        P::take_pictures(&mut self.pool(), self.range(), lanes, begun)
    }

    fn coming(&self) -> LaneSet {
        P::coming(&self.pool(), self.range(), self.asked)
    }
}

impl<P: Protocol> BatchEnv for WorkerBlock<P> {
    fn lanes(&self) -> usize {
        self.lanes.len()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.pool().protocol.seed(self.lanes.start + lane, seed);
    }

    fn position(&self, lane: usize) -> Start {
        P::position(&mut self.pool(), self.lanes.start + lane)
    }

    fn positions(&self, lanes: LaneSet, out: &mut [Start; BLOCK_LANES]) {
        let mut pool = self.pool();
        for lane in lanes & LaneSet::first(self.lanes.len()) {
            out[lane] = P::position(&mut pool, self.lanes.start + lane);
        }
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.pool().protocol.restore(self.lanes.start + lane, start);
    }

    fn set_options(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        P::set_options(&mut self.pool(), self.lanes.start + lane, options)
    }

    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
        let mut rewards = vec![0.0; self.lanes.len()];
        let post = Post { step: LaneSet::NONE, reset: lanes, actions: ColumnRef::U8(&[]), repeats: true };
        self.complete(post, LateRows { obs, infos: &mut [], rewards: &mut rewards }).lost
    }

    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        let BlockStep { skip, reset, actions, obs, infos, rewards } = step;
        let lanes = LaneSet::first(self.lanes.len());
        rewards.fill(0.0);
        let mut rows = LateRows { obs, infos, rewards };
        if !(skip & lanes).is_empty() {
            let pool = &mut *self.pool.lock();
            pool.protocol.show(self.lanes.clone(), skip & lanes, pool.host.memories(), &mut rows);
        }
        let post = Post { step: lanes & !(skip | reset), reset: reset & lanes, actions, repeats: true };
        let Collected { terminated, truncated, lost, .. } = self.complete(post, rows);
        Ended { terminated, truncated, lost }
    }

    fn state_hash(&self, lane: usize) -> u32 {
        P::hash(&mut self.pool(), self.lanes.start + lane)
    }

    fn state_hashes(&self, lanes: LaneSet, out: &mut [u32; BLOCK_LANES]) {
        let mut pool = self.pool();
        for lane in lanes & LaneSet::first(self.lanes.len()) {
            out[lane] = P::hash(&mut pool, self.lanes.start + lane);
        }
    }

    fn has_verdicts(&self) -> bool {
        self.pool().protocol.has_verdicts()
    }

    fn verdict(&self, lane: usize) -> Verdict {
        P::verdict(&mut self.pool(), self.lanes.start + lane)
    }

    fn revive(&mut self, lanes: LaneSet) -> LaneSet {
        let pool = &mut *self.pool.lock();
        let revived = P::revive(pool, self.lanes.clone(), lanes);
        self.asked = (self.asked & !lanes) | P::coming(pool, self.lanes.clone(), lanes);
        revived
    }

    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        P::state(&mut self.pool(), self.lanes.start + lane)
    }

    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        P::set_state(&mut self.pool(), self.lanes.start + lane, state)
    }

    fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, CallError> {
        P::call(&mut self.pool(), self.lanes.start + lane, method, payload)
    }

    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        P::render(&mut self.pool(), self.lanes.start + lane, size)
    }

    fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        P::text(&mut self.pool(), self.lanes.start + lane, columns)
    }

    fn late(&mut self) -> Option<&mut dyn LateLanes> {
        Some(self)
    }
}

impl OwnWorkers {
    /// Returns the entry that makes the lanes of these workers, for one engine. They are late. Options are tried by the
    /// resets that they are given to, whose failure is the lane's.
    pub fn entry(&self, spec: EnvSpec) -> EnvEntry {
        let pool = Arc::clone(&self.pool);
        let entry = EnvEntry::late(spec, move |options| {
            let mut lanes = pool.lock();
            options.iter().enumerate().for_each(|(lane, options)| lanes.protocol.give_options(lane, options));
            drop(lanes);
            Ok(WorkerBlock::all(&pool, options.len()))
        });
        entry.with_tried_options(|_| Ok(())).with_own_seeds()
    }
}

const LOOK_AGAIN: Duration = Duration::from_secs(1);

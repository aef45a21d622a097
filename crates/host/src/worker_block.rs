//! A block of lanes that the workers of a pool step.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{EnvSpec, LaneSet, Options, Start, Verdict};
use rollhouse_env::{
    CallError, Collected, EnvEntry, Image, ImageSize, LaneBlock, LateLanes, LateRows, MakeError, Post,
    RenderError, StateError,
};

use crate::pool::{Protocol, WorkerPool};
use crate::workforce::OwnWorkers;

/// A range of a session's lanes. All blocks of the session share its pool.
pub(crate) struct WorkerBlock<P: Protocol> {
    pool: Arc<Mutex<WorkerPool<P>>>,
    descriptor: Arc<OwnedFd>,
    lanes: Range<usize>,
    /// Lanes that were asked to be revived and did not come back at once.
    asked: LaneSet,
}

impl<P: Protocol> WorkerBlock<P> {
    /// Makes the blocks of that many lanes.
    pub(crate) fn all(pool: &Arc<Mutex<WorkerPool<P>>>, lanes: usize) -> Vec<Box<dyn LateLanes>> {
        let descriptor = Arc::clone(pool.lock().host.descriptor());
        let block = |start: usize| {
            let (pool, descriptor) = (Arc::clone(pool), Arc::clone(&descriptor));
            let lanes = start..(start + BLOCK_LANES).min(lanes);
            Box::new(Self { pool, descriptor, lanes, asked: LaneSet::NONE }) as Box<dyn LateLanes>
        };
        (0..lanes).step_by(BLOCK_LANES).map(block).collect()
    }

    fn pool(&self) -> MutexGuard<'_, WorkerPool<P>> {
        self.pool.lock()
    }

    fn range(&self) -> Range<usize> {
        self.lanes.clone()
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

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }

    fn arm(&mut self, now: Instant) -> Option<Instant> {
        self.pool().arm(now)
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

impl<P: Protocol> LaneBlock for WorkerBlock<P> {
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

//! A block of lanes that workers step.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, EnvSpec, LaneSet, Options, Start, Verdict};
use rollhouse_env::{
    BatchEnv, BlockStep, CallError, Collected, Ended, EnvEntry, Image, ImageSize, LateLanes, LateRows,
    MakeError, Post, RenderError,
};

use crate::workforce::{OwnWorkers, Workforce};

/// A range of a session's lanes. All blocks of the session share its workers.
pub(crate) struct WorkerBlock {
    workforce: Arc<Mutex<Workforce>>,
    descriptor: Arc<OwnedFd>,
    lanes: Range<usize>,
    /// Lanes that were asked to be revived and did not come back at once.
    asked: LaneSet,
}

impl WorkerBlock {
    /// Makes the blocks of that many lanes.
    pub(crate) fn all(workforce: &Arc<Mutex<Workforce>>, lanes: usize) -> Vec<Box<dyn BatchEnv>> {
        let starts = (0..lanes).step_by(BLOCK_LANES);
        let descriptor = Arc::clone(workforce.lock().descriptor());
        let blocks = starts.map(|start| {
            let (workforce, descriptor) = (Arc::clone(workforce), Arc::clone(&descriptor));
            let lanes = start..(start + BLOCK_LANES).min(lanes);
            Box::new(Self { workforce, descriptor, lanes, asked: LaneSet::NONE }) as Box<dyn BatchEnv>
        });
        blocks.collect()
    }

    /// Posts, and waits until all lanes have answered or are lost. Lanes that take longer than the deadline of what they do,
    /// or the longer of both, are given up.
    fn complete(&mut self, post: Post<'_>, rows: LateRows<'_, '_>) -> Collected {
        let mut missing = (post.step | post.reset) & LaneSet::first(self.lanes.len());
        let mut all = Collected::default();
        self.post(post);
        self.flush();
        let deadlines = self.workforce.lock().deadlines();
        let (time, resetting) = deadlines.longest(!post.step.is_empty(), !post.reset.is_empty());
        let deadline = Instant::now() + time;
        while !missing.is_empty() {
            self.wait(deadline.min(Instant::now() + LOOK_AGAIN));
            if deadline <= Instant::now() {
                let hung = self.give_up(missing, &deadlines.why_hung(resetting));
                missing &= !hung;
                all.add(Collected { hung, ..Collected::default() });
            }
            let rows = LateRows { obs: &mut *rows.obs, infos: &mut *rows.infos, rewards: &mut *rows.rewards };
            let collected = self.collect(rows);
            missing &= !collected.lanes();
            all.add(collected);
        }
        all.lost |= all.hung;
        all
    }
}

impl LateLanes for WorkerBlock {
    fn post(&mut self, post: Post<'_>) {
        self.workforce.lock().post(self.lanes.clone(), &post);
    }

    fn flush(&mut self) {
        self.workforce.lock().dispatch();
    }

    fn wait(&mut self, deadline: Instant) {
        self.workforce.lock().wait(deadline);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }

    fn arm(&mut self, now: Instant) -> Option<Instant> {
        self.workforce.lock().arm(now)
    }

    fn collect(&mut self, rows: LateRows<'_, '_>) -> Collected {
        let mut workforce = self.workforce.lock();
        let collected = workforce.collect(self.lanes.clone(), rows);
        workforce.look_again_at_tries();
        collected
    }

    fn give_up(&mut self, lanes: LaneSet, why: &str) -> LaneSet {
        self.workforce.lock().give_up(self.lanes.clone(), lanes, why)
    }

    fn connecting(&mut self) -> LaneSet {
        self.workforce.lock().connecting(self.lanes.clone())
    }

    fn gone(&self) -> Collected {
        self.workforce.lock().gone(self.lanes.clone())
    }

    fn refuse(&mut self, lane: usize, why: &str) {
        self.workforce.lock().refuse(self.lanes.start + lane, why);
    }

    fn why_lost(&mut self, lane: usize) -> Option<String> {
        Some(self.workforce.lock().why_lost(self.lanes.start + lane))
    }

    fn further_infos(&mut self, lane: usize) -> Option<String> {
        self.workforce.lock().further_infos(self.lanes.start + lane)
    }

    fn take_pictures(&mut self, lanes: LaneSet, begun: bool) -> Vec<(usize, Vec<u8>)> {
        self.workforce.lock().take_pictures(self.lanes.clone(), lanes, begun)
    }

    fn coming(&self) -> LaneSet {
        self.workforce.lock().coming(self.lanes.clone(), self.asked)
    }
}

impl BatchEnv for WorkerBlock {
    fn lanes(&self) -> usize {
        self.lanes.len()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.workforce.lock().seed(self.lanes.start + lane, seed);
    }

    fn position(&self, lane: usize) -> Start {
        self.workforce.lock().position(self.lanes.start + lane)
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.workforce.lock().restore(self.lanes.start + lane, start);
    }

    fn set_options(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        self.workforce.lock().set_options(self.lanes.start + lane, options);
        Ok(())
    }

    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
        let mut rewards = vec![0.0; self.lanes.len()];
        let post = Post {
            step: LaneSet::NONE,
            reset: lanes,
            actions: rollhouse_core::ColumnRef::U8(&[]),
            repeats: true,
        };
        self.complete(post, LateRows { obs, infos: &mut [], rewards: &mut rewards }).lost
    }

    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        let BlockStep { skip, reset, actions, obs, infos, rewards } = step;
        let lanes = LaneSet::first(self.lanes.len());
        rewards.fill(0.0);
        let mut rows = LateRows { obs, infos, rewards };
        self.workforce.lock().show(self.lanes.clone(), skip, &mut rows);
        let post = Post { step: lanes & !(skip | reset), reset: reset & lanes, actions, repeats: true };
        let Collected { terminated, truncated, lost, .. } = self.complete(post, rows);
        Ended { terminated, truncated, lost }
    }

    fn state_hash(&self, lane: usize) -> u32 {
        self.workforce.lock().hash(self.lanes.start + lane)
    }

    fn has_verdicts(&self) -> bool {
        true
    }

    fn verdict(&self, lane: usize) -> Verdict {
        self.workforce.lock().verdict(self.lanes.start + lane)
    }

    fn revive(&mut self, lanes: LaneSet) -> LaneSet {
        let (revived, coming) = self.workforce.lock().revive(self.lanes.clone(), lanes);
        self.asked = (self.asked & !lanes) | coming;
        revived
    }

    fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, CallError> {
        self.workforce.lock().call(self.lanes.start + lane, method, payload)
    }

    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        self.workforce.lock().render(self.lanes.start + lane, size)
    }

    fn late(&mut self) -> Option<&mut dyn LateLanes> {
        Some(self)
    }
}

impl OwnWorkers {
    /// Returns the entry that makes the lanes of these workers, for one engine. They are late. Options are tried by the
    /// resets that they are given to, whose failure is the lane's.
    pub fn entry(&self, spec: EnvSpec) -> EnvEntry {
        let workforce = Arc::clone(&self.workforce);
        let entry = EnvEntry::late(spec, move |options| {
            let mut lanes = workforce.lock();
            options.iter().enumerate().for_each(|(lane, options)| lanes.set_options(lane, options));
            drop(lanes);
            Ok(WorkerBlock::all(&workforce, options.len()))
        });
        entry.with_tried_options(|_| Ok(())).with_own_seeds()
    }
}

const LOOK_AGAIN: Duration = Duration::from_secs(1);

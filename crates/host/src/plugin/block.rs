//! A block of a plug-in's lanes that a worker steps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, ColumnRef, LaneSet, Options, Start, Verdict};
use rollhouse_env::{
    BatchEnv, BlockStep, CallError, Collected, Ended, Image, ImageSize, LateLanes, LateRows, MakeError, Post,
    RenderError, StateError,
};

use super::WorkerFault;
use super::talk::{BlockAnswer, What};
use super::workers::Workers;

/// A block of a session's lanes. All blocks of the session share its workers.
pub(super) struct IsolatedBlock {
    workers: Arc<Mutex<Workers>>,
    descriptor: Arc<OwnedFd>,
    number: usize,
    lanes: usize,
    verdicts: bool,
    /// Lanes that were asked to be revived and did not come back at once.
    asked: LaneSet,
}

impl IsolatedBlock {
    pub(super) fn new(workers: Arc<Mutex<Workers>>, number: usize, lanes: usize, verdicts: bool) -> Self {
        let descriptor = Arc::clone(workers.lock().descriptor());
        Self { workers, descriptor, number, lanes, verdicts, asked: LaneSet::NONE }
    }

    /// Posts, and waits until all lanes are done or lost.
    fn complete(&mut self, post: Post<'_>, rows: LateRows<'_, '_>) -> Collected {
        let mut missing = (post.step | post.reset) & LaneSet::first(self.lanes);
        let deadlines = self.workers.lock().deadlines();
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
                all.lost |= self.give_up(missing, &deadlines.why_hung(resetting));
                missing &= !all.lost;
            } else if !missing.is_empty() {
                self.wait(deadline);
            }
        }
        all.lost |= all.hung;
        all
    }

    /// Asks the worker about a lane that is not lost.
    fn ask(&self, lane: usize, what: What) -> Result<Option<BlockAnswer>, Lost> {
        assert!(lane < self.lanes, "lane {lane} of a block of {}", self.lanes);
        let mut workers = self.workers.lock();
        if workers.is_lost(self.number, lane) { Err(Lost) } else { Ok(workers.ask(self.number, what)) }
    }
}

/// A lane is lost.
struct Lost;

impl From<Lost> for StateError {
    fn from(Lost: Lost) -> Self {
        Self::Lost
    }
}

impl From<Lost> for RenderError {
    fn from(Lost: Lost) -> Self {
        Self::Lost
    }
}

impl From<Lost> for CallError {
    fn from(Lost: Lost) -> Self {
        Self::Lost
    }
}

impl LateLanes for IsolatedBlock {
    fn post(&mut self, post: Post<'_>) {
        self.workers.lock().post(self.number, &post);
    }

    fn flush(&mut self) {
        self.workers.lock().dispatch();
    }

    fn linger(&mut self) {
        self.workers.lock().linger(self.number);
    }

    fn wait(&mut self, deadline: Instant) {
        self.workers.lock().wait(deadline);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }

    fn arm(&mut self, now: Instant) -> Option<Instant> {
        self.workers.lock().arm(now)
    }

    fn collect(&mut self, rows: LateRows<'_, '_>) -> Collected {
        self.workers.lock().collect(self.number, rows)
    }

    fn give_up(&mut self, lanes: LaneSet, why: &str) -> LaneSet {
        self.workers.lock().give_up(self.number, lanes, why)
    }

    fn coming(&self) -> LaneSet {
        self.workers.lock().coming(self.number, self.asked)
    }
}

impl BatchEnv for IsolatedBlock {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.workers.lock().generators(self.number, lane).seed(lane, seed);
    }

    fn position(&self, lane: usize) -> Start {
        self.workers.lock().position(self.number, lane)
    }

    fn positions(&self, lanes: LaneSet, out: &mut [Start; BLOCK_LANES]) {
        let mut workers = self.workers.lock();
        for lane in lanes & LaneSet::first(self.lanes) {
            out[lane] = workers.position(self.number, lane);
        }
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.workers.lock().generators(self.number, lane).restore(lane, start);
    }

    fn set_options(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        let refused = |fault| MakeError::Refused { source: Box::new(fault) };
        match self.ask(lane, What::SetOptions { lane, options: options.clone() }) {
            Ok(Some(BlockAnswer::Done)) => Ok(()),
            Ok(Some(BlockAnswer::Refused(why))) => Err(refused(WorkerFault::Refused(why))),
            Ok(Some(_)) => Err(MakeError::Kept),
            Ok(None) | Err(Lost) => Err(refused(WorkerFault::Gone)),
        }
    }

    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet {
        let mut rewards = vec![0.0; self.lanes];
        let post = Post { step: LaneSet::NONE, reset: lanes, actions: ColumnRef::U8(&[]), repeats: true };
        self.complete(post, LateRows { obs, infos: &mut [], rewards: &mut rewards }).lost
    }

    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended {
        let BlockStep { skip, reset, actions, obs, infos, rewards } = step;
        let lanes = LaneSet::first(self.lanes);
        rewards.fill(0.0);
        let mut rows = LateRows { obs, infos, rewards };
        if !(skip & lanes).is_empty() {
            self.workers.lock().show(self.number, &mut rows);
        }
        let post = Post { step: lanes & !(skip | reset), reset: reset & lanes, actions, repeats: true };
        let Collected { terminated, truncated, lost, .. } = self.complete(post, rows);
        Ended { terminated, truncated, lost }
    }

    fn state_hash(&self, lane: usize) -> u32 {
        self.workers.lock().hash(self.number, lane)
    }

    fn state_hashes(&self, lanes: LaneSet, out: &mut [u32; BLOCK_LANES]) {
        let mut workers = self.workers.lock();
        for lane in lanes & LaneSet::first(self.lanes) {
            out[lane] = workers.hash(self.number, lane);
        }
    }

    fn has_verdicts(&self) -> bool {
        self.verdicts
    }

    fn verdict(&self, lane: usize) -> Verdict {
        self.workers.lock().verdict(self.number, lane)
    }

    fn revive(&mut self, lanes: LaneSet) -> LaneSet {
        let mut workers = self.workers.lock();
        let revived = workers.revive(self.number, lanes);
        self.asked = (self.asked & !lanes) | workers.coming(self.number, lanes);
        revived
    }

    fn late(&mut self) -> Option<&mut dyn LateLanes> {
        Some(self)
    }

    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        match self.ask(lane, What::State { lane })? {
            Some(BlockAnswer::State(state)) => Ok(state),
            Some(_) => Err(StateError::Unsupported),
            None => Err(StateError::Lost),
        }
    }

    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        match self.ask(lane, What::SetState { lane, state: state.to_vec() })? {
            Some(BlockAnswer::Done) => {
                self.workers.lock().forget(self.number, lane);
                Ok(())
            }
            Some(_) => Err(StateError::Unsupported),
            None => Err(StateError::Lost),
        }
    }

    fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, CallError> {
        let what = What::Call { lane, method: method.to_owned(), payload: payload.to_owned() };
        let told = self.ask(lane, what)?;
        let mut workers = self.workers.lock();
        match told {
            Some(BlockAnswer::Answer(answer)) => {
                // Hash and position may be others now.
                workers.forget(self.number, lane);
                Ok(answer)
            }
            Some(BlockAnswer::Refused(message)) => Err(CallError::Refused { message }),
            Some(BlockAnswer::Unsupported) => Err(CallError::Unsupported),
            Some(BlockAnswer::BlockLost) => {
                workers.lose(self.number, LaneSet::ALL);
                Err(CallError::Lost)
            }
            Some(_) => {
                workers.lose(self.number, LaneSet::one(lane));
                Err(CallError::Lost)
            }
            None => Err(CallError::Lost),
        }
    }

    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        let (width, height) = (size.width(), size.height());
        match self.ask(lane, What::Render { lane, width, height })? {
            // A picture has the bytes of its size, or it is none.
            Some(BlockAnswer::Picture(pixels)) => Image::new(size, pixels),
            Some(_) => Err(RenderError::Unsupported),
            None => Err(RenderError::Lost),
        }
    }

    fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        let shown = |line: &str| {
            line.len() <= columns && line.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
        };
        match self.ask(lane, What::Text { lane, columns })? {
            Some(BlockAnswer::Text(line)) if shown(&line) => Ok(line),
            Some(_) => Err(RenderError::Unsupported),
            None => Err(RenderError::Lost),
        }
    }
}

//! An env of lanes that finish when they finish, without threads and without time.

use std::sync::Arc;
use std::time::Instant;

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnData, ColumnMut, ColumnSpec, EnvSpec, LaneSet, Options, Start};
use rollhouse_env::{
    BatchEnv, BlockStep, Collected, EnvEntry, LaneBlock, LateLanes, LateRows, MakeError, Post, Registry,
};

use crate::cast::{ENV, LATE_ENV};

/// Returns whether that lane of a session is the slow one. A session of one lane has none.
pub(crate) const fn is_slow(lane: u32, lanes: u32) -> bool {
    lane == 0 && lanes > 1
}

/// Returns the envs of nodes: the built-in ones, and one whose lanes do what those of [`ENV`] do, the slow one late.
pub(crate) fn registry() -> Registry {
    let registry = Registry::builtin();
    let kernel = registry.get(ENV).expect("a built-in env");
    let spec = EnvSpec { id: LATE_ENV.to_owned(), ..kernel.spec().clone() };
    let make =
        move |options: &[Options]| options.chunks(BLOCK_LANES).map(|some| block(&kernel, some)).collect();
    registry.register(EnvEntry::late(spec, make)).expect("another id");
    registry
}

fn block(kernel: &Arc<EnvEntry>, options: &[Options]) -> Result<Box<dyn LateLanes>, MakeError> {
    let (lanes, spec) = (options.len(), kernel.spec());
    let zeros = |column: &ColumnSpec| ColumnData::zeros(column.dtype, lanes * column.elements());
    Ok(Box::new(Late {
        inner: kernel.make_block(options)?,
        steps: LaneSet::NONE,
        resets: LaneSet::NONE,
        done: LaneSet::NONE,
        posts: 0,
        slow_until: 0,
        actions: zeros(&spec.action_column()),
        obs: spec.obs_columns().iter().map(zeros).collect(),
        infos: spec.info_channels.iter().map(|info| ColumnData::zeros(info.dtype, lanes)).collect(),
        rewards: vec![0.0; lanes],
    }))
}

/// A block whose slow lane is done when others of its lanes were posted some times more, or when all are waited for.
struct Late {
    inner: Box<dyn BatchEnv>,
    steps: LaneSet,
    resets: LaneSet,
    /// Those under way that are done.
    done: LaneSet,
    posts: u64,
    /// The number of posts at which the slow lane is done.
    slow_until: u64,
    actions: ColumnData,
    obs: Vec<ColumnData>,
    infos: Vec<ColumnData>,
    rewards: Vec<f64>,
}

impl Late {
    fn slow(&self) -> LaneSet {
        (0..self.lanes()).filter(|&lane| is_slow(lane as u32, self.lanes() as u32)).collect()
    }
}

impl LaneBlock for Late {
    fn lanes(&self) -> usize {
        self.inner.lanes()
    }

    fn seed(&mut self, lane: usize, seed: u64) {
        self.inner.seed(lane, seed);
    }

    fn position(&self, lane: usize) -> Start {
        self.inner.position(lane)
    }

    fn restore(&mut self, lane: usize, start: Start) {
        self.inner.restore(lane, start);
    }

    fn state_hash(&self, lane: usize) -> u32 {
        self.inner.state_hash(lane)
    }
}

impl LateLanes for Late {
    fn post(&mut self, post: Post<'_>) {
        let under_way = self.steps | self.resets;
        assert!(((post.step | post.reset) & under_way).is_empty(), "lanes are posted that are under way");
        for lane in post.step {
            let elements = self.actions.as_ref().len() / self.lanes();
            let action = post.actions.slice(lane * elements, (lane + 1) * elements);
            assert!(self.actions.set_row(lane, elements, action), "actions of one type");
        }
        self.steps |= post.step;
        self.resets |= post.reset;
        let slow = self.slow();
        self.done |= (post.step | post.reset) & !(post.step & slow);
        self.posts += 1;
        if !(post.step & slow).is_empty() {
            self.slow_until = self.posts + 1 + self.posts % MOST_POSTS;
        } else if self.posts >= self.slow_until {
            self.done |= self.steps & slow;
        }
    }

    fn flush(&mut self) {}

    fn wait(&mut self, _: Instant) {
        self.done = self.steps | self.resets;
    }

    fn collect(&mut self, rows: LateRows<'_, '_>) -> Collected {
        let done = std::mem::take(&mut self.done);
        let (steps, resets) = (self.steps & done, self.resets & done);
        if done.is_empty() {
            return Collected::default();
        }
        self.steps &= !done;
        self.resets &= !done;
        let mut obs: Vec<ColumnMut<'_>> = self.obs.iter_mut().map(ColumnData::as_mut).collect();
        let mut infos: Vec<ColumnMut<'_>> = self.infos.iter_mut().map(ColumnData::as_mut).collect();
        let ended = self.inner.step(BlockStep {
            skip: !done,
            reset: resets,
            actions: self.actions.as_ref(),
            obs: &mut obs,
            infos: &mut infos,
            rewards: &mut self.rewards,
        });
        for lane in done {
            rows.rewards[lane] = self.rewards[lane];
        }
        copy(rows.obs, &self.obs, done, self.inner.lanes());
        copy(rows.infos, &self.infos, steps, self.inner.lanes());
        let (terminated, truncated) = (ended.terminated & steps, ended.truncated & steps);
        Collected { done, terminated, truncated, ..Collected::default() }
    }

    fn give_up(&mut self, lanes: LaneSet, _why: &str) -> LaneSet {
        panic!("lanes {lanes:?} take longer than a step may");
    }
}

fn copy(to: &mut [ColumnMut<'_>], from: &[ColumnData], lanes: LaneSet, of: usize) {
    for (to, from) in to.iter_mut().zip(from) {
        let width = from.as_ref().len() / of;
        for lane in lanes {
            let row = from.as_ref().slice(lane * width, (lane + 1) * width);
            assert!(to.slice(lane * width, (lane + 1) * width).copy_from(row), "columns of one type");
        }
    }
}

/// Most posts of other lanes, and one less, for which the slow lane is under way.
const MOST_POSTS: u64 = 4;

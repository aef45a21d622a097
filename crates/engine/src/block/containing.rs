//! The one place where a block calls its env, so that a panic costs the block and nothing else.

use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rollhouse_core::{Interruption, LaneSet};
use rollhouse_env::{BlockEnv, LateLanes};

use super::Block;

/// What came of a call of an env.
#[must_use = "a call that panicked has cost the block its env"]
pub(super) enum Called<T> {
    /// The env has answered.
    Answered(T),
    /// The env panicked, and is dropped.
    Panicked,
    /// There is no env: the whole block is lost.
    Gone,
}

/// Calls an env, and drops it if it panics. [`Block::heed`] or [`Block::lose_failed`] has to follow.
pub(super) fn contain<T>(env: &mut Option<BlockEnv>, call: impl FnOnce(&mut BlockEnv) -> T) -> Called<T> {
    let Some(called) = env.as_mut() else { return Called::Gone };
    match catch_unwind(AssertUnwindSafe(|| call(called))) {
        Ok(answer) => Called::Answered(answer),
        Err(_) => {
            discard(env.take());
            Called::Panicked
        }
    }
}

/// Drops an env, whose destructor may panic.
pub(super) fn discard(env: Option<BlockEnv>) {
    // What is dropped has no use any more, whatever becomes of it.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(env)));
}

impl Block {
    /// Asks the env for something beside its steps, and loses the lanes that fail in it. Returns `None` if the whole block
    /// is lost, before or by it.
    pub(super) fn ask<T>(&mut self, ask: impl FnOnce(&mut BlockEnv) -> T) -> Option<T> {
        let called = contain(&mut self.env, |env| (ask(env), env.take_failed()));
        let (answer, failed) = self.heed(called)?;
        if !failed.is_empty() {
            self.lose_failed(failed);
        }
        Some(answer)
    }

    /// Loses the block if its env has panicked; else returns the env's answer, if there is an env.
    pub(super) fn heed<T>(&mut self, called: Called<T>) -> Option<T> {
        match called {
            Called::Answered(answer) => Some(answer),
            Called::Gone => None,
            Called::Panicked => {
                self.lose_failed(self.lanes.all());
                None
            }
        }
    }

    /// Notes the loss of lanes that failed in a call: one by one, or as one if they have no env any more.
    #[cold]
    pub(super) fn lose_failed(&mut self, failed: LaneSet) {
        match &self.env {
            Some(_) => self.lose_each(failed & self.lanes.all(), Interruption::Crashed),
            None => self.lose(self.lanes.all(), Interruption::Crashed),
        }
        self.show();
    }

    /// Writes the state hashes of `lanes` to their places. Returns the lanes that failed in it, which are to be lost by
    /// [`Block::lose_failed`] once their step is accounted for.
    pub(super) fn take_hashes(&mut self, lanes: LaneSet) -> LaneSet {
        let Self { env, hashes, .. } = self;
        match contain(env, |env| {
            env.state_hashes(lanes, hashes);
            env.take_failed()
        }) {
            Called::Answered(failed) => failed,
            Called::Panicked => self.lanes.all(),
            Called::Gone => LaneSet::NONE,
        }
    }

    /// Returns the descriptor of the env's lanes, if they are late and have one.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let Some(BlockEnv::Late(env, _)) = &self.env else { return None };
        env.descriptor()
    }

    /// Calls the env if its lanes are late; returns `None` otherwise, as while the whole block is lost. A panic loses
    /// the block.
    pub(crate) fn with_late<T>(&mut self, call: impl FnOnce(&mut dyn LateLanes) -> T) -> Option<T> {
        let called = contain(&mut self.env, |env| env.late().map(call));
        self.heed(called).flatten()
    }
}

//! Keyframes: states that a pass over an episode keeps, so that a seek need not begin at the first step.

use std::mem::size_of;

use rollhouse_core::Start;
use rollhouse_env::LaneBlock;

/// The bounds of what a [`Seeker`](crate::Seeker) keeps of the steps it has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekBounds {
    /// Most keyframes; with 0 everything is recomputed from the first step on.
    pub keyframes: usize,
    /// Most bytes that the keyframes take together.
    pub bytes: usize,
    /// Steps between two keyframes at first. Each time the bounds are reached, every second keyframe is dropped and the
    /// distance doubles.
    pub spacing: u64,
    /// Most buckets of the [`Timeline`](crate::Timeline), at least 2.
    pub buckets: usize,
}

/// A keyframe: what a lane needs to go on from a step as it did.
#[derive(Debug)]
pub(crate) struct Keyframe {
    /// Steps taken before it.
    pub(crate) at: u64,
    /// The return up to that step.
    pub(crate) total_reward: f64,
    /// State of the lane's random generator.
    pub(crate) position: Start,
    /// Hash of the env's state, which proves that setting the state gives that state.
    pub(crate) hash: u32,
    pub(crate) state: Box<[f64]>,
}

/// The keyframes of one episode, at equal distances from step 0 on; step 0 itself has none.
#[derive(Debug)]
pub(crate) struct Keyframes {
    spacing: u64,
    most: usize,
    most_bytes: usize,
    bytes: usize,
    frames: Vec<Keyframe>,
    /// The step of the next keyframe; `u64::MAX` if there will be none.
    due: u64,
}

impl Keyframe {
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.state)
    }
}

impl Keyframes {
    pub(crate) fn new(bounds: &SeekBounds) -> Self {
        let spacing = bounds.spacing.max(1);
        let due = if bounds.keyframes == 0 { u64::MAX } else { spacing };
        Self { spacing, most: bounds.keyframes, most_bytes: bounds.bytes, bytes: 0, frames: Vec::new(), due }
    }

    /// Returns the step at which [`Keyframes::keep`] has to be called next.
    pub(crate) const fn due(&self) -> u64 {
        self.due
    }

    /// Keeps the state of the only lane of `env` after step `at`, which is due. An env that does not show its state is
    /// not asked again.
    pub(crate) fn keep(&mut self, at: u64, total_reward: f64, env: &dyn LaneBlock) {
        let Ok(state) = env.state(0) else { return self.give_up() };
        let frame = Keyframe {
            at,
            total_reward,
            position: env.position(0),
            hash: env.state_hash(0),
            state: state.into_boxed_slice(),
        };
        while self.frames.len() >= self.most || self.bytes + frame.bytes() > self.most_bytes {
            if self.frames.is_empty() {
                return self.give_up();
            }
            self.thin();
        }
        // What is no longer due is left out: the distance may have doubled.
        if at.is_multiple_of(self.spacing) {
            self.bytes += frame.bytes();
            self.frames.push(frame);
        }
        self.due = (self.frames.len() as u64 + 1).saturating_mul(self.spacing);
    }

    /// Drops every second keyframe and doubles the distance.
    fn thin(&mut self) {
        self.spacing = self.spacing.saturating_mul(2);
        let spacing = self.spacing;
        self.frames.retain(|frame| frame.at.is_multiple_of(spacing));
        self.bytes = self.frames.iter().map(Keyframe::bytes).sum();
    }

    /// Forgets all keyframes and keeps none from now on.
    pub(crate) fn give_up(&mut self) {
        self.frames = Vec::new();
        (self.bytes, self.due) = (0, u64::MAX);
    }

    /// Returns the last keyframe before step `t`.
    pub(crate) fn before(&self, t: u64) -> Option<&Keyframe> {
        let count = usize::try_from(t.saturating_sub(1) / self.spacing).unwrap_or(usize::MAX);
        count.min(self.frames.len()).checked_sub(1).and_then(|last| self.frames.get(last))
    }

    /// Returns how many keyframes there are, and the distance between them.
    pub(crate) const fn extent(&self) -> (usize, u64) {
        (self.frames.len(), self.spacing)
    }
}

impl Default for SeekBounds {
    fn default() -> Self {
        use crate::limits::{SEEK_KEYFRAME_BYTES, SEEK_KEYFRAMES, SEEK_SPACING, TIMELINE_BUCKETS};
        Self {
            keyframes: SEEK_KEYFRAMES,
            bytes: SEEK_KEYFRAME_BYTES,
            spacing: SEEK_SPACING,
            buckets: TIMELINE_BUCKETS,
        }
    }
}

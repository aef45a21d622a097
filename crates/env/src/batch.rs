//! A block of lanes that are stepped together.

use rollhouse_core::{ColumnMut, ColumnRef, Start, limits::BLOCK_LANES};

/// A block of up to [`BLOCK_LANES`] lanes of one env, as structure of arrays.
///
/// Rows of every slice are this block's lanes only, row-major, `lanes()` rows each. Masks have one bit per
/// lane, lane 0 lowest; bits at and above `lanes()` are ignored. No method allocates or blocks, and results
/// are bit-identical on every instruction set.
///
/// A panic in any method loses the whole block: the engine catches it, ends the block's episodes as
/// `crashed` and never calls the value again.
pub trait BatchEnv: Send {
    /// Lanes of this block, 1 to [`BLOCK_LANES`].
    fn lanes(&self) -> usize;

    /// Seeds the lane's generator; takes effect on what is drawn next. Does not touch the lane's state.
    fn seed(&mut self, lane: usize, seed: u64);

    /// Where the lane's generator stands: what an episode whose reset came next would start from.
    fn position(&self, lane: usize) -> Start;

    /// Puts the lane's generator to a position that [`BatchEnv::position`] gave, in this or another process.
    fn restore(&mut self, lane: usize, start: Start);

    /// Begins a new episode in each lane of `lanes`, drawing from its generator, and writes those lanes'
    /// rows of `obs`. Other rows are left alone.
    fn reset(&mut self, lanes: u64, obs: &mut [ColumnMut<'_>]);

    /// Steps every lane that is neither in `skip` nor in `reset`, and resets those in `reset`.
    ///
    /// Every row of `obs` and `rewards` is written: stepped lanes get what the step gave, reset lanes their
    /// first observation, skipped lanes the observation of their unchanged state; reset and skipped lanes
    /// have reward 0 and no flag. Stepping with `reset` gives exactly what stepping with the same lanes in
    /// `skip` followed by [`BatchEnv::reset`] gives. Actions of stepped lanes have been checked against
    /// the space (an integer in range; floats finite, but maybe out of bounds); others are arbitrary.
    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended;

    /// Writes the hash of the exact state bits of each lane of `lanes` to its place in `out`.
    fn state_hashes(&self, lanes: u64, out: &mut [u32; BLOCK_LANES]);
}

/// What one step of a block reads and writes.
#[derive(Debug)]
pub struct BlockStep<'a, 'b> {
    /// Lanes that must not move.
    pub skip: u64,
    /// Lanes that begin an episode instead of stepping; disjoint from `skip`.
    pub reset: u64,
    /// One action per lane.
    pub actions: ColumnRef<'a>,
    /// Observation columns in the spec's order.
    pub obs: &'a mut [ColumnMut<'b>],
    /// Info columns in the spec's order; rows of lanes that did not step are not written.
    pub infos: &'a mut [ColumnMut<'b>],
    /// One reward per lane.
    pub rewards: &'a mut [f64],
}

/// Which lanes' episodes ended in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ended {
    /// Reached a terminal state.
    pub terminated: u64,
    /// Cut by a limit of the env's own; the engine adds the time limit.
    pub truncated: u64,
    /// Failed in this step and cannot be used again until they are re-created; their rows mean nothing.
    pub lost: u64,
}

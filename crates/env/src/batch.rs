//! A block of lanes that are stepped together.

use rollhouse_core::{ColumnMut, ColumnRef, Lanes, Start, lane_bits, limits::BLOCK_LANES};

use crate::{Image, ImageSize, RenderError};

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

    /// The same of each lane of `lanes`, to its place in `out`.
    fn positions(&self, lanes: u64, out: &mut [Start; BLOCK_LANES]) {
        for lane in Lanes(lanes & lane_bits(self.lanes())) {
            out[lane] = self.position(lane);
        }
    }

    /// The 64-bit words that every reset draws, if that is always the same and nothing else draws any: where a lane's
    /// generator stands then follows from where it stood at the reset before.
    fn words_per_reset(&self) -> Option<u32> {
        None
    }

    /// Puts the lane's generator to a position that [`BatchEnv::position`] gave, in this or another process.
    fn restore(&mut self, lane: usize, start: Start);

    /// Begins a new episode in each lane of `lanes`, drawing from its generator, and writes those lanes'
    /// rows of `obs`. Other rows are left alone. Returns the lanes that failed, with the meaning of
    /// [`Ended::lost`].
    fn reset(&mut self, lanes: u64, obs: &mut [ColumnMut<'_>]) -> u64;

    /// Steps every lane that is neither in `skip` nor in `reset`, and resets those in `reset`.
    ///
    /// A lane that reached a terminal state is reset before it is stepped again: what a step gives from there
    /// on is up to the env.
    ///
    /// Every row of `obs` and `rewards` is written: stepped lanes get what the step gave, reset lanes their
    /// first observation, skipped lanes the observation of their unchanged state; reset and skipped lanes
    /// have reward 0 and no flag. Stepping with `reset` gives exactly what stepping with the same lanes in
    /// `skip` followed by [`BatchEnv::reset`] gives. Actions of stepped lanes have been checked against
    /// the space (an integer in range; floats finite, but maybe out of bounds); others are arbitrary.
    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended;

    /// The hash of the exact state bits of a lane. That of a lost lane means nothing.
    fn state_hash(&self, lane: usize) -> u32;

    /// The same of each lane of `lanes`, to its place in `out`.
    fn state_hashes(&self, lanes: u64, out: &mut [u32; BLOCK_LANES]) {
        for lane in Lanes(lanes & lane_bits(self.lanes())) {
            out[lane] = self.state_hash(lane);
        }
    }

    /// Makes lost lanes of `lanes` anew, with the options they had; returns those that can be used again,
    /// which then have to be reset before they are stepped. Their generators go on where they stood when
    /// the lane was lost, unless they are seeded or restored. Lanes that are not lost are left alone.
    ///
    /// Unlike the other methods it may allocate and block, and a panic in it does not lose the block.
    /// Blocks that only fail as a whole keep the default: they never report a lost lane, and after a panic
    /// the engine makes a new block through the registry.
    fn revive(&mut self, lanes: u64) -> u64 {
        let _ = lanes;
        0
    }

    /// The exact state of a lane as doubles, in an order the env documents; for forks and tests. Allocates.
    ///
    /// # Errors
    /// The env has no such view of its state, or the lane is lost.
    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        let _ = lane;
        Err(StateError::Unsupported)
    }

    /// Puts a lane into a state that [`BatchEnv::state`] gave. Its generator, and observations already
    /// written, stay as they are.
    ///
    /// # Errors
    /// The env has no such view of its state, or `state` is not one; nothing changes then.
    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        let _ = (lane, state);
        Err(StateError::Unsupported)
    }

    /// An image of the lane's state, of that size, for people to look at. Allocates.
    ///
    /// # Errors
    /// The env does not draw itself, or the lane is lost.
    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        let _ = (lane, size);
        Err(RenderError::Unsupported)
    }

    /// The lane's state in one line of at most `columns` ASCII characters, for terminals. Allocates.
    ///
    /// # Errors
    /// As [`BatchEnv::render`].
    fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        let _ = (lane, columns);
        Err(RenderError::Unsupported)
    }
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
    /// Failed in this step (or in the reset it asked for) and cannot be used again until
    /// [`BatchEnv::revive`] has made them anew; their rows mean nothing. Disjoint from the other two.
    pub lost: u64,
}

/// Why a lane's state could not be read or put back.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum StateError {
    /// The env does not show its state as doubles.
    #[error("the env does not show its state")]
    Unsupported,
    /// The lane is lost.
    #[error("the lane is lost")]
    Lost,
    /// The state has another length.
    #[error("state has {given} doubles, must have {wanted}")]
    Length {
        /// Doubles given.
        given: usize,
        /// Doubles of this env's state.
        wanted: usize,
    },
    /// No state has that number in that place.
    #[error("no state has {given} as its double number {index}")]
    Value {
        /// Its place.
        index: usize,
        /// As given.
        given: f64,
    },
}

//! The interfaces of a block of lanes: what it does whatever steps them, and stepping within the call.

use rollhouse_core::limits::BLOCK_LANES;
use rollhouse_core::{ColumnMut, ColumnRef, LaneSet, Options, Start, Verdict};

use crate::{Image, ImageSize, MakeError, RenderError};

/// A block of up to [`BLOCK_LANES`] lanes of one env: what it does whatever steps its lanes. Stepping is [`BatchEnv`]'s
/// for lanes that finish within the call, and [`LateLanes`](crate::LateLanes)'s for lanes that finish when they finish.
///
/// Of a set of lanes, those from `lanes()` on are ignored. Methods that are called for each step or episode neither allocate
/// nor block, unless the lanes are late; others allocate where they say so.
///
/// A panic in any method but [`LaneBlock::revive`] and [`LaneBlock::verdict`] loses the whole block; in what is asked once, as
/// an engine is made, it is the engine's refusal. The engine catches it,
/// ends the block's episodes as `crashed` and never calls the value again. A block that contains panics lane by lane
/// reports the lanes by the result of the call, or after it ([`LaneBlock::take_failed`]).
pub trait LaneBlock: Send {
    /// Returns the number of lanes in this block, 1 to [`BLOCK_LANES`].
    fn lanes(&self) -> usize;

    /// Seeds the lane's generator, which affects the numbers that are drawn next. The lane's state stays as it is.
    fn seed(&mut self, lane: usize, seed: u64);

    /// Returns the position of the lane's generator, from which an episode would start if its reset came next.
    fn position(&self, lane: usize) -> Start;

    /// Writes the [`LaneBlock::position`] of each lane of `lanes` to that lane's place in `out`.
    fn positions(&self, lanes: LaneSet, out: &mut [Start; BLOCK_LANES]) {
        for lane in lanes & LaneSet::first(self.lanes()) {
            out[lane] = self.position(lane);
        }
    }

    /// Returns the number of 64-bit words that every reset draws, if it is always the same and nothing else draws any.
    /// The position of a lane's generator then follows from its position at the previous reset.
    fn words_per_reset(&self) -> Option<u32> {
        None
    }

    /// Moves the lane's generator to a position that [`LaneBlock::position`] gave, in this or another process.
    fn restore(&mut self, lane: usize, start: Start);

    /// Gives the lane, whose reset comes next, other options than those with which it was made. Its generator stays as it
    /// is. Allocates. It is called only of entries that say so
    /// ([`EnvEntry::draws_options`](crate::EnvEntry::draws_options)).
    ///
    /// # Errors
    /// The env cannot work with the options, or keeps those it has. The lane has no use before it is revived then, and none any
    /// more in a block that revives no lane.
    fn set_options(&mut self, lane: usize, options: &Options) -> Result<(), MakeError> {
        let _ = (lane, options);
        Err(MakeError::Kept)
    }

    /// Returns the hash of the exact state bits of a lane. The hash of a lost lane means nothing.
    fn state_hash(&self, lane: usize) -> u32;

    /// Writes the [`LaneBlock::state_hash`] of each lane of `lanes` to that lane's place in `out`.
    fn state_hashes(&self, lanes: LaneSet, out: &mut [u32; BLOCK_LANES]) {
        for lane in lanes & LaneSet::first(self.lanes()) {
            out[lane] = self.state_hash(lane);
        }
    }

    /// Returns whether [`LaneBlock::verdict`] may ever say something. It is always the same; where it does not, nothing is
    /// asked.
    fn has_verdicts(&self) -> bool {
        false
    }

    /// Says how the lane's episode ended: result and score. It is asked once for each episode that the env or a limit
    /// ended, after its last step and before the lane is reset, and depends on the lane's state alone. One that panics says
    /// nothing.
    fn verdict(&self, lane: usize) -> Verdict {
        let _ = lane;
        Verdict::default()
    }

    /// Takes the lanes that have failed in calls that cannot report it, as [`LaneBlock::state_hash`] and [`LaneBlock::render`]
    /// cannot. They are lost as those of [`Ended::lost`] are, and each is reported once. The engine asks for them after such
    /// calls. Blocks that only fail as a whole keep the default.
    fn take_failed(&mut self) -> LaneSet {
        LaneSet::NONE
    }

    /// Makes the lost lanes among `lanes` anew, with the options they had, and returns those that can be used again;
    /// they have to be reset before they are stepped. Their generators go on from the position at which the lane was
    /// lost, unless they are seeded or restored. Lanes that are not lost are left alone.
    ///
    /// It may allocate and block, and a panic in it does not lose the block. Blocks that only
    /// fail as a whole keep the default: they never report a lost lane, and after a panic the engine makes a new block
    /// through the registry.
    fn revive(&mut self, lanes: LaneSet) -> LaneSet {
        let _ = lanes;
        LaneSet::NONE
    }

    /// Returns the exact state of a lane as doubles, in an order that the env documents; for forks and tests.
    /// Allocates.
    ///
    /// # Errors
    /// The env has no such view of its state, or the lane is lost.
    fn state(&self, lane: usize) -> Result<Vec<f64>, StateError> {
        let _ = lane;
        Err(StateError::Unsupported)
    }

    /// Puts a lane into a state that [`LaneBlock::state`] gave. Its generator, and observations already
    /// written, stay as they are.
    ///
    /// # Errors
    /// The env has no such view of its state, the lane is lost, or `state` has another length or a number that the env refuses;
    /// nothing changes then. An env may take states that no episode comes to.
    fn set_state(&mut self, lane: usize, state: &[f64]) -> Result<(), StateError> {
        let _ = (lane, state);
        Err(StateError::Unsupported)
    }

    /// Calls a method that the spec lists ([`EnvSpec::methods`](rollhouse_core::EnvSpec::methods)) on a lane and returns its
    /// answer. Payload and answer are JSON by agreement; any text may come. Allocates.
    ///
    /// A method that changes nothing leaves state and generator as they are. What any other does depends on the lane's state,
    /// its generator and the payload alone, so that recordings can repeat it, and is over with the episode: the next reset
    /// begins from the generator and the options. Observations show it after the next step.
    ///
    /// # Errors
    /// See [`CallError`]; nothing has changed then, unless the lane is lost.
    fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, CallError> {
        let _ = (lane, method, payload);
        Err(CallError::Unsupported)
    }

    /// Draws an image of the lane's state, of that size, for people to look at. Allocates.
    ///
    /// # Errors
    /// The env does not draw itself, or the lane is lost.
    fn render(&self, lane: usize, size: ImageSize) -> Result<Image, RenderError> {
        let _ = (lane, size);
        Err(RenderError::Unsupported)
    }

    /// Describes the lane's state in one line of at most `columns` ASCII characters, for terminals. Allocates.
    ///
    /// # Errors
    /// As [`LaneBlock::render`].
    fn text(&self, lane: usize, columns: usize) -> Result<String, RenderError> {
        let _ = (lane, columns);
        Err(RenderError::Unsupported)
    }
}

/// A block of lanes that finish within the call, as structure of arrays.
///
/// Rows of every slice are this block's lanes only, row-major, `lanes()` rows each. Results are bit-identical on every
/// instruction set.
///
/// ```
/// use rollhouse_core::{ColumnMut, ColumnRef, LaneSet, Options};
/// use rollhouse_env::{BlockStep, Registry};
///
/// let entry = Registry::builtin().get("CartPole-v1")?;
/// let options = Options::check(&entry.spec().options, &[])?;
/// let mut block = entry.make_block(&[options.clone(), options])?;
/// (0..2).for_each(|lane| block.seed(lane, 7 + lane as u64));
///
/// let (mut obs, mut rewards) = ([0.0; 2 * 4], [0.0; 2]);
/// assert!(block.reset(LaneSet::first(2), &mut [ColumnMut::F32(&mut obs)]).is_empty());
/// let ended = block.step(BlockStep {
///     skip: LaneSet::NONE,
///     reset: LaneSet::NONE,
///     actions: ColumnRef::I64(&[1, 0]),
///     obs: &mut [ColumnMut::F32(&mut obs)],
///     infos: &mut [],
///     rewards: &mut rewards,
/// });
/// assert_eq!((ended.terminated, rewards), (LaneSet::NONE, [1.0, 1.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait BatchEnv: LaneBlock {
    /// Begins a new episode in each lane of `lanes`, drawing from its generator, and writes those lanes'
    /// rows of `obs`. Other rows are left alone. Returns the lanes that failed, with the meaning of
    /// [`Ended::lost`].
    fn reset(&mut self, lanes: LaneSet, obs: &mut [ColumnMut<'_>]) -> LaneSet;

    /// Writes what info channels say of each lane of `lanes`, which has just begun an episode: the rows of the columns that
    /// are there in such rows ([`Role::is_in_first_rows`](rollhouse_core::Role::is_in_first_rows)), and of no others. It is
    /// called after [`BatchEnv::reset`], or after a step with resets, of envs that have such a column. Returns
    /// the lanes that failed, as [`BatchEnv::reset`] does.
    fn first_infos(&mut self, lanes: LaneSet, infos: &mut [ColumnMut<'_>]) -> LaneSet {
        let _ = (lanes, infos);
        LaneSet::NONE
    }

    /// Steps every lane that is neither in `skip` nor in `reset`, and resets those in `reset`.
    ///
    /// A lane that reached a terminal state is reset before it is stepped again: what a step would give in a terminal
    /// state is up to the env.
    ///
    /// Every row of `rewards` is written, and every row of `obs` but those of skipped lanes: stepped lanes get what the step
    /// gave, reset lanes their first observation. The row of a skipped lane has its observation already; it may be written
    /// again and stays as it is. Reset and skipped lanes have reward 0 and no flag. Stepping with `reset` gives exactly what stepping with the same lanes in
    /// `skip` followed by [`BatchEnv::reset`] gives. Actions of stepped lanes have been checked against
    /// the space (an integer in range; floats finite, but maybe out of bounds); others are arbitrary.
    fn step(&mut self, step: BlockStep<'_, '_>) -> Ended;
}

/// Input and output of one step of a block.
#[derive(Debug)]
pub struct BlockStep<'a, 'b> {
    /// Lanes that must not move.
    pub skip: LaneSet,
    /// Lanes that begin an episode instead of stepping; disjoint from `skip`.
    pub reset: LaneSet,
    /// Actions, one for each lane.
    pub actions: ColumnRef<'a>,
    /// Observation columns in the spec's order.
    pub obs: &'a mut [ColumnMut<'b>],
    /// Info columns in the spec's order; rows of lanes that did not step are not written.
    pub infos: &'a mut [ColumnMut<'b>],
    /// Rewards, one for each lane.
    pub rewards: &'a mut [f64],
}

/// Lanes whose episodes ended in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "lanes that ended or failed are reported once"]
pub struct Ended {
    /// Lanes that reached a terminal state.
    pub terminated: LaneSet,
    /// Lanes that a limit of the env's own cut; the engine adds the time limit.
    pub truncated: LaneSet,
    /// Lanes that failed in this step, or in the reset that was asked for with it. They cannot be used again until
    /// [`LaneBlock::revive`] has made them anew, and their rows mean nothing. Disjoint from the other two.
    pub lost: LaneSet,
}

/// Reason for which a call of a method came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The env does not have the method that its spec lists.
    #[error("the env does not have it")]
    Unsupported,
    /// The env does not do what it is asked, for the reason that it gives.
    #[error("{message}")]
    Refused {
        /// Reason that the env gave.
        message: String,
    },
    /// The lane is lost, before the call or by it.
    #[error("the lane is lost")]
    Lost,
}

impl CallError {
    /// Makes the error of an env that refuses a call for a reason.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused { message: message.into() }
    }
}

/// Reason for which a lane's state could not be read or put back.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum StateError {
    /// The env does not show its state as doubles.
    #[error("the env does not show its state")]
    Unsupported,
    /// The lane is lost, and has no state until it is revived.
    #[error("the lane is lost")]
    Lost,
    /// The state has another length.
    #[error("state has {given} doubles, must have {wanted}")]
    Length {
        /// Number of doubles that were given.
        given: usize,
        /// Number of doubles in this env's state.
        wanted: usize,
    },
    /// No state of this env has that number in that place.
    #[error("element {index} of a state cannot be {given}")]
    Value {
        /// Place of the number in the state.
        index: usize,
        /// Number that was given.
        given: f64,
    },
}

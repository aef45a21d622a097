//! The interface of one lane, which is the simple way to write an env.

use rollhouse_core::{ColumnMut, ColumnRef, Verdict};

use crate::{CallError, Generator, Image, ImageSize, RenderError, StateError};

/// One instance of an env. A panic in any method but [`Env::verdict`] loses this lane only.
///
/// [`EnvEntry::per_lane`](crate::EnvEntry::per_lane) makes an entry of a registry from such an env.
///
/// ```
/// use rollhouse_core::{ColumnMut, ColumnRef, StateHasher};
/// use rollhouse_env::{Env, Generator, StepResult};
///
/// /// A corridor of ten cells, in which action 1 goes right and any other stays.
/// struct Corridor {
///     cell: u64,
/// }
///
/// fn observe(cell: u64, obs: &mut [ColumnMut<'_>]) {
///     obs[0].as_f32_mut().expect("the column has the spec's type")[0] = cell as f32;
/// }
///
/// impl Env for Corridor {
///     fn reset(&mut self, _: &mut Generator, obs: &mut [ColumnMut<'_>]) {
///         self.cell = 0;
///         observe(self.cell, obs);
///     }
///
///     fn step(
///         &mut self,
///         _: &mut Generator,
///         action: ColumnRef<'_>,
///         obs: &mut [ColumnMut<'_>],
///         _: &mut [ColumnMut<'_>],
///     ) -> StepResult {
///         self.cell += u64::from(action.as_i64() == Some(&[1]));
///         observe(self.cell, obs);
///         StepResult { reward: -1.0, terminated: self.cell == 9, truncated: false }
///     }
///
///     fn state_hash(&self) -> u32 {
///         StateHasher::new().word(self.cell).finish()
///     }
/// }
///
/// let mut corridor = Corridor { cell: 8 };
/// let mut row = [0.0];
/// let obs = &mut [ColumnMut::F32(&mut row)];
/// assert!(corridor.step(&mut Generator::seeded(0), ColumnRef::I64(&[1]), obs, &mut []).terminated);
/// assert_eq!(row, [9.0]);
/// ```
pub trait Env: Send {
    /// Begins a new episode, drawing from `generator` alone if the env is deterministic, and writes the
    /// first observation: one row of each column.
    fn reset(&mut self, generator: &mut Generator, obs: &mut [ColumnMut<'_>]);

    /// Advances by one action and writes the next observation and the info channels.
    fn step(
        &mut self,
        generator: &mut Generator,
        action: ColumnRef<'_>,
        obs: &mut [ColumnMut<'_>],
        infos: &mut [ColumnMut<'_>],
    ) -> StepResult;

    /// Writes what info channels say of an episode that has just begun: those that are there in such rows, as an action mask
    /// is, one row each.
    fn first_infos(&self, infos: &mut [ColumnMut<'_>]) {
        let _ = infos;
    }

    /// Returns the hash of the exact bits of everything on which later states depend.
    fn state_hash(&self) -> u32;

    /// Says how the episode ended: result and score. It is asked once for each episode that the env or a limit ended,
    /// after its last step, and depends on the state alone. One that panics says nothing.
    fn verdict(&self) -> Verdict {
        Verdict::default()
    }

    /// Returns the exact state as doubles, in an order that the env documents; for forks and tests.
    ///
    /// # Errors
    /// The env has no such view of its state.
    fn state(&self) -> Result<Vec<f64>, StateError> {
        Err(StateError::Unsupported)
    }

    /// Puts the env into a state that [`Env::state`] gave.
    ///
    /// # Errors
    /// As [`LaneBlock::set_state`](crate::LaneBlock::set_state).
    fn set_state(&mut self, state: &[f64]) -> Result<(), StateError> {
        let _ = state;
        Err(StateError::Unsupported)
    }

    /// Calls a method that the spec lists and returns its answer; see [`LaneBlock::call`](crate::LaneBlock::call).
    ///
    /// # Errors
    /// See [`CallError`]; nothing has changed then.
    fn call(&mut self, generator: &mut Generator, method: &str, payload: &str) -> Result<String, CallError> {
        let _ = (generator, method, payload);
        Err(CallError::Unsupported)
    }

    /// Draws an image of the state, of that size, for people to look at.
    ///
    /// # Errors
    /// The env does not draw itself.
    fn render(&self, size: ImageSize) -> Result<Image, RenderError> {
        let _ = size;
        Err(RenderError::Unsupported)
    }

    /// Describes the state in one line of at most `columns` ASCII characters, for terminals.
    ///
    /// # Errors
    /// As [`Env::render`].
    fn text(&self, columns: usize) -> Result<String, RenderError> {
        let _ = columns;
        Err(RenderError::Unsupported)
    }
}

/// Result of one lane's step, without the observation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepResult {
    /// Reward of the step.
    pub reward: f64,
    /// True if the env reached a terminal state.
    pub terminated: bool,
    /// True if a limit of the env's own cut the episode.
    pub truncated: bool,
}

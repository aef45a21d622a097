//! One lane at a time: the simple way to write an env.

use rollhouse_core::{ColumnMut, ColumnRef};

use crate::{Generator, Image, ImageSize, RenderError, StateError};

/// One instance of an env. A panic loses this lane only.
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

    /// Hash of the exact bits of everything later states depend on.
    fn state_hash(&self) -> u32;

    /// The exact state as doubles, in an order the env documents; for forks and tests.
    ///
    /// # Errors
    /// The env has no such view of its state.
    fn state(&self) -> Result<Vec<f64>, StateError> {
        Err(StateError::Unsupported)
    }

    /// Puts the env into a state that [`Env::state`] gave.
    ///
    /// # Errors
    /// The env has no such view of its state, or `state` is not one; nothing changes then.
    fn set_state(&mut self, state: &[f64]) -> Result<(), StateError> {
        let _ = state;
        Err(StateError::Unsupported)
    }

    /// An image of the state, of that size, for people to look at.
    ///
    /// # Errors
    /// The env does not draw itself.
    fn render(&self, size: ImageSize) -> Result<Image, RenderError> {
        let _ = size;
        Err(RenderError::Unsupported)
    }

    /// The state in one line of at most `columns` ASCII characters, for terminals.
    ///
    /// # Errors
    /// As [`Env::render`].
    fn text(&self, columns: usize) -> Result<String, RenderError> {
        let _ = columns;
        Err(RenderError::Unsupported)
    }
}

/// What a step of one lane gave beside the observation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepResult {
    /// The reward.
    pub reward: f64,
    /// Reached a terminal state.
    pub terminated: bool,
    /// Cut by a limit of the env's own.
    pub truncated: bool,
}

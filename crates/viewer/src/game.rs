//! The trait [`Game`]: an env that a person steps.

use std::error::Error;

use rollhouse_core::ColumnData;
use rollhouse_env::{Image, ImageSize, RenderError};

use crate::hand::Standing;

/// An error after which a game cannot go on.
pub type GameError = Box<dyn Error + Send + Sync>;

/// A game: one lane of an env, which the implementation steps and records.
pub trait Game {
    /// Takes a step with an action: one row of the action column.
    ///
    /// # Errors
    /// If no step can be taken any more. A failure of the env is an end of its episode, and no error.
    fn step(&mut self, action: &ColumnData) -> Result<Standing, GameError>;

    /// Ends the episode, if it is open, and begins the next one.
    ///
    /// # Errors
    /// If no episode can begin.
    fn begin_anew(&mut self) -> Result<Standing, GameError>;

    /// Carries out a command: the name of one of the env's methods and its arguments, as a person types them. Returns the
    /// answer.
    ///
    /// # Errors
    /// If there is no such method, or the env refuses the call; the game goes on then.
    fn command(&mut self, line: &str) -> Result<String, GameError>;

    /// Renders a picture of the current state.
    ///
    /// # Errors
    /// If the env does not draw itself, or has failed.
    fn render(&mut self, size: ImageSize) -> Result<Image, RenderError>;

    /// Describes the current state in one line of at most `columns` characters.
    ///
    /// # Errors
    /// As [`Game::render`].
    fn text(&mut self, columns: usize) -> Result<String, RenderError>;

    /// Ends the game: nothing is called afterwards. The terminal is already as before, and the process may end when
    /// this returns.
    fn close(&mut self);
}

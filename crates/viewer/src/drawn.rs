//! The trait from which the part of a screen with an env's picture is drawn.

use std::cell::RefCell;

use rollhouse_env::{Image, ImageSize, RenderError};

use crate::game::Game;
use crate::hand::Hand;
use crate::player::Player;

/// An env in a state that may have a picture.
pub(crate) trait Drawn {
    /// Returns the env's id, as it is recorded.
    fn env(&self) -> &str;
    /// Returns the form of the picture, if there is one.
    fn form(&self) -> Option<ImageSize>;
    /// Returns the reason why there is no state to draw.
    fn refused(&self) -> Option<String>;
    fn render(&self, size: ImageSize) -> Result<Image, RenderError>;
    /// Describes the state in one line of at most `columns` characters.
    fn text(&self, columns: usize) -> Result<String, RenderError>;
}

impl Drawn for Player<'_> {
    fn env(&self) -> &str {
        self.info().env()
    }

    fn form(&self) -> Option<ImageSize> {
        self.form()
    }

    fn refused(&self) -> Option<String> {
        self.refused()
    }

    fn render(&self, size: ImageSize) -> Result<Image, RenderError> {
        self.render(size)
    }

    fn text(&self, columns: usize) -> Result<String, RenderError> {
        self.text(columns)
    }
}

/// A game that is played by hand, in its current state.
pub(crate) struct Played<'a, 'g> {
    pub(crate) hand: &'a Hand,
    /// The game; the code that draws has no other access to it.
    pub(crate) game: RefCell<&'a mut (dyn Game + 'g)>,
}

impl Drawn for Played<'_, '_> {
    fn env(&self) -> &str {
        self.hand.env()
    }

    fn form(&self) -> Option<ImageSize> {
        self.hand.form()
    }

    fn refused(&self) -> Option<String> {
        None
    }

    fn render(&self, size: ImageSize) -> Result<Image, RenderError> {
        self.game.borrow_mut().render(size)
    }

    fn text(&self, columns: usize) -> Result<String, RenderError> {
        self.game.borrow_mut().text(columns)
    }
}

//! How recorded episodes are looked at in a terminal.
//!
//! [`view`] takes the terminal and shows an episode; keys go to a [`Player`], which knows nothing of terminals and plays,
//! seeks and steps back exactly (`rollhouse_replay::Seeker`); [`draw`] draws it into a grid of cells, of which what
//! has changed is sent. All of it is one thread.
//!
//! Not a goal: moving pictures faster than a terminal shows them, and pictures by the protocols of single terminals.
//! Start reading at [`Player`].
#![forbid(unsafe_code)]

mod keys;
mod look;
mod marks;
mod numbers;
mod picture;
mod player;
mod plot;
mod screen;
mod screen_guard;
mod viewer;

pub use keys::{Event, Key};
pub use look::Look;
pub use player::{Ask, FASTEST, Player, SLOWEST};
pub use screen::{LEAST, draw};
pub use viewer::{ViewError, Viewing, view};

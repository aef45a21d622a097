//! How recorded episodes are looked at in a terminal.
//!
//! [`view`] takes the terminal and shows an episode, or a list to choose one from. Keys go to a [`Player`], which plays,
//! seeks and steps back exactly (`rollhouse_replay::Seeker`), or to a [`Browser`], which holds a page of the list at a
//! time; neither knows of terminals. [`draw`] and [`draw_list`] draw them into a grid of cells, of which what has
//! changed is sent. All of that is the caller's thread.
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | signals of the viewer | own thread `signals`: gives the terminal back and ends the process if the caller's thread has not | ends with the viewer | - |
//! | asker | own thread `asker`, of [`watch_cluster`]: asks the coordinator, which may take long | ends with its caller, after the question it is at | the error is shown, and it asks again |
//!
//! [`watch_cluster`] shows a cluster as it is now, in the same way: a [`Top`] is told what was heard and which keys were
//! pressed, and drawn into cells.
//!
//! A terminal that says that it takes pictures of pixels (kitty, iTerm2, sixel) is sent the env's picture that way, and
//! again only when it has changed.
//!
//! Not a goal: moving pictures faster than a terminal shows them.
//! Start reading at [`Player`].
#![forbid(unsafe_code)]

mod asked;
mod browser;
mod filter;
mod following;
mod graphics;
mod keys;
mod list_screen;
mod look;
mod marks;
mod numbers;
mod overview;
mod pair;
mod picture;
mod player;
mod plot;
mod screen;
mod screen_guard;
mod search;
mod sixel;
mod snapshot;
mod svg;
mod top;
mod viewer;

pub use browser::{Browser, Choice};
pub use graphics::Protocol;
pub use keys::{Event, Key};
pub use list_screen::{draw_list, rows_of};
pub use look::Look;
pub use overview::{Screen, overview_screen};
pub use pair::{Pair, draw_pair};
pub use player::{Ask, FASTEST, Player, SLOWEST};
pub use screen::{LEAST, draw};
pub use screen_guard::Pictures;
pub use snapshot::snapshot;
pub use top::{Asker, Sample, Top, TopAsk, draw_top, watch_cluster};
pub use viewer::{ViewError, Viewing, view, view_pair};

//! This crate shows recorded episodes in a terminal, and lets a person play envs by hand.
//!
//! [`view`] takes the terminal and shows an episode, or a list to choose one from. Keys go to a [`Player`], which
//! plays, seeks and steps back exactly (`rollhouse_replay::Seeker`), or to a [`Browser`], which holds a page of the
//! list at a time; neither knows of terminals. [`draw`] and [`draw_list`] draw them into a grid of cells; only changed
//! cells are sent. All of that but reading an episode runs on the caller's thread.
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | asker | own thread `asker`, of `watch_cluster`: asks the coordinator, which may take long | ends with its caller, after the question it is at | the error is shown, and it asks again |
//! | reader of the viewer | own thread `reader`, of `view`: reads an episode while the caller's thread looks for keys | ends after the try it is at | shown; while the episode's disk is away it tries again |
//! | signals of the viewer | own thread `signals`: gives the terminal back and ends the process if the caller's thread has not | ends with the viewer | - |
//!
//! [`watch_cluster`] shows a cluster as it is now, in the same way: a [`Top`] is told what was heard and which keys were
//! pressed, and drawn into cells.
//!
//! [`play_by_hand`] lets a person play an env with the keyboard: keys go to a [`Hand`], and what it wants done goes to
//! a [`Game`], which is stepped and recorded elsewhere.
//!
//! [`watch`] shows lanes while they are played, from a [`LiveSource`], by the same means.
//!
//! A terminal that says that it takes pictures of pixels (kitty, iTerm2, sixel) is sent the env's picture that way, and
//! again only when it has changed.
//!
//! Not a goal: moving pictures faster than a terminal shows them.
//! Start reading at [`Player`].
#![forbid(unsafe_code)]

mod asked;
mod browser;
mod by_hand;
mod command_line;
mod controls;
mod drawn;
mod element;
mod filter;
mod following;
mod game;
mod graphics;
mod hand;
mod hand_screen;
mod input;
mod keys;
mod list_screen;
mod live;
mod live_screen;
mod look;
mod marks;
mod numbers;
mod overlay;
mod overview;
mod pace;
mod pair;
mod picture;
mod player;
mod plot;
mod reading;
mod replayed;
mod screen;
mod screen_guard;
mod search;
mod signal;
mod sixel;
mod snapshot;
mod svg;
mod top;
mod viewer;
mod watch;

pub use browser::{Browser, Choice};
pub use by_hand::{HandError, play_by_hand};
pub use game::{Game, GameError};
pub use graphics::Protocol;
pub use hand::{Deed, Hand, Standing, Table};
pub use hand_screen::draw_hand;
pub use keys::{Event, Key};
pub use list_screen::{draw_list, rows_of};
pub use live::{Live, LiveAsk, LiveFrame, LiveSource};
pub use live_screen::draw_live;
pub use look::Look;
pub use overview::{Screen, overview_screen};
pub use pace::{FASTEST, SLOWEST};
pub use pair::{Pair, draw_pair};
pub use player::{Ask, Player};
pub use replayed::ReplayMove;
pub use screen::{LEAST, draw};
pub use screen_guard::Pictures;
pub use snapshot::snapshot;
pub use top::{Asker, Sample, Top, TopAsk, draw_top, watch_cluster};
pub use viewer::{ViewError, Viewing, view, view_pair};
pub use watch::watch;

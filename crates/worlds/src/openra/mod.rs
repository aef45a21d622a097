//! Games of OpenRA's bridge for learners, each of which is a lane.

mod call;
mod connection;
mod driver;
mod game;
mod lanes;
mod provider;
mod rewards;
mod rows;
mod settings;
mod shared;
mod spaces;
mod words;

pub use provider::{OpenraWorlds, is_engine};

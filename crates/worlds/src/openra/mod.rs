//! Games of OpenRA's bridge for learners, each of which is a lane.

mod call;
mod game;
mod rewards;
mod rows;
mod settings;
mod spaces;
mod words;

//! OpenRA's bridge for learners, with an env of Skirmish's shape behind it.
//!
//! `Life` decides what becomes of a session, `Game` how a lane is advanced, `Bridge` joins both, and `BridgeService`
//! alone knows gRPC.

mod actions;
mod book;
mod bridge;
mod game;
mod life;
mod names;
mod observing;
mod ordering;
mod service;
mod serving;
mod session;
mod shape;
mod stream;

pub use bridge::BridgeSettings;
pub(crate) use bridge::MAX_MAKERS;
pub(crate) use serving::BridgeServer;
pub(crate) use shape::Shape;
pub use shape::WrongShape;

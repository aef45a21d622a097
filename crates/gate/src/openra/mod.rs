//! OpenRA's bridge for learners, with an env of Skirmish's shape behind it.
//!
//! `Life` decides what becomes of a session, `Game` how a lane is advanced, `Bridge` joins both, and `BridgeService`
//! alone knows gRPC.

mod actions;
mod book;
mod bridge;
mod cluster_lanes;
mod game;
mod lanes;
mod life;
mod names;
mod observing;
mod ordering;
mod service;
mod session;
mod shape;
mod stream;

pub use bridge::BridgeSettings;
pub(crate) use bridge::{Bridge, MAX_MAKERS};
pub use cluster_lanes::ClusterLanes;
pub use lanes::{BeginRecording, EmbeddedLanes, Lane, LaneError, LaneRow, Lanes};
pub(crate) use life::LOOK_EVERY;
pub(crate) use service::BridgeService;
pub(crate) use shape::Shape;
pub use shape::WrongShape;

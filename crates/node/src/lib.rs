//! What a machine that hosts sessions does: it starts, watches and restarts them.
//!
//! A [`Node`] has one control thread with a node actor and one session actor per session. A session steps its
//! lanes on a thread of its own that no actor stands in front of; actors start it, watch that it makes progress
//! and pass on how it ended. What decides about hangs and restarts is plain structs that are given the time:
//! [`HangWatch`] and [`BackOff`](rollhouse_core::BackOff).
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | control | own thread, actix | ends when the node is dropped | the node answers nothing more |
//! | node actor | control | ends with it | holds no foreign code |
//! | session actor | control | ends with its session | made anew with back-off; the session steps on |
//! | session | own thread | ends its episodes as `cancelled` after the batch it is in | its exit says why |
//! | engine threads | own threads | end with the engine | a panic loses one block of lanes, not the thread |
//!
//! Not a goal: a cluster in one process; there is no coordinator here. Start reading at [`Node`], then
//! [`Rollout`].
#![forbid(unsafe_code)]

mod answer;
mod cancel;
mod cluster_node;
mod executor;
mod exit;
mod figures;
mod hosted;
mod hosting;
mod lease;
mod link;
mod node;
mod owned;
mod plan;
mod progress;
mod registration;
mod rollout;
mod serve;
mod session;
mod shipper;
mod shipping;
mod stream;
mod table;
mod tally;
mod watch;

pub use cancel::Cancel;
pub use cluster_node::{ClusterNode, ClusterNodeConfig, ClusterNodeError, StopReport};
pub use exit::{Exit, RolloutError};
pub use figures::{Counter, Histogram, NodeFigures, RequestFigures};
pub use link::LinkState;
pub use node::{BeginError, MAX_ROLLOUTS, Node, RolloutHandle, StartError};
pub use plan::MAX_SESSION_LANES;
pub use progress::{Progress, ProgressSnapshot};
pub use rollout::{Goal, HANG_DEADLINE, Report, Rollout};
pub use serve::ServeError;
pub use shipper::{Amount, Pace, ShipAction, ShipCounts, ShipEvent, Shipper, ShipperConfig, WhenFull};
pub use shipping::{LOOK_EVERY, ShipFigures, Shipping, ShippingConfig};
pub use table::MAX_SESSIONS;
pub(crate) use tally::Tally;
pub use watch::{HangWatch, Verdict};

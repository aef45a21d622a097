//! What knows a cluster's nodes, places sessions on them and gathers what they recorded.
//!
//! [`Cluster`] decides: which nodes are alive, where the lanes of a pool go, which placement of a session counts. It
//! is a value without clock, sockets and files, to which the world is told as [`Event`]s and which says what to do as
//! [`Action`]s; `tests/simulation.rs` drives it through lost messages and restarts.
//!
//! Not a goal: carrying steps. Data goes straight between trainer and node, and a coordinator's absence ends no
//! session. Moving or resuming sessions of a lost node is not done either: its pool is told that they are lost.
//! Start reading at [`Cluster`], then [`Event`].
#![forbid(unsafe_code)]

mod actor;
mod admission;
mod closing;
mod cluster;
mod coordinator;
mod data;
mod event;
mod figures;
pub mod limits;
mod membership;
mod opening;
mod placement;
mod placements;
mod pool;
mod serve;
mod shipping;
mod store;
mod views;

pub use cluster::{Cluster, SecretSource};
pub use coordinator::{Coordinator, CoordinatorConfig, CoordinatorError, Stopped};
pub use data::DataError;
pub use event::{Action, Asker, CallFailure, Event, LinkId, Reply, Ticket};
pub use figures::{CoordinatorFigures, Log};
pub use store::{Receive, Receiving, Store, StoreConfig, StoreCounts, StoreError};

//! The coordinator of a cluster: it knows the nodes, places sessions on them and gathers their recordings.
//!
//! [`Cluster`] decides: which nodes are alive, where the lanes of a pool go, which placement of a session counts. It is
//! a value without clock, sockets and files, which takes [`Event`]s and returns [`Action`]s; crate simulation
//! drives it through lost messages and restarts.
//!
//! [`Coordinator`] is the thin skin around it: one thread with the QUIC endpoint, the actor that owns the cluster, and
//! a task per connection and request. The [`Store`] gathers what nodes recorded.
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | coordinator | own thread `rollhouse-coordinator`, actix and tokio | ends with [`Coordinator::stop`] or its drop | its end says that it failed, and its process makes another; that learns from the nodes |
//! | actor of the cluster | coordinator | ends with it | a panic ends the coordinator as failed |
//! | call to a node | coordinator, the actor's | ends with it | told to the cluster as refused or unknown |
//! | port of a node | coordinator, the actor's | ends with it | nothing is known, and it is asked again |
//! | connection | coordinator | ends with it | closed, and its node told to the cluster as cut off |
//! | request | its connection's task | its stream is given up; the cluster decides all the same | the peer sees the stream end |
//! | file operation | tokio's threads for what blocks | runs to its end | its request is refused |
//! | archive | own thread `rollhouse-archive` | ends after what the archive lets it end, within a second, else it is left behind: what it was at counts for nothing | tried again with back-off, for as long as the coordinator lives; so after a panic |
//! | fetch from the archive | own threads `rollhouse-fetch`, at most two | runs to its end; who waits for it is told that the coordinator goes away | who reads the segment is told why |
//!
//! Not a goal: carrying steps. Data goes straight between trainer and node, and a coordinator's absence ends no
//! session. Nor does it move sessions by itself: their owner asks for another place, and resumes them there.
//! Start reading at [`Cluster`], then [`Event`]; the skin begins at [`Coordinator`].
#![forbid(unsafe_code)]

mod actor;
mod admission;
mod audit;
mod behind;
mod certifier;
mod claims;
mod closing;
mod cluster;
mod coordinator;
mod data;
mod enrolments;
mod event;
mod figures;
mod fitness;
mod keeping;
mod lane_standings;
mod layout;
pub mod limits;
mod member;
mod membership;
mod opening;
mod owner_holdings;
mod owners;
mod placements;
mod policies;
mod pool;
mod reach;
mod recipe;
mod remembered;
mod replacing;
mod replays;
mod results;
mod resuming;
mod revoking;
mod rooms;
mod roster;
mod serve;
mod service;
mod shipping;
mod standings;
mod store;
mod turn_line;
mod views;
mod waiting;
mod watching;

pub use audit::{AuditCounts, AuditLog, AuditedChange};
pub use certifier::EnrolmentConfig;
pub use cluster::{Cluster, SecretSource};
pub use coordinator::{ArchiveSettings, Coordinator, CoordinatorConfig, CoordinatorError, Stopped};
pub use data::{DataError, DataFolder, MAX_TERM};
pub use event::{Action, Asker, CallFailure, Event, LinkId, Reply, Ticket};
pub use figures::{CertificateFor, ClusterFigures, CoordinatorFigures};
pub use roster::{PortQuestion, Roster};
pub use store::{
    Amount, ArchiveConfig, ArchiveFigures, FetchCounts, Receive, Receiving, Store, StoreConfig, StoreCounts,
    StoreError,
};

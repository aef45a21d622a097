//! What a machine that hosts sessions does: it starts, serves, watches and ends them.
//!
//! A [`Node`] plays rollouts in this process. A [`ClusterNode`] is a node of a cluster: it joins a coordinator,
//! opens the sessions that one asks for, lets their owners step them over QUIC, and ships what was recorded.
//!
//! ```text
//! coordinator <--QUIC--> link (control thread) --> table of sessions <-- streams (data thread) <--QUIC--> owners
//!                                                        |                   |
//!                                        rollouts: session actors      short batches here, long ones with workers
//! ```
//!
//! A session stepped by its owner over a stream costs that and its lanes' memory: no thread, no descriptor, no actor.
//! An owner on this machine may step through shared memory instead, which takes a thread. A session that plays by
//! itself steps on a thread of its own that no actor stands in front of; actors start it, watch that it makes progress
//! and pass on how it ended. What decides is plain values that are given the time, public so that crate simulation can
//! join them to a cluster in virtual time: [`SessionTable`] with its leases, [`Turn`], [`OwnedSession`],
//! [`Registration`], [`Shipper`], [`HangWatch`] and [`BackOff`](rollhouse_core::BackOff).
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | control | own thread, actix | ends when the node is dropped | the node answers nothing more |
//! | node actor | control | ends with it | holds no foreign code |
//! | session actor | control | ends with its session | made anew with back-off; the session steps on |
//! | rollout | own thread | ends its episodes as `cancelled` after the batch it is in | its exit says why |
//! | engine threads | own threads | end with the engine | a panic loses one block of lanes, not the thread |
//! | link | control | says good-bye | dials again with back-off; sessions go on |
//! | pulse | control | ends with it | the node shows as silent |
//! | one per call to the coordinator, and per request of it | control | given up | the link dials anew; the request is refused |
//! | one per collecting session | control | ends with the node | the session's end says why |
//! | shipping | control, files on blocking threads | what is in flight stays in the spool | tried again with back-off |
//! | data | own thread, tokio | closes all connections | the node serves nobody more |
//! | one per connection | data | its streams end | ends with the connection |
//! | one per command stream | data | the stream ends | the connection ends with the reason |
//! | one per attached session | data | the lease runs | the connection ends with the reason |
//! | attach | data | ends with the node | tries again after 100 ms |
//! | one per process at the attach socket | data | its thread is told to stop; the lease runs | the attachment ends |
//! | `rollhouse-shm-N`, one per session attached by memory | own thread | ends after the request it is in | a panic ends its session; one that hangs is given up |
//! | one per session whose lease is over | data | ends with the node | the session's end says why |
//! | workers | own threads | end after the batch they are in | a panic ends its session; one that hangs is given up and replaced |
//! | the recorder's writer | own thread | writes and seals what it has | latches, opens a new segment with back-off |
//!
//! Not a goal: knowing other nodes, and placing sessions; the coordinator does. Start reading at [`ClusterNode`],
//! then [`Rollout`].
#![forbid(unsafe_code)]

mod answer;
mod attach;
mod attached;
mod cancel;
mod cluster_node;
mod command_stream;
mod commands;
mod connections;
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
mod pulse;
mod registration;
mod rollout;
mod serve;
mod session;
mod shipper;
mod shipping;
mod stream;
mod table;
mod tally;
mod turn;
mod watch;

pub use attach::AttachConfig;
pub use cancel::Cancel;
pub use cluster_node::{ClusterNode, ClusterNodeConfig, ClusterNodeError, MOVE_PATIENCE, StopReport};
pub use connections::ConnectionFigures;
pub use exit::{Exit, RolloutError};
pub use figures::{Counter, Histogram, NodeFigures, Refusals, RequestFigures};
pub use link::LinkState;
pub use node::{BeginError, MAX_ROLLOUTS, Node, RolloutHandle, StartError};
pub use owned::{FrameRequest, OwnedSession, RequestFault};
pub use plan::{MAX_SESSION_LANES, SessionPlan};
pub use progress::{Progress, ProgressSnapshot};
pub use registration::{ANSWER_DEADLINE, LinkAction, LinkEvent, Registration};
pub use rollout::{Goal, HANG_DEADLINE, Report, Rollout};
pub use serve::ServeError;
pub use shipper::{Amount, Pace, ShipAction, ShipCounts, ShipEvent, Shipper, ShipperConfig, WhenFull};
pub use shipping::{LOOK_EVERY, ShipFigures, Shipping, ShippingConfig};
pub use table::{Attachment, MAX_SESSIONS, SessionTable, Transport};
pub(crate) use tally::Tally;
pub use turn::{Turn, TurnOver};
pub use watch::{HangWatch, Verdict};

//! Hosts sessions on one machine: it starts, serves, watches and ends them.
//!
//! A [`Node`] plays rollouts in this process. A [`ClusterNode`] is a node of a cluster: it joins a coordinator,
//! opens the sessions that one asks for, lets their owners step them over QUIC, and ships what was recorded.
//!
//! ```text
//! coordinator <--QUIC--> link (control thread) --> table of sessions <-- streams (data thread) <--QUIC--> owners
//!                                                        |                   |
//!                     node actor --supervises--> session actors        short batches here, long ones with workers
//! ```
//!
//! Each session has an actor on the control thread, which ends it when its lease is over or somebody asks for that,
//! reports what it has done, and says why it ended; the node actor makes it anew when it panics. No step passes through
//! an actor. A session stepped by its owner over a stream costs that, its actor and its lanes' memory: no thread, no
//! descriptor. An owner on this machine may step through shared memory instead, which takes a thread. A session that
//! plays by itself has turns at the threads of workers, and none while it waits for its lanes. What decides is plain values that are given the time, public so that crate simulation can
//! join them to a cluster in virtual time: [`SessionTable`] and its [`NodeSession`]s, [`Turn`], [`OwnedSession`],
//! [`Registration`], [`Shipper`], [`HangWatch`] and [`BackOff`](rollhouse_core::BackOff).
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | control | own thread `rollhouse-control`, actix | ends when the node is dropped | the node shows as stuck |
//! | node actor | control | ends with it | made anew with back-off, and takes up the sessions that are there |
//! | session actor | control | ends with its session | made anew with back-off, and the session steps on; too often, and the session ends |
//! | rollout | control, stepped by workers; of this process, own thread `rollhouse-session-N` | ends its episodes as its token says, after the batch it is in | its exit says why; one that hangs is given up |
//! | link | control | says good-bye | dials again with back-off, made anew after a panic; sessions go on |
//! | pulse | control | ends with it | the node shows as stuck |
//! | call of the link | control: to the coordinator, and for it | given up | the link dials anew; the request is refused |
//! | caller | control: what a call that blocks waits for | ends with the node | the call ends with its patience |
//! | shipping | control | what is in flight stays in the spool | made anew with back-off, and knows what it knew |
//! | segment being shipped | control | it stays in the spool | tried again with back-off |
//! | file operation | tokio's threads for what blocks | runs to its end | tried again with back-off |
//! | write-out | tokio's threads for what blocks | runs to its end | what cannot be written is counted as lost |
//! | learning | own threads `rollhouse-learn`, while an env is learned or its workers start | runs to its end; nobody waits longer for it than its provider promises | the session is refused with the reason |
//! | data | own thread `rollhouse-data`, tokio | closes all connections | closes all connections and is made anew with back-off; sessions stay |
//! | connection | data | its streams end | closed; its sessions' leases run |
//! | attached session | data | the lease runs | the connection ends with the reason; the lease runs |
//! | command stream | data | the stream ends | the connection ends with the reason |
//! | watcher | data | the stream ends | the connection ends with the reason |
//! | attach | data | ends with the node | tries again after 100 ms, made anew after a panic |
//! | process at the attach socket | data | its thread is told to stop; the lease runs | the attachment ends; the lease runs |
//! | shared memory | own thread `rollhouse-shm-N`, one per session attached by memory | ends after the request it is in | a panic ends its session; one that hangs is given up |
//! | worker | own threads `rollhouse-worker`, those that may wait as many as are needed | ends after the job it is in | a panic ends its session; one that hangs is given up and replaced |
//!
//! Not a goal: knowing other nodes, and placing sessions; the coordinator does. Start reading at [`ClusterNode`],
//! then [`Rollout`].
#![forbid(unsafe_code)]

// What tests in the crate share with those beside it names the crate so.
#[cfg(test)]
extern crate self as rollhouse_node;

mod answer;
mod attach_socket;
mod attaching;
mod cancel;
mod causes;
mod cluster_config;
mod cluster_node;
mod command_stream;
mod commands;
mod connections;
mod data_time;
mod deadlines;
mod episodes;
mod executor;
mod exit;
mod figures;
mod fitness;
mod hosting;
#[cfg(test)]
mod injected;
mod joining;
mod learning;
mod link;
mod link_view;
mod live;
mod measured;
mod memory_owner;
mod node;
mod node_actor;
mod node_session;
mod over;
mod owned;
mod owned_handle;
mod parts;
mod plan;
mod player;
mod policies;
mod progress;
mod pulse;
mod registration;
mod renewal;
mod replay_session;
mod rollout;
mod seen_file;
mod serve;
mod session_actor;
mod session_handle;
mod session_places;
mod session_status;
mod ship_task;
mod shipper;
mod spool_owners;
mod standings;
mod stepped;
mod stepping;
mod stream;
mod table;
mod tally;
mod transport;
mod turn;
mod urgency;
mod watch;
mod watch_stream;
mod weighing;
mod worker_memory;

pub use attach_socket::AttachConfig;
pub use cancel::Cancel;
pub use cluster_config::{ClusterNodeConfig, RecordingConfig, ServingConfig, SteppingConfig};
pub use cluster_node::{ClusterNode, ClusterNodeError, MOVE_PATIENCE, StopReport};
pub use connections::ConnectionFigures;
pub use exit::{Exit, Gone, RolloutError};
pub use figures::{
    Counter, EnvFigures, Envs, Gauge, Histogram, LiveFigures, NodeFigures, Policies, PolicyFigures, Refusals,
    RequestFigures, Sum, ThreadFigures, Updates, VerdictFigures, WatchFigures,
};
pub use joining::{JoinError, Joining};
pub use link_view::{LinkState, RenewalState};
pub use node::{BeginError, MAX_ROLLOUTS, Node, RolloutHandle, StartError};
pub use node_session::{NodeSession, SessionAction, SessionEvent, SessionState};
pub use owned::{FrameRequest, MemoryFault, OwnedSession, RequestFault, Unanswered};
pub use parts::{Mishap, Part, PartExit, PartsHealth};
pub use plan::{MAX_SESSION_LANES, SessionPlan};
pub use player::{Move, MoveError, Player, PlayerView};
pub use progress::{Progress, ProgressSnapshot};
pub use registration::{ANSWER_DEADLINE, LinkAction, LinkEvent, Registration};
pub use renewal::{Renewal, RenewalAction, RenewalEvent};
pub use rollhouse_core::limits::{HANG_DEADLINE, HANG_SLACK};
pub use rollout::{Report, Rollout};
pub use seen_file::{keep_seen, read_seen};
pub use serve::ServeError;
pub use ship_task::{LOOK_EVERY, ShipFigures, Shipping, ShippingConfig, owner_parts};
pub use shipper::{Amount, Pace, ShipAction, ShipCounts, ShipEvent, Shipper, ShipperConfig};
pub use table::{Attachment, SessionTable};
pub(crate) use tally::Tally;
pub use transport::Transport;
pub use turn::{Turn, TurnOver};
pub use watch::{HangWatch, Verdict};
pub use weighing::NodeBudget;

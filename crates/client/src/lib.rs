//! The trainer's library: lanes of a cluster as one batch.
//!
//! A trainer connects to a coordinator ([`Cluster`]), asks it for a pool of lanes ([`Cluster::open_pool`]), and
//! steps them on the nodes they were placed on ([`Pool`]). Lanes of several nodes are one batch in a stable order,
//! with the engine's semantics; a batch lies in an arena, as an engine's does. [`AsyncCluster`] and [`AsyncPool`]
//! have the same calls on the caller's own tokio runtime.
//!
//! | background | runs on | on cancel | on error |
//! |---|---|---|---|
//! | thread `rollhouse-care`: drives the runtime of a [`Cluster`] while nobody calls | its own | ends with the last handle | does not happen: it decides and drives, nothing else |
//! | tasks of the QUIC library, one per connection and socket | the runtime, so the calling thread | connections are lost; leases end the sessions | the connection is lost, and made again by the next request |
//! | task that closes a pool that was dropped | the same | the pool ends with its leases | the same |
//!
//! Not a goal: deciding where lanes run (crate coordinator), stepping them (crates node and engine), choosing
//! actions. Start reading at [`Pool`], then `session.rs` and [`Retry`]; lanes of a lost
//! node: `recovery.rs`.
#![forbid(unsafe_code)]

mod address;
mod batch;
mod blocking;
mod caretaker;
mod check;
mod cluster;
mod commands;
mod driver;
mod error;
mod first_done;
mod in_memory;
mod inquiry;
mod join;
mod lockstep;
mod log;
mod memory_link;
mod network;
mod numbering;
mod pool;
mod recovery;
mod remote_disk;
mod retry;
mod session;
mod silence;
mod store;
mod transport;

pub use address::{Address, AddressError, DEFAULT_PORT, trust_of};
pub use blocking::{Cluster, Look, Pool};
pub use cluster::{AsyncCluster, ConnectOptions, DEFAULT_TIMEOUT, ask_again};
pub use error::{ConnectError, MethodError, OpenError, RequestError, StepError};
pub use log::{Keep, PastReader, SessionLog, Shown};
pub use numbering::Numbering;
pub use pool::{AsyncPool, PoolRequest};
pub use recovery::OnLoss;
pub use remote_disk::{BLOCK_BYTES, CACHE_BYTES, RemoteDisk, StoreReader};
pub use retry::{GiveUp, Patience, Retry, RetryAction, RetryEvent};
pub use silence::{INQUIRY_DEADLINE, Silence};
pub use transport::{Transport, UnknownTransport};

//! The trainer's library: lanes of a cluster as one batch.
//!
//! A trainer connects to a coordinator ([`Cluster`]), asks it for a pool of lanes ([`Cluster::open_pool`]), and
//! steps them on the nodes they were placed on ([`Pool`]). Lanes of several nodes are one batch in a stable order,
//! with the engine's semantics; a batch lies in an arena, as an engine's does. [`AsyncCluster`] and [`AsyncPool`]
//! have the same calls on the caller's own tokio runtime.
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | caretaker | own thread `rollhouse-care`: drives the runtime of a [`Cluster`] while nobody calls | ends with the last handle | a panic ends it: connections then live only while somebody calls |
//! | closing of a pool | the runtime, so the calling thread: for a pool that was dropped | the pool ends with its leases | the same |
//!
//! Not a goal: deciding where lanes run (crate coordinator), stepping them (crates node and engine), choosing
//! actions. Start reading at [`Pool`], then `session.rs` and [`Retry`]; lanes of a lost
//! node: `recovery.rs`.
#![forbid(unsafe_code)]

mod address;
mod alarm;
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
mod replay;
mod retry;
mod session;
mod silence;
mod store;
mod transport;
mod watch;

pub use address::{Address, AddressError, DEFAULT_PORT, trust_of};
pub use blocking::{Cluster, Look, Pool};
pub use cluster::{AsyncCluster, ConnectOptions, DEFAULT_TIMEOUT, ask_again, run_named};
pub use error::{ConnectError, MethodError, OpenError, RequestError, StepError, Unanswered};
pub use log::{Keep, PastReader, SessionLog, Shown};
pub use numbering::Numbering;
pub use pool::{AsyncPool, PoolRequest};
pub use recovery::OnLoss;
pub use remote_disk::{BLOCK_BYTES, CACHE_BYTES, RemoteDisk, StoreReader};
pub use replay::{AsyncReplay, Replay};
pub use retry::{GiveUp, Patience, Retry, RetryAction, RetryEvent};
pub use silence::{INQUIRY_DEADLINE, Silence};
pub use transport::{Transport, UnknownTransport};
pub use watch::{AsyncWatch, Watch, WatchError};

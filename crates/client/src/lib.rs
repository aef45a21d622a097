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
//! | owner of a shared pool | the caller's runtime: owns the pool of a [`SharedPool`] until it is closed or nobody has a handle | the pool ends with its leases, and callers get [`SharedError::Failed`] | the same |
//! | player of rollouts | own thread `rollhouse-play`: owns the lanes of [`Rollouts`] and plays what is asked of it | ends after the fragment that it plays | it ends, and the next call returns the error |
//! | closing of a pool | the runtime, so the calling thread, or own thread `rollhouse-close` if that is one of another runtime: for a pool that was dropped | the pool ends with its leases | the same |
//!
//! Not a goal: deciding where lanes run (crate coordinator), stepping them (crates node and engine), choosing
//! actions. Start reading at [`Pool`], then [`Session`], which decides, and [`PoolSession`], which drives it over either
//! kind of `link.rs` and whatever [`Carrier`] there is.
#![forbid(unsafe_code)]

// Helpers of the tests name it as others do.
#[cfg(test)]
extern crate self as rollhouse_client;

mod address;
mod alarm;
mod batch;
mod blocking;
mod caretaker;
mod carrier;
mod check;
mod cluster;
mod commander;
mod commands;
mod driver;
mod error;
mod evaluation;
mod first_done;
mod in_memory;
mod inquiry;
mod join;
mod link;
mod lockstep;
mod log;
mod network;
mod numbering;
mod paced;
mod playing;
mod policies;
mod pool;
mod pool_session;
mod remote_disk;
mod replay;
mod retry;
mod rollouts;
mod session;
mod settling;
mod shared_pool;
mod silence;
mod store;
#[cfg(test)]
#[path = "../tests/nodes/mod.rs"]
#[allow(dead_code, reason = "each test uses some of it")]
mod test_nodes;
mod transport;
mod under_way;
mod watch;
mod wire;

pub use address::{Address, AddressError, DEFAULT_PORT, trust_of};
pub use batch::{Batch, Target};
pub use blocking::{Cluster, Pool};
pub use carrier::{Carrier, Line, LinkAnswer, LinkLost, NoMemory, OfferedMemory, SessionStream};
pub use cluster::{AsyncCluster, ConnectOptions, DEFAULT_TIMEOUT, MAX_LISTED, ask_again, run_named};
pub use driver::Look;
pub use error::{ConnectError, MethodError, OpenError, RequestError, StepError, Unanswered};
pub use evaluation::{Difference, first_episodes};
pub use first_done::Receiving;
pub use inquiry::Inquiry;
pub use log::LaneFlags;
pub use policies::FetchedPolicy;
pub use pool::{AsyncPool, PoolRequest};
pub use pool_session::{PoolSession, Way};
pub use remote_disk::{BLOCK_BYTES, CACHE_BYTES, RemoteDisk, StoreReader};
pub use replay::{AsyncReplay, Replay};
pub use rollouts::{
    EmbeddedLanes, MAX_EPISODE_STEPS, MAX_EPISODES_BYTES, MAX_FRAGMENT_STEPS, MAX_STALENESS, PlayedBatch,
    PlayedEpisode, PlayedLanes, Rollouts, RolloutsError, RolloutsOptions, Update,
};
pub use session::{
    Answered, COORDINATOR_AWAY, Gone, NoPlace, OnLoss, PLACE_WITHIN, Recipe, RequestBody, Session,
    SessionAction, SessionEvent, Trouble,
};
pub use shared_pool::{MAX_WAITING_OF_ONE, MAX_WAITING_REQUESTS, SharedError, SharedLanes, SharedPool};
pub use silence::INQUIRY_DEADLINE;
pub use transport::{Transport, UnknownTransport};
pub use under_way::{Ready, SessionQueue};
pub use watch::{AsyncWatch, Watch, WatchError};

//! The host of worker processes, which step lanes for this process.
//!
//! A [`Host`] starts worker processes, hands them batches through a mapping that it shares with each, notices at once when
//! one dies and at its deadline when one hangs, and starts it again with back-off. A [`Link`] is the worker's end.
//!
//! ```text
//! Host                                                   worker process
//!   launch   spawn, HELLO ─────────── socket ───────────▶  Link::open; makes its envs
//!            CONNECTING   ◀────────── socket ────────────  Link::connecting, if they are clients of what is not there
//!            READY        ◀────────── socket ────────────  Link::ready
//!            ATTACH       ─────────── socket ───────────▶  maps its memory
//!   post     command line ────────── mapping ───────────▶  Link::receive
//!   wait     reply line   ◀───────── mapping ────────────  Link::reply
//! ```
//!
//! A program that others have started may be a worker, too: it connects to a [`WorkerSocket`] in a folder that nobody else
//! can enter, shows the key that lies there, and is sent HELLO ([`Link::connect`]). Who is refused is sent why
//! ([`JoinRefusal`]). Nobody ends it: a worker that is given up, or whose host ends, is disconnected.
//!
//! Commands and replies are a number and bytes, whose meaning is the caller's. Nothing here needs the program
//! that runs inside the worker: a node hosts Python workers through this crate without an interpreter of its
//! own.
//!
//! Envs that are learned when one is asked for have an [`EnvProvider`]. [`PythonHost`] is the one of Python packages. It makes
//! env entries of a host: lanes that finish when they finish, stepped by workers in Python, to which all
//! is said in JSON and in shared memory. What a worker says or writes is checked before it is believed.
//!
//! [`PluginHost`] does the same for plug-ins that are not trusted. Their workers run [`serve_plugin`] and step blocks of
//! lanes, each in a slot of the memory shared with the worker.
//!
//! [`OwnWorkers`] are workers of the process's own, which it trusts as itself and which say more than rows. No node has
//! them.
//!
//! All of them are workers of one `WorkerPool` (`pool.rs`), which starts, commands, awaits and ends them and counts their
//! losses. Its protocol says what commands have and what is known of the lanes: `LaneProtocol` with the messages of Python
//! workers or of one's own, and `BlockProtocol` of plug-ins. `WorkerBlock` makes lanes of any of them.
//!
//! Hosts that are given clones of one [`Launcher`] share its bound on concurrent launches.
//!
//! No worker reaches another's memory, and one that is started again gets a new one: what a worker that has run wild
//! writes, and what a process writes that it left behind, is seen by nobody but the host, which checks it.
//!
//! Nothing outlives the host: a worker watches its parent and ends itself and all that it started when that is gone, and
//! the host ends both before it forgets a worker. What a worker started is its control group, where this process may make
//! one, else its process group, its descendants and whatever has its mark in its environment. Descriptors are passed explicitly;
//! memories are memfds, so no file stays behind.
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | kept program | own thread `rollhouse-kept`, while somebody keeps a program | ends the program and what it started | a program that ends is started again after a pause |
//! | learning | own thread `rollhouse-learn` of a command, while an env is learned | runs to its end; nobody waits longer for it than its provider promises | the env is refused with the reason |
//! | watch | thread `rollhouse-watch` of the worker process | ends with the process | ends the process and what it started, as it does when the parent is gone |
//!
//! Not a goal: other operating systems than Linux. Start reading at [`Supervisor`], which decides, then [`Host`], which
//! acts; then `pool.rs`; for Python envs at [`PythonHost`], then `workforce.rs`, which has the states of a lane; for plug-ins
//! at [`PluginHost`], then `plugin/blocks.rs`.
#![forbid(unsafe_code)]

mod census;
mod children;
mod config;
mod connect_watch;
mod control;
mod control_group;
mod descendants;
mod description;
mod error;
mod hashing;
mod host;
mod kept_program;
mod launcher;
mod link;
mod log;
mod message;
mod plugin;
mod poller;
mod pool;
mod process;
mod provider;
mod python;
mod record;
mod recorded;
mod remarks;
mod spread;
mod supervisor;
mod try_out;
mod worker_block;
mod worker_slot;
mod worker_socket;
mod workforce;

pub use census::{Census, Counted, Holder, MAX_LOOKED_AT};
pub use children::{adopt_orphans, reap_orphans};
pub use config::{Environment, HostConfig, MAX_WORKERS, Output, Program, WorkerSource};
pub use connect_watch::{Connect, ConnectWatch};
pub use control::INLINE_BYTES;
pub use description::{DescriptionError, Refusal, RefusalKind, check_options};
pub use error::{HostError, LinkError};
pub use host::{Host, Reply, Until, Waited, WorkerEvent};
pub use kept_program::KeptProgram;
pub use launcher::Launcher;
pub use link::{Command, HELLO_WITHIN, Link, MAX_TOLD};
pub use message::MAX_MESSAGE_BYTES;
pub use plugin::{PluginHost, serve_plugin};
pub use pool::Gone;
pub use provider::{EnvProvider, EnvProviders, EnvRequest, InfoRequest, LearnError, LearnReason, LearnedEnv};
pub use python::{PythonError, PythonHost};
pub use record::Places;
pub use recorded::{MAX_KNOWN, RecordedEnvs};
pub use remarks::{BadInfo, MAX_INFO_BYTES, MAX_INFOS};
pub use supervisor::{Action, Cause, Event, Restart, Supervisor, WorkerState};
pub use try_out::TryOutError;
pub use worker_slot::Memories;
pub use worker_socket::{JOIN_WITHIN, JoinRefusal, MAX_JOINING, WorkerSocket};
pub use workforce::{Answers, OwnWorkers, Said, Why};

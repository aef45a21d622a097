//! Runs a whole cluster in one thread and in virtual time. Its worst minutes pass in milliseconds, and can be repeated
//! exactly.
//!
//! A [`World`] joins the very values that decide in a real cluster: the coordinator's `Cluster`, `Store` and
//! `DataFolder`; a node's `Registration`, `SessionTable`, `NodeSession`s, `Turn`, `OwnedSession`, `Shipper` and recorder; a trainer's
//! `PoolSession` with all that decides in it, and `ask_again`. Network, disks and clocks are simulated; what stands
//! between them and those values here takes the place of the tasks and threads of the real processes, and decides
//! nothing.
//!
//! After every event the invariants hold, or the world panics:
//!
//! - what was sealed is on the node's disk until the store has it, and in the store after that, once;
//! - a request is carried out once, by the owner that attached last, and for no placement that its owner has left;
//! - answers are the numbers that the same lanes give here, wherever they went on;
//! - a lane that is sent alone is answered once, and none that is done waits for one that is slow;
//! - what an owner saw end is in the store;
//! - lanes are counted once and belong to somebody, leases end, and quotas and capacities hold;
//! - a placement is made once, and not closed while its owner steps it;
//! - the coordinator answers each request in its time;
//! - in the end a pool of all lanes opens;
//! - the requests of a hostile tenant change nothing of what others have, and nothing at all if they are refused;
//! - an owner whose token is revoked gets no place, and takes none from others;
//! - segments offered are shipped, dropped or waiting.
//!
//! One seed is one course of events: the same seed gives the same trace. [`Bug`] plants faults in the program to see
//! that they are found.
//!
//! A trainer whose machine is a node's steps that node's lanes through memory: the arenas are real ones, and what wakes either
//! side is a message, which faults stop as they stop any.
//!
//! Not a goal: the network's bytes and QUIC itself, threads, and speed; tests with real processes have those. Never a
//! part of a release. Start reading at [`World`], then `node.rs`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "it tells who replays a seed what happens")]

mod bug;
mod call;
mod carrier;
mod cast;
mod chaos;
mod connection;
mod context;
mod coordinator;
mod fault;
mod first_done;
mod forger;
mod hosted;
mod hostile;
mod late;
mod ledger;
mod message;
mod network;
mod node;
mod owners;
mod placements;
mod play;
mod pool_session;
mod random;
mod reference;
mod request;
mod spool;
mod tickets;
mod trainer;
mod world;

pub use bug::Bug;
pub use fault::FaultKinds;
pub use network::{LINKS, Link, Site};
pub use world::{Outcome, Setup, World};

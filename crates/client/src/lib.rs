//! The trainer's library: lanes of a cluster as one batch.
//!
//! A trainer connects to a coordinator, asks it for a pool of lanes, and steps them on the nodes they were placed
//! on. Lanes of several nodes are one batch in a stable order, with the engine's semantics.
//!
//! Not a goal: deciding where lanes run (crate coordinator), stepping them (crates node and engine).
#![forbid(unsafe_code)]

mod address;
mod batch;
mod caretaker;
mod check;
mod join;
mod retry;

pub use address::{Address, AddressError, CaSource, DEFAULT_PORT};
pub use retry::{GiveUp, Retry, RetryAction, RetryEvent};

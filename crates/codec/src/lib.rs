//! Protocols of other simulators: bytes to values and back.
//!
//! Each folder has one protocol: its messages, its words, its limits and its files. Both sides use it, whoever takes the
//! place of such a simulator and whoever speaks to one. What is read comes from strangers: lengths and counts are checked
//! before anything is allocated for them, and an error says the value and its limit.
//!
//! Not a goal: sockets, clocks and files (crate gate has them), and what a message does to a lane. Start reading at
//! [`openra`], or at `openenv` (feature `openenv`).
#![forbid(unsafe_code)]

#[cfg(feature = "openenv")]
pub mod openenv;
pub mod openra;

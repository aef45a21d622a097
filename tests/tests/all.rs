//! Tests that start processes, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod archive;
mod archiving;
mod audit;
mod bad_input;
mod bench;
mod chaos;
mod cluster;
mod damage;
mod escapes;
mod exports;
mod folders;
mod fork;
mod hostile;
mod hosts;
mod interrupted;
mod joining;
mod lanes;
mod main_job;
mod memory;
mod operations;
mod operators;
mod owners;
mod parts;
mod plugins;
mod printed;
mod probes;
mod pruning;
mod readme;
mod replay_sessions;
mod restoring;
mod resume;
mod seclusion;
mod terminal;
mod watch;
mod weights;

//! Tests of what the crate promises, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod calls;
mod commands;
mod connecting;
mod double;
mod first_done;
mod lost_lanes;
mod memory;
#[cfg(target_os = "linux")]
mod nodes;
mod pool;
mod rollouts;
mod session;
mod shared_pool;
mod store;

#[path = "../../replay/tests/stage/mod.rs"]
mod stage;

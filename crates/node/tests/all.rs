//! Tests of what the crate promises, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod cluster;
mod commands;
mod flood;
mod idle;
mod memory;
mod replays;
mod rollout;
mod serving;
mod shipping;
mod waiting;
mod worlds;

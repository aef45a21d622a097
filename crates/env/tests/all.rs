//! Tests of what the crate promises, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod driver;
mod dynamics;
mod frames;
mod golden;
mod grid;
mod identity;
mod per_lane;
mod registry;

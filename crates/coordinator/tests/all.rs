//! Tests of what the crate promises, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod archiving;
mod deciding;
mod questions;
mod serving;
mod shipped;
mod store;

#[path = "../../replay/tests/stage/mod.rs"]
mod stage;

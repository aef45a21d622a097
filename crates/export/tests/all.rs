//! Tests of what the crate promises, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod browser;
mod forms;
mod messages;
mod tables;

#[path = "../../replay/tests/stage/mod.rs"]
mod stage;

//! Tests of what the crate promises, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod hand;
mod screens;
mod top;

#[path = "../../replay/tests/stage/mod.rs"]
mod stage;

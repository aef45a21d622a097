//! Tests of what the crate promises, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod guests;
mod host;
mod lanes;
mod plugin_calls;
mod plugins;
mod stage;

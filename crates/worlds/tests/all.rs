//! Tests of what the crate promises, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod games;
mod hostile;
mod stage;
mod stand;

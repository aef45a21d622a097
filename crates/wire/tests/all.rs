//! Tests of what the crate promises, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod attach_socket;
mod common;
mod fuzz;
mod golden;
mod hostile;
mod identities;
mod messagepack;
mod restart;
mod samples;
mod strangers;
mod untaken;

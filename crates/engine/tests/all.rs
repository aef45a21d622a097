//! Tests of what the crate promises, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod autoreset;
mod calls;
mod commands;
mod common;
mod drawn_options;
mod first_done;
mod given_options;
mod late;
mod late_panics;
mod lockstep;
mod noting;
mod paced;
mod panics;
mod pauses;
mod recording;
mod reports;
mod resume;
mod shared_memory;

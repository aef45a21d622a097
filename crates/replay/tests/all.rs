//! Tests of what the crate promises, in one program: each more is linked for seconds.
#![allow(missing_docs, clippy::unwrap_used, reason = "test code")]

mod agents;
mod coded_runs;
mod cut_short;
mod difference;
mod ending;
mod envs;
mod faults;
mod forged;
mod frames;
mod golden;
mod labels;
mod library;
mod model;
mod noted;
mod outages;
mod part;
mod pauses;
mod portable;
mod prune;
mod queries;
mod real_disk;
mod round_trip;
mod seek;
mod size;
mod spool;
mod stage;
mod versions;

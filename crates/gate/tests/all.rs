//! The gate over a socket, with worlds that fail.

mod client;
mod failing_lanes;
mod failures;
mod sessions;

//! What the cluster decides, shown on the value itself: no sockets, no clock.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod alike;
mod awaiting;
mod behind;
mod boasting;
mod claims;
mod keeping;
mod learning;
mod pages;
mod refusing;
mod replacing;
mod replays;
mod resuming;
mod revoking;
mod stage;
mod tenants;
mod waiting;
mod weights;

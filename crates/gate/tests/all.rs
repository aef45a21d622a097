//! Gates over sockets, with worlds that fail.

mod client;
mod failing_lanes;
mod failures;
mod openenv_client;
mod openenv_failures;
mod openenv_sessions;
mod sessions;

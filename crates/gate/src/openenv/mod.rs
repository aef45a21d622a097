//! OpenEnv's protocol, with lanes of any env behind it.
//!
//! A socket of `/ws` has a lane for as long as it lives; `/reset` and `/step` make one for their answer alone, as OpenEnv's own
//! server does. `Player` is a lane and its episode, `Sessions` the lanes that `/mcp` has created and no socket has, and
//! `OpenenvServer` knows how many there may be. `routes` and `http` alone know HTTP, `socket` WebSocket.

mod counts;
mod http;
mod player;
mod routes;
mod rpc;
mod server;
mod serving;
mod sessions;
mod socket;

pub use server::OpenenvSettings;
pub(crate) use server::{MAX_CLOSERS, OpenenvServer};

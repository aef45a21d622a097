//! Listeners that speak other simulators' protocols: their clients play our envs.
//!
//! A [`Gate`] listens, and the sessions of its clients are lanes ([`Lanes`]). Each protocol has a folder; its
//! messages are in crate codec. The listener outlives every session and every failure of one.
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | gate | own thread `rollhouse-gate`, tokio | takes nothing new, ends streams, answers what is under way, closes worlds | its process ends |
//! | listener | gate | its socket is closed | tried again after 100 ms |
//! | reaper of sessions | gate | ends with the gate | ends with the gate |
//! | making of a session | gate | the session is never made | the session is never made, and the log says why |
//! | work on a session | tokio's threads for what blocks: of a bridge one for each core and four more, of OpenEnv one for each session and four more | runs to its end | a panic ends the session |
//! | connection | gate | ends after the request that is answered | ends with the connection |
//! | socket | gate | ends after the message that is answered, and its lane with it | ends with its lane; others go on |
//! | stream | gate | the stream ends | the stream ends with the reason |
//!
//! Not a goal: what messages look like (crate codec), stepping lanes (crate engine), placing them (crate client). Start
//! reading at [`Gate`], then `openra/bridge.rs` or `openenv/server.rs`.
#![forbid(unsafe_code)]

mod bearer;
mod cluster_lanes;
mod connection;
mod gate;
mod lanes;
mod names;
pub mod openenv;
pub mod openra;

pub use cluster_lanes::ClusterLanes;
pub use connection::END_WITHIN;
pub use gate::{Gate, GateError};
pub use lanes::{BeginRecording, EmbeddedLanes, Lane, LaneError, LaneRow, Lanes};

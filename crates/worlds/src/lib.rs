//! Worlds of other programs, as lanes that finish when they finish.
//!
//! Each protocol has a folder; its messages are in crate codec. A world is a value that says what is asked of the program
//! when, and takes its answers; what has sockets and clocks is beside it.
//!
//! Not a goal: what messages look like (crate codec), serving such protocols (crate gate), Python envs (crate host). Start
//! reading at `openra/game.rs`.
#![forbid(unsafe_code)]

pub mod openra;

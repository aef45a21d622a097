//! Worlds of other programs, as lanes that finish when they finish.
//!
//! Each protocol has a folder; its messages are in crate codec. A world is a value that says what is asked of the program
//! when, and takes its answers; what has sockets and clocks is beside it.
//!
//! | thread or task | runs on | on cancel | on error |
//! |---|---|---|---|
//! | driver of worlds | own thread `rollhouse-world`, tokio: has the games of a session's lanes | has sessions ended within 2 s | its lanes are lost, and do not come back |
//! | dialling | driver of worlds | ends with it | tried again after a pause |
//! | connection to an engine | driver of worlds | ends with it | games that have begun are lost, and it is dialled anew |
//! | call of an engine | driver of worlds | nobody hears its answer | its game is told |
//!
//! Not a goal: what messages look like (crate codec), serving such protocols (crate gate), Python envs (crate host). Start
//! reading at `openra/game.rs`, then `openra/driver.rs`.
#![forbid(unsafe_code)]

pub mod openra;

//! Where a batch lives: columns in memory that one owner (the trainer's side) and several shares (the threads
//! that step lanes) take turns with, without locks and without copies.
//!
//! ```text
//! owner: actions_mut, frame        start()            wait()           frame
//!                                    │ posted += 1      ▲
//!                                    ▼                  │ done = posted, each share
//! share:                           begin() ── Rows ── drop
//! ```
//!
//! Whose turn it is decides who may touch memory, and both sides are checked at run time, so that the API is
//! safe: the owner reaches columns only while no step is in flight, a share only between the owner's
//! [`Arena::start`] and the end of its own [`Rows`].
//!
//! Every output column has two slots that alternate, so a row read from one frame keeps its value until the
//! second next step.
//!
//! [`SharedMemory`] is memory that other processes map: bytes and words without a layout of its own.
//!
//! Not a goal: what the columns mean (the engine's), and an arena's layout on shared memory (not built yet).
//! Start reading at [`Arena`].

mod arena;
mod columns;
mod memory;
mod shared;
mod wait;

pub use arena::{Arena, ArenaError, BlockRows, Frame, MAX_ARENA_BYTES, ObsRefs, PreviousObs, Rows, Share};
pub use columns::BatchColumns;
pub use shared::SharedMemory;
pub use wait::{Spin, TimedOut};

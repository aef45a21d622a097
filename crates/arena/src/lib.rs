//! The memory of a batch: columns with which one owner (the trainer's side) and several shares (the threads that step
//! lanes) take turns, without locks and without copies.
//!
//! ```text
//! owner: actions_mut, frame        start()            wait()           frame
//!                                    │ posted += 1      ▲
//!                                    ▼                  │ done = posted, each share
//! share:                           begin() ── Rows ── drop
//! ```
//!
//! The turn decides who may touch memory, and both sides are checked at run time, so that the API is safe: the owner
//! reaches columns only while no step is in flight, a share only between the owner's [`Arena::start`] and the end of
//! its own [`Rows`].
//!
//! Every output column has two slots that alternate, so a row read from one frame keeps its value until the
//! second next step.
//!
//! A [`Placement`] says in which memory the columns lie: in one allocation, or in memory that another process maps. The
//! latter is a [`SharedArena`] with two files, each written by one side only:
//!
//! ```text
//! node                                         trainer
//! SharedArena ── outputs: frames, answers ──▶  AttachedArena   (maps them to be read)
//! ServingEnd  ◀── inputs: actions, requests ─  AttachedArena   (the node copies them out, then looks at the copy)
//! ```
//!
//! docs/arena-layout.md gives every offset. What a peer can write is reached by atomics only and never a Rust
//! reference; a node's engine steps in the outputs, which nobody else can map to be written. [`SharedMemory`] by
//! itself is bytes and words without a layout.
//!
//! Background tasks: none. Not a goal: what the columns mean (the engine's), how descriptors travel and whose process
//! is alive (the node's and the client's). Start reading at [`Arena`], then [`ServingEnd`] and [`AttachedArena`].

mod arena;
mod attached;
mod attached_lanes;
mod attached_notes;
mod bell;
mod columns;
mod fetching;
mod files;
mod header;
mod mapping;
mod memory;
#[cfg(test)]
mod model;
mod notes;
mod patience;
mod placement;
mod ring;
mod sent_lanes;
mod sequence;
mod serving;
mod serving_lanes;
mod serving_notes;
mod shared;
mod shared_arena;
mod shared_columns;
mod words;

pub use arena::{Arena, BlockRows, Frame, ObsRefs, PreviousObs, Rows, Share, Turns};
pub use attached::{Answer, AttachedArena, TrainerError};
pub use attached_lanes::{LaneRow, ReadyLanes};
pub use columns::BatchColumns;
pub use files::{ArenaIdent, AttachError, Expected, MAX_NOTE_BYTES};
pub use header::{LAYOUT_VERSION, Word};
pub use notes::{BEGAN_BYTES, FrameNotes, HASH_BYTES, LaneNote};
pub use patience::Patience;
pub use placement::{ArenaError, MAX_ARENA_BYTES, Placement};
pub use ring::{DEFAULT_RING_BYTES, MAX_RING_BYTES, MIN_RING_BYTES, RingError};
pub use sequence::TimedOut;
pub use serving::{PeerError, Request, ResetColumns, ServeError, ServingEnd, ServingRemote};
pub use serving_lanes::LaneRows;
pub use shared::SharedMemory;
pub use shared_arena::SharedArena;
pub use shared_columns::{ColumnPlace, SharedColumns};

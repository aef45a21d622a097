//! Places beside a store in which recordings are kept: folders and object storage.
//!
//! A [`Target`] is a folder or a bucket that holds objects under names. `docs/replay-format.md`, section 6, describes
//! the objects: each sealed segment as it is; beside it a [`Label`] with its size and checksum, which is written last,
//! so that a segment without a label was not transferred completely; and for each export a [`Manifest`] that lists its
//! segments. [`Shelf`] puts segments there and takes them out again, checked.
//!
//! All of it blocks, for the disk or for the network. A target has a runtime of its own for object storage, so that any
//! thread that may block can use it, but no thread of a runtime.
//!
//! Not a goal: deciding what to keep, and for how long. Nothing is deleted here either: the operator decides how long
//! recordings are kept. Start reading at [`Target`], then [`Shelf`].
#![forbid(unsafe_code)]

mod error;
mod folder;
mod label;
pub mod limits;
mod manifest;
#[cfg(feature = "s3")]
mod objects;
mod outgoing;
mod shelf;
mod target;
mod target_options;

pub use error::{Flaw, TargetError, TargetFault};
pub use label::{Checked, Label, SegmentId};
pub use manifest::Manifest;
pub use outgoing::{Carried, LOCAL, Outgoing, OutgoingError, Selection};
pub use shelf::{Kept, Shelf};
pub use target::Target;
pub use target_options::TargetOptions;

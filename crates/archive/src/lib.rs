//! Where recordings are kept beside a store: folders and object storage.
//!
//! A [`Target`] is a folder or a bucket in which objects stand under names. What is kept there is described in
//! `docs/replay-format.md`, section 6: each sealed segment as it is, beside it a [`Label`] with its size and checksum,
//! which is written last, so that a segment without a label was not carried to its end; and for each export a
//! [`Manifest`] that says what belongs to it. [`Shelf`] puts segments there and takes them out again, checked.
//!
//! All of it blocks, for the disk or for the network; object storage is reached by a runtime of the target's own, so
//! that it may be used from any thread that may block and from no thread of a runtime.
//!
//! Not a goal: what to keep, and for how long. Nor is anything deleted here: how long it is kept is its operator's to say.
//! Start reading at [`Target`], then [`Shelf`].
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

pub use error::{Flaw, TargetError, TargetFault};
pub use label::{Checked, Label, SegmentId};
pub use manifest::Manifest;
pub use outgoing::{Carried, LOCAL, Outgoing, OutgoingError, Which};
pub use shelf::{Kept, Shelf};
pub use target::{Target, TargetOptions};

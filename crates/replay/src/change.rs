//! This folder changes what is recorded otherwise than by recording: it imports, copies out, records again and prunes.

pub(crate) mod import;
pub(crate) mod one_segment;
pub(crate) mod portable;
pub(crate) mod prune;
pub(crate) mod rerecord;

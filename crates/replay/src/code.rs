//! This folder holds what is recorded, as values and as the bytes of records. Nothing in it knows a file.

pub(crate) mod buffer;
pub(crate) mod buffer_pass;
pub(crate) mod calls;
pub(crate) mod chunk;
pub(crate) mod codec;
pub(crate) mod coded_run;
pub(crate) mod coding;
pub(crate) mod encode;
pub(crate) mod episode;
pub(crate) mod events;
pub(crate) mod extent;
pub(crate) mod frame;
pub(crate) mod frame_chunk;
pub(crate) mod lanes;
pub(crate) mod layout;
pub(crate) mod noted;
pub(crate) mod own_options;
pub(crate) mod packed;
pub(crate) mod packed_column;
pub(crate) mod planes;
pub(crate) mod record;
pub(crate) mod repeated;
pub(crate) mod run;
pub(crate) mod run_record;
pub(crate) mod versions;
pub(crate) mod walk;

//! Writes recorded episodes out for other programs.
//!
//! [`write()`] goes through an episode a few times, each from its first step on, and writes each step in a [`Format`]
//! to anything that accepts bytes. The output is written front to back, so that a pipe will do. The memory in use does
//! not grow with the episode beyond its recording: pictures come and go one by one.
//!
//! Not a goal: choosing episodes, naming files and showing progress; those are the caller's. Start reading at
//! [`write()`].
#![forbid(unsafe_code)]

mod error;
mod film;
mod format;
mod gif;
mod html;
mod jsonl;
#[cfg(feature = "mcap")]
mod mcap;
mod names;
mod noted;
mod npz;
mod palette;
#[cfg(feature = "parquet")]
mod parquet;
mod pictures;
mod png;
mod settings;
mod watch;
mod write;
mod zip;

pub use error::ExportError;
pub use format::Format;
#[cfg(feature = "parquet")]
pub use parquet::{LeftOut, ParquetFile};
pub use settings::{MAX_FPS, Settings};
pub use watch::Watch;
pub use write::write;

//! The native half of the `rollhouse` Python package.
//!
//! Start reading in `python/rollhouse/__init__.py`: that is the interface. This crate holds what Python should
//! not do itself: the engine, the arrays over its memory, and recordings.

mod episodes;
mod replays;

use pyo3::prelude::*;

/// `rollhouse._native`.
#[pymodule]
mod _native {
    /// The package's version.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use super::episodes::{EpisodeInfo, read_episodes};
    #[pymodule_export]
    use super::replays::Recordings;
}

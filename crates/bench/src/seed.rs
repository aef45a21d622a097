//! The seed of everything that is measured.

/// The seed of all benches: any will do, but all step the same episodes.
pub(crate) const SEED: u64 = 1;

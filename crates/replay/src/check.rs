//! This folder checks recordings: it verifies, compares and repairs them.

pub(crate) mod difference;
pub(crate) mod relive;
pub(crate) mod repair;
pub(crate) mod verification;
pub(crate) mod verify;
pub(crate) mod verify_library;

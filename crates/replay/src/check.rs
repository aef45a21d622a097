//! This folder checks recordings: it verifies, compares and repairs them.

pub(crate) mod difference;
pub(crate) mod relive;
pub(crate) mod repair;
pub(crate) mod verify;

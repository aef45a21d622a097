//! Asking a session to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that whoever holds a clone may raise and that a session reads once per batch. It is never lowered.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Shares a flag that something else raises, such as a signal handler.
    pub const fn shared(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Asks for the end. Does not wait for it.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end was asked for.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: the flag publishes nothing but itself.
        self.0.load(Ordering::Relaxed)
    }
}

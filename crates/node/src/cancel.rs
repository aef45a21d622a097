//! Asking a session to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rollhouse_core::Interruption;

/// A flag that whoever holds a clone may raise and that a session reads once per batch. It is never lowered.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    asked: Arc<AtomicBool>,
    evicted: Arc<AtomicBool>,
}

impl Cancel {
    /// Shares a flag that something else raises, such as a signal handler.
    pub fn shared(flag: Arc<AtomicBool>) -> Self {
        Self { asked: flag, evicted: Arc::default() }
    }

    /// Asks for the end; open episodes end as `cancelled`. Does not wait for it.
    pub fn cancel(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Asks for the end because the node takes its lanes back; open episodes end as `evicted`. Does not wait for
    /// it.
    pub fn evict(&self) {
        self.evicted.store(true, Ordering::Relaxed);
        // Release: whoever sees that the end was asked for sees why.
        self.asked.store(true, Ordering::Release);
    }

    /// How open episodes end.
    pub(crate) fn interruption(&self) -> Interruption {
        // Acquire: pairs with the release in `evict`.
        let asked = self.asked.load(Ordering::Acquire);
        if asked && self.evicted.load(Ordering::Relaxed) {
            Interruption::Evicted
        } else {
            Interruption::Cancelled
        }
    }

    /// Whether the end was asked for.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: the flag publishes nothing but itself.
        self.asked.load(Ordering::Relaxed)
    }
}

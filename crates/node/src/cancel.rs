//! A session's one token, which is raised to end the session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rollhouse_core::Interruption;
use tokio::sync::watch;

/// A flag that every holder of a clone may raise, once and with the cause. It is never lowered.
///
/// Every session has one from the moment it is opened. Its goal, its owner, its lease, its coordinator and its node end
/// it by raising it ([`SessionTable::begin_end`](crate::SessionTable::begin_end)); whatever was queued for the session,
/// in whichever queue, looks at it when its turn comes and does nothing. A session that plays by itself reads it once
/// per batch.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    raised: Arc<AtomicBool>,
    /// How open episodes end, once somebody has asked for the end with a cause. Whoever waits for the end sleeps on it.
    cause: watch::Sender<Option<Interruption>>,
}

impl Cancel {
    /// Wraps a flag that something else raises, such as a signal handler.
    pub fn shared(flag: Arc<AtomicBool>) -> Self {
        Self { raised: flag, ..Self::default() }
    }

    /// Asks for the end; open episodes end as `cancelled`. Does not wait for it.
    pub fn cancel(&self) {
        self.end(Interruption::Cancelled);
    }

    /// Asks for the end; open episodes end as `cause` says, or as an earlier request said. Does not wait for it.
    pub fn end(&self, cause: Interruption) {
        self.cause.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(cause);
            is_first
        });
        // Release: whoever sees that the end was asked for sees why.
        self.raised.store(true, Ordering::Release);
    }

    /// Waits until the end is asked for; a flag that something else raises is not noticed. Cancellation-safe.
    pub(crate) async fn raised(&self) {
        // The sender is here.
        drop(self.cause.subscribe().wait_for(Option::is_some).await);
    }

    /// Returns the flag that is raised, for those that need no reason.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.raised)
    }

    /// Returns how open episodes end.
    pub(crate) fn interruption(&self) -> Interruption {
        // Acquire: pairs with the release in `end`.
        let cause = if self.raised.load(Ordering::Acquire) { *self.cause.borrow() } else { None };
        cause.unwrap_or(Interruption::Cancelled)
    }

    /// Returns whether the end was asked for.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: the flag publishes nothing but itself.
        self.raised.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_is_kept_and_a_flag_raised_from_outside_cancels() {
        let token = Cancel::default();
        assert!(!token.is_cancelled());
        token.clone().end(Interruption::Disconnected);
        token.end(Interruption::Evicted);
        assert!(token.is_cancelled());
        assert_eq!(token.interruption(), Interruption::Disconnected);
        let flag = Arc::new(AtomicBool::new(false));
        let token = Cancel::shared(Arc::clone(&flag));
        flag.store(true, Ordering::Relaxed);
        assert!(token.is_cancelled());
        assert_eq!(token.interruption(), Interruption::Cancelled);
    }
}

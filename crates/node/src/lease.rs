//! A session's lease: the time for which it is kept for an owner that is not heard of.

use std::time::Duration;

/// One session's lease. Pure: `now` is any clock that only goes forward.
///
/// ```text
/// running --attached--> held --detached--> running --its length passes--> over
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    length: Duration,
    /// Number of attachments so far: it tells a stream that ended from the one that took over.
    attachments: u64,
    /// Time since which nobody is attached.
    alone_since: Option<Duration>,
}

impl Lease {
    /// Makes the lease of a session that is opened at `now` and waits for its owner.
    pub(crate) const fn new(now: Duration, length: Duration) -> Self {
        Self { length, attachments: 0, alone_since: Some(now) }
    }

    /// Notes that an owner attached. Returns the number of the attachment, which ends the one before.
    pub(crate) const fn attached(&mut self) -> u64 {
        self.attachments += 1;
        self.alone_since = None;
        self.attachments
    }

    /// Notes that the stream of that attachment ended. Nothing happens if a later one has taken over.
    pub(crate) fn detached(&mut self, now: Duration, attachment: u64) {
        if attachment == self.attachments {
            self.alone_since = Some(now);
        }
    }

    /// Returns the length of the lease.
    pub(crate) const fn length(&self) -> Duration {
        self.length
    }

    /// Returns whether an owner is attached.
    pub(crate) const fn is_held(&self) -> bool {
        self.alone_since.is_none()
    }

    /// Returns whether an owner ever attached.
    pub(crate) const fn was_held(&self) -> bool {
        self.attachments > 0
    }

    /// Returns whether nobody was attached for the lease's whole length.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        self.alone_since.is_some_and(|since| now.saturating_sub(since) >= self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LENGTH: Duration = Duration::from_secs(30);

    #[test]
    fn the_end_of_a_stream_that_was_taken_over_from_starts_no_lease() {
        let mut lease = Lease::new(Duration::ZERO, LENGTH);
        let first = lease.attached();
        let second = lease.attached();
        lease.detached(Duration::from_secs(1), first);
        assert!(lease.is_held());
        lease.detached(Duration::from_secs(2), second);
        assert!(!lease.is_over(Duration::from_millis(31_999)));
        assert!(lease.is_over(Duration::from_secs(32)));
    }

    proptest! {
        #[test]
        fn a_lease_is_over_exactly_when_nobody_was_attached_for_its_length(
            events in prop::collection::vec((0u64..20, any::<bool>()), 1..50)
        ) {
            let mut lease = Lease::new(Duration::ZERO, LENGTH);
            let (mut now, mut current, mut alone) = (0, None, Some(0));
            for (wait, attach) in events {
                now += wait;
                let at = Duration::from_secs(now);
                prop_assert_eq!(lease.is_over(at), alone.is_some_and(|since| now - since >= 30));
                if attach {
                    current = Some(lease.attached());
                    alone = None;
                } else if let Some(attachment) = current.take() {
                    lease.detached(at, attachment);
                    alone = Some(now);
                }
                prop_assert_eq!(lease.is_held(), alone.is_none());
            }
        }
    }
}

//! The wall clock that certificates are held against: one before 1970 is no reason to panic.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// Returns the time; 1970 of a clock that stands before that, when no certificate holds yet.
pub(super) fn now() -> UnixTime {
    since_1970(SystemTime::now())
}

fn since_1970(now: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The clock of TLS.
#[derive(Debug)]
pub(super) struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(now())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Symptom: a machine whose clock had not been set panicked as it connected. Cause: what was asked for the time holds a
    /// clock before 1970 for impossible. Fix: it is 1970 then, and certificates do not hold yet.
    #[test]
    fn a_clock_before_1970_shows_1970() {
        assert_eq!(since_1970(UNIX_EPOCH - Duration::from_secs(9)).as_secs(), 0);
        assert_eq!(since_1970(UNIX_EPOCH + Duration::from_secs(9)).as_secs(), 9);
    }
}

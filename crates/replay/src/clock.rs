//! The clock of a writer: the machine's, or one that the caller drives.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock that only goes forward, as a duration since its own zero.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    /// The machine's clock, counted from that instant.
    System(Instant),
    /// A clock that the driver of the writer sets: the time, and by how many milliseconds the wall clock is ahead of
    /// it.
    Driven(Duration, i64),
}

impl Clock {
    /// Returns the machine's clock, with its zero now.
    pub(crate) fn system() -> Self {
        Self::System(Instant::now())
    }

    pub(crate) fn now(&self) -> Duration {
        match self {
            Self::System(zero) => zero.elapsed(),
            Self::Driven(now, _) => *now,
        }
    }

    /// Returns the wall clock in milliseconds since 1970.
    pub(crate) fn wall_ms(&self) -> u64 {
        match self {
            Self::System(_) => wall_ms(),
            Self::Driven(now, ahead_ms) => driven_wall_ms(*now, *ahead_ms),
        }
    }
}

/// Returns the wall clock, in milliseconds since 1970, that belongs to the time of a driven clock.
pub(crate) const fn driven_wall_ms(now: Duration, ahead_ms: i64) -> u64 {
    (DRIVEN_ZERO_MS + now.as_millis() as u64).saturating_add_signed(ahead_ms)
}

const DRIVEN_ZERO_MS: u64 = 1_700_000_000_000;

/// Returns the wall clock in milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

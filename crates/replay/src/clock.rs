//! Where a writer's time comes from.

use std::time::{Duration, Instant};

use crate::folder::wall_ms;

/// A clock that only goes forward, as a duration since its own zero.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    /// The machine's, since then.
    System(Instant),
    /// Whoever drives the writer says how late it is, and by how many milliseconds the clock on the wall is ahead.
    Driven(Duration, i64),
}

impl Clock {
    /// The machine's clock, beginning now.
    pub(crate) fn system() -> Self {
        Self::System(Instant::now())
    }

    pub(crate) fn now(&self) -> Duration {
        match self {
            Self::System(zero) => zero.elapsed(),
            Self::Driven(now, _) => *now,
        }
    }

    /// Milliseconds since 1970.
    pub(crate) fn wall_ms(&self) -> u64 {
        match self {
            Self::System(_) => wall_ms(),
            Self::Driven(now, ahead_ms) => driven_wall_ms(*now, *ahead_ms),
        }
    }
}

/// What a clock on the wall shows beside one that is driven.
pub(crate) const fn driven_wall_ms(now: Duration, ahead_ms: i64) -> u64 {
    (DRIVEN_ZERO_MS + now.as_millis() as u64).saturating_add_signed(ahead_ms)
}

const DRIVEN_ZERO_MS: u64 = 1_700_000_000_000;

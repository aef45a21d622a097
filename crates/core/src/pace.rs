//! The pace of live lanes: how their world's time goes on beside their owner's.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often a world ticks, and what makes it tick. One tick is one step of the lane.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Ticks a second, [`Pace::MIN_HZ`] to [`Pace::MAX_HZ`].
    pub hz: f64,
    /// The clock by which it ticks.
    #[serde(default)]
    pub clock: Clock,
}

/// What makes a live world tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Time: the world ticks whatever its owner does.
    #[default]
    Realtime,
    /// The owner: one tick for each of its actions, and none while it thinks.
    Agent,
    /// The owner, whose thinking is played as ticks without an action before the one of its action.
    Charged,
}

/// Error of a pace that there cannot be.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("a pace has {least} to {most} ticks a second, not {given}", least = Pace::MIN_HZ, most = Pace::MAX_HZ)]
pub struct BadPace {
    /// Ticks a second that were given.
    pub given: f64,
}

/// Error of a word that names no clock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no clock: realtime, agent or charged")]
pub struct UnknownClock(pub String);

impl Pace {
    /// Fewest ticks a second: one in a minute and a half.
    pub const MIN_HZ: f64 = 0.01;
    /// Most ticks a second: a node's timers are no finer than a millisecond.
    pub const MAX_HZ: f64 = 1000.0;

    /// Checks a pace that somebody gave.
    ///
    /// # Errors
    /// If it is out of bounds, or no number.
    pub fn check(self) -> Result<Self, BadPace> {
        let is_one = (Self::MIN_HZ..=Self::MAX_HZ).contains(&self.hz);
        if is_one { Ok(self) } else { Err(BadPace { given: self.hz }) }
    }

    /// Returns the time between two ticks.
    pub fn period(self) -> Duration {
        Duration::from_secs_f64(self.hz.clamp(Self::MIN_HZ, Self::MAX_HZ).recip())
    }
}

impl Clock {
    /// All clocks.
    pub const ALL: [Self; 3] = [Self::Realtime, Self::Agent, Self::Charged];

    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Realtime => "realtime",
            Self::Agent => "agent",
            Self::Charged => "charged",
        }
    }
}

impl std::str::FromStr for Clock {
    type Err = UnknownClock;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|clock| clock.word() == word);
        found.ok_or_else(|| UnknownClock(crate::cut_text(word.to_owned(), crate::limits::MAX_NAME_BYTES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_out_of_bounds_is_refused_with_its_bounds() {
        for hz in [0.0, -1.0, f64::NAN, f64::INFINITY, 1001.0] {
            let error = Pace { hz, clock: Clock::Realtime }.check().unwrap_err();
            assert!(error.to_string().starts_with("a pace has 0.01 to 1000 ticks a second, not "));
        }
        let pace = Pace { hz: 25.0, clock: Clock::Agent }.check().unwrap();
        assert_eq!(pace.period(), Duration::from_millis(40));
    }

    #[test]
    fn a_clock_is_named_by_its_word() {
        for clock in Clock::ALL {
            assert_eq!(clock.word().parse(), Ok(clock));
            assert_eq!(serde_json::to_value(clock).unwrap(), clock.word());
        }
        assert_eq!("slow".parse::<Clock>(), Err(UnknownClock("slow".to_owned())));
    }
}

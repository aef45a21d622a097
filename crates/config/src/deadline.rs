//! The times that workers and lanes may take.

use std::time::Duration;

use rollhouse_core::limits::MAX_DEADLINE;

use crate::quantity::Time;
use crate::setting::{Given, Setting, SettingValue};

/// A deadline of `LEAST` ms to [`MAX_DEADLINE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline<const LEAST: u64>(pub Time);

/// A deadline of 1 ms to [`MAX_DEADLINE`]; 0 follows from another setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneDeadline(pub Time);

impl<const LEAST: u64> Deadline<LEAST> {
    /// Returns a deadline of so many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Time(Duration::from_secs(seconds)))
    }
}

impl LaneDeadline {
    /// Returns the time; `None` if it follows from another setting.
    pub fn given(self) -> Option<Duration> {
        Some(self.0.0).filter(|time| !time.is_zero())
    }
}

impl Default for LaneDeadline {
    fn default() -> Self {
        Self(Time(Duration::ZERO))
    }
}

impl<const LEAST: u64> Setting for Deadline<LEAST> {
    fn wanted(&self) -> String {
        format!(
            "a time from {} to {}, as in \"25 s\"",
            Time(Duration::from_millis(LEAST)),
            Time(MAX_DEADLINE)
        )
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let mut time = self.0;
        time.set(given)?;
        if time.0 < Duration::from_millis(LEAST) || time.0 > MAX_DEADLINE {
            return Err(String::new());
        }
        self.0 = time;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        self.0.show()
    }
}

impl Setting for LaneDeadline {
    fn wanted(&self) -> String {
        format!("a time up to {}, as in \"10 min\", or \"0 s\"", Time(MAX_DEADLINE))
    }

    fn set(&mut self, given: &Given) -> Result<(), String> {
        let mut deadline = Deadline::<0>(self.0);
        deadline.set(given)?;
        self.0 = deadline.0;
        Ok(())
    }

    fn show(&self) -> SettingValue {
        self.0.show()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_has_a_second_to_a_day() {
        let mut within = Deadline::<1000>::seconds(25);
        for (given, taken) in [
            ("1 s", true),
            ("2 min", true),
            ("3 h", true),
            ("24 h", true),
            ("999 ms", false),
            ("86401 s", false),
            ("5", false),
        ] {
            assert_eq!(within.set(&Given::Word(given.to_owned())).is_ok(), taken, "{given}");
        }
        assert_eq!(within.0.to_string(), "24 h", "what is refused changes nothing");
        assert_eq!(within.wanted(), "a time from 1 s to 24 h, as in \"25 s\"");
    }

    #[test]
    fn a_step_has_a_day_at_most_and_zero_leaves_it_to_another_setting() {
        let mut within = LaneDeadline::default();
        assert_eq!(within.given(), None);
        within.set(&Given::Word("2 h".to_owned())).unwrap();
        assert_eq!(within.given(), Some(Duration::from_secs(7200)));
        assert!(within.set(&Given::Word("25 h".to_owned())).is_err());
        within.set(&Given::Word("0 s".to_owned())).unwrap();
        assert_eq!(within.given(), None);
    }
}

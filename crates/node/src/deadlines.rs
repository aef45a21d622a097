//! The times after which a node gives up what takes too long.

use std::time::Duration;

use rollhouse_core::{DeadlineSettings, LaneDeadlines};

use crate::SteppingConfig;

/// Times after which sessions and their lanes are given up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    /// Time of a session.
    hang: Duration,
    /// Times of lanes that finish when they finish.
    lanes: LaneDeadlines,
}

impl Deadlines {
    /// Returns the times of a node with these settings.
    pub(crate) fn of(config: &SteppingConfig) -> Self {
        let SteppingConfig { hang_deadline: hang, step_deadline, reset_deadline, .. } = *config;
        let LaneDeadlines { step, reset, .. } = LaneDeadlines::within(hang);
        let (step, reset) = (step_deadline.unwrap_or(step), reset_deadline.unwrap_or(reset));
        let settings = Some(DeadlineSettings::OF_NODE);
        Self { hang, lanes: LaneDeadlines { step, reset, call: config.call_deadline, settings } }
    }

    /// Returns the times of lanes that finish when they finish.
    pub(crate) const fn of_lanes(&self) -> LaneDeadlines {
        self.lanes
    }

    /// Returns the time of a session, whose lanes may be `late`: then they are given up before it is.
    pub(crate) fn of_session(&self, late: bool) -> Duration {
        if late { self.lanes.of_session(self.hang) } else { self.hang }
    }
}

#[cfg(test)]
impl Deadlines {
    /// Returns the times of a node that gives up sessions after this one.
    pub(crate) fn of_sessions(hang_deadline: Duration) -> Self {
        Self::of(&SteppingConfig { hang_deadline, ..SteppingConfig::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_given_up_before_their_session_whatever_is_set() {
        let second = Duration::from_secs;
        let times = |hang, step_deadline, reset_deadline| {
            let config = SteppingConfig {
                hang_deadline: second(hang),
                step_deadline,
                reset_deadline,
                ..SteppingConfig::default()
            };
            let deadlines = Deadlines::of(&config);
            let LaneDeadlines { step, reset, .. } = deadlines.of_lanes();
            assert!(step + reset < deadlines.of_session(true), "{deadlines:?}");
            assert_eq!(deadlines.of_session(false), second(hang));
            (step, reset, deadlines.of_session(true))
        };
        assert_eq!(times(60, None, None), (second(24), second(24), second(60)));
        assert_eq!(times(5, None, None), (second(2), second(2), second(5)));
        assert_eq!(times(900, None, None), (second(25), second(25), second(900)));
        let hours = |hours: u64| second(hours * 3600);
        assert_eq!(times(60, None, Some(hours(2))), (second(24), hours(2), second(7224) * 5 / 4));
        assert_eq!(times(5, Some(second(1)), None), (second(1), second(2), second(5)));
        let config = SteppingConfig { call_deadline: hours(1), ..SteppingConfig::default() };
        assert_eq!(Deadlines::of(&config).of_session(true), second(4500));
    }
}

//! The times that lanes may take which finish when they finish.

use std::time::Duration;

use crate::limits::{CALL_DEADLINE, LANE_DEADLINE};

/// Times that a lane which finishes when it finishes may take before it is lost as `hung`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneDeadlines {
    /// Time for a step.
    pub step: Duration,
    /// Time for a reset.
    pub reset: Duration,
    /// Time for a call of a method, and for a picture.
    pub call: Duration,
    /// Settings by which they are set, for those who read of a loss; `None` if there are none.
    pub settings: Option<&'static DeadlineSettings>,
}

/// Names of the settings of deadlines.
#[derive(Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the name of the setting of that time")]
pub struct DeadlineSettings {
    pub launch: &'static str,
    pub connect: &'static str,
    pub step: &'static str,
    pub reset: &'static str,
    pub call: Option<&'static str>,
}

impl DeadlineSettings {
    /// Settings of a node for plug-ins, which do not connect.
    pub const OF_PLUGINS: &'static Self =
        &Self { launch: "node.plugin_within", connect: "node.plugin_within", ..*Self::OF_NODE };

    /// Arguments of `vectorize`.
    pub const OF_VECTORIZE: &'static Self = &Self {
        launch: "launch_timeout",
        connect: "connect_timeout",
        step: "step_timeout",
        reset: "reset_timeout",
        call: None,
    };

    /// Arguments of commands.
    pub const OF_COMMANDS: &'static Self = &Self {
        launch: "--launch-within",
        connect: "--connect-within",
        step: "--step-within",
        reset: "--reset-within",
        call: None,
    };

    /// Settings of a node.
    pub const OF_NODE: &'static Self = &Self {
        launch: "python.launch_within",
        connect: "python.connect_within",
        step: "node.step_within",
        reset: "node.reset_within",
        call: Some("node.call_within"),
    };
}

impl LaneDeadlines {
    /// Returns deadlines of which those of steps and resets are so long, and which no setting sets.
    pub const fn both(time: Duration) -> Self {
        Self { step: time, reset: time, call: CALL_DEADLINE, settings: None }
    }

    /// Returns the times of lanes whose session is given up after `session`, where none are set: a step and the reset after it
    /// may both take their whole time before.
    pub fn within(session: Duration) -> Self {
        Self::both(LANE_DEADLINE.min(session * 2 / 5))
    }

    /// Returns the time after which a session of such lanes is given up that is given up after `session` at the earliest:
    /// when a step and the reset after it, or a call, have taken their time and a quarter of it.
    pub fn of_session(&self, session: Duration) -> Duration {
        // The time that calls have by default is not to keep a session that stands still.
        let call = if self.call > CALL_DEADLINE { self.call } else { Duration::ZERO };
        session.max((self.step + self.reset).max(call) * 5 / 4)
    }

    /// Returns the longer time of those for what lanes do, which `step`, `reset`, or both; true if it is that of a reset.
    pub fn longest(&self, step: bool, reset: bool) -> (Duration, bool) {
        if reset && (!step || self.reset >= self.step) { (self.reset, true) } else { (self.step, false) }
    }

    /// Returns why a lane is lost that was given up at its deadline, in a reset if it is `resetting`.
    pub fn why_hung(&self, resetting: bool) -> String {
        match resetting {
            true => self.why("reset", self.reset, |names| Some(names.reset)),
            false => self.why("step", self.step, |names| Some(names.step)),
        }
    }

    /// Returns why a lane is lost whose call, or picture, was not there at its time.
    pub fn why_not_called(&self) -> String {
        self.why("call", self.call, |names| names.call)
    }

    fn why(
        &self,
        what: &str,
        time: Duration,
        name: impl Fn(&DeadlineSettings) -> Option<&'static str>,
    ) -> String {
        let setting = self.settings.and_then(name).map(|name| format!(", which `{name}` sets"));
        format!("a {what} took longer than {time:?}{}", setting.unwrap_or_default())
    }
}

impl Default for LaneDeadlines {
    fn default() -> Self {
        Self::both(LANE_DEADLINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_hung_is_told_with_what_it_was_at_its_time_and_the_setting_of_that() {
        let plain = LaneDeadlines::both(Duration::from_millis(1500));
        assert_eq!(plain.why_hung(false), "a step took longer than 1.5s");
        let named = LaneDeadlines { settings: Some(DeadlineSettings::OF_NODE), ..plain };
        assert_eq!(named.why_hung(true), "a reset took longer than 1.5s, which `node.reset_within` sets");
        assert_eq!(named.why_not_called(), "a call took longer than 20s, which `node.call_within` sets");
    }
}

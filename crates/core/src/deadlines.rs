//! The times that lanes may take which finish when they finish.

use std::time::Duration;

use crate::limits::LANE_DEADLINE;

/// Times that a lane which finishes when it finishes may take before it is lost as `hung`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneDeadlines {
    /// Time for a step.
    pub step: Duration,
    /// Time for a reset.
    pub reset: Duration,
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
    };

    /// Arguments of commands.
    pub const OF_COMMANDS: &'static Self = &Self {
        launch: "--launch-within",
        connect: "--connect-within",
        step: "--step-within",
        reset: "--reset-within",
    };

    /// Settings of a node.
    pub const OF_NODE: &'static Self = &Self {
        launch: "python.launch_within",
        connect: "python.connect_within",
        step: "node.step_within",
        reset: "node.reset_within",
    };
}

impl LaneDeadlines {
    /// Returns deadlines of which both are so long, and which no setting sets.
    pub const fn both(time: Duration) -> Self {
        Self { step: time, reset: time, settings: None }
    }

    /// Returns the longer time of those for what lanes do, which `step`, `reset`, or both; true if it is that of a reset.
    pub fn longest(&self, step: bool, reset: bool) -> (Duration, bool) {
        if reset && (!step || self.reset >= self.step) { (self.reset, true) } else { (self.step, false) }
    }

    /// Returns why a lane is lost that was given up at its deadline, in a reset if it is `resetting`.
    pub fn why_hung(&self, resetting: bool) -> String {
        let (what, time) = if resetting { ("reset", self.reset) } else { ("step", self.step) };
        let setting = self.settings.map(|names| if resetting { names.reset } else { names.step });
        let setting = setting.map(|name| format!(", which `{name}` sets")).unwrap_or_default();
        format!("a {what} took longer than {time:?}{setting}")
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
    }
}

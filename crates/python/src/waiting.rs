//! Calls that wait, and look meanwhile whether Ctrl-C was pressed.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use rollhouse_core::{DeadlineSettings, LaneDeadlines};

use crate::worker_link::duration;

/// Calls `attempt` without the interpreter lock, for at most a moment each time, until it returns true or `timeout` seconds
/// are over. Signals are looked after meanwhile. Returns whether it did.
pub(crate) fn wait(
    py: Python<'_>,
    timeout: Option<f64>,
    mut attempt: impl FnMut(Duration) -> PyResult<bool> + Send,
) -> PyResult<bool> {
    let deadline = duration(timeout).map(|timeout| Instant::now() + timeout);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = left.unwrap_or(LOOK_FOR_SIGNALS).min(LOOK_FOR_SIGNALS);
        if py.detach(|| attempt(slice))? {
            return Ok(true);
        }
        py.check_signals()?;
        if left.is_some_and(|left| left <= slice) {
            return Ok(false);
        }
    }
}

/// Returns the deadlines of lanes that may take so many seconds for what they do next, a step or a reset.
pub(crate) fn deadlines(seconds: Option<f64>) -> LaneDeadlines {
    let both = LaneDeadlines::both(duration(seconds).unwrap_or(FOR_EVER));
    LaneDeadlines { settings: Some(DeadlineSettings::OF_VECTORIZE), ..both }
}

/// Time between two looks whether Ctrl-C was pressed.
pub(crate) const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(50);

const FOR_EVER: Duration = Duration::from_secs(1_000_000_000);

//! Errors of the engine as the exceptions of `rollhouse.errors`.

use std::error::Error;
use std::fmt::Write;

use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use rollhouse_engine::{ConfigError, StepError};

/// An exception of the class `name` of `rollhouse.errors`.
pub(crate) fn exception(py: Python<'_>, name: &str, message: String) -> PyErr {
    let class = py.import("rollhouse.errors").and_then(|errors| errors.getattr(name));
    match class.and_then(|class| class.call1((message,))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// What refused a step, reset, send or receive.
pub(crate) fn of_step(py: Python<'_>, error: &StepError) -> PyErr {
    let message = error.to_string();
    let name = match error {
        StepError::Action(_) => "InvalidActionError",
        StepError::NeedsReset { .. } | StepError::NotReset => "ResetNeededError",
        StepError::LaneOutstanding { .. } => "OutstandingError",
        StepError::NothingOutstanding { .. } => "NothingOutstandingError",
        StepError::LaneLost { .. } => "LaneLostError",
        StepError::Busy { .. } => "BusyError",
        StepError::Hung => "HungError",
        StepError::TimedOut => return PyTimeoutError::new_err(message),
        StepError::NoSuchLane { .. } => return PyIndexError::new_err(message),
        StepError::SeedsScheduled | StepError::Length { .. } => return PyValueError::new_err(message),
        other => return PyRuntimeError::new_err(other.to_string()),
    };
    exception(py, name, message)
}

/// Why an engine could not be made.
pub(crate) fn of_config(py: Python<'_>, error: &ConfigError) -> PyErr {
    match error {
        ConfigError::Lanes(_) => PyValueError::new_err(format!("num_envs: {error}")),
        ConfigError::Threads(_) => PyValueError::new_err(format!("threads: {error}")),
        ConfigError::Make(_) | ConfigError::Options { .. } => exception(py, "OptionsError", chain(error)),
        other => PyRuntimeError::new_err(chain(other)),
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a string cannot fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

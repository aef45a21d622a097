//! Errors of the engine as the exceptions of `rollhouse.errors`.

use std::error::Error;
use std::fmt::Write;

use parking_lot::MutexGuard;
use pyo3::exceptions::{PyAttributeError, PyIndexError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rollhouse_client::{
    ConnectError, MethodError, OpenError, RequestError, StepError as PoolError, WatchError,
};
use rollhouse_engine::{CommandError, ConfigError, StepError};
use rollhouse_wire::{DialError, RefusalCode};

/// An exception of the class `name` of `rollhouse.errors`.
pub(crate) fn exception(py: Python<'_>, name: &str, message: String) -> PyErr {
    let class = py.import("rollhouse.errors").and_then(|errors| errors.getattr(name));
    match class.and_then(|class| class.call1((message,))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// What is behind a lock of an object that one thread at a time may use; an error if another one does.
pub(crate) fn one_at_a_time<T>(tried: Option<MutexGuard<'_, T>>) -> PyResult<MutexGuard<'_, T>> {
    tried.ok_or_else(|| {
        PyRuntimeError::new_err("another thread is inside this vector env; use one thread at a time")
    })
}

/// What refused a step, reset, send or receive.
#[cold]
pub(crate) fn of_step(py: Python<'_>, error: &PoolError) -> PyErr {
    match error {
        PoolError::Rules(error) => of_rules(py, error),
        PoolError::TimedOut(_) => PyTimeoutError::new_err(error.to_string()),
        PoolError::Interrupted => interrupted(),
        PoolError::AllLost { .. } => all_lost(py, error.to_string()),
        PoolError::Refused { refusal, .. } => refused(py, refusal.code, error.to_string()),
        other => exception(py, "ClusterError", other.to_string()),
    }
}

/// What refused something that was asked of lanes between two steps.
#[cold]
pub(crate) fn of_method(py: Python<'_>, error: &MethodError) -> PyErr {
    match error {
        MethodError::Lanes(CommandError::Step(error)) => of_rules(py, error),
        MethodError::Lanes(CommandError::UnknownAttribute { .. } | CommandError::ReadOnly { .. }) => {
            PyAttributeError::new_err(error.to_string())
        }
        MethodError::Lanes(error) => PyValueError::new_err(error.to_string()),
        MethodError::Refused { refusal, .. } => refused(py, refusal.code, error.to_string()),
        MethodError::Gone { .. } => all_lost(py, error.to_string()),
        MethodError::TimedOut(_) => PyTimeoutError::new_err(error.to_string()),
        MethodError::Interrupted => interrupted(),
        other => exception(py, "ClusterError", other.to_string()),
    }
}

/// Why there is no connection to a cluster.
pub(crate) fn of_connect(py: Python<'_>, error: &ConnectError) -> PyErr {
    match error {
        ConnectError::Address(error) => PyValueError::new_err(format!("url: {error}")),
        ConnectError::NoCa => PyValueError::new_err(error.to_string()),
        ConnectError::Interrupted => interrupted(),
        ConnectError::Dial(DialError::Refused(refusal)) => refused(py, refusal.code, refusal.to_string()),
        error => exception(py, "UnreachableError", chain(error)),
    }
}

/// Why the coordinator did not give what was asked for.
pub(crate) fn of_request(py: Python<'_>, error: &RequestError) -> PyErr {
    match (error, error.refusal()) {
        (_, Some(code)) => refused(py, code, chain(error)),
        (RequestError::Interrupted, None) => interrupted(),
        (error, None) => exception(py, "UnreachableError", chain(error)),
    }
}

/// Why a session is not watched.
pub(crate) fn of_watch(py: Python<'_>, error: &WatchError) -> PyErr {
    match error {
        WatchError::Request(error) => of_request(py, error),
        WatchError::Refused(refusal) if refusal.code == RefusalCode::BadRequest => {
            PyValueError::new_err(refusal.message.clone())
        }
        WatchError::Refused(refusal) => refused(py, refusal.code, refusal.to_string()),
        WatchError::Node(_) => exception(py, "UnreachableError", chain(error)),
        error => exception(py, "ClusterError", chain(error)),
    }
}

/// Why there is no pool.
pub(crate) fn of_open(py: Python<'_>, error: &OpenError) -> PyErr {
    match error {
        OpenError::Request(error) => of_request(py, error),
        OpenError::NoMemory { refusal, .. } => refused(py, refusal.code, error.to_string()),
        OpenError::CannotResume { .. } => PyValueError::new_err(error.to_string()),
        error => exception(py, "ClusterError", chain(error)),
    }
}

/// No lane is left.
fn all_lost(py: Python<'_>, message: String) -> PyErr {
    let class = py.import("rollhouse.errors").and_then(|errors| errors.getattr("LaneLostError"));
    match class.and_then(|class| class.call1((message, PyTuple::empty(py), "node_lost"))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// A refusal of a coordinator or node.
fn refused(py: Python<'_>, code: RefusalCode, message: String) -> PyErr {
    let class = py.import("rollhouse.errors").and_then(|errors| errors.getattr("RefusedError"));
    match class.and_then(|class| class.call1((message, code.word()))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// What a signal's handler raised while a call waited.
fn interrupted() -> PyErr {
    crate::cluster::take_raised().unwrap_or_else(|| pyo3::exceptions::PyKeyboardInterrupt::new_err(()))
}

/// What the engine's rules refused.
fn of_rules(py: Python<'_>, error: &StepError) -> PyErr {
    let message = error.to_string();
    let name = match error {
        StepError::Action(_) => "InvalidActionError",
        StepError::NeedsReset { .. } | StepError::NotReset => "ResetNeededError",
        StepError::LaneOutstanding { .. } => "OutstandingError",
        StepError::NothingOutstanding { .. } => "NothingOutstandingError",
        StepError::LaneLost { .. } => "LaneLostError",
        StepError::Options(_) | StepError::State { .. } => "OptionsError",
        StepError::Render { .. } => "UnsupportedError",
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

/// An error with its causes, but for those whose words it has already.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.ends_with(&words) {
            // Writing to a string cannot fail.
            let _ = write!(text, ": {words}");
        }
        source = cause.source();
    }
    text
}

//! Converts errors of the engine to the exceptions of `rollhouse.errors`.

use std::cell::RefCell;
use std::error::Error;
use std::fmt::Write;

use parking_lot::MutexGuard;
use pyo3::exceptions::{PyAttributeError, PyIndexError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rollhouse_client::{
    ConnectError, MethodError, OpenError, RequestError, StepError as PoolError, WatchError,
};
use rollhouse_engine::{CallFault, CallRefused, CommandError, ConfigError, StepError};
use rollhouse_wire::{DialError, RefusalCode};

/// Makes an exception of the class `name` of `rollhouse.errors`.
pub(crate) fn exception(py: Python<'_>, name: &str, message: String) -> PyErr {
    let class = py.import("rollhouse.errors").and_then(|errors| errors.getattr(name));
    match class.and_then(|class| class.call1((message,))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// Returns the contents of a lock of an object that one thread at a time may use, or an error if another thread is
/// using it.
pub(crate) fn one_at_a_time<T>(tried: Option<MutexGuard<'_, T>>) -> PyResult<MutexGuard<'_, T>> {
    tried.ok_or_else(|| {
        PyRuntimeError::new_err("another thread is inside this vector env; use one thread at a time")
    })
}

/// Converts the error of a step, reset, send or receive.
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

/// Converts the error of a command to lanes between two steps.
#[cold]
pub(crate) fn of_method(py: Python<'_>, error: &MethodError) -> PyErr {
    match error {
        MethodError::Lanes(CommandError::Step(error)) => of_rules(py, error),
        MethodError::Lanes(CommandError::UnknownAttribute { .. } | CommandError::ReadOnly { .. }) => {
            PyAttributeError::new_err(error.to_string())
        }
        MethodError::Lanes(CommandError::Call(refused)) => of_call(py, refused),
        MethodError::Lanes(error) => PyValueError::new_err(error.to_string()),
        MethodError::Refused { refusal, .. } => refused(py, refusal.code, error.to_string()),
        MethodError::Gone { .. } => all_lost(py, error.to_string()),
        MethodError::TimedOut(_) => PyTimeoutError::new_err(error.to_string()),
        MethodError::Interrupted => interrupted(),
        other => exception(py, "ClusterError", other.to_string()),
    }
}

/// Converts the error of a call of an env's method.
pub(crate) fn of_call(py: Python<'_>, error: &CallRefused) -> PyErr {
    match error {
        CallRefused::Engine(error) => of_rules(py, error),
        CallRefused::Unknown { .. } => PyAttributeError::new_err(error.to_string()),
        CallRefused::TooOften { .. } => exception(py, "BusyError", error.to_string()),
        CallRefused::Lane { source: CallFault::NoEpisode, .. } => {
            exception(py, "ResetNeededError", error.to_string())
        }
        _ => exception(py, "CallError", error.to_string()),
    }
}

/// Converts the error of connecting to a cluster.
pub(crate) fn of_connect(py: Python<'_>, error: &ConnectError) -> PyErr {
    match error {
        ConnectError::Address(error) => PyValueError::new_err(format!("url: {error}")),
        ConnectError::NoCa => PyValueError::new_err(error.to_string()),
        ConnectError::Interrupted => interrupted(),
        ConnectError::Dial(DialError::Refused(refusal)) => refused(py, refusal.code, refusal.to_string()),
        error => exception(py, "UnreachableError", chain(error)),
    }
}

/// Converts the error of a request to the coordinator.
pub(crate) fn of_request(py: Python<'_>, error: &RequestError) -> PyErr {
    match (error, error.refusal()) {
        (_, Some(code)) => refused(py, code, chain(error)),
        (RequestError::Interrupted, None) => interrupted(),
        (error, None) => exception(py, "UnreachableError", chain(error)),
    }
}

/// Converts the error of watching a session.
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

/// Converts the error of opening a pool.
pub(crate) fn of_open(py: Python<'_>, error: &OpenError) -> PyErr {
    match error {
        OpenError::Request(error) => of_request(py, error),
        OpenError::NoMemory { refusal, .. } => refused(py, refusal.code, error.to_string()),
        OpenError::CannotResume { .. } | OpenError::LiveLanes { .. } | OpenError::NotDeclared { .. } => {
            PyValueError::new_err(error.to_string())
        }
        error => exception(py, "ClusterError", chain(error)),
    }
}

/// Makes the exception for a pool without any lane left.
fn all_lost(py: Python<'_>, message: String) -> PyErr {
    let class = py.import("rollhouse.errors").and_then(|errors| errors.getattr("LaneLostError"));
    match class.and_then(|class| class.call1((message, PyTuple::empty(py), "node_lost"))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// Converts a refusal of a coordinator or node.
fn refused(py: Python<'_>, code: RefusalCode, message: String) -> PyErr {
    let class = py.import("rollhouse.errors").and_then(|errors| errors.getattr("RefusedError"));
    match class.and_then(|class| class.call1((message, code.word()))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// Returns the exception that a signal's handler raised while a call waited.
fn interrupted() -> PyErr {
    take_raised().unwrap_or_else(|| pyo3::exceptions::PyKeyboardInterrupt::new_err(()))
}

/// Converts an error of the engine's rules.
fn of_rules(py: Python<'_>, error: &StepError) -> PyErr {
    let message = error.to_string();
    let name = match error {
        StepError::Action(_) => "InvalidActionError",
        StepError::NeedsReset { .. } | StepError::NotReset => "ResetNeededError",
        StepError::LaneOutstanding { .. } => "OutstandingError",
        StepError::NothingOutstanding { .. } => "NothingOutstandingError",
        StepError::LaneLost { .. } => "LaneLostError",
        StepError::Options(_) | StepError::State { .. } => "OptionsError",
        StepError::Render { .. } | StepError::NoPace => "UnsupportedError",
        StepError::Busy { .. } => "BusyError",
        StepError::Hung => "HungError",
        StepError::TimedOut => return PyTimeoutError::new_err(message),
        StepError::NoSuchLane { .. } => return PyIndexError::new_err(message),
        StepError::SeedsScheduled | StepError::Length { .. } => return PyValueError::new_err(message),
        other => return PyRuntimeError::new_err(other.to_string()),
    };
    exception(py, name, message)
}

/// Converts the error of making an engine.
pub(crate) fn of_config(py: Python<'_>, error: &ConfigError) -> PyErr {
    match error {
        ConfigError::Lanes(_) => PyValueError::new_err(format!("num_envs: {error}")),
        ConfigError::Threads(_) => PyValueError::new_err(format!("threads: {error}")),
        ConfigError::Make(_) | ConfigError::Options { .. } => exception(py, "OptionsError", chain(error)),
        other => PyRuntimeError::new_err(chain(other)),
    }
}

/// Returns an error with its causes, without those whose words it has already.
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

thread_local! {
    /// The exception that a signal's handler raised while a call of this thread waited for the cluster.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Takes the exception that a signal's handler raised while a call of this thread waited.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}

/// Returns whether a signal's handler raised an exception; called without the interpreter lock, on the thread that
/// waits.
pub(crate) fn look() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            RAISED.set(Some(error));
            true
        }
    })
}

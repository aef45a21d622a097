//! Worker processes for Python: both ends of `rollhouse-host`.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyTuple};
use rollhouse_arena::SharedMemory;
use rollhouse_core::RestartDecision;
use rollhouse_host::{
    Cause, Environment, HostConfig, HostError, Launcher, Link, LinkError, Output, Program, Restart, Until,
    Waited, WorkerEvent, WorkerState,
};

use crate::failure::{chain, exception, one_at_a_time};

/// Worker processes; see the crate `rollhouse-host`. One thread at a time may use them; a second one gets an error
/// instead of waiting.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct Host {
    /// The host; `None` once it has been ended: memory and descriptors are given back then.
    inner: Mutex<Option<rollhouse_host::Host>>,
}

/// A host that a thread uses at present.
struct Inside<'a>(MutexGuard<'a, Option<rollhouse_host::Host>>);

#[pymethods]
impl Host {
    /// Makes a host. `program` is the executable and its arguments. There is one hello per worker, of which the first
    /// `launch_at_start` are launched at once. Times are in seconds, None for ever.
    #[new]
    fn new(
        program: Vec<OsString>,
        hellos: Vec<PyBackedBytes>,
        launch_at_start: usize,
        launch_timeout: Option<f64>,
        max_launching: usize,
    ) -> PyResult<Self> {
        let mut program = program.into_iter();
        let path = program.next().ok_or_else(|| PyValueError::new_err("program: it has no executable"))?;
        let config = HostConfig {
            program: Program {
                path,
                arguments: program.collect(),
                environment: Environment::Inherited,
                output: Output::Inherited,
            },
            hellos: hellos.iter().map(|hello| hello.to_vec()).collect(),
            launch_at_start,
            launch_deadline: duration(launch_timeout),
            launcher: Launcher::new(max_launching),
        };
        let inner = rollhouse_host::Host::start(config).map_err(of_host)?;
        Ok(Self { inner: Mutex::new(Some(inner)) })
    }

    /// Launches the workers that were not launched yet.
    fn launch_all(&self) -> PyResult<()> {
        self.enter()?.host()?.launch_all().map_err(of_host)
    }

    /// Creates the shared memory. Returns (descriptor, byte where the caller's part begins, length in bytes). The
    /// descriptor stays the host's.
    fn share(&self, bytes: usize) -> PyResult<(i32, usize, usize)> {
        let mut inside = self.enter()?;
        let inner = inside.host()?;
        inner.share(bytes).map_err(of_host)?;
        inner.memory().map(place).ok_or_else(|| PyRuntimeError::new_err("there is no shared memory"))
    }

    /// Gives an idle worker a command.
    #[pyo3(signature = (worker, code, payload, timeout))]
    fn post(&self, worker: usize, code: u64, payload: &[u8], timeout: Option<f64>) -> PyResult<()> {
        let mut inside = self.enter()?;
        inside.worker(worker)?.post(worker, code, payload, duration(timeout)).map_err(of_host)
    }

    /// Gives every worker a command without a payload and waits until all have answered. Returns None if each answered
    /// without a payload and nothing else happened; else the events. Returns False, and posts nothing, if some worker
    /// is not idle.
    fn exchange(&self, py: Python<'_>, code: u64, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let mut inside = self.enter()?;
        let inner = inside.host()?;
        let workers = inner.workers();
        if (0..workers).any(|worker| inner.state(worker) != WorkerState::Idle) {
            return Ok(false.into_pyobject(py)?.to_owned().into_any().unbind());
        }
        for worker in 0..workers {
            inner.post(worker, code, &[], duration(timeout)).map_err(of_host)?;
        }
        inside.wait(py, Until::AllReplied, None)?;
        let mut events = Vec::with_capacity(workers);
        let mut plain = true;
        let inner = inside.host()?;
        while let Some(event) = inner.next_event() {
            plain &= matches!(&event, WorkerEvent::Replied(reply) if reply.payload.is_empty());
            events.push(event);
        }
        if plain && events.len() == workers {
            return Ok(py.None());
        }
        let events = events.into_iter().map(|event| tuple(py, event)).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, events)?.into_any().unbind())
    }

    /// Waits for "replies" (no command is unanswered), an "event", or until all workers are "back" or given up. Returns
    /// whether that was in time. Signal handlers run meanwhile.
    fn wait(&self, py: Python<'_>, until: &str, timeout: Option<f64>) -> PyResult<bool> {
        let until = match until {
            "replies" => Until::AllReplied,
            "event" => Until::AnyEvent,
            "back" => Until::AllBack,
            other => return Err(PyValueError::new_err(format!("until={other:?} is nothing to wait for"))),
        };
        self.enter()?.wait(py, until, duration(timeout))
    }

    /// Returns the events since the last call: tuples that begin with "ready", "replied" or "lost" and the worker. Then
    /// follow: for "ready" the answer; for "replied" code and payload; for "lost" cause, seconds until the restart or
    /// None, and detail.
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut events = Vec::new();
        let mut inside = self.enter()?;
        let inner = inside.host()?;
        while let Some(event) = inner.next_event() {
            events.push(tuple(py, event)?);
        }
        PyList::new(py, events)
    }

    /// Returns "dormant", "queued", "launching", "idle", "busy", "backoff" or "failed".
    fn state(&self, worker: usize) -> PyResult<&'static str> {
        Ok(match self.enter()?.worker(worker)?.state(worker) {
            WorkerState::Dormant => "dormant",
            WorkerState::Queued => "queued",
            WorkerState::Launching => "launching",
            WorkerState::Idle => "idle",
            WorkerState::Busy => "busy",
            WorkerState::BackOff => "backoff",
            WorkerState::Failed => "failed",
        })
    }

    /// Returns the process ids of the workers that have a process.
    fn process_ids(&self) -> PyResult<Vec<u32>> {
        let mut inside = self.enter()?;
        let inner = inside.host()?;
        Ok((0..inner.workers()).filter_map(|worker| inner.process_id(worker)).collect())
    }

    /// Ends all workers; idle ones have `grace` seconds to end by themselves.
    fn end(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        let grace = duration(Some(grace)).unwrap_or_default();
        let inner = self.enter()?.0.take();
        if let Some(mut inner) = inner {
            py.detach(|| inner.end(grace));
        }
        Ok(())
    }
}

impl Host {
    fn enter(&self) -> PyResult<Inside<'_>> {
        one_at_a_time(self.inner.try_lock()).map(Inside)
    }
}

impl Inside<'_> {
    fn host(&mut self) -> PyResult<&mut rollhouse_host::Host> {
        self.0.as_mut().ok_or_else(|| of_host(HostError::Ended))
    }

    /// Returns the host, if it has such a worker.
    fn worker(&mut self, worker: usize) -> PyResult<&mut rollhouse_host::Host> {
        let host = self.host()?;
        if worker < host.workers() {
            return Ok(host);
        }
        Err(PyValueError::new_err(format!("worker={worker} must be less than {}", host.workers())))
    }

    fn wait(&mut self, py: Python<'_>, until: Until, timeout: Option<Duration>) -> PyResult<bool> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A signal that comes while it does not sleep yet interrupts nothing.
            let slice = left.unwrap_or(LOOK_FOR_SIGNALS).min(LOOK_FOR_SIGNALS);
            let host = self.host()?;
            match py.detach(|| host.wait(until, Some(slice))).map_err(of_host)? {
                Waited::Satisfied => return Ok(true),
                Waited::TimedOut if left == Some(slice) => return Ok(false),
                Waited::TimedOut | Waited::Interrupted => py.check_signals()?,
            }
        }
    }
}

/// The end of the connection that a worker process holds.
#[pyclass(module = "rollhouse._native")]
pub(crate) struct WorkerLink {
    inner: Link,
}

#[pymethods]
impl WorkerLink {
    /// Makes standard input the connection to the host, which has the process id `host`.
    #[new]
    fn new(py: Python<'_>, host: u32) -> PyResult<Self> {
        let inner = py.detach(|| Link::open(host)).map_err(of_link)?;
        Ok(Self { inner })
    }

    /// Returns the first message.
    fn hello<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.inner.hello())
    }

    /// Answers the first message and waits for the shared memory. Returns (descriptor, byte where the caller's part
    /// begins, length).
    fn ready(&mut self, py: Python<'_>, answer: &[u8]) -> PyResult<(i32, usize, usize)> {
        let inner = &mut self.inner;
        py.detach(|| inner.ready(answer)).map_err(of_link)?;
        self.inner.memory().map(place).ok_or_else(|| PyRuntimeError::new_err("there is no shared memory"))
    }

    /// Waits for the next command. Returns (code, payload).
    fn receive<'py>(&mut self, py: Python<'py>) -> PyResult<(u64, Bound<'py, PyBytes>)> {
        loop {
            let inner = &mut self.inner;
            match py.detach(|| inner.receive()) {
                Ok(command) => return Ok((command.code, PyBytes::new(py, &command.payload))),
                Err(LinkError::Os(error)) if error.kind() == std::io::ErrorKind::Interrupted => {
                    py.check_signals()?;
                }
                Err(error) => return Err(of_link(error)),
            }
        }
    }

    /// Writes a number to the word at byte `offset` of the caller's part, after all that was written before, and wakes
    /// the host if it sleeps.
    fn publish(&self, offset: usize, number: u64) -> PyResult<()> {
        self.inner.publish(offset, number).map_err(of_link)
    }

    /// Answers the command.
    fn reply(&mut self, code: u64, payload: &[u8]) -> PyResult<()> {
        self.inner.reply(code, payload).map_err(of_link)
    }
}

/// Decides when something that fails again and again is tried again; see `rollhouse_core::BackOff`.
#[pyclass(module = "rollhouse._native")]
pub(crate) struct BackOff {
    inner: rollhouse_core::BackOff,
}

#[pymethods]
impl BackOff {
    #[new]
    fn new(seed: u64) -> Self {
        Self { inner: rollhouse_core::BackOff::new(seed) }
    }

    /// Notes a failure at `now` (seconds of a clock that only goes forward). Returns the seconds until the next try,
    /// None if there have been too many failures.
    fn failed(&mut self, now: f64) -> Option<f64> {
        match self.inner.failed(duration(Some(now)).unwrap_or_default()) {
            RestartDecision::RetryAfter(wait) => Some(wait.as_secs_f64()),
            RestartDecision::GiveUp => None,
        }
    }
}

/// Converts seconds. A number that is not a duration (negative, NaN) becomes zero; one that is too long means for ever.
fn duration(seconds: Option<f64>) -> Option<Duration> {
    let seconds = seconds?;
    if seconds > LONGEST_SECONDS {
        None
    } else {
        Some(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }
}

fn place((memory, offset): (&SharedMemory, usize)) -> (i32, usize, usize) {
    (memory.as_fd().as_raw_fd(), offset, memory.len())
}

fn tuple(py: Python<'_>, event: WorkerEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        WorkerEvent::Ready { worker, answer } => {
            ("ready", worker, PyBytes::new(py, &answer)).into_pyobject(py)
        }
        WorkerEvent::Replied(reply) => {
            ("replied", reply.worker, reply.code, PyBytes::new(py, &reply.payload)).into_pyobject(py)
        }
        WorkerEvent::Lost { worker, cause, restart, detail } => {
            let cause = match cause {
                Cause::Died => "died",
                Cause::Hung => "hung",
                Cause::LaunchTimedOut => "launch",
            };
            let wait = match restart {
                Restart::After(wait) => Some(wait.as_secs_f64()),
                Restart::Never => None,
            };
            ("lost", worker, cause, wait, detail).into_pyobject(py)
        }
    }
}

fn of_host(error: HostError) -> PyErr {
    let message = chain(&error);
    Python::attach(|py| match error {
        HostError::Workers(_) | HostError::TooLong(_) => PyValueError::new_err(message),
        HostError::Os(_) => PyOSError::new_err(message),
        HostError::Forked => exception(py, "ForkedError", message),
        HostError::Ended => exception(py, "ClosedError", message),
        HostError::NotIdle(_) => PyRuntimeError::new_err(message),
    })
}

fn of_link(error: LinkError) -> PyErr {
    PyOSError::new_err(chain(&error))
}

/// Time between two looks whether Ctrl-C was pressed.
const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(50);

/// Longest duration: longer than any process lives, and short enough to keep sums of times in range.
const LONGEST_SECONDS: f64 = 1e9;

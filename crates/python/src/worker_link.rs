//! The worker's end of the connection to its host, for Python.

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rollhouse_arena::SharedMemory;
use rollhouse_host::{Link, LinkError};

use crate::failure::chain;

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

    /// Connects to the host that listens in a folder, for the place of that number or any that is free.
    #[staticmethod]
    #[pyo3(signature = (folder, place=None))]
    fn connect(py: Python<'_>, folder: PathBuf, place: Option<usize>) -> PyResult<Self> {
        let inner = py.detach(|| Link::connect(&folder, place)).map_err(of_link)?;
        Ok(Self { inner })
    }

    /// Returns the first message.
    fn hello<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.inner.hello())
    }

    /// Answers the first message and waits for the worker's memory. Returns (descriptor, byte where the caller's part
    /// begins, length).
    fn ready(&mut self, py: Python<'_>, answer: &[u8]) -> PyResult<(i32, usize, usize)> {
        let inner = &mut self.inner;
        py.detach(|| inner.ready(answer)).map_err(of_link)?;
        self.inner.memory().map(place).ok_or_else(|| PyRuntimeError::new_err("the worker has no memory"))
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

    /// Writes numbers to the words at byte offsets, as `publish` does, and wakes the host once.
    fn publish_all(&self, numbers: Vec<(usize, u64)>) -> PyResult<()> {
        self.inner.publish_all(&numbers).map_err(of_link)
    }

    /// Tells the host how often this worker has tried again to connect; 0 once it has.
    fn connecting(&mut self, retries: u64) -> PyResult<()> {
        self.inner.connecting(retries).map_err(of_link)
    }

    /// Answers the command.
    fn reply(&mut self, code: u64, payload: &[u8]) -> PyResult<()> {
        self.inner.reply(code, payload).map_err(of_link)
    }
}

/// Converts seconds. A number that is not a duration (negative, NaN) becomes zero; one that is too long means for ever.
pub(crate) fn duration(seconds: Option<f64>) -> Option<Duration> {
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

fn of_link(error: LinkError) -> PyErr {
    PyOSError::new_err(chain(&error))
}

/// Longest duration: longer than any process lives, and short enough to keep sums of times in range.
const LONGEST_SECONDS: f64 = 1e9;

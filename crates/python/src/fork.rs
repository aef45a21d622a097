//! Notices that the process is a forked child: threads do not survive a fork, so nothing made before it may be used
//! after it.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use crate::failure::exception;

/// Number of forks between the process that loaded this module and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Has Python count forks. It is called once, when the module is loaded.
pub(crate) fn count_forks(py: Python<'_>) -> PyResult<()> {
    let os = py.import("os")?;
    // Not there on systems that do not fork.
    if let Ok(register) = os.getattr("register_at_fork") {
        let kwargs = pyo3::types::PyDict::new(py);
        kwargs.set_item("after_in_child", wrap_pyfunction!(forked, py)?)?;
        register.call((), Some(&kwargs))?;
    }
    Ok(())
}

#[pyfunction]
fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Remembers the process in which something was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home(u32);

impl Home {
    pub(crate) fn here() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// Raises `ForkedError` in a child of that process.
    #[inline]
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        let message = "made in another process, of which this is a forked child; make another one here";
        Err(exception(py, "ForkedError", message.to_owned()))
    }
}

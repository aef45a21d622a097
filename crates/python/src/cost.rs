//! Decides when to release the interpreter lock.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Measures how long a batch takes, to decide whether other Python threads may run meanwhile.
///
/// Releasing and taking the lock costs about 40 ns, a good part of a small batch and nothing to a large one. The
/// first batches are timed; from then on the lock is released if even the fastest of them took longer than
/// [`WORTH_RELEASING`]. Results do not depend on it.
#[derive(Debug)]
pub(crate) struct Cost {
    /// Whether a batch waits for other threads: then releasing the lock is always worth it.
    waits: bool,
    timed: u8,
    fastest: Duration,
}

impl Cost {
    pub(crate) fn new(waits: bool) -> Self {
        Self { waits, timed: 0, fastest: Duration::MAX }
    }

    /// Steps a batch. `blocks` says that it may have to wait for the disk.
    #[inline]
    pub(crate) fn run<E: Send>(
        &mut self,
        py: Python<'_>,
        blocks: bool,
        step: impl FnOnce() -> Result<(), E> + Send,
    ) -> Result<(), E> {
        if self.timed < TIMED_BATCHES {
            self.run_timed(py, step)
        } else if self.waits || blocks || self.fastest > WORTH_RELEASING {
            py.detach(step)
        } else {
            step()
        }
    }

    #[cold]
    fn run_timed<E: Send>(
        &mut self,
        py: Python<'_>,
        step: impl FnOnce() -> Result<(), E> + Send,
    ) -> Result<(), E> {
        let (result, took) = py.detach(|| {
            let began = Instant::now();
            (step(), began.elapsed())
        });
        if result.is_ok() {
            self.timed += 1;
            self.fastest = self.fastest.min(took);
        }
        result
    }
}

const TIMED_BATCHES: u8 = 16;

/// Duration of a batch above which the lock is released.
const WORTH_RELEASING: Duration = Duration::from_micros(1);

//! A runtime that its callers drive.
//!
//! The thread that steps a batch drives the sockets itself, so that no step waits for another thread to be woken,
//! which costs tens of microseconds on a virtual machine. While no call is inside, the caretaker's thread drives
//! the runtime now and then, so that connections live on.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rollhouse_wire::Eagerness;
use tokio::runtime::{Builder, Runtime};

use crate::caretaker::{Care, Caretaker, DRIVE, Sight};

/// Returns whether the caller wants to leave a call that waits. It is called on the calling thread every 50 ms; true
/// ends the call with `Interrupted`.
pub type Look = Arc<dyn Fn() -> bool + Send + Sync>;

/// A single-threaded runtime that the callers of [`Driver::run`] drive. Several threads may call at a time: one of them
/// drives, and it wakes the others.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    caretaker: Option<JoinHandle<()>>,
}

struct Shared {
    runtime: Runtime,
    started: Instant,
    eagerness: Eagerness,
    /// Number of calls that are inside.
    inside: AtomicUsize,
    /// Time at which the last call left, in nanoseconds since `started`.
    left: AtomicU64,
    stopped: Mutex<bool>,
    stop: Condvar,
}

/// The caller wanted to leave before the future was done; the future is dropped then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interrupted;

impl Driver {
    /// Makes a runtime, and its caretaker's thread.
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::new(Shared {
            runtime,
            started: Instant::now(),
            eagerness: Eagerness::default(),
            inside: AtomicUsize::new(0),
            left: AtomicU64::new(0),
            stopped: Mutex::new(false),
            stop: Condvar::new(),
        });
        // Task: caretaker.
        let caretaker = std::thread::Builder::new().name("rollhouse-care".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.take_care()
        })?;
        Ok(Self { shared, caretaker: Some(caretaker) })
    }

    /// Drives the runtime until `future` is done. Polls without sleeping for a moment first, if that is worth it.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        let _inside = self.shared.enter();
        let mut future = pin!(future);
        self.shared.runtime.block_on(async {
            match self.shared.eagerness.wait(future.as_mut()).await {
                Some(output) => output,
                None => future.await,
            }
        })
    }

    /// Starts a future that nobody waits for. Whatever it can do at once is done before this returns.
    pub(crate) fn begin(&self, future: impl Future<Output = ()> + Send + 'static) {
        // Task: closing of a pool.
        self.shared.runtime.spawn(future);
        self.turn();
    }

    fn turn(&self) {
        self.run(async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Drives the runtime as [`Driver::run`] does, and calls `look` on this thread every [`LOOK`] meanwhile.
    ///
    /// # Errors
    /// When `look` returns true.
    pub(crate) fn run_looking<F: Future>(
        &self,
        future: F,
        look: &mut dyn FnMut() -> bool,
    ) -> Result<F::Output, Interrupted> {
        let _inside = self.shared.enter();
        let mut future = pin!(future);
        let shared = &self.shared;
        if let Some(output) = shared.runtime.block_on(shared.eagerness.wait(future.as_mut())) {
            return Ok(output);
        }
        loop {
            let slice = async { tokio::time::timeout(LOOK, future.as_mut()).await };
            match shared.runtime.block_on(slice) {
                Ok(output) => return Ok(output),
                Err(_) if look() => return Err(Interrupted),
                Err(_) => {}
            }
        }
    }
}

/// Turns of the runtime that are enough for a task to write and for the connection's task to send it.
const TURNS: usize = 8;

/// Interval at which a waiting call lets its caller look for signals.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

impl Shared {
    fn enter(&self) -> Inside<'_> {
        self.inside.fetch_add(1, Ordering::Relaxed);
        Inside(self)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn take_care(&self) {
        let mut caretaker = Caretaker::default();
        loop {
            let left = Duration::from_nanos(self.left.load(Ordering::Relaxed));
            let sight = Sight { inside: self.inside.load(Ordering::Relaxed), left };
            match caretaker.next(self.now(), sight) {
                Care::Drive => self.runtime.block_on(async { tokio::time::sleep(DRIVE).await }),
                Care::Sleep(time) => {
                    let mut stopped = self.stopped.lock();
                    self.stop.wait_while_for(&mut stopped, |stopped| !*stopped, time);
                    if *stopped {
                        return;
                    }
                }
            }
        }
    }
}

/// Counts a call as inside until this is dropped.
struct Inside<'a>(&'a Shared);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.left.store(self.0.now().as_nanos() as u64, Ordering::Relaxed);
        self.0.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        *self.shared.stopped.lock() = true;
        self.shared.stop.notify_all();
        if let Some(caretaker) = self.caretaker.take() {
            // It panics never; if it did, there is nothing left to take care of.
            let _ended = caretaker.join();
        }
        if tokio::runtime::Handle::try_current().is_err() {
            // What was dropped before tells its peers.
            self.turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_can_be_let_out_of_a_future_that_never_ends() {
        let driver = Driver::new().unwrap();
        let mut looks = 0;
        let result = driver.run_looking(std::future::pending::<()>(), &mut || {
            looks += 1;
            looks == 2
        });
        assert_eq!((result, looks), (Err(Interrupted), 2));
        assert_eq!(driver.run_looking(async { 7 }, &mut || true), Ok(7));
    }

    #[test]
    fn two_threads_are_inside_at_a_time() {
        let driver = Arc::new(Driver::new().unwrap());
        let (ask, asked) = tokio::sync::oneshot::channel();
        let (answer, answered) = tokio::sync::oneshot::channel();
        let other = std::thread::spawn({
            let driver = Arc::clone(&driver);
            move || driver.run(async { answer.send(asked.await.unwrap() + 1).unwrap() })
        });
        let got = driver.run(async {
            ask.send(1).unwrap();
            answered.await.unwrap()
        });
        other.join().unwrap();
        assert_eq!(got, 2);
    }

    #[test]
    fn what_a_runtime_has_to_do_is_done_while_nobody_calls() {
        let driver = Driver::new().unwrap();
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        driver.run(async {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                done.send(()).unwrap();
            });
        });
        // Only the caretaker drives the runtime now.
        is_done.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}

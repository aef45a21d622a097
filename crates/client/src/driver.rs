//! A runtime that its callers drive.
//!
//! The thread that steps a batch drives the sockets itself, so that no step waits for another thread to be woken,
//! which costs tens of microseconds on a virtual machine. While no call is inside, the caretaker's thread drives
//! the runtime now and then, so that connections live on.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
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
    /// The runtime; `None` only while this is dropped.
    shared: Option<Arc<Shared>>,
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
        Ok(Self { shared: Some(shared), caretaker: Some(caretaker) })
    }

    fn shared(&self) -> &Shared {
        self.shared.as_ref().expect("only drop takes it")
    }

    /// Drives the runtime until `future` is done, and calls `look` on this thread every [`LOOK`] meanwhile. Polls without
    /// sleeping for a moment first, if that is worth it.
    ///
    /// # Errors
    /// When `look` returns true; the future is dropped.
    pub(crate) fn run<F: Future>(&self, future: F, look: Option<&Look>) -> Result<F::Output, Interrupted> {
        let (mut future, mut output) = (pin!(future), None);
        {
            let kept = pin!(async { output = Some(future.as_mut().await) });
            self.shared().complete(kept, look)?;
        }
        // What is complete has left its output.
        output.ok_or(Interrupted)
    }

    /// Starts a future that nobody waits for. Whatever it can do at once is done before this returns, also in a task of
    /// another runtime.
    pub(crate) fn begin(&self, future: impl Future<Output = ()> + Send + 'static) {
        let shared = self.shared();
        // Task: closing of a pool.
        shared.runtime.spawn(future);
        beside_runtimes(|| shared.turn());
    }
}

/// Runs what drives a runtime, or drops one: here, or on a thread of its own if this one is a runtime's, which must not.
/// Waits for it.
fn beside_runtimes(run: impl FnOnce() + Send) {
    if tokio::runtime::Handle::try_current().is_err() {
        return run();
    }
    std::thread::scope(|scope| {
        // Task: closing of a pool.
        let spawned = std::thread::Builder::new().name("rollhouse-close".to_owned()).spawn_scoped(scope, run);
        // Without a thread nobody is told; leases and idle timeouts end what is left.
        drop(spawned.map(std::thread::ScopedJoinHandle::join));
    });
}

impl Shared {
    /// Drives the runtime as [`Driver::run`] does. It is not generic, so that the runtime's code is compiled once and not
    /// for each call.
    fn complete(&self, mut future: Unnamed<'_>, look: Option<&Look>) -> Result<(), Interrupted> {
        let _inside = self.enter();
        let Self { runtime, eagerness, .. } = self;
        let Some(look) = look else {
            runtime.block_on(async {
                if eagerness.wait(future.as_mut()).await.is_none() {
                    future.await;
                }
            });
            return Ok(());
        };
        if runtime.block_on(eagerness.wait(future.as_mut())).is_some() {
            return Ok(());
        }
        loop {
            let slice = async { tokio::time::timeout(LOOK, future.as_mut()).await };
            match runtime.block_on(slice) {
                Ok(()) => return Ok(()),
                Err(_) if look() => return Err(Interrupted),
                Err(_) => {}
            }
        }
    }

    fn turn(&self) {
        let turns = pin!(async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
        // Nobody looks, so nothing interrupts it.
        let _done = self.complete(turns, None);
    }
}

/// A future that keeps its output to itself.
type Unnamed<'a> = Pin<&'a mut dyn Future<Output = ()>>;

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
        let Some(shared) = self.shared.take() else { return };
        *shared.stopped.lock() = true;
        shared.stop.notify_all();
        if let Some(caretaker) = self.caretaker.take() {
            // It panics never; if it did, there is nothing left to take care of.
            let _ended = caretaker.join();
        }
        beside_runtimes(move || {
            // What was dropped before tells its peers.
            shared.turn();
            drop(shared);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_can_be_let_out_of_a_future_that_never_ends() {
        let driver = Driver::new().unwrap();
        let looks = Arc::new(AtomicUsize::new(0));
        let look: Look = Arc::new({
            let looks = Arc::clone(&looks);
            move || looks.fetch_add(1, Ordering::Relaxed) == 1
        });
        assert_eq!(driver.run(std::future::pending::<()>(), Some(&look)), Err(Interrupted));
        assert_eq!(looks.load(Ordering::Relaxed), 2);
        assert_eq!(driver.run(async { 7 }, Some(&look)), Ok(7));
    }

    /// Symptom: a pool that was dropped in a task of a tokio runtime panicked.
    /// Cause: it drove its own runtime on that thread, and ended it there. Fix: another thread does.
    #[test]
    fn what_is_begun_and_dropped_in_a_task_of_another_runtime_is_done_without_a_panic() {
        let outer = Builder::new_current_thread().build().unwrap();
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        outer.block_on(async move {
            let driver = Driver::new().unwrap();
            driver.begin(async move { done.send(7).unwrap() });
            drop(driver);
        });
        assert_eq!(is_done.try_recv(), Ok(7));
    }

    #[test]
    fn two_threads_are_inside_at_a_time() {
        let driver = Arc::new(Driver::new().unwrap());
        let (ask, asked) = tokio::sync::oneshot::channel();
        let (answer, answered) = tokio::sync::oneshot::channel();
        let other = std::thread::spawn({
            let driver = Arc::clone(&driver);
            move || driver.run(async { answer.send(asked.await.unwrap() + 1).unwrap() }, None)
        });
        let got = driver.run(
            async {
                ask.send(1).unwrap();
                answered.await.unwrap()
            },
            None,
        );
        assert_eq!(other.join().unwrap(), Ok(()));
        assert_eq!(got, Ok(2));
    }

    #[test]
    fn what_a_runtime_has_to_do_is_done_while_nobody_calls() {
        let driver = Driver::new().unwrap();
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        let spawns = async {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                done.send(()).unwrap();
            });
        };
        driver.run(spawns, None).unwrap();
        // Only the caretaker drives the runtime now.
        is_done.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}

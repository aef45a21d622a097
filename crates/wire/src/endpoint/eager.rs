//! Busy waiting for answers that come soon.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Decides whether a thread that waits for a peer stays awake for a moment, because the answer mostly comes in that
/// time: to wake a sleeping thread costs tens of microseconds on a virtual machine, at either end of each round trip.
///
/// There is one for each thread, because one awake waiter keeps the thread awake for all. It has bounds: 100 µs at a
/// time, never on a single core, and hardly ever after 16 waits in a row in which it did not help; every 64 waits it is
/// tried again.
#[derive(Debug)]
pub struct Eagerness {
    cores: bool,
    /// Whether somebody is waiting awake.
    taken: AtomicBool,
    /// Number of vain waits that are still allowed. This counter and the next order no memory.
    credit: AtomicU32,
    /// Number of waits without staying awake since it was last tried.
    asleep: AtomicU32,
}

impl Default for Eagerness {
    fn default() -> Self {
        // Counts affinity and cgroup quota. Whoever is waited for has to have a core.
        let cores = available_parallelism().is_ok_and(|cores| cores.get() > 1);
        Self {
            cores,
            taken: AtomicBool::new(false),
            credit: AtomicU32::new(CREDIT),
            asleep: AtomicU32::new(0),
        }
    }
}

impl Eagerness {
    /// Polls `future` again and again, and lets its runtime look for I/O in between. Returns `None` if the future is
    /// not done when waiting awake is not worth it any more, or was not from the start: await it then.
    /// Cancellation-safe if `future` is. For runtimes of one thread.
    pub async fn wait<F: Future + ?Sized>(&self, mut future: Pin<&mut F>) -> Option<F::Output> {
        let _place = self.is_worth_it().then(|| Place::take(&self.taken)).flatten()?;
        let began = Instant::now();
        loop {
            let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
            if let Poll::Ready(output) = polled {
                self.credit.store(CREDIT, Ordering::Relaxed);
                return Some(output);
            }
            if began.elapsed() >= AWAKE {
                let credit = self.credit.load(Ordering::Relaxed);
                self.credit.store(credit.saturating_sub(1), Ordering::Relaxed);
                return None;
            }
            tokio::task::yield_now().await;
        }
    }

    fn is_worth_it(&self) -> bool {
        if self.credit.load(Ordering::Relaxed) > 0 {
            return self.cores;
        }
        let asleep = self.asleep.fetch_add(1, Ordering::Relaxed) + 1;
        if asleep < TRY_AGAIN_AFTER {
            return false;
        }
        self.asleep.store(0, Ordering::Relaxed);
        self.cores
    }
}

/// A guard that marks the one awake waiter of a thread.
struct Place<'a>(&'a AtomicBool);

impl<'a> Place<'a> {
    fn take(taken: &'a AtomicBool) -> Option<Self> {
        (!taken.swap(true, Ordering::Relaxed)).then(|| Self(taken))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Time for which a waiter stays awake: about twice what it costs to wake a thread across cores, so that a side that
/// has fallen asleep does not put the other to sleep as well.
const AWAKE: Duration = Duration::from_micros(100);

/// Number of vain waits in a row after which waiting awake is given up.
const CREDIT: u32 = 16;

/// Number of sleeping waits after which waiting awake is tried again.
const TRY_AGAIN_AFTER: u32 = 64;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use super::*;

    fn on_two_cores() -> Eagerness {
        Eagerness { cores: true, ..Eagerness::default() }
    }

    /// Waits for a future that never completes and returns how often it was polled.
    async fn wait_in_vain(eagerness: &Eagerness) -> u32 {
        let looks = Cell::new(0);
        let never = poll_fn(|_| {
            looks.set(looks.get() + 1);
            Poll::<()>::Pending
        });
        assert_eq!(eagerness.wait(pin!(never)).await, None);
        looks.get()
    }

    #[tokio::test]
    async fn what_comes_soon_is_found_awake_and_other_tasks_run_meanwhile() {
        let eagerness = on_two_cores();
        let (tell, told) = tokio::sync::oneshot::channel();
        tokio::spawn(async move { tell.send(7) });
        assert_eq!(eagerness.wait(pin!(told)).await, Some(Ok(7)));
    }

    #[tokio::test]
    async fn waiting_awake_is_given_up_where_it_is_in_vain_and_tried_again_now_and_then() {
        let eagerness = on_two_cores();
        for _ in 0..CREDIT {
            assert!(wait_in_vain(&eagerness).await > 0);
        }
        for _ in 0..3 {
            for _ in 1..TRY_AGAIN_AFTER {
                assert_eq!(wait_in_vain(&eagerness).await, 0);
            }
            assert!(wait_in_vain(&eagerness).await > 0);
        }
        for _ in 1..TRY_AGAIN_AFTER {
            assert_eq!(eagerness.wait(pin!(async {})).await, None);
        }
        // It helps again, so it is done again.
        assert_eq!(eagerness.wait(pin!(async {})).await, Some(()));
        assert_eq!(eagerness.wait(pin!(async {})).await, Some(()));
    }

    #[tokio::test]
    async fn one_at_a_time_waits_awake_and_leaves_its_place_however_it_ends() {
        let eagerness = on_two_cores();
        let inner = async {
            assert_eq!(wait_in_vain(&eagerness).await, 0);
            assert_eq!(wait_in_vain(&eagerness).await, 0);
        };
        assert_eq!(eagerness.wait(pin!(inner)).await, Some(()));
        let dropped = async { wait_in_vain(&eagerness).await };
        assert!(poll_once(pin!(dropped)).await.is_none());
        assert!(wait_in_vain(&eagerness).await > 0);
    }

    async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
        let mut output = None;
        poll_fn(|context| {
            if let Poll::Ready(done) = future.as_mut().poll(context) {
                output = Some(done);
            }
            Poll::Ready(())
        })
        .await;
        output
    }

    #[tokio::test]
    async fn nobody_waits_awake_on_a_single_core() {
        let eagerness = Eagerness { cores: false, ..Eagerness::default() };
        assert_eq!(wait_in_vain(&eagerness).await, 0);
    }
}

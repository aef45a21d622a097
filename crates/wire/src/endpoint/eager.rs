//! Waiting awake for what comes soon.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Whether one who waits for a peer keeps its thread awake for a moment, because what it waits for mostly comes in that
/// time: to wake a thread that sleeps costs tens of microseconds on a virtual machine, at either end of each round trip.
///
/// One for each thread, since one who waits awake keeps it awake for all. It has its bounds: 100 µs at a time, never on
/// a single core, and hardly ever where it has not helped 16 times in a row; whether it helps again is seen every 64
/// waits.
#[derive(Debug)]
pub struct Eagerness {
    cores: bool,
    /// Somebody waits awake.
    taken: AtomicBool,
    /// How often it may still be in vain. Counts and nothing else, as the next: no memory is ordered by them.
    credit: AtomicU32,
    /// Waits without it since the last time it was tried.
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
    /// Polls `future` again and again and has its runtime look for I/O in between; `None` if it is not done when that is
    /// not worth it any more, or was not from the start: await it then. Cancellation-safe if `future` is. For runtimes
    /// of one thread.
    pub async fn wait<F: Future>(&self, mut future: Pin<&mut F>) -> Option<F::Output> {
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

/// The place of one who waits awake.
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

/// About twice what it costs to wake a thread across cores, so that one side that has fallen asleep does not put the
/// other to sleep as well.
const AWAKE: Duration = Duration::from_micros(100);

/// Times that waiting awake may be in vain in a row before it is given up.
const CREDIT: u32 = 16;

/// Waits asleep before it is tried again.
const TRY_AGAIN_AFTER: u32 = 64;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use super::*;

    fn on_two_cores() -> Eagerness {
        Eagerness { cores: true, ..Eagerness::default() }
    }

    /// What became of a wait for what never comes, and how often it was looked for.
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

//! Waits for several futures together.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// One of several futures that run together.
pub(crate) type Part<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Runs all parts together until all are done, or until `enough` says so after some were polled. They are first
/// polled in their order, so that what each does before it first waits is done for all before any is waited for.
///
/// Cancellation-safe if the parts are: dropping this drops them.
pub(crate) async fn run_together(parts: Vec<Part<'_>>, mut enough: impl FnMut() -> bool) {
    let mut parts: Vec<Option<Part<'_>>> = parts.into_iter().map(Some).collect();
    poll_fn(move |context| {
        let mut running = false;
        for part in &mut parts {
            let done = part.as_mut().is_none_or(|part| part.as_mut().poll(context).is_ready());
            if done {
                *part = None;
            } else {
                running = true;
            }
        }
        if running && !enough() { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use parking_lot::Mutex;

    use super::*;

    /// Is ready when polled for the `n`-th time.
    fn after<'a>(n: u32, name: u32, log: &'a Mutex<Vec<u32>>) -> Part<'a> {
        let mut polls = 0;
        Box::pin(poll_fn(move |_| {
            polls += 1;
            log.lock().push(name);
            if polls >= n { Poll::Ready(()) } else { Poll::Pending }
        }))
    }

    fn polls_until_ready(future: impl Future<Output = ()>) -> u32 {
        let mut future = std::pin::pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        (1..).find(|_| future.as_mut().poll(&mut context).is_ready()).unwrap()
    }

    #[test]
    fn all_begin_before_any_is_waited_for() {
        let log = Mutex::new(Vec::new());
        let parts = [(3, 0), (1, 1), (2, 2)].map(|(n, name)| after(n, name, &log)).into();
        assert_eq!(polls_until_ready(run_together(parts, || false)), 3);
        assert_eq!(*log.lock(), [0, 1, 2, 0, 2, 0]);
    }

    #[test]
    fn the_rest_is_left_when_it_is_enough() {
        let log = Mutex::new(Vec::new());
        let parts = [(1, 0), (u32::MAX, 1)].map(|(n, name)| after(n, name, &log)).into();
        assert_eq!(polls_until_ready(run_together(parts, || true)), 1);
    }
}

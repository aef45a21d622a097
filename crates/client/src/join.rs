//! Waiting for several futures together, all of them to their end.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// A future that is still running, or its result.
enum Slot<'a, T> {
    Running(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
    Done(Option<T>),
}

/// Runs all futures together; results in their order. They are first polled in their order, so that what each
/// does before it first waits is done for all before any is waited for.
///
/// Cancellation-safe if the futures are: dropping this drops them.
pub(crate) async fn join_all<'a, T: Send + 'a>(
    futures: impl Iterator<Item = impl Future<Output = T> + Send + 'a>,
) -> Vec<T> {
    let mut slots: Vec<Slot<'a, T>> =
        futures.map(|future| Slot::Running(Box::pin(future) as Pin<Box<_>>)).collect();
    let mut running = slots.len();
    poll_fn(move |context| {
        for slot in &mut slots {
            if let Slot::Running(future) = slot
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *slot = Slot::Done(Some(value));
                running -= 1;
            }
        }
        if running > 0 {
            return Poll::Pending;
        }
        let take = |slot: &mut Slot<'a, T>| match slot {
            Slot::Done(value) => value.take(),
            Slot::Running(_) => None,
        };
        Poll::Ready(slots.iter_mut().filter_map(take).collect())
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Mutex;
    use std::task::{Context, Waker};

    use super::*;

    /// Is ready when polled for the `n`-th time.
    fn after(n: u32, name: u32, log: &Mutex<Vec<u32>>) -> impl Future<Output = u32> + Send {
        let mut polls = 0;
        poll_fn(move |_| {
            polls += 1;
            log.lock().unwrap().push(name);
            if polls >= n { Poll::Ready(name) } else { Poll::Pending }
        })
    }

    #[test]
    fn all_begin_before_any_is_waited_for_and_results_keep_their_order() {
        let log = Mutex::new(Vec::new());
        let joined = join_all([(3, 0), (1, 1), (2, 2)].map(|(n, name)| after(n, name, &log)).into_iter());
        let mut joined = std::pin::pin!(joined);
        let mut context = Context::from_waker(Waker::noop());
        let polls = Cell::new(0);
        let results = loop {
            polls.set(polls.get() + 1);
            if let Poll::Ready(results) = joined.as_mut().poll(&mut context) {
                break results;
            }
        };
        assert_eq!((results, polls.get()), (vec![0, 1, 2], 3));
        assert_eq!(*log.lock().unwrap(), [0, 1, 2, 0, 2, 0]);
    }
}

//! A timer that waits share.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer for waits that are nearly always over long before their deadline. It is kept from one wait to the next, and
/// armed again only when it goes off or is needed sooner: to arm and disarm one for each wait costs more than most
/// steps.
#[derive(Debug, Default)]
pub struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    /// Waits until the deadline. Cancellation-safe.
    pub(crate) async fn until(&mut self, deadline: Instant) {
        poll_fn(|context| self.poll(context, deadline)).await;
    }

    /// Returns the result of `future`; `None` if the deadline comes first.
    pub(crate) async fn within<F: Future>(&mut self, deadline: Instant, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => self.poll(context, deadline).map(|()| None),
        })
        .await
    }

    fn poll(&mut self, context: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(context));
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            // It was set for an earlier wait.
            sleep.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn no_wait_ends_before_its_own_deadline_whatever_the_one_before_it_was() {
        let mut alarm = Alarm::default();
        let begun = Instant::now();
        let (hour, moment) = (Duration::from_secs(3600), Duration::from_millis(20));
        assert_eq!(alarm.within(begun + hour, async { 7 }).await, Some(7));
        // Armed for later, for sooner, for what has passed, and after it has gone off.
        for (deadline, done) in [(hour, true), (moment, true), (2 * moment, false), (moment, false)] {
            let work = async {
                tokio::task::yield_now().await;
                if !done {
                    std::future::pending::<()>().await;
                }
            };
            assert_eq!(alarm.within(begun + deadline, work).await.is_some(), done);
            assert!(done || begun.elapsed() >= deadline);
        }
        alarm.until(begun + 3 * moment).await;
        assert!(begun.elapsed() >= 3 * moment);
        assert_eq!(alarm.within(begun, async { 8 }).await, Some(8));
    }
}

//! Messages of caught panics.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

/// Returns the message of a panic that `catch_unwind` or a thread's join returned; "no message" where the payload is no
/// text.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Waits for `task` and catches its panic, whose message is the error. After a panic the task is dropped; what it
/// shares with others stays as the task left it. Cancellation-safe if `task` is.
///
/// # Errors
/// If it panicked.
pub async fn contained<T>(task: impl Future<Output = T>) -> Result<T, String> {
    let mut task = pin!(task);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
        match polled {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic_message(&*panic))),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn texts_are_found_and_other_payloads_admit_to_none() {
        assert_eq!(panic_message(&"plain"), "plain");
        assert_eq!(panic_message(&String::from("formatted 3")), "formatted 3");
        assert_eq!(panic_message(&7), "no message");
    }

    #[test]
    fn a_task_that_panics_at_any_poll_gives_its_message_and_others_what_they_return() {
        let mut context = Context::from_waker(Waker::noop());
        let mut polls = 0;
        let panics = poll_fn(|_| {
            polls += 1;
            if polls == 2 { panic!("at poll {polls}") } else { Poll::<()>::Pending }
        });
        let mut task = pin!(contained(panics));
        assert_eq!(task.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(task.as_mut().poll(&mut context), Poll::Ready(Err("at poll 2".to_owned())));
        assert_eq!(pin!(contained(async { 5 })).poll(&mut context), Poll::Ready(Ok(5)));
    }
}

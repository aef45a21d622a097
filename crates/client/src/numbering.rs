//! The numbers that an owner gives the requests of a session.

use std::time::Duration;

use rollhouse_wire::FrameHeader;

use crate::retry::{Patience, Retry, RetryAction};

/// Numbers one session's requests, and keeps which of them are not known to be answered. Pure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Numbering {
    /// Number of the last request that was written.
    last: u32,
    /// Whether the last request was written, on this stream or an earlier one, and no answer to it was taken.
    open: bool,
    /// Number of requests before it whose answers nobody took.
    abandoned: u32,
}

impl Numbering {
    /// Begins a new request at `now`; the answer to the one before will not be taken if it has not been yet. The count
    /// of abandoned requests in `patience` is replaced.
    pub(crate) fn begin(
        &mut self,
        now: Duration,
        attached: bool,
        patience: Patience,
    ) -> (Retry, RetryAction) {
        self.abandoned = self.abandoned.saturating_add(u32::from(std::mem::take(&mut self.open)));
        Retry::new(now, self.last, attached, Patience { abandoned: self.abandoned, ..patience })
    }

    /// Gives the next request its number, which is written at once. The answer to the one before will not be taken if it
    /// has not been yet.
    #[inline]
    pub(crate) const fn post(&mut self) -> u32 {
        self.abandoned = self.abandoned.saturating_add(self.open as u32);
        self.written(FrameHeader::next_number(self.last));
        self.last
    }

    /// Goes on with the request that was [posted](Self::post) last as [`Numbering::begin`] begins one.
    pub(crate) fn carry_on(&self, now: Duration, attached: bool, patience: Patience) -> (Retry, RetryAction) {
        Retry::new(
            now,
            self.last.saturating_sub(1),
            attached,
            Patience { abandoned: self.abandoned, ..patience },
        )
    }

    /// Notes that the request was written under that number. Whether it arrives is not known before there is an answer,
    /// also when its stream is lost.
    pub(crate) const fn written(&mut self, number: u32) {
        self.last = number;
        self.open = true;
    }

    /// Notes that the answer was taken, or a refusal, which is one: the node stands at that request.
    pub(crate) const fn answered(&mut self) {
        self.open = false;
        self.abandoned = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::RetryEvent;

    const PATIENCE: Patience =
        Patience { deadline: Duration::from_secs(10), lease: Duration::from_secs(30), abandoned: 0, seed: 1 };

    /// Symptom: a session was given up as lost though its node had it. Cause: a request that was written and then
    /// lost with its stream did not count as abandoned when its caller's deadline came, so that a node that never
    /// got it was taken for one that stands elsewhere. Fix: what was written stays open until it is answered.
    #[test]
    fn a_request_that_was_lost_with_its_stream_and_timed_out_does_not_cost_the_session() {
        let mut numbering = Numbering::default();
        let (mut retry, first) = numbering.begin(Duration::ZERO, true, PATIENCE);
        assert_eq!(first, RetryAction::Send { number: 1 });
        numbering.written(1);
        assert_eq!(retry.on(Duration::ZERO, RetryEvent::Lost), RetryAction::Attach);
        // Its caller loses patience; the node has never seen it.
        let (mut retry, next) = numbering.begin(Duration::from_secs(10), false, PATIENCE);
        assert_eq!(next, RetryAction::Attach);
        let found =
            retry.on(Duration::from_secs(10) - Duration::from_millis(1), RetryEvent::Attached { last: 0 });
        assert_eq!(found, RetryAction::Send { number: 1 });
    }

    #[test]
    fn answers_and_refusals_leave_nothing_open() {
        let mut numbering = Numbering::default();
        for number in 1..4 {
            let (_, action) = numbering.begin(Duration::ZERO, true, PATIENCE);
            assert_eq!(action, RetryAction::Send { number });
            numbering.written(number);
            numbering.answered();
        }
        let (mut retry, _) = numbering.begin(Duration::ZERO, false, PATIENCE);
        let found = retry.on(Duration::ZERO, RetryEvent::Attached { last: 2 });
        assert!(matches!(found, RetryAction::GiveUp(_)), "it stands elsewhere: {found:?}");
    }
}

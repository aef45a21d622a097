//! Asks the coordinator about a silent node for a trainer; the client library decides when, and what the answer means.

use std::time::Duration;

use rollhouse_client::{INQUIRY_DEADLINE, Inquiry};
use rollhouse_wire::EndCause;

use crate::call::{Call, Line};
use crate::context::Context;
use crate::message::{Question, Response};

/// Watches over an action from the time at which it was begun.
#[derive(Debug)]
pub(crate) struct Asking {
    inquiry: Inquiry,
    begun: Duration,
    call: Option<Call>,
}

impl Asking {
    pub(crate) const fn new(inquiry: Inquiry, begun: Duration) -> Self {
        Self { inquiry, begun, call: None }
    }

    pub(crate) fn wake_at(&self) -> Duration {
        self.call.as_ref().map_or(self.begun + self.inquiry.look_at(), |call| call.deadline)
    }

    /// Looks, if it is time, and asks the coordinator if the look calls for it.
    pub(crate) fn go_on(&mut self, heard: Option<u64>, coordinator: &mut Line, ctx: &mut Context<'_>) {
        let since = ctx.now - self.begun;
        if self.call.is_none() && self.inquiry.look_at() <= since && self.inquiry.look(since, heard) {
            ctx.count("coordinator asked about a silent node");
            let question = Question::PoolStatus(self.inquiry.question().pool);
            self.call = Some(Call::new(question, ctx.now + INQUIRY_DEADLINE, coordinator, ctx));
        }
        if self.call.as_mut().is_some_and(|call| !call.go_on(*coordinator, ctx)) {
            self.unanswered(ctx.now);
        }
    }

    /// Notes that the connection to the coordinator is lost, or that its answer takes too long.
    pub(crate) fn unanswered(&mut self, now: Duration) {
        if self.call.take().is_some() {
            self.inquiry.answered(now - self.begun, None);
        }
    }

    /// Takes in the coordinator's answer with that number. Returns why the session is gone, if it is.
    pub(crate) fn answered(&mut self, ask: u64, response: &Response, now: Duration) -> Option<EndCause> {
        self.call.take_if(|call| call.is_answered_by(ask))?;
        let status = if let Response::Pool(status) = response { Some(&**status) } else { None };
        self.inquiry.answered(now - self.begun, status)
    }
}

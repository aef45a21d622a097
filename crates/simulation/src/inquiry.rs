//! What a trainer asks the coordinator about a session whose node is silent; when is the client library's to decide.

use std::time::Duration;

use rollhouse_client::{INQUIRY_DEADLINE, Silence};
use rollhouse_core::RunId;
use rollhouse_wire::{Grant, PoolStatus};

use crate::call::Call;
use crate::context::Context;
use crate::message::{Question, Response};
use crate::trainer::Line;

/// One session's, while one thing is done about its request.
#[derive(Debug)]
pub(crate) struct Inquiry {
    silence: Silence,
    call: Option<Call>,
}

impl Inquiry {
    pub(crate) fn new(now: Duration, heard: Option<u64>) -> Self {
        Self { silence: Silence::new(now, heard), call: None }
    }

    pub(crate) fn wake_at(&self) -> Duration {
        self.call.as_ref().map_or(self.silence.look_at(), |call| call.deadline)
    }

    /// Looks, if it is time, and asks what is to be asked.
    pub(crate) fn go_on(
        &mut self,
        pool: RunId,
        heard: Option<u64>,
        coordinator: &mut Line,
        ctx: &mut Context<'_>,
    ) {
        if self.call.is_none() && self.silence.look_at() <= ctx.now && self.silence.look(ctx.now, heard) {
            ctx.count("coordinator asked about a silent node");
            let deadline = ctx.now + INQUIRY_DEADLINE;
            self.call = Some(Call::new(Question::PoolStatus(pool), deadline, coordinator, ctx));
        }
        if self.call.as_mut().is_some_and(|call| !call.go_on(*coordinator, ctx)) {
            self.unanswered(ctx.now);
        }
    }

    /// The connection to the coordinator is no more.
    pub(crate) fn coordinator_lost(&mut self, now: Duration) {
        if self.call.is_some() {
            self.unanswered(now);
        }
    }

    /// Whether the coordinator has answered that the session of that grant is gone.
    pub(crate) fn answered(&mut self, ask: u64, response: &Response, grant: &Grant, now: Duration) -> bool {
        if !self.call.as_ref().is_some_and(|call| call.is_answered_by(ask)) {
            return false;
        }
        let gone = matches!(response, Response::Pool(status) if is_gone(status, grant));
        if !gone {
            self.unanswered(now);
        }
        gone
    }

    fn unanswered(&mut self, now: Duration) {
        self.call = None;
        self.silence.asked(now);
    }
}

fn is_gone(status: &PoolStatus, grant: &Grant) -> bool {
    status.gone.iter().any(|gone| (gone.index, gone.incarnation) == (grant.index, grant.incarnation))
}

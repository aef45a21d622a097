//! What a trainer asks the coordinator about a session whose node is silent; when is the client library's to decide.

use std::time::Duration;

use rollhouse_client::{INQUIRY_DEADLINE, Silence};
use rollhouse_core::RunId;
use rollhouse_wire::{Grant, PoolStatus};

use crate::context::Context;
use crate::message::{Message, Question, Response};
use crate::network::Site;
use crate::trainer::Line;

/// One session's, while one thing is done about its request.
#[derive(Debug)]
pub(crate) struct Inquiry {
    silence: Silence,
    asking: Option<Asking>,
}

#[derive(Debug, Clone, Copy)]
struct Asking {
    /// `None` while the coordinator is dialled.
    ask: Option<u64>,
    deadline: Duration,
}

impl Inquiry {
    pub(crate) fn new(now: Duration, heard: Option<u64>) -> Self {
        Self { silence: Silence::new(now, heard), asking: None }
    }

    pub(crate) fn wake_at(&self) -> Duration {
        self.asking.map_or(self.silence.look_at(), |asking| asking.deadline)
    }

    /// Looks, if it is time, and asks what is to be asked.
    pub(crate) fn go_on(
        &mut self,
        pool: RunId,
        heard: Option<u64>,
        coordinator: &mut Line,
        ctx: &mut Context<'_>,
    ) {
        if self.asking.is_some_and(|asking| asking.deadline <= ctx.now) {
            self.unanswered(ctx.now);
        }
        if self.asking.is_none() && self.silence.look_at() <= ctx.now && self.silence.look(ctx.now, heard) {
            self.asking = Some(Asking { ask: None, deadline: ctx.now + INQUIRY_DEADLINE });
            if *coordinator == Line::None {
                *coordinator = Line::Dialling(ctx.dial(Site::Coordinator));
            }
        }
        let Some(asking @ Asking { ask: None, .. }) = &mut self.asking else { return };
        match *coordinator {
            Line::Up(conn) => {
                let ask = ctx.number();
                asking.ask = Some(ask);
                ctx.count("coordinator asked about a silent node");
                ctx.send(conn, Message::Ask(ask, Question::PoolStatus(pool)));
            }
            Line::Dialling(_) => {}
            Line::None => self.unanswered(ctx.now),
        }
    }

    /// The connection to the coordinator is no more.
    pub(crate) fn coordinator_lost(&mut self, now: Duration) {
        if self.asking.is_some() {
            self.unanswered(now);
        }
    }

    /// Whether the coordinator has answered that the session of that grant is gone.
    pub(crate) fn answered(&mut self, ask: u64, response: &Response, grant: &Grant, now: Duration) -> bool {
        if self.asking.is_none_or(|asking| asking.ask != Some(ask)) {
            return false;
        }
        let gone = matches!(response, Response::Pool(status) if is_gone(status, grant));
        if !gone {
            self.unanswered(now);
        }
        gone
    }

    fn unanswered(&mut self, now: Duration) {
        self.asking = None;
        self.silence.asked(now);
    }
}

fn is_gone(status: &PoolStatus, grant: &Grant) -> bool {
    status.gone.iter().any(|gone| (gone.index, gone.incarnation) == (grant.index, grant.incarnation))
}

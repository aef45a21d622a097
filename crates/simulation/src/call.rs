//! A request of a trainer to the coordinator while it steps.

use std::time::Duration;

use crate::context::Context;
use crate::message::{Message, Question};
use crate::network::Site;

/// A connection of a trainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    None,
    Dialling(u64),
    Up(u64),
}

/// A request, from the dialling of the coordinator to its answer.
#[derive(Debug)]
pub(crate) struct Call {
    question: Question,
    /// The number of the request; `None` while the coordinator is dialled.
    ask: Option<u64>,
    pub(crate) deadline: Duration,
}

impl Call {
    pub(crate) fn new(
        question: Question,
        deadline: Duration,
        coordinator: &mut Line,
        ctx: &mut Context<'_>,
    ) -> Self {
        if *coordinator == Line::None {
            *coordinator = Line::Dialling(ctx.dial(Site::Coordinator));
        }
        Self { question, ask: None, deadline }
    }

    /// Sends the request as soon as there is a connection. Returns false if there is none, or no answer in time.
    pub(crate) fn go_on(&mut self, coordinator: Line, ctx: &mut Context<'_>) -> bool {
        if self.deadline <= ctx.now {
            return false;
        }
        match (self.ask, coordinator) {
            (None, Line::Up(conn)) => {
                let ask = ctx.number();
                self.ask = Some(ask);
                ctx.send(conn, Message::Ask(ask, self.question.clone()));
                true
            }
            (None, Line::None) => false,
            (None, Line::Dialling(_)) | (Some(_), _) => true,
        }
    }

    /// Returns whether that is the number of its answer.
    pub(crate) fn is_answered_by(&self, ask: u64) -> bool {
        self.ask == Some(ask)
    }
}

//! The requests that the coordinator has not answered yet, each with the time by which it has to be.

use std::collections::BTreeMap;
use std::time::Duration;

use rollhouse_coordinator::limits::{CLOSE_PATIENCE, MAX_ATTEMPTS, TICK};
use rollhouse_coordinator::{Event, Ticket};

use crate::cast::OPEN_DEADLINE;

/// The requests that wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    waiting: BTreeMap<Ticket, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// The connection and the number of the request; `None` if nobody takes the answer.
    asker: Option<(u64, u64)>,
    latest: Duration,
}

impl Tickets {
    /// Notes the request that `event` is, of an asker who takes the answer or of one who does not.
    pub(crate) fn add(&mut self, now: Duration, ticket: Ticket, event: &Event, asker: Option<(u64, u64)>) {
        let patience = match event {
            // Node after node is asked to open a session.
            Event::OpenPool { .. } | Event::ReplaceSession { .. } => {
                OPEN_DEADLINE * MAX_ATTEMPTS as u32 + TICK
            }
            Event::ClosePool { .. } => CLOSE_PATIENCE + TICK,
            _ => Duration::ZERO,
        };
        self.waiting.insert(ticket, Waiting { asker, latest: now + patience });
    }

    /// Notes the answer to a request, and returns who takes it.
    pub(crate) fn answered(&mut self, ticket: Ticket) -> Option<(u64, u64)> {
        self.waiting.remove(&ticket).expect("a request is answered once").asker
    }

    /// Notes that the process was stopped, or its clock went forward, by so much: nothing could be answered meanwhile.
    pub(crate) fn slept(&mut self, time: Duration) {
        self.waiting.values_mut().for_each(|waiting| waiting.latest += time);
    }

    /// Checks that no answer is late.
    pub(crate) fn check(&self, now: Duration) {
        for (ticket, Waiting { latest, .. }) in &self.waiting {
            assert!(now <= *latest, "the answer to {ticket:?} is late: due at {latest:?}, it is {now:?}");
        }
    }

    /// Checks that every request was answered.
    pub(crate) fn check_idle(&self) {
        assert!(self.waiting.is_empty(), "requests were never answered");
    }
}

//! The state that a session publishes. Everyone who has the session looks at it, and sleeps on it.
//!
//! ```text
//! open --somebody asks for the end--> ending --its end is noted in the table--> over
//! ```

use std::time::Instant;

use rollhouse_wire::SessionEnd;
use tokio::sync::watch;
use tracing::Span;

use crate::turn::{Turn, TurnOver};
use crate::{Cancel, Gone};

/// The published state of one session. Clones are of the same session.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionStatus {
    /// Raised to end the session, before anybody can see here that it ends.
    token: Cancel,
    state: watch::Sender<PublishedState>,
}

#[derive(Debug, Default)]
struct PublishedState {
    /// The attachment that may go on, until the session ends.
    turn: Turn,
    stage: Stage,
    /// Whether the owner keeps a log, and so can move the session.
    is_movable: bool,
    /// Whether the session is lent to the thread of its memory.
    in_memory: bool,
    /// Number of the request that is to be answered with the lanes that are done.
    hastened: u32,
    /// The time at which the owner went, unless one is there.
    away_since: Option<Instant>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Open,
    /// It is to end for this reason; the line about its end belongs to the call that asked for it.
    Ending(Gone, Span),
    /// Its end was noted.
    Over(Box<SessionEnd>),
}

/// Notices every change of a session's state.
#[derive(Debug)]
pub(crate) struct StatusChanges(watch::Receiver<PublishedState>);

impl SessionStatus {
    /// Returns the state of an open session with that token.
    pub(crate) fn new(token: Cancel) -> Self {
        Self { token, state: watch::Sender::default() }
    }

    /// Returns the session's token.
    pub(crate) const fn token(&self) -> &Cancel {
        &self.token
    }

    /// Returns the turn at the session.
    pub(crate) fn turn(&self) -> Turn {
        self.state.borrow().turn
    }

    /// Sends away every earlier attachment than that one. Returns when the last one went, if it had.
    pub(crate) fn take_over(&self, attachment: u64) -> Option<Instant> {
        let mut away_since = None;
        self.state.send_modify(|state| {
            state.turn.take_over(attachment);
            away_since = state.away_since.take();
        });
        away_since
    }

    /// Notes that the attachment is over, unless another one has taken its place.
    pub(crate) fn note_away(&self, attachment: u64) {
        self.state.send_if_modified(|state| {
            if state.turn.admit(attachment).is_ok() {
                state.away_since = Some(Instant::now());
            }
            // Nobody waits for that.
            false
        });
    }

    /// Waits until an attachment may not go on, and returns why. Cancellation-safe.
    pub(crate) async fn turned_away(&self, attachment: u64) -> TurnOver {
        let mut state = self.state.subscribe();
        // The sender is here.
        let state = state.wait_for(|state| state.turn.admit(attachment).is_err()).await;
        state.ok().and_then(|state| state.turn.admit(attachment).err()).unwrap_or(TurnOver::Ended)
    }

    /// Has a request answered with the lanes that are done, if it waits for more.
    pub(crate) fn hasten(&self, request: u32) {
        self.state.send_modify(|state| state.hastened = request);
    }

    /// Returns whether a request of an attachment waits for no more lanes: its owner sends others, or it is turned away.
    pub(crate) fn is_hastened(&self, attachment: u64, request: u32) -> bool {
        let state = self.state.borrow();
        state.hastened == request || state.turn.admit(attachment).is_err()
    }

    /// Has whoever sleeps on a change look after the session.
    pub(crate) fn nudge(&self) {
        self.state.send_modify(|_| ());
    }

    /// Returns what notices every change from now on.
    pub(crate) fn changes(&self) -> StatusChanges {
        StatusChanges(self.state.subscribe())
    }

    /// Notes whether the owner keeps a log.
    pub(crate) fn set_movable(&self, is_movable: bool) {
        self.state.send_modify(|state| state.is_movable = is_movable);
    }

    /// Returns whether the owner keeps a log, and so can move the session.
    pub(crate) fn is_movable(&self) -> bool {
        self.state.borrow().is_movable
    }

    /// Notes whether the thread of its memory has the session.
    pub(crate) fn set_in_memory(&self, in_memory: bool) {
        self.state.send_modify(|state| state.in_memory = in_memory);
    }

    /// Returns whether the thread of its memory has the session.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.state.borrow().in_memory
    }

    /// Sends everyone away and asks for the end, of which the session's actor learns; its token has been raised. The last
    /// one that asks says why.
    pub(crate) fn ask_to_end(&self, gone: Gone) {
        self.state.send_if_modified(|state| {
            let is_on = !matches!(state.stage, Stage::Over(_));
            if is_on {
                state.turn.end();
                state.stage = Stage::Ending(gone, Span::current());
            }
            is_on
        });
    }

    /// Returns why the session is to end and the span of the call that asked for it, if it is ending.
    pub(crate) fn asked(&self) -> Option<(Gone, Span)> {
        match &self.state.borrow().stage {
            Stage::Ending(gone, call) => Some((gone.clone(), call.clone())),
            Stage::Open | Stage::Over(_) => None,
        }
    }

    /// Waits until the session is ending or over. Cancellation-safe.
    pub(crate) async fn ending(&self) {
        // The sender is here.
        drop(self.state.subscribe().wait_for(|state| state.turn.has_ended()).await);
    }

    /// Notes the session's end.
    pub(crate) fn end(&self, end: SessionEnd) {
        self.state.send_modify(|state| {
            state.turn.end();
            state.stage = Stage::Over(Box::new(end));
        });
    }

    /// Returns whether the session's end was noted.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state.borrow().stage, Stage::Over(_))
    }

    /// Waits for the session's end. Cancellation-safe.
    pub(crate) async fn ended(&self) -> Option<SessionEnd> {
        let mut state = self.state.subscribe();
        // The sender is here.
        let state = state.wait_for(|state| matches!(state.stage, Stage::Over(_))).await.ok()?;
        if let Stage::Over(end) = &state.stage { Some((**end).clone()) } else { None }
    }
}

impl StatusChanges {
    /// Waits for a change since the last call, or since this was made. Cancellation-safe.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // Nothing changes any more.
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use rollhouse_core::RunId;
    use rollhouse_wire::{EndCause, Incarnation, SessionCounts, SessionId};

    use super::*;

    fn gone(cause: EndCause) -> Gone {
        Gone { cause, detail: String::new() }
    }

    #[test]
    fn an_attachment_is_sent_away_by_the_next_one_and_by_the_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let status = SessionStatus::default();
        status.take_over(1);
        status.take_over(2);
        assert_eq!(runtime.block_on(status.turned_away(1)), TurnOver::Replaced);
        status.ask_to_end(gone(EndCause::Closed));
        assert_eq!(runtime.block_on(status.turned_away(2)), TurnOver::Ended);
        runtime.block_on(status.ending());
    }

    #[test]
    fn a_session_that_is_over_is_not_asked_to_end_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let status = SessionStatus::default();
        status.ask_to_end(gone(EndCause::Closed));
        let end = SessionEnd {
            session: SessionId { pool: RunId::from_u128(1), index: 0 },
            incarnation: Incarnation { term: 1, counter: 1 },
            cause: EndCause::Closed,
            detail: String::new(),
            done: SessionCounts::default(),
            report: None,
            unreached: false,
        };
        status.end(end.clone());
        status.ask_to_end(gone(EndCause::LeaseEnded));
        assert!(status.is_over() && status.asked().is_none());
        assert_eq!(runtime.block_on(status.ended()), Some(end));
    }
}

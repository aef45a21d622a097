//! The node's side of one session: who may step it, for how long it is kept without an owner, and how it ends.
//!
//! ```text
//! Opening --made--> Detached --an owner attaches--> Attached --its stream ends--> Detached
//!                                                   Attached --another attaches--> Attached: the first is sent away
//!                   Detached --its lease passes-----> Ending --ended--> Gone
//!                   Detached, Attached --asked to end, lost--> Ending
//! Opening --asked to end, cannot be made--> Gone
//! ```
//!
//! No sockets and no clock: every event is given the time, and the caller carries the action out. The owner's side is
//! `Session` of crate client.

use std::time::Duration;

use rollhouse_wire::EndCause;

use crate::transport::Transport;

/// One placement of a session on this node; `P` is the place where its lanes are.
#[derive(Debug)]
pub struct NodeSession<P> {
    state: SessionState<P>,
    lease: Duration,
    /// Whether it ends when nobody was attached for the length of its lease.
    leased: bool,
    /// Number of attachments so far: it tells a stream that ended from the one that took over.
    attachments: u64,
    /// The transport by which the owner is attached, or was last.
    transport: Transport,
}

/// The state that a session has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionState<P> {
    /// Its lanes are being made.
    Opening,
    /// Nobody steps it; the lease runs.
    Detached {
        /// Where its lanes are.
        place: P,
        /// The time since which nobody is attached.
        since: Duration,
    },
    /// An owner steps it.
    Attached {
        /// Where its lanes are.
        place: P,
        /// The number of the attachment, which belongs to the last owner that attached.
        number: u64,
    },
    /// It is being ended: open episodes end, and what was recorded is written out.
    Ending {
        /// Where its lanes are.
        place: P,
    },
    /// It is over.
    Gone,
}

/// An event for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEvent<P> {
    /// Its lanes are made, and are at this place.
    Made(P),
    /// Its lanes cannot be made.
    NotMade,
    /// An owner that has shown its secret attaches.
    Attach(Transport),
    /// The stream of the attachment with that number ended.
    Detached(u64),
    /// Time has passed.
    Look,
    /// Somebody asks for the end, or has found it lost.
    End(EndCause),
    /// What [`SessionAction::End`] asks for is done.
    Ended,
}

/// What follows from an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionAction<P> {
    /// To let the owner in under that number, and to send away the one that was attached before.
    LetIn {
        /// Where its lanes are.
        place: P,
        /// The number of the attachment.
        number: u64,
    },
    /// To raise the session's token, send its owner away and end its open episodes. [`SessionEvent::Ended`] is to
    /// follow.
    End {
        /// Where its lanes are.
        place: P,
        /// Why it ends.
        cause: EndCause,
    },
    /// To raise the token of a session whose lanes are not made yet, and to forget it.
    Forget(EndCause),
    /// To let lanes go that were made in vain.
    LetGo(P),
}

impl<P: Clone> NodeSession<P> {
    /// Makes a session whose lanes are about to be made. It is kept for `lease` without an owner, or as long as it
    /// likes if it is not `leased`.
    pub const fn new(lease: Duration, leased: bool) -> Self {
        let (state, transport) = (SessionState::Opening, Transport::Quic);
        Self { state, lease, leased, attachments: 0, transport }
    }

    /// Handles an event that happened at `now`. Events that come too late change nothing.
    pub fn on(&mut self, now: Duration, event: SessionEvent<P>) -> Option<SessionAction<P>> {
        match event {
            SessionEvent::Made(place) => self.made(now, place),
            SessionEvent::NotMade => {
                if matches!(self.state, SessionState::Opening) {
                    self.state = SessionState::Gone;
                }
                None
            }
            SessionEvent::Attach(by) => self.attach(by),
            SessionEvent::Detached(number) => {
                self.detached(now, number);
                None
            }
            SessionEvent::Look if self.is_overdue(now) => self.end(EndCause::LeaseEnded),
            SessionEvent::Look => None,
            SessionEvent::End(cause) => self.end(cause),
            SessionEvent::Ended => {
                self.state = SessionState::Gone;
                None
            }
        }
    }

    fn made(&mut self, now: Duration, place: P) -> Option<SessionAction<P>> {
        if !matches!(self.state, SessionState::Opening) {
            return Some(SessionAction::LetGo(place));
        }
        self.state = SessionState::Detached { place, since: now };
        None
    }

    fn attach(&mut self, by: Transport) -> Option<SessionAction<P>> {
        let place = self.place()?.clone();
        self.attachments += 1;
        self.transport = by;
        let number = self.attachments;
        self.state = SessionState::Attached { place: place.clone(), number };
        Some(SessionAction::LetIn { place, number })
    }

    fn detached(&mut self, now: Duration, ended: u64) {
        if let SessionState::Attached { place, number } = &self.state
            && *number == ended
        {
            self.state = SessionState::Detached { place: place.clone(), since: now };
        }
    }

    fn end(&mut self, cause: EndCause) -> Option<SessionAction<P>> {
        match &self.state {
            SessionState::Opening => {
                self.state = SessionState::Gone;
                Some(SessionAction::Forget(cause))
            }
            SessionState::Detached { place, .. } | SessionState::Attached { place, .. } => {
                let place = place.clone();
                self.state = SessionState::Ending { place: place.clone() };
                Some(SessionAction::End { place, cause })
            }
            SessionState::Ending { .. } | SessionState::Gone => None,
        }
    }
}

impl<P> NodeSession<P> {
    /// Returns the state.
    pub const fn state(&self) -> &SessionState<P> {
        &self.state
    }

    /// Returns where the lanes are, while the session is open.
    pub const fn place(&self) -> Option<&P> {
        match &self.state {
            SessionState::Detached { place, .. } | SessionState::Attached { place, .. } => Some(place),
            SessionState::Opening | SessionState::Ending { .. } | SessionState::Gone => None,
        }
    }

    /// Returns whether an owner is attached.
    pub const fn is_attached(&self) -> bool {
        matches!(self.state, SessionState::Attached { .. })
    }

    /// Returns whether an owner ever attached.
    pub const fn was_attached(&self) -> bool {
        self.attachments > 0
    }

    /// Returns the transport by which the owner is attached, or was last.
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns whether nobody was attached for the lease's whole length.
    fn is_overdue(&self, now: Duration) -> bool {
        let SessionState::Detached { since, .. } = &self.state else { return false };
        self.leased && now.saturating_sub(*since) >= self.lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LENGTH: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn open() -> NodeSession<u8> {
        let mut session = NodeSession::new(LENGTH, true);
        assert_eq!(session.on(at(0), SessionEvent::Made(7)), None);
        session
    }

    fn attach(session: &mut NodeSession<u8>) -> u64 {
        match session.on(at(0), SessionEvent::Attach(Transport::Quic)) {
            Some(SessionAction::LetIn { place: 7, number }) => number,
            other => panic!("{other:?}"),
        }
    }

    fn is_overdue(session: &mut NodeSession<u8>, now: Duration) -> bool {
        let action = session.on(now, SessionEvent::Look);
        assert!(matches!(action, None | Some(SessionAction::End { place: 7, cause: EndCause::LeaseEnded })));
        action.is_some()
    }

    #[test]
    fn the_end_of_a_stream_that_was_taken_over_from_starts_no_lease() {
        let mut session = open();
        let (first, second) = (attach(&mut session), attach(&mut session));
        session.on(at(1), SessionEvent::Detached(first));
        assert!(session.is_attached());
        session.on(at(2), SessionEvent::Detached(second));
        assert!(!is_overdue(&mut session, Duration::from_millis(31_999)));
        assert!(is_overdue(&mut session, at(32)));
    }

    #[test]
    fn a_session_ends_once_and_takes_no_owner_from_then_on() {
        let mut session = open();
        let end = SessionEvent::End(EndCause::Drained);
        let ended = Some(SessionAction::End { place: 7, cause: EndCause::Drained });
        assert_eq!(session.on(at(1), end), ended);
        assert_eq!(session.on(at(1), SessionEvent::End(EndCause::Closed)), None);
        assert_eq!(session.on(at(1), SessionEvent::Attach(Transport::Quic)), None);
        assert_eq!(session.state(), &SessionState::Ending { place: 7 });
        session.on(at(2), SessionEvent::Ended);
        assert_eq!(session.state(), &SessionState::Gone);
    }

    #[test]
    fn lanes_of_a_session_that_was_closed_while_they_were_made_are_let_go() {
        let mut session = NodeSession::new(LENGTH, true);
        let forget = Some(SessionAction::Forget(EndCause::Closed));
        assert_eq!(session.on(at(0), SessionEvent::End(EndCause::Closed)), forget);
        assert_eq!(session.on(at(1), SessionEvent::Made(7)), Some(SessionAction::LetGo(7)));
    }

    proptest! {
        #[test]
        fn a_lease_is_over_exactly_when_nobody_was_attached_for_its_length(
            events in prop::collection::vec((0u64..20, any::<bool>()), 1..50)
        ) {
            let mut session = open();
            let (mut now, mut current, mut alone) = (0, None, Some(0));
            for (wait, attaches) in events {
                now += wait;
                let over = alone.is_some_and(|since| now - since >= 30);
                prop_assert_eq!(is_overdue(&mut session, at(now)), over);
                if over {
                    break;
                }
                if attaches {
                    current = Some(attach(&mut session));
                    alone = None;
                } else if let Some(attachment) = current.take() {
                    session.on(at(now), SessionEvent::Detached(attachment));
                    alone = Some(now);
                }
                prop_assert_eq!(session.is_attached(), alone.is_none());
            }
        }
    }
}

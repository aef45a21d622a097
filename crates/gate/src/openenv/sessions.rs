//! Sessions by their names: those that `/mcp` has created, which sockets may take and give back.

use std::collections::BTreeMap;
use std::time::Duration;

/// The sessions that were created by name.
#[derive(Debug)]
pub(crate) struct Sessions<S> {
    named: BTreeMap<String, Named<S>>,
}

#[derive(Debug)]
enum Named<S> {
    /// No socket has it, since then.
    Free(S, Duration),
    /// A socket has it.
    Attached { closing: bool },
}

/// Reason for which a socket cannot have a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAttached {
    Unknown,
    InUse,
}

/// What becomes of a session that is to be closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Closing<S> {
    /// Nobody has it.
    Closed(S),
    /// The socket that has it closes it as it ends.
    Later,
    Unknown,
}

impl<S> Sessions<S> {
    pub(crate) const fn new() -> Self {
        Self { named: BTreeMap::new() }
    }

    /// Enters a session.
    pub(crate) fn enter(&mut self, name: String, session: S, now: Duration) {
        self.named.insert(name, Named::Free(session, now));
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.named.contains_key(name)
    }

    /// Lends a session to a socket.
    pub(crate) fn attach(&mut self, name: &str) -> Result<S, NotAttached> {
        let Some(place) = self.named.get_mut(name) else { return Err(NotAttached::Unknown) };
        match std::mem::replace(place, Named::Attached { closing: false }) {
            Named::Free(session, _) => Ok(session),
            attached @ Named::Attached { .. } => {
                *place = attached;
                Err(NotAttached::InUse)
            }
        }
    }

    /// Takes a session back from its socket. Returns it if it is to be closed.
    pub(crate) fn give_back(&mut self, name: &str, session: S, now: Duration) -> Option<S> {
        match self.named.get_mut(name) {
            Some(place @ Named::Attached { closing: false }) => {
                *place = Named::Free(session, now);
                None
            }
            _ => {
                self.named.remove(name);
                Some(session)
            }
        }
    }

    /// Closes a session, now or as its socket ends.
    pub(crate) fn close(&mut self, name: &str) -> Closing<S> {
        match self.named.get_mut(name) {
            None => Closing::Unknown,
            Some(Named::Attached { closing }) => {
                *closing = true;
                Closing::Later
            }
            Some(Named::Free(..)) => match self.named.remove(name) {
                Some(Named::Free(session, _)) => Closing::Closed(session),
                _ => Closing::Unknown,
            },
        }
    }

    /// Takes out the sessions that no socket has had since `since`.
    pub(crate) fn take_idle(&mut self, since: Duration) -> Vec<S> {
        let idle = self.named.extract_if(.., |_, named| matches!(named, Named::Free(_, at) if *at <= since));
        let sessions = idle.filter_map(|(_, named)| match named {
            Named::Free(session, _) => Some(session),
            Named::Attached { .. } => None,
        });
        sessions.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_session_goes_to_one_socket_at_a_time_and_comes_back() {
        let mut sessions = Sessions::new();
        sessions.enter("a".into(), 1, at(0));
        assert!(sessions.has("a") && !sessions.has("b"));
        assert_eq!(sessions.attach("b"), Err(NotAttached::Unknown));
        assert_eq!(sessions.attach("a"), Ok(1));
        assert_eq!(sessions.attach("a"), Err(NotAttached::InUse));
        assert_eq!(sessions.give_back("a", 1, at(5)), None);
        assert_eq!(sessions.attach("a"), Ok(1));
    }

    #[test]
    fn one_that_is_closed_while_a_socket_has_it_is_closed_by_the_socket() {
        let mut sessions = Sessions::new();
        sessions.enter("a".into(), 1, at(0));
        sessions.enter("b".into(), 2, at(0));
        assert_eq!(sessions.attach("a"), Ok(1));
        assert_eq!(sessions.close("a"), Closing::Later);
        assert_eq!(sessions.give_back("a", 1, at(1)), Some(1));
        assert_eq!(sessions.close("a"), Closing::Unknown);
        assert_eq!(sessions.close("b"), Closing::Closed(2));
        assert_eq!(sessions.close("b"), Closing::Unknown);
    }

    #[test]
    fn those_that_nobody_has_for_long_are_taken_out_and_those_in_use_stay() {
        let mut sessions = Sessions::new();
        for (name, session) in [("a", 1), ("b", 2), ("c", 3)] {
            sessions.enter(name.into(), session, at(session));
        }
        assert_eq!(sessions.attach("a"), Ok(1));
        assert_eq!(sessions.take_idle(at(2)), [2]);
        assert!(sessions.has("a") && !sessions.has("b") && sessions.has("c"));
        assert_eq!(sessions.give_back("a", 1, at(9)), None);
        assert_eq!(sessions.take_idle(at(9)), [1, 3]);
    }
}

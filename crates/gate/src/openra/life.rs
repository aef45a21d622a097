//! The life of a session, as a value: what happens to it, and what is to be done then. Times are since the gate began.
//!
//! ```text
//! making -> playing -> over        its game has ended; one that was created is gone then
//! making -> not made               its world could not be made
//! any    -> ended                  destroyed, idle, failed, or the gate stops
//! ```

use std::time::Duration;

use rollhouse_core::GameResult;

/// The life of a session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Life {
    standing: Standing,
    last_asked: Duration,
    calls: usize,
    /// Whether it is the single session of the gate, which is never idle.
    is_single: bool,
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Standing {
    Making,
    Playing,
    Over(GameResult),
    NotMade,
    Ended,
}

/// Something that happens to a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SessionEvent {
    /// Its world was made.
    Made,
    /// Its world could not be made.
    NotMade,
    /// A call would advance it.
    Asked,
    /// A call that was admitted has ended.
    Answered,
    /// It was advanced; its game may have ended.
    Advanced(Option<GameResult>),
    /// Its world failed.
    Lost,
    /// A client ends it, or the gate does.
    Destroyed,
    /// It is looked at from time to time.
    Looked,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionAction {
    Nothing,
    /// The call may advance it once those before it have ended.
    Admit,
    /// The call waits until its world is made.
    Wait,
    Refuse(Denied),
    /// Its world is closed, and it is forgotten for this reason.
    Close(Ending),
}

/// Why a call may not advance a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// It is done.
    Done,
    /// Its world could not be made.
    NotMade,
    /// As many calls wait for it as may.
    Busy,
}

/// Why a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Over,
    NotMade,
    Lost,
    Destroyed,
    Idle,
}

/// Calls of a session at a time: one that advances it, and one that waits.
pub(crate) const MAX_CALLS: usize = 2;
/// Time without an advance after which a session is idle.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(5 * 60);
/// Time between two looks at idle sessions.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(30);

impl Life {
    pub(crate) const fn new(now: Duration, is_single: bool) -> Self {
        Self { standing: Standing::Making, last_asked: now, calls: 0, is_single }
    }

    pub(crate) const fn standing(&self) -> Standing {
        self.standing
    }

    /// Takes in what happens, and returns what is to be done.
    pub(crate) fn on(&mut self, now: Duration, event: SessionEvent) -> SessionAction {
        match event {
            SessionEvent::Made => return self.made(now),
            SessionEvent::NotMade if self.standing == Standing::Making => {
                return self.end(Standing::NotMade, Ending::NotMade);
            }
            SessionEvent::Asked => return self.asked(now),
            SessionEvent::Answered => self.calls = self.calls.saturating_sub(1),
            SessionEvent::Advanced(result) => {
                self.last_asked = now;
                if let Some(result) = result.filter(|_| self.standing == Standing::Playing) {
                    return self.end(Standing::Over(result), Ending::Over);
                }
            }
            SessionEvent::Lost if self.is_alive() => return self.end(Standing::Ended, Ending::Lost),
            SessionEvent::Destroyed if self.is_alive() => {
                return self.end(Standing::Ended, Ending::Destroyed);
            }
            SessionEvent::Looked => {
                let is_idle = now.saturating_sub(self.last_asked) >= IDLE_AFTER && self.calls == 0;
                if is_idle && self.standing == Standing::Playing && !self.is_single {
                    return self.end(Standing::Ended, Ending::Idle);
                }
            }
            SessionEvent::NotMade | SessionEvent::Lost | SessionEvent::Destroyed => {}
        }
        SessionAction::Nothing
    }

    const fn is_alive(&self) -> bool {
        matches!(self.standing, Standing::Making | Standing::Playing)
    }

    fn made(&mut self, now: Duration) -> SessionAction {
        if self.standing != Standing::Making {
            // It was destroyed meanwhile.
            return SessionAction::Close(Ending::Destroyed);
        }
        (self.standing, self.last_asked) = (Standing::Playing, now);
        SessionAction::Nothing
    }

    fn asked(&mut self, now: Duration) -> SessionAction {
        match self.standing {
            Standing::Making => SessionAction::Wait,
            Standing::NotMade => SessionAction::Refuse(Denied::NotMade),
            Standing::Over(_) | Standing::Ended => SessionAction::Refuse(Denied::Done),
            Standing::Playing if self.calls >= MAX_CALLS => SessionAction::Refuse(Denied::Busy),
            Standing::Playing => {
                self.calls += 1;
                self.last_asked = now;
                SessionAction::Admit
            }
        }
    }

    fn end(&mut self, standing: Standing, ending: Ending) -> SessionAction {
        self.standing = standing;
        SessionAction::Close(ending)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::SessionAction::{Admit, Close, Nothing, Refuse, Wait};
    use super::SessionEvent::{Advanced, Answered, Asked, Destroyed, Looked, Lost, Made, NotMade};
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn playing() -> Life {
        let mut life = Life::new(at(0), false);
        assert_eq!(life.on(at(0), Made), Nothing);
        life
    }

    #[test]
    fn calls_wait_while_a_world_is_made_and_are_refused_if_it_cannot_be() {
        let mut life = Life::new(at(0), false);
        assert_eq!(life.on(at(1), Asked), Wait);
        assert_eq!(life.on(at(2), NotMade), Close(Ending::NotMade));
        assert_eq!(life.on(at(3), Asked), Refuse(Denied::NotMade));
    }

    #[test]
    fn one_call_advances_one_waits_and_a_third_is_refused() {
        let mut life = playing();
        assert_eq!([(); 3].map(|()| life.on(at(1), Asked)), [Admit, Admit, Refuse(Denied::Busy)]);
        life.on(at(1), Answered);
        assert_eq!(life.on(at(1), Asked), Admit);
    }

    #[test]
    fn a_session_ends_once_with_its_game_and_calls_after_that_are_refused() {
        let mut life = playing();
        assert_eq!(life.on(at(1), Asked), Admit);
        assert_eq!(life.on(at(1), Advanced(None)), Nothing);
        assert_eq!(life.on(at(2), Advanced(Some(GameResult::Win))), Close(Ending::Over));
        assert_eq!(life.standing(), Standing::Over(GameResult::Win));
        assert_eq!(life.on(at(2), Advanced(Some(GameResult::Win))), Nothing);
        assert_eq!(life.on(at(2), Asked), Refuse(Denied::Done));
        assert_eq!(life.on(at(3), Destroyed), Nothing);
    }

    #[test]
    fn a_session_that_nobody_advances_for_five_minutes_is_idle_but_the_single_one_never_is() {
        let mut life = playing();
        assert_eq!(life.on(at(299), Looked), Nothing);
        assert_eq!(life.on(at(299), Asked), Admit);
        assert_eq!(life.on(at(900), Looked), Nothing, "a call is under way");
        life.on(at(900), Answered);
        assert_eq!(life.on(at(900), Looked), Close(Ending::Idle));
        let mut single = Life::new(at(0), true);
        single.on(at(0), Made);
        assert_eq!(single.on(at(9000), Looked), Nothing);
    }

    #[test]
    fn a_world_that_is_made_for_a_session_that_was_destroyed_is_closed() {
        let mut life = Life::new(at(0), false);
        assert_eq!(life.on(at(1), Destroyed), Close(Ending::Destroyed));
        assert_eq!(life.on(at(2), Made), Close(Ending::Destroyed));
    }

    fn event() -> impl Strategy<Value = SessionEvent> {
        prop_oneof![
            Just(Made),
            Just(NotMade),
            Just(Asked),
            Just(Answered),
            Just(Advanced(None)),
            Just(Advanced(Some(GameResult::Lose))),
            Just(Lost),
            Just(Destroyed),
            Just(Looked),
        ]
    }

    proptest! {
        #[test]
        fn a_session_is_closed_at_most_once_after_it_was_made_and_admits_nothing_then(
            events in proptest::collection::vec((event(), 0..400_u64), 0..60),
        ) {
            let (mut life, mut now, mut is_closed) = (playing(), 0, false);
            for (event, seconds) in events {
                now += seconds;
                // A world is made once.
                if event == Made {
                    continue;
                }
                let action = life.on(at(now), event);
                prop_assert!(life.calls <= MAX_CALLS);
                if is_closed {
                    prop_assert!(!matches!(action, Admit | Wait | Close(_)), "{:?}", action);
                }
                is_closed |= matches!(action, Close(_));
            }
        }
    }
}

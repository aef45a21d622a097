//! Decides when a node dials the coordinator, registers and says that it lives. Pure.
//!
//! ```text
//! away --time--> dialling --connected--> registering --registered--> joined --a beat a second--> joined
//!   ^---failed-------'                        |                          |
//!   ^---refused, lost, no answer--------------'--------------------------'
//!           dialling <--another certificate---'--------------------------'
//!                           registering <--another address---------------'
//! ```
//!
//! If the host says that nobody listens at the port, the node dials again sooner: such an answer costs next to nothing.
//!
//! A coordinator that is away ends nothing: sessions go on, and the node comes back when it does.

use std::collections::VecDeque;
use std::time::Duration;

use rollhouse_core::{Pauses, jitter};

/// A node's standing with the coordinator. `now` is any clock that only goes forward.
#[derive(Debug)]
pub struct Registration {
    state: LinkStage,
    failures: u32,
    seed: u64,
    draws: u64,
}

#[derive(Debug)]
enum LinkStage {
    Away {
        retry_at: Duration,
    },
    Dialling,
    Registering {
        /// Number of the last beat on this connection.
        number: u64,
    },
    Joined(Joined),
}

#[derive(Debug)]
struct Joined {
    every: Duration,
    next_at: Duration,
    number: u64,
    /// The numbers of beats without an answer, and when they were sent.
    unanswered: VecDeque<(u64, Duration)>,
}

/// An event that the registration is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEvent {
    /// There is a connection.
    Connected,
    /// The coordinator knows the node, and wants a heartbeat at this interval.
    Registered {
        /// Time between two heartbeats.
        heartbeat: Duration,
    },
    /// The beat of that number was answered.
    Taken {
        /// The number of the beat on this connection.
        number: u64,
        /// Whether the beat may have been too short for all there was to say.
        more: bool,
    },
    /// The coordinator could not be dialled, or refused the node or a beat, or the connection was lost.
    Lost,
    /// The node has another certificate, by which it wants to be known.
    Renewed,
    /// The node is reached at another address than it has told.
    Moved,
    /// The connection failed as in [`LinkEvent::Lost`], and the host said that nobody listens at the port.
    PortClosed,
    /// Time has passed.
    Tick,
}

/// An action that the registration asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkAction {
    /// Connect to the coordinator.
    Dial,
    /// Say who the node is and what runs here.
    Register,
    /// Send a heartbeat.
    Beat {
        /// The number of the beat, which counts from 1 on each connection.
        number: u64,
    },
    /// Give the connection up.
    Drop,
    /// Give the connection up, and connect to the coordinator again at once.
    Redial,
}

impl Registration {
    /// Makes a registration that is not connected and dials at once. `seed` decides the jitter.
    pub const fn new(seed: u64) -> Self {
        Self { state: LinkStage::Away { retry_at: Duration::ZERO }, failures: 0, seed, draws: 0 }
    }

    /// Takes an event in and returns the action to take.
    pub fn handle(&mut self, now: Duration, event: LinkEvent) -> Option<LinkAction> {
        match (&mut self.state, event) {
            (LinkStage::Dialling, LinkEvent::Connected) => {
                self.state = LinkStage::Registering { number: 0 };
                Some(LinkAction::Register)
            }
            (LinkStage::Joined(joined), LinkEvent::Moved) => {
                self.state = LinkStage::Registering { number: joined.number };
                Some(LinkAction::Register)
            }
            (LinkStage::Registering { number }, LinkEvent::Registered { heartbeat }) => {
                let number = *number;
                self.failures = 0;
                let every = heartbeat.clamp(LEAST_BEAT, LONGEST_BEAT);
                let joined = Joined { every, next_at: now, number, unanswered: VecDeque::new() };
                self.state = LinkStage::Joined(joined);
                self.beat(now)
            }
            (LinkStage::Joined(joined), LinkEvent::Taken { number, more }) => {
                joined.unanswered.retain(|(unanswered, _)| *unanswered != number);
                if more {
                    joined.next_at = now;
                }
                self.beat(now)
            }
            (LinkStage::Away { retry_at }, LinkEvent::Tick) if *retry_at <= now => {
                self.state = LinkStage::Dialling;
                Some(LinkAction::Dial)
            }
            (LinkStage::Joined(_), LinkEvent::Tick) => self.beat(now),
            (LinkStage::Registering { .. } | LinkStage::Joined(_), LinkEvent::Renewed) => {
                self.state = LinkStage::Dialling;
                Some(LinkAction::Redial)
            }
            (LinkStage::Dialling | LinkStage::Registering { .. } | LinkStage::Joined(_), LinkEvent::Lost) => {
                self.go_away(now, LONGEST_PAUSE);
                Some(LinkAction::Drop)
            }
            (
                LinkStage::Dialling | LinkStage::Registering { .. } | LinkStage::Joined(_),
                LinkEvent::PortClosed,
            ) => {
                self.go_away(now, LONGEST_CLOSED_PAUSE);
                Some(LinkAction::Drop)
            }
            _ => None,
        }
    }

    /// Returns when to send a [`LinkEvent::Tick`] at the latest; `None` if nothing waits for time to pass.
    pub fn wake_at(&self) -> Option<Duration> {
        match &self.state {
            LinkStage::Away { retry_at } => Some(*retry_at),
            LinkStage::Dialling | LinkStage::Registering { .. } => None,
            LinkStage::Joined(joined) => {
                Some(joined.overdue_at().map_or(joined.next_at, |at| at.min(joined.next_at)))
            }
        }
    }

    fn beat(&mut self, now: Duration) -> Option<LinkAction> {
        let LinkStage::Joined(joined) = &mut self.state else { return None };
        if joined.overdue_at().is_some_and(|at| at <= now) {
            self.go_away(now, LONGEST_PAUSE);
            return Some(LinkAction::Drop);
        }
        if joined.next_at > now {
            return None;
        }
        joined.number += 1;
        joined.unanswered.push_back((joined.number, now));
        // Beats that were missed are not made up for: one says it all.
        joined.next_at = now + joined.every;
        Some(LinkAction::Beat { number: joined.number })
    }

    fn go_away(&mut self, now: Duration, longest: Duration) {
        let base = Pauses { first: FIRST_PAUSE, longest }.after(self.failures);
        self.failures = self.failures.saturating_add(1);
        // Jitter takes away up to a half, so that nodes do not come back together.
        self.draws += 1;
        let pause = base - jitter(base / 2, self.seed ^ self.draws);
        self.state = LinkStage::Away { retry_at: now + pause };
    }
}

impl Joined {
    /// Returns the time at which the oldest unanswered beat has waited for too long.
    fn overdue_at(&self) -> Option<Duration> {
        self.unanswered.front().map(|(_, sent)| *sent + ANSWER_DEADLINE)
    }
}

/// Time after which a connection with an unanswered beat is taken for dead. The coordinator believes in a silent node
/// for as long.
pub const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// Shortest interval of heartbeats: a coordinator that asks for a shorter one is not obeyed.
const LEAST_BEAT: Duration = Duration::from_millis(50);

/// Longest interval of heartbeats: twice within the time after which the coordinator calls a node suspect.
const LONGEST_BEAT: Duration = Duration::from_millis(1_500);

const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause between attempts: a coordinator that comes back finds its nodes within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// Longest pause while the port is closed: a coordinator that is started again finds its nodes within this time.
const LONGEST_CLOSED_PAUSE: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn joined(now: Duration) -> Registration {
        let mut link = Registration::new(7);
        assert_eq!(link.handle(now, LinkEvent::Tick), Some(LinkAction::Dial));
        assert_eq!(link.handle(now, LinkEvent::Connected), Some(LinkAction::Register));
        let first = link.handle(now, LinkEvent::Registered { heartbeat: SECOND });
        assert_eq!(first, Some(LinkAction::Beat { number: 1 }));
        link
    }

    #[test]
    fn a_joined_node_says_each_second_that_it_lives() {
        let mut link = joined(Duration::ZERO);
        for number in 2..100 {
            let now = SECOND * (number as u32 - 1);
            assert_eq!(
                link.handle(now - SECOND / 2, LinkEvent::Taken { number: number - 1, more: false }),
                None
            );
            assert_eq!(link.wake_at(), Some(now));
            assert_eq!(link.handle(now, LinkEvent::Tick), Some(LinkAction::Beat { number }));
        }
    }

    #[test]
    fn what_did_not_fit_into_a_beat_is_said_at_once() {
        let mut link = joined(Duration::ZERO);
        let taken = LinkEvent::Taken { number: 1, more: true };
        assert_eq!(link.handle(SECOND / 10, taken), Some(LinkAction::Beat { number: 2 }));
        let taken = LinkEvent::Taken { number: 2, more: false };
        assert_eq!(link.handle(SECOND / 5, taken), None);
        assert_eq!(link.wake_at(), Some(SECOND / 10 + SECOND));
    }

    #[test]
    fn a_coordinator_that_does_not_answer_is_dialled_again() {
        let mut link = joined(Duration::ZERO);
        let mut now = Duration::ZERO;
        let dropped = loop {
            now += SECOND / 10;
            match link.handle(now, LinkEvent::Tick) {
                Some(LinkAction::Drop) => break now,
                Some(LinkAction::Beat { .. }) | None => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(dropped, ANSWER_DEADLINE);
        let retry = link.wake_at().unwrap();
        assert!(retry > now && retry <= now + FIRST_PAUSE);
        assert_eq!(link.handle(retry, LinkEvent::Tick), Some(LinkAction::Dial));
    }

    #[test]
    fn pauses_grow_to_their_bound_and_start_small_again_after_a_success() {
        let mut link = Registration::new(3);
        let mut now = Duration::ZERO;
        for attempt in 0..20 {
            assert_eq!(link.handle(now, LinkEvent::Tick), Some(LinkAction::Dial));
            assert_eq!(link.handle(now, LinkEvent::Lost), Some(LinkAction::Drop));
            let pause = link.wake_at().unwrap() - now;
            let longest = FIRST_PAUSE.saturating_mul(1 << attempt.min(10)).min(LONGEST_PAUSE);
            assert!(pause > longest / 2 - SECOND / 1000 && pause <= longest, "{attempt}: {pause:?}");
            now += pause;
        }
        link.handle(now, LinkEvent::Tick);
        link.handle(now, LinkEvent::Connected);
        link.handle(now, LinkEvent::Registered { heartbeat: SECOND });
        link.handle(now, LinkEvent::Lost);
        assert!(link.wake_at().unwrap() - now <= FIRST_PAUSE);
    }

    #[test]
    fn a_coordinator_whose_port_is_closed_is_dialled_again_soon_however_often_it_was() {
        let mut link = joined(Duration::ZERO);
        let mut now = Duration::ZERO;
        assert_eq!(link.handle(now, LinkEvent::PortClosed), Some(LinkAction::Drop));
        for _ in 0..20 {
            let pause = link.wake_at().unwrap() - now;
            assert!(pause <= LONGEST_CLOSED_PAUSE, "{pause:?}");
            now += pause;
            assert_eq!(link.handle(now, LinkEvent::Tick), Some(LinkAction::Dial));
            assert_eq!(link.handle(now, LinkEvent::PortClosed), Some(LinkAction::Drop));
        }
    }

    #[test]
    fn a_node_with_another_certificate_dials_anew_at_once_and_one_that_dials_anyway_goes_on() {
        let mut link = joined(Duration::ZERO);
        assert_eq!(link.handle(SECOND, LinkEvent::Renewed), Some(LinkAction::Redial));
        assert_eq!(link.handle(SECOND, LinkEvent::Renewed), None);
        assert_eq!(link.handle(SECOND, LinkEvent::Connected), Some(LinkAction::Register));
        let first = link.handle(SECOND, LinkEvent::Registered { heartbeat: SECOND });
        assert_eq!(first, Some(LinkAction::Beat { number: 1 }));
    }

    /// Symptom: a node whose address changed while it ran was dialled at the old one for ever. Cause: it told its address
    /// when it dialled, and its connection survived the change. Fix: it registers once more over the same connection, on
    /// which beats are counted on: the coordinator takes a lower number for an old beat.
    #[test]
    fn a_node_that_is_reached_elsewhere_registers_again_and_counts_its_beats_on() {
        let mut link = joined(Duration::ZERO);
        assert_eq!(link.handle(SECOND, LinkEvent::Tick), Some(LinkAction::Beat { number: 2 }));
        assert_eq!(link.handle(SECOND, LinkEvent::Moved), Some(LinkAction::Register));
        assert_eq!(link.handle(SECOND, LinkEvent::Moved), None, "it says so already");
        let next = link.handle(SECOND, LinkEvent::Registered { heartbeat: SECOND });
        assert_eq!(next, Some(LinkAction::Beat { number: 3 }));
    }

    proptest! {
        #[test]
        fn whatever_happens_it_never_dials_twice_and_always_comes_back(
            events in prop::collection::vec((0u64..3_000, 0u8..7), 1..200)
        ) {
            let mut link = Registration::new(1);
            let (mut now, mut connections) = (Duration::ZERO, 0i32);
            for (wait, event) in events {
                now += Duration::from_millis(wait);
                let event = match event {
                    0 => LinkEvent::Connected,
                    1 => LinkEvent::Registered { heartbeat: SECOND },
                    2 => LinkEvent::Taken { number: 1, more: wait % 2 == 0 },
                    3 => LinkEvent::Lost,
                    4 => LinkEvent::PortClosed,
                    5 => LinkEvent::Renewed,
                    _ => LinkEvent::Tick,
                };
                match link.handle(now, event) {
                    Some(LinkAction::Dial) => connections += 1,
                    Some(LinkAction::Drop) => connections -= 1,
                    _ => {}
                }
                prop_assert!((0..=1).contains(&connections));
            }
            // Left alone, with everything failing, it dials again within the longest pause and an unanswered beat.
            let end = now + ANSWER_DEADLINE + LONGEST_PAUSE;
            let mut dialled = matches!(link.state, LinkStage::Dialling | LinkStage::Registering { .. });
            while let Some(at) = link.wake_at().filter(|&at| at <= end && !dialled) {
                dialled = link.handle(at.max(now), LinkEvent::Tick) == Some(LinkAction::Dial);
            }
            prop_assert!(dialled);
        }
    }
}

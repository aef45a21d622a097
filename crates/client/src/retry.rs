//! Decides when a request of a session is written again, when its stream is attached again, and when it is given up.

use std::time::Duration;

use rollhouse_core::{Pauses, jitter};
use rollhouse_wire::{FrameHeader, RefusalCode};

/// One request of one session, from its first writing to its answer.
///
/// ```text
/// Sent ── Answered ──▶ Finish
///  ├─ Refused(busy, draining) ─▶ wait ─ Woken ─▶ Send
///  ├─ Refused(anything else)  ─▶ GiveUp(Refused)
///  └─ Lost ─▶ Attaching ── Attached(last) ──▶ Send, if the node stands at this request or before it
///                ├─ AttachRefused(not_found, stale) ─▶ GiveUp(NodeLost)
///                └─ Unreachable ─▶ wait ─ Woken ─▶ Attach;  for as long as a lease ─▶ GiveUp(NodeLost)
/// any of these ── PortClosed(resumes) ──▶ GiveUp(NodeLost)
/// ```
///
/// Writing a request again is safe: a node answers a number it has answered with the same bytes and steps nothing. A
/// refusal is an answer, so a refused request is made again under the next number. Pure: `now` is any clock that only
/// goes forward; the jitter comes from the seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retry {
    number: u32,
    /// Number of requests before this one whose answers nobody took.
    abandoned: u32,
    deadline: Duration,
    lease: Duration,
    seed: u64,
    /// Number of waits since the last progress.
    waits: u32,
    /// The time since which the node is not heard of.
    silent_since: Option<Duration>,
    state: RetryState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetryState {
    Sent,
    Attaching,
    Waiting { attach: bool, until: Duration },
    Over,
}

/// The limits of trying a request, and what came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// The caller's deadline, on the clock of `now`.
    pub(crate) deadline: Duration,
    /// Time for which a node keeps a session without hearing of its owner: a silent node is not waited for longer.
    pub(crate) lease: Duration,
    /// Number of requests before this one whose answers nobody took: a new stream may find the node before any of them.
    pub(crate) abandoned: u32,
    /// The seed of the jitter.
    pub(crate) seed: u64,
}

impl Patience {
    /// Returns the patience of telling a node what lanes did elsewhere: no caller's deadline ends it. A node that was
    /// told a part can neither be told that again nor the next part without it, so the next call goes on where the last
    /// one stopped.
    pub(crate) const fn until_told(lease: Duration, seed: u64) -> Self {
        Self { deadline: Duration::MAX, lease, abandoned: 0, seed }
    }
}

/// An event in the life of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryEvent {
    /// Its answer came.
    Answered,
    /// The node refused it; nothing has moved.
    Refused {
        /// The refusal's code.
        code: RefusalCode,
        /// Time after which the node expects to take it.
        retry_after: Option<Duration>,
    },
    /// The stream or its connection ended.
    Lost,
    /// A new stream is attached.
    Attached {
        /// Number of the last request the node has answered.
        last: u32,
    },
    /// The node is there but does not take the stream.
    AttachRefused {
        /// The refusal's code.
        code: RefusalCode,
        /// Time after which the node expects to take it.
        retry_after: Option<Duration>,
    },
    /// The node did not answer.
    Unreachable,
    /// Nobody listens at the node's port any more, its host says. If lanes are resumed elsewhere, the node counts as
    /// lost at once, which costs nothing but time if the host was wrong; else as if it had not answered.
    PortClosed {
        /// Whether lanes are resumed elsewhere.
        resumes: bool,
    },
    /// The time of a wait has come.
    Woken,
}

/// The next action for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryAction {
    /// Write the request under that number and wait for its answer.
    Send {
        /// The number of the request, which counts as [`FrameHeader::next_number`] does.
        number: u32,
    },
    /// Connect if need be, and attach.
    Attach,
    /// Do nothing until then, and report [`RetryEvent::Woken`].
    WaitUntil(Duration),
    /// The request is answered.
    Finish,
    /// Stop, for this reason.
    GiveUp(GiveUp),
}

/// Why a request was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GiveUp {
    /// The caller's deadline came first. Whether the request was carried out is not known.
    TimedOut,
    /// The session is gone: its node does not know it any more, or was not heard of for the time of a lease.
    NodeLost,
    /// The node will not do it.
    Refused(RefusalCode),
}

impl Retry {
    /// Begins the request after the one with number `last`, at `now`. The first action is to send it on an attached
    /// stream, else to attach.
    pub(crate) fn new(now: Duration, last: u32, attached: bool, patience: Patience) -> (Self, RetryAction) {
        let state = if attached { RetryState::Sent } else { RetryState::Attaching };
        let silent_since = (!attached).then_some(now);
        let Patience { abandoned, deadline, lease, seed } = patience;
        let number = FrameHeader::next_number(last);
        let retry = Self { number, abandoned, deadline, lease, seed, waits: 0, silent_since, state };
        (retry, if attached { RetryAction::Send { number } } else { RetryAction::Attach })
    }

    /// Takes an event in and returns the action to take. Events that do not belong to the state change nothing and
    /// repeat the state's action.
    pub(crate) fn on(&mut self, now: Duration, event: RetryEvent) -> RetryAction {
        use RetryEvent as E;
        match (self.state, event) {
            (RetryState::Over, _) => RetryAction::Finish,
            (_, E::PortClosed { resumes: true }) => self.give_up(GiveUp::NodeLost),
            (RetryState::Sent, E::Answered) => {
                self.state = RetryState::Over;
                RetryAction::Finish
            }
            (RetryState::Sent, E::Refused { code, retry_after }) if code.is_transient() => {
                self.number = FrameHeader::next_number(self.number);
                self.abandoned = 0;
                self.wait(now, false, BUSY, retry_after)
            }
            (RetryState::Sent, E::Refused { code, .. }) => self.give_up(GiveUp::Refused(code)),
            (RetryState::Sent, E::Lost | E::PortClosed { .. }) => {
                self.silent_since.get_or_insert(now);
                self.attach(now)
            }
            (RetryState::Attaching, E::Attached { last }) => {
                self.silent_since = None;
                self.attached(now, last)
            }
            (RetryState::Attaching, E::AttachRefused { code, retry_after }) => {
                self.attach_refused(now, code, retry_after)
            }
            (RetryState::Attaching, E::Unreachable | E::Lost | E::PortClosed { .. }) => {
                let silent = now.saturating_sub(self.silent_since.unwrap_or(now));
                if silent >= self.lease {
                    return self.give_up(GiveUp::NodeLost);
                }
                self.wait(now, true, AWAY, None)
            }
            (RetryState::Waiting { attach, until }, E::Woken) if now >= until => {
                if attach {
                    self.attach(now)
                } else {
                    self.send(now)
                }
            }
            (RetryState::Waiting { until, .. }, E::Lost) => {
                // The stream ended while a busy node was given time.
                self.silent_since.get_or_insert(now);
                self.state = RetryState::Waiting { attach: true, until };
                RetryAction::WaitUntil(until)
            }
            (RetryState::Waiting { until, .. }, _) => RetryAction::WaitUntil(until),
            (RetryState::Sent, _) => RetryAction::Send { number: self.number },
            (RetryState::Attaching, _) => RetryAction::Attach,
        }
    }

    fn attached(&mut self, now: Duration, last: u32) -> RetryAction {
        // A node that stands anywhere else has answered requests of another owner, or is another session.
        let behind = steps_from(last, self.number);
        if behind > 1 + self.abandoned {
            return self.give_up(GiveUp::NodeLost);
        }
        if behind > 0 {
            self.number = FrameHeader::next_number(last);
        }
        self.send(now)
    }

    fn attach_refused(
        &mut self,
        now: Duration,
        code: RefusalCode,
        retry_after: Option<Duration>,
    ) -> RetryAction {
        match code {
            RefusalCode::NotFound | RefusalCode::Stale => self.give_up(GiveUp::NodeLost),
            code if code.is_transient() => {
                self.silent_since = None;
                self.wait(now, true, BUSY, retry_after)
            }
            code => self.give_up(GiveUp::Refused(code)),
        }
    }

    fn send(&mut self, now: Duration) -> RetryAction {
        if now >= self.deadline {
            return self.give_up(GiveUp::TimedOut);
        }
        self.state = RetryState::Sent;
        RetryAction::Send { number: self.number }
    }

    fn attach(&mut self, now: Duration) -> RetryAction {
        if now >= self.deadline {
            return self.give_up(GiveUp::TimedOut);
        }
        self.state = RetryState::Attaching;
        RetryAction::Attach
    }

    /// Waits at least `least`, longer with every wait, and never past the deadline.
    fn wait(&mut self, now: Duration, attach: bool, pauses: Pauses, least: Option<Duration>) -> RetryAction {
        if now >= self.deadline {
            return self.give_up(GiveUp::TimedOut);
        }
        let base = pauses.after(self.waits).max(least.unwrap_or_default());
        self.waits += 1;
        // Jitter adds up to a half, so that those who were refused together do not come back together.
        let seed = self.seed ^ (u64::from(self.number) << 32) ^ u64::from(self.waits);
        let until = (now + base + jitter(base / 2, seed)).min(self.deadline);
        self.state = RetryState::Waiting { attach, until };
        RetryAction::WaitUntil(until)
    }

    fn give_up(&mut self, why: GiveUp) -> RetryAction {
        self.state = RetryState::Over;
        RetryAction::GiveUp(why)
    }
}

/// Returns how many requests lie between the one with number `last` and the one with `number`, the latter counted.
const fn steps_from(last: u32, number: u32) -> u32 {
    // Numbers go round without 0.
    if number >= last { number - last } else { number + (u32::MAX - last) }
}

/// Waits for a node that is busy.
const BUSY: Pauses = Pauses { first: Duration::from_millis(1), longest: Duration::from_secs(1) };
/// Waits for a node that does not answer.
const AWAY: Pauses = Pauses { first: Duration::from_millis(50), longest: Duration::from_secs(2) };

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEASE: Duration = Duration::from_secs(30);
    const DEADLINE: Duration = Duration::from_secs(60);

    fn patience(seed: u64) -> Patience {
        Patience { deadline: DEADLINE, lease: LEASE, abandoned: 0, seed }
    }

    fn busy(ms: u64) -> RetryEvent {
        RetryEvent::Refused { code: RefusalCode::Busy, retry_after: Some(Duration::from_millis(ms)) }
    }

    #[test]
    fn a_busy_node_is_asked_again_not_before_it_said() {
        let (mut retry, first) = Retry::new(Duration::ZERO, 0, true, patience(7));
        assert_eq!(first, RetryAction::Send { number: 1 });
        let RetryAction::WaitUntil(until) = retry.on(Duration::ZERO, busy(40)) else { panic!() };
        assert!(until >= Duration::from_millis(40) && until < Duration::from_millis(61), "{until:?}");
        assert_eq!(retry.on(until, RetryEvent::Woken), RetryAction::Send { number: 2 });
        assert_eq!(retry.on(until, RetryEvent::Answered), RetryAction::Finish);
    }

    #[test]
    fn a_lost_stream_is_attached_again_and_the_request_repeated() {
        for last in [4, 5] {
            let (mut retry, _) = Retry::new(Duration::ZERO, 4, true, patience(7));
            assert_eq!(retry.on(Duration::ZERO, RetryEvent::Lost), RetryAction::Attach);
            assert_eq!(
                retry.on(Duration::ZERO, RetryEvent::Attached { last }),
                RetryAction::Send { number: 5 }
            );
        }
    }

    #[test]
    fn a_new_stream_may_find_the_node_before_requests_nobody_waited_for() {
        for (last, number) in [(2, 3), (3, 4), (4, 5), (5, 5)] {
            let patience = Patience { abandoned: 2, ..patience(7) };
            let (mut retry, _) = Retry::new(Duration::ZERO, 4, false, patience);
            assert_eq!(retry.on(Duration::ZERO, RetryEvent::Attached { last }), RetryAction::Send { number });
        }
    }

    /// Symptom: lanes of a killed node stepped again after 3.4 s (median). Cause: everybody waited for silence. Fix: the
    /// host of a process that has ended says so, and lanes that can be resumed go elsewhere by that.
    #[test]
    fn a_closed_port_is_a_lost_node_at_once_for_lanes_that_are_resumed_and_silence_for_others() {
        for attached in [true, false] {
            let (mut retry, _) = Retry::new(Duration::ZERO, 4, attached, patience(7));
            let closed = retry.on(Duration::ZERO, RetryEvent::PortClosed { resumes: true });
            assert_eq!(closed, RetryAction::GiveUp(GiveUp::NodeLost));
        }
        let (mut retry, _) = Retry::new(Duration::ZERO, 4, true, patience(7));
        let closed = RetryEvent::PortClosed { resumes: false };
        assert_eq!(retry.on(Duration::ZERO, closed), RetryAction::Attach);
        assert!(matches!(retry.on(Duration::ZERO, closed), RetryAction::WaitUntil(_)));
    }

    #[test]
    fn numbers_go_round_without_zero() {
        let (mut retry, first) = Retry::new(Duration::ZERO, u32::MAX, true, patience(7));
        assert_eq!(first, RetryAction::Send { number: 1 });
        retry.on(Duration::ZERO, RetryEvent::Lost);
        let again = retry.on(Duration::ZERO, RetryEvent::Attached { last: u32::MAX });
        assert_eq!(again, RetryAction::Send { number: 1 });
    }

    #[test]
    fn a_session_that_stands_elsewhere_or_is_gone_is_lost() {
        for event in [
            RetryEvent::Attached { last: 3 },
            RetryEvent::Attached { last: 6 },
            RetryEvent::AttachRefused { code: RefusalCode::NotFound, retry_after: None },
            RetryEvent::AttachRefused { code: RefusalCode::Stale, retry_after: None },
        ] {
            let (mut retry, _) = Retry::new(Duration::ZERO, 4, true, patience(7));
            retry.on(Duration::ZERO, RetryEvent::Lost);
            assert_eq!(retry.on(Duration::ZERO, event), RetryAction::GiveUp(GiveUp::NodeLost));
        }
    }

    /// Symptom: a lane that went on elsewhere began its episodes with number 0 again. Cause: a part of what it had done
    /// was given up with the call that began it, and the next call went on behind it. Fix: no deadline ends such a part.
    #[test]
    fn what_a_node_has_to_be_told_waits_for_it_however_long_callers_wait() {
        let (mut retry, _) = Retry::new(Duration::ZERO, 0, false, Patience::until_told(LEASE, 7));
        let much_later = DEADLINE * 1000;
        assert_eq!(retry.on(much_later, RetryEvent::Attached { last: 0 }), RetryAction::Send { number: 1 });
        assert_eq!(retry.on(much_later, RetryEvent::Lost), RetryAction::Attach);
        let wait = retry.on(much_later, RetryEvent::Unreachable);
        assert!(matches!(wait, RetryAction::WaitUntil(_)), "{wait:?}");
        let lost = retry.on(much_later + LEASE, RetryEvent::Woken);
        assert_eq!(lost, RetryAction::Attach);
        let lost = retry.on(much_later + LEASE, RetryEvent::Unreachable);
        assert_eq!(lost, RetryAction::GiveUp(GiveUp::NodeLost));
    }

    #[test]
    fn a_silent_node_is_lost_after_its_lease_and_not_before() {
        let (mut retry, _) = Retry::new(Duration::ZERO, 0, true, patience(7));
        let mut now = Duration::ZERO;
        let mut action = retry.on(now, RetryEvent::Lost);
        loop {
            match action {
                RetryAction::Attach => action = retry.on(now, RetryEvent::Unreachable),
                RetryAction::WaitUntil(until) => {
                    now = until;
                    action = retry.on(now, RetryEvent::Woken);
                }
                other => {
                    assert_eq!(other, RetryAction::GiveUp(GiveUp::NodeLost));
                    break;
                }
            }
        }
        assert!(now >= LEASE && now < LEASE + AWAY.longest * 2, "{now:?}");
    }

    fn any_event() -> impl Strategy<Value = RetryEvent> {
        use RetryEvent as E;
        let code = prop_oneof![
            Just(RefusalCode::Busy),
            Just(RefusalCode::Draining),
            Just(RefusalCode::NotFound),
            Just(RefusalCode::BadRequest)
        ];
        let after = proptest::option::of((0u64..5_000).prop_map(Duration::from_millis));
        prop_oneof![
            Just(E::Answered),
            (code.clone(), after.clone()).prop_map(|(code, retry_after)| E::Refused { code, retry_after }),
            Just(E::Lost),
            (8u32..12).prop_map(|last| E::Attached { last }),
            (code, after).prop_map(|(code, retry_after)| E::AttachRefused { code, retry_after }),
            Just(E::Unreachable),
            any::<bool>().prop_map(|resumes| E::PortClosed { resumes }),
            Just(E::Woken),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_waits_end_by_the_deadline_and_what_is_over_stays_over(
            events in proptest::collection::vec((any_event(), 0u64..2_000), 1..60),
            seed: u64,
            attached: bool,
        ) {
            let (mut retry, _) = Retry::new(Duration::ZERO, 9, attached, patience(seed));
            let (mut now, mut over) = (Duration::ZERO, false);
            for (event, ms) in events {
                now += Duration::from_millis(ms);
                let action = retry.on(now, event);
                prop_assert!(!over || action == RetryAction::Finish);
                match action {
                    RetryAction::WaitUntil(until) => prop_assert!(until <= DEADLINE),
                    RetryAction::Finish | RetryAction::GiveUp(_) => over = true,
                    RetryAction::Send { .. } | RetryAction::Attach => {}
                }
            }
        }

        #[test]
        fn a_node_that_stays_busy_is_asked_less_and_less_often(seed: u64) {
            let (mut retry, _) = Retry::new(Duration::ZERO, 0, true, patience(seed));
            let (mut now, mut asked) = (Duration::ZERO, 0);
            while let RetryAction::WaitUntil(until) = retry.on(now, busy(1)) {
                prop_assert!(until > now);
                now = until;
                asked += 1;
                if !matches!(retry.on(now, RetryEvent::Woken), RetryAction::Send { .. }) {
                    break;
                }
            }
            prop_assert!(now >= DEADLINE);
            prop_assert!(asked < 80, "{}", asked);
        }
    }
}

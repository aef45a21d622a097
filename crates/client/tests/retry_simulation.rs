//! Sessions, their owner and a network that loses what it likes, on a clock of their own.
//!
//! `ROLLHOUSE_SEED=n cargo test -p rollhouse-client --test retry_simulation` plays the one seed again.

use std::time::Duration;

use rollhouse_client::{GiveUp, Patience, Retry, RetryAction, RetryEvent};
use rollhouse_core::split_mix64;
use rollhouse_wire::RefusalCode;

/// A session as a node keeps it.
#[derive(Debug, Default)]
struct Session {
    last: u32,
    steps: u32,
    answer: Answer,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Answer {
    #[default]
    Busy,
    Steps(u32),
}

impl Session {
    /// The answer to a request: the count of steps after it, or that the node is `busy`.
    fn handle(&mut self, number: u32, busy: bool) -> Answer {
        if number == self.last + 1 {
            self.steps += u32::from(!busy);
            (self.last, self.answer) = (number, if busy { Answer::Busy } else { Answer::Steps(self.steps) });
        }
        assert_eq!(number, self.last, "an owner repeats only its last request");
        self.answer
    }
}

/// Random numbers of one seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        split_mix64(self.0) % sides
    }
}

/// How one seed's network and node behave, in percent.
struct World {
    dice: Dice,
    loses_request: u64,
    loses_answer: u64,
    busy: u64,
    unreachable: u64,
    restarts_per_mille: u64,
}

enum End {
    All,
    Lost { answered: u32 },
}

/// Plays 200 requests; returns how it ended, and checks on the way that each is stepped exactly once.
fn play(seed: u64) -> End {
    let mut dice = Dice(split_mix64(seed));
    let mut world = World {
        loses_request: dice.roll(30),
        loses_answer: dice.roll(30),
        busy: dice.roll(50),
        unreachable: dice.roll(60),
        restarts_per_mille: dice.roll(3),
        dice,
    };
    let mut session = Some(Session::default());
    let (mut now, mut attached, mut last) = (Duration::ZERO, false, 0);
    for step in 1..=200 {
        let deadline = now + Duration::from_secs(3_600);
        let patience = Patience { deadline, lease: Duration::from_secs(30), abandoned: 0, seed };
        let (mut retry, mut action) = Retry::new(now, last, attached, patience);
        loop {
            now += Duration::from_micros(world.dice.roll(2_000));
            if world.dice.roll(1_000) < world.restarts_per_mille {
                (session, attached) = (None, false);
            }
            action = match action {
                RetryAction::Send { number } => {
                    last = number;
                    let event = world.send(&mut session, number, attached, step);
                    attached &= event != RetryEvent::Lost;
                    retry.on(now, event)
                }
                RetryAction::Attach => {
                    let event = world.attach(session.as_ref());
                    attached = matches!(event, RetryEvent::Attached { .. });
                    retry.on(now, event)
                }
                RetryAction::WaitUntil(until) => {
                    now = now.max(until);
                    retry.on(now, RetryEvent::Woken)
                }
                RetryAction::Finish => break,
                RetryAction::GiveUp(GiveUp::NodeLost) => return End::Lost { answered: step - 1 },
                RetryAction::GiveUp(other) => panic!("given up: {other:?}"),
            };
        }
        if let Some(session) = &session {
            assert_eq!((session.last, session.answer, session.steps), (last, Answer::Steps(step), step));
        }
    }
    End::All
}

impl World {
    fn send(&mut self, session: &mut Option<Session>, number: u32, attached: bool, step: u32) -> RetryEvent {
        let Some(session) = session.as_mut().filter(|_| attached) else { return RetryEvent::Lost };
        if self.dice.roll(100) < self.loses_request {
            return RetryEvent::Lost;
        }
        let answer = session.handle(number, self.dice.roll(100) < self.busy);
        if self.dice.roll(100) < self.loses_answer {
            return RetryEvent::Lost;
        }
        match answer {
            Answer::Steps(steps) => {
                assert_eq!(steps, step);
                RetryEvent::Answered
            }
            Answer::Busy => {
                let retry_after = Some(Duration::from_millis(self.dice.roll(20)));
                RetryEvent::Refused { code: RefusalCode::Busy, retry_after }
            }
        }
    }

    fn attach(&mut self, session: Option<&Session>) -> RetryEvent {
        if self.dice.roll(100) < self.unreachable {
            return RetryEvent::Unreachable;
        }
        match session {
            Some(session) => RetryEvent::Attached { last: session.last },
            None => RetryEvent::AttachRefused { code: RefusalCode::NotFound, retry_after: None },
        }
    }
}

#[test]
fn every_request_is_stepped_once_whatever_the_network_loses() {
    let seeds = match std::env::var("ROLLHOUSE_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..64).collect(),
    };
    let (mut whole, mut lost) = (0, 0);
    for &seed in &seeds {
        println!("ROLLHOUSE_SEED={seed} cargo test -p rollhouse-client --test retry_simulation");
        match play(seed) {
            End::All => whole += 1,
            End::Lost { answered } => {
                assert!(answered < 200);
                lost += 1;
            }
        }
    }
    assert!(seeds.len() == 1 || (whole > 10 && lost > 10), "{whole} whole, {lost} lost: both must be met");
}

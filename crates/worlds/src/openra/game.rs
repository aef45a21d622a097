//! A game that an engine plays, as a value: what is asked of the engine when, and what becomes of its answers.
//!
//! ```text
//! Idle ── begin ──▶ Connecting ── connected ──▶ Creating ── named ──▶ Waiting ── playing ──▶ Advancing ──▶ Playing
//!                        ▲           the connection is gone  │           │                       ▲   │         │
//!                        └───────────────────────────────────┴───────────┘                       │   └▶ Over   │
//!                                                  Checking ── its session is there ─────────────┤             │
//!                                                      ▲ step, long after the last               └─── step ────┤
//!                                                      └────────────────────────────────────────────────────────┘
//! ```
//!
//! Every state goes to `Idle` by a loss, which destroys the session if there may be one. From `Playing` and `Over` another
//! episode begins as from `Idle`. A session has one call under way at most, and each call, pause and number of retries has
//! an end.

use std::time::Duration;

use rollhouse_codec::openra::{
    CreateSessionRequest, DestroySessionRequest, FastAdvanceRequest, GameObservation, MAX_SESSION_NAME,
    Phase as EnginePhase, StateRequest,
};
use rollhouse_core::GameResult;

use super::call::{Answer, Code, Rpc};

/// Something that happens to a game.
#[derive(Debug)]
pub(crate) enum Event {
    /// The engine is connected to.
    Connected,
    /// The connection is gone, and with it what was under way; for the reason.
    Closed(String),
    /// A call was refused.
    Refused { call: u64, code: Code, message: String },
    /// A call was answered.
    Message { call: u64, answer: Answer },
    /// An episode is to begin.
    Begin { seed: i32 },
    /// A step is to be taken. The session's name is filled in here.
    Step(FastAdvanceRequest),
    /// What was shown is not what was declared, for the reason.
    Unfit(String),
    /// What is under way is given up, for the reason.
    GiveUp(String),
    /// The time of the last [`Action::Wake`] has come.
    Timeout,
    /// Nobody plays it any more.
    Close,
}

/// What follows from an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// A call is to be made. It takes the place of the last one, but for those that destroy, whose answers nobody awaits.
    Send { call: u64, rpc: Rpc },
    /// What was posted is done.
    Row(GameRow),
    /// The game is lost, for the reason.
    Lost(String),
    /// [`Event::Timeout`] is wanted at that time, and no other.
    Wake(Duration),
}

/// What a game shows once it has done what was posted.
#[derive(Debug, PartialEq)]
pub(crate) struct GameRow {
    pub(crate) observation: Box<GameObservation>,
    /// Whether it is the first of an episode.
    pub(crate) begins: bool,
    /// How the game ended, if it has.
    pub(crate) ended: Option<GameResult>,
}

/// What is fixed of a game: which one an engine is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) map: String,
    pub(crate) bots: String,
    /// Whether no other lane of the batch is played on the engine: only then it may be one of a single session.
    pub(crate) is_alone: bool,
}

/// A game of an engine. Times are since its driver began.
#[derive(Debug)]
pub(crate) struct Game {
    setup: Setup,
    phase: Phase,
    is_connected: bool,
    /// Name of the session that the engine may have; empty if the engine has a single one, which it was started with.
    session: Option<String>,
    /// Whether the game of that single session has begun for an earlier episode: there is no other until the engine is
    /// started anew.
    is_used: bool,
    /// The call whose answer is awaited.
    under_way: Option<u64>,
    calls: u64,
    /// When the engine answered an advance of the session the last time.
    heard: Duration,
    /// Why the last game was lost, until another begins: it may have been between two steps.
    lost: Option<String>,
}

/// Where a game stands.
#[derive(Debug)]
enum Phase {
    Idle,
    Connecting { seed: i32, until: Duration },
    Creating { seed: i32, until: Duration, refused: u32 },
    Waiting { seed: i32, until: Duration, looks: u32 },
    Advancing { request: FastAdvanceRequest, begins: bool, refused: u32 },
    Checking { request: FastAdvanceRequest },
    Playing,
    Over,
}

/// Time within which an episode's engine has to be connected to, each time.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(120);
/// Time within which an episode has to begin, however often its engine goes away meanwhile: but for its first advance.
const BEGIN_WITHIN: Duration = Duration::from_secs(300);
/// Time between two looks at whether a session plays, and their number.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const MAX_LOOKS: u32 = 120;
/// Time that an advance may take.
pub(crate) const ADVANCE_WITHIN: Duration = Duration::from_secs(120);
/// Time that any other call may take.
pub(crate) const CALL_WITHIN: Duration = Duration::from_secs(10);
/// Number of times that a call is made again to an engine that has no room, and the pauses before: each twice the last.
const MAX_REFUSED: u32 = 12;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time without an advance after which engines end a session. They wait for 300 s for one of an unknown name, so that it is
/// looked at first whether it is there.
const REAPED_AFTER: Duration = Duration::from_secs(300);
/// Greatest number of characters of what an engine says that is passed on.
const MAX_SAID: usize = 300;

impl Game {
    /// Makes a game that nobody plays yet, on an engine that is connected to or not.
    pub(crate) const fn new(setup: Setup, is_connected: bool) -> Self {
        let heard = Duration::ZERO;
        let (phase, session) = (Phase::Idle, None);
        Self {
            setup,
            phase,
            is_connected,
            session,
            is_used: false,
            under_way: None,
            calls: 0,
            heard,
            lost: None,
        }
    }

    /// Returns whether an episode is beginning: its engine is connected to, or makes its world. It ends by itself.
    pub(crate) const fn is_beginning(&self) -> bool {
        matches!(
            self.phase,
            Phase::Connecting { .. }
                | Phase::Creating { .. }
                | Phase::Waiting { .. }
                | Phase::Advancing { begins: true, .. }
        )
    }

    /// Returns whether it waits for a connection.
    pub(crate) const fn wants_connection(&self) -> bool {
        matches!(self.phase, Phase::Connecting { .. })
    }

    /// Takes note of what happened, and returns what follows.
    pub(crate) fn on(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Connected => {
                self.is_connected = true;
                if let Phase::Connecting { seed, until } = self.phase {
                    self.create(now, seed, 0, until, &mut actions);
                }
            }
            Event::Closed(why) => self.closed(now, &why, &mut actions),
            Event::Refused { call, code, message } if self.under_way == Some(call) => {
                self.under_way = None;
                self.refused(now, code, &cut(&message), &mut actions);
            }
            Event::Message { call, answer } if self.under_way == Some(call) => {
                self.under_way = None;
                self.answered(now, answer, &mut actions);
            }
            // Of a call that was given up.
            Event::Refused { .. } | Event::Message { .. } => {}
            Event::Begin { seed } => self.begin(now, seed, &mut actions),
            Event::Step(request) => self.step(now, request, &mut actions),
            Event::Unfit(why) | Event::GiveUp(why) => self.lose(why, &mut actions),
            Event::Timeout => self.timeout(now, &mut actions),
            Event::Close => {
                self.destroy(&mut actions);
                self.phase = Phase::Idle;
            }
        }
        actions
    }

    fn begin(&mut self, now: Duration, seed: i32, actions: &mut Vec<Action>) {
        self.destroy(actions);
        self.lost = None;
        let until = now + BEGIN_WITHIN;
        if self.is_connected {
            self.create(now, seed, 0, until, actions);
        } else {
            self.connect(now, seed, until, actions);
        }
    }

    fn connect(&mut self, now: Duration, seed: i32, until: Duration, actions: &mut Vec<Action>) {
        self.phase = Phase::Connecting { seed, until };
        actions.push(Action::Wake(until.min(now + CONNECT_WITHIN)));
    }

    fn create(&mut self, now: Duration, seed: i32, refused: u32, until: Duration, actions: &mut Vec<Action>) {
        self.phase = Phase::Creating { seed, until, refused };
        let Setup { map, bots, .. } = self.setup.clone();
        let request = CreateSessionRequest { map_name: map, bots, seed };
        self.send(now, Rpc::Create(request), CALL_WITHIN, actions);
    }

    fn look(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let session_id = self.session.clone().unwrap_or_default();
        self.send(now, Rpc::State(StateRequest { session_id }), CALL_WITHIN, actions);
    }

    fn step(&mut self, now: Duration, request: FastAdvanceRequest, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Playing) {
            let why = self.lost.take().unwrap_or_else(|| "there is no game to be stepped".to_owned());
            return self.lose(why, actions);
        }
        if now.saturating_sub(self.heard) >= REAPED_AFTER {
            self.phase = Phase::Checking { request };
            self.look(now, actions);
        } else {
            self.advance(now, request, (false, 0), actions);
        }
    }

    /// Asks for an advance: whether an episode begins with it, and how often it was refused.
    fn advance(
        &mut self,
        now: Duration,
        mut request: FastAdvanceRequest,
        (begins, refused): (bool, u32),
        actions: &mut Vec<Action>,
    ) {
        request.session_id = self.session.clone().unwrap_or_default();
        self.phase = Phase::Advancing { request: request.clone(), begins, refused };
        self.send(now, Rpc::Advance(request), ADVANCE_WITHIN, actions);
    }

    fn send(&mut self, now: Duration, rpc: Rpc, within: Duration, actions: &mut Vec<Action>) {
        self.calls += 1;
        self.under_way = Some(self.calls);
        actions.push(Action::Send { call: self.calls, rpc });
        actions.push(Action::Wake(now + within));
    }

    /// Takes an answer to the call that was under way.
    fn answered(&mut self, now: Duration, answer: Answer, actions: &mut Vec<Action>) {
        match (std::mem::replace(&mut self.phase, Phase::Idle), answer) {
            (Phase::Creating { seed, until, .. }, Answer::Created(name)) => {
                if !(1..=MAX_SESSION_NAME).contains(&name.len()) {
                    let bytes = name.len();
                    return self.lose(format!("the engine names a session by {bytes} bytes"), actions);
                }
                self.session = Some(name);
                self.phase = Phase::Waiting { seed, until, looks: 1 };
                self.look(now, actions);
            }
            (Phase::Waiting { seed, until, looks }, Answer::State(state)) => match state.phase.as_str() {
                word if word == EnginePhase::Playing.name() => {
                    let request = FastAdvanceRequest { ticks: 1, ..FastAdvanceRequest::default() };
                    self.advance(now, request, (true, 0), actions);
                }
                word if word == EnginePhase::GameOver.name() => {
                    self.lose("the game was over before its first tick".to_owned(), actions);
                }
                // `no_bridge` as well: its world is not there yet.
                _ => self.wait(now, (seed, until, looks), actions),
            },
            (Phase::Checking { request }, Answer::State(state)) => {
                if state.phase == EnginePhase::NoBridge.name() {
                    self.session = None;
                    let idle = now.saturating_sub(self.heard).as_secs();
                    let why = format!("the engine has ended the session, which was idle for {idle} s");
                    return self.lose(why, actions);
                }
                self.advance(now, request, (false, 0), actions);
            }
            (Phase::Advancing { begins, .. }, Answer::Observation(observation)) => {
                self.shown(now, observation, begins, actions);
            }
            _ => self.lose("the engine gives another answer than it was asked for".to_owned(), actions),
        }
    }

    fn shown(
        &mut self,
        now: Duration,
        observation: Box<GameObservation>,
        begins: bool,
        actions: &mut Vec<Action>,
    ) {
        self.heard = now;
        let ended = observation.done.then_some(match observation.result.as_str() {
            "win" => GameResult::Win,
            "lose" => GameResult::Lose,
            "draw" => GameResult::Draw,
            _ => GameResult::None,
        });
        if begins && ended.is_some() {
            return self.lose("the game was over at its first tick".to_owned(), actions);
        }
        self.phase = if ended.is_some() { Phase::Over } else { Phase::Playing };
        actions.push(Action::Row(GameRow { observation, begins, ended }));
    }

    /// Waits before the next look at a session that does not play yet, or gives it up.
    fn wait(&mut self, now: Duration, (seed, until, looks): (i32, Duration, u32), actions: &mut Vec<Action>) {
        if looks >= MAX_LOOKS || now + LOOK_EVERY > until {
            let Setup { map, bots, .. } = &self.setup;
            let why = format!(
                "the session did not begin within {looks} looks; the engine's log says why, as that map `{map}` or bots \
                 `{bots}` are not there"
            );
            return self.lose(why, actions);
        }
        self.phase = Phase::Waiting { seed, until, looks: looks + 1 };
        actions.push(Action::Wake(now + LOOK_EVERY));
    }

    fn refused(&mut self, now: Duration, code: Code, message: &str, actions: &mut Vec<Action>) {
        let idle = now.saturating_sub(self.heard).as_secs();
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let why = match (code, phase) {
            (Code::Exhausted, Phase::Creating { seed, until, refused })
                if refused < MAX_REFUSED && now < until =>
            {
                self.phase = Phase::Creating { seed, until, refused: refused + 1 };
                return actions.push(Action::Wake(now + pause(refused)));
            }
            (Code::Exhausted, Phase::Advancing { request, begins, refused }) if refused < MAX_REFUSED => {
                self.phase = Phase::Advancing { request, begins, refused: refused + 1 };
                return actions.push(Action::Wake(now + pause(refused)));
            }
            // It is looked again.
            (_, Phase::Waiting { seed, until, looks }) => {
                return self.wait(now, (seed, until, looks), actions);
            }
            (Code::Exhausted, Phase::Creating { .. } | Phase::Advancing { .. }) => {
                format!("the engine had no room {} times: {message}", MAX_REFUSED + 1)
            }
            (Code::Unimplemented, Phase::Creating { seed, until, .. }) => match self.single() {
                Ok(()) => {
                    self.phase = Phase::Waiting { seed, until, looks: 1 };
                    return self.look(now, actions);
                }
                Err(why) => format!("the engine serves a single session; {why}"),
            },
            (Code::Unavailable, Phase::Advancing { begins: false, .. }) => {
                self.session = None;
                format!("the engine does not know the session any more, after {idle} s: {message}")
            }
            (Code::Aborted, Phase::Advancing { .. }) => {
                self.session = None;
                format!("the engine had ended the session before it told how, after {idle} s: {message}")
            }
            (Code::NotFound, Phase::Advancing { .. }) => {
                format!("the engine has not made the session's world: {message}")
            }
            (_, _) => format!("the engine refused a call: {message}"),
        };
        self.lose(why, actions);
    }

    /// Takes the single session of an engine that makes none.
    fn single(&mut self) -> Result<(), &'static str> {
        if !self.setup.is_alone {
            return Err("several lanes want one that is started for several");
        }
        if self.is_used {
            return Err(
                "its game has begun for an earlier episode: it has to be started anew for the next one",
            );
        }
        self.session = Some(String::new());
        Ok(())
    }

    fn timeout(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let was_under_way = self.under_way.take().is_some();
        match (std::mem::replace(&mut self.phase, Phase::Idle), was_under_way) {
            (Phase::Connecting { .. }, _) => {
                let why = format!("the engine was not connected to within {} s", CONNECT_WITHIN.as_secs());
                self.lose(why, actions);
            }
            (Phase::Creating { seed, until, refused }, false) => {
                self.create(now, seed, refused, until, actions);
            }
            (Phase::Waiting { seed, until, looks }, false) => {
                self.phase = Phase::Waiting { seed, until, looks };
                self.look(now, actions);
            }
            (Phase::Waiting { seed, until, looks }, true) => self.wait(now, (seed, until, looks), actions),
            (Phase::Advancing { request, begins, refused }, false) => {
                self.advance(now, request, (begins, refused), actions);
            }
            (Phase::Advancing { .. }, true) => {
                let why = format!("the engine has not answered within {} s", ADVANCE_WITHIN.as_secs());
                self.lose(why, actions);
            }
            (Phase::Creating { .. } | Phase::Checking { .. }, true) => {
                let why = format!("the engine has not answered within {} s", CALL_WITHIN.as_secs());
                self.lose(why, actions);
            }
            // Nothing is waited for.
            (phase, _) => self.phase = phase,
        }
    }

    /// Takes note that the connection is gone. The engine may be gone as well: no session outlives it here.
    fn closed(&mut self, now: Duration, why: &str, actions: &mut Vec<Action>) {
        self.is_connected = false;
        self.under_way = None;
        (self.session, self.is_used) = (None, false);
        match self.phase {
            Phase::Creating { seed, until, .. } | Phase::Waiting { seed, until, .. } => {
                self.connect(now, seed, until, actions);
            }
            Phase::Idle | Phase::Connecting { .. } | Phase::Over => {}
            Phase::Advancing { .. } | Phase::Checking { .. } | Phase::Playing => {
                self.lose(format!("the engine is gone: {}", cut(why)), actions);
            }
        }
    }

    fn lose(&mut self, why: String, actions: &mut Vec<Action>) {
        self.destroy(actions);
        self.phase = Phase::Idle;
        self.lost = Some(why.clone());
        actions.push(Action::Lost(why));
    }

    /// Ends the session, if there may be one; nobody waits for that.
    fn destroy(&mut self, actions: &mut Vec<Action>) {
        self.under_way = None;
        let Some(session_id) = self.session.take().filter(|_| self.is_connected) else { return };
        if session_id.is_empty() {
            // It stays as it is.
            self.is_used = true;
            return;
        }
        self.calls += 1;
        let rpc = Rpc::Destroy(DestroySessionRequest { session_id });
        actions.push(Action::Send { call: self.calls, rpc });
    }
}

/// Returns the pause before a call that was refused so often before is made again.
fn pause(refused: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << refused.min(16)).min(LONGEST_PAUSE)
}

fn cut(said: &str) -> String {
    said.chars().filter(|letter| !letter.is_control()).take(MAX_SAID).collect()
}

#[cfg(test)]
mod tests;

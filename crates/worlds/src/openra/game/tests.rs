//! Games on an engine that misbehaves, in simulated time.

use std::collections::VecDeque;

use rollhouse_codec::openra::GameState;

use super::*;

/// How an engine takes the next call of a name; without an order it does what is right at once.
#[derive(Debug, Clone)]
enum Order {
    Answer(Answer),
    Refuse(Code),
    /// It never answers.
    Silence,
    /// Its connection goes away, and is there again after so long.
    Die(Duration),
}

/// An engine that has one session at a time, and a game on it.
struct Stand {
    now: Duration,
    game: Game,
    wake: Option<Duration>,
    orders: Vec<(&'static str, VecDeque<Order>)>,
    /// Names of all calls.
    calls: Vec<&'static str>,
    requests: Vec<Rpc>,
    sessions: u32,
    tick: i32,
    back_at: Option<Duration>,
}

impl Stand {
    fn new() -> Self {
        let setup = Setup { map: "river".into(), bots: "Multi1:rl-agent".into(), is_alone: true };
        Self {
            now: Duration::ZERO,
            game: Game::new(setup, true),
            wake: None,
            orders: Vec::new(),
            calls: Vec::new(),
            requests: Vec::new(),
            sessions: 0,
            tick: 0,
            back_at: None,
        }
    }

    fn with(mut self, call: &'static str, orders: impl IntoIterator<Item = Order>) -> Self {
        self.orders.push((call, orders.into_iter().collect()));
        self
    }

    /// Plays an event and all that follows, until something is done or lost, or nothing more happens.
    fn play(&mut self, event: Event) -> Option<Action> {
        let mut events = VecDeque::from([event]);
        for _ in 0..10_000 {
            let Some(event) = events.pop_front() else {
                let next = [self.wake, self.back_at].into_iter().flatten().min()?;
                self.now = self.now.max(next);
                if self.back_at.is_some_and(|at| at <= self.now) {
                    self.back_at = None;
                    events.push_back(Event::Connected);
                } else {
                    self.wake = None;
                    events.push_back(Event::Timeout);
                }
                continue;
            };
            let mut done = None;
            for action in self.game.on(self.now, event) {
                match action {
                    Action::Wake(at) => self.wake = Some(at),
                    Action::Send { call, rpc } => events.extend(self.answer(call, rpc)),
                    Action::Row(_) | Action::Lost(_) => done = Some(action),
                }
            }
            if done.is_some() {
                assert!(events.iter().all(|event| matches!(event, Event::Message { .. })), "{events:?}");
                return done;
            }
        }
        panic!("it never ends: {:?}", self.calls);
    }

    fn answer(&mut self, call: u64, rpc: Rpc) -> Option<Event> {
        let name = rpc.name();
        self.calls.push(name);
        self.requests.push(rpc);
        let orders = self.orders.iter_mut().find(|(of, _)| *of == name);
        let order = orders.and_then(|(_, orders)| orders.pop_front());
        let answer = match order {
            Some(Order::Answer(answer)) => answer,
            Some(Order::Refuse(code)) => {
                return Some(Event::Refused { call, code, message: "so it is".into() });
            }
            Some(Order::Silence) => return None,
            Some(Order::Die(after)) => {
                self.back_at = Some(self.now + after);
                return Some(Event::Closed("it fell down".into()));
            }
            None => self.right(name),
        };
        Some(Event::Message { call, answer })
    }

    fn right(&mut self, call: &str) -> Answer {
        match call {
            "CreateSession" => {
                self.sessions += 1;
                self.tick = 0;
                Answer::Created(format!("session-{}", self.sessions))
            }
            "GetState" => state("playing"),
            "FastAdvance" => {
                self.tick += 1;
                shown(self.tick, "")
            }
            _ => Answer::Destroyed,
        }
    }

    fn begin(&mut self) -> Option<Action> {
        self.play(Event::Begin { seed: 7 })
    }

    fn step(&mut self, ticks: i32) -> Option<Action> {
        self.play(Event::Step(FastAdvanceRequest { ticks, ..FastAdvanceRequest::default() }))
    }

    fn count(&self, call: &str) -> usize {
        self.calls.iter().filter(|name| **name == call).count()
    }
}

fn state(phase: &str) -> Answer {
    Answer::State(GameState { phase: phase.into(), ..GameState::default() })
}

fn shown(tick: i32, result: &str) -> Answer {
    let done = !result.is_empty();
    Answer::Observation(Box::new(GameObservation {
        tick,
        done,
        result: result.into(),
        ..GameObservation::default()
    }))
}

fn lost(action: Option<Action>) -> String {
    match action {
        Some(Action::Lost(why)) => why,
        other => panic!("it is not lost: {other:?}"),
    }
}

fn row(action: Option<Action>) -> GameRow {
    match action {
        Some(Action::Row(row)) => row,
        other => panic!("it is no row: {other:?}"),
    }
}

#[test]
fn an_episode_is_created_looked_at_until_it_plays_and_begun_by_one_tick() {
    let looks = ["no_bridge", "waiting", "waiting", "playing"].map(|phase| Order::Answer(state(phase)));
    let mut stand = Stand::new().with("GetState", looks);
    let first = row(stand.begin());
    assert!(first.begins && first.ended.is_none() && first.observation.tick == 1);
    assert_eq!(stand.now, 3 * LOOK_EVERY);
    let Rpc::Create(created) = &stand.requests[0] else { panic!("{:?}", stand.requests) };
    assert_eq!((created.map_name.as_str(), created.seed), ("river", 7));
    let Some(Rpc::Advance(begun)) = stand.requests.last() else { panic!("{:?}", stand.requests) };
    assert_eq!((begun.ticks, begun.session_id.as_str(), begun.commands.len()), (1, "session-1", 0));
    let second = row(stand.step(50));
    assert!(!second.begins && second.observation.tick == 2);
    let Some(Rpc::Advance(stepped)) = stand.requests.last() else { panic!("{:?}", stand.requests) };
    assert_eq!((stepped.ticks, stepped.session_id.as_str()), (50, "session-1"));
}

#[test]
fn a_session_that_never_begins_is_lost_after_120_looks_and_destroyed() {
    let mut stand = Stand::new().with("GetState", vec![Order::Answer(state("no_bridge")); 500]);
    let why = lost(stand.begin());
    assert!(why.contains("did not begin within 120 looks") && why.contains("river"), "{why}");
    assert_eq!((stand.count("GetState"), stand.calls.last()), (120, Some(&"DestroySession")));
    row(Some(stand_again(&mut stand)));
}

/// Begins an episode as after a loss, on an engine that does what is right.
fn stand_again(stand: &mut Stand) -> Action {
    stand.orders.clear();
    stand.begin().unwrap()
}

#[test]
fn looks_that_are_refused_or_never_answered_are_taken_again_and_have_an_end() {
    let mut orders = vec![Order::Silence, Order::Refuse(Code::Other)];
    let mut stand = Stand::new().with("GetState", orders.clone());
    assert!(row(stand.begin()).begins);
    assert_eq!(stand.now, CALL_WITHIN + 2 * LOOK_EVERY);
    orders.resize(500, Order::Silence);
    let mut stand = Stand::new().with("GetState", orders);
    lost(stand.begin());
    assert!(stand.now <= BEGIN_WITHIN + CALL_WITHIN, "{:?}", stand.now);
}

#[test]
fn an_engine_without_room_is_asked_again_later_and_not_for_ever() {
    let busy = |times: u32| vec![Order::Refuse(Code::Exhausted); times as usize];
    let mut stand = Stand::new().with("CreateSession", busy(3)).with("FastAdvance", busy(2));
    assert!(row(stand.begin()).begins);
    assert_eq!((stand.count("CreateSession"), stand.count("FastAdvance")), (4, 3));
    assert_eq!(stand.now, FIRST_PAUSE * (1 + 2 + 4) + FIRST_PAUSE * (1 + 2));
    stand.orders = vec![("FastAdvance", busy(MAX_REFUSED + 1).into())];
    let why = lost(stand.step(5));
    assert!(why.contains("no room 13 times"), "{why}");
    stand_again(&mut stand);
    stand.orders = vec![("FastAdvance", busy(MAX_REFUSED).into())];
    assert!(!row(stand.step(5)).begins, "the last retry counts");
}

#[test]
fn a_game_that_is_over_ends_the_episode_with_its_result_and_is_asked_nothing_more() {
    for (word, result) in [("win", GameResult::Win), ("lose", GameResult::Lose), ("draw", GameResult::Draw)] {
        let mut stand = Stand::new();
        stand.begin().unwrap();
        stand.orders = vec![("FastAdvance", VecDeque::from([Order::Answer(shown(9, word))]))];
        assert_eq!(row(stand.step(5)).ended, Some(result));
        // The engine ends such a session itself: that it knows none any more is no error.
        assert!(stand.play(Event::Timeout).is_none());
        let asked = stand.calls.len();
        assert!(row(stand.begin()).begins);
        assert_eq!(stand.calls[asked..], ["DestroySession", "CreateSession", "GetState", "FastAdvance"]);
    }
}

#[test]
fn a_session_that_is_gone_in_the_middle_of_a_game_is_a_loss_and_the_next_episode_is_made_anew() {
    for (code, says) in [
        (Code::Unavailable, "does not know the session"),
        (Code::Aborted, "had ended the session"),
        (Code::NotFound, "has not made"),
        (Code::Other, "refused a call"),
    ] {
        let mut stand = Stand::new();
        stand.begin().unwrap();
        stand.orders = vec![("FastAdvance", VecDeque::from([Order::Refuse(code)]))];
        let why = lost(stand.step(5));
        assert!(why.contains(says) && why.contains("so it is"), "{why}");
        assert!(row(stand.begin()).begins);
        assert_eq!(stand.sessions, 2);
    }
}

#[test]
fn a_session_that_was_reaped_while_it_was_idle_is_a_loss_with_that_reason() {
    let mut stand = Stand::new();
    stand.begin().unwrap();
    stand.now += REAPED_AFTER - Duration::from_secs(1);
    row(stand.step(5));
    assert_eq!(stand.count("GetState"), 1, "it need not be looked at");
    stand.now += REAPED_AFTER;
    row(stand.step(5));
    assert_eq!(stand.count("GetState"), 2, "it was looked at, and is there");
    stand.now += REAPED_AFTER;
    stand.orders = vec![("GetState", VecDeque::from([Order::Answer(state("no_bridge"))]))];
    let why = lost(stand.step(5));
    assert!(why.contains("idle for 300 s"), "{why}");
    assert_eq!(stand.count("DestroySession"), 0, "there is none to be destroyed");
    assert!(row(stand.begin()).begins);
}

#[test]
fn an_advance_that_is_never_answered_is_lost_after_its_time_and_its_session_destroyed() {
    let mut stand = Stand::new();
    stand.begin().unwrap();
    let began = stand.now;
    stand.orders = vec![("FastAdvance", VecDeque::from([Order::Silence]))];
    let why = lost(stand.step(5));
    assert!(why.contains("not answered within 120 s"), "{why}");
    assert_eq!(stand.now, began + ADVANCE_WITHIN);
    assert_eq!(stand.calls.last(), Some(&"DestroySession"));
}

#[test]
fn an_engine_that_dies_loses_a_game_and_one_that_dies_while_a_game_begins_is_waited_for() {
    let mut stand = Stand::new();
    stand.begin().unwrap();
    stand.orders = vec![("FastAdvance", VecDeque::from([Order::Die(Duration::from_secs(3))]))];
    let why = lost(stand.step(5));
    assert!(why.contains("it fell down"), "{why}");
    assert!(row(stand.begin()).begins, "it is connected to once it is back");
    assert_eq!(stand.count("DestroySession"), 0);
    assert!(
        matches!(stand.game.on(stand.now, Event::Closed("gone".into()))[..], [Action::Lost(_)]),
        "a game between two steps is lost as well"
    );
    assert!(row(stand.play(Event::Connected).or_else(|| stand.begin())).begins);
    stand.orders = vec![
        ("CreateSession", VecDeque::from([Order::Die(Duration::from_secs(5))])),
        ("GetState", VecDeque::from([Order::Die(Duration::from_secs(7))])),
    ];
    assert!(row(stand.begin()).begins, "both times it was asked for again");
}

#[test]
fn an_engine_that_is_never_there_or_goes_away_again_and_again_is_waited_for_with_an_end() {
    let mut stand = Stand::new();
    stand.game = Game::new(stand.game.setup.clone(), false);
    let why = lost(stand.begin());
    assert!(why.contains("not connected to within 120 s"), "{why}");
    let flaps = vec![Order::Die(Duration::from_secs(1)); 5000];
    let mut stand = Stand::new().with("CreateSession", flaps);
    lost(stand.begin());
    assert!(stand.now <= BEGIN_WITHIN + CONNECT_WITHIN, "{:?}", stand.now);
}

#[test]
fn answers_to_calls_that_were_given_up_are_not_heard() {
    let mut stand = Stand::new();
    stand.begin().unwrap();
    let actions = stand.game.on(stand.now, Event::Step(FastAdvanceRequest::default()));
    let Some(Action::Send { call, .. }) = actions.first() else { panic!("{actions:?}") };
    let call = *call;
    lost(stand.play(Event::GiveUp("it took too long".into())));
    let late = Event::Message { call, answer: shown(9, "win") };
    assert_eq!(stand.game.on(stand.now, late), []);
    assert!(row(stand.begin()).begins);
}

#[test]
fn what_no_engine_may_answer_loses_the_game() {
    for (call, answer) in [
        ("CreateSession", Answer::Created(String::new())),
        ("CreateSession", Answer::Created("x".repeat(MAX_SESSION_NAME + 1))),
        ("CreateSession", state("playing")),
        ("GetState", state("game_over")),
        ("GetState", shown(1, "")),
        ("FastAdvance", shown(1, "lose")),
        ("FastAdvance", Answer::Destroyed),
    ] {
        let mut stand = Stand::new().with(call, [Order::Answer(answer)]);
        lost(stand.begin());
        assert!(!stand.game.is_beginning());
    }
    let why = lost(Stand::new().step(1));
    assert!(why.contains("no game"), "{why}");
}

#[test]
fn what_is_shown_and_does_not_fit_loses_the_game_and_closing_destroys_the_session() {
    let mut stand = Stand::new();
    stand.begin().unwrap();
    assert_eq!(lost(stand.play(Event::Unfit("the map is another".into()))), "the map is another");
    assert_eq!(stand.calls.last(), Some(&"DestroySession"));
    stand.begin().unwrap();
    stand.play(Event::Close);
    let Some(Rpc::Destroy(ended)) = stand.requests.last() else { panic!("{:?}", stand.requests) };
    assert_eq!(ended.session_id, "session-2");
}

#[test]
fn an_engine_of_a_single_session_plays_one_episode_each_time_that_it_is_started() {
    let single = || Order::Refuse(Code::Unimplemented);
    let over = Order::Answer(shown(3, "win"));
    let right = || Order::Answer(shown(1, ""));
    let mut stand = Stand::new()
        .with("CreateSession", [single(), single(), single()])
        .with("FastAdvance", [right(), right(), over, Order::Die(Duration::from_secs(5))]);
    assert!(row(stand.begin()).begins);
    assert!(!row(stand.step(50)).begins);
    assert_eq!(row(stand.step(50)).ended, Some(GameResult::Win));
    let of_it = |rpc: &Rpc| match rpc {
        Rpc::State(StateRequest { session_id }) => session_id.is_empty(),
        Rpc::Advance(request) => request.session_id.is_empty(),
        _ => true,
    };
    assert!(stand.requests.iter().all(of_it), "it has no name");
    let why = lost(stand.begin());
    assert!(why.contains("has to be started anew"), "{why}");
    assert_eq!(stand.count("DestroySession"), 0, "nobody can");
    assert!(stand.play(Event::Closed("it was started anew".into())).is_none());
    assert!(stand.play(Event::Connected).is_none());
    // It dies as the next episode begins, and is waited for.
    assert!(lost(stand.begin()).contains("the engine is gone"));
    assert!(row(stand.begin()).begins);
}

#[test]
fn several_lanes_are_not_played_on_an_engine_of_a_single_session() {
    let mut stand = Stand::new().with("CreateSession", [Order::Refuse(Code::Unimplemented)]);
    stand.game.setup.is_alone = false;
    let why = lost(stand.begin());
    assert!(why.contains("several lanes want one that is started for several"), "{why}");
}

/// Symptom: of a lane whose engine died between two steps it was said that there is no game to be stepped. Cause: the step that
/// came after gave its own reason. Fix: it gives that of the loss.
#[test]
fn a_step_of_a_game_that_was_lost_between_two_steps_says_why_it_was() {
    let mut stand = Stand::new();
    stand.begin().unwrap();
    assert!(lost(stand.play(Event::Closed("it fell down".into()))).contains("it fell down"));
    assert!(lost(stand.step(1)).contains("it fell down"));
}

//! The driver of a session's games: one thread that has the connection, makes calls and keeps time.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info};

use super::call::{Answer, Code, Rpc};
use super::connection::{Connection, Failed, Turning, dial};
use super::game::{Action, CALL_WITHIN, CONNECT_WITHIN, Event, Game, GameRow, Setup};
use super::rewards::Counters;
use super::rows::Row;
use super::settings::Settings;
use super::shared::{Done, Posted, Shared};

/// What drives the games.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    settings: Settings,
    began: Instant,
    games: Vec<Played>,
    connection: Option<Connection>,
    /// At most one dialling, or the turning of one connection.
    link: JoinSet<News>,
    calls: JoinSet<(usize, u64, Result<Answer, Failed>)>,
    /// When the engine is dialled next, and the pause after that if it fails.
    dial_at: Instant,
    pause: Duration,
    /// Since when it is not connected to though it is wanted.
    wanted_since: Option<Instant>,
}

/// A lane's game.
struct Played {
    game: Game,
    /// Number of what was posted the last time.
    number: u64,
    wake: Option<Duration>,
    call: Option<AbortHandle>,
    counters: Counters,
    tick: i32,
}

/// News of the connection.
enum News {
    Dialled(Result<(Connection, Turning), String>),
    Ended(String),
}

/// Number that nothing is posted under.
const NONE: u64 = u64::MAX;
/// Pauses between two attempts to connect: each twice the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Time that calls have to end sessions which nobody plays any more.
pub(crate) const END_WITHIN: Duration = Duration::from_secs(2);
/// Time within which a call that was cut off is taken to be so by the end of its connection, which is told by itself.
const CUT_OFF_GRACE: Duration = Duration::from_millis(100);

/// Drives the games of a world until nobody has its lanes any more.
pub(crate) async fn drive(shared: Arc<Shared>, map: String, settings: Settings) {
    let lanes = shared.lock().slots.len();
    let setup = Setup { map, bots: settings.bots.clone(), is_alone: lanes == 1 };
    let played = |_| Played {
        game: Game::new(setup.clone(), false),
        number: 0,
        wake: None,
        call: None,
        counters: Counters::default(),
        tick: 0,
    };
    let began = Instant::now();
    let driver = Driver {
        games: (0..lanes).map(played).collect(),
        shared,
        settings,
        began,
        connection: None,
        link: JoinSet::new(),
        calls: JoinSet::new(),
        dial_at: began,
        pause: FIRST_PAUSE,
        wanted_since: None,
    };
    driver.run().await;
}

impl Driver {
    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        while !self.take() {
            let wanted = self.wants_dial();
            let next = self.games.iter().filter_map(|played| played.wake).min().map(|at| self.began + at);
            let timer = async move {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            let dial_at = self.dial_at;
            let dialling = async move { if wanted { sleep_until(dial_at).await } else { pending().await } };
            tokio::select! {
                () = shared.asked.notified() => {}
                Some(news) = self.link.join_next() => if let Ok(news) = news {
                    self.hear(news);
                },
                Some(done) = self.calls.join_next() => if let Ok((lane, call, answer)) = done {
                    self.answered(lane, call, answer);
                },
                () = timer => self.wake(),
                () = dialling => self.dial(),
            }
        }
        (0..self.games.len()).for_each(|lane| self.play(lane, Event::Close));
        let ended = async { while self.calls.join_next().await.is_some() {} };
        drop(timeout(END_WITHIN, ended).await);
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Takes what was asked of lanes; returns whether nobody has them any more.
    fn take(&mut self) -> bool {
        let mut events = Vec::new();
        let mut state = self.shared.lock();
        for (lane, slot) in state.slots.iter_mut().enumerate() {
            let given_up = slot.give_up.take().map(Event::GiveUp);
            let posted = slot.post.take().map(|posted| match posted {
                Posted::Begin { seed } => Event::Begin { seed },
                Posted::Step(request) => Event::Step(request),
            });
            events.extend(given_up.into_iter().chain(posted).map(|event| (lane, slot.number, event)));
        }
        let is_closing = state.is_closing;
        drop(state);
        for (lane, number, event) in events {
            // Of what was given up nothing is heard, also if something else is posted already.
            self.games[lane].number = if matches!(event, Event::GiveUp(_)) { NONE } else { number };
            self.play(lane, event);
        }
        is_closing
    }

    /// Returns whether the engine is to be dialled: somebody wants it, and it is not connected to.
    fn wants_dial(&mut self) -> bool {
        let begins = self.games.iter().any(|played| played.game.wants_connection());
        let mut state = self.shared.lock();
        let wanted = begins || state.slots.iter().any(|slot| slot.is_coming);
        if !wanted || self.connection.is_some() {
            self.wanted_since = None;
            return false;
        }
        let since = *self.wanted_since.get_or_insert_with(Instant::now);
        if since.elapsed() > CONNECT_WITHIN {
            self.wanted_since = None;
            state.slots.iter_mut().for_each(|slot| slot.is_coming = false);
            self.shared.tell(&mut state);
        }
        self.link.is_empty()
    }

    fn dial(&mut self) {
        let engine = self.settings.engine.clone();
        let most_bytes = self.settings.sight.most_bytes();
        // Task: dialling.
        self.link.spawn(async move { News::Dialled(dial(&engine, most_bytes).await) });
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Dialled(Ok((connection, turning))) => {
                debug!(engine = self.settings.engine, "an engine is connected to");
                self.connection = Some(connection);
                // Task: connection to an engine.
                self.link.spawn(async move { News::Ended(turning.await) });
                self.set_connected(true);
                (0..self.games.len()).for_each(|lane| self.play(lane, Event::Connected));
            }
            News::Dialled(Err(why)) => {
                debug!(engine = self.settings.engine, why, "an engine is not connected to");
                self.pause_dialling();
            }
            News::Ended(why) => {
                info!(engine = self.settings.engine, why, "the connection to an engine has ended");
                self.connection = None;
                self.pause_dialling();
                self.set_connected(false);
                (0..self.games.len()).for_each(|lane| self.play(lane, Event::Closed(why.clone())));
            }
        }
    }

    fn pause_dialling(&mut self) {
        self.dial_at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    fn set_connected(&self, is_connected: bool) {
        let mut state = self.shared.lock();
        state.is_connected = is_connected;
        self.shared.tell(&mut state);
    }

    fn answered(&mut self, lane: usize, call: u64, answer: Result<Answer, Failed>) {
        match answer {
            Ok(answer) => {
                self.pause = FIRST_PAUSE;
                self.play(lane, Event::Message { call, answer });
            }
            Err(Failed::Refused(code, message)) => {
                self.pause = FIRST_PAUSE;
                self.play(lane, Event::Refused { call, code, message });
            }
            // The end of its connection says more, if it is that.
            Err(Failed::CutOff(message)) => {
                // Task: call of an engine.
                self.calls.spawn(async move {
                    sleep(CUT_OFF_GRACE).await;
                    (lane, call, Err(Failed::Refused(Code::Other, message)))
                });
            }
        }
    }

    fn wake(&mut self) {
        let now = self.now();
        for lane in 0..self.games.len() {
            if self.games[lane].wake.is_some_and(|at| at <= now) {
                self.games[lane].wake = None;
                self.play(lane, Event::Timeout);
            }
        }
    }

    /// Plays an event, and what follows from it.
    fn play(&mut self, lane: usize, event: Event) {
        let now = self.now();
        let mut unfit = None;
        for action in self.games[lane].game.on(now, event) {
            match action {
                Action::Send { call, rpc } => self.send(lane, call, rpc),
                Action::Wake(at) => self.games[lane].wake = Some(at),
                Action::Row(shown) => unfit = self.show(lane, &shown).err(),
                Action::Lost(why) => self.lose(lane, why),
            }
        }
        self.shared.lock().slots[lane].is_beginning = self.games[lane].game.is_beginning();
        if let Some(why) = unfit {
            self.play(lane, Event::Unfit(why));
        }
    }

    fn send(&mut self, lane: usize, call: u64, rpc: Rpc) {
        let Some(connection) = self.connection.clone() else { return };
        let is_awaited = !matches!(rpc, Rpc::Destroy(_));
        // Task: call of an engine.
        let task = self.calls.spawn(async move {
            if is_awaited {
                // Its game gives it up.
                return (lane, call, connection.call(rpc).await);
            }
            let late = |_| Failed::Refused(Code::Other, String::new());
            (lane, call, timeout(CALL_WITHIN, connection.call(rpc)).await.map_err(late).and_then(|it| it))
        });
        if is_awaited && let Some(last) = self.games[lane].call.replace(task) {
            last.abort();
        }
    }

    /// Makes the row of what is shown.
    fn show(&mut self, lane: usize, shown: &GameRow) -> Result<(), String> {
        let played = &mut self.games[lane];
        played.wake = None;
        let observation = &shown.observation;
        let ticks = observation.tick.saturating_sub(played.tick);
        let row = Row::of(observation, ticks, &self.settings.sight).map_err(|unfit| unfit.to_string())?;
        played.tick = observation.tick;
        let reward = if shown.begins {
            played.counters.begin(observation);
            0.0
        } else {
            played.counters.reward(observation, shown.ended, &self.settings.weights)
        };
        let done = Done { row, reward, begins: shown.begins, ended: shown.ended };
        let number = played.number;
        let mut state = self.shared.lock();
        if state.done(lane, number, done) {
            self.shared.tell(&mut state);
        }
        Ok(())
    }

    fn lose(&mut self, lane: usize, why: String) {
        let played = &mut self.games[lane];
        played.wake = None;
        if let Some(call) = played.call.take() {
            call.abort();
        }
        let number = played.number;
        let mut state = self.shared.lock();
        if state.lost(lane, number, why) {
            self.shared.tell(&mut state);
        }
    }
}

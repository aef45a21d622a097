//! The bridge: what each call of the service does. Nothing here knows how calls come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rollhouse_codec::openra::{
    Advance, Bots, CreateSessionRequest, FastAdvanceRequest, GameObservation, GameState, Message, Phase,
    SessionName, Strength,
};
use rollhouse_core::{GameResult, OptionValue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tracing::{info, warn};

use super::book::{Book, Found};
use super::game::Game;
use super::life::{Denied, Ending, SessionAction, SessionEvent, Standing};
use super::names::{FACTION, MAPS};
use super::observing::Players;
use super::session::{Call, Held, Session};
use super::shape::Shape;
use crate::lanes::{LaneError, Lanes, contained};
use crate::names::random_name;

/// How a bridge is set.
#[derive(Debug, Clone)]
pub struct BridgeSettings {
    /// Maximum number of created sessions at a time.
    pub sessions: usize,
    /// Ticks a second of the stream.
    pub ticks_per_second: f64,
    /// Whether a map that the env does not have is played on the env's own; else such a session never begins.
    pub any_map: bool,
    /// Seed of the stream's first game, if it is not drawn.
    pub seed: Option<u64>,
}

/// Reason for which a call is not answered as it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("there is no session of that name")]
    Unknown,
    #[error("the session is done")]
    Done,
    #[error("the session's world could not be made")]
    NotMade,
    #[error("{what}; at most {limit} at a time: try again")]
    Exhausted { what: &'static str, limit: usize },
    #[error(transparent)]
    Request(#[from] rollhouse_codec::openra::BadRequest),
    #[error("the session's world has failed")]
    Lost,
    #[error("the gate stops")]
    Stopping,
}

/// A bridge.
pub(crate) struct Bridge {
    pub(super) lanes: Arc<dyn Lanes>,
    pub(super) shape: Shape,
    pub(super) settings: BridgeSettings,
    book: Mutex<Book<Arc<Session>>>,
    /// Places of calls that are advanced or wait for a core.
    queue: Arc<Semaphore>,
    places: usize,
    /// One for each core.
    cores: Arc<Semaphore>,
    makers: Arc<Semaphore>,
    stop: watch::Sender<bool>,
    began: Instant,
    counts: Counts,
}

/// What was done and refused since the bridge began.
#[derive(Debug, Default)]
struct Counts {
    sessions: AtomicU64,
    advances: AtomicU64,
    /// Commands that changed nothing, as of units that are not the player's.
    rejected_commands: AtomicU64,
    refused_calls: AtomicU64,
}

/// Time for which a call waits for a place in the queue.
const QUEUE_PATIENCE: Duration = Duration::from_secs(5);
/// Time for which a call waits until a session's world is made.
const MAKE_PATIENCE: Duration = Duration::from_secs(300);
/// Time for which the destruction of a session waits for the call that advances it.
const DESTROY_PATIENCE: Duration = Duration::from_secs(10);
/// Worlds that are made, or closed, at a time.
pub(crate) const MAX_MAKERS: usize = 4;
/// Places in the queue for each core.
const PLACES_PER_CORE: usize = 4;

impl Bridge {
    pub(crate) fn new(lanes: Arc<dyn Lanes>, shape: Shape, settings: BridgeSettings, cores: usize) -> Self {
        let places = PLACES_PER_CORE * cores;
        Self {
            lanes,
            shape,
            book: Mutex::new(Book::new(settings.sessions)),
            settings,
            queue: Arc::new(Semaphore::new(places)),
            places,
            cores: Arc::new(Semaphore::new(cores)),
            makers: Arc::new(Semaphore::new(MAX_MAKERS)),
            stop: watch::Sender::new(false),
            began: Instant::now(),
            counts: Counts::default(),
        }
    }

    /// Returns the time since it began.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Creates a session and returns its name at once; its world is made behind it. The log alone reports bad maps
    /// and bots, as that of an engine does: such a session never plays.
    pub(crate) fn create(self: &Arc<Self>, request: CreateSessionRequest) -> Result<String, Refused> {
        let bots = Bots::of_text(&request.bots);
        let players = bots.as_ref().map(players_of).unwrap_or_default();
        let options = match bots {
            Ok(bots) => self.options(&request.map_name, bots.opponent.map(|(_, strength)| strength)),
            Err(error) => Err(error.to_string()),
        };
        let word = random_name().ok_or(Refused::Stopping)?;
        let name = SessionName::Created(word.clone());
        let session = self.enter(name, players)?;
        let seed = u64::try_from(request.seed).ok().filter(|seed| *seed > 0);
        self.counts.sessions.fetch_add(1, Ordering::Relaxed);
        self.make(session, options, seed);
        Ok(word)
    }

    /// Returns the single session. If there is none, or its game is over and another is wanted, its world is made.
    pub(crate) fn single(self: &Arc<Self>, is_new_wanted: bool) -> Result<Arc<Session>, Refused> {
        let found = self.book.lock().find(&SessionName::Single);
        let (is_first, ended) = match found {
            Found::Session(session) => match session.standing() {
                Standing::Making | Standing::Playing => return Ok(session),
                _ if !is_new_wanted => return Ok(session),
                _ => (false, Some(session)),
            },
            _ => (true, None),
        };
        drop(ended);
        let session = self.enter(SessionName::Single, Players::default())?;
        let seed = self.settings.seed.filter(|_| is_first);
        self.make(Arc::clone(&session), Ok(Vec::new()), seed);
        Ok(session)
    }

    fn enter(&self, name: SessionName, players: Players) -> Result<Arc<Session>, Refused> {
        if *self.stop.borrow() {
            return Err(Refused::Stopping);
        }
        let session = Arc::new(Session::new(name, players, self.now()));
        let entered = self.book.lock().enter(&session.name, Arc::clone(&session));
        let limit = self.settings.sessions;
        entered.map(|()| session).map_err(|_| Refused::Exhausted { what: "too many sessions", limit })
    }

    /// Returns the options of a lane for a map and a bot.
    fn options(&self, map: &str, opponent: Option<Strength>) -> Result<Vec<(String, OptionValue)>, String> {
        let mut options = Vec::new();
        let map = map.strip_suffix(".oramap").unwrap_or(map);
        if MAPS.contains(&map) {
            options.push(("map".to_owned(), OptionValue::Text(map.to_owned())));
        } else if !map.is_empty() && !self.settings.any_map {
            let map: String = map.chars().take(64).collect();
            return Err(format!("unknown map {map:?}; known are {}", MAPS.join(", ")));
        }
        if let Some(opponent) = opponent {
            let name = match opponent {
                Strength::Dummy | Strength::Beginner => "beginner",
                Strength::Easy => "easy",
                Strength::Medium => "medium",
                Strength::Hard | Strength::Brutal => "hard",
            };
            options.push(("opponent".to_owned(), OptionValue::Text(name.to_owned())));
        }
        Ok(options)
    }

    /// Makes the world of a session, on a thread that may block.
    fn make(
        self: &Arc<Self>,
        session: Arc<Session>,
        options: Result<Vec<(String, OptionValue)>, String>,
        seed: Option<u64>,
    ) {
        let bridge = Arc::clone(self);
        // Task: making of a session.
        tokio::spawn(async move {
            let Ok(permit) = Arc::clone(&bridge.makers).acquire_owned().await else { return };
            // Task: work on a session.
            let made = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                let game = options.and_then(|options| {
                    let game = contained(|| bridge.game(&session, &options, seed));
                    game.ok_or_else(|| LaneError::Lost.to_string())?.map_err(|error| error.with_causes())
                });
                bridge.made(&session, game);
            });
            drop(made.await);
        });
    }

    fn game(
        &self,
        session: &Session,
        options: &[(String, OptionValue)],
        seed: Option<u64>,
    ) -> Result<Game, LaneError> {
        Game::begin(self.lanes.make(options)?, &self.shape, session.players.clone(), seed)
    }

    fn made(&self, session: &Arc<Session>, game: Result<Game, String>) {
        let event = match game {
            Ok(game) => {
                session.put_game(game);
                SessionEvent::Made
            }
            Err(why) => {
                warn!(session = session.word(), why, "the world of a session could not be made");
                SessionEvent::NotMade
            }
        };
        if let Some(ending) = self.happens(session, event) {
            self.close(session, ending, session.take_game());
        }
    }

    /// Takes in what happens to a session. One that has ended is found no more before those who wait are notified: who is refused
    /// may take its place at once.
    fn happens(&self, session: &Session, event: SessionEvent) -> Option<Ending> {
        let action = session.on(self.now(), event);
        let ending = match action {
            SessionAction::Close(ending) => Some(ending),
            _ => None,
        };
        if let Some(ending) = ending {
            self.book.lock().end(&session.name, ending);
        }
        session.tell();
        ending
    }

    /// Returns how a session stands. Never fails.
    pub(crate) fn state(self: &Arc<Self>, name: SessionName) -> GameState {
        let found = match name {
            SessionName::Single => self.single(false).ok(),
            name => match self.book.lock().find(&name) {
                Found::Session(session) => Some(session),
                _ => None,
            },
        };
        let Some(session) = found else {
            return GameState { phase: Phase::NoBridge.name().to_owned(), ..GameState::default() };
        };
        let (phase, winner) = match session.standing() {
            Standing::Making => (Phase::Waiting, None),
            Standing::Playing => (Phase::Playing, None),
            Standing::Over(GameResult::Win) => (Phase::GameOver, Some(&session.players.own)),
            Standing::Over(GameResult::Lose) => (Phase::GameOver, Some(&session.players.enemy)),
            Standing::Over(_) => (Phase::GameOver, None),
            Standing::NotMade | Standing::Ended => (Phase::NoBridge, None),
        };
        GameState {
            episode_id: session.word().to_owned(),
            tick: session.tick(),
            phase: phase.name().to_owned(),
            winner: winner.cloned().unwrap_or_default(),
            player_count: 2,
            player_faction: FACTION.to_owned(),
            enemy_faction: FACTION.to_owned(),
        }
    }

    /// Advances a session and returns the observation, encoded. If the caller goes away, what has begun ends all the same.
    pub(crate) async fn fast_advance(
        self: &Arc<Self>,
        request: FastAdvanceRequest,
    ) -> Result<Bytes, Refused> {
        let answer = self.advance_named(request).await;
        if answer.is_err() {
            self.counts.refused_calls.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    async fn advance_named(self: &Arc<Self>, request: FastAdvanceRequest) -> Result<Bytes, Refused> {
        let (name, advance) = Advance::of(request, self.shape.action.most_orders)?;
        let session = match name {
            SessionName::Single => self.single(false)?,
            name => match self.book.lock().find(&name) {
                Found::Session(session) => session,
                Found::Ended(Ending::NotMade) => return Err(Refused::NotMade),
                Found::Ended(_) => return Err(Refused::Done),
                Found::Unknown => return Err(Refused::Unknown),
            },
        };
        let call = self.admit(&session).await?;
        let held = session.hold().await;
        self.advance(session, (call, held), advance).await
    }

    /// Waits until a call may advance a session.
    pub(super) async fn admit(&self, session: &Arc<Session>) -> Result<Call, Refused> {
        let admitted = tokio::time::timeout(MAKE_PATIENCE, session.admit(|| self.now())).await;
        admitted.map_err(|_| Refused::Unknown)?.map_err(|denied| match denied {
            Denied::Done => Refused::Done,
            Denied::NotMade => Refused::NotMade,
            Denied::Busy => {
                Refused::Exhausted { what: "too many calls of one session", limit: super::life::MAX_CALLS }
            }
        })
    }

    /// Advances a session whose game is held.
    pub(super) async fn advance(
        self: &Arc<Self>,
        session: Arc<Session>,
        (call, held): (Call, Held),
        advance: Advance,
    ) -> Result<Bytes, Refused> {
        let permits = self.permits().await?;
        let bridge = Arc::clone(self);
        // Task: work on a session.
        let done = tokio::task::spawn_blocking(move || {
            let (_call, _permits) = (call, permits);
            bridge.advance_held(&session, held, &advance)
        });
        done.await.unwrap_or(Err(Refused::Lost))
    }

    /// Waits for a place in the queue, and in it for a core.
    async fn permits(&self) -> Result<[OwnedSemaphorePermit; 2], Refused> {
        let queue = Arc::clone(&self.queue);
        let place = tokio::time::timeout(QUEUE_PATIENCE, queue.acquire_owned()).await;
        let full = Refused::Exhausted { what: "too many sessions are advanced", limit: self.places };
        let Ok(Ok(place)) = place else { return Err(full) };
        let core = Arc::clone(&self.cores).acquire_owned().await.map_err(|_| Refused::Stopping)?;
        Ok([place, core])
    }

    fn advance_held(
        &self,
        session: &Arc<Session>,
        mut held: Held,
        advance: &Advance,
    ) -> Result<Bytes, Refused> {
        let game = held.as_mut().ok_or(Refused::Done)?;
        let done = contained(|| game.advance(&self.shape, advance)).unwrap_or(Err(LaneError::Lost));
        let (event, answer) = match done {
            Ok(mut advanced) => {
                session.set_tick(advanced.message.tick);
                self.counts.advances.fetch_add(1, Ordering::Relaxed);
                self.counts.rejected_commands.fetch_add(advanced.rejected.into(), Ordering::Relaxed);
                session.word().clone_into(&mut advanced.message.episode_id);
                (SessionEvent::Advanced(advanced.result), Ok(advanced.message.encode_to_vec().into()))
            }
            Err(error) => {
                warn!(
                    session = session.word(),
                    why = error.with_causes(),
                    "the world of a session has failed"
                );
                (SessionEvent::Lost, Err(Refused::Lost))
            }
        };
        if let Some(ending) = self.happens(session, event) {
            self.close(session, ending, held.take());
        }
        answer
    }

    /// Returns the observation of a game that is held, encoded.
    pub(super) fn observe(&self, session: &Session, held: &mut Held) -> Result<Bytes, Refused> {
        let game = held.as_mut().ok_or(Refused::Done)?;
        let message = contained(|| game.observation(&self.shape)).unwrap_or(Err(LaneError::Lost));
        let message = message.map_err(|_| Refused::Lost)?;
        let message = GameObservation { episode_id: session.word().to_owned(), reward: 0.0, ..message };
        Ok(message.encode_to_vec().into())
    }

    /// Destroys a session, if there is one. Waits for the call that advances it, but not for long.
    pub(crate) async fn destroy(self: &Arc<Self>, name: SessionName) {
        let found = self.book.lock().find(&name);
        if let Found::Session(session) = found {
            let closing = self.end(&session, SessionEvent::Destroyed);
            drop(tokio::time::timeout(DESTROY_PATIENCE, closing).await);
        }
    }

    /// Ends the sessions that nobody has advanced for long.
    pub(crate) async fn reap(self: &Arc<Self>) {
        let all = self.book.lock().all();
        for session in all {
            self.end(&session, SessionEvent::Looked).await;
        }
    }

    /// Ends a session if the event ends it.
    async fn end(self: &Arc<Self>, session: &Arc<Session>, event: SessionEvent) {
        let Some(ending) = self.happens(session, event) else { return };
        let Ok(permit) = Arc::clone(&self.makers).acquire_owned().await else { return };
        let (bridge, session) = (Arc::clone(self), Arc::clone(session));
        // Task: work on a session.
        let closed = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            bridge.close(&session, ending, session.take_game());
        });
        drop(closed.await);
    }

    /// Closes the world of a session that has ended. Blocks.
    fn close(&self, session: &Session, ending: Ending, game: Option<Game>) {
        if let Some(game) = game {
            let _closed = contained(|| game.close());
        }
        info!(session = session.word(), ending = ?ending, tick = session.tick(), "a session has ended");
    }

    /// Ends everything: streams, and all sessions with their worlds.
    pub(crate) async fn stop(self: &Arc<Self>) {
        self.stop.send_replace(true);
        let all = self.book.lock().all();
        for session in all {
            self.end(&session, SessionEvent::Destroyed).await;
        }
    }

    /// Logs what was done and refused.
    pub(crate) fn log_counts(&self) {
        let Counts { sessions, advances, rejected_commands, refused_calls } = &self.counts;
        let [sessions, advances, rejected_commands, refused_calls] =
            [sessions, advances, rejected_commands, refused_calls].map(|count| count.load(Ordering::Relaxed));
        info!(sessions, advances, rejected_commands, refused_calls, "the gate has ended");
    }

    /// Returns what is raised as it stops.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }
}

impl Default for Players {
    fn default() -> Self {
        Self { own: "Multi1".to_owned(), enemy: "Multi0".to_owned() }
    }
}

fn players_of(bots: &Bots) -> Players {
    let usual = Players::default();
    let enemy = bots.opponent.as_ref().map_or(usual.enemy, |(slot, _)| slot.clone());
    Players { own: bots.agent.clone(), enemy }
}

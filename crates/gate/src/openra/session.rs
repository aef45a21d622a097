//! A session: its life, and the game that it plays.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rollhouse_codec::openra::SessionName;
use tokio::sync::{OwnedMutexGuard, watch};

use super::game::Game;
use super::life::{Denied, Life, SessionAction, SessionEvent, Standing};
use super::observing::Players;

/// A session.
pub(crate) struct Session {
    pub(crate) name: SessionName,
    pub(crate) players: Players,
    life: Mutex<Life>,
    /// Raised when its life has changed.
    changed: watch::Sender<()>,
    /// Its game, while there is one. Calls take turns.
    game: Arc<tokio::sync::Mutex<Option<Game>>>,
    tick: AtomicI32,
}

/// A call that may advance a session. The session is told when it is dropped.
pub(crate) struct Call {
    session: Arc<Session>,
}

/// The game of a session, as long as it is held.
pub(crate) type Held = OwnedMutexGuard<Option<Game>>;

impl Session {
    pub(crate) fn new(name: SessionName, players: Players, now: Duration) -> Self {
        let is_single = name == SessionName::Single;
        Self {
            name,
            players,
            life: Mutex::new(Life::new(now, is_single)),
            changed: watch::Sender::new(()),
            game: Arc::default(),
            tick: AtomicI32::new(0),
        }
    }

    /// Returns what the session is called in messages.
    pub(crate) fn word(&self) -> &str {
        match &self.name {
            SessionName::Single => "single",
            SessionName::Created(name) => name,
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        self.life.lock().standing()
    }

    pub(crate) fn tick(&self) -> i32 {
        self.tick.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tick(&self, tick: i32) {
        self.tick.store(tick, Ordering::Relaxed);
    }

    /// Tells the session what has happened, and returns what is to be done. Those who wait are to be told afterwards.
    #[must_use]
    pub(crate) fn on(&self, now: Duration, event: SessionEvent) -> SessionAction {
        self.life.lock().on(now, event)
    }

    /// Tells those who wait that something has happened.
    pub(crate) fn tell(&self) {
        self.changed.send_replace(());
    }

    /// Waits until a call may advance it. A call that is given up leaves nothing behind.
    pub(crate) async fn admit(self: &Arc<Self>, now: impl Fn() -> Duration) -> Result<Call, Denied> {
        let mut changes = self.changed.subscribe();
        loop {
            changes.mark_unchanged();
            match self.on(now(), SessionEvent::Asked) {
                SessionAction::Admit => return Ok(Call { session: Arc::clone(self) }),
                SessionAction::Refuse(denied) => return Err(denied),
                _ if changes.changed().await.is_err() => return Err(Denied::Done),
                _ => {}
            }
        }
    }

    /// Waits for the game. Returns an empty place if there is none any more.
    pub(crate) async fn hold(&self) -> Held {
        Arc::clone(&self.game).lock_owned().await
    }

    /// Takes the game out of its place, now or once the call that has it has ended. Blocks for as long.
    pub(crate) fn take_game(&self) -> Option<Game> {
        self.game.blocking_lock().take()
    }

    /// Puts the game that was made into its place. Blocks.
    pub(crate) fn put_game(&self, game: Game) {
        *self.game.blocking_lock() = Some(game);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let _answered = self.session.life.lock().on(Duration::ZERO, SessionEvent::Answered);
    }
}

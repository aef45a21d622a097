//! The server: how many sessions there are, and who gets one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollhouse_codec::openenv::{Capacity, most_bytes};
use rollhouse_core::{EnvSpec, Space};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tracing::{info, warn};

use super::counts::{Counts, Refusal};
use super::player::Player;
use super::sessions::{Closing, NotAttached, Sessions};
use crate::bearer::Bearer;
use crate::lanes::Lanes;
use crate::names::random_name;

/// How a server of OpenEnv's protocol is set.
#[derive(Debug, Clone)]
pub struct OpenenvSettings {
    /// Maximum number of sessions at a time: sockets, and what is asked without one.
    pub sessions: usize,
    /// Time after which a session is ended whose client has sent no message.
    pub idle: Duration,
}

/// A server.
pub(crate) struct OpenenvServer {
    lanes: Arc<dyn Lanes>,
    pub(super) settings: OpenenvSettings,
    pub(super) bearer: Bearer,
    pub(super) counts: Counts,
    places: Arc<Semaphore>,
    named: Mutex<Sessions<Session>>,
    stop: watch::Sender<bool>,
    /// Whoever is at work holds a receiver.
    alive: watch::Sender<()>,
    began: Instant,
}

/// A player with its place among the sessions.
pub(super) struct Session {
    pub(super) player: Player,
    _place: OwnedSemaphorePermit,
}

/// What a player has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Reset,
    Step,
}

/// Reason for which there is no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoSession {
    #[error("{}", .0.message())]
    Full(Capacity),
    #[error("Environment factory '{env}' failed to create instance: {why}")]
    NotMade { env: String, why: String },
    #[error("Unknown session_id: {0}")]
    Unknown(String),
    #[error("Session {0} already has an attached WebSocket")]
    InUse(String),
}

/// Threads for worlds that are closed while all sessions are in a step.
pub(crate) const MAX_CLOSERS: usize = 4;

impl OpenenvServer {
    pub(crate) fn new(lanes: Arc<dyn Lanes>, settings: OpenenvSettings, bearer: Bearer) -> Self {
        Self {
            lanes,
            places: Arc::new(Semaphore::new(settings.sessions)),
            settings,
            bearer,
            counts: Counts::default(),
            named: Mutex::new(Sessions::new()),
            stop: watch::Sender::new(false),
            alive: watch::Sender::new(()),
            began: Instant::now(),
        }
    }

    /// Returns what the env is.
    pub(super) fn spec(&self) -> &EnvSpec {
        self.lanes.spec()
    }

    /// Returns the space of the actions.
    pub(super) fn actions(&self) -> &Space {
        &self.lanes.spec().action_space
    }

    /// Returns the bytes of the longest message that is read.
    pub(super) fn most_bytes(&self) -> usize {
        most_bytes(self.actions().elements())
    }

    /// Makes a session. If the caller goes away, it is made all the same, and ended.
    pub(super) async fn session(&self) -> Result<Session, NoSession> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.counts.refuse(Refusal::Capacity);
            let most = self.settings.sessions;
            let active = most - self.places.available_permits().min(most);
            return Err(NoSession::Full(Capacity { active, most }));
        };
        let lanes = Arc::clone(&self.lanes);
        let made = blocking(move || (Player::make(lanes), place)).await;
        let why = match made {
            Some((Ok(player), place)) => return Ok(Session { player, _place: place }),
            Some((Err(error), _)) => error.with_causes(),
            None => "its thread has failed".to_owned(),
        };
        self.counts.refuse(Refusal::Factory);
        warn!(env = self.spec().id, why, "the lane of a session could not be made");
        Err(NoSession::NotMade { env: self.spec().id.clone(), why })
    }

    /// Makes a session for whoever knows its name, and returns that.
    pub(super) async fn create(&self) -> Result<String, NoSession> {
        let session = self.session().await?;
        let Some(name) = random_name() else {
            close(session).await;
            return Err(NoSession::NotMade {
                env: self.spec().id.clone(),
                why: "there is no randomness".to_owned(),
            });
        };
        self.named.lock().enter(name.clone(), session, self.began.elapsed());
        Ok(name)
    }

    /// Returns a session that was created by name, for a socket that is to have it.
    pub(super) fn attach(&self, name: &str) -> Result<Session, NoSession> {
        let attached = self.named.lock().attach(name);
        attached.map_err(|error| {
            self.counts.refuse(Refusal::Session);
            match error {
                NotAttached::Unknown => NoSession::Unknown(name.to_owned()),
                NotAttached::InUse => NoSession::InUse(name.to_owned()),
            }
        })
    }

    /// Takes a session from a socket that ends: one with a name stays, unless it was to be closed.
    pub(super) async fn give_back(&self, name: Option<&str>, session: Session) {
        let left = match name {
            Some(name) if !self.is_stopping() => {
                self.named.lock().give_back(name, session, self.began.elapsed())
            }
            _ => Some(session),
        };
        if let Some(session) = left {
            close(session).await;
        }
    }

    /// Closes a session that was created by name. Returns whether it is closed now, or `None` if there is none.
    pub(super) async fn close_named(&self, name: &str) -> Option<bool> {
        let closing = self.named.lock().close(name);
        match closing {
            Closing::Closed(session) => {
                close(session).await;
                Some(true)
            }
            Closing::Later => Some(false),
            Closing::Unknown => None,
        }
    }

    pub(super) fn has_named(&self, name: &str) -> bool {
        self.named.lock().has(name)
    }

    /// Ends the sessions with names that nobody has used for long.
    pub(super) async fn reap(&self) {
        let Some(since) = self.began.elapsed().checked_sub(self.settings.idle) else { return };
        let idle = self.named.lock().take_idle(since);
        for session in idle {
            self.counts.refuse(Refusal::Idle);
            close(session).await;
        }
    }

    /// Has everything end: sockets after the message that they work on, and sessions that nobody has.
    pub(super) async fn stop(&self) {
        self.stop.send_replace(true);
        let left = self.named.lock().take_idle(Duration::MAX);
        for session in left {
            close(session).await;
        }
    }

    /// Returns what is raised as it stops.
    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Returns what a task holds until it has ended.
    pub(super) fn alive(&self) -> watch::Receiver<()> {
        self.alive.subscribe()
    }

    /// Waits until all tasks that hold it have ended. Cancellation-safe.
    pub(super) async fn all_gone(&self) {
        self.alive.closed().await;
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Counts what a player has done.
    pub(super) fn count(&self, done: Done) {
        let count = match done {
            Done::Reset => &self.counts.episodes,
            Done::Step => &self.counts.steps,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends a session. Cancelled, it ends all the same.
pub(super) async fn close(session: Session) {
    let steps = session.player.state().step_count;
    let closing = blocking(move || {
        let Session { player, _place } = session;
        player.close();
    });
    let _closed = closing.await;
    info!(steps, "a session has ended");
}

/// Calls what blocks on a thread that may. Returns nothing if it panics.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    // Task: work on a session.
    tokio::task::spawn_blocking(work).await.ok()
}

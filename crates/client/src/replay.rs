//! Recorded episodes of a cluster's store, opened as sessions: played, sought and watched on a node.

use std::fmt;

use rollhouse_core::EpisodeName;
use rollhouse_core::msgpack::Message;
use rollhouse_wire::{
    Attach, Attached, CallId, EndCause, FrameReader, FrameWriter, Grant, LaneFrame, LookAnswer, OpenReplay,
    PauseParams, PlayParams, PoolStatus, SeekParams, SessionId, StepParams,
};

use crate::blocking::Cluster;
use crate::cluster::AsyncCluster;
use crate::error::RequestError;
use crate::watch::{AsyncWatch, Watch, WatchError, unlike};

/// A recorded episode that was opened as a session. It is kept on its node for as long as this lives, whether or not it
/// is watched. If this is dropped without [`AsyncReplay::close`], it ends with its lease.
pub struct AsyncReplay {
    cluster: AsyncCluster,
    session: SessionId,
    /// The stream of its owner, on which nothing is sent.
    _held: (FrameReader, FrameWriter),
}

/// A recorded episode as [`AsyncReplay`], for callers without a runtime: calls block.
pub struct Replay {
    inner: AsyncReplay,
    cluster: Cluster,
}

impl AsyncCluster {
    /// Opens an episode of the store as a session, paused at its reset; the role viewer suffices. It is watched by
    /// [`AsyncCluster::watch`], whose watches can seek and play it.
    ///
    /// # Errors
    /// See [`WatchError`]: there is no such episode, no node has its env as it was, or none has room.
    pub async fn open_replay(&self, episode: EpisodeName) -> Result<AsyncReplay, WatchError> {
        let pool = self.new_pool_id().await?;
        let opened = self.request(OpenReplay { pool, episode: episode.to_string() }).await?;
        let session = SessionId { pool, index: 0 };
        let held = match opened.sessions.as_slice() {
            [grant] => self.hold(session, grant).await,
            sessions => Err(unlike(&format!("{} sessions of a replay", sessions.len()))),
        };
        match held {
            Ok(held) => Ok(AsyncReplay { cluster: self.clone(), session, _held: held }),
            Err(error) => {
                // The first error is the one to tell.
                let _closed = self.close_pool(pool).await;
                Err(error)
            }
        }
    }

    async fn hold(
        &self,
        session: SessionId,
        grant: &Grant,
    ) -> Result<(FrameReader, FrameWriter), WatchError> {
        let node = self.network().node_at(&grant.node, &grant.address).await.map_err(WatchError::Node)?;
        let attach = Attach {
            pool: session.pool,
            index: session.index,
            incarnation: grant.incarnation,
            secret: grant.secret,
            log: false,
        };
        let attached = node.attach(attach, Some(CallId::generate()), MOST_UNASKED).await;
        let (Attached { .. }, reader, writer) = attached.map_err(WatchError::Open)?;
        Ok((reader, writer))
    }

    /// Returns why a session has ended, as far as the coordinator knows.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn cause_of_end(&self, session: SessionId) -> Result<Option<EndCause>, RequestError> {
        let status = self.pool_status(session.pool).await?;
        let gone = status.gone.into_iter().find(|gone| gone.index == session.index);
        Ok(gone.map(|gone| gone.cause))
    }
}

impl AsyncReplay {
    /// Returns the session as which it is watched.
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Ends it, for all that watch it.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn close(self) -> Result<PoolStatus, RequestError> {
        self.cluster.close_pool(self.session.pool).await
    }
}

/// Moves a recorded episode, for all that watch it. Each method returns the frame of the step at which it stands then.
/// Not cancellation-safe: afterwards the watch is of no use.
impl AsyncWatch {
    /// Goes to a step; 0 is the reset.
    ///
    /// # Errors
    /// See [`WatchError`]; `BadRequest` beyond the episode's end, `Unsupported` for a session that is stepped.
    pub async fn seek(&mut self, step: u64) -> Result<LaneFrame, WatchError> {
        self.go(SeekParams::METHOD, &SeekParams { step }).await
    }

    /// Lets it play at that speed, 1 being 30 steps a second; from the reset on if it stands at the end.
    ///
    /// # Errors
    /// The errors of [`AsyncWatch::seek`]; `BadRequest` if the speed is out of bounds.
    pub async fn play(&mut self, speed: f64) -> Result<LaneFrame, WatchError> {
        self.go(PlayParams::METHOD, &PlayParams { speed }).await
    }

    /// Stops playing.
    ///
    /// # Errors
    /// The errors of [`AsyncWatch::seek`].
    pub async fn pause(&mut self) -> Result<LaneFrame, WatchError> {
        self.go(PauseParams::METHOD, &PauseParams {}).await
    }

    /// Stops playing and goes so many steps on, or back if negative, no further than the episode goes.
    ///
    /// # Errors
    /// The errors of [`AsyncWatch::seek`].
    pub async fn step(&mut self, by: i64) -> Result<LaneFrame, WatchError> {
        self.go(StepParams::METHOD, &StepParams { by }).await
    }

    async fn go<P: Message>(&mut self, method: &str, params: &P) -> Result<LaneFrame, WatchError> {
        let LookAnswer { frame, replay } = self.ask(method, params).await?;
        self.standing = replay;
        frame.ok_or_else(|| unlike("no frame of a replay"))
    }
}

impl Cluster {
    /// Opens an episode as [`AsyncCluster::open_replay`] does. Blocks until the episode is on its node.
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn open_replay(&self, episode: EpisodeName) -> Result<Replay, WatchError> {
        let inner = self.drive(self.inner().open_replay(episode))?;
        Ok(Replay { inner, cluster: self.clone() })
    }

    /// Returns why a session has ended, as [`AsyncCluster::cause_of_end`] does. Blocks for a round trip.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn cause_of_end(&self, session: SessionId) -> Result<Option<EndCause>, RequestError> {
        self.run(self.inner().cause_of_end(session))
    }
}

impl Replay {
    /// Returns the session as which it is watched.
    pub const fn session(&self) -> SessionId {
        self.inner.session
    }

    /// Ends it, for all that watch it. Blocks until its node has said so.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn close(self) -> Result<PoolStatus, RequestError> {
        let Self { inner, cluster } = self;
        cluster.run(inner.close())
    }
}

impl Watch {
    /// Goes to a step, as [`AsyncWatch::seek`] does. Blocks for a round trip and the time of reaching the step.
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn seek(&mut self, step: u64) -> Result<LaneFrame, WatchError> {
        self.cluster.drive(self.inner.seek(step))
    }

    /// Plays, as [`AsyncWatch::play`] does. Blocks as [`Watch::seek`].
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn play(&mut self, speed: f64) -> Result<LaneFrame, WatchError> {
        self.cluster.drive(self.inner.play(speed))
    }

    /// Stops playing, as [`AsyncWatch::pause`] does. Blocks as [`Watch::seek`].
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn pause(&mut self) -> Result<LaneFrame, WatchError> {
        self.cluster.drive(self.inner.pause())
    }

    /// Goes some steps on or back, as [`AsyncWatch::step`] does. Blocks as [`Watch::seek`].
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn step(&mut self, by: i64) -> Result<LaneFrame, WatchError> {
        self.cluster.drive(self.inner.step(by))
    }
}

impl fmt::Debug for AsyncReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsyncReplay({})", self.session)
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Most bytes of an answer's columns on a stream on which nothing is sent.
const MOST_UNASKED: usize = 0;

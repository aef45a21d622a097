//! Recorded episodes of a cluster's store, opened as sessions: played, sought and watched on a node.

use std::fmt;

use rollhouse_core::EpisodeName;
use rollhouse_wire::{
    Attach, Attached, CallId, EndCause, FrameReader, FrameWriter, Grant, LaneFrame, LookAnswer, OpenReplay,
    PauseParams, PlayParams, PoolOpened, PoolStatus, Request, SeekParams, SessionId, StepParams,
};
use serde::Serialize;

use crate::blocking::Cluster;
use crate::cluster::AsyncCluster;
use crate::error::RequestError;
use crate::watch::{AsyncWatch, Watch, WatchError, unlike};

/// A recorded episode that was opened as a session. It is kept on its node for as long as this lives, whether or not it
/// is watched; dropped without [`AsyncReplay::close`], it ends with its lease.
pub struct AsyncReplay {
    cluster: AsyncCluster,
    session: SessionId,
    /// The stream of its owner, on which nothing is asked.
    _held: (FrameReader, FrameWriter),
}

/// As [`AsyncReplay`], for callers without a runtime: calls block.
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
        let open = Request::OpenReplay(OpenReplay { pool, episode: episode.to_string() });
        let opened: PoolOpened = self.request(&open).await?;
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

    /// Why a session is no more, as far as the coordinator knows.
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
    /// As which session it is watched.
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Ends it, for all who watch it.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn close(self) -> Result<PoolStatus, RequestError> {
        self.cluster.close_pool(self.session.pool).await
    }
}

/// Moving a recorded episode, for all who watch it. Each gives the frame of the step it stands at then. Not
/// cancellation-safe: afterwards the watch is of no use.
impl AsyncWatch {
    /// Goes to a step; 0 is the reset.
    ///
    /// # Errors
    /// See [`WatchError`]; `BadRequest` beyond the episode's end, `Unsupported` of a session that is stepped.
    pub async fn seek(&mut self, step: u64) -> Result<LaneFrame, WatchError> {
        self.go(SeekParams::METHOD, &SeekParams { step }).await
    }

    /// Has it go on by itself at that speed, 1 being 30 steps a second; from the reset on if it stands at the end.
    ///
    /// # Errors
    /// As [`AsyncWatch::seek`]; `BadRequest` if no such speed is taken.
    pub async fn play(&mut self, speed: f64) -> Result<LaneFrame, WatchError> {
        self.go(PlayParams::METHOD, &PlayParams { speed }).await
    }

    /// Has it stand still.
    ///
    /// # Errors
    /// As [`AsyncWatch::seek`].
    pub async fn pause(&mut self) -> Result<LaneFrame, WatchError> {
        self.go(PauseParams::METHOD, &PauseParams {}).await
    }

    /// Has it stand still so many steps on, or back, no further than the episode goes.
    ///
    /// # Errors
    /// As [`AsyncWatch::seek`].
    pub async fn step(&mut self, by: i64) -> Result<LaneFrame, WatchError> {
        self.go(StepParams::METHOD, &StepParams { by }).await
    }

    async fn go<P: Serialize>(&mut self, method: &str, params: &P) -> Result<LaneFrame, WatchError> {
        let LookAnswer { frame, replay } = self.ask(method, params).await?;
        self.standing = replay;
        frame.ok_or_else(|| unlike("no frame of a replay"))
    }
}

impl Cluster {
    /// As [`AsyncCluster::open_replay`]. Blocks until the episode is on its node.
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn open_replay(&self, episode: EpisodeName) -> Result<Replay, WatchError> {
        let inner = self.drive(self.inner().open_replay(episode))?;
        Ok(Replay { inner, cluster: self.clone() })
    }

    /// As [`AsyncCluster::cause_of_end`]. Blocks for a round trip.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn cause_of_end(&self, session: SessionId) -> Result<Option<EndCause>, RequestError> {
        self.run(self.inner().cause_of_end(session))
    }
}

impl Replay {
    /// As which session it is watched.
    pub const fn session(&self) -> SessionId {
        self.inner.session
    }

    /// Ends it, for all who watch it. Blocks until its node has said so.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn close(self) -> Result<PoolStatus, RequestError> {
        let Self { inner, cluster } = self;
        cluster.run(inner.close())
    }
}

impl Watch {
    /// As [`AsyncWatch::seek`]. Blocks for a round trip and what it takes to come to the step.
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn seek(&mut self, step: u64) -> Result<LaneFrame, WatchError> {
        self.cluster.drive(self.inner.seek(step))
    }

    /// As [`AsyncWatch::play`]. Blocks as [`Watch::seek`].
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn play(&mut self, speed: f64) -> Result<LaneFrame, WatchError> {
        self.cluster.drive(self.inner.play(speed))
    }

    /// As [`AsyncWatch::pause`]. Blocks as [`Watch::seek`].
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn pause(&mut self) -> Result<LaneFrame, WatchError> {
        self.cluster.drive(self.inner.pause())
    }

    /// As [`AsyncWatch::step`]. Blocks as [`Watch::seek`].
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

/// Bytes of columns of an answer on a stream on which nothing is asked.
const MOST_UNASKED: usize = 0;

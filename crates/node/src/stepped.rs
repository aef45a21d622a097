//! The session that an owner steps: lanes of its own, or a recorded episode.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use rollhouse_wire::{FrameHeader, Incarnation, SessionId};

use crate::Gone;
use crate::executor::Executor;
use crate::figures::NodeFigures;
use crate::owned::{FrameRequest, Unanswered};
use crate::owned_handle::OwnedHandle;
use crate::replay_session::{LANES, ReplaySession};
use crate::session_status::SessionStatus;

/// A session as the stream of its owner reaches it.
#[derive(Debug)]
pub(crate) enum Stepped {
    /// The owner's lanes.
    Owned(Arc<OwnedHandle>),
    /// A recorded episode, whose rows answer the owner.
    Replay(Arc<ReplaySession>),
}

impl Stepped {
    /// Returns the session's id and incarnation.
    pub(crate) fn placed(&self) -> (SessionId, Incarnation) {
        match self {
            Self::Owned(owned) => (owned.id, owned.incarnation),
            Self::Replay(replay) => (replay.id, replay.incarnation),
        }
    }

    /// Returns the number of its lanes.
    pub(crate) fn lanes(&self) -> u32 {
        match self {
            Self::Owned(owned) => owned.lanes,
            Self::Replay(_) => LANES as u32,
        }
    }

    /// Returns the bytes of the largest request's columns.
    pub(crate) fn max_columns(&self) -> usize {
        match self {
            Self::Owned(owned) => owned.max_columns,
            Self::Replay(replay) => replay.max_columns(),
        }
    }

    /// Takes over as [`OwnedHandle::take_over`] does. Nobody needs a log of a recorded episode.
    pub(crate) async fn take_over(&self, attachment: u64, log: bool) -> Result<(u32, bool), Gone> {
        match self {
            Self::Owned(owned) => owned.take_over(attachment, log).await,
            Self::Replay(replay) => Ok((replay.take_over(attachment).await, false)),
        }
    }

    /// Returns the session's published state.
    pub(crate) fn status(&self) -> &SessionStatus {
        match self {
            Self::Owned(owned) => &owned.status,
            Self::Replay(replay) => &replay.status,
        }
    }

    /// Returns whether it has lanes of its own: they may be answered as they are done, and play by a policy.
    pub(crate) const fn is_of_lanes(&self) -> bool {
        matches!(self, Self::Owned(_))
    }

    /// Returns whether its lanes are live.
    pub(crate) fn is_paced(&self) -> bool {
        matches!(self, Self::Owned(owned) if owned.paced)
    }

    /// Returns when the session is to be looked after unless a request comes before; `None` if nothing waits for that.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        match self {
            Self::Owned(owned) => owned.due_at(),
            Self::Replay(_) => None,
        }
    }

    /// Looks after a session between two requests. Not cancellation-safe: see [`OwnedHandle::look_after`].
    pub(crate) async fn look_after(&self, executor: &Executor) {
        if let Self::Owned(owned) = self {
            owned.look_after(executor).await;
        }
    }

    /// Answers one request. Not cancellation-safe: see [`OwnedHandle::answer`].
    pub(crate) async fn answer(
        &self,
        attachment: u64,
        header: FrameHeader,
        request: &mut FrameRequest,
        executor: &Executor,
        figures: &Arc<NodeFigures>,
    ) -> Result<Bytes, Unanswered> {
        match self {
            Self::Owned(owned) => owned.answer(attachment, header, request, executor, figures).await,
            Self::Replay(replay) => replay.answer(attachment, header, request, executor).await,
        }
    }
}

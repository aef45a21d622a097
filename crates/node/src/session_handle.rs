//! A session of the cluster as the node's threads reach it, whatever its kind.

use std::sync::Arc;

use rollhouse_core::EnvSpec;
use rollhouse_env::EnvEntry;
use rollhouse_wire::{PlaysReport, SessionCounts};

use crate::NodeFigures;
use crate::executor::Executor;
use crate::live::Live;
use crate::owned_handle::OwnedHandle;
use crate::replay_session::ReplaySession;
use crate::stepping::Stepping;
use crate::tally::ReportedTally;

/// One session.
#[derive(Debug, Clone)]
pub(crate) enum SessionHandle {
    /// Stepped by its owner.
    Owned(Arc<OwnedHandle>),
    /// Plays by itself.
    Collecting {
        stepping: Arc<Stepping>,
        told: Arc<ReportedTally>,
        /// The env of the lanes.
        entry: Arc<EnvEntry>,
    },
    /// Shows a recorded episode.
    Replay(Arc<ReplaySession>),
}

impl SessionHandle {
    /// Returns the place where the thread that steps and the watchers meet; `None` if no lanes can be watched.
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        match self {
            Self::Owned(owned) => Some(owned.live()),
            Self::Collecting { stepping, .. } => Some(stepping.progress.live()),
            Self::Replay(_) => None,
        }
    }

    /// Sees to it that watchers are shown something although nobody steps the session just now. Cancellation-safe.
    pub(crate) async fn attend_watchers(&self, executor: &Executor) {
        if let Self::Owned(owned) = self {
            owned.attend_watchers(executor).await;
        }
    }

    /// Waits until the session has ended, or is about to. Cancellation-safe.
    pub(crate) async fn over(&self) {
        match self {
            Self::Owned(owned) => owned.status.ending().await,
            Self::Collecting { stepping, .. } => drop(stepping.over().await),
            Self::Replay(replay) => replay.status.ending().await,
        }
    }

    /// Returns what the session has done, as far as it was reported.
    pub(crate) fn counts(&self) -> SessionCounts {
        match self {
            Self::Owned(owned) => owned.told().tally().counts(),
            Self::Collecting { told, .. } => told.tally().counts(),
            // Nothing is played in it.
            Self::Replay(_) => SessionCounts::default(),
        }
    }

    /// Returns whether the session's lanes are being launched. One that an owner steps is open only once they are.
    pub(crate) fn is_launching(&self) -> bool {
        match self {
            Self::Owned(_) | Self::Replay(_) => false,
            Self::Collecting { stepping, .. } => stepping.progress.is_launching(),
        }
    }

    /// Returns what the session's env says of itself; of a recorded episode, the env as it was recorded.
    pub(crate) fn spec(&self) -> &EnvSpec {
        match self {
            Self::Owned(owned) => owned.spec(),
            Self::Collecting { entry, .. } => entry.spec(),
            Self::Replay(replay) => replay.spec(),
        }
    }

    /// Returns the recorded episode that the session shows, if it does.
    pub(crate) fn replay(&self) -> Option<&Arc<ReplaySession>> {
        match self {
            Self::Owned(_) | Self::Collecting { .. } => None,
            Self::Replay(replay) => Some(replay),
        }
    }

    /// Returns the policy by which the session plays for its owner, if it does.
    pub(crate) fn plays(&self) -> Option<PlaysReport> {
        match self {
            Self::Owned(owned) => owned.told().plays(),
            Self::Collecting { .. } | Self::Replay(_) => None,
        }
    }

    /// Reports what was done since the last report.
    pub(crate) fn tell(&self, figures: &NodeFigures) {
        match self {
            Self::Owned(owned) => owned.tell_if_idle(figures),
            Self::Collecting { stepping, told, .. } => told.update(stepping.progress.tally(), figures),
            Self::Replay(_) => {}
        }
    }
}

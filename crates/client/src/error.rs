//! The errors of the client, one type for each operation.

use std::fmt;
use std::io;
use std::time::Duration;

use rollhouse_arena::ArenaError;
use rollhouse_engine::CommandError;
use rollhouse_wire::{CallError, CallId, DialError, EnvelopeFault, IdentityFileError, Refusal, RefusalCode};

use crate::address::AddressError;

/// Why there is no connection to a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The connection string is malformed.
    #[error("{0}")]
    Address(AddressError),
    /// No authority was named by which the cluster could be verified.
    #[error(
        "ca is missing: sha256: and the fingerprint of the cluster's authority, or its PEM file, is wanted"
    )]
    NoCa,
    /// A certificate or key cannot be used.
    #[error("a certificate or key cannot be used")]
    Identity(#[source] IdentityFileError),
    /// The coordinator cannot be reached, or did not admit the client.
    #[error("the coordinator cannot be reached")]
    Dial(#[source] DialError),
    /// A runtime or thread could not be made.
    #[error("no runtime can be made")]
    Runtime(#[source] io::Error),
    /// The caller wanted to leave the call.
    #[error("interrupted")]
    Interrupted,
}

/// Why the coordinator did not carry out a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// The coordinator cannot be reached any more. The next request dials again.
    Dial(DialError),
    /// The coordinator did not answer, or refused.
    Call {
        /// The id of the call in the logs of the coordinator and of nodes.
        call: CallId,
        /// The last attempt's error.
        error: CallError,
    },
    /// The caller wanted to leave the call.
    Interrupted,
}

/// Why no pool could be opened. A pool that was opened halfway is closed again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The coordinator did not open one.
    #[error(transparent)]
    Request(RequestError),
    /// The lanes that the coordinator granted are not those that were asked for.
    #[error("the coordinator gave other lanes than were asked for: {what}")]
    Grants {
        /// The difference.
        what: String,
    },
    /// The batch cannot be laid out.
    #[error("the batch cannot be laid out")]
    Arena(#[source] ArenaError),
    /// A session cannot be stepped through shared memory, although the caller demands it.
    #[error("transport=shm: node {node}: {refusal}", refusal = .refusal.message)]
    NoMemory {
        /// The session's node.
        node: String,
        /// The node's refusal.
        refusal: Refusal,
    },
    /// Lanes of that env cannot be resumed on another node, although the caller demands it.
    #[error("on_loss: lanes of `{env}` cannot be resumed, it is not deterministic")]
    CannotResume {
        /// The env's id.
        env: String,
    },
    /// Live lanes cannot be resumed on another node, although the caller demands it.
    #[error(
        "on_loss: live lanes of `{env}` cannot be resumed, their world does not wait; report or raise their loss"
    )]
    LiveLanes {
        /// The env's id.
        env: String,
    },
    /// The env was asked for as one that is declared deterministic, and is not opened as one.
    #[error(
        "deterministic: the nodes that have `{env}` do not know of such a declaration; they run an earlier version"
    )]
    NotDeclared {
        /// The env's id.
        env: String,
    },
    /// A session's batch is larger than a frame may be.
    #[error("a batch of {lanes} lanes is larger than a frame may be")]
    TooLarge {
        /// The session's number of lanes.
        lanes: usize,
    },
}

/// Why a reset, step, send or receive of a pool failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The caller broke a rule, or met a limit, as with an engine in this process. Nothing has moved.
    #[error("{0}")]
    Rules(rollhouse_engine::StepError),
    /// A node refused. Its lanes have not moved; if those of other nodes have, the pool has to be reset.
    #[error("node {node} refused: {refusal}")]
    Refused {
        /// The node's name.
        node: String,
        /// The node's refusal.
        #[source]
        refusal: Refusal,
    },
    /// Not all answers came in time. The pool has to be reset.
    #[error("{0}; reset the pool to go on")]
    TimedOut(Unanswered),
    /// Every session of the pool is gone. Nothing has moved; lanes that come back do so in a later call.
    #[error("all lanes of the pool are lost: {reason}")]
    AllLost {
        /// Why the first of them is gone.
        reason: String,
    },
    /// The caller wanted to leave the call. The pool has to be reset; in first-done mode the lanes stay outstanding.
    #[error("interrupted")]
    Interrupted,
}

/// A node that did not answer in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// Time that was waited.
    pub after: Duration,
    /// The node's name.
    pub node: String,
    /// The address at which it was dialled.
    pub address: String,
    /// The error of the last attempt to reach it, or its last refusal.
    pub last: Option<String>,
}

/// Why a command to lanes between two steps has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MethodError {
    /// The lanes refused, as an engine in this process would.
    #[error(transparent)]
    Lanes(#[from] CommandError),
    /// A node refused; in its session nothing has changed, unless it says so.
    #[error("node {node} refused: {refusal}")]
    Refused {
        /// The node's name.
        node: String,
        /// The node's refusal.
        #[source]
        refusal: Refusal,
    },
    /// The pool has no such session.
    #[error("session {session} of a pool of {sessions}")]
    NoSuchSession {
        /// The number that was given.
        session: usize,
        /// Number of sessions of the pool.
        sessions: usize,
    },
    /// A session of these lanes is gone.
    #[error("{reason}")]
    Gone {
        /// Why it is gone.
        reason: String,
    },
    /// The connection was lost before the answer came, and the method must not be done twice: it may or may not have
    /// been done.
    #[error("the connection to node {node} was lost; `{method}` may or may not have been done")]
    Lost {
        /// The node's name.
        node: String,
        /// The method's name.
        method: &'static str,
    },
    /// The params are longer than an envelope may be.
    #[error(transparent)]
    TooLong(EnvelopeFault),
    /// The answer is malformed.
    #[error("{what}")]
    Answer {
        /// The fault in it.
        what: String,
    },
    /// Not all answers came in time; the command may or may not have been done.
    #[error("{0}")]
    TimedOut(Unanswered),
    /// The caller wanted to leave the call; the command may or may not have been done.
    #[error("interrupted")]
    Interrupted,
}

impl RequestError {
    /// Returns the refusal's code, if the coordinator refused.
    pub const fn refusal(&self) -> Option<RefusalCode> {
        match self {
            Self::Call { error, .. } => error.refusal(),
            Self::Dial(DialError::Refused(refusal)) => Some(refusal.code),
            Self::Dial(_) | Self::Interrupted => None,
        }
    }

    /// Returns the id of the call; `None` if nothing was sent.
    pub const fn call(&self) -> Option<CallId> {
        match self {
            Self::Call { call, .. } => Some(*call),
            Self::Dial(_) | Self::Interrupted => None,
        }
    }
}

impl From<rollhouse_engine::StepError> for StepError {
    fn from(error: rollhouse_engine::StepError) -> Self {
        Self::Rules(error)
    }
}

impl From<rollhouse_engine::StepError> for MethodError {
    fn from(error: rollhouse_engine::StepError) -> Self {
        Self::Lanes(CommandError::Step(error))
    }
}

impl MethodError {
    /// Returns whether the lanes are surely as they were before.
    pub(crate) fn says_nothing_changed(&self) -> bool {
        match self {
            Self::Refused { refusal, .. } => refusal.code != RefusalCode::Internal,
            Self::Lanes(_) | Self::NoSuchSession { .. } | Self::Gone { .. } | Self::TooLong(_) => true,
            Self::Lost { .. } | Self::Answer { .. } | Self::TimedOut(_) | Self::Interrupted => false,
        }
    }
}

impl From<MethodError> for StepError {
    fn from(error: MethodError) -> Self {
        match error {
            MethodError::Lanes(CommandError::Step(error)) => Self::Rules(error),
            MethodError::Refused { node, refusal } => Self::Refused { node, refusal },
            MethodError::TimedOut(unanswered) => Self::TimedOut(unanswered),
            MethodError::Gone { reason } => Self::AllLost { reason },
            MethodError::Interrupted => Self::Interrupted,
            other => {
                let refusal = Refusal::new(RefusalCode::Internal, other.to_string());
                Self::Refused { node: String::new(), refusal }
            }
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial(_) => f.write_str("the coordinator cannot be reached"),
            Self::Call { call, error } => write!(f, "{error} (call={call})"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Dial(source) => Some(source),
            // Its own words are this error's.
            Self::Call { error, .. } => error.source().filter(|cause| cause.to_string() != error.to_string()),
            Self::Interrupted => None,
        }
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, node, address, last } = self;
        write!(f, "node {node} at {address} did not answer within the timeout of {} s", after.as_secs_f64())?;
        match last {
            Some(last) => write!(f, ", last: {last}"),
            None => Ok(()),
        }
    }
}

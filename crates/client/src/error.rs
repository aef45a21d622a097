//! What can go wrong, by operation.

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
    /// The connection string is none.
    #[error("{0}")]
    Address(AddressError),
    /// Nothing says by what the cluster is known.
    #[error(
        "ca is missing: sha256: and the fingerprint of the cluster's authority, or its PEM file, is wanted"
    )]
    NoCa,
    /// A certificate or key cannot be used.
    #[error("a certificate or key cannot be used")]
    Identity(#[source] IdentityFileError),
    /// The coordinator cannot be reached, or did not admit us.
    #[error("the coordinator cannot be reached")]
    Dial(#[source] DialError),
    /// No runtime or thread can be made.
    #[error("no runtime can be made")]
    Runtime(#[source] io::Error),
    /// The caller wanted to be let out.
    #[error("interrupted")]
    Interrupted,
}

/// Why the coordinator did not give what was asked for.
#[derive(Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// It cannot be reached any more. Asking again dials again.
    Dial(DialError),
    /// It did not answer, or refused.
    Call {
        /// Under which id the logs of the coordinator and of nodes tell of it.
        call: CallId,
        /// What it came to.
        error: CallError,
    },
    /// The caller wanted to be let out.
    Interrupted,
}

/// Why there is no pool. If one was opened, it was asked to be closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The coordinator did not give it.
    #[error(transparent)]
    Request(RequestError),
    /// What the coordinator gave are not the lanes that were asked for.
    #[error("the coordinator gave other lanes than were asked for: {what}")]
    Grants {
        /// What is wrong with them.
        what: String,
    },
    /// The batch cannot be laid out.
    #[error("the batch cannot be laid out")]
    Arena(#[source] ArenaError),
    /// A session cannot be stepped through shared memory, which was asked for.
    #[error("transport=shm: node {node}: {refusal}", refusal = .refusal.message)]
    NoMemory {
        /// Its node.
        node: String,
        /// Why.
        refusal: Refusal,
    },
    /// Lanes of that env cannot be resumed on another node, which was asked for.
    #[error("on_loss: lanes of `{env}` cannot be resumed, it is not deterministic")]
    CannotResume {
        /// The env.
        env: String,
    },
    /// A session's batch is larger than a frame may be.
    #[error("a batch of {lanes} lanes is larger than a frame may be")]
    TooLarge {
        /// Its lanes.
        lanes: usize,
    },
}

/// Why a reset, step, send or receive of a pool failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The caller's fault, or a limit: what an engine in this process would say. Nothing has moved.
    #[error("{0}")]
    Rules(rollhouse_engine::StepError),
    /// A node refused. Its lanes have not moved; if those of other nodes have, the pool has to be reset.
    #[error("node {node} refused: {refusal}")]
    Refused {
        /// The node's name.
        node: String,
        /// Why.
        #[source]
        refusal: Refusal,
    },
    /// Not all answers came in time. The pool has to be reset.
    #[error("{0}; reset the pool to go on")]
    TimedOut(Unanswered),
    /// Every session of the pool is gone.
    #[error("all lanes of the pool are lost: {reason}")]
    AllLost {
        /// Why the first of them is.
        reason: String,
    },
    /// The caller wanted to be let out. The pool has to be reset; in first-done mode the lanes stay outstanding.
    #[error("interrupted")]
    Interrupted,
}

/// A node that did not answer in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unanswered {
    /// How long was waited.
    pub after: Duration,
    /// Its name.
    pub node: String,
    /// Where it was dialled.
    pub address: String,
    /// What the last attempt to reach it came to, or what it refused last.
    pub last: Option<String>,
}

/// Why something that was asked of lanes between two steps has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MethodError {
    /// What an engine in this process would say.
    #[error(transparent)]
    Lanes(#[from] CommandError),
    /// A node refused; in its session nothing has changed, unless it says so.
    #[error("node {node} refused: {refusal}")]
    Refused {
        /// The node's name.
        node: String,
        /// Why.
        #[source]
        refusal: Refusal,
    },
    /// The pool has no such session.
    #[error("session {session} of a pool of {sessions}")]
    NoSuchSession {
        /// As given.
        session: usize,
        /// How many it has.
        sessions: usize,
    },
    /// A session of these lanes is gone.
    #[error("{reason}")]
    Gone {
        /// Why.
        reason: String,
    },
    /// The connection was lost before the answer came, and the method is not one to be done twice: it may or may not
    /// have been done.
    #[error("the connection to node {node} was lost; `{method}` may or may not have been done")]
    Lost {
        /// The node's name.
        node: String,
        /// The method.
        method: &'static str,
    },
    /// Params that are longer than an envelope may be.
    #[error(transparent)]
    TooLong(EnvelopeFault),
    /// An answer that is none.
    #[error("{what}")]
    Answer {
        /// What is wrong with it.
        what: String,
    },
    /// Not all answers came in time; what was asked may or may not have been done.
    #[error("{0}")]
    TimedOut(Unanswered),
    /// The caller wanted to be let out; what was asked may or may not have been done.
    #[error("interrupted")]
    Interrupted,
}

impl RequestError {
    /// The code, if the coordinator refused.
    pub const fn refusal(&self) -> Option<RefusalCode> {
        match self {
            Self::Call { error, .. } => error.refusal(),
            Self::Dial(DialError::Refused(refusal)) => Some(refusal.code),
            Self::Dial(_) | Self::Interrupted => None,
        }
    }

    /// The call that it was; `None` if nothing was asked.
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
        write!(f, "node {node} at {address} did not answer within {} s", after.as_secs_f64())?;
        match last {
            Some(last) => write!(f, ", last: {last}"),
            None => Ok(()),
        }
    }
}

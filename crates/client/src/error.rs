//! What can go wrong, by operation.

use std::fmt;
use std::io;
use std::time::Duration;

use rollhouse_arena::ArenaError;
use rollhouse_wire::{CallError, DialError, IdentityFileError, Refusal, RefusalCode};

use crate::address::AddressError;

/// Why there is no connection to a cluster.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The connection string is none.
    Address(AddressError),
    /// Nothing says by what the cluster is known.
    NoCa,
    /// A certificate or key cannot be used.
    Identity(IdentityFileError),
    /// The coordinator cannot be reached, or did not admit us.
    Dial(DialError),
    /// No runtime or thread can be made.
    Runtime(io::Error),
    /// The caller wanted to be let out.
    Interrupted,
}

/// Why the coordinator did not give what was asked for.
#[derive(Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// It cannot be reached any more. Asking again dials again.
    Dial(DialError),
    /// It did not answer, or refused.
    Call(CallError),
    /// The caller wanted to be let out.
    Interrupted,
}

/// Why there is no pool. If one was opened, it was asked to be closed.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The coordinator did not give it.
    Request(RequestError),
    /// What the coordinator gave are not the lanes that were asked for.
    Grants {
        /// What is wrong with them.
        what: String,
    },
    /// The batch cannot be laid out.
    Arena(ArenaError),
    /// A session cannot be stepped through shared memory, which was asked for.
    NoMemory {
        /// Its node.
        node: String,
        /// Why.
        refusal: Refusal,
    },
    /// A session's batch is larger than a frame may be.
    TooLarge {
        /// Its lanes.
        lanes: usize,
    },
}

/// Why a reset, step, send or receive of a pool failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum StepError {
    /// The caller's fault, or a limit: what an engine in this process would say. Nothing has moved.
    Rules(rollhouse_engine::StepError),
    /// A node refused. Its lanes have not moved; if those of other nodes have, the pool has to be reset.
    Refused {
        /// The node's name.
        node: String,
        /// Why.
        refusal: Refusal,
    },
    /// Not all answers came in time. The pool has to be reset.
    TimedOut {
        /// How long was waited.
        after: Duration,
        /// A node that has not answered.
        node: String,
    },
    /// Every session of the pool is gone.
    AllLost {
        /// Why the first of them is.
        reason: String,
    },
    /// The caller wanted to be let out. The pool has to be reset; in first-done mode the lanes stay outstanding.
    Interrupted,
}

impl RequestError {
    /// The code, if the coordinator refused.
    pub const fn refusal(&self) -> Option<RefusalCode> {
        match self {
            Self::Call(error) => error.refusal(),
            Self::Dial(DialError::Refused(refusal)) => Some(refusal.code),
            Self::Dial(_) | Self::Interrupted => None,
        }
    }
}

impl From<rollhouse_engine::StepError> for StepError {
    fn from(error: rollhouse_engine::StepError) -> Self {
        Self::Rules(error)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => error.fmt(f),
            Self::NoCa => f.write_str(
                "ca is missing: sha256: and the fingerprint of the cluster's authority, or its PEM file, is wanted",
            ),
            Self::Identity(_) => f.write_str("a certificate or key cannot be used"),
            Self::Dial(_) => f.write_str("the coordinator cannot be reached"),
            Self::Runtime(_) => f.write_str("no runtime can be made"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Identity(source) => Some(source),
            Self::Dial(source) => Some(source),
            Self::Runtime(source) => Some(source),
            Self::Address(_) | Self::NoCa | Self::Interrupted => None,
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial(_) => f.write_str("the coordinator cannot be reached"),
            Self::Call(error) => error.fmt(f),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Dial(source) => Some(source),
            // Its own words are this error's.
            Self::Call(source) => source.source().filter(|cause| cause.to_string() != source.to_string()),
            Self::Interrupted => None,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Grants { what } => {
                write!(f, "the coordinator gave other lanes than were asked for: {what}")
            }
            Self::Arena(_) => f.write_str("the batch cannot be laid out"),
            Self::NoMemory { node, refusal } => write!(f, "transport=shm: node {node}: {}", refusal.message),
            Self::TooLarge { lanes } => write!(f, "a batch of {lanes} lanes is larger than a frame may be"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Request(source) => source.source(),
            Self::Arena(source) => Some(source),
            Self::Grants { .. } | Self::NoMemory { .. } | Self::TooLarge { .. } => None,
        }
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(error) => error.fmt(f),
            Self::Refused { node, refusal } => write!(f, "node {node} refused: {refusal}"),
            Self::TimedOut { after, node } => {
                write!(
                    f,
                    "node {node} did not answer within {} s; reset the pool to go on",
                    after.as_secs_f64()
                )
            }
            Self::AllLost { reason } => write!(f, "all lanes of the pool are lost: {reason}"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for StepError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }
}

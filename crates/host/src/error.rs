//! What can go wrong between a host and its workers.

use std::fmt;
use std::io;

use crate::config::MAX_WORKERS;
use crate::message::MAX_MESSAGE_BYTES;

/// Why the host could not do what it was asked. The loss of a worker is no error but an event.
#[derive(Debug)]
pub enum HostError {
    /// Too many workers, or none.
    Workers(usize),
    /// A message is longer than [`MAX_MESSAGE_BYTES`].
    TooLong(usize),
    /// The worker is not idle, so that it cannot be given a command.
    NotIdle(usize),
    /// A process could not be started.
    Spawn(io::Error),
    /// The operating system refused something else: memory, descriptors, waiting.
    Os(io::Error),
    /// The host has been ended.
    Ended,
    /// This is a forked child of the process that started the workers.
    Forked,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workers(workers) => write!(f, "{workers} workers; 1 to {MAX_WORKERS} are possible"),
            Self::TooLong(bytes) => {
                write!(f, "a message of {bytes} bytes is longer than the limit of {MAX_MESSAGE_BYTES} bytes")
            }
            Self::NotIdle(worker) => write!(f, "worker {worker} is not idle"),
            Self::Spawn(_) => f.write_str("a worker process could not be started"),
            Self::Os(_) => f.write_str("the operating system refused what hosting workers needs"),
            Self::Ended => f.write_str("the workers have been ended"),
            Self::Forked => f.write_str("workers were started by the parent of this forked process"),
        }
    }
}

impl std::error::Error for HostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Spawn(source) | Self::Os(source) => Some(source),
            _ => None,
        }
    }
}

impl From<io::Error> for HostError {
    fn from(source: io::Error) -> Self {
        Self::Os(source)
    }
}

impl From<rustix::io::Errno> for HostError {
    fn from(source: rustix::io::Errno) -> Self {
        Self::Os(source.into())
    }
}

/// Why a worker's end of the link failed. A worker cannot go on after any of them.
#[derive(Debug)]
pub enum LinkError {
    /// The host closed the connection or is gone.
    HostGone,
    /// A message is longer than [`MAX_MESSAGE_BYTES`].
    TooLong(u64),
    /// The host said what makes no sense at this point; the text says what.
    Protocol(&'static str),
    /// The operating system refused something.
    Os(io::Error),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostGone => f.write_str("the host is gone"),
            Self::TooLong(bytes) => {
                write!(f, "a message of {bytes} bytes is longer than the limit of {MAX_MESSAGE_BYTES} bytes")
            }
            Self::Protocol(what) => write!(f, "the link broke: {what}"),
            Self::Os(_) => f.write_str("the operating system refused what the link needs"),
        }
    }
}

impl std::error::Error for LinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Os(source) => Some(source),
            _ => None,
        }
    }
}

impl From<io::Error> for LinkError {
    fn from(source: io::Error) -> Self {
        Self::Os(source)
    }
}

impl From<rustix::io::Errno> for LinkError {
    fn from(source: rustix::io::Errno) -> Self {
        Self::Os(source.into())
    }
}

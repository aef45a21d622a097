//! The errors between a host and its workers.

use std::io;

use crate::config::MAX_WORKERS;
use crate::message::MAX_MESSAGE_BYTES;
use crate::worker_socket::JoinRefusal;

/// Reason for which the host could not do what it was asked. The loss of a worker is no error but an event.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// There are too many workers, or none; this is their number.
    #[error("{0} workers; 1 to {MAX_WORKERS} are possible")]
    Workers(usize),
    /// A message is longer than [`MAX_MESSAGE_BYTES`].
    #[error("a message of {0} bytes is longer than the limit of {MAX_MESSAGE_BYTES} bytes")]
    TooLong(usize),
    /// The lanes take more memory than there can be.
    #[error("{lanes} lanes of it take more memory than a mapping has")]
    TooLarge {
        /// Number of lanes that were asked for.
        lanes: usize,
    },
    /// The worker is not idle, so that it cannot be given a command.
    #[error("worker {0} is not idle")]
    NotIdle(usize),
    /// The operating system refused something else: memory, descriptors, waiting.
    #[error("the operating system refused a resource that workers need")]
    Os(#[from] io::Error),
    /// The host has been ended.
    #[error("the workers have been ended")]
    Ended,
    /// This is a forked child of the process that started the workers.
    #[error("workers were started by the parent of this forked process")]
    Forked,
}

impl From<rustix::io::Errno> for HostError {
    fn from(source: rustix::io::Errno) -> Self {
        Self::Os(source.into())
    }
}

/// Reason for which a worker's end of the link failed. A worker cannot go on after any of them.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The host closed the connection or is gone.
    #[error("the host is gone")]
    HostGone,
    /// A message is longer than [`MAX_MESSAGE_BYTES`].
    #[error("a message of {0} bytes is longer than the limit of {MAX_MESSAGE_BYTES} bytes")]
    TooLong(u64),
    /// The host does not take this program as a worker.
    #[error("the host refused this worker: {0}")]
    Refused(#[from] JoinRefusal),
    /// The host sent something that makes no sense at this point; the text says what.
    #[error("the link broke: {0}")]
    Protocol(&'static str),
    /// The operating system refused something.
    #[error("the operating system refused a resource that the link needs")]
    Os(#[from] io::Error),
}

impl From<rustix::io::Errno> for LinkError {
    fn from(source: rustix::io::Errno) -> Self {
        Self::Os(source.into())
    }
}

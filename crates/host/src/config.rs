//! What a host is told.

use std::ffi::OsString;
use std::time::Duration;

/// Most workers of one host. Each has three descriptors and two areas of [`crate::INLINE_BYTES`], which take
/// memory only where they are used.
pub const MAX_WORKERS: usize = 1024;

/// How workers are started and how long things may take.
#[derive(Debug)]
pub struct HostConfig {
    /// What to run.
    pub program: Program,
    /// One first message per worker: what [`crate::Link::hello`] returns there. Their number is the number of
    /// workers.
    pub hellos: Vec<Vec<u8>>,
    /// How many of them are launched at the start; the others when [`Host::launch_all`](crate::Host::launch_all)
    /// says that they are needed.
    pub launch_at_start: usize,
    /// From the start of a process until it reports that it is ready; `None` waits for ever.
    pub launch_deadline: Option<Duration>,
    /// How many processes may be launching at once: starting them all together makes each miss its deadline.
    pub max_launching: usize,
}

/// A program to run. It is executed, never forked, in a process group of its own; its standard input is the
/// socket to the host, its other standard streams are the host's.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    pub path: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

//! What a host is told.

use std::ffi::OsString;
use std::time::Duration;

use crate::launcher::Launcher;

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
    /// Bounds how many processes launch at a time, those of other hosts with a clone of it included.
    pub launcher: Launcher,
}

/// A program to run. It is executed, never forked, in a process group of its own; its standard input is the
/// socket to the host.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    pub path: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Where its other standard streams lead.
    pub output: Output,
}

/// Where a worker's standard output and error lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// To the host's own.
    Inherited,
    /// To the host, which keeps the last 16 KiB and tells the last lines when the worker is lost. For services, whose
    /// own output is their log.
    Kept,
}

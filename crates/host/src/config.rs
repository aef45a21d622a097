//! The configuration of a host.

use std::ffi::OsString;
use std::time::Duration;

use rollhouse_core::LaneDeadlines;

use crate::connect_watch::ConnectWatch;
use crate::launcher::Launcher;
use crate::worker_socket::WorkerSocket;

/// Maximum number of workers of one host. Each has five descriptors, a sixth if its output is kept, and a memory with two
/// areas of [`crate::INLINE_BYTES`], which take memory only where they are used.
pub const MAX_WORKERS: usize = 1024;

/// Configuration of a host: where workers come from and how long things may take.
#[derive(Debug)]
pub struct HostConfig {
    /// Where the workers come from.
    pub source: WorkerSource,
    /// First message for each worker, which [`crate::Link::hello`] returns there. Their number is the number of
    /// workers.
    pub hellos: Vec<Vec<u8>>,
    /// Number of workers that are launched at the start. The others are launched when
    /// [`Host::launch_all`](crate::Host::launch_all) is called.
    pub launch_at_start: usize,
    /// Maximum time from the start of a process until it reports that it is ready; `None` waits for ever.
    pub launch_deadline: Option<Duration>,
    /// Maximum time from when a worker first says that it connects until it reports that it is ready, and for which it may
    /// connect in a command; `None` waits for ever. What is left of the launch deadline is not taken away: a worker whose
    /// launch may last for ever may connect for ever as it starts.
    pub connect_deadline: Option<Duration>,
    /// Times that lanes may take for what is waited for here, and the settings of all times, which losses name.
    pub lane_deadlines: LaneDeadlines,
    /// Watch that shows how often workers have tried to connect.
    pub connect_watch: ConnectWatch,
    /// Bound on the number of processes that launch at a time, with those of other hosts that have a clone of it.
    pub launcher: Launcher,
    /// Maximum number of bytes in an answer of a worker, to its hello or to a command, up to
    /// [`MAX_MESSAGE_BYTES`](crate::MAX_MESSAGE_BYTES). A worker that gives a longer one is lost before any of it is read.
    pub max_answer_bytes: usize,
}

/// Where workers come from.
#[derive(Debug)]
pub enum WorkerSource {
    /// The host starts processes, each of which runs this program.
    Program(Program),
    /// Others start them, and they connect to this socket ([`Link::connect`](crate::Link::connect)). The launch deadline is
    /// the time from when a place is free until a program has taken it and is ready. The host ends no process of them: one
    /// whose lanes are lost is disconnected.
    Socket(WorkerSocket),
}

/// A program to run. It is executed, never forked, in a process group of its own; its standard input is the
/// socket to the host.
#[derive(Debug, Clone)]
pub struct Program {
    /// Path of the executable.
    pub path: OsString,
    /// Arguments of the program.
    pub arguments: Vec<OsString>,
    /// Variables of the process's environment.
    pub environment: Environment,
    /// Destination of the process's standard output and error.
    pub output: Output,
    /// Maximum number of bytes of private memory that can be written to (`RLIMIT_DATA`): heap, stacks, anonymous mappings.
    /// It holds for the process and, each for itself, for those that it starts; files and shared memory do not count.
    /// `None` is no limit of this program's.
    pub memory: Option<u64>,
}

/// Variables of a worker's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Environment {
    /// The worker has the variables of the host.
    Inherited,
    /// The worker has the variables of the host that have these names, or begin with one of them that ends in `*`, and
    /// no others.
    Only(&'static [&'static str]),
}

/// Destination of a worker's standard output and error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// The output goes to the host's own output.
    Inherited,
    /// The output goes to the host, which keeps the last 16 KiB and tells the last lines when the worker is lost. This
    /// is for services, whose own output is their log.
    Kept,
}

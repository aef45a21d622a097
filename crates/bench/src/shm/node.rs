//! The node's process, and the cores on which the two processes run.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rollhouse_cli::failure::{Failure, Status};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failed::failed;
use crate::itself;

/// A coordinator and a node in a process of their own; ended when dropped.
pub(super) struct Node {
    child: Child,
    connection: String,
}

impl Node {
    /// Starts it and waits until it answers.
    pub(super) fn start(data: &Path) -> Result<Self, Failure> {
        let mut command = itself::command().map_err(failed)?;
        command.arg("up").arg("--data").arg(data);
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut node = Self { child: spawned.map_err(failed)?, connection: String::new() };
        if let Some(stdout) = node.child.stdout.take() {
            BufReader::new(stdout).read_line(&mut node.connection).map_err(failed)?;
        }
        if node.connection.trim().is_empty() {
            return Err(Failure::new(Status::Failed, "the node's process ended before it answered"));
        }
        Ok(node)
    }

    /// Returns the connection string.
    pub(super) fn connection(&self) -> &str {
        self.connection.trim()
    }

    /// Returns the id of its process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // In order, as an operator ends it; it may have ended by itself.
            let _asked = kill_process(pid, Signal::TERM);
        }
        let _ended = self.child.wait();
    }
}

/// A guard that keeps this thread, and what it starts, on one core; dropping it gives back the cores that the thread
/// had.
pub(super) struct OneCore {
    before: CpuSet,
}

impl OneCore {
    /// Moves this thread to one core; `None` if that is not allowed.
    pub(super) fn pin() -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        let first = (0..CpuSet::MAX_CPU).find(|&core| before.is_set(core))?;
        let mut one = CpuSet::new();
        one.set(first);
        sched_setaffinity(None, &one).ok()?;
        Some(Self { before })
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // What was allowed before is again.
        let _restored = sched_setaffinity(None, &self.before);
    }
}

/// Returns the time that processors have spent on a process, or on this one if none is named, to 10 ms.
pub(super) fn processor_time(process: Option<u32>) -> Result<Duration, Failure> {
    let name = process.map_or_else(|| "self".to_owned(), |id| id.to_string());
    let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).map_err(failed)?;
    let unexpected = || Failure::new(Status::Failed, "/proc/PID/stat is not as expected");
    let ticks = stat_ticks(&stat).ok_or_else(unexpected)?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Returns how many pages this process was given so far without the disk having to be read.
pub(super) fn page_faults() -> Result<u64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat").map_err(failed)?;
    let unexpected = || Failure::new(Status::Failed, "/proc/self/stat is not as expected");
    stat_faults(&stat).ok_or_else(unexpected)
}

/// Reads minflt: the 10th field, the 8th behind the program's name.
fn stat_faults(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(7)?.parse().ok()
}

/// Reads utime and stime together: the 14th and the 15th field, the 12th and the 13th behind the program's name, which
/// may itself have blanks and brackets.
fn stat_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Number of ticks a second in /proc, whatever the kernel's own are.
const TICKS_PER_SECOND: u64 = 100;

/// Addresses that can be reached from this machine only, at any free ports.
const SETTINGS: [&str; 4] =
    ["coordinator.listen=127.0.0.1:0", "node.listen=127.0.0.1:0", "metrics.coordinator=", "metrics.node="];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_brackets_and_blanks_shifts_no_field() {
        let stat = "7 (a) (b c) S 1 7 7 0 -1 4194560 100 0 3 0 250 31 5 6 20 0 9 0 1 2 3";
        assert_eq!(stat_ticks(stat), Some(281));
        assert_eq!(stat_faults(stat), Some(100));
        assert_eq!(stat_ticks("7 (a) S 1 7"), None);
    }
}

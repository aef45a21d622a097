//! The processes that workers have started, wherever they are now.
//!
//! Every worker has a mark in its environment, which whatever it starts inherits. So what has left the worker's process
//! group, by a session of its own, is found by its ancestors while these live, and by its mark when they do not. Only what
//! has dropped its environment and lost its parents is not found here: where there is a control group, that ends with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, geteuid, getpid, pidfd_open, pidfd_send_signal};

/// Name of the variable that has the mark of a worker, behind those of the workers in which its host runs.
pub(crate) const MARK: &str = "ROLLHOUSE_WORKER";

/// Mark of one worker process and of all that it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    /// Draws a mark.
    pub(crate) fn draw() -> Self {
        Self(format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one("worker")))
    }

    /// Returns the mark of this process, if it is a worker.
    pub(crate) fn of_this_process() -> Option<Self> {
        let marks = std::env::var(MARK).ok()?;
        marks.rsplit(SEPARATOR).next().filter(|mark| !mark.is_empty()).map(|mark| Self(mark.to_owned()))
    }

    /// Returns the variable's value for a worker of this process.
    pub(crate) fn value(&self) -> String {
        match std::env::var(MARK) {
            Ok(outer) if !outer.is_empty() => format!("{outer}{SEPARATOR}{}", self.0),
            _ => self.0.clone(),
        }
    }

    fn is_in(&self, environment: &[u8]) -> bool {
        let variables = environment.split(|&byte| byte == 0);
        let mut marks =
            variables.filter_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="));
        marks.any(|marks| marks.split(|&byte| byte == SEPARATOR as u8).any(|mark| mark == self.0.as_bytes()))
    }
}

/// A worker whose descendants are looked for: its process, which may have ended, and its mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Root<'a> {
    pub(crate) process: Pid,
    pub(crate) mark: Option<&'a Mark>,
}

/// Kills what workers have started, and not the workers. All of it is stopped first, so that nothing is started meanwhile
/// and nobody loses his parent before he is found. Workers that live are to be stopped before.
///
/// Reads some files of each process of this user.
pub(crate) fn kill_descendants(roots: &[Root<'_>]) {
    let mut found = BTreeMap::new();
    for _ in 0..MAX_LOOKS {
        let mut new = false;
        let Look { theirs, unclear } = look(roots);
        for process in theirs {
            if !found.contains_key(&process)
                && let Some(its) = process.open()
            {
                // What cannot be stopped has ended, or is another user's by now.
                let _stopped = pidfd_send_signal(&its, Signal::STOP);
                found.insert(process, its);
                new = true;
            }
        }
        match (new, unclear) {
            (true, _) => {}
            (false, true) => std::thread::sleep(LOOK_AGAIN),
            (false, false) => break,
        }
    }
    for process in found.values() {
        let _killed = pidfd_send_signal(process, Signal::KILL);
    }
}

/// A process as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    id: u32,
    /// Time of its start, which tells it from others that get its id.
    started: u64,
}

/// What the kernel says of a process.
pub(crate) struct Process {
    pub(crate) id: u32,
    started: u64,
    pub(crate) parent: u32,
    /// Whether it has ended, and its parent has not asked how.
    pub(crate) is_over: bool,
}

impl Process {
    fn read(id: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name in brackets may have blanks; state, parent and, as the 22nd field, the time of the start follow it.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let is_over = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(22 - 5)?.parse().ok()?;
        Some(Self { id, started, parent, is_over })
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.id).ok()?)
    }
}

impl Seen {
    /// Opens the process, if it is still the one that was seen.
    fn open(self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.id).ok()?)?;
        let opened = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Process::read(self.id).filter(|now| now.started == self.started).map(|_| opened)
    }
}

/// Returns all processes that there are.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter_map(Process::read).collect()
}

/// What is seen of the processes of this user that have not ended.
struct Look {
    /// Those that workers have started.
    theirs: BTreeSet<Seen>,
    /// Whether there are others, as young as the workers, that show no environment: one that is executing another program
    /// shows none for a moment.
    unclear: bool,
}

/// Looks for the processes of this user that workers have started and that have not ended.
fn look(roots: &[Root<'_>]) -> Look {
    let (own, user) = (id_of(getpid()), geteuid().as_raw());
    let mut others = all();
    let is_root = |process: &Process| roots.iter().any(|root| id_of(root.process) == process.id);
    // One that has ended is still there: nobody has reaped it yet.
    let eldest = others.iter().filter(|process| is_root(process)).map(|process| process.started).min();
    others.retain(|process| !process.is_over && process.id != own);
    let mut family: BTreeSet<u32> = roots.iter().map(|root| id_of(root.process)).collect();
    let mut found = BTreeSet::new();
    let (mut marked, mut bare) = (BTreeSet::new(), BTreeSet::new());
    for process in &others {
        let path = format!("/proc/{}", process.id);
        if !fs::metadata(&path).is_ok_and(|its| its.uid() == user) {
            continue;
        }
        let environment = fs::read(format!("{path}/environ")).unwrap_or_default();
        let mut marks = roots.iter().filter_map(|root| root.mark);
        if marks.any(|mark| mark.is_in(&environment)) {
            marked.insert(process.id);
        }
        // Those of the kernel execute no file.
        let of_kernel = || process.parent == KERNEL && fs::read_link(format!("{path}/exe")).is_err();
        let is_young = eldest.is_some_and(|eldest| process.started >= eldest);
        // Of one that begins to execute another program meanwhile nothing is read any more, or not to the last zero.
        if environment.last() != Some(&0) && is_young && !of_kernel() {
            bare.insert(process.id);
        }
    }
    loop {
        let before = found.len();
        for process in &others {
            if !is_root(process) && (family.contains(&process.parent) || marked.contains(&process.id)) {
                family.insert(process.id);
                found.insert(Seen { id: process.id, started: process.started });
            }
        }
        if found.len() == before {
            return Look { theirs: found, unclear: bare.iter().any(|id| !family.contains(id)) };
        }
    }
}

fn id_of(pid: Pid) -> u32 {
    pid.as_raw_pid().unsigned_abs()
}

const SEPARATOR: char = ':';

/// Maximum number of looks for what was started since the one before.
const MAX_LOOKS: usize = 64;

/// Parent of the kernel's own processes.
const KERNEL: u32 = 2;

/// Time in which a process shows its environment again that is executing another program.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_behind_and_before_others_and_nothing_else_is_taken_for_it() {
        let mark = Mark("12-ab".to_owned());
        for (environment, is_in) in [
            (&b"A=1\0ROLLHOUSE_WORKER=12-ab\0B=2"[..], true),
            (b"ROLLHOUSE_WORKER=7-cd:12-ab\0", true),
            (b"ROLLHOUSE_WORKER=12-ab:7-cd", true),
            (b"ROLLHOUSE_WORKER=12-abc", false),
            (b"ROLLHOUSE_WORKERS=12-ab", false),
            (b"X=ROLLHOUSE_WORKER=12-ab", false),
            (b"", false),
        ] {
            assert_eq!(mark.is_in(environment), is_in, "{}", String::from_utf8_lossy(environment));
        }
        assert_ne!(Mark::draw(), Mark::draw());
    }
}

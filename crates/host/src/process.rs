//! The process of a worker.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process_group, pidfd_open, prlimit};

use crate::config::{Environment, Output, Program};
use crate::log::Log;

/// A process that leads its own group.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    /// Descriptor that becomes readable when the process ends. It stays readable after others have reaped the process.
    pidfd: OwnedFd,
    /// Output of the process, if it is kept.
    log: Option<Log>,
}

impl Process {
    /// Executes the program with `socket` as its standard input.
    pub(crate) fn spawn(program: &Program, socket: OwnedFd) -> io::Result<Self> {
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).stdin(Stdio::from(socket)).process_group(0);
        if let Environment::Only(names) = program.environment {
            let kept = std::env::vars_os().filter(|(name, _)| is_named(name, names));
            command.env_clear().envs(kept);
        }
        let log = match program.output {
            Output::Inherited => None,
            Output::Kept => {
                let (log, said) = Log::new()?;
                command.stdout(said.try_clone()?).stderr(said);
                Some(log)
            }
        };
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        match limited(pid, program.memory).map_err(io::Error::from).and_then(|()| watched(pid)) {
            Ok(pidfd) => Ok(Self { child, pid, pidfd, log }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the descriptor that is readable when the process has ended.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the output of the process, if it is kept.
    pub(crate) const fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// Reads what the process has written.
    pub(crate) fn drain_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.drain();
        }
    }

    /// Returns whether the process ends within `patience`.
    pub(crate) fn ends_within(&self, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).ok();
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        loop {
            match poll(&mut fds, patience.as_ref()) {
                Err(Errno::INTR) => {}
                result => return result.is_ok_and(|ready| ready > 0),
            }
        }
    }

    /// Kills the rest of the process's group and reaps the process. Returns how it ended, if that can be known, and the
    /// last lines of its output, if they were kept.
    ///
    /// The group is killed before the leader is reaped: until then its id cannot belong to another group. Blocks for up
    /// to a second for a process that the kernel cannot end yet; such a process stays a zombie.
    pub(crate) fn end(mut self) -> (Option<ExitStatus>, String) {
        // An error means that there is nothing left to kill.
        let _ = kill_process_group(self.pid, Signal::KILL);
        let ended = if self.ends_within(REAP_PATIENCE) { self.child.wait().ok() } else { None };
        self.drain_log();
        (ended, self.log.as_ref().map(Log::last_lines).unwrap_or_default())
    }
}

/// Limits the memory of a process that has just been executed: what it does after that counts.
/// Returns the descriptor that is readable when the process has ended.
///
/// # Errors
/// The operating system's; where it knows no such descriptors, or a sandbox forbids them, it says so.
pub(crate) fn watched(pid: Pid) -> io::Result<OwnedFd> {
    pidfd_open(pid, PidfdFlags::empty()).map_err(watch_refused)
}

fn watch_refused(error: Errno) -> io::Error {
    match error {
        Errno::NOSYS | Errno::PERM => io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "worker processes are watched through pidfd_open, which Linux has from 5.3 on and a sandbox has to permit \
                 ({error})"
            ),
        ),
        error => error.into(),
    }
}

fn limited(pid: Pid, memory: Option<u64>) -> rustix::io::Result<()> {
    let Some(bytes) = memory else { return Ok(()) };
    prlimit(Some(pid), Resource::Data, Rlimit { current: Some(bytes), maximum: Some(bytes) }).map(drop)
}

fn is_named(name: &OsStr, names: &[&str]) -> bool {
    let name = name.as_encoded_bytes();
    names.iter().any(|wanted| match wanted.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning.as_bytes()),
        None => name == wanted.as_bytes(),
    })
}

const REAP_PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::pair;

    fn shell(script: &str) -> Process {
        shell_in(Environment::Inherited, script)
    }

    fn shell_in(environment: Environment, script: &str) -> Process {
        limited_shell(environment, script, None)
    }

    fn limited_shell(environment: Environment, script: &str, memory: Option<u64>) -> Process {
        let arguments = vec!["-c".into(), script.into()];
        let program =
            Program { path: "/bin/sh".into(), arguments, environment, output: Output::Kept, memory };
        let (_, socket) = pair().unwrap();
        Process::spawn(&program, socket).unwrap()
    }

    #[test]
    fn its_end_and_its_last_words_are_seen_and_told() {
        let process = shell("echo out; echo err >&2; exit 3");
        assert!(process.ends_within(Duration::from_secs(60)));
        let (ended, said) = process.end();
        assert_eq!((ended.unwrap().code(), said.as_str()), (Some(3), "out | err"));
    }

    /// Symptom: where the kernel or a sandbox has no pidfd_open, worker processes did not start for `Function not implemented
    /// (os error 38)`. Fix: the message says what is missing and what has it.
    #[test]
    fn a_system_without_descriptors_of_processes_is_named_as_such() {
        for none in [Errno::NOSYS, Errno::PERM] {
            assert!(watch_refused(none).to_string().contains("pidfd_open, which Linux has from 5.3 on"));
        }
        assert_eq!(watch_refused(Errno::SRCH).raw_os_error(), Some(Errno::SRCH.raw_os_error()));
    }

    #[test]
    fn a_process_and_those_it_starts_have_the_memory_that_is_set() {
        // It is set right after the shell was started.
        let script = "while [ $(ulimit -d) = unlimited ]; do :; done; ulimit -d; sh -c 'ulimit -d'";
        let process = limited_shell(Environment::Inherited, script, Some(64 << 20));
        assert!(process.ends_within(Duration::from_secs(60)));
        assert_eq!(process.end().1, "65536 | 65536");
    }

    #[test]
    fn a_process_has_the_variables_that_are_named_and_no_others() {
        // Cargo sets these for its tests.
        let names = &["PATH", "CARGO_PKG_NAM*"];
        let script = "echo ${CARGO_PKG_NAME-none} ${CARGO_PKG_VERSION-none} ${CARGO_MANIFEST_DIR-none}";
        let process = shell_in(Environment::Only(names), script);
        assert!(process.ends_within(Duration::from_secs(60)));
        assert_eq!(process.end().1, "rollhouse-host none none");
        let process = shell("echo ${CARGO_PKG_VERSION-none}");
        assert!(process.ends_within(Duration::from_secs(60)));
        assert_eq!(process.end().1, env!("CARGO_PKG_VERSION"));
    }
}

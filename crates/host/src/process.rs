//! The process of a worker.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process_group, pidfd_open, pidfd_send_signal, prlimit,
};

use crate::children;
use crate::config::{Environment, Output, Program};
use crate::control_group::ControlGroup;
use crate::descendants::{MARK, Mark, Root, kill_descendants};
use crate::log::Log;

/// A process that leads its own group, and what it starts.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    mark: Mark,
    /// Control group that it and all that it starts are in, where there may be one.
    control_group: Option<ControlGroup>,
    /// Descriptor that becomes readable when the process ends. It stays readable after others have reaped the process.
    pidfd: OwnedFd,
    /// Output of the process, if it is kept.
    log: Option<Log>,
}

impl Process {
    /// Executes the program with `socket` as its standard input.
    pub(crate) fn spawn(program: &Program, socket: OwnedFd) -> io::Result<Self> {
        Self::spawn_in(ControlGroup::make(), program, socket)
    }

    fn spawn_in(control_group: Option<ControlGroup>, program: &Program, socket: OwnedFd) -> io::Result<Self> {
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).stdin(Stdio::from(socket)).process_group(0);
        if let Environment::Only(names) = program.environment {
            let kept = std::env::vars_os().filter(|(name, _)| is_named(name, names));
            command.env_clear().envs(kept);
        }
        let mark = Mark::draw();
        command.env(MARK, mark.value());
        let log = match program.output {
            Output::Inherited => None,
            Output::Kept => {
                let (log, said) = Log::new()?;
                command.stdout(said.try_clone()?).stderr(said);
                Some(log)
            }
        };
        let mut child = children::started(|| command.spawn())?;
        let pid = Pid::from_child(&child);
        let control_group = control_group.filter(|group| group.take(child.id()).is_ok());
        match limited(pid, program.memory).map_err(io::Error::from).and_then(|()| watched(pid)) {
            Ok(pidfd) => Ok(Self { child, pid, mark, control_group, pidfd, log }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                children::reaped(child.id());
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

    /// Kills the process and all that it started, and reaps it. Returns how it ended, if that can be known, and the last
    /// lines of its output, if they were kept.
    ///
    /// Blocks for up to a second for a process that the kernel cannot end yet; such a process stays a zombie.
    pub(crate) fn end(mut self) -> (Option<ExitStatus>, String) {
        self.kill_first();
        Self::kill_rest(std::slice::from_ref(&self));
        self.reap()
    }

    /// Ends several processes as [`Process::end`] does, at the cost of one.
    pub(crate) fn end_all(mut processes: Vec<Self>) {
        processes.iter_mut().for_each(Self::kill_first);
        Self::kill_rest(&processes);
        processes.into_iter().for_each(|process| drop(process.reap()));
    }

    /// Kills the process's control group. Without one the process is stopped, so that it starts nothing while what it has
    /// started is looked for.
    fn kill_first(&mut self) {
        if self.control_group.as_ref().is_some_and(|group| group.kill().is_err()) {
            self.control_group = None;
        }
        if self.control_group.is_none() {
            // An error means that it has ended.
            let _stopped = pidfd_send_signal(&self.pidfd, Signal::STOP);
        }
    }

    /// Kills what processes without a control group have started, and the rest of each one's process group.
    fn kill_rest(processes: &[Self]) {
        let outside = processes.iter().filter(|process| process.control_group.is_none());
        let roots: Vec<_> =
            outside.map(|process| Root { process: process.pid, mark: Some(&process.mark) }).collect();
        if !roots.is_empty() {
            kill_descendants(&roots);
        }
        for process in processes {
            // The leader is not reaped yet: so its id cannot belong to another group. An error means that there is nothing
            // left to kill.
            let _killed = kill_process_group(process.pid, Signal::KILL);
        }
    }

    fn reap(mut self) -> (Option<ExitStatus>, String) {
        let ended = if self.ends_within(REAP_PATIENCE) { self.child.wait().ok() } else { None };
        if ended.is_some() {
            children::reaped(self.child.id());
        }
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

    fn shell_of(group: Option<ControlGroup>, script: &str) -> Process {
        let (environment, output, memory) = (Environment::Inherited, Output::Kept, None);
        let arguments = vec!["-c".into(), format!("read go; {script}").into()];
        let program = Program { path: "/bin/sh".into(), arguments, environment, output, memory };
        let (ours, socket) = pair().unwrap();
        let process = Process::spawn_in(group, &program, socket).unwrap();
        // It has waited for that, as a worker waits for its hello: it starts nothing before it is in its group.
        drop(ours);
        process
    }

    /// Returns whether the process of that id has not ended.
    fn lives(id: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// Waits until a file that a process writes has a whole line, and returns that.
    fn line_of(path: &std::path::Path) -> String {
        loop {
            match std::fs::read_to_string(path) {
                Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                _ => std::thread::yield_now(),
            }
        }
    }

    /// Symptom: a game that an env had started with a session of its own outlived its worker. Cause: the worker's process
    /// group was ended and nothing else. Fix: its control group is, or all that descends from it or has its mark.
    #[test]
    fn what_a_process_started_ends_with_it_whatever_session_and_environment_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("game");
        let game = format!("setsid sh -c 'echo $$ > {}; exec sleep 1000'", file.display());
        // A living worker's child without an environment, and what is left of a worker that has ended.
        let bare = format!("env -i PATH=$PATH {game} & wait");
        let orphan = format!("{game} & while [ ! -s {} ]; do :; done; exit 7", file.display());
        for grouped in [true, false] {
            for script in [&bare, &orphan] {
                let _gone = std::fs::remove_file(&file);
                let group = if grouped { ControlGroup::make() } else { None };
                let process = shell_of(group, script);
                let game = line_of(&file);
                if script == &orphan {
                    assert!(process.ends_within(Duration::from_secs(60)));
                }
                assert!(lives(&game), "{script}");
                process.end();
                while lives(&game) {
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Symptom: now and then a game outlived the worker that had started it. Cause: a process that is executing another program
    /// shows no environment for a moment, and so no mark. Fix: one that shows none is looked at again.
    #[test]
    fn what_executes_one_program_after_another_ends_with_its_worker_too() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let (again, file) = (folder.path().join("again"), folder.path().join("game"));
        std::fs::write(&again, "#!/bin/sh\nexec \"$0\"\n").unwrap();
        std::fs::set_permissions(&again, std::fs::Permissions::from_mode(0o700)).unwrap();
        for _ in 0..30 {
            let _gone = std::fs::remove_file(&file);
            let (file, again) = (file.display(), again.display());
            let game = format!("setsid sh -c 'echo $$ > {file}; exec {again}'");
            let process = shell_of(None, &format!("{game} & while [ ! -s {file} ]; do :; done; exit 7"));
            let game = line_of(std::path::Path::new(&file.to_string()));
            assert!(process.ends_within(Duration::from_secs(60)));
            process.end();
            // What was killed is gone in a moment.
            let lives = || lives(&game);
            let until = std::time::Instant::now() + Duration::from_secs(2);
            while lives() && std::time::Instant::now() < until {
                std::thread::yield_now();
            }
            assert!(!lives(), "process {game} plays on");
        }
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

//! A program of another kind than workers that is to run for as long as somebody wants it, such as a game's engine.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::config::{Environment, Output, Program};
use crate::process::Process;

/// A program that runs until this value is dropped: it is started again when it ends, after a pause. It and all that it
/// starts end with this value, but not with a process that is killed before it is dropped.
///
/// What it writes is kept, and its last lines are logged when it ends.
#[derive(Debug)]
pub struct KeptProgram {
    /// Dropped to have the thread end.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl KeptProgram {
    /// Starts the program of a command line, whose words are separated by blanks: the first is a path, or a name that is looked
    /// up in `PATH`. No shell reads it. Its environment has what programs need to run, and no secrets of this process.
    ///
    /// # Errors
    /// If the line has no words, or the program cannot be started.
    pub fn start(line: &str) -> io::Result<Self> {
        let mut words = line.split_whitespace().map(Into::into);
        let path = words.next().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program"))?;
        let (environment, output) = (Environment::Only(&VARIABLES), Output::Kept);
        let program = Program { path, arguments: words.collect(), environment, output, memory: None };
        let process = spawn(&program)?;
        info!("{} runs as process {}", program.path.display(), process.id());
        let (stop, stopped) = sync_channel(1);
        let run = move || keep(&program, process, &stopped);
        // Task: kept program.
        let thread = std::thread::Builder::new().name("rollhouse-kept".to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for KeptProgram {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that panicked has dropped its process, which ends with this one.
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

fn spawn(program: &Program) -> io::Result<Process> {
    Process::spawn(program, File::open("/dev/null")?.into())
}

/// Keeps the program running until the sender is gone.
fn keep(program: &Program, mut process: Process, stopped: &Receiver<()>) {
    let name = program.path.display();
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        while !process.ends_within(Duration::ZERO) {
            process.drain_log();
            if stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Disconnected) {
                let _ended = process.end();
                return;
            }
        }
        let (ended, said) = process.end();
        let how = ended.map_or_else(|| "its end is not known".to_owned(), |status| status.to_string());
        pause = if began.elapsed() >= RAN_WELL { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        warn!(last_lines = said, "{name} has ended ({how}) and is started again in {} s", pause.as_secs());
        process = loop {
            if stopped.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            match spawn(program) {
                Ok(process) => break process,
                Err(error) => {
                    warn!(%error, "{name} cannot be started, and is tried again in {} s", pause.as_secs())
                }
            }
        };
        info!("{name} runs as process {}", process.id());
    }
}

/// Variables that a program is given.
const VARIABLES: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_*",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "DISPLAY",
    "XDG_*",
    "DOTNET_*",
    "RL_*",
];
/// Interval at which it is looked whether the program is to end, and what it has written.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Pauses before a program that has ended is started again: each twice the last, until it has run for a while.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const RAN_WELL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &std::path::Path) -> usize {
        std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
    }

    fn until(holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_program_that_ends_is_started_again_and_ends_with_who_keeps_it_with_all_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let (script, starts) = (folder.path().join("engine"), folder.path().join("starts"));
        let text = format!(
            "#!/bin/sh\necho $$ >> {0}\n[ $(wc -l < {0}) -gt 1 ] || exit 3\nsleep 1000\n",
            starts.display()
        );
        std::fs::write(&script, text).unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let kept = KeptProgram::start(&format!("{} --map river", script.display())).unwrap();
        until(|| lines(&starts) == 2);
        drop(kept);
        let pids = std::fs::read_to_string(&starts).unwrap();
        let last = pids.lines().last().unwrap();
        assert!(!std::path::Path::new(&format!("/proc/{last}")).exists(), "{last} runs on");
    }

    #[test]
    fn a_line_without_a_program_is_refused() {
        assert_eq!(KeptProgram::start("  ").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(KeptProgram::start("/no/such/engine").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

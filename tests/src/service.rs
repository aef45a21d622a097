//! Processes of a cluster: started, heard, signalled, killed.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::program;

/// A coordinator, a node, or both in one; killed if the test ends before it.
#[derive(Debug)]
pub struct Service {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    heard: Vec<String>,
}

impl Service {
    /// Starts a command line in `folder`, with any free ports for all that it listens on if it says no other.
    pub fn start(folder: &Path, line: &[&str]) -> Self {
        Self::start_with(folder, line, &[])
    }

    /// The same with variables of its own; those that are empty are not set. Its log is text unless they say otherwise.
    pub fn start_with(folder: &Path, line: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = program();
        command.args(line).current_dir(folder).env("ROLLHOUSE_LOG__FORMAT", "text");
        command.envs(variables.iter().filter(|(_, value)| !value.is_empty()).copied());
        for (key, address) in FREE_PORTS {
            command.env(key, address);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let stdout = lines(child.stdout.take().expect("it is piped"));
        let stderr = lines(child.stderr.take().expect("it is piped"));
        Self { child, stdout, stderr, heard: Vec::new() }
    }

    /// The rest of the next line on stderr in which `words` stand, after them. Fails the test if none comes.
    pub fn hear(&mut self, words: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.stderr.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = line.split_once(words).map(|(_, rest)| rest.to_owned());
                    self.heard.push(line);
                    if let Some(rest) = found {
                        return rest;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("it never says `{words}`: {}", self.heard.join("\n"))
                }
            }
        }
    }

    /// The lines on stderr that were read so far.
    pub fn said(&self) -> &[String] {
        &self.heard
    }

    /// The next line on stdout.
    pub fn read(&mut self) -> String {
        match self.stdout.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(_) => panic!("it prints nothing: {}", self.stderr.try_iter().collect::<Vec<_>>().join("\n")),
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let status = Command::new("kill").args([&format!("-{name}"), &id]).status().expect("kill starts");
        assert!(status.success(), "kill -{name} {id}");
    }

    /// Lets it write no byte to any file: what a full disk does.
    pub fn fill_disk(&self) {
        self.limit_files("0");
    }

    /// Lets it write to files again.
    pub fn free_disk(&self) {
        self.limit_files("unlimited");
    }

    fn limit_files(&self, bytes: &str) {
        let (id, limit) = (self.id().to_string(), format!("--fsize={bytes}:"));
        let status = Command::new("prlimit").args(["--pid", &id, &limit]).status().expect("prlimit starts");
        assert!(status.success(), "prlimit {limit} {id}");
    }

    /// Ends it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Waits for its end, and gives its exit code; `None` if a signal ended it. Prints what it said, for whoever looks
    /// into a test that fails.
    #[expect(clippy::print_stdout, reason = "seen only when the test fails")]
    pub fn code(mut self) -> Option<i32> {
        let status = self.child.wait().expect("a child can be waited for");
        self.heard.extend(self.stderr.iter());
        println!("{}", self.heard.join("\n"));
        status.code()
    }

    /// Waits for its end, and gives its exit code and each line that it said.
    pub fn ended(mut self) -> (Option<i32>, Vec<String>) {
        let status = self.child.wait().expect("a child can be waited for");
        self.heard.extend(self.stderr.iter());
        (status.code(), std::mem::take(&mut self.heard))
    }

    /// Asks it to end, as an operator does, and waits for that. Fails the test if it panicked.
    pub fn end(mut self) -> ExitStatus {
        self.signal("TERM");
        let status = self.child.wait().expect("a child can be waited for");
        self.heard.extend(self.stderr.iter());
        let said = self.heard.join("\n");
        assert!(!said.contains("panicked at"), "{said}");
        status
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Reads lines on a thread of its own, so that the child never waits for the test.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = sync_channel(MOST_LINES);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}

/// For services that are not told where to listen.
const FREE_PORTS: [(&str, &str); 5] = [
    ("ROLLHOUSE_COORDINATOR__LISTEN", "127.0.0.1:0"),
    ("ROLLHOUSE_NODE__LISTEN", "127.0.0.1:0"),
    ("ROLLHOUSE_METRICS__LISTEN", "127.0.0.1:0"),
    ("ROLLHOUSE_METRICS__COORDINATOR", "127.0.0.1:0"),
    ("ROLLHOUSE_METRICS__NODE", "127.0.0.1:0"),
];

/// Longer than anything takes on a machine that does nothing else for a while.
const PATIENCE: Duration = Duration::from_secs(120);
/// Lines that wait to be read.
const MOST_LINES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Folder;

    /// Symptom: nodes ran on for hours after a test of a terminal had been killed by a time limit.
    /// Cause: only what drops a service ends it, which nothing does in a process that is killed.
    /// Fix: the kernel ends it with the thread that started it, by way of util-linux.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_service_ends_with_the_thread_of_its_test_even_if_nothing_drops_it() {
        let folder = Folder::new();
        let data = folder.path().to_owned();
        let test = move || {
            let mut service = Service::start(&data, &["up", "--data", "data"]);
            service.read();
            let id = service.id();
            std::mem::forget(service);
            id
        };
        let id = std::thread::spawn(test).join().expect("it starts");
        // Nobody waits for it, so that a zombie stays.
        let stat = format!("/proc/{id}/stat");
        while !std::fs::read_to_string(&stat).expect("it was not waited for").contains(") Z ") {
            std::thread::yield_now();
        }
    }
}

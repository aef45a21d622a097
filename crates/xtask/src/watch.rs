//! Runs commands that might hang: their lines are passed on, and a command that prints nothing for long is killed.
//!
//! A test that waits for an event that never comes has no limit of its own; this is the limit for all of them.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Time without a line after which a command is killed: several times what the longest test takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// The end of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It ended by itself.
    Itself(ExitStatus),
    /// It printed nothing for that long, and was killed.
    Killed(Duration),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Itself(status) => write!(f, "{status}"),
            Self::Killed(patience) => write!(f, "killed after {} s without a line", patience.as_secs()),
        }
    }
}

/// Runs the command to its end, and gives each line of its stdout to `each`.
pub(crate) fn watch(
    command: &mut Command,
    patience: Duration,
    mut each: impl FnMut(&str),
) -> io::Result<Ended> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let (send, lines) = sync_channel(LINES);
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // Nobody listens any more once it was killed.
            let _heard = lines.try_for_each(|line| send.send(line));
        });
    }
    loop {
        match lines.recv_timeout(patience) {
            Ok(text) => each(&text),
            Err(RecvTimeoutError::Disconnected) => return child.wait().map(Ended::Itself),
            Err(RecvTimeoutError::Timeout) => {
                kill_all(&mut child)?;
                return Ok(Ended::Killed(patience));
            }
        }
    }
}

/// Kills a child and all processes below it. All are stopped first, so that none starts another one in the meantime.
fn kill_all(child: &mut Child) -> io::Result<()> {
    let mut stopped = Vec::new();
    let mut running = vec![child.id()];
    while !running.is_empty() {
        signal("-STOP", &running);
        stopped.append(&mut running);
        running = descendants(child.id());
        running.retain(|id| !stopped.contains(id));
    }
    signal("-KILL", &stopped);
    // Also where there is no `kill`.
    child.kill()?;
    child.wait().map(drop)
}

/// Sends a signal to processes, some of which may have ended.
fn signal(name: &str, ids: &[u32]) {
    let ids = ids.iter().map(u32::to_string);
    let _sent = Command::new("kill").arg(name).args(ids).stderr(Stdio::null()).status();
}

/// Returns the processes below that one; none if there is no `/proc`.
fn descendants(of: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes: Vec<(u32, u32)> = entries
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            Some((id, parent(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
        })
        .collect();
    let mut found = vec![of];
    let mut next = 0;
    while let Some(&above) = found.get(next) {
        found.extend(processes.iter().filter(|(_, parent)| *parent == above).map(|(id, _)| id));
        next += 1;
    }
    found.split_off(1)
}

/// Returns the parent from a line of `/proc/<id>/stat`: the second field after the name, which ends with the last
/// parenthesis.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Number of lines that wait to be shown.
const LINES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn every_line_is_given_on_and_the_status_told() {
        let mut lines = Vec::new();
        let ended =
            watch(&mut shell("echo one; echo two; exit 3"), PATIENCE, |line| lines.push(line.to_owned()));
        let Ok(Ended::Itself(status)) = ended else { panic!("{ended:?}") };
        assert_eq!((status.code(), lines), (Some(3), vec!["one".to_owned(), "two".to_owned()]));
    }

    #[test]
    fn what_prints_nothing_for_too_long_is_killed() {
        let patience = Duration::from_millis(20);
        let ended = watch(&mut shell("exec sleep 1000"), patience, |_| ());
        assert_eq!(ended.ok(), Some(Ended::Killed(patience)));
    }

    #[test]
    fn with_a_child_all_that_it_started_is_killed() {
        let script = "sh -c 'sleep 1000 & echo $!; sleep 1000; true'; true";
        let mut child = shell(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut id = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut id).unwrap();
        kill_all(&mut child).unwrap();
        let stat = format!("/proc/{}/stat", id.trim().parse::<u32>().unwrap());
        // Killed; a zombie until its new parent reaps it.
        let ended = (0..100_000).any(|_| {
            std::thread::yield_now();
            fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
        });
        assert!(ended, "{stat} is still there");
    }

    #[test]
    fn the_parent_is_found_whatever_the_name_of_a_process() {
        assert_eq!(parent("12 (a) b) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 (a"), None);
    }
}

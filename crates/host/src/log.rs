//! The output of a process, of which the end is kept.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rollhouse_core::is_plain;

/// End of what a process writes to its standard output and error. It is read whenever the process's host waits; a
/// process that writes more than its pipe holds while nobody waits for it has to wait in turn.
#[derive(Debug)]
pub(crate) struct Log {
    /// Pipe from the process; `None` once the process has closed its end.
    pipe: Option<PipeReader>,
    tail: VecDeque<u8>,
}

impl Log {
    /// Makes an empty log, and the pipe into which the process writes.
    pub(crate) fn new() -> io::Result<(Self, PipeWriter)> {
        let (ours, theirs) = io::pipe()?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        Ok((Self { pipe: Some(ours), tail: VecDeque::new() }, theirs))
    }

    /// Returns the descriptor that is readable when there is something to read; `None` when nothing more comes.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads what is there, at most [`DRAIN_BYTES`] at a time. Does not wait.
    pub(crate) fn drain(&mut self) {
        let mut chunk = [0; 4096];
        for _ in 0..DRAIN_BYTES / chunk.len() {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut chunk) {
                Ok(read) if read > 0 => {
                    self.tail.extend(&chunk[..read]);
                    let over = self.tail.len().saturating_sub(LOG_BYTES);
                    self.tail.drain(..over);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
    }

    /// Returns the last lines, at most [`LAST_LINES`] of them, in one text; empty if nothing was written.
    pub(crate) fn last_lines(&self) -> String {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ");
        // What another program says must not steer a terminal.
        last.chars().map(|c| if is_plain(c) { c } else { ' ' }).collect()
    }
}

/// Maximum number of bytes of a process's output that are kept.
pub(crate) const LOG_BYTES: usize = 16 << 10;
/// Maximum number of lines that an error repeats.
const LAST_LINES: usize = 12;
/// Maximum number of bytes that are read at a time: what a pipe holds.
const DRAIN_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::Write;

    #[test]
    fn the_last_lines_of_much_that_was_said_are_kept_in_bounded_memory() {
        let (mut log, mut said) = Log::new().unwrap();
        assert_eq!(log.last_lines(), "");
        for line in 0..10_000 {
            writeln!(said, "line {line}\x1b[31m").unwrap();
            if line % 500 == 0 {
                log.drain();
            }
        }
        log.drain();
        assert!(log.tail.len() <= LOG_BYTES && log.tail.capacity() <= 4 * LOG_BYTES);
        let last = log.last_lines();
        assert!(last.ends_with("line 9999 [31m"), "{last}");
        assert_eq!(last.split(" | ").count(), LAST_LINES);
        drop(said);
        // A process that another test starts may hold the other end until it runs its own program.
        while let Some(pipe) = log.descriptor() {
            poll(&mut [PollFd::new(&pipe, PollFlags::IN)], None).unwrap();
            log.drain();
        }
    }
}

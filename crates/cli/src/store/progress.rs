//! One line on the terminal that shows how far segments have come.

use std::io::{self, IsTerminal, Write};

use crate::human::{Bytes, Count};

/// Draws on stderr if that is a terminal, else does nothing.
pub(super) struct Progress {
    title: &'static str,
    shown: bool,
    all: u64,
    done: u64,
    bytes: u64,
}

impl Progress {
    /// Of `all` segments.
    pub(super) fn new(title: &'static str, all: usize) -> Self {
        Self { title, shown: io::stderr().is_terminal(), all: all as u64, done: 0, bytes: 0 }
    }

    /// Another segment is done, of so many bytes.
    pub(super) fn add(&mut self, bytes: u64) {
        self.done += 1;
        self.bytes += bytes;
        if self.shown {
            // A terminal that is gone is noticed by the signal it sends.
            let _drawn = write!(io::stderr().lock(), "\r{CLEAR}{}", self.line());
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.shown {
            let _cleared = write!(io::stderr().lock(), "\r{CLEAR}");
        }
    }

    /// Short enough for any terminal that is used.
    fn line(&self) -> String {
        let Self { title, all, done, bytes, .. } = self;
        let share = done * 100 / (*all).max(1);
        format!("{title} {share:3} %  {} of {} segments  {}", Count(*done), Count(*all), Bytes(*bytes))
    }
}

/// Clears the line from the cursor on.
const CLEAR: &str = "\x1b[K";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_many_segments_are_done_and_what_they_come_to() {
        let mut progress = Progress { title: "exporting", shown: false, all: 1200, done: 0, bytes: 0 };
        assert_eq!(progress.line(), "exporting   0 %  0 of 1,200 segments  0 B");
        (0..600).for_each(|_| progress.add(64_000_000));
        assert_eq!(progress.line(), "exporting  50 %  600 of 1,200 segments  38.4 GB");
        progress.all = 0;
        assert!(progress.line().contains("60000 %"), "nothing is divided by nothing");
    }
}

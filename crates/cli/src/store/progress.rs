//! One line on the terminal that shows the progress of carrying segments.

use crate::human::{Bytes, Count};
use crate::terminal_line::TerminalLine;

/// Draws on stderr if that is a terminal, else does nothing.
pub(super) struct Progress {
    title: &'static str,
    terminal: TerminalLine,
    all: u64,
    done: u64,
    bytes: u64,
}

impl Progress {
    /// Makes the progress of `all` segments.
    pub(super) fn new(title: &'static str, all: usize) -> Self {
        Self { title, terminal: TerminalLine::new(), all: all as u64, done: 0, bytes: 0 }
    }

    /// Notes that another segment is done, with the number of its bytes.
    pub(super) fn add(&mut self, bytes: u64) {
        self.done += 1;
        self.bytes += bytes;
        self.terminal.draw(|_| self.line());
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        self.terminal.clear();
    }

    fn line(&self) -> String {
        let Self { title, all, done, bytes, .. } = self;
        let share = if *all == 0 { 100 } else { done * 100 / all };
        format!("{title} {share:3} %  {} of {} segments  {}", Count(*done), Count(*all), Bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_many_segments_are_done_and_what_they_come_to() {
        let mut progress = Progress::new("exporting", 1200);
        assert_eq!(progress.line(), "exporting   0 %  0 of 1,200 segments  0 B");
        (0..600).for_each(|_| progress.add(64_000_000));
        assert_eq!(progress.line(), "exporting  50 %  600 of 1,200 segments  38.4 GB");
        assert_eq!(Progress::new("exporting", 0).line(), "exporting 100 %  0 of 0 segments  0 B");
    }
}

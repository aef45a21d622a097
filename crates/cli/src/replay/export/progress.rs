//! One line on the terminal that shows the progress of an export.

use std::time::{Duration, Instant};

use rollhouse_core::EpisodeName;

use crate::human::{Bytes, Count, counted};
use crate::terminal_line::TerminalLine;

/// Draws on stderr if that is a terminal, else does nothing.
pub(super) struct Progress {
    terminal: TerminalLine,
    began: Instant,
    drawn: Option<Instant>,
    /// Number of episodes, if it is known.
    all: Option<u64>,
    done: u64,
    bytes: u64,
}

impl Progress {
    /// Makes the progress of that many episodes, if their number is known.
    pub(super) fn new(all: Option<u64>) -> Self {
        let (terminal, began) = (TerminalLine::new(), Instant::now());
        Self { terminal, began, drawn: None, all, done: 0, bytes: 0 }
    }

    /// Sets the number of episodes, if it is known.
    pub(super) fn expect(&mut self, all: Option<u64>) {
        self.all = all;
    }

    /// Shows how many steps of an episode are written.
    pub(super) fn at(&mut self, name: &EpisodeName, step: u64, length: u64) {
        let now = Instant::now();
        let is_due = self.drawn.is_none_or(|drawn| now.duration_since(drawn) >= BETWEEN_DRAWS);
        if self.terminal.is_shown() && is_due {
            self.drawn = Some(now);
            let line = line(self.done, self.all, self.bytes, &name.to_string(), step, length);
            self.terminal.draw(|_| line);
        }
    }

    /// Shows how many episodes are read for one table, and how many steps are written.
    #[cfg(feature = "formats")]
    pub(super) fn table(&mut self, episodes: u64, steps: u64) {
        if self.terminal.is_shown() {
            let line =
                format!("exporting {}, {} written", counted(episodes, "episode"), counted(steps, "step"));
            self.terminal.draw(|_| line);
        }
    }

    /// Notes that an episode is done, with the number of its bytes.
    pub(super) fn next(&mut self, bytes: u64) {
        self.done += 1;
        self.bytes += bytes;
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        self.terminal.clear();
        self.drawn = None;
    }

    /// Returns how long it has taken.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

fn line(done: u64, all: Option<u64>, bytes: u64, name: &str, step: u64, length: u64) -> String {
    let part = step as f64 / length.max(1) as f64;
    let now = format!("{name} at {:.0} %", part * 100.0);
    match all {
        Some(1) => format!("exporting {now}"),
        Some(all) => {
            let share = 100.0 * (done as f64 + part) / all as f64;
            let counts = format!("{} of {} episodes", Count(done), Count(all));
            format!("exporting {share:3.0} %  {counts}  {}  {now}", Bytes(bytes))
        }
        None => format!("exporting  {} done  {}  {now}", counted(done, "episode"), Bytes(bytes)),
    }
}

/// Shortest time between two changes of the line: faster ones cannot be read.
const BETWEEN_DRAWS: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_the_episode_is_and_how_many_there_are() {
        let at = |done, all| line(done, all, 1_200_000, "k3f9q2tz-1-2", 250, 500);
        assert_eq!(at(0, Some(1)), "exporting k3f9q2tz-1-2 at 50 %");
        assert_eq!(at(1, Some(10)), "exporting  15 %  1 of 10 episodes  1.20 MB  k3f9q2tz-1-2 at 50 %");
        assert_eq!(at(7, None), "exporting  7 episodes done  1.20 MB  k3f9q2tz-1-2 at 50 %");
        assert_eq!(line(0, Some(1), 0, "x", 0, 0), "exporting x at 0 %");
    }
}

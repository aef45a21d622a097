//! One line on the terminal that shows how far a rollout is.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use rollhouse_node::{Goal, ProgressSnapshot};

use crate::human::{Count, Real, Si};

/// Draws on stderr if that is a terminal, else does nothing.
pub(crate) struct ProgressBar {
    title: String,
    goal: Goal,
    lanes: u64,
    shown: bool,
    last: Option<(Instant, u64)>,
    rate: f64,
}

impl ProgressBar {
    pub(crate) fn new(title: &str, goal: Goal, lanes: usize) -> Self {
        let shown = io::stderr().is_terminal();
        Self { title: title.to_owned(), goal, lanes: lanes as u64, shown, last: None, rate: 0.0 }
    }

    /// Draws the line anew over itself.
    pub(crate) fn draw(&mut self, now: ProgressSnapshot) {
        if self.shown {
            self.note_rate(Instant::now(), now.steps);
            // A terminal that is gone is noticed by the signal it sends.
            let _drawn = write!(
                io::stderr().lock(),
                "\r{CLEAR}{}",
                line(&self.title, self.goal, self.lanes, self.rate, now)
            );
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        if self.shown {
            let _cleared = write!(io::stderr().lock(), "\r{CLEAR}");
        }
    }

    fn note_rate(&mut self, at: Instant, steps: u64) {
        match self.last {
            Some((then, before)) if at.duration_since(then) < RATE_WINDOW || steps < before => {}
            Some((then, before)) => {
                self.rate = (steps - before) as f64 / at.duration_since(then).as_secs_f64();
                self.last = Some((at, steps));
            }
            None => self.last = Some((at, steps)),
        }
    }
}

fn line(title: &str, goal: Goal, lanes: u64, rate: f64, now: ProgressSnapshot) -> String {
    let (done, all, noun) = match goal {
        Goal::Episodes(episodes) => (now.episodes, episodes, "episodes"),
        Goal::Batches(batches) => (now.steps, batches.saturating_mul(lanes), "steps"),
    };
    let share = (done as f64 / all.max(1) as f64).min(1.0);
    let filled = (share * BAR_WIDTH as f64) as usize;
    let bar = format!("{}{}", "=".repeat(filled), " ".repeat(BAR_WIDTH - filled));
    let mean = now.mean_return.map_or_else(String::new, |mean| format!("  mean return {}", Real(mean)));
    let percent = share * 100.0;
    format!(
        "{title} [{bar}] {percent:3.0} %  {} of {} {noun}  {} steps/s{mean}",
        Count(done),
        Count(all),
        Si(rate)
    )
}

/// Erases to the end of the line.
const CLEAR: &str = "\x1b[K";

const BAR_WIDTH: usize = 24;

/// Over which the rate is measured: shorter ones flicker.
const RATE_WINDOW: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_share_counts_rate_and_return() {
        let now = ProgressSnapshot { beats: 9, steps: 44_000, episodes: 500, mean_return: Some(22.25) };
        assert_eq!(
            line("CartPole-v1", Goal::Episodes(1000), 64, 3.1e6, now),
            "CartPole-v1 [============            ]  50 %  500 of 1,000 episodes  3.10 M steps/s  mean return 22.25"
        );
    }

    #[test]
    fn more_than_asked_for_is_still_a_full_bar() {
        let now = ProgressSnapshot { steps: 900, ..ProgressSnapshot::default() };
        assert!(line("x", Goal::Batches(10), 64, 0.0, now).contains("100 %  900 of 640 steps"));
    }
}

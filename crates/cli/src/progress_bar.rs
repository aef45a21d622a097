//! One line on the terminal that shows the progress of a rollout.

use std::time::{Duration, Instant};

use rollhouse_core::Goal;
use rollhouse_node::ProgressSnapshot;

use crate::human::{Count, Real, Si};
use crate::terminal_line::TerminalLine;

/// Draws on stderr if that is a terminal, else does nothing.
pub(crate) struct ProgressBar {
    title: String,
    goal: Goal,
    lanes: u64,
    terminal: TerminalLine,
    last: Option<(Instant, u64)>,
    rate: f64,
}

impl ProgressBar {
    pub(crate) fn new(title: &str, goal: Goal, lanes: usize) -> Self {
        let terminal = TerminalLine::new();
        Self { title: title.to_owned(), goal, lanes: lanes as u64, terminal, last: None, rate: 0.0 }
    }

    /// Draws the line anew over itself.
    pub(crate) fn draw(&mut self, now: ProgressSnapshot) {
        if self.terminal.is_shown() {
            self.note_rate(Instant::now(), now.steps);
            let Self { title, goal, lanes, rate, .. } = self;
            self.terminal.draw(|room| line(title, *goal, *lanes, *rate, now, room));
        }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.terminal.clear();
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

/// Makes the line in at most `room` columns. If not all fits, first the bar shrinks and goes, then the parts at the
/// end.
fn line(title: &str, goal: Goal, lanes: u64, rate: f64, now: ProgressSnapshot, room: usize) -> String {
    let (done, all, noun) = match goal {
        Goal::Episodes(episodes) => (now.episodes, episodes, "episodes"),
        Goal::Batches(batches) => (now.steps, batches.saturating_mul(lanes), "steps"),
    };
    let share = (done as f64 / all.max(1) as f64).min(1.0);
    let mut parts = vec![
        format!("{:3.0} %", share * 100.0),
        format!("  {} of {} {noun}", Count(done), Count(all)),
        format!("  {} steps/s", Si(rate)),
    ];
    parts.extend(now.mean_return.map(|mean| format!("  mean return {}", Real(mean))));
    let width = |parts: &[String]| title.chars().count() + 1 + parts.concat().chars().count();
    while parts.len() > 1 && width(&parts) > room {
        parts.pop();
    }
    let bar = bar(share, room.saturating_sub(width(&parts)));
    format!("{title} {bar}{}", parts.concat()).chars().take(room).collect()
}

/// Makes a bar in at most `room` columns, with a space behind it; empty where it would be too short to show anything.
fn bar(share: f64, room: usize) -> String {
    let width = room.saturating_sub("[] ".len()).min(BAR_WIDTH);
    if width < LEAST_BAR_WIDTH {
        return String::new();
    }
    let filled = (share * width as f64) as usize;
    format!("[{}{}] ", "=".repeat(filled), " ".repeat(width - filled))
}

const BAR_WIDTH: usize = 24;

const LEAST_BAR_WIDTH: usize = 4;

/// Time over which the rate is measured: over shorter times it flickers.
const RATE_WINDOW: Duration = Duration::from_millis(400);

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: ProgressSnapshot =
        ProgressSnapshot { beats: 9, steps: 44_000, episodes: 500, mean_return: Some(22.25) };

    fn half(room: usize) -> String {
        line("CartPole-v1", Goal::Episodes(1000), 64, 3.1e6, HALF, room)
    }

    #[test]
    fn the_line_shows_share_counts_rate_and_return() {
        assert_eq!(
            half(110),
            "CartPole-v1 [============            ]  50 %  500 of 1,000 episodes  3.10 M steps/s  mean return 22.25"
        );
    }

    /// Symptom: on a terminal of 110 columns a rollout printed line after line.
    /// Cause: the line was longer than the terminal and went on in the next one, where it was not cleared.
    /// Fix: it has less columns than the terminal, whatever they are.
    #[test]
    fn the_line_fits_a_terminal_of_any_width() {
        for room in 0..200 {
            let line = half(room);
            assert!(line.chars().count() <= room, "{room}: {line}");
        }
        assert_eq!(
            half(89),
            "CartPole-v1 [=====      ]  50 %  500 of 1,000 episodes  3.10 M steps/s  mean return 22.25"
        );
        assert_eq!(half(59), "CartPole-v1  50 %  500 of 1,000 episodes  3.10 M steps/s");
        assert_eq!(half(29), "CartPole-v1 [====     ]  50 %");
        assert_eq!(half(19), "CartPole-v1  50 %");
    }

    #[test]
    fn more_than_asked_for_is_still_a_full_bar() {
        let now = ProgressSnapshot { steps: 900, ..ProgressSnapshot::default() };
        assert!(line("x", Goal::Batches(10), 64, 0.0, now, 80).contains("100 %  900 of 640 steps"));
    }
}

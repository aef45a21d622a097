//! Plots of the episodes of each env.

use std::collections::BTreeMap;
use std::fmt::Write;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use rollhouse_replay::EnvOverview;

use crate::look::Look;
use crate::numbers::{count, plain, real};
use crate::plot::{bars_between, range};
use crate::screen::put;
use crate::svg::svg_of;

/// Draws returns and lengths over the episodes, and outcomes, of each env, on `columns` columns; for a terminal, or as an
/// SVG file.
pub fn overview_screen(envs: &BTreeMap<String, EnvOverview>, columns: u16, look: Look) -> Screen {
    let columns = columns.clamp(LEAST_COLUMNS, MOST_COLUMNS);
    let height = |env: &EnvOverview| RETURN + LENGTH + 3 + env.counts().count() as u16 + 1;
    let shown: Vec<_> = envs.iter().take(MOST_ENVS).collect();
    let rows = shown.iter().map(|(_, env)| height(env)).sum::<u16>().saturating_sub(1);
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    let mut top = 0;
    for (id, env) in shown {
        draw_env(id, env, Rect::new(0, top, columns, height(env) - 1), look, &mut buffer);
        top += height(env);
    }
    Screen(buffer)
}

/// Something that was drawn.
#[derive(Debug)]
pub struct Screen(Buffer);

impl Screen {
    /// Returns the lines; each ends with a line feed. If `styled`, they have a terminal's codes for colours and bold
    /// letters.
    pub fn text(&self, styled: bool) -> String {
        let area = self.0.area;
        let mut text = String::new();
        for y in area.top()..area.bottom() {
            let cells: Vec<_> = (area.left()..area.right()).map(|x| &self.0[(x, y)]).collect();
            let used = cells.iter().rposition(|cell| cell.symbol() != " ").map_or(0, |last| last + 1);
            let mut style = (Color::Reset, Modifier::empty());
            for cell in &cells[..used] {
                if styled && (cell.fg, cell.modifier) != style {
                    style = (cell.fg, cell.modifier);
                    text.push_str("\x1b[0m");
                    if let Color::Rgb(red, green, blue) = cell.fg {
                        // Writing to a string cannot fail.
                        let _written = write!(text, "\x1b[38;2;{red};{green};{blue}m");
                    }
                    for (modifier, code) in [(Modifier::BOLD, "\x1b[1m"), (Modifier::DIM, "\x1b[2m")] {
                        text.push_str(if cell.modifier.contains(modifier) { code } else { "" });
                    }
                }
                text.push_str(cell.symbol());
            }
            text.push_str(if style == (Color::Reset, Modifier::empty()) { "\n" } else { "\x1b[0m\n" });
        }
        text
    }

    /// Returns the screen as an SVG file.
    pub fn svg(&self) -> String {
        svg_of(&self.0)
    }
}

fn draw_env(id: &str, env: &EnvOverview, area: Rect, look: Look, buffer: &mut Buffer) {
    let right = area.right();
    let total: u64 = env.outcomes.values().sum();
    let x = put(buffer, area.x, area.y, right, &plain(id), look.strong());
    let groups = env.in_groups(area.width.into());
    let mut said = format!(": {}", episodes(total));
    let largest = groups.iter().map(|group| group.count).max().unwrap_or(0);
    if largest > 1 {
        // Writing to a string cannot fail.
        let _written =
            write!(said, "; a column is the mean of up to {} that came to their end", count(largest));
    }
    put(buffer, x, area.y, right, &said, Style::new());
    let column = |at: u16| groups.get(usize::from(at) * groups.len() / usize::from(area.width));
    let returns = (0..area.width).map(|at| column(at).map_or(f64::NAN, |group| group.mean_return));
    let each = || groups.iter().flat_map(|group| [group.least_return, group.most_return]);
    let head = self::head("return", &mut each(), &mut returns.clone());
    put(buffer, area.x, area.y + 1, right, &head, look.total());
    // Means stand where they are among all episodes: what varies by chance alone is flat.
    let at = Rect { y: area.y + 2, height: RETURN, ..area };
    bars_between(range(each()), returns, at, look.total(), buffer);
    let lengths = (0..area.width).map(|at| column(at).map_or(f64::NAN, |group| group.mean_length));
    let y = area.y + 2 + RETURN;
    let each = || groups.iter().flat_map(|group| [group.least_length, group.most_length]);
    let head = self::head("steps", &mut each(), &mut lengths.clone());
    put(buffer, area.x, y, right, &head, look.obs());
    let at = Rect { y: y + 1, height: LENGTH, ..area };
    bars_between(range(each()), lengths, at, look.obs(), buffer);
    for ((word, number), y) in env.counts().zip(y + 1 + LENGTH..area.bottom()) {
        put(buffer, area.x, y, right, word, look.faint());
        let part = number as f64 / total.max(1) as f64;
        let said = format!("{:>6.1} %  {}", part * 100.0, episodes(number));
        put(buffer, area.x + WORD, y, right, &said, Style::new());
        let from = (area.x + BAR).min(right);
        let width = (f64::from(right - from) * part).ceil() as u16;
        put(buffer, from, y, right, &"▪".repeat(width.into()), look.reward());
    }
}

/// Returns the line above bars: the spread of single episodes and, where a bar is of several, that of the means.
fn head(what: &str, each: &mut dyn Iterator<Item = f64>, means: &mut dyn Iterator<Item = f64>) -> String {
    let spread = |(least, most): (f64, f64)| format!("{} to {}", real(least), real(most));
    let (each, means) = (range(each), range(means));
    if each.0 > each.1 {
        return format!("{what}: none came to its end");
    }
    let of_means = if means == each { String::new() } else { format!(", means {}", spread(means)) };
    format!("{what} {}{of_means}", spread(each))
}

fn episodes(number: u64) -> String {
    format!("{} episode{}", count(number), if number == 1 { "" } else { "s" })
}

/// Rows of the plot of returns.
const RETURN: u16 = 6;
/// Rows of the plot of lengths.
const LENGTH: u16 = 3;
/// Column of the number of episodes with an outcome.
const WORD: u16 = 14;
/// Column in which the bar of an outcome begins.
const BAR: u16 = 42;
const LEAST_COLUMNS: u16 = 60;
const MOST_COLUMNS: u16 = 200;
/// Most envs that are shown.
const MOST_ENVS: usize = 100;

#[cfg(test)]
mod tests {
    use rollhouse_replay::EpisodeGroup;

    use super::*;

    /// Symptom: a plot of episodes that a random policy played went up and down over its whole height. Cause: bars went from
    /// the least mean to the greatest. Fix: they stand where means are among single episodes.
    #[test]
    fn means_that_vary_by_chance_are_flat_and_those_that_are_learned_rise() {
        let group = |mean: f64| EpisodeGroup {
            count: 100,
            started_ms: 0.0,
            mean_return: mean,
            least_return: 9.0,
            most_return: 500.0,
            mean_length: mean,
            least_length: 9.0,
            most_length: 500.0,
        };
        let heights = |means: &dyn Fn(usize) -> f64| {
            let groups = (0..60).map(|at| group(means(at))).collect();
            let env =
                EnvOverview { outcomes: [("terminated", 6000)].into(), groups, ..EnvOverview::default() };
            let text = overview_screen(&[("X".to_owned(), env)].into(), 60, Look::Plain).text(false);
            let bars: Vec<String> = text.lines().skip(2).take(RETURN.into()).map(str::to_owned).collect();
            (0..60)
                .map(|x| bars.iter().filter(|row| row.chars().nth(x).is_some_and(|cell| cell != ' ')).count())
                .collect::<Vec<_>>()
        };
        let random = heights(&|at| 22.0 + (at % 5) as f64);
        assert!(random.iter().all(|height| *height == random[0]), "{random:?}");
        let learned = heights(&|at| 22.0 + 8.0 * at as f64);
        assert!(learned[0] == 1 && learned[59] == usize::from(RETURN), "{learned:?}");
    }
}

//! The screen of an episode.

use std::borrow::Cow;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Rect, Size};
use ratatui_core::style::{Modifier, Style};
use rollhouse_env::{Image, RenderError};
use rollhouse_replay::Divergence;

use crate::drawn::Drawn;
use crate::graphics::Graphics;
use crate::look::Look;
use crate::marks::MarkKind;
use crate::numbers::{count, plain, real};
use crate::player::{Player, Prompt, STEPS_PER_SECOND};
use crate::{picture, plot};

/// Columns and rows of the smallest screen that anything is drawn on.
pub const LEAST: (u16, u16) = (80, 24);

/// Draws a player; `when` formats a moment in milliseconds since 1970.
pub fn draw(player: &Player<'_>, look: Look, when: &dyn Fn(u64) -> String, buffer: &mut Buffer) {
    let _none = draw_for(player, look, when, None, buffer);
}

/// Draws a player as [`draw`] does. If there are `graphics`, the terminal takes pictures of pixels: then the picture is
/// returned instead of being drawn, with the cells that are left empty for it.
pub(crate) fn draw_for(
    player: &Player<'_>,
    look: Look,
    when: &dyn Fn(u64) -> String,
    graphics: Option<&Graphics>,
    buffer: &mut Buffer,
) -> Option<(Image, Rect)> {
    let area = buffer.area;
    if area.width < LEAST.0 || area.height < LEAST.1 {
        too_small(area, buffer);
        return None;
    }
    title(player, look, when, area, buffer);
    let apart = body(player, look, graphics, area, buffer);
    status(player, look, Rect::new(area.x, area.bottom() - 1, area.width, 1), buffer);
    if player.shows_help() {
        help(look, area, buffer);
    }
    apart
}

/// Draws what stands between the title and the bar at the bottom: picture, values and timeline. A frame of a lane that
/// plays has no timeline.
pub(crate) fn body(
    player: &Player<'_>,
    look: Look,
    graphics: Option<&Graphics>,
    area: Rect,
    buffer: &mut Buffer,
) -> Option<(Image, Rect)> {
    let (left, right) = (area.x, area.right());
    let width = (area.width / 3).clamp(SIDE, WIDEST_SIDE);
    let below = if player.is_live() { 1 } else { BELOW };
    let side = Rect::new(right - width, area.y + TITLE, width, area.height - TITLE - below);
    let view = Rect::new(left, side.y, area.width - width - 1, side.height);
    // Help lies over the picture, for which it has to be made of cells.
    let apart =
        graphics.filter(|_| !player.shows_help()).and_then(|graphics| pixels_for(player, graphics, view));
    if apart.is_none() {
        picture_of(player, look, view, buffer);
    }
    values(player, look, side, buffer);
    if !player.is_live() {
        timeline(player, look, Rect::new(left, side.bottom(), area.width, BELOW - 1), buffer);
    }
    apart
}

/// Returns the step of an episode of `length` steps at a place of a screen of that size, if the timeline is there.
pub(crate) fn step_at(screen: Size, length: u64, place: Position) -> Option<u64> {
    let last = screen.width.checked_sub(1).filter(|_| (screen.width, screen.height) >= LEAST)?;
    let rows = screen.height.checked_sub(BELOW)?..screen.height - 1;
    let at = u128::from(place.x) * u128::from(length) + u128::from(last / 2);
    (rows.contains(&place.y) && place.x <= last).then(|| (at / u128::from(last)) as u64)
}

/// Renders the picture of pixels, and returns it with its place in `area`.
pub(crate) fn pixels_for(drawn: &impl Drawn, graphics: &Graphics, area: Rect) -> Option<(Image, Rect)> {
    let (cells, size) = graphics.fitted(area, drawn.form()?)?;
    drawn.render(size).ok().map(|image| (image, cells))
}

/// Says on the screen that it is too small.
pub(crate) fn too_small(area: Rect, buffer: &mut Buffer) {
    let (width, height) = LEAST;
    let line = format!("{}x{} is too small: {width}x{height} is wanted", area.width, area.height);
    put(buffer, area.x, area.y, area.right(), &line, Style::new());
}

/// Writes a line as far as it fits before `right`; returns the column after it. Every text of a screen passes here, and
/// is cleaned.
pub(crate) fn put(buffer: &mut Buffer, x: u16, y: u16, right: u16, text: &str, style: Style) -> u16 {
    if x >= right || y >= buffer.area.bottom() {
        return x;
    }
    buffer.set_stringn(x, y, plain(text), usize::from(right - x), style).0
}

pub(crate) fn title(
    player: &Player<'_>,
    look: Look,
    when: &dyn Fn(u64) -> String,
    area: Rect,
    buffer: &mut Buffer,
) {
    let (info, right) = (player.info(), area.right());
    let strong = look.strong().add_modifier(Modifier::BOLD);
    let x = put(buffer, area.x, area.y, right, &format!("{}  ", info.name), strong);
    let x = put(buffer, x, area.y, right, &format!("{}  ", plain(info.env())), Style::new());
    let outcome = if info.outcome.is_finished() { Style::new() } else { look.bad() };
    let word = if player.is_growing() { "● being recorded" } else { info.outcome.word() };
    let result = info.result.word().map_or_else(String::new, |word| format!(", {word}"));
    let x = put(buffer, x, area.y, right, &format!("{word}{result}  "), outcome);
    let total = info
        .total_reward
        .map_or_else(|| "return not known".into(), |total| format!("return {}", real(total)));
    let x = put(buffer, x, area.y, right, &format!("{total}  "), look.total());
    put(buffer, x, area.y, right, &format!("{} steps", count(info.length)), Style::new());
    let policy = info.policy();
    let fork = info.parent().map_or_else(String::new, |parent| format!("fork of {parent}, "));
    let by = format!(
        "{fork}recorded {} UTC by policy {}, version {}, {}",
        when(info.started_ms),
        plain(&policy.name),
        policy.version,
        plain(&info.run.program)
    );
    put(buffer, area.x, area.y + 1, right, &by, look.faint());
}

/// Draws the env's picture. Without colours it is made of characters, with a line of text under it.
pub(crate) fn picture_of(drawn: &impl Drawn, look: Look, area: Rect, buffer: &mut Buffer) {
    if look == Look::Plain
        && area.height > 1
        && let Ok(text) = drawn.text(usize::from(area.width))
    {
        let above = Rect { height: area.height - 1, ..area };
        let x = area.x + area.width.saturating_sub(text.len() as u16) / 2;
        put(buffer, x, above.bottom(), area.right(), &text, look.strong());
        return pixels_of(drawn, look, above, buffer);
    }
    pixels_of(drawn, look, area, buffer);
}

fn pixels_of(drawn: &impl Drawn, look: Look, area: Rect, buffer: &mut Buffer) {
    let image = drawn.form().and_then(|form| picture::fitted(area, form)).map(|size| drawn.render(size));
    let why = match (drawn.refused(), image) {
        (_, Some(Ok(image))) => return picture::draw(&image, area, look, buffer),
        (Some(why), _) => format!("Not recomputed: {why}."),
        (None, Some(Err(error))) if error != RenderError::Unsupported => format!("No picture: {error}."),
        (None, _) => format!("{} draws no picture of itself.", plain(drawn.env())),
    };
    let lines = wrapped(&why, usize::from(area.width.saturating_sub(4)));
    let top = area.y + area.height.saturating_sub(lines.len() as u16) / 2;
    for (line, y) in lines.iter().zip(top..area.bottom()) {
        let x = area.x + area.width.saturating_sub(line.chars().count() as u16) / 2;
        put(buffer, x, y, area.right(), line, look.faint());
    }
}

/// Shortens a name to at most `width` characters: its beginning and its end, in which the names of one env differ.
pub(crate) fn shortened(name: &str, width: usize) -> Cow<'_, str> {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= width {
        return name.into();
    }
    let (first, last) = (width / 2, width.saturating_sub(width / 2 + 1));
    chars[..first].iter().chain(&['…']).chain(&chars[chars.len() - last..]).collect::<String>().into()
}

/// Breaks text into lines of at most `width` characters, at spaces where there are any.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let Some(line) = lines.last_mut() else { return lines };
            let used = line.chars().count();
            let space = usize::from(used > 0);
            if used + space + word.len() <= width || used == 0 {
                line.extend((space > 0).then_some(' '));
                line.extend(word.drain(..word.len().min(width.max(1))));
                if word.is_empty() {
                    break;
                }
            }
            lines.push(String::new());
        }
    }
    lines
}

fn values(player: &Player<'_>, look: Look, area: Rect, buffer: &mut Buffer) {
    let (x, right) = (area.x, area.right());
    let spark = area.width - NAME - VALUE - 1;
    let step = player.step();
    let mut y = area.y;
    let mut line = |name: &str, value: &str, style: Style| {
        put(buffer, x, y, x + NAME, name, look.faint());
        put(buffer, x + NAME + 1, y, right, value, style);
        y += 1;
    };
    let length = player.info().length;
    let part = if length == 0 { 100.0 } else { player.at() as f64 * 100.0 / length as f64 };
    let first = player.first_step();
    let mut place = match player.is_live() {
        true => count(first),
        false if first > 0 => {
            format!("{} of {}, from {}", count(first + player.at()), count(first + length), count(first))
        }
        false => format!("{} of {} ({part:.1} %)", count(player.at()), count(length)),
    };
    if let Some(earlier) = player.earlier_picture() {
        place.push_str(&format!(", picture of {}", count(earlier)));
    }
    line("step", &place, look.strong());
    line("action", &player.action(), Style::new());
    line("return", &step.map_or_else(|| "-".into(), |step| real(step.total_reward)), look.total());
    let ended = match step.map(|step| (step.terminated, step.truncated)) {
        Some((true, true)) => "terminated, truncated",
        Some((true, false)) => "terminated",
        Some((false, true)) => "truncated",
        _ => "",
    };
    let reward = step.and_then(|step| step.reward);
    line("reward", &reward.map_or_else(|| "-".into(), real), look.reward());
    if !ended.is_empty() {
        put(buffer, x + NAME + 1 + VALUE, area.y + 3, right, ended, look.strong());
    } else {
        let rewards = player.history().iter().map(|moment| moment.reward);
        sparkline(rewards, Rect::new(x + NAME + VALUE + 1, area.y + 3, spark, 1), look.reward(), buffer);
    }
    let rows = usize::from(area.height) - 5;
    let (all, first) = (player.elements(), player.scrolled());
    let shown = rows.min(all.len().saturating_sub(first));
    for (row, (index, element)) in all.iter().enumerate().skip(first).take(shown).enumerate() {
        let y = area.y + 5 + row as u16;
        put(buffer, x, y, x + NAME, &shortened(&element.name, usize::from(NAME)), look.faint());
        let value = step.map_or_else(|| "-".into(), |step| real(element.value(step)));
        put(buffer, x + NAME + 1, y, right, &value, look.obs());
        let values =
            player.history().iter().map(|moment| moment.values.get(index).copied().unwrap_or(f64::NAN));
        sparkline(values, Rect::new(x + NAME + VALUE + 1, y, spark, 1), look.obs(), buffer);
    }
    let left = all.len() - first - shown;
    if left > 0 || first > 0 {
        let more = format!("↑↓ {} of {} elements", shown, all.len());
        put(buffer, x, area.y + 4, right, &more, look.faint());
    }
}

/// Draws the newest values, as many as fit.
pub(crate) fn sparkline(
    values: impl DoubleEndedIterator<Item = f64> + ExactSizeIterator + Clone,
    area: Rect,
    style: Style,
    buffer: &mut Buffer,
) {
    let hidden = values.len().saturating_sub(area.width.into());
    plot::bars(values.skip(hidden), area, style, buffer);
}

pub(crate) fn timeline(player: &Player<'_>, look: Look, area: Rect, buffer: &mut Buffer) {
    let (length, width) = (player.info().length, area.width);
    let Some(timeline) = player.timeline() else { return };
    let columns = plot::columns(timeline, length, width);
    let totals = columns.iter().map(|bucket| bucket.map_or(f64::NAN, |bucket| bucket.total_reward));
    // The reward of several steps that is farthest from 0.
    let rewards = columns.iter().map(|bucket| {
        bucket.map_or(f64::NAN, |bucket| if bucket.most > -bucket.least { bucket.most } else { bucket.least })
    });
    let (head, right) = (area.y, area.right());
    let (least, most) = plot::range(totals.clone());
    let (low, high) = plot::range(rewards.clone());
    let said = |low: f64, high: f64| {
        if low <= high { format!("{} to {}", real(low), real(high)) } else { String::new() }
    };
    let x = put(buffer, area.x, head, right, &format!("return {}   ", said(least, most)), look.total());
    let x = put(buffer, x, head, right, &format!("reward {}   ", said(low, high)), look.reward());
    if let Some(found) = player.divergence() {
        put(buffer, x, head, right, &differs(found), look.bad());
    } else if let Some(passed) = player.passing() {
        let passed = format!("reading: {} of {} steps", count(passed), count(length));
        put(buffer, x, head, right, &passed, look.faint());
    }
    plot::bars(totals, Rect::new(area.x, head + 1, width, 3), look.total(), buffer);
    plot::bars(rewards, Rect::new(area.x, head + 4, width, 1), look.reward(), buffer);
    let marks = head + 5;
    put(buffer, area.x, marks, right, &"─".repeat(width.into()), look.faint());
    for mark in player.marks() {
        let style = match mark.kind {
            MarkKind::Divergence | MarkKind::Loss | MarkKind::Recording => look.bad(),
            MarkKind::Start | MarkKind::Fork | MarkKind::Version | MarkKind::End => look.strong(),
        };
        let x = area.x + plot::column_of(mark.at, length, width);
        put(buffer, x, marks, right, mark.kind.sign(), style);
    }
    let x = area.x + plot::column_of(player.at(), length, width);
    put(buffer, x, marks, right, "▲", look.strong().add_modifier(Modifier::BOLD));
    for y in head + 1..marks {
        if let Some(cell) = buffer.cell_mut((x, y)).filter(|cell| cell.symbol() == " ") {
            cell.set_symbol("│").set_style(look.faint());
        }
    }
}

/// Says where what is recomputed differs from the recording.
fn differs(found: &Divergence) -> String {
    let first = if found.from == found.to { String::new() } else { format!("{} to ", count(found.from)) };
    format!("≠ {} differs in step {first}{}", plain(&found.field), count(found.to))
}

pub(crate) fn status(player: &Player<'_>, look: Look, area: Rect, buffer: &mut Buffer) {
    buffer.set_style(area, look.chosen());
    let (y, right) = (area.y, area.right());
    let asked = player.prompt().map(|(prompt, typed)| match prompt {
        Prompt::Step => format!(" go to step or percent: {typed}▏"),
        Prompt::Search => format!(" next step with, e.g. reward>0: {}▏", plain(typed)),
    });
    let looking = player.search().map(|(condition, at)| {
        format!(" looking for {condition}: step {} of {}, Esc ends", count(at), count(player.info().length))
    });
    if let Some(line) = asked.or(looking) {
        put(buffer, area.x, y, right, &line, look.chosen());
        return;
    }
    let sign = if player.is_playing() { "▶ playing" } else { "‖ paused " };
    let x = put(
        buffer,
        area.x,
        y,
        right,
        &format!(" {sign}  {:>5}  ", player.pace().speed_word()),
        look.chosen(),
    );
    let keys = "? help  q quit  space play  ←→ step  +- speed  g go to  n p episode";
    let line = player.message().unwrap_or(keys);
    put(buffer, x, y, right, line, look.chosen());
}

pub(crate) fn help(look: Look, area: Rect, buffer: &mut Buffer) {
    help_window(&HELP, &format!("Speed 1x is {STEPS_PER_SECOND} steps a second."), look, area, buffer);
}

/// Draws a window in the middle with keys, what they do, and a last line.
pub(crate) fn help_window(lines: &[(&str, &str)], last: &str, look: Look, area: Rect, buffer: &mut Buffer) {
    let widest = lines.iter().map(|(_, what)| what.chars().count()).max().unwrap_or(0);
    let width = u16::try_from(widest + 20).unwrap_or(u16::MAX).max(58).min(area.width);
    let height = (lines.len() as u16 + 4).min(area.height);
    let left = area.x + (area.width - width) / 2;
    let top = area.y + (area.height - height) / 2;
    let window = Rect::new(left, top, width, height);
    for y in window.top()..window.bottom() {
        put(buffer, left, y, window.right(), &" ".repeat(width.into()), Style::reset());
    }
    buffer.set_style(window, look.chosen());
    for ((key, what), y) in lines.iter().zip(top + 1..) {
        put(buffer, left + 2, y, window.right(), key, look.chosen().add_modifier(Modifier::BOLD));
        put(buffer, left + 18, y, window.right(), what, look.chosen());
    }
    put(buffer, left + 2, window.bottom() - 2, window.right(), last, look.chosen());
}

const HELP: [(&str, &str); 14] = [
    ("space", "play or pause"),
    ("← →, h l", "one step back, forward"),
    ("PgUp PgDn", "a tenth of the episode back, forward"),
    ("Home End", "the first, the last step"),
    ("g", "go to a step (120) or a percentage (50%)"),
    ("/", "next step with reward>0, return>=9, action=1, …"),
    ("[ ]", "the mark before, the next mark"),
    ("d", "where it differs first"),
    ("+ -", "twice, half as fast: 1/16x to 64x"),
    ("n p", "the next, the previous episode"),
    ("↑ ↓", "further elements of the observation"),
    ("marks", "├ start ┬ fork ▾ policy ■ end ✗ loss ● so far ≠ differs"),
    ("?", "this help"),
    ("q, Esc, Ctrl-C", "quit"),
];

/// Rows above the picture.
pub(crate) const TITLE: u16 = 3;
/// Rows below it: the timeline and the bar at the bottom.
pub(crate) const BELOW: u16 = 7;
/// Columns of the side beside the picture; on wider terminals a third of them, up to [`WIDEST_SIDE`].
pub(crate) const SIDE: u16 = 40;
/// Most columns of the side: wide enough for all steps that are remembered.
pub(crate) const WIDEST_SIDE: u16 = 92;
/// Columns of a name.
const NAME: u16 = 15;
/// Columns of a value, with the space before it.
const VALUE: u16 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_beginning_and_their_end() {
        assert_eq!(shortened("sin_angle_2", 11), "sin_angle_2");
        assert_eq!(shortened("angular_velocity_2", 15), "angular…ocity_2");
    }

    #[test]
    fn long_text_is_broken_at_spaces_and_long_words_anywhere() {
        assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrapped("abcdefg h", 3), ["abc", "def", "g h"]);
    }

    #[test]
    fn what_is_pointed_at_in_the_timeline_is_a_step_of_the_whole_episode() {
        let at = |x, y, length| step_at(Size::new(100, 24), length, Position::new(x, y));
        assert_eq!([at(0, 17, 500), at(99, 22, 500), at(50, 20, 500)], [Some(0), Some(500), Some(253)]);
        assert_eq!([at(0, 16, 500), at(0, 23, 500), at(100, 20, 500), at(0, 99, 500)], [None; 4]);
        assert_eq!([at(49, 20, 0), at(99, 20, u64::MAX)], [Some(0), Some(u64::MAX)]);
        assert_eq!(step_at(Size::new(79, 24), 5, Position::new(3, 20)), None);
    }
}

//! The list of episodes on the screen.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use rollhouse_replay::{EpisodeInfo, Label, RecordKind, SortKey};

use crate::browser::Browser;
use crate::look::Look;
use crate::numbers::{count, plain, real};
use crate::screen::{LEAST, put, shortened, too_small};

/// Returns the rows of the list on a screen of that height.
pub fn rows_of(height: u16) -> usize {
    height.saturating_sub(HEAD + FOOT).into()
}

/// Returns the row of the list at a line of the screen.
pub(crate) fn row_at(line: u16) -> Option<usize> {
    line.checked_sub(HEAD).map(usize::from)
}

/// Draws a list of the episodes in `place`; `when` formats a moment in milliseconds since 1970.
pub fn draw_list(
    browser: &Browser,
    place: &str,
    look: Look,
    when: &dyn Fn(u64) -> String,
    buffer: &mut Buffer,
) {
    let area = buffer.area;
    if area.width < LEAST.0 || area.height < LEAST.1 {
        return too_small(area, buffer);
    }
    let right = area.right();
    let x = put(buffer, area.x, area.y, right, "episodes in ", look.faint());
    put(buffer, x, area.y, right, &plain(place), Style::new());
    let x = put(buffer, area.x, area.y + 1, right, "filter: ", look.faint());
    let x = put(buffer, x, area.y + 1, right, &format!("{}▏", plain(browser.typed())), look.strong());
    if browser.typed().is_empty() {
        put(
            buffer,
            x + 1,
            area.y + 1,
            right,
            "type part of an env, an outcome, a result, a run, >=RETURN",
            look.faint(),
        );
    }
    heads(browser, look, Rect { y: area.y + 2, height: 1, ..area }, buffer);
    let (rows, chosen) = browser.rows();
    for (index, (row, y)) in rows.iter().zip(area.y + HEAD..area.bottom() - FOOT).enumerate() {
        let style = if index == chosen { look.chosen() } else { Style::new() };
        if index == chosen {
            buffer.set_style(Rect { y, height: 1, ..area }, style);
        }
        line(&cells(&row.info, when), y, style, area, buffer);
        let mark = mark_of(&row.info, browser.label(&row.info));
        put(buffer, right - 1, y, right, mark, style);
    }
    if rows.is_empty() {
        let why = browser.complaint().unwrap_or("there are no such episodes");
        put(buffer, area.x + 2, area.y + HEAD, right, why, look.bad());
    }
    let foot = area.bottom() - FOOT;
    if let Some(chosen) = browser.chosen() {
        put(buffer, area.x, foot, right, &preview(&chosen.info, browser.label(&chosen.info)), look.faint());
    }
    let (page, has_more) = browser.page();
    let more = if has_more { ", more" } else { "" };
    let keys = format!(" Enter play  ↑↓ PgUp PgDn  Tab, Shift-Tab order  Esc quit   page {page}{more}");
    let bar = Rect { y: foot + 1, height: 1, ..area };
    buffer.set_style(bar, look.chosen());
    let line = browser.note().map_or(keys, |note| format!(" {note}"));
    put(buffer, area.x, bar.y, right, &line, look.chosen());
}

fn heads(browser: &Browser, look: Look, area: Rect, buffer: &mut Buffer) {
    let sort = browser.sort();
    let key = match sort.key {
        SortKey::Name => "EPISODE",
        SortKey::Return => "RETURN",
        SortKey::Length => "STEPS",
        SortKey::Started => "STARTED (UTC)",
    };
    let sign = if sort.descending { "↓" } else { "↑" };
    let heads = COLUMNS.map(|(name, _)| if name == key { format!("{name}{sign}") } else { name.to_owned() });
    line(&heads, area.y, look.faint().add_modifier(Modifier::BOLD), area, buffer);
}

fn cells(info: &EpisodeInfo, when: &dyn Fn(u64) -> String) -> [String; COLUMNS.len()] {
    [
        info.name.to_string(),
        plain(info.env()),
        info.total_reward.map_or_else(|| "?".into(), real),
        count(info.length),
        info.outcome.word().to_owned(),
        when(info.started_ms),
    ]
}

fn line(cells: &[String; COLUMNS.len()], y: u16, style: Style, area: Rect, buffer: &mut Buffer) {
    // What a wide terminal has more goes to names of episodes and envs.
    let more = (area.width - LEAST.0).min(24) / 2;
    let mut x = area.x;
    for (index, (cell, (_, width))) in cells.iter().zip(COLUMNS).enumerate() {
        let right_aligned = (2..4).contains(&index);
        let width = width + if index < 2 { more } else { 0 };
        let cell = shortened(cell, width.into());
        let start = if right_aligned { x + width - cell.chars().count() as u16 } else { x };
        put(buffer, start, y, (x + width).min(area.right()), &cell, style);
        x += width + 1;
    }
}

/// Returns the mark of a row: `*` for a pinned episode, `┬` for a fork, `╤` for one that is both.
fn mark_of(info: &EpisodeInfo, label: Option<&Label>) -> &'static str {
    match (label.is_some_and(|label| label.pinned), info.parent()) {
        (true, None) => "*",
        (false, Some(_)) => "┬",
        (true, Some(_)) => "╤",
        (false, None) => "",
    }
}

/// Returns a line with what else is known of an episode.
fn preview(info: &EpisodeInfo, label: Option<&Label>) -> String {
    let fork = info.parent().map_or_else(String::new, |parent| format!("┬ fork of {parent}  "));
    let said = label.map_or_else(String::new, |label| {
        let pinned = if label.pinned { "* pinned  " } else { "" };
        let tags: Vec<String> = label.tags.iter().map(|tag| plain(tag.as_str())).collect();
        let tags = if tags.is_empty() { String::new() } else { format!("{}  ", tags.join(",")) };
        let note =
            label.note.as_ref().map_or_else(String::new, |note| format!("\"{}\"  ", plain(note.as_str())));
        format!("{pinned}{tags}{note}")
    });
    let recorded = match info.recorded() {
        RecordKind::ActionLog => "start and actions",
        RecordKind::Trace => "everything, can be recomputed",
        RecordKind::Full => "everything",
    };
    let policy = info.policy();
    let seed = info.seed().map_or_else(String::new, |seed| format!("  seed {seed}"));
    let (name, version) = (plain(&policy.name), policy.version);
    format!(
        "{said}{fork}policy {name}, version {version}{seed}  recorded: {recorded}  {}",
        plain(&info.run.program)
    )
}

/// Heads and widths of the columns: 79 cells with the gaps between them.
const COLUMNS: [(&str, u16); 6] =
    [("EPISODE", 15), ("ENV", 15), ("RETURN", 8), ("STEPS", 7), ("OUTCOME", 10), ("STARTED (UTC)", 19)];
/// Rows above the list.
const HEAD: u16 = 3;
/// Rows below it.
const FOOT: u16 = 2;

//! The screen of a cluster, drawn into cells.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use rollhouse_wire::ClusterStatus;

use crate::look::Look;
use crate::numbers::{count, plain, real};
use crate::screen::{LEAST, put, shortened, too_small};
use crate::top::{Sample, Shows, Top, TopAsk};

/// Returns the rows of the list on a screen of that height.
pub(crate) fn rows_of(height: u16) -> usize {
    height.saturating_sub(HEAD + FOOT).into()
}

/// Draws a cluster.
pub fn draw_top(top: &Top, look: Look, buffer: &mut Buffer) {
    let area = buffer.area;
    if area.width < LEAST.0 || area.height < LEAST.1 {
        return too_small(area, buffer);
    }
    let right = area.right();
    let x = put(buffer, area.x, area.y, right, "cluster ", look.faint());
    let x = put(buffer, x, area.y, right, &format!("{}  ", top.place), look.strong());
    match &top.sample {
        Some(sample) => glance(top, sample, x, look, area, buffer),
        None => {
            put(buffer, x, area.y, right, "asking the coordinator …", look.faint());
        }
    }
    let filter = if top.types_filter { format!("{}▏", top.filter) } else { top.filter.clone() };
    let what = match top.shows {
        Shows::Nodes => "nodes   ",
        Shows::Sessions => "sessions",
    };
    let x = put(buffer, area.x, area.y + 4, right, what, look.strong());
    if top.types_filter || !top.filter.is_empty() {
        put(buffer, x + 2, area.y + 4, right, &format!("filter: {}", plain(&filter)), look.strong());
    }
    list(top, look, area, buffer);
    foot(top, look, area, buffer);
    if top.shows_help {
        help(look, area, buffer);
    }
}

/// Draws the lines above the list.
fn glance(top: &Top, sample: &Sample, x: u16, look: Look, area: Rect, buffer: &mut Buffer) {
    let (status, rates, right) = (&sample.status, &top.rates, area.right());
    let up = format!("up {}, term {}, {}", time(status.uptime_s), status.term, plain(&status.program));
    put(buffer, x, area.y, right, &up, look.faint());
    let lanes = format!("lanes {} of {}", count(status.lanes.into()), count(status.capacity.into()));
    let sessions =
        format!("sessions {} in {}", count(status.sessions.into()), counted(status.pools.into(), "pool"));
    let line = format!("nodes {}   {lanes}   {sessions}", states(status));
    put(buffer, area.x, area.y + 1, right, &line, Style::new());
    let (steps, episodes) = rates.all.unzip();
    let x = put(buffer, area.x, area.y + 2, right, &format!("steps/s {:<9}", rate(steps)), look.total());
    let x = put(buffer, x, area.y + 2, right, &format!("episodes/s {:<9}", rate(episodes)), look.obs());
    let mean = rates.mean.map_or_else(|| "-".into(), real);
    let x = put(buffer, x, area.y + 2, right, &format!("mean return {mean:<10}"), look.reward());
    let queued: u64 = sample.nodes.0.iter().map(|node| u64::from(node.load.queued)).sum();
    put(buffer, x, area.y + 2, right, &format!("batches waiting {}", count(queued)), Style::new());
    let store = &status.store;
    let waiting: u64 = sample.nodes.0.iter().fold(0, |sum, node| sum.saturating_add(node.load.spool_bytes));
    let line = format!(
        "store {}B in {}, +{}B/s   to ship {}B",
        si(store.bytes as f64),
        counted(store.segments, "segment"),
        rate(rates.stored),
        si(waiting as f64)
    );
    let x = put(buffer, area.x, area.y + 3, right, &line, Style::new());
    let aside = store.quarantined + store.set_aside;
    if aside > 0 {
        put(buffer, x + 3, area.y + 3, right, &format!("set aside {}", count(aside)), look.bad());
    }
}

fn list(top: &Top, look: Look, area: Rect, buffer: &mut Buffer) {
    let columns = columns_of(top.shows);
    let (sorted, descending) = top.sort();
    let sign = if descending { "↓" } else { "↑" };
    let heads = columns.iter().enumerate().map(|(at, (name, ..))| match at == sorted {
        true => format!("{name}{sign}"),
        false => (*name).to_owned(),
    });
    let heads: Vec<String> = heads.collect();
    line(columns, &heads, area.y + HEAD - 1, look.faint().add_modifier(Modifier::BOLD), area, buffer);
    let rows = top.rows();
    let room = rows_of(area.height);
    for (row, y) in rows.iter().skip(top.list.first).take(room).zip(area.y + HEAD..) {
        let is_chosen = Some(&row.name) == top.list.chosen.as_ref();
        let style = match (is_chosen, row.is_bad) {
            (true, _) => look.chosen(),
            (false, true) => look.bad(),
            (false, false) => Style::new(),
        };
        if is_chosen {
            buffer.set_style(Rect { y, height: 1, ..area }, style);
        }
        line(columns, &row.cells, y, style, area, buffer);
    }
    if let (true, Some(sample)) = (rows.is_empty(), &top.sample) {
        let none = match (top.shows, sample.nodes.0.is_empty(), sample.sessions.0.is_empty()) {
            (Shows::Nodes, true, _) => "no node has joined",
            (Shows::Sessions, _, true) => "no session is open",
            _ => "the filter lets none through",
        };
        put(buffer, area.x + 2, area.y + HEAD, area.right(), none, look.faint());
    }
}

fn line(columns: &[Column], cells: &[String], y: u16, style: Style, area: Rect, buffer: &mut Buffer) {
    // What a wide terminal has more goes to names.
    let names = columns.iter().filter(|(.., is_name)| *is_name).count().max(1) as u16;
    let all = columns.iter().map(|(_, width, _)| width + 1).sum::<u16>().max(LEAST.0);
    let more = area.width.saturating_sub(all).min(20 * names) / names;
    let mut x = area.x;
    for (cell, &(_, width, is_name)) in cells.iter().zip(columns) {
        let width = width + if is_name { more } else { 0 };
        if x + width > area.right() {
            // Only the last one of sessions lies beyond the smallest screen.
            break;
        }
        let cell = shortened(cell, width.into());
        let start = if is_name { x } else { x + width - cell.chars().count() as u16 };
        put(buffer, start, y, (x + width).min(area.right()), &cell, style);
        x += width + 1;
    }
}

fn foot(top: &Top, look: Look, area: Rect, buffer: &mut Buffer) {
    let (y, right) = (area.bottom() - FOOT, area.right());
    let omitted = top.sample.as_ref().map_or(0, |sample| match top.shows {
        Shows::Nodes => sample.nodes.1,
        Shows::Sessions => sample.sessions.1,
    });
    if let Some((why, _)) = &top.away {
        put(
            buffer,
            area.x,
            y,
            right,
            &format!("the coordinator is away, what is shown is old: {why}"),
            look.bad(),
        );
    } else if let Some(message) = &top.message {
        put(buffer, area.x, y, right, message, look.strong());
    } else if omitted > 0 {
        put(
            buffer,
            area.x,
            y,
            right,
            &format!("{} more do not fit into a message", count(omitted.into())),
            look.faint(),
        );
    }
    let bar = Rect { y: y + 1, height: 1, ..area };
    buffer.set_style(bar, look.chosen());
    let keys = " ? help  q quit  Tab nodes/sessions  ↑↓ choose  ←→ r sort  / filter  d drain";
    let line = match &top.question {
        Some(TopAsk::Drain(node)) => {
            format!(" drain {}: it takes no new sessions and ends when its last has? y/n", plain(node))
        }
        Some(TopAsk::Undrain(node)) => format!(" take the drain of {} back? y/n", plain(node)),
        Some(TopAsk::Quit) | None => keys.to_owned(),
    };
    put(buffer, area.x, bar.y, right, &line, look.chosen());
}

fn help(look: Look, area: Rect, buffer: &mut Buffer) {
    let width = 72.min(area.width);
    let height = HELP.len() as u16 + 2;
    let window = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    for y in window.top()..window.bottom() {
        put(buffer, window.x, y, window.right(), &" ".repeat(width.into()), Style::reset());
    }
    buffer.set_style(window, look.chosen());
    for ((key, what), y) in HELP.iter().zip(window.y + 1..) {
        put(buffer, window.x + 2, y, window.right(), key, look.chosen().add_modifier(Modifier::BOLD));
        put(buffer, window.x + 16, y, window.right(), what, look.chosen());
    }
}

const HELP: [(&str, &str); 9] = [
    ("Tab", "nodes or sessions"),
    ("↑ ↓ PgUp PgDn", "choose a row"),
    ("← →", "sort by the column before, by the next one"),
    ("r", "turn the order round"),
    ("/", "list only rows with these words; Esc lists all"),
    ("d", "drain the chosen node, after a question (role admin)"),
    ("u", "take its drain back, after a question (role admin)"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
];

/// A column: its head, its width, and whether it has names, which stand at the left.
pub(crate) type Column = (&'static str, u16, bool);

pub(crate) const fn columns_of(shows: Shows) -> &'static [Column] {
    match shows {
        Shows::Nodes => &NODES,
        Shows::Sessions => &SESSIONS,
    }
}

/// Columns of nodes: at most 80 cells with the gaps between them.
const NODES: [Column; 8] = [
    ("NODE", 14, true),
    ("STATE", 8, true),
    ("LANES", 10, false),
    ("SESSIONS", 9, false),
    ("STEPS/S", 8, false),
    ("WAITING", 8, false),
    ("TO SHIP", 8, false),
    ("REPORT", 7, false),
];
/// Columns of sessions: the last one beyond 80 cells, for wider terminals.
const SESSIONS: [Column; 9] = [
    ("SESSION", 11, true),
    ("NODE", 10, true),
    ("ENV", 13, true),
    ("OWNER", 8, true),
    ("LANES", 6, false),
    ("STEPS/S", 8, false),
    ("EPIS/S", 7, false),
    ("RETURN", 8, false),
    ("PLAYS, LAG", 20, true),
];
/// Rows above the list, and below it.
const HEAD: u16 = 6;
const FOOT: u16 = 2;

/// Formats a number with a noun.
fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

fn states(status: &ClusterStatus) -> String {
    let states = status.nodes.iter().filter(|(_, count)| **count > 0);
    let states: Vec<String> = states.map(|(state, count)| format!("{count} {}", state.word())).collect();
    if states.is_empty() { "none".into() } else { states.join(", ") }
}

/// Formats a rate, or says that there is none yet.
pub(crate) fn rate(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), si)
}

/// Formats a quantity with a decimal prefix and three digits: `3.12M`.
pub(crate) fn si(mut value: f64) -> String {
    let mut prefix = "";
    for next in ["k", "M", "G", "T"] {
        // 999.5 would print as 1000.
        if value.abs() < 999.5 {
            break;
        }
        (value, prefix) = (value / 1000.0, next);
    }
    let decimals = match value.abs() {
        v if prefix.is_empty() && v == v.trunc() => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{prefix}")
}

fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_columns_fit_on_the_smallest_screen() {
        for columns in [&NODES[..], &SESSIONS[..8]] {
            let width: u16 = columns.iter().map(|(_, width, _)| width + 1).sum();
            assert!(width <= LEAST.0 + 1, "{width}");
        }
    }
}

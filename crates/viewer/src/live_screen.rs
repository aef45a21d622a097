//! The screen of a lane that is watched.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use rollhouse_env::Image;

use crate::graphics::Graphics;
use crate::live::Live;
use crate::look::Look;
use crate::numbers::{plain, real};
use crate::player::Player;
use crate::screen::{LEAST, body, help_window, put, too_small};

/// Draws a lane that is watched.
pub fn draw_live(live: &Live<'_>, look: Look, buffer: &mut Buffer) {
    let _none = draw_live_for(live, look, None, buffer);
}

/// Draws a lane as [`draw_live`] does. If there are `graphics`, the terminal takes pictures of pixels.
pub(crate) fn draw_live_for(
    live: &Live<'_>,
    look: Look,
    graphics: Option<&Graphics>,
    buffer: &mut Buffer,
) -> Option<(Image, Rect)> {
    let area = buffer.area;
    if area.width < LEAST.0 || area.height < LEAST.1 {
        too_small(area, buffer);
        return None;
    }
    let right = area.right();
    put(buffer, area.x, area.y, right, &live.title(), look.strong().add_modifier(Modifier::BOLD));
    let apart = match live.player() {
        Some(player) => {
            let info = player.info();
            let total = player.step().map_or_else(|| "-".into(), |step| real(step.total_reward));
            let x = put(buffer, area.x, area.y + 1, right, &format!("{}  ", plain(info.env())), Style::new());
            let x = put(buffer, x, area.y + 1, right, &format!("{}  ", info.name), look.faint());
            let x = put(buffer, x, area.y + 1, right, &format!("return {total}  "), look.total());
            let policy = format!("policy {}", plain(&info.policy().name));
            put(buffer, x, area.y + 1, right, &policy, look.faint());
            body(player, look, graphics, area, buffer)
        }
        None => {
            put(buffer, area.x, area.y + 3, right, "nothing of this lane was seen yet", look.faint());
            None
        }
    };
    let bar = Rect::new(area.x, area.bottom() - 1, area.width, 1);
    buffer.set_style(bar, look.chosen());
    put(buffer, bar.x, bar.y, right, &" ".repeat(bar.width.into()), look.chosen());
    put(buffer, bar.x, bar.y, right, &live.status(), look.chosen());
    if live.player().is_some_and(Player::shows_help) {
        let (lines, last): (&[_], _) = match live.is_recorded() {
            true => (&REPLAY_HELP, "All who watch this episode see the same step."),
            false => (&HELP, "The lane plays on while you look at its past."),
        };
        help_window(lines, last, look, area, buffer);
    }
    apart
}

/// Keys of a lane that plays.
const HELP: [(&str, &str); 8] = [
    ("space", "stop at the episode so far"),
    ("← h, Home", "also a step back, or its first step"),
    ("in the past", "← → PgUp PgDn g / + - as in a replay"),
    ("f, Esc", "live again; Esc while live quits"),
    ("n p", "the next, the previous lane"),
    ("↑ ↓", "further elements of the observation"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
];

/// Keys of a recorded episode that a node shows.
const REPLAY_HELP: [(&str, &str); 8] = [
    ("space", "play or pause, for all who watch"),
    ("← →, h l", "one step back, forward"),
    ("PgUp PgDn", "a tenth of the episode back, forward"),
    ("Home End", "the reset, the last step"),
    ("+ -", "while it plays: twice, half as fast"),
    ("↑ ↓", "further elements of the observation"),
    ("?", "this help"),
    ("q, Esc, Ctrl-C", "quit"),
];

//! Snapshots of the viewer's screen, without a terminal.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use crate::keys::{Event, Key};
use crate::look::Look;
use crate::player::Player;
use crate::screen::draw;
use crate::svg::svg_of;

/// Returns the screen of an episode, paused at the current step of `player`, as an SVG file of so many columns and
/// rows. Blocks until the whole episode has been passed.
pub fn snapshot(mut player: Player<'_>, when: &dyn Fn(u64) -> String, (columns, rows): (u16, u16)) -> String {
    let _all_of_it = player.pass(u64::MAX);
    if player.is_playing() {
        player.on(Event::Key(Key::Char(' ')));
    }
    let mut screen = Buffer::empty(Rect::new(0, 0, columns, rows));
    draw(&player, Look::Colour, when, &mut screen);
    svg_of(&screen)
}

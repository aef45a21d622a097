//! The screen of a game that is played by hand.

use std::cell::RefCell;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use rollhouse_env::Image;

use crate::controls::{Choice, Controls, Slider, Sliders};
use crate::drawn::Played;
use crate::game::Game;
use crate::graphics::Graphics;
use crate::hand::Hand;
use crate::look::Look;
use crate::numbers::{count, plain, real};
use crate::screen::{
    LEAST, SIDE, TITLE, WIDEST_SIDE, help_window, picture_of, pixels_for, put, shortened, sparkline,
    too_small,
};

/// Draws a game that is played by hand; `game` gives the picture.
pub fn draw_hand(hand: &Hand, game: &mut dyn Game, look: Look, buffer: &mut Buffer) {
    let _none = draw_hand_for(&Played { hand, game: RefCell::new(game) }, look, None, buffer);
}

/// Draws a game as [`draw_hand`] does. If there are `graphics`, the terminal takes pictures of pixels: then the picture
/// is returned instead of being drawn, with the cells that are left empty for it.
pub(crate) fn draw_hand_for(
    played: &Played<'_, '_>,
    look: Look,
    graphics: Option<&Graphics>,
    buffer: &mut Buffer,
) -> Option<(Image, Rect)> {
    let (hand, area) = (played.hand, buffer.area);
    if area.width < LEAST.0 || area.height < LEAST.1 {
        too_small(area, buffer);
        return None;
    }
    let width = (area.width / 3).clamp(SIDE, WIDEST_SIDE);
    let height = area.height - TITLE - CONTROLS - 1;
    let side = Rect::new(area.right() - width, area.y + TITLE, width, height);
    let view = Rect::new(area.x, side.y, area.width - width - 1, height);
    title(hand, look, area, buffer);
    let apart =
        graphics.filter(|_| !hand.shows_help()).and_then(|graphics| pixels_for(played, graphics, view));
    if apart.is_none() {
        picture_of(played, look, view, buffer);
    }
    values(hand, look, side, buffer);
    controls(hand, look, Rect::new(area.x, side.bottom(), area.width, CONTROLS), buffer);
    status(hand, look, Rect::new(area.x, area.bottom() - 1, area.width, 1), buffer);
    if hand.shows_help() {
        help(hand, look, area, buffer);
    }
    apart
}

fn title(hand: &Hand, look: Look, area: Rect, buffer: &mut Buffer) {
    let right = area.right();
    let strong = look.strong().add_modifier(Modifier::BOLD);
    let x = put(buffer, area.x, area.y, right, &format!("{}  ", hand.stands().name), strong);
    let x = put(buffer, x, area.y, right, &format!("{}  ", hand.env()), Style::new());
    if let Some(outcome) = hand.stands().outcome {
        put(buffer, x, area.y, right, outcome.word(), look.strong());
    }
    put(buffer, area.x, area.y + 1, right, hand.about(), look.faint());
}

fn values(hand: &Hand, look: Look, area: Rect, buffer: &mut Buffer) {
    let (x, right) = (area.x, area.right());
    let step = &hand.stands().step;
    let spark = Rect::new(x + NAME + VALUE + 1, area.y, area.width - NAME - VALUE - 1, 1);
    let reward = step.reward.map_or_else(|| "-".into(), real);
    let lines = [
        ("step", count(step.t), look.strong()),
        ("action", hand.last_action(), Style::new()),
        ("return", real(step.total_reward), look.total()),
        ("reward", reward, look.reward()),
    ];
    for ((name, value, style), y) in lines.iter().zip(area.y..) {
        put(buffer, x, y, x + NAME, name, look.faint());
        put(buffer, x + NAME + 1, y, right, value, *style);
    }
    let rewards = hand.history().iter().map(|(reward, _)| *reward);
    sparkline(rewards, Rect { y: area.y + 3, ..spark }, look.reward(), buffer);
    let rows = usize::from(area.height.saturating_sub(5));
    let (all, first) = (hand.elements(), hand.scrolled());
    for (row, (index, element)) in all.iter().enumerate().skip(first).take(rows).enumerate() {
        let y = area.y + 5 + row as u16;
        put(buffer, x, y, x + NAME, &shortened(&element.name, usize::from(NAME)), look.faint());
        put(buffer, x + NAME + 1, y, right, &real(element.value(step)), look.obs());
        let values = hand.history().iter().map(|(_, values)| values.get(index).copied().unwrap_or(f64::NAN));
        sparkline(values, Rect { y, ..spark }, look.obs(), buffer);
    }
    if all.len() > rows {
        let more = format!("PgUp PgDn: {} elements", all.len());
        put(buffer, x, area.y + 4, right, &more, look.faint());
    }
}

/// Draws the keys and what they choose.
fn controls(hand: &Hand, look: Look, area: Rect, buffer: &mut Buffer) {
    let line = "─".repeat(area.width.into());
    put(buffer, area.x, area.y, area.right(), &line, look.faint());
    let below = Rect { y: area.y + 1, height: area.height - 1, ..area };
    match hand.controls() {
        Controls::Sliders(sliders) if sliders.len() > FEW && !hand.commands().methods().is_empty() => {
            methods(hand.commands().methods(), look, below, buffer);
        }
        Controls::Choice(choice) => choices(choice, look, below, buffer),
        Controls::Sliders(sliders) => bars(sliders, look, below, buffer),
    }
}

/// Draws the names of methods one after the other, as far as there is room: those that commands begin with.
fn methods(names: &[String], look: Look, area: Rect, buffer: &mut Buffer) {
    let keys = "commands, as `:train_unit rifle`: Tab completes, ↑ brings back the last one";
    put(buffer, area.x, area.y, area.right(), keys, look.faint());
    let (mut x, mut y) = (area.x, area.y + 1);
    for name in names {
        let width = name.chars().count() as u16 + 2;
        if x + width > area.right() {
            (x, y) = (area.x, y + 1);
        }
        if y >= area.bottom() {
            return;
        }
        x = put(buffer, x, y, area.right(), &format!("{name}  "), Style::new());
    }
}

/// Draws the actions beside and below each other, the chosen one in reverse.
fn choices(choice: &Choice, look: Look, area: Rect, buffer: &mut Buffer) {
    let columns = (area.width / CHOICE).max(1);
    let rows = area.height - u16::from(choice.has_more_than_keys());
    let shown = choice.shown(usize::from(columns * rows));
    for (at, (text, is_chosen)) in (0..).zip(&shown) {
        let (x, y) = (area.x + at % columns * CHOICE, area.y + at / columns);
        let style = if *is_chosen { look.chosen().add_modifier(Modifier::BOLD) } else { Style::new() };
        put(buffer, x, y, x + CHOICE - 1, &format!(" {text} "), style);
    }
    if choice.has_more_than_keys() {
        let more = "Tab Shift-Tab: the next, the previous action";
        put(buffer, area.x, area.bottom() - 1, area.right(), more, look.faint());
    }
}

/// Draws the elements of an action below each other, each with its value between its bounds.
fn bars(sliders: &Sliders, look: Look, area: Rect, buffer: &mut Buffer) {
    let rows = area.height - 1;
    for (slider, y) in sliders.shown(rows.into()).zip(area.y..) {
        let Slider { name, index, is_chosen, .. } = slider;
        let name = name.map_or_else(|| format!("element {index}"), str::to_owned);
        let style = if is_chosen { look.chosen().add_modifier(Modifier::BOLD) } else { Style::new() };
        let text = format!(" {:<16} ", shortened(&name, 16));
        let x = put(buffer, area.x, y, area.right(), &text, style);
        let x = put(buffer, x, y, area.right(), &format!(" {:>9} ", real(slider.value)), look.strong());
        let Some(part) = slider.part() else { continue };
        let low = format!("{:>9} ", real(slider.low));
        let x = put(buffer, x, y, area.right(), &low, look.faint());
        let width = area.right().saturating_sub(x + 12);
        let x_end = put(buffer, x, y, area.right(), &"─".repeat(width.into()), look.faint());
        put(buffer, x_end, y, area.right(), &format!(" {}", real(slider.high)), look.faint());
        let mark = x + (part * f64::from(width.saturating_sub(1))).round() as u16;
        put(buffer, mark, y, area.right(), "█", look.total());
    }
    let more = if sliders.len() > usize::from(rows) {
        format!("  ({} elements)", sliders.len())
    } else {
        String::new()
    };
    let another = if sliders.len() > 1 { "↑↓ another element   " } else { "" };
    let keys = format!("←→ push   {another}0 nothing   Home End least, most{more}");
    put(buffer, area.x, area.bottom() - 1, area.right(), &keys, look.faint());
}

fn status(hand: &Hand, look: Look, area: Rect, buffer: &mut Buffer) {
    buffer.set_style(area, look.chosen());
    let (y, right) = (area.y, area.right());
    let sign = if hand.is_playing() { "▶ playing" } else { "‖ paused " };
    let text = format!(" {sign}  {:>5}  ", hand.pace().speed_word());
    let x = put(buffer, area.x, y, right, &text, look.chosen());
    if let Some(typed) = hand.commands().typed() {
        put(buffer, x, y, right, &plain(&format!(":{typed}_")), look.chosen());
        return;
    }
    let keys = match (hand.is_playing(), hand.can_begin_anew()) {
        (true, _) => "? help  q quit  space pause  +- speed",
        (false, true) => "? help  q quit  space play  . one step  r next episode",
        (false, false) => "? help  q quit  space play  . one step",
    };
    put(buffer, x, y, right, &plain(hand.message().unwrap_or(keys)), look.chosen());
}

fn help(hand: &Hand, look: Look, area: Rect, buffer: &mut Buffer) {
    let actions: &[(&str, &str)] = match hand.controls() {
        Controls::Choice(_) => &[
            ("arrows, 0 to 9", "choose an action, which stays chosen;"),
            ("", "while paused, take a step with it"),
            ("Tab, Shift-Tab", "the next, the previous action"),
        ],
        Controls::Sliders(_) => &[
            ("← →", "push an element of the action, to stay"),
            ("↑ ↓", "another element"),
            ("Home End 0", "the least, the most, nothing"),
        ],
    };
    let commands: &[(&str, &str)] = match hand.commands().methods() {
        [] => &[],
        _ => &[(":", "a command: a method and its arguments")],
    };
    let always: [(&str, &str); 7] = [
        ("space", "play or pause"),
        (". or Enter", "one step"),
        ("+ -", "twice, half as fast: 1/16x to 64x"),
        ("r", "end the episode and begin the next one"),
        ("PgUp PgDn", "further elements of the observation"),
        ("?", "this help"),
        ("q, Esc, Ctrl-C", "end; what was played is recorded"),
    ];
    let lines: Vec<_> = actions.iter().chain(commands).chain(&always).copied().collect();
    let last = format!("Speed 1x is {} steps a second.", real(hand.pace().usual()));
    help_window(&lines, &last, look, area, buffer);
}

/// Rows for the keys of actions, with the line above them.
const CONTROLS: u16 = 5;
/// Sliders that a person can overlook.
const FEW: usize = 32;
/// Columns of an action.
const CHOICE: u16 = 24;
/// Columns of a name in the list of values, and of a value.
const NAME: u16 = 15;
const VALUE: u16 = 11;

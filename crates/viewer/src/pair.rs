//! Two episodes side by side, at the same step.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use rollhouse_replay::{Difference, FieldDifference, Value, hash_digits};

use crate::keys::Event;
use crate::look::Look;
use crate::numbers::{count, plain, real};
use crate::player::{Ask, Player};
use crate::screen::{BELOW, LEAST, help, picture_of, put, status, timeline, title, too_small};

/// A pair of episodes that are played, paused and sought in together.
#[derive(Debug)]
pub struct Pair<'a> {
    left: Player<'a>,
    right: Player<'a>,
    /// The first difference between the two.
    difference: Option<Difference>,
}

impl<'a> Pair<'a> {
    /// Makes a pair, with `right` at the step of `left`. `difference` is the first difference between the two.
    pub fn new(left: Player<'a>, right: Player<'a>, difference: Option<Difference>) -> Self {
        let mut pair = Self { left, right, difference };
        let step = pair.difference.as_ref().map(|difference| difference.step);
        pair.longer_mut().0.mark_difference(step);
        pair.follow();
        pair
    }

    /// Handles an event; the caller carries out what it returns.
    pub fn on(&mut self, event: Event) -> Option<Ask> {
        let asked = self.longer_mut().0.on(event);
        self.follow();
        match asked {
            Some(Ask::Next | Ask::Previous) => {
                self.longer_mut().0.say("two episodes are compared: there is no next one");
                None
            }
            asked => asked,
        }
    }

    /// Passes at most `most` steps of each for the first time; returns true once there are no more.
    pub fn pass(&mut self, most: u64) -> bool {
        let left = self.left.pass(most);
        self.right.pass(most) && left
    }

    /// Returns the player with more steps, whose timeline is that of both.
    pub(crate) const fn longer(&self) -> &Player<'a> {
        if self.is_left_longer() { &self.left } else { &self.right }
    }

    /// Returns the longer player, and the other.
    const fn longer_mut(&mut self) -> (&mut Player<'a>, &mut Player<'a>) {
        if self.is_left_longer() {
            (&mut self.left, &mut self.right)
        } else {
            (&mut self.right, &mut self.left)
        }
    }

    const fn is_left_longer(&self) -> bool {
        self.left.info().length >= self.right.info().length
    }

    fn follow(&mut self) {
        let (longer, other) = self.longer_mut();
        other.follow(longer.at());
    }
}

/// Draws two episodes side by side; `when` formats a moment in milliseconds since 1970.
pub fn draw_pair(pair: &Pair<'_>, look: Look, when: &dyn Fn(u64) -> String, buffer: &mut Buffer) {
    let area = buffer.area;
    if area.width < LEAST.0 || area.height < LEAST.1 {
        return too_small(area, buffer);
    }
    let half = (area.width - 1) / 2;
    let halves = [area.x, area.right() - half].map(|x| Rect { x, width: half, ..area });
    let below = area.bottom() - BELOW;
    for (player, half) in [&pair.left, &pair.right].into_iter().zip(halves) {
        title(player, look, when, half, buffer);
        let top = half.y + 2;
        picture_of(player, look, Rect { y: top, height: below - top - VALUES, ..half }, buffer);
        values(player, look, Rect { y: below - VALUES, height: VALUES - 1, ..half }, buffer);
    }
    part(pair, look, Rect { y: below - 1, height: 1, ..area }, buffer);
    let longer = pair.longer();
    timeline(longer, look, Rect { y: below, height: BELOW - 1, ..area }, buffer);
    status(longer, look, Rect { y: area.bottom() - 1, height: 1, ..area }, buffer);
    if longer.shows_help() {
        help(look, area, buffer);
    }
}

/// Draws the values of one of them at its current step.
fn values(player: &Player<'_>, look: Look, area: Rect, buffer: &mut Buffer) {
    let (step, right) = (player.step(), area.right());
    let at = format!("step {} of {}  ", count(player.at()), count(player.info().length));
    let x = put(buffer, area.x, area.y, right, &at, look.strong());
    put(buffer, x, area.y, right, &format!("action {}", player.action()), Style::new());
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), real);
    let total = format!("return {}  ", number(step.map(|step| step.total_reward)));
    let x = put(buffer, area.x, area.y + 1, right, &total, look.total());
    let reward = format!("reward {}", number(step.and_then(|step| step.reward)));
    put(buffer, x, area.y + 1, right, &reward, look.reward());
}

/// Draws the first difference between the two.
fn part(pair: &Pair<'_>, look: Look, area: Rect, buffer: &mut Buffer) {
    let Some(Difference { step, fields }) = &pair.difference else {
        put(buffer, area.x, area.y, area.right(), "they are the same", look.faint());
        return;
    };
    let shown: Vec<String> = fields.iter().take(FIELDS).map(said).collect();
    let more = if fields.len() > FIELDS { " …" } else { "" };
    let line = format!("≠ they part at step {}: {}{more}", count(*step), shown.join(", "));
    put(buffer, area.x, area.y, area.right(), &line, look.bad());
}

fn said(field: &FieldDifference) -> String {
    let word = |value: &Value| match value {
        Value::Number(number) => real(*number),
        Value::Flag(flag) => flag.to_string(),
        Value::Text(text) => plain(text),
        Value::Nothing => "-".to_owned(),
        Value::Hash(hash) => hash_digits(*hash),
    };
    format!("{} {} | {}", plain(&field.field), word(&field.a), word(&field.b))
}

/// Rows between the pictures and the timeline.
const VALUES: u16 = 4;
/// Most values that are shown of the first step at which they differ.
const FIELDS: usize = 4;

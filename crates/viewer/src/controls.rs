//! Controls: keys that choose an action.

use rollhouse_core::{BoxSpace, ColumnData, DType, DiscreteSpace, Drawing, Space};

use crate::keys::Key;
use crate::numbers::plain;

/// The action that is chosen, and the keys that choose another one. It stays chosen until another key is pressed:
/// terminals do not tell when a key is released.
#[derive(Debug)]
pub(crate) enum Controls {
    /// One action is chosen out of several.
    Choice(Choice),
    /// The action consists of numbers; keys push one of them.
    Sliders(Sliders),
}

/// A choice of one action out of several.
#[derive(Debug)]
pub(crate) struct Choice {
    space: DiscreteSpace,
    names: Vec<String>,
    /// Keys other than the digits, and the actions they choose.
    arrows: Vec<(Key, u64)>,
    chosen: u64,
}

/// Sliders for the elements of an action.
#[derive(Debug)]
pub(crate) struct Sliders {
    dtype: DType,
    drawing: Drawing,
    names: Vec<String>,
    values: Vec<f64>,
    chosen: usize,
}

/// The effect of a key on the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// The key is none of the controls.
    No,
    /// The key chose an action.
    Chosen,
    /// The key moved to, or changed, an element of the action.
    Moved,
}

impl Controls {
    /// Makes the controls of an action space; the action that does least is chosen.
    pub(crate) fn new(space: &Space, names: &[String]) -> Self {
        let names: Vec<String> = names.iter().map(|name| plain(name)).collect();
        match space {
            Space::Discrete(space) => Self::Choice(Choice::new(*space, names)),
            Space::Box(space) => Self::Sliders(Sliders::new(space, names)),
        }
    }

    pub(crate) fn press(&mut self, key: Key) -> Pressed {
        match self {
            Self::Choice(choice) => choice.press(key),
            Self::Sliders(sliders) => sliders.press(key),
        }
    }

    /// Returns the action that is chosen: one row of the action column.
    pub(crate) fn action(&self) -> ColumnData {
        match self {
            Self::Choice(choice) => ColumnData::I64(vec![choice.value_of(choice.chosen)]),
            Self::Sliders(sliders) => sliders.action(),
        }
    }
}

impl Choice {
    fn new(space: DiscreteSpace, names: Vec<String>) -> Self {
        let mut arrows: Vec<(Key, u64)> = Vec::new();
        // Directions first, so that an action that does nothing takes no key from one that does.
        for meaning in [direction, nothing] {
            for (index, name) in (0..space.n).zip(&names) {
                let key = meaning(name).filter(|key| arrows.iter().all(|(taken, _)| taken != key));
                arrows.extend(key.map(|key| (key, index)));
            }
        }
        if arrows.is_empty() && space.n == 2 {
            arrows = vec![(Key::Left, 0), (Key::Right, 1)];
        }
        let idle = (0..space.n).zip(&names).find(|(_, name)| nothing(name).is_some());
        let chosen = idle.map_or(0, |(index, _)| index);
        Self { space, names, arrows, chosen }
    }

    fn press(&mut self, key: Key) -> Pressed {
        let last = self.space.n.saturating_sub(1);
        let chosen = match key {
            Key::Char(digit) => digit.to_digit(10).map(u64::from).filter(|&index| index <= last),
            Key::Tab => Some(if self.chosen < last { self.chosen + 1 } else { 0 }),
            Key::BackTab => Some(self.chosen.checked_sub(1).unwrap_or(last)),
            key => self.arrows.iter().find(|(arrow, _)| *arrow == key).map(|(_, index)| *index),
        };
        let Some(chosen) = chosen else { return Pressed::No };
        self.chosen = chosen;
        // Those on the way to another one are not meant.
        if matches!(key, Key::Tab | Key::BackTab) { Pressed::Moved } else { Pressed::Chosen }
    }

    const fn value_of(&self, index: u64) -> i64 {
        self.space.start.wrapping_add_unsigned(index)
    }

    /// Returns the first actions with their keys, as they are shown, each with whether it is chosen.
    pub(crate) fn shown(&self, most: usize) -> Vec<(String, bool)> {
        let most = most as u64;
        // One that is far behind is shown with those around it.
        let first = if self.chosen < most { 0 } else { self.chosen - most + 1 };
        let shown = (first..self.space.n).take(most as usize).map(|index| {
            let arrow = self.arrows.iter().find(|(_, of)| *of == index).map_or("", |(key, _)| sign(*key));
            let digit = if index < 10 { index.to_string() } else { String::new() };
            let value = self.value_of(index);
            let name = usize::try_from(index).ok().and_then(|index| self.names.get(index));
            let name = name.cloned().unwrap_or_else(|| format!("action {value}"));
            let or = if arrow.is_empty() || digit.is_empty() { "" } else { "/" };
            (format!("{arrow}{or}{digit} {name}"), index == self.chosen)
        });
        shown.collect()
    }

    /// Returns whether some actions have no key of their own and can only be reached one after another.
    pub(crate) const fn has_more_than_keys(&self) -> bool {
        self.space.n > 10
    }
}

/// Returns the arrow key for a name that contains a direction.
fn direction(name: &str) -> Option<Key> {
    words_of(name).find_map(|word| match &*word {
        "left" | "negative" => Some(Key::Left),
        "right" | "positive" => Some(Key::Right),
        "up" | "forward" => Some(Key::Up),
        "down" | "backward" => Some(Key::Down),
        _ => None,
    })
}

/// Returns the key for a name that says that nothing is done.
fn nothing(name: &str) -> Option<Key> {
    words_of(name)
        .any(|word| matches!(&*word, "none" | "no" | "noop" | "nothing" | "idle" | "stay" | "stop"))
        .then_some(Key::Down)
}

fn words_of(name: &str) -> impl Iterator<Item = String> {
    name.split(|char: char| !char.is_alphanumeric()).map(str::to_lowercase)
}

const fn sign(key: Key) -> &'static str {
    match key {
        Key::Left => "←",
        Key::Right => "→",
        Key::Up => "↑",
        Key::Down => "↓",
        _ => "",
    }
}

impl Sliders {
    fn new(space: &BoxSpace, names: Vec<String>) -> Self {
        let drawing = Drawing::of(space);
        let elements = space.shape.iter().product::<usize>().min(drawing.elements.len());
        let mut sliders = Self { dtype: space.dtype, drawing, names, values: vec![0.0; elements], chosen: 0 };
        for index in 0..elements {
            sliders.set(index, 0.0);
        }
        sliders
    }

    fn press(&mut self, key: Key) -> Pressed {
        let last = self.values.len().saturating_sub(1);
        let at = self.chosen;
        let Some(&value) = self.values.get(at) else { return Pressed::No };
        match key {
            Key::Left => self.set(at, value - self.push(at)),
            Key::Right => self.set(at, value + self.push(at)),
            Key::Up => self.chosen = at.saturating_sub(1),
            Key::Down => self.chosen = (at + 1).min(last),
            Key::Home if self.low(at).is_finite() => self.set(at, self.low(at)),
            Key::End if self.high(at).is_finite() => self.set(at, self.high(at)),
            Key::Char('0') => self.set(at, 0.0),
            _ => return Pressed::No,
        }
        Pressed::Moved
    }

    /// Returns how far a key pushes an element: a twentieth of its range, and at least 1 for whole numbers.
    fn push(&self, at: usize) -> f64 {
        let range = self.high(at) - self.low(at);
        let push = if range.is_finite() && range < WIDE { range / 20.0 } else { 0.1 };
        if self.is_whole(at) { push.round().max(1.0) } else { push }
    }

    fn low(&self, at: usize) -> f64 {
        self.drawing.elements[at].low
    }

    fn high(&self, at: usize) -> f64 {
        self.drawing.elements[at].high
    }

    fn is_whole(&self, at: usize) -> bool {
        self.drawing.elements[at].whole || !matches!(self.dtype, DType::F32 | DType::F64)
    }

    /// Sets an element to the value nearest to `value` that it may have.
    fn set(&mut self, at: usize, value: f64) {
        // What is pushed back to 0 comes there.
        let value = if value.abs() < self.push(at) * 1e-6 { 0.0 } else { value };
        let value = if self.is_whole(at) { value.round() } else { value };
        let value = value.clamp(-FARTHEST, FARTHEST).max(self.low(at)).min(self.high(at));
        self.values[at] = if value.is_finite() { value } else { 0.0 };
    }

    /// Returns the action: of texts and sequences as many items as the slider of their number says.
    fn action(&self) -> ColumnData {
        let values = self.values.iter();
        let mut action = match self.dtype {
            DType::Bool | DType::U8 => ColumnData::U8(values.map(|&value| value as u8).collect()),
            DType::I32 => ColumnData::I32(values.map(|&value| value as i32).collect()),
            DType::I64 => ColumnData::I64(values.map(|&value| value as i64).collect()),
            DType::F32 => ColumnData::F32(values.map(|&value| value as f32).collect()),
            DType::F64 => ColumnData::F64(self.values.clone()),
        };
        self.drawing.settling.settle(action.as_mut());
        action
    }

    /// Returns the sliders that are shown on `rows` rows: those around the one that is chosen.
    pub(crate) fn shown(&self, rows: usize) -> impl Iterator<Item = Slider<'_>> {
        let first = (self.chosen + 1).saturating_sub(rows.max(1));
        (first..self.values.len()).take(rows).map(|at| Slider {
            name: self.names.get(at).map(String::as_str),
            index: at,
            value: self.values[at],
            low: self.low(at),
            high: self.high(at),
            is_chosen: at == self.chosen,
        })
    }

    /// Returns the number of elements.
    pub(crate) const fn len(&self) -> usize {
        self.values.len()
    }
}

/// An element of an action as it is shown.
pub(crate) struct Slider<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) index: usize,
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) is_chosen: bool,
}

impl Slider<'_> {
    /// Returns the value's place between its least, 0, and its greatest, 1; `None` if those are not known.
    pub(crate) fn part(&self) -> Option<f64> {
        let range = self.high - self.low;
        let part = (self.value - self.low) / range;
        (range > 0.0 && range < WIDE).then(|| part.clamp(0.0, 1.0))
    }
}

/// Range from which on a number counts as unbounded.
const WIDE: f64 = 1e9;
/// Greatest value to which an unbounded number can be pushed.
const FARTHEST: f64 = 1e9;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rollhouse_core::TextSpace;

    use super::*;

    fn named(space: &Space, names: &[&str]) -> Controls {
        Controls::new(space, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    fn pressed(controls: &mut Controls, key: Key) -> ColumnData {
        controls.press(key);
        controls.action()
    }

    #[test]
    fn arrows_are_for_the_actions_whose_names_speak_of_them() {
        let mut paddle = named(&Space::discrete(3), &["none", "left", "right"]);
        assert_eq!(paddle.action(), ColumnData::I64(vec![0]));
        for (key, wanted) in [(Key::Left, 1), (Key::Down, 0), (Key::Right, 2), (Key::Char('1'), 1)] {
            assert_eq!(pressed(&mut paddle, key), ColumnData::I64(vec![wanted]), "{key:?}");
        }
        let mut arm = named(&Space::discrete(3), &["negative_torque", "no_torque", "positive_torque"]);
        assert_eq!(arm.action(), ColumnData::I64(vec![1]));
        assert_eq!(pressed(&mut arm, Key::Left), ColumnData::I64(vec![0]));
        assert_eq!(arm.press(Key::Up), Pressed::No);
        assert_eq!(arm.press(Key::Char('3')), Pressed::No);
    }

    #[test]
    fn actions_without_names_have_digits_and_those_beyond_are_come_to_one_after_another() {
        let mut two = named(&Space::Discrete(DiscreteSpace { n: 2, start: 5, own: None }), &[]);
        assert_eq!(pressed(&mut two, Key::Right), ColumnData::I64(vec![6]));
        let mut many = named(&Space::discrete(12), &[]);
        assert_eq!(pressed(&mut many, Key::BackTab), ColumnData::I64(vec![11]));
        assert_eq!(pressed(&mut many, Key::Tab), ColumnData::I64(vec![0]));
        let Controls::Choice(choice) = &many else { panic!("they are some") };
        assert_eq!(choice.shown(2), [("0 action 0".to_owned(), true), ("1 action 1".to_owned(), false)]);
    }

    #[test]
    fn arrows_push_one_element_of_a_box_within_its_bounds_and_back_to_nothing() {
        let mut force = named(&Space::f32_box(&[-1.0, 0.0], &[1.0, 1.0]), &["force", "brake"]);
        for _ in 0..3 {
            force.press(Key::Right);
        }
        assert_eq!(force.action(), ColumnData::F32(vec![0.3, 0.0]));
        for _ in 0..3 {
            force.press(Key::Left);
        }
        assert_eq!(force.action(), ColumnData::F32(vec![0.0, 0.0]));
        assert_eq!(pressed(&mut force, Key::Home), ColumnData::F32(vec![-1.0, 0.0]));
        force.press(Key::Down);
        assert_eq!(pressed(&mut force, Key::Left), ColumnData::F32(vec![-1.0, 0.0]));
        assert_eq!(pressed(&mut force, Key::End), ColumnData::F32(vec![-1.0, 1.0]));
    }

    #[test]
    fn a_text_is_made_of_its_characters_by_a_slider_for_each_and_one_for_their_number() {
        let text = TextSpace::new(0, 2, "yz".to_owned()).unwrap();
        let mut text = named(&Space::Box(BoxSpace::of_parts(text.into()).unwrap()), &[]);
        assert_eq!(text.action(), ColumnData::I64(vec![0, 0, 0]));
        for key in [Key::Right, Key::Down, Key::Down] {
            text.press(key);
        }
        assert_eq!(pressed(&mut text, Key::Right), ColumnData::I64(vec![122, 0, 1]));
        assert_eq!(pressed(&mut text, Key::Right), ColumnData::I64(vec![122, 121, 2]));
        assert_eq!(pressed(&mut text, Key::Right), ColumnData::I64(vec![122, 121, 2]));
    }

    proptest! {
        #[test]
        fn whatever_keys_are_pressed_the_action_is_one_of_the_space(
            keys in prop::collection::vec(0usize..12, 0..200),
            bounds in prop::collection::vec((-1e12f64..1e12, 0.0f64..1e12), 1..4),
            n in 1u64..20, start in -5i64..5, whole in any::<bool>(),
        ) {
            let known = [
                Key::Left, Key::Right, Key::Up, Key::Down, Key::Home, Key::End, Key::Tab, Key::BackTab,
                Key::Char('0'), Key::Char('7'), Key::Char('x'), Key::Enter,
            ];
            let space = BoxSpace {
                low: bounds.iter().map(|(low, _)| low.round()).collect::<Vec<_>>().into(),
                high: bounds
                    .iter()
                    .map(|(low, range)| (low.round() + range.round()).max(low.round()))
                    .collect::<Vec<_>>()
                    .into(),
                shape: vec![bounds.len()],
                dtype: if whole { DType::I64 } else { DType::F64 },
                choices: false,
                parts: None,
                own: None,
            };
            let mut sliders = Controls::new(&Space::Box(space.clone()), &[]);
            let mut choice = Controls::new(&Space::Discrete(DiscreteSpace { n, start, own: None }), &[]);
            for key in keys {
                sliders.press(known[key]);
                choice.press(known[key]);
                let action = sliders.action();
                for (at, (low, high)) in space.low.iter().zip(space.high.iter()).enumerate() {
                    prop_assert!((low..=high).contains(&action.number(at)), "{action:?}");
                }
                prop_assert!((start..start + n as i64).contains(&(choice.action().number(0) as i64)));
            }
        }
    }
}

//! A policy of uniformly random actions.

use rollhouse_core::{
    BoxSpace, ColumnMut, DType, DiscreteSpace, Drawing, ElementRange, EnvSpec, Settling, Space,
    random_bits_keyed, random_key, split_mix64,
};
use rollhouse_env::{Allow, allow_of};

use crate::{Act, ActError, Policy, SpaceError};

/// A policy that draws every action uniformly from the space.
///
/// An action is drawn from a counter hash of (run seed, lane, step), so actions depend neither on threads nor on the
/// order in which lanes are stepped, and any of them can be recomputed alone. One of `n` integers is taken from as few
/// bits as give it exactly where `n` is a power of two, so that neighbouring lanes share a word, else by scaling 32
/// bits (64 above 65,536 values), which prefers no value by more than `n` in 2^32. An element of a box takes 53 bits of
/// a word and scales them to `[low, high]` in double precision before it is rounded to the column's type. Of texts and
/// sequences in an action the number of items is drawn beside as many as there may be, of which the others are left out.
///
/// With an action mask it draws uniformly from what the mask allows, each choice from a word of its own; where the mask allows
/// nothing, as after the end of an episode, from all. Where an env shows masks of actions whose parts depend on each other, what was
/// drawn chooses among what they allow ([`Random::in_env`]).
#[derive(Debug, Clone)]
pub struct Random {
    key: u64,
    draw: Draw,
    allow: Option<Allow>,
}

impl Random {
    /// Makes the policy for one action space.
    ///
    /// # Errors
    /// If the space is not bounded on all sides or holds no value.
    pub fn new(space: &Space, run_seed: u64) -> Result<Self, SpaceError> {
        let draw = match space {
            Space::Discrete(DiscreteSpace { n: 0, .. }) => {
                return Err(SpaceError::Malformed { elements: 1, bounds: 0 });
            }
            Space::Discrete(space) => Draw::Discrete(*space),
            Space::Box(bounds) => {
                let Drawing { elements: ranges, settling } = Drawing::of(bounds);
                Draw::Box { dtype: bounds.dtype, elements: elements(bounds, &ranges)?, settling }
            }
        };
        Ok(Self { key: random_key(run_seed), draw, allow: None })
    }

    /// Adds that masks in the observations of an env are honoured, if it has some that [`allow_of`] knows.
    #[must_use]
    pub fn in_env(self, env: &EnvSpec) -> Self {
        Self { allow: allow_of(env), ..self }
    }
}

impl Policy for Random {
    fn name(&self) -> &str {
        "random"
    }

    fn version(&self) -> u64 {
        0
    }

    fn act(&mut self, request: Act<'_>) -> Result<(), ActError> {
        let Act { first_lane, step, obs, mask, mut actions } = request;
        let words = Words { key: self.key, first_lane, step };
        match (&self.draw, mask) {
            (Draw::Discrete(DiscreteSpace { n, start, .. }), Some(mask)) => {
                words.fill_allowed(&[Element::Integer { low: *start, count: *n }], mask, actions)
            }
            (Draw::Box { elements, .. }, Some(mask)) => words.fill_allowed(elements, mask, actions),
            (Draw::Discrete(space), None) => {
                let rows = actions.as_i64_mut().ok_or(ActError::DType { wanted: DType::I64 })?;
                words.fill_discrete(*space, rows);
                Ok(())
            }
            (Draw::Box { dtype, elements, settling }, None) => {
                words.fill_box(*dtype, elements, actions.reborrow())?;
                settling.settle(actions.reborrow());
                if let (Some(allow), Some(rows)) = (self.allow, actions.as_i64_mut()) {
                    allow(obs, rows);
                }
                Ok(())
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Draw {
    Discrete(DiscreteSpace),
    Box { dtype: DType, elements: Vec<Element>, settling: Settling },
}

/// Bits from which one of `n` integers is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bits {
    /// The low bits of a field of this many bits: `n` is a power of two.
    Exact(u32),
    /// 32 bits, scaled.
    Half,
    /// 64 bits, scaled.
    Whole,
}

const fn discrete_bits(n: u64) -> Bits {
    match n.trailing_zeros() {
        0 if n == 1 => Bits::Exact(1),
        log @ 1..=16 if n.is_power_of_two() => Bits::Exact(log.next_power_of_two()),
        _ if n <= 1 << 16 => Bits::Half,
        _ => Bits::Whole,
    }
}

/// Element of a box action.
#[derive(Debug, Clone, Copy)]
enum Element {
    /// `low + span * u`, at most `high`.
    Float { low: f64, high: f64 },
    /// One of `count` integers from `low`.
    Integer { low: i64, count: u64 },
}

fn elements(space: &BoxSpace, ranges: &[ElementRange]) -> Result<Vec<Element>, SpaceError> {
    let elements = space.shape.iter().product::<usize>();
    if elements == 0 || ranges.len() != elements {
        return Err(SpaceError::Malformed { elements, bounds: ranges.len() });
    }
    let drawn = ranges.iter().enumerate().map(|(element, &ElementRange { low, high, whole })| {
        // One beside quantities is whole all the same.
        let dtype = if whole { DType::I64 } else { space.dtype };
        Element::new(dtype, element, low, high)
    });
    drawn.collect()
}

impl Element {
    fn new(dtype: DType, element: usize, low: f64, high: f64) -> Result<Self, SpaceError> {
        if !low.is_finite() || !high.is_finite() || !(high - low).is_finite() {
            return Err(SpaceError::Unbounded { element, low, high });
        }
        if matches!(dtype, DType::F32 | DType::F64) {
            return if low <= high {
                Ok(Self::Float { low, high })
            } else {
                Err(SpaceError::Empty { element, low, high })
            };
        }
        let (least, most) = integer_range(dtype);
        // Both are integers within the type's range, or the range between them is empty.
        let (first, last) = (low.ceil().max(least), high.floor().min(most));
        if first > last {
            return Err(SpaceError::Empty { element, low, high });
        }
        let first = first as i64;
        Ok(Self::Integer { low: first, count: (last as i64).abs_diff(first).saturating_add(1) })
    }
}

/// Returns the least and the greatest value of an integer type, as doubles. The values of i64 round outwards, and the
/// cast back saturates.
const fn integer_range(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::Bool => (0.0, 1.0),
        DType::U8 => (0.0, u8::MAX as f64),
        DType::I32 => (i32::MIN as f64, i32::MAX as f64),
        DType::I64 | DType::F32 | DType::F64 => (i64::MIN as f64, i64::MAX as f64),
    }
}

/// Random words of one request.
#[derive(Debug, Clone, Copy)]
struct Words {
    key: u64,
    first_lane: u32,
    step: u64,
}

impl Words {
    /// Returns the word of the lane in that row.
    #[inline]
    const fn of(self, row: usize) -> u64 {
        random_bits_keyed(self.key, self.first_lane.wrapping_add(row as u32), self.step)
    }

    fn fill_discrete(self, space: DiscreteSpace, rows: &mut [i64]) {
        let DiscreteSpace { n, start, .. } = space;
        let low_bits = |field: u64| start.wrapping_add((field & (n - 1)) as i64);
        let scaled = |field: u64| start.wrapping_add((((field & LOW_HALF) * n) >> 32) as i64);
        match discrete_bits(n) {
            Bits::Exact(1) => self.fill_shared::<1>(rows, low_bits),
            Bits::Exact(2) => self.fill_shared::<2>(rows, low_bits),
            Bits::Exact(4) => self.fill_shared::<4>(rows, low_bits),
            Bits::Exact(8) => self.fill_shared::<8>(rows, low_bits),
            Bits::Exact(16) => self.fill_shared::<16>(rows, low_bits),
            Bits::Half => self.fill_shared::<32>(rows, scaled),
            Bits::Exact(_) | Bits::Whole => {
                for (row, action) in rows.iter_mut().enumerate() {
                    *action = start.wrapping_add(below(self.of(row), n) as i64);
                }
            }
        }
    }

    /// Fills rows from words that `64 / WIDTH` neighbouring lanes share; `value` gets a word with the lane's
    /// bits lowest. The width is a constant so that every shift is one.
    #[inline]
    fn fill_shared<const WIDTH: u32>(self, rows: &mut [i64], value: impl Fn(u64) -> i64) {
        let share = u64::BITS / WIDTH;
        let place = self.first_lane % share;
        let head = rows.len().min(((share - place) % share) as usize);
        let (head, body) = rows.split_at_mut(head);
        let few = |first_row: usize, place: u32, rows: &mut [i64]| {
            let mut word = self.of(first_row.wrapping_sub(place as usize)) >> (place * WIDTH);
            for action in rows {
                *action = value(word);
                word >>= WIDTH;
            }
        };
        let mut row = head.len();
        if row > 0 {
            few(0, place, head);
        }
        let mut groups = body.chunks_exact_mut(share as usize);
        for group in &mut groups {
            let word = self.of(row);
            for (lane, action) in (0..).zip(group.iter_mut()) {
                *action = value(word >> (lane * WIDTH));
            }
            row += group.len();
        }
        few(row, 0, groups.into_remainder());
    }

    /// Fills rows with choices that the masks allow; a mask has the choices of all elements of an action, one after the other.
    fn fill_allowed(self, elements: &[Element], mask: &[u8], actions: ColumnMut<'_>) -> Result<(), ActError> {
        let given = actions.as_ref().len();
        let choices: usize = elements.iter().map(|element| element.count() as usize).sum();
        let rows = given / elements.len();
        if !given.is_multiple_of(elements.len()) || mask.len() != rows * choices {
            return Err(ActError::Mask { wanted: rows * choices, given: mask.len() });
        }
        match actions {
            ColumnMut::I64(rows) => self.fill_choices(elements, mask, rows, |choice| choice),
            ColumnMut::U8(rows) => self.fill_choices(elements, mask, rows, |choice| choice as u8),
            _ => return Err(ActError::DType { wanted: DType::I64 }),
        }
        Ok(())
    }

    fn fill_choices<T>(self, elements: &[Element], mask: &[u8], rows: &mut [T], cast: impl Fn(i64) -> T) {
        let mut left = mask;
        for (row, action) in rows.chunks_exact_mut(elements.len()).enumerate() {
            let word = self.of(row);
            for (k, (value, element)) in action.iter_mut().zip(elements).enumerate() {
                let (allowed, rest) = left.split_at(element.count() as usize);
                left = rest;
                let word = split_mix64(word.wrapping_add(k as u64));
                *value = cast(element.first().wrapping_add(chosen(allowed, word) as i64));
            }
        }
    }

    fn fill_box(self, dtype: DType, elements: &[Element], actions: ColumnMut<'_>) -> Result<(), ActError> {
        let given = actions.as_ref().len();
        if !given.is_multiple_of(elements.len()) {
            return Err(ActError::Rows { elements: elements.len(), given });
        }
        match (dtype, actions) {
            (DType::F32, ColumnMut::F32(rows)) => {
                self.fill_rows(elements, rows, |e, word| {
                    (e.float(word) as f32).clamp(e.low() as f32, e.high() as f32)
                });
            }
            (DType::F64, ColumnMut::F64(rows)) => self.fill_rows(elements, rows, |e, word| match e {
                Element::Float { .. } => e.float(word),
                Element::Integer { .. } => e.integer(word) as f64,
            }),
            (DType::Bool | DType::U8, ColumnMut::U8(rows)) => {
                self.fill_rows(elements, rows, |e, word| e.integer(word) as u8);
            }
            (DType::I32, ColumnMut::I32(rows)) => {
                self.fill_rows(elements, rows, |e, word| e.integer(word) as i32)
            }
            (DType::I64, ColumnMut::I64(rows)) => self.fill_rows(elements, rows, |e, word| e.integer(word)),
            (wanted, _) => return Err(ActError::DType { wanted }),
        }
        Ok(())
    }

    /// Fills rows of several elements. Element 0 of an action draws from its lane's word, element k from that word plus
    /// k mixed once more.
    fn fill_rows<T>(self, elements: &[Element], rows: &mut [T], draw: impl Fn(Element, u64) -> T) {
        for (row, action) in rows.chunks_exact_mut(elements.len()).enumerate() {
            let word = self.of(row);
            for (k, (value, &element)) in action.iter_mut().zip(elements).enumerate() {
                let word = if k == 0 { word } else { split_mix64(word.wrapping_add(k as u64)) };
                *value = draw(element, word);
            }
        }
    }
}

impl Element {
    #[inline]
    fn float(self, word: u64) -> f64 {
        let unit = (word >> 11) as f64 * UNIT;
        (self.low() + (self.high() - self.low()) * unit).min(self.high())
    }

    #[inline]
    const fn integer(self, word: u64) -> i64 {
        match self {
            Self::Float { low, .. } => low as i64,
            Self::Integer { low, count } => low.wrapping_add(below(word, count) as i64),
        }
    }

    /// Returns the number of values, 0 for a quantity.
    const fn count(self) -> u64 {
        match self {
            Self::Float { .. } => 0,
            Self::Integer { count, .. } => count,
        }
    }

    /// Returns the least value.
    const fn first(self) -> i64 {
        match self {
            Self::Float { low, .. } => low as i64,
            Self::Integer { low, .. } => low,
        }
    }

    #[inline]
    const fn low(self) -> f64 {
        match self {
            Self::Float { low, .. } => low,
            Self::Integer { low, .. } => low as f64,
        }
    }

    #[inline]
    const fn high(self) -> f64 {
        match self {
            Self::Float { high, .. } => high,
            Self::Integer { low, count } => low as f64 + count as f64,
        }
    }
}

/// Chooses one of the places whose flag is set, or of all if none is.
fn chosen(allowed: &[u8], word: u64) -> u64 {
    let count = allowed.iter().filter(|&&flag| flag != 0).count();
    if count == 0 {
        return below(word, allowed.len() as u64);
    }
    let mut places = (0..).zip(allowed).filter(|(_, flag)| **flag != 0).map(|(place, _)| place);
    places.nth(below(word, count as u64) as usize).unwrap_or(0)
}

/// Scales a word to `0 .. n`.
#[inline]
const fn below(word: u64, n: u64) -> u64 {
    ((word as u128 * n as u128) >> 64) as u64
}

/// Bits that a scaled 32-bit draw uses.
const LOW_HALF: u64 = 0xFFFF_FFFF;

/// Distance of neighbouring random units, 2^-53.
const UNIT: f64 = 1.0 / (1u64 << 53) as f64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_core::{CompositeSpace, SequenceSpace, TextSpace, random_bits};

    fn discrete(policy: &mut Random, first_lane: u32, step: u64, lanes: usize) -> Vec<i64> {
        let mut rows = vec![-1; lanes];
        policy
            .act(Act { first_lane, step, obs: &[], mask: None, actions: ColumnMut::I64(&mut rows) })
            .unwrap();
        rows
    }

    #[test]
    fn choices_beside_quantities_are_whole_and_each_is_drawn() {
        let parts = [("move", Space::discrete(3)), ("push", Space::f32_box(&[-1.0], &[1.0]))];
        let spaces = parts.map(|(name, space)| (name.to_owned(), space.into())).into();
        let carrier = BoxSpace::of_parts(CompositeSpace::Dict { spaces }).unwrap();
        assert_eq!(carrier.dtype, DType::F64);
        let mut policy = Random::new(&Space::Box(carrier), 1).unwrap();
        let mut rows = vec![9.0; 400];
        let actions = ColumnMut::F64(&mut rows);
        policy.act(Act { first_lane: 0, step: 3, obs: &[], mask: None, actions }).unwrap();
        for choice in [0.0, 1.0, 2.0] {
            assert!(rows.chunks(2).any(|action| action[0] == choice), "{choice}");
        }
        assert!(rows.chunks(2).all(|action| [0.0, 1.0, 2.0].contains(&action[0]) && action[1].abs() <= 1.0));
        assert!(rows.chunks(2).any(|action| action[1].fract() != 0.0));
    }

    #[test]
    fn random_texts_and_sequences_are_of_their_space_and_each_length_and_character_is_drawn() {
        let text = TextSpace::new(1, 3, "aβ".to_owned()).unwrap();
        let moves =
            SequenceSpace::new(Space::Discrete(DiscreteSpace { n: 2, start: 5, own: None }), 2, false)
                .unwrap();
        let push = Space::f32_box(&[-1.0], &[1.0]);
        for beside in [None, Some(push)] {
            let mut spaces =
                vec![CompositeSpace::from(text.clone()).into(), CompositeSpace::from(moves.clone()).into()];
            let is_float = beside.is_some();
            spaces.extend(beside.map(Into::into));
            let carrier = BoxSpace::of_parts(CompositeSpace::Tuple { spaces }).unwrap();
            let width = carrier.shape[0];
            let mut policy = Random::new(&Space::Box(carrier), 1).unwrap();
            let (mut whole, mut double) = (vec![9; 4000 * width], vec![9.0; 4000 * width]);
            let actions = if is_float { ColumnMut::F64(&mut double) } else { ColumnMut::I64(&mut whole) };
            policy.act(Act { first_lane: 0, step: 3, obs: &[], mask: None, actions }).unwrap();
            if is_float {
                whole = double.iter().map(|&value| value as i64).collect();
            }
            let mut seen = std::collections::BTreeSet::new();
            for (row, double) in whole.chunks(width).zip(double.chunks(width)) {
                let (said, count) = (&row[..3], row[3] as usize);
                assert!((1..=3).contains(&count) && said[count..].iter().all(|&code| code == 0), "{row:?}");
                assert!(said[..count].iter().all(|&code| [97, 946].contains(&code)), "{row:?}");
                let (done, count) = (&row[4..6], row[6] as usize);
                assert!(count <= 2 && done[count..].iter().all(|&item| item == 0), "{row:?}");
                assert!(done[..count].iter().all(|&item| [5, 6].contains(&item)), "{row:?}");
                seen.insert((said.to_vec(), row[3], done.to_vec(), row[6]));
                assert!(!is_float || double[..7].iter().all(|value| value.fract() == 0.0));
            }
            // 2 + 4 + 8 texts, 1 + 2 + 4 sequences.
            assert_eq!(seen.len(), 14 * 7);
        }
        let none = TextSpace::new(1, 3, String::new()).unwrap();
        let none = BoxSpace::of_parts(none.into()).unwrap();
        assert!(matches!(Random::new(&Space::Box(none), 1), Err(SpaceError::Empty { element: 3, .. })));
    }

    #[test]
    fn each_element_of_an_action_has_its_part_of_the_mask() {
        let mut both = space(DType::I64, &[0.0, 3.0], &[2.0, 4.0]);
        if let Space::Box(both) = &mut both {
            both.choices = true;
        }
        let mut policy = Random::new(&both, 1).unwrap();
        let mask = [0, 1, 0, 0, 1].repeat(50);
        let mut rows = vec![0; 100];
        policy
            .act(Act {
                first_lane: 0,
                step: 3,
                obs: &[],
                mask: Some(&mask),
                actions: ColumnMut::I64(&mut rows),
            })
            .unwrap();
        assert!(rows.chunks(2).all(|action| action == [1, 4]));
        let mask = [1, 1, 0, 1, 1].repeat(50);
        policy
            .act(Act {
                first_lane: 0,
                step: 3,
                obs: &[],
                mask: Some(&mask),
                actions: ColumnMut::I64(&mut rows),
            })
            .unwrap();
        for choice in [[0, 3], [0, 4], [1, 3], [1, 4]] {
            assert!(rows.chunks(2).any(|action| action == choice), "{choice:?}");
        }
    }

    fn space(dtype: DType, low: &[f64], high: &[f64]) -> Space {
        Space::Box(BoxSpace {
            low: low.to_vec().into(),
            high: high.to_vec().into(),
            shape: vec![low.len()],
            dtype,
            choices: false,
            parts: None,
            own: None,
        })
    }

    proptest! {
        #[test]
        fn discrete_actions_lie_in_the_space(n in prop_oneof![1u64..20, 1u64..=1 << 40], start in -1000i64..1000, seed: u64, step: u64) {
            let space = Space::Discrete(DiscreteSpace { n, start, own: None });
            let rows = discrete(&mut Random::new(&space, seed).unwrap(), 0, step, 70);
            prop_assert!(rows.iter().all(|&a| a >= start && a < start + n as i64));
        }

        #[test]
        fn what_a_mask_allows_is_chosen_and_each_of_it_alike(
            n in 1u64..12, start in -5i64..5, masks in proptest::collection::vec(any::<u16>(), 40), seed: u64,
        ) {
            let mut policy = Random::new(&Space::Discrete(DiscreteSpace { n, start, own: None }), seed).unwrap();
            let allows = |lane: usize, action: i64| masks[lane] >> (action - start) & 1 == 1;
            let mask: Vec<u8> =
                masks.iter().flat_map(|mask| (0..n).map(move |bit| (mask >> bit & 1) as u8)).collect();
            let mut rows = vec![start - 1; masks.len()];
            for step in 0..20 {
                let actions = ColumnMut::I64(&mut rows);
                policy.act(Act { first_lane: 0, step, obs: &[], mask: Some(&mask), actions }).unwrap();
                for (lane, &action) in rows.iter().enumerate() {
                    prop_assert!(action >= start && action < start + n as i64);
                    let nothing = (0..n as i64).all(|bit| !allows(lane, start + bit));
                    prop_assert!(nothing || allows(lane, action), "{action}");
                }
            }
            let short = policy.act(Act {
                first_lane: 0, step: 0, obs: &[], mask: Some(&mask[1..]), actions: ColumnMut::I64(&mut rows),
            });
            prop_assert_eq!(short, Err(ActError::Mask { wanted: mask.len(), given: mask.len() - 1 }));
        }

        #[test]
        fn lanes_take_their_own_bits_of_the_word_they_share(log in 1u32..=16, first in 0u32..200, seed: u64) {
            let width = log.next_power_of_two();
            let share = 64 / width;
            let rows = discrete(&mut Random::new(&Space::discrete(1 << log), seed).unwrap(), first, 5, 130);
            for (lane, action) in (first..).zip(rows) {
                let word = random_bits(seed, lane / share * share, 5);
                prop_assert_eq!(action, (word >> (lane % share * width) & ((1 << log) - 1)) as i64);
            }
        }

        #[test]
        fn a_batch_may_be_cut_into_requests_anywhere(cut in 0usize..=100, n in prop_oneof![1u64..20, Just(1 << 20), Just(70_000)], seed: u64, step: u64) {
            let mut policy = Random::new(&Space::discrete(n), seed).unwrap();
            let whole = discrete(&mut policy, 5, step, 100);
            let mut parts = discrete(&mut policy, 5, step, cut);
            parts.extend(discrete(&mut policy, 5 + cut as u32, step, 100 - cut));
            prop_assert_eq!(whole, parts);
        }

        #[test]
        fn box_actions_lie_in_their_bounds(
            pairs in prop::collection::vec((-1e30f64..1e30, 0.0f64..1e30), 1..6), seed: u64, step: u64,
        ) {
            // Bounds of a float32 space are float32 values.
            let low: Vec<f64> = pairs.iter().map(|p| f64::from(p.0 as f32)).collect();
            let high: Vec<f64> = pairs.iter().map(|p| f64::from((p.0 + p.1) as f32)).collect();
            let mut rows = vec![f32::NAN; 33 * low.len()];
            let mut policy = Random::new(&space(DType::F32, &low, &high), seed).unwrap();
            policy.act(Act { first_lane: 0, step, obs: &[], mask: None, actions: ColumnMut::F32(&mut rows) }).unwrap();
            for row in rows.chunks(low.len()) {
                for ((&value, &low), &high) in row.iter().zip(&low).zip(&high) {
                    prop_assert!(f64::from(value) >= low && f64::from(value) <= high, "{value} in {low} {high}");
                }
            }
        }

        #[test]
        fn integer_boxes_yield_integers_between_their_bounds(low in -40.5f64..40.0, width in 1.0f64..40.0, seed: u64) {
            let mut rows = [i32::MAX; 64];
            let mut policy = Random::new(&space(DType::I32, &[low], &[low + width]), seed).unwrap();
            policy.act(Act { first_lane: 0, step: 0, obs: &[], mask: None, actions: ColumnMut::I32(&mut rows) }).unwrap();
            prop_assert!(rows.iter().all(|&a| f64::from(a) >= low && f64::from(a) <= low + width));
        }
    }

    #[test]
    fn every_value_comes_up_about_equally_often() {
        let mut policy = Random::new(&Space::discrete(3), 11).unwrap();
        let mut counts = [0u32; 3];
        for step in 0..1000 {
            for action in discrete(&mut policy, 0, step, 60) {
                counts[action as usize] += 1;
            }
        }
        // 60,000 draws: the standard deviation of a count is 115.
        assert!(counts.iter().all(|&c| c.abs_diff(20_000) < 600), "{counts:?}");
    }

    #[test]
    fn box_actions_reach_into_every_tenth_of_their_range() {
        let mut policy = Random::new(&space(DType::F64, &[-1.0, 2.0], &[1.0, 4.0]), 3).unwrap();
        let mut rows = vec![0.0; 2 * 2000];
        policy
            .act(Act { first_lane: 0, step: 9, obs: &[], mask: None, actions: ColumnMut::F64(&mut rows) })
            .unwrap();
        let mut counts = [[0u32; 10]; 2];
        for row in rows.chunks(2) {
            counts[0][((row[0] + 1.0) * 5.0) as usize] += 1;
            counts[1][((row[1] - 2.0) * 5.0) as usize] += 1;
        }
        assert!(counts.iter().flatten().all(|&c| (130..270).contains(&c)), "{counts:?}");
    }

    #[test]
    fn spaces_without_a_uniform_distribution_are_refused() {
        let unbounded = space(DType::F32, &[0.0, 0.0], &[1.0, f64::INFINITY]);
        assert!(matches!(Random::new(&unbounded, 0), Err(SpaceError::Unbounded { element: 1, .. })));
        let reversed = space(DType::F32, &[1.0], &[0.0]);
        assert!(matches!(Random::new(&reversed, 0), Err(SpaceError::Empty { element: 0, .. })));
        let between = space(DType::I32, &[0.2], &[0.8]);
        assert!(matches!(Random::new(&between, 0), Err(SpaceError::Empty { .. })));
        assert!(matches!(Random::new(&Space::discrete(0), 0), Err(SpaceError::Malformed { .. })));
    }

    #[test]
    fn a_column_of_another_type_or_of_half_a_row_is_refused() {
        let mut policy = Random::new(&space(DType::F32, &[0.0, 0.0], &[1.0, 1.0]), 0).unwrap();
        let mut act = |actions: ColumnMut<'_>| {
            policy.act(Act { first_lane: 0, step: 0, obs: &[], mask: None, actions })
        };
        assert_eq!(act(ColumnMut::F64(&mut [0.0; 2])), Err(ActError::DType { wanted: DType::F32 }));
        assert_eq!(act(ColumnMut::F32(&mut [0.0; 3])), Err(ActError::Rows { elements: 2, given: 3 }));
    }
}

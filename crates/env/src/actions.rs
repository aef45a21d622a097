//! The check of actions before anything moves: an engine's, that of a client before it sends them, and that of a reader
//! before a recorded action is played again.

use std::fmt;

use rollhouse_core::{BoxSpace, ColumnRef, CompositeSpace, DType, Drawing, EnvSpec, Space};

use crate::{Kernel, Target};

/// The conditions on an action, prepared for checking whole columns. An integer has to be one of its space. A float has to be
/// finite; out of bounds it is an action, which goes to the env, as in Gymnasium. Where integers are carried as floats, beside
/// parts that are none, the integer nearest to the float is meant. The elements of texts and sequences of Python envs are left to
/// the worker, whose lane alone an action that is none of them costs.
#[derive(Debug, Clone)]
pub struct ActionCheck {
    rule: Rule,
    dtype: DType,
    elements: usize,
    target: Target,
    /// What makes a row one of texts and sequences, if there are any that nobody else looks at.
    counted: Option<Box<Drawing>>,
}

#[derive(Debug, Clone)]
enum Rule {
    /// Every number of the type is an action.
    Any,
    /// Every finite number is.
    Finite,
    /// The integers in one range are.
    Range(Range),
    /// Each element of an action has a range of its own.
    Ranges(Vec<Range>),
    /// Floats that are finite, and of which those elements that have a range are nearest to an integer in it.
    Nearest(Vec<Option<Range>>),
}

/// Integers from `low` to `high`; none if `low` is the greater.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    low: i64,
    high: i64,
}

impl Range {
    /// All integers.
    const ALL: Self = Self { low: i64::MIN, high: i64::MAX };

    /// Returns the integers between two bounds, which may be infinite.
    fn between(low: f64, high: f64) -> Self {
        // A cast takes the nearest integer that there is. What is no number bounds nothing.
        let low = if low.is_nan() { i64::MIN } else { low.ceil() as i64 };
        Self { low, high: if high.is_nan() { i64::MAX } else { high.floor() as i64 } }
    }

    #[inline(always)]
    fn has(self, value: i64) -> bool {
        (value >= self.low) & (value <= self.high)
    }

    /// Returns whether every number of an integer type is in the range.
    const fn is_whole(self, dtype: DType) -> bool {
        let (low, high) = match dtype {
            DType::U8 => (0, u8::MAX as i64),
            DType::I32 => (i32::MIN as i64, i32::MAX as i64),
            _ => (i64::MIN, i64::MAX),
        };
        self.low <= low && self.high >= high
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { low, high } if low > high => f.write_str("an integer of a space that has none"),
            Self { low, high } => write!(f, "an integer from {low} to {high}"),
        }
    }
}

impl Rule {
    fn of(space: &Space) -> Self {
        let space = match space {
            Space::Discrete(space) => {
                let last = i128::from(space.start) + i128::from(space.n) - 1;
                let high = i64::try_from(last).unwrap_or(i64::MAX);
                let none = Range { low: 1, high: 0 };
                return Self::Range(if space.n == 0 { none } else { Range { low: space.start, high } });
            }
            Space::Box(space) => space,
        };
        match (space.dtype, &space.parts) {
            (DType::F32 | DType::F64, None) => Self::Finite,
            (DType::Bool | DType::U8 | DType::I32 | DType::I64, None) => Self::of_integers(space),
            (DType::F32 | DType::F64, Some(parts)) => {
                let each = Self::of_parts(space, parts);
                if each.iter().any(Option::is_some) { Self::Nearest(each) } else { Self::Finite }
            }
            (DType::Bool | DType::U8 | DType::I32 | DType::I64, Some(parts)) => {
                let each = Self::of_parts(space, parts);
                Self::of_ranges(
                    each.into_iter().map(|range| range.unwrap_or(Range::ALL)).collect(),
                    space.dtype,
                )
            }
        }
    }

    fn of_integers(space: &BoxSpace) -> Self {
        let dtype = space.dtype;
        if let (&[low], &[high]) = (space.low.numbers(), space.high.numbers()) {
            let range = Range::between(low, high);
            return if range.is_whole(dtype) { Self::Any } else { Self::Range(range) };
        }
        let each = space.low.iter().zip(space.high.iter()).map(|(low, high)| Range::between(low, high));
        Self::of_ranges(each.collect(), dtype)
    }

    fn of_ranges(each: Vec<Range>, dtype: DType) -> Self {
        if each.iter().all(|range| range.is_whole(dtype)) { Self::Any } else { Self::Ranges(each) }
    }

    /// Returns the range of each element of a box of parts; `None` of one that is no integer, or that is one of a text or a
    /// sequence.
    fn of_parts(space: &BoxSpace, parts: &CompositeSpace) -> Vec<Option<Range>> {
        let counted: Vec<&Space> =
            parts.counted().into_iter().flat_map(CompositeSpace::columns).map(|(_, column)| column).collect();
        let columns = parts.columns();
        let checked = columns.iter().flat_map(|&(_, part)| {
            let whole = !matches!(part.dtype(), DType::F32 | DType::F64);
            let counted = counted.iter().any(|&column| std::ptr::eq(column, part));
            std::iter::repeat_n(whole && !counted, part.elements())
        });
        let bounds = space.low.iter().zip(space.high.iter());
        checked.zip(bounds).map(|(checked, (low, high))| checked.then(|| Range::between(low, high))).collect()
    }
}

impl ActionCheck {
    /// Returns the check of the actions of `space`, on the widest instruction set that this machine has.
    pub fn of(space: &Space) -> Self {
        Self::on(Target::best(), space)
    }

    /// Returns the check of the actions of `space` on an instruction set.
    pub fn on(target: Target, space: &Space) -> Self {
        // Booleans lie in bytes.
        let dtype = if space.dtype() == DType::Bool { DType::U8 } else { space.dtype() };
        Self { rule: Rule::of(space), dtype, elements: space.elements(), target, counted: None }
    }

    /// Makes the check one of an env's actions, whose texts and sequences are looked at, too, if nobody else does.
    #[must_use]
    pub fn with_counted_of(self, spec: &EnvSpec) -> Self {
        let drawing = if spec.source.is_learned() { None } else { Drawing::of_counted(&spec.action_space) };
        let counted = drawing.map(Box::new);
        Self { counted, ..self }
    }

    /// Returns the number of elements in one action.
    pub const fn elements(&self) -> usize {
        self.elements
    }

    /// Returns whether every row is an action. A column of another type has none.
    #[inline]
    pub fn all_good(&self, actions: ColumnRef<'_>) -> bool {
        actions.dtype() == self.dtype
            && self.target.run(AllGood { check: self, actions })
            && self.counted.as_ref().is_none_or(|drawing| self.first_miscounted(drawing, actions).is_none())
    }

    /// Returns the first row that is none of the texts and sequences, with the element and what is wanted there.
    fn first_miscounted(&self, drawing: &Drawing, actions: ColumnRef<'_>) -> Option<(usize, String)> {
        let elements = self.elements.max(1);
        (0..actions.len() / elements)
            .find_map(|row| drawing.miscounted(actions.slice(row * elements, (row + 1) * elements)))
    }

    /// Returns the first row that is no action among those for which `counts` holds; of a column of another type, whose
    /// rows cannot even be left out, the first row of all.
    #[cold]
    pub fn first_bad(&self, actions: ColumnRef<'_>, counts: impl Fn(usize) -> bool) -> Option<BadAction> {
        let (elements, typed) = (self.elements, actions.dtype() == self.dtype);
        let lanes = actions.len() / elements.max(1);
        (0..lanes).filter(|&lane| !typed || counts(lane)).find_map(|lane| {
            let row = actions.slice(lane * elements, (lane + 1) * elements);
            if self.all_good(row) {
                return None;
            }
            let (value, wanted) = self.fault(row);
            Some(BadAction { lane, value, wanted })
        })
    }

    /// Returns what is wrong with a row: the value, and what is wanted in its place.
    fn fault(&self, row: ColumnRef<'_>) -> (String, String) {
        if row.dtype() != self.dtype {
            return (format!("of {}", row.dtype()), format!("of {}", self.dtype));
        }
        if self.target.run(AllGood { check: self, actions: row })
            && let Some((element, wanted)) =
                self.counted.as_ref().and_then(|drawing| self.first_miscounted(drawing, row))
        {
            let value = text_of(row.slice(element, element + 1));
            return (format!("{value} in element {element}"), wanted);
        }
        let bad =
            (0..row.len()).find(|&element| !self.element_is_good(row.slice(element, element + 1), element));
        let element = bad.unwrap_or(0);
        let value = text_of(row.slice(element, element + 1));
        let place = if self.elements == 1 { String::new() } else { format!(" in element {element}") };
        let wanted = match self.range(element) {
            Some(range) => range.to_string(),
            None => "a finite number".to_owned(),
        };
        (format!("{value}{place}"), wanted)
    }

    /// Returns the range of an element, if it has to be an integer in one.
    fn range(&self, element: usize) -> Option<Range> {
        match &self.rule {
            Rule::Any | Rule::Finite => None,
            Rule::Range(range) => Some(*range),
            Rule::Ranges(each) => each.get(element).copied(),
            Rule::Nearest(each) => each.get(element).copied().flatten(),
        }
    }

    fn element_is_good(&self, value: ColumnRef<'_>, element: usize) -> bool {
        let range = self.range(element);
        match value {
            ColumnRef::F32([value]) => nearest_is_good(f64::from(*value), range),
            ColumnRef::F64([value]) => nearest_is_good(*value, range),
            ColumnRef::U8([value]) => range.is_none_or(|range| range.has(i64::from(*value))),
            ColumnRef::I32([value]) => range.is_none_or(|range| range.has(i64::from(*value))),
            ColumnRef::I64([value]) => range.is_none_or(|range| range.has(*value)),
            _ => false,
        }
    }
}

fn text_of(value: ColumnRef<'_>) -> String {
    match value {
        ColumnRef::U8([value]) => value.to_string(),
        ColumnRef::I32([value]) => value.to_string(),
        ColumnRef::I64([value]) => value.to_string(),
        ColumnRef::F32([value]) => value.to_string(),
        ColumnRef::F64([value]) => value.to_string(),
        // An action without elements has none that is wrong.
        _ => "of no elements".to_owned(),
    }
}

#[inline(always)]
fn nearest_is_good(value: f64, range: Option<Range>) -> bool {
    // A cast of what is beyond all integers takes the last one.
    value.is_finite() && range.is_none_or(|range| range.has(value.round_ties_even() as i64))
}

/// Checks a whole column without an early exit, so that the loop becomes vector code.
struct AllGood<'a> {
    check: &'a ActionCheck,
    actions: ColumnRef<'a>,
}

impl Kernel for AllGood<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let elements = self.check.elements.max(1);
        match (&self.check.rule, self.actions) {
            (Rule::Range(Range { low: 0, high }), ColumnRef::I64(values)) if *high >= 0 => {
                // The sign bit of either term is set exactly if the value is below 0 or above the last.
                values.iter().fold(0, |bad, &a| bad | a | high.wrapping_sub(a)) >= 0
            }
            (Rule::Any, ColumnRef::U8(_) | ColumnRef::I32(_) | ColumnRef::I64(_)) => true,
            (Rule::Range(range), ColumnRef::U8(values)) => all_in(values, *range),
            (Rule::Range(range), ColumnRef::I32(values)) => all_in(values, *range),
            (Rule::Range(range), ColumnRef::I64(values)) => all_in(values, *range),
            (Rule::Ranges(each), ColumnRef::U8(values)) => rows_in(values, each, elements),
            (Rule::Ranges(each), ColumnRef::I32(values)) => rows_in(values, each, elements),
            (Rule::Ranges(each), ColumnRef::I64(values)) => rows_in(values, each, elements),
            (Rule::Finite, ColumnRef::F32(values)) => {
                values.iter().fold(true, |good, v| good & v.is_finite())
            }
            (Rule::Finite, ColumnRef::F64(values)) => {
                values.iter().fold(true, |good, v| good & v.is_finite())
            }
            (Rule::Nearest(each), ColumnRef::F32(values)) => rows_near(values, each, elements),
            (Rule::Nearest(each), ColumnRef::F64(values)) => rows_near(values, each, elements),
            _ => false,
        }
    }
}

#[inline(always)]
fn all_in<T: Copy + Into<i64>>(values: &[T], range: Range) -> bool {
    values.iter().fold(true, |good, &value| good & range.has(value.into()))
}

#[inline(always)]
fn rows_in<T: Copy + Into<i64>>(values: &[T], each: &[Range], elements: usize) -> bool {
    let row =
        |good, row: &[T]| row.iter().zip(each).fold(good, |good, (&v, range)| good & range.has(v.into()));
    values.chunks(elements.max(1)).fold(true, row)
}

#[inline(always)]
fn rows_near<T: Copy + Into<f64>>(values: &[T], each: &[Option<Range>], elements: usize) -> bool {
    let row = |good, row: &[T]| {
        row.iter().zip(each).fold(good, |good, (&v, range)| good & nearest_is_good(v.into(), *range))
    };
    values.chunks(elements.max(1)).fold(true, row)
}

/// Error of an action that the space does not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadAction {
    /// Row of the batch.
    pub lane: usize,
    /// Value that was given, with its element if an action has several.
    pub value: String,
    /// Values that the space takes.
    pub wanted: String,
}

impl fmt::Display for BadAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "action {} of lane {} is not {}", self.value, self.lane, self.wanted)
    }
}

impl std::error::Error for BadAction {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rollhouse_core::{DiscreteSpace, SequenceSpace};

    fn integers(dtype: DType, low: &[f64], high: &[f64]) -> BoxSpace {
        BoxSpace {
            low: low.to_vec().into(),
            high: high.to_vec().into(),
            shape: vec![low.len()],
            dtype,
            choices: false,
            parts: None,
            own: None,
        }
    }

    fn check_of(space: &Space) -> ActionCheck {
        ActionCheck::of(space)
    }

    /// Checks rows of two elements as a whole, and each alone.
    fn expect(check: &ActionCheck, rows: ColumnRef<'_>, good: &[bool]) {
        assert_eq!(check.all_good(rows), good.iter().all(|&good| good), "{rows:?}");
        let first = good.iter().position(|&good| !good);
        assert_eq!(check.first_bad(rows, |_| true).map(|bad| bad.lane), first, "{rows:?}");
    }

    proptest! {
        #[test]
        fn exactly_the_integers_of_the_space_pass(
            n in 1u64..10, start in -3i64..4, value in prop_oneof![-6i64..16, any::<i64>()]
        ) {
            let check = check_of(&Space::Discrete(DiscreteSpace { n, start, own: None }));
            let good = (i128::from(start)..i128::from(start) + i128::from(n)).contains(&i128::from(value));
            prop_assert_eq!(check.all_good(ColumnRef::I64(&[start, value, start])), good);
            let bad = check.first_bad(ColumnRef::I64(&[start, value, start]), |_| true);
            prop_assert_eq!(bad.map(|b| b.lane), (!good).then_some(1));
        }

        /// Symptom: a number out of an integer box reached an env, and a C plug-in as an index.
        /// Cause: only floats and Discrete actions were looked at. Fix: each element of an integer box has its range.
        #[test]
        fn exactly_the_integers_of_each_element_of_a_box_pass(
            bounds in prop::collection::vec((-3i64..3, 0i64..4), 1..5),
            values in prop::collection::vec(prop_oneof![-6i64..8, any::<i64>()], 20),
        ) {
            let (low, high): (Vec<f64>, Vec<f64>) =
                bounds.iter().map(|&(low, more)| (low as f64, (low + more) as f64)).unzip();
            let values = &values[..values.len() / bounds.len() * bounds.len()];
            let good: Vec<bool> = values.chunks(bounds.len()).map(|row| {
                row.iter().zip(&bounds).all(|(v, (low, more))| (*low..=low + more).contains(v))
            }).collect();
            let space = integers(DType::I64, &low, &high);
            expect(&check_of(&Space::Box(space.clone())), ColumnRef::I64(values), &good);
            let small: Vec<i32> = values.iter().map(|&v| v.clamp(-100, 100) as i32).collect();
            let check = check_of(&Space::Box(BoxSpace { dtype: DType::I32, ..space }));
            expect(&check, ColumnRef::I32(&small), &good);
        }
    }

    #[test]
    fn the_extremes_of_an_integer_are_refused_and_a_space_of_none_has_no_action() {
        for action in [i64::MIN, -1, 2, i64::MAX] {
            assert!(!check_of(&Space::discrete(2)).all_good(ColumnRef::I64(&[action])), "{action}");
        }
        for start in [i64::MIN, -1, 0, 1, i64::MAX] {
            let none = Space::Discrete(DiscreteSpace { n: 0, start, own: None });
            for action in [i64::MIN, -1, 0, 1, i64::MAX] {
                assert!(!check_of(&none).all_good(ColumnRef::I64(&[action])), "{action}");
            }
        }
        let most = Space::Discrete(DiscreteSpace { n: u64::MAX, start: i64::MAX, own: None });
        assert!(check_of(&most).all_good(ColumnRef::I64(&[i64::MAX])));
        assert!(!check_of(&most).all_good(ColumnRef::I64(&[i64::MAX - 1])));
    }

    #[test]
    fn bits_bytes_and_infinite_bounds_are_checked_as_their_types_have_them() {
        let bits = BoxSpace { choices: true, ..integers(DType::U8, &[0.0; 2], &[1.0; 2]) };
        expect(&check_of(&Space::Box(bits)), ColumnRef::U8(&[0, 1, 1, 2]), &[true, false]);
        let flags = integers(DType::Bool, &[0.0; 2], &[1.0; 2]);
        expect(&check_of(&Space::Box(flags)), ColumnRef::U8(&[1, 1, 255, 0]), &[true, false]);
        let bytes = check_of(&Space::Box(integers(DType::U8, &[0.0; 2], &[255.0; 2])));
        expect(&bytes, ColumnRef::U8(&[0, 255]), &[true]);
        let half =
            check_of(&Space::Box(integers(DType::I64, &[f64::NEG_INFINITY, 0.5], &[-1.0, f64::INFINITY])));
        expect(&half, ColumnRef::I64(&[i64::MIN, i64::MAX, -1, 1, 0, 1]), &[true, true, false]);
        expect(&half, ColumnRef::I64(&[-1, 0]), &[false]);
        let any = check_of(&Space::Box(integers(DType::I64, &[f64::NEG_INFINITY; 2], &[f64::INFINITY; 2])));
        expect(&any, ColumnRef::I64(&[i64::MIN, i64::MAX]), &[true]);
    }

    #[test]
    fn integers_among_parts_are_checked_however_they_are_carried() {
        let two = || integers(DType::I32, &[0.0], &[2.0]);
        let of = |spaces: Vec<Space>| {
            let parts = CompositeSpace::Tuple { spaces: spaces.into_iter().map(Into::into).collect() };
            check_of(&Space::Box(BoxSpace::of_parts(parts).unwrap()))
        };
        let whole = of(vec![Space::discrete(4), Space::Box(two())]);
        expect(&whole, ColumnRef::I64(&[3, 2, 4, 0, 0, -1]), &[true, false, false]);
        // Beside a number that is not whole they are carried as floats, of which the nearest integer is meant.
        let mixed = of(vec![Space::Box(two()), Space::f32_box(&[0.0], &[1.0])]);
        expect(&mixed, ColumnRef::F64(&[2.4, 7.5, 2.6, 0.0, -0.6, 0.0]), &[true, false, false]);
        expect(&mixed, ColumnRef::F64(&[1.0, f64::NAN]), &[false]);
        let bad = mixed.first_bad(ColumnRef::F64(&[3.0, 0.0]), |_| true).unwrap();
        assert_eq!(bad.to_string(), "action 3 in element 0 of lane 0 is not an integer from 0 to 2");
        // Those of a sequence are left to the worker.
        let items = integers(DType::I64, &[2.0], &[5.0]);
        let sequence = SequenceSpace::new(Space::Box(items), 2, false).unwrap();
        let counted = CompositeSpace::Sequence(Box::new(sequence));
        let counted = check_of(&Space::Box(BoxSpace::of_parts(counted).unwrap()));
        expect(&counted, ColumnRef::I64(&[5, 0, 1, 5, 6, 2, 5, 5, 3]), &[true, true, true]);
    }

    /// Symptom: an integer out of its space reached an env if a text or a sequence stood beside it.
    /// Cause: an action with such a part was not looked at. Fix: their own elements alone are left out.
    #[test]
    fn integers_beside_a_sequence_are_checked_and_its_own_are_not() {
        let beside = |space: Space| {
            let items = integers(DType::I64, &[2.0], &[5.0]);
            let sequence = SequenceSpace::new(Space::Box(items), 2, false).unwrap();
            let sequence = CompositeSpace::Sequence(Box::new(sequence));
            let spaces = vec![Space::discrete(4).into(), sequence.into(), space.into()];
            check_of(&Space::Box(BoxSpace::of_parts(CompositeSpace::Tuple { spaces }).unwrap()))
        };
        let whole = beside(Space::Box(integers(DType::I32, &[-1.0], &[1.0])));
        let rows = [3, 9, 9, 9, 1, 4, 5, 0, 1, 0, 0, 5, 0, 1, -2];
        expect(&whole, ColumnRef::I64(&rows), &[true, false, false]);
        let mixed = beside(Space::f32_box(&[0.0], &[1.0]));
        let rows = [3.0, 9.0, 9.0, 9.0, 7.5, 4.0, 5.0, 0.0, 1.0, 0.0, 3.0, f64::NAN, 0.0, 1.0, 0.0];
        expect(&mixed, ColumnRef::F64(&rows), &[true, false, false]);
    }

    #[test]
    fn floats_must_be_finite_but_may_be_out_of_bounds() {
        let check = check_of(&Space::f32_box(&[-1.0, -1.0], &[1.0, 1.0]));
        assert!(check.all_good(ColumnRef::F32(&[5.0, -7.0])));
        for bad in [f32::NAN, f32::INFINITY] {
            let values = [0.0, 0.0, 0.0, bad];
            assert!(!check.all_good(ColumnRef::F32(&values)));
            assert_eq!(check.first_bad(ColumnRef::F32(&values), |_| true).map(|b| b.lane), Some(1));
            assert_eq!(check.first_bad(ColumnRef::F32(&values), |lane| lane != 1), None);
        }
        let message =
            |bad| check.first_bad(ColumnRef::F32(&[0.0, 0.0, 0.0, bad]), |_| true).unwrap().to_string();
        assert_eq!(message(f32::NAN), "action NaN in element 1 of lane 1 is not a finite number");
        // Actions of another type are none.
        assert!(!check.all_good(ColumnRef::F64(&[0.0, 0.0])));
    }
}

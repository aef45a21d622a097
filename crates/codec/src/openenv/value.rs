//! The value of an action: JSON to elements of a row, by the form that the space gives it.

use std::fmt;

use rollhouse_core::{ColumnData, CompositeSpace, DType, ObservationSpace, SequenceSpace, Space, TextSpace};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::fault::{Fault, Place, Scalar, shown};

/// A row that is filled, and the first fault that was met.
pub(crate) struct Row {
    data: ColumnData,
    /// The element that is written next.
    at: usize,
    way: Vec<Place>,
    fault: Option<Fault>,
}

/// What is wanted of a value.
#[derive(Clone, Copy)]
pub(crate) enum Form<'s> {
    /// Element of a space.
    Element(&'s Space, usize),
    /// Elements of a space from an axis on, the first of which has that number.
    Axis(&'s Space, usize, usize),
    /// Value of a Dict.
    Dict(&'s [(String, ObservationSpace)]),
    /// Value of a Tuple.
    Tuple(&'s [ObservationSpace]),
    /// Text.
    Text(&'s TextSpace),
    /// Sequence.
    Sequence(&'s SequenceSpace),
}

/// A value that is read into a row.
pub(crate) struct Value<'s, 'r> {
    pub(crate) form: Form<'s>,
    pub(crate) row: &'r mut Row,
}

impl Row {
    pub(crate) fn new(space: &Space) -> Self {
        let data = ColumnData::zeros(space.dtype(), space.elements());
        Self { data, at: 0, way: Vec::new(), fault: None }
    }

    pub(crate) fn into_data(self) -> ColumnData {
        self.data
    }

    pub(crate) fn into_fault(self) -> Option<Fault> {
        self.fault
    }

    /// Notes what is wrong at this place, and returns an error that ends the reading.
    fn refuse<E: Error>(&mut self, fault: Fault) -> E {
        self.fault.get_or_insert_with(|| fault.at(self.way.clone()));
        E::custom("the action lies outside the space")
    }

    fn whole(&mut self, number: i64) {
        let at = self.at;
        self.at += 1;
        match &mut self.data {
            // The bounds of its space have been checked.
            ColumnData::U8(row) => row[at] = number as u8,
            ColumnData::I32(row) => row[at] = number as i32,
            ColumnData::I64(row) => row[at] = number,
            ColumnData::F32(row) => row[at] = number as f32,
            ColumnData::F64(row) => row[at] = number as f64,
        }
    }

    fn real(&mut self, number: f64) {
        let at = self.at;
        self.at += 1;
        match &mut self.data {
            ColumnData::F32(row) => row[at] = number as f32,
            ColumnData::F64(row) => row[at] = number,
            // No column of integers carries quantities.
            ColumnData::U8(_) | ColumnData::I32(_) | ColumnData::I64(_) => {}
        }
    }
}

impl<'s> Form<'s> {
    pub(crate) fn of(space: &'s Space) -> Self {
        match (space.parts(), space.shape().len()) {
            (Some(parts), _) => Self::composite(parts),
            (None, 0) => Self::Element(space, 0),
            (None, _) => Self::Axis(space, 0, 0),
        }
    }

    fn observation(space: &'s ObservationSpace) -> Self {
        match space {
            ObservationSpace::Plain(space) => Self::of(space),
            ObservationSpace::Composite(parts) => Self::composite(parts),
        }
    }

    fn composite(space: &'s CompositeSpace) -> Self {
        match space {
            CompositeSpace::Dict { spaces } => Self::Dict(spaces),
            CompositeSpace::Tuple { spaces } => Self::Tuple(spaces),
            CompositeSpace::Text(text) => Self::Text(text),
            CompositeSpace::Sequence(sequence) => Self::Sequence(sequence),
        }
    }

    /// Returns the fault of a value of another kind.
    fn mistaken(self) -> Fault {
        match self {
            Self::Element(space, _) if is_whole(space) => {
                Fault::new("int_type", "Input should be a valid integer")
            }
            Self::Element(..) => Fault::new("float_type", "Input should be a valid number"),
            Self::Axis(..) | Self::Tuple(_) | Self::Sequence(_) => {
                Fault::new("list_type", "Input should be a valid list")
            }
            Self::Dict(_) => Fault::new("dict_type", "Input should be a valid dictionary"),
            Self::Text(_) => Fault::new("string_type", "Input should be a valid string"),
        }
    }
}

impl Value<'_, '_> {
    fn mistake<E: Error>(self, input: Option<Scalar>) -> E {
        let fault = self.form.mistaken();
        self.row.refuse(match input {
            Some(input) => fault.of(input),
            None => fault,
        })
    }

    fn whole<E: Error>(self, number: i128, input: Scalar) -> Result<(), E> {
        let Form::Element(space, element) = self.form else { return Err(self.mistake(Some(input))) };
        if !is_whole(space) {
            return self.real(number as f64, input);
        }
        let (least, most) = integers(space, element);
        match i64::try_from(number).ok().filter(|_| (least..=most).contains(&number)) {
            Some(number) => {
                self.row.whole(number);
                Ok(())
            }
            None => Err(self.row.refuse(outside(number < least, &least, &most).of(input))),
        }
    }

    fn real<E: Error>(self, number: f64, input: Scalar) -> Result<(), E> {
        let Form::Element(space, element) = self.form else { return Err(self.mistake(Some(input))) };
        if is_whole(space) {
            if number.fract() == 0.0 && number.abs() <= EXACT {
                return self.whole(number as i128, input);
            }
            let why = "Input should be a valid integer, got a number with a fractional part";
            return Err(self.row.refuse(Fault::new("int_from_float", why).of(input)));
        }
        let Space::Box(space) = space else { return Err(self.mistake(Some(input))) };
        // What the env gets is compared, so that a bound as it is written lies within.
        let given = if space.dtype == DType::F32 { f64::from(number as f32) } else { number };
        let (low, high) = (space.low[element], space.high[element]);
        if !given.is_finite() {
            let why = format!("Input should be a finite number of {}", space.dtype);
            return Err(self.row.refuse(Fault::new("finite_number", why).of(input)));
        }
        if !(low..=high).contains(&given) {
            return Err(self.row.refuse(outside(given < low, &low, &high).of(input)));
        }
        self.row.real(given);
        Ok(())
    }

    fn text<E: Error>(self, text: &str) -> Result<(), E> {
        let Form::Text(space) = self.form else { return Err(self.mistake(Some(Scalar::text(text)))) };
        let (first, count) = (self.row.at, text.chars().count());
        let fault = if count > space.max_length() {
            let most = space.max_length();
            Fault::new("string_too_long", format!("String should have at most {most} characters"))
        } else if count < space.min_length() {
            let least = space.min_length();
            Fault::new("string_too_short", format!("String should have at least {least} characters"))
        } else if let Some(other) = text.chars().find(|other| !space.characters().contains(*other)) {
            let known = shown(space.characters());
            Fault::new("string_pattern_mismatch", format!("{other:?} is none of the characters {known:?}"))
        } else {
            text.chars().for_each(|code| self.row.whole(u32::from(code).into()));
            self.row.at = first + space.max_length();
            self.row.whole(count as i64);
            return Ok(());
        };
        Err(self.row.refuse(fault.of(Scalar::text(text))))
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the space")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.form {
            Form::Element(space, _) if matches!(space.dtype(), DType::Bool | DType::U8) => {
                self.whole(value.into(), Scalar::Bool(value))
            }
            _ => Err(self.mistake(Some(Scalar::Bool(value)))),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.whole(value.into(), Scalar::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.whole(value.into(), Scalar::Whole(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.real(value, Scalar::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.text(value)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Err(self.mistake(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { form, row } = self;
        match form {
            Form::Axis(space, axis, first) => {
                let (count, rest) =
                    (space.shape()[axis], space.shape()[axis + 1..].iter().product::<usize>());
                let below = |place: usize| match axis + 1 == space.shape().len() {
                    true => Form::Element(space, first + place),
                    false => Form::Axis(space, axis + 1, first + place * rest),
                };
                let read = items(row, &mut list, count, |_, place| below(place))?;
                if read < count { Err(row.refuse(too_few(count))) } else { Ok(()) }
            }
            Form::Tuple(spaces) => {
                let read = items(row, &mut list, spaces.len(), |_, place| Form::observation(&spaces[place]))?;
                if read < spaces.len() { Err(row.refuse(too_few(spaces.len()))) } else { Ok(()) }
            }
            Form::Sequence(space) => {
                let (start, width) = (row.at, space.item().elements());
                let count = items(row, &mut list, space.maximum(), |row, place| {
                    row.at = start + place * width;
                    Form::of(space.item())
                })?;
                row.at = start + space.maximum() * width;
                row.whole(count as i64);
                Ok(())
            }
            _ => Err(Value { form, row }.mistake(None)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { form, row } = self;
        let Form::Dict(spaces) = form else { return Err(Value { form, row }.mistake(None)) };
        let mut next = row.at;
        let mut starts = Vec::with_capacity(spaces.len());
        for (_, space) in spaces {
            starts.push(next);
            next += space.elements();
        }
        let mut seen = vec![false; spaces.len()];
        while let Some(name) = map.next_key::<String>()? {
            row.way.push(Place::Name(shown(&name)));
            let Some(place) = spaces.iter().position(|(known, _)| *known == name) else {
                return Err(row.refuse(Fault::new("extra_forbidden", "Extra inputs are not permitted")));
            };
            if std::mem::replace(&mut seen[place], true) {
                return Err(row.refuse(Fault::new("value_error", "The field is there twice")));
            }
            row.at = starts[place];
            map.next_value_seed(Value { form: Form::observation(&spaces[place].1), row })?;
            row.way.pop();
        }
        if let Some(place) = seen.iter().position(|seen| !seen) {
            row.way.push(Place::Name(spaces[place].0.clone()));
            return Err(row.refuse(Fault::new("missing", "Field required")));
        }
        row.at = next;
        Ok(())
    }
}

/// Reads the values of a list, at most so many, and returns how many there were.
fn items<'de, 's, A: SeqAccess<'de>>(
    row: &mut Row,
    list: &mut A,
    most: usize,
    mut form: impl FnMut(&mut Row, usize) -> Form<'s>,
) -> Result<usize, A::Error> {
    for place in 0..most {
        row.way.push(Place::Index(place));
        let form = form(row, place);
        let Some(()) = list.next_element_seed(Value { form, row })? else {
            row.way.pop();
            return Ok(place);
        };
        row.way.pop();
    }
    match list.next_element::<IgnoredAny>()? {
        None => Ok(most),
        Some(_) => {
            let why = format!("List should have at most {most} items");
            Err(row.refuse(Fault::new("too_long", why)))
        }
    }
}

fn too_few(wanted: usize) -> Fault {
    Fault::new("too_short", format!("List should have at least {wanted} items"))
}

fn outside(is_below: bool, least: &dyn fmt::Display, most: &dyn fmt::Display) -> Fault {
    if is_below {
        Fault::new("greater_than_equal", format!("Input should be greater than or equal to {least}"))
    } else {
        Fault::new("less_than_equal", format!("Input should be less than or equal to {most}"))
    }
}

/// Returns whether the elements of a space are integers.
pub(crate) const fn is_whole(space: &Space) -> bool {
    !matches!(space.dtype(), DType::F32 | DType::F64)
}

/// Returns the least and the greatest integer that an element may be.
fn integers(space: &Space, element: usize) -> (i128, i128) {
    match space {
        Space::Discrete(space) => {
            let start = i128::from(space.start);
            (start, start + i128::from(space.n) - 1)
        }
        Space::Box(space) => {
            let (least, most) = match space.dtype {
                DType::Bool => (0, 1),
                DType::U8 => (0, u8::MAX.into()),
                DType::I32 => (i32::MIN.into(), i32::MAX.into()),
                _ => (i64::MIN.into(), i64::MAX.into()),
            };
            (least.max(space.low[element].ceil() as i128), most.min(space.high[element].floor() as i128))
        }
    }
}

/// Number up to which float64 has every integer.
const EXACT: f64 = (1_u64 << 53) as f64;

//! Reads spaces from messages and files.
//!
//! The readers are written by hand, because what serde derives for tagged types keeps a copy of everything nested at
//! every level, so that a few hundred kilobytes become gigabytes. Here each part is made once, from its own bytes. A
//! space with more columns or elements than any row may have is refused at the first one too many.

use std::fmt;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};

use crate::counted::Counted;
use crate::limits::{MAX_NAME_BYTES, MAX_OBS_COLUMNS, MAX_ROW_ELEMENTS};
use crate::{
    Bounds, BoxSpace, CompositeSpace, DType, DiscreteSpace, ObservationSpace, OwnDType, Space, bounded_list,
};

impl<'de> Deserialize<'de> for ObservationSpace {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(SpaceVisitor)
    }
}

impl<'de> Deserialize<'de> for Space {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match ObservationSpace::deserialize(from)? {
            ObservationSpace::Plain(space) => Ok(space),
            ObservationSpace::Composite(_) => Err(D::Error::custom("a space of several columns")),
        }
    }
}

/// Reads the extents of a column's axes.
///
/// # Errors
/// If a row of them has more than [`MAX_ROW_ELEMENTS`] elements.
pub(crate) fn shape<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<usize>, D::Error> {
    let shape: Vec<usize> = bounded_list::<_, MAX_AXES, _>(from)?;
    elements(&shape).map(|_| shape).map_err(D::Error::custom)
}

/// Returns the number of elements in a row of that shape.
fn elements(shape: &[usize]) -> Result<usize, String> {
    let product = shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
    product
        .filter(|&product| product <= MAX_ROW_ELEMENTS)
        .ok_or_else(|| format!("a row of shape {shape:?} has more than {MAX_ROW_ELEMENTS} elements"))
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Box,
    Discrete,
    Dict,
    Tuple,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Kind,
    Low,
    High,
    Shape,
    Dtype,
    Choices,
    Parts,
    N,
    Start,
    Own,
    Spaces,
    Counted,
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct Shape(#[serde(deserialize_with = "shape")] Vec<usize>);

#[derive(Deserialize)]
struct Numbers(#[serde(deserialize_with = "bounded_list::<_, MAX_ROW_ELEMENTS, _>")] Vec<f64>);

/// Fields of a space that have been read so far.
#[derive(Default)]
struct Fields {
    kind: Option<Kind>,
    low: Option<Numbers>,
    high: Option<Numbers>,
    shape: Option<Shape>,
    dtype: Option<DType>,
    choices: Option<bool>,
    parts: Option<ObservationSpace>,
    n: Option<u64>,
    start: Option<i64>,
    own: Option<OwnDType>,
    spaces: Option<CompositeSpace>,
    counted: Option<Counted>,
}

impl Fields {
    fn space<E: Error>(self) -> Result<ObservationSpace, E> {
        let missing = E::missing_field;
        match self.kind.ok_or_else(|| missing("kind"))? {
            Kind::Box => {
                let low = self.low.ok_or_else(|| missing("low"))?.0;
                let high = self.high.ok_or_else(|| missing("high"))?.0;
                let shape = self.shape.ok_or_else(|| missing("shape"))?.0;
                let dtype = self.dtype.ok_or_else(|| missing("dtype"))?;
                let elements = elements(&shape).map_err(E::custom)?;
                let counts = (low.len(), high.len());
                let both = Bounds::given(low, elements).zip(Bounds::given(high, elements));
                let (low, high) = both.ok_or_else(|| {
                    let (low, high) = counts;
                    E::custom(format_args!("{low} lower and {high} upper bounds for {elements} elements"))
                })?;
                let choices = self.choices.unwrap_or(false);
                let mut space = BoxSpace { low, high, shape, dtype, choices, parts: None, own: None };
                if space.choices && !may_be_choices(&space) {
                    return Err(E::custom("choices are whole numbers between finite bounds"));
                }
                space.parts = match self.parts {
                    None => None,
                    Some(ObservationSpace::Composite(parts)) if space.is_of(&parts) => Some(Box::new(parts)),
                    Some(_) => return Err(E::custom("the parts of a box are not those of its elements")),
                };
                with_own(Space::Box(space), self.own)
            }
            Kind::Discrete => {
                let n = self.n.ok_or_else(|| missing("n"))?;
                let start = self.start.ok_or_else(|| missing("start"))?;
                with_own(Space::Discrete(DiscreteSpace { n, start, own: None }), self.own)
            }
            Kind::Dict | Kind::Tuple => {
                let spaces = self.spaces.ok_or_else(|| missing("spaces"))?;
                match self.counted {
                    None => Ok(spaces.into()),
                    Some(counted) => Ok(counted_space(counted, &spaces).map_err(E::custom)?.into()),
                }
            }
        }
    }
}

/// Returns a space whose elements may have a type of their own.
fn with_own<E: Error>(space: Space, own: Option<OwnDType>) -> Result<ObservationSpace, E> {
    let space = match own {
        Some(own) => space.with_own(own).map_err(E::custom)?,
        None => space,
    };
    Ok(space.into())
}

/// Returns the text or the sequence whose two columns are `spaces`.
fn counted_space(counted: Counted, spaces: &CompositeSpace) -> Result<CompositeSpace, String> {
    let space = counted.space().map_err(|error| error.to_string())?;
    let is_of = matches!(spaces, CompositeSpace::Dict { .. }) && spaces.columns() == space.columns();
    if is_of { Ok(space) } else { Err("the columns are not those of their text or sequence".to_owned()) }
}

fn may_be_choices(space: &BoxSpace) -> bool {
    let whole = |bound: &f64| bound.is_finite() && bound.fract() == 0.0;
    matches!(space.dtype, DType::I64 | DType::U8)
        && space.low.numbers().iter().chain(space.high.numbers()).all(whole)
}

struct SpaceVisitor;

impl<'de> Visitor<'de> for SpaceVisitor {
    type Value = ObservationSpace;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a space")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ObservationSpace, A::Error> {
        let mut fields = Fields::default();
        while let Some(field) = map.next_key()? {
            match field {
                Field::Kind => fields.kind = Some(map.next_value()?),
                Field::Low => fields.low = Some(map.next_value()?),
                Field::High => fields.high = Some(map.next_value()?),
                Field::Shape => fields.shape = Some(map.next_value()?),
                Field::Dtype => fields.dtype = Some(map.next_value()?),
                Field::Choices => fields.choices = Some(map.next_value()?),
                Field::Parts => fields.parts = Some(map.next_value()?),
                Field::N => fields.n = Some(map.next_value()?),
                Field::Start => fields.start = Some(map.next_value()?),
                Field::Own => fields.own = Some(map.next_value()?),
                Field::Spaces => {
                    let kind =
                        fields.kind.ok_or_else(|| A::Error::custom("`kind` stands before `spaces`"))?;
                    fields.spaces = Some(map.next_value_seed(Parts(kind))?);
                }
                Field::Counted => fields.counted = Some(map.next_value()?),
                Field::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        fields.space()
    }

    /// Reads a list without names of fields, which has the fields of the space's kind in the order of their
    /// declaration.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ObservationSpace, A::Error> {
        let kind = list.next_element()?;
        let mut fields = Fields { kind, ..Fields::default() };
        match kind {
            Some(Kind::Box) => {
                fields.low = list.next_element()?;
                fields.high = list.next_element()?;
                fields.shape = list.next_element()?;
                fields.dtype = list.next_element()?;
                // Each is left out where it says nothing.
                while let Some(last) = list.next_element()? {
                    match last {
                        Last::Choices(choices) => fields.choices = Some(choices),
                        Last::Parts(parts) => fields.parts = Some(parts),
                        Last::Own(own) => fields.own = Some(own),
                    }
                }
            }
            Some(Kind::Discrete) => {
                fields.n = list.next_element()?;
                fields.start = list.next_element()?;
                fields.own = list.next_element()?;
            }
            Some(kind @ (Kind::Dict | Kind::Tuple)) => {
                fields.spaces = list.next_element_seed(Parts(kind))?;
                fields.counted = list.next_element()?;
            }
            None => {}
        }
        fields.space()
    }
}

/// Field of a box in a list without names of fields that comes behind its type.
enum Last {
    Choices(bool),
    Parts(ObservationSpace),
    Own(OwnDType),
}

impl<'de> Deserialize<'de> for Last {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(LastVisitor)
    }
}

struct LastVisitor;

impl<'de> Visitor<'de> for LastVisitor {
    type Value = Last;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a boolean, a space or a type")
    }

    fn visit_bool<E: Error>(self, choices: bool) -> Result<Last, E> {
        Ok(Last::Choices(choices))
    }

    fn visit_str<E: Error>(self, own: &str) -> Result<Last, E> {
        OwnDType::deserialize(own.into_deserializer()).map(Last::Own)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Last, A::Error> {
        SpaceVisitor.visit_map(map).map(Last::Parts)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Last, A::Error> {
        SpaceVisitor.visit_seq(list).map(Last::Parts)
    }
}

/// Reads the parts of a composite space of that kind.
struct Parts(Kind);

impl<'de> DeserializeSeed<'de> for Parts {
    type Value = CompositeSpace;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<CompositeSpace, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Parts {
    type Value = CompositeSpace;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of spaces")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<CompositeSpace, A::Error> {
        let mut size = Size::default();
        if let Kind::Dict = self.0 {
            let mut spaces = Vec::new();
            while let Some((name, space)) = parts.next_element::<(String, ObservationSpace)>()? {
                if name.len() > MAX_NAME_BYTES {
                    let bytes = name.len();
                    return Err(A::Error::custom(format_args!(
                        "the name of a space has {bytes} bytes, at most {MAX_NAME_BYTES} allowed"
                    )));
                }
                size.add(&space).map_err(A::Error::custom)?;
                spaces.push((name, space));
            }
            return Ok(CompositeSpace::Dict { spaces });
        }
        let mut spaces = Vec::new();
        while let Some(space) = parts.next_element::<ObservationSpace>()? {
            size.add(&space).map_err(A::Error::custom)?;
            spaces.push(space);
        }
        Ok(CompositeSpace::Tuple { spaces })
    }
}

/// Size of all parts of a composite space together.
#[derive(Default, Clone, Copy)]
struct Size {
    columns: usize,
    elements: usize,
}

impl Size {
    /// Returns the size of a space that was read and each of whose parts is within the limits.
    fn of(space: &ObservationSpace) -> Self {
        let sum = |sizes: &mut dyn Iterator<Item = Self>| {
            sizes.fold(Self::default(), |sum, size| Self {
                columns: sum.columns + size.columns,
                elements: sum.elements + size.elements,
            })
        };
        match space {
            ObservationSpace::Plain(space) => Self { columns: 1, elements: space.elements() },
            ObservationSpace::Composite(CompositeSpace::Dict { spaces }) => {
                sum(&mut spaces.iter().map(|(_, space)| Self::of(space)))
            }
            ObservationSpace::Composite(CompositeSpace::Tuple { spaces }) => {
                sum(&mut spaces.iter().map(Self::of))
            }
            ObservationSpace::Composite(counted) => {
                let columns = counted.columns();
                let elements = columns.iter().map(|(_, space)| space.elements()).sum();
                Self { columns: columns.len(), elements }
            }
        }
    }

    fn add(&mut self, part: &ObservationSpace) -> Result<(), String> {
        let Self { columns, elements } = Self::of(part);
        // One without columns takes memory as well.
        self.columns += columns.max(1);
        self.elements += elements;
        if self.columns > MAX_OBS_COLUMNS {
            return Err(format!("a space of more than {MAX_OBS_COLUMNS} columns"));
        }
        if self.elements > MAX_ROW_ELEMENTS {
            return Err(format!("a space of more than {MAX_ROW_ELEMENTS} elements"));
        }
        Ok(())
    }
}

/// Maximum number of a column's axes, the same as in NumPy.
const MAX_AXES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(dtype: DType, high: f64) -> Space {
        Space::Box(BoxSpace {
            low: Bounds::all(-1.0, 2),
            high: Bounds::all(high, 2),
            shape: vec![2],
            dtype,
            choices: true,
            parts: None,
            own: None,
        })
    }

    #[test]
    fn choices_are_read_as_such_and_what_cannot_be_any_is_refused() {
        let read = |space: &Space| {
            let text = serde_json::to_string(space).expect("it is written");
            serde_json::from_str::<Space>(&text)
        };
        for dtype in [DType::I64, DType::U8] {
            let space = choices(dtype, 3.0);
            assert_eq!(read(&space).expect("it is read"), space);
        }
        for space in [choices(DType::F32, 3.0), choices(DType::I64, 2.5), choices(DType::I64, 1e300 * 1e300)]
        {
            assert!(read(&space).is_err(), "{space:?}");
        }
        // Earlier versions say nothing of it.
        let plain = r#"{"kind":"box","low":[0],"high":[1],"shape":[1],"dtype":"i64"}"#;
        let plain = serde_json::from_str::<Space>(plain).expect("it is read");
        assert!(matches!(plain, Space::Box(BoxSpace { choices: false, .. })), "{plain:?}");
    }
}

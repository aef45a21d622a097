//! Parts of an observation or an action that have as many items as each value says: texts and sequences.
//!
//! Each is two columns of fixed shape: its items, with zeros behind the last one, and `count`, their number. Whatever moves or
//! records columns knows nothing of them; the ends, a worker and a vector env in Python, take them apart. In messages and
//! files such a part is a Dict of its two columns that says beside them what they mean, which earlier versions pass over.

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::limits::{MAX_CHARACTERS, MAX_ROW_ELEMENTS};
use crate::{Bounds, BoxSpace, CompositeSpace, DType, Space};

/// Texts of characters of a set, as Gymnasium's Text. The column `codes` has the code points of the characters: as u8 where
/// those of the whole set fit, else as i32.
#[derive(Debug, Clone, PartialEq)]
pub struct TextSpace {
    min_length: usize,
    max_length: usize,
    characters: String,
    columns: Columns,
}

/// Sequences, as Gymnasium's Sequence of at most so many. The column `items` has one more axis than a value has, in front;
/// values of several columns are carried as one ([`BoxSpace::of_parts`]).
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceSpace {
    item: Space,
    maximum: usize,
    stack: bool,
    columns: Columns,
}

/// The two columns of a text or a sequence.
#[derive(Debug, Clone, PartialEq)]
struct Columns {
    items: Space,
    count: Space,
}

/// Error of a text or a sequence that columns cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCounted {
    /// The maximum is none, or rows would be too long.
    #[error("at most {maximum} items of {elements} elements; a row has 1 to {MAX_ROW_ELEMENTS} of them")]
    Maximum {
        /// Maximum number of items.
        maximum: usize,
        /// Number of elements of one.
        elements: usize,
    },
    /// The shortest text is longer than the longest.
    #[error("texts of {min_length} to {max_length} characters")]
    Lengths {
        /// Number of characters in the shortest text.
        min_length: usize,
        /// Number of characters in the longest text.
        max_length: usize,
    },
    /// The set of characters is too large.
    #[error("texts of {characters} different characters, at most {MAX_CHARACTERS} allowed")]
    Characters {
        /// Number of characters in the set.
        characters: usize,
    },
    /// The items of a sequence have a number of items themselves.
    #[error("a sequence of items that have texts or sequences among them")]
    Items,
}

impl TextSpace {
    /// Makes the space of texts of `min_length` to `max_length` of these characters.
    ///
    /// # Errors
    /// [`BadCounted`].
    pub fn new(min_length: usize, max_length: usize, characters: String) -> Result<Self, BadCounted> {
        if min_length > max_length {
            return Err(BadCounted::Lengths { min_length, max_length });
        }
        let known = characters.chars().count();
        if known > MAX_CHARACTERS {
            return Err(BadCounted::Characters { characters: known });
        }
        let greatest = characters.chars().map(u32::from).max().unwrap_or_default();
        let dtype = if u8::try_from(greatest).is_ok() { DType::U8 } else { DType::I32 };
        let columns = Columns::new(max_length, &[], dtype, (0.0, greatest.into()))?;
        Ok(Self { min_length, max_length, characters, columns })
    }

    /// Returns the number of characters in the shortest text.
    pub const fn min_length(&self) -> usize {
        self.min_length
    }

    /// Returns the number of characters in the longest text.
    pub const fn max_length(&self) -> usize {
        self.max_length
    }

    /// Returns the characters of which the texts consist.
    pub fn characters(&self) -> &str {
        &self.characters
    }

    /// Returns names and spaces of the two columns.
    pub const fn columns(&self) -> [(&'static str, &Space); 2] {
        [("codes", &self.columns.items), ("count", &self.columns.count)]
    }
}

impl SequenceSpace {
    /// Makes the space of sequences of at most `maximum` values of `item`, which Gymnasium has as one array if they are
    /// stacked, and else as a tuple.
    ///
    /// # Errors
    /// [`BadCounted`].
    pub fn new(item: Space, maximum: usize, stack: bool) -> Result<Self, BadCounted> {
        if item.parts().is_some_and(|parts| !parts.counted().is_empty()) {
            return Err(BadCounted::Items);
        }
        // What stands behind the last item is zero.
        let bounds = item.extremes().map_or((0.0, 0.0), |(low, high)| (low.min(0.0), high.max(0.0)));
        let mut columns = Columns::new(maximum, item.shape(), item.dtype(), bounds)?;
        if let Space::Box(items) = &mut columns.items {
            // Bits stay bits; other choices may not have zero.
            items.choices = item.choices().is_some() && item.dtype() == DType::U8;
            items.own = item.own();
        }
        Ok(Self { item, maximum, stack, columns })
    }

    /// Returns the space of one item: where it has several columns the box that carries them.
    pub const fn item(&self) -> &Space {
        &self.item
    }

    /// Returns the maximum number of items.
    pub const fn maximum(&self) -> usize {
        self.maximum
    }

    /// Returns whether Gymnasium has a value as one array.
    pub const fn stack(&self) -> bool {
        self.stack
    }

    /// Returns names and spaces of the two columns.
    pub const fn columns(&self) -> [(&'static str, &Space); 2] {
        [("items", &self.columns.items), ("count", &self.columns.count)]
    }
}

impl Columns {
    fn new(
        maximum: usize,
        shape: &[usize],
        dtype: DType,
        (low, high): (f64, f64),
    ) -> Result<Self, BadCounted> {
        let elements: usize = shape.iter().product();
        let row = maximum.checked_mul(elements.max(1)).filter(|row| (1..=MAX_ROW_ELEMENTS).contains(row));
        if row.is_none() {
            return Err(BadCounted::Maximum { maximum, elements });
        }
        let all = maximum * elements;
        let (low, high) = (Bounds::all(low, all), Bounds::all(high, all));
        let shape = [&[maximum][..], shape].concat();
        let items = Space::Box(BoxSpace { low, high, shape, dtype, choices: false, parts: None, own: None });
        Ok(Self { items, count: Space::discrete(maximum as u64 + 1) })
    }
}

impl From<TextSpace> for CompositeSpace {
    fn from(space: TextSpace) -> Self {
        Self::Text(Box::new(space))
    }
}

impl From<SequenceSpace> for CompositeSpace {
    fn from(space: SequenceSpace) -> Self {
        Self::Sequence(Box::new(space))
    }
}

/// What messages and files say of the two columns of a text or a sequence.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Counted {
    Text { min_length: usize, max_length: usize, characters: String },
    Sequence { item: Space, maximum: usize, stack: bool },
}

impl Counted {
    /// Returns the text or the sequence.
    pub(crate) fn space(self) -> Result<CompositeSpace, BadCounted> {
        Ok(match self {
            Self::Text { min_length, max_length, characters } => {
                CompositeSpace::from(TextSpace::new(min_length, max_length, characters)?)
            }
            Self::Sequence { item, maximum, stack } => {
                CompositeSpace::from(SequenceSpace::new(item, maximum, stack)?)
            }
        })
    }
}

impl Serialize for TextSpace {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { min_length, max_length, ref characters, .. } = *self;
        let counted = Counted::Text { min_length, max_length, characters: characters.clone() };
        serialize(to, &self.columns(), &counted)
    }
}

impl Serialize for SequenceSpace {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { ref item, maximum, stack, .. } = *self;
        serialize(to, &self.columns(), &Counted::Sequence { item: item.clone(), maximum, stack })
    }
}

fn serialize<S: Serializer>(
    to: S,
    spaces: &[(&str, &Space); 2],
    counted: &Counted,
) -> Result<S::Ok, S::Error> {
    let mut fields = to.serialize_struct("Counted", 2)?;
    fields.serialize_field("spaces", spaces)?;
    fields.serialize_field("counted", counted)?;
    fields.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DiscreteSpace, ObservationSpace};

    fn text(characters: &str) -> TextSpace {
        TextSpace::new(1, 4, characters.to_owned()).unwrap()
    }

    fn shown(columns: [(&'static str, &Space); 2]) -> Vec<(&'static str, DType, Vec<usize>)> {
        columns.map(|(name, space)| (name, space.dtype(), space.shape().to_vec())).to_vec()
    }

    fn nested() -> ObservationSpace {
        let moves = SequenceSpace::new(Space::f32_box(&[1.0, -2.0], &[3.0, 4.0]), 5, true).unwrap();
        let spaces = vec![CompositeSpace::from(text("ab")).into(), CompositeSpace::from(moves).into()];
        CompositeSpace::Dict {
            spaces: vec![
                ("says".into(), CompositeSpace::Tuple { spaces }.into()),
                ("n".into(), Space::discrete(2).into()),
            ],
        }
        .into()
    }

    #[test]
    fn texts_are_code_points_in_the_smallest_type_and_a_count() {
        let count = ("count", DType::I64, vec![]);
        assert_eq!(shown(text("abÿ").columns()), [("codes", DType::U8, vec![4]), count.clone()]);
        assert_eq!(shown(text("aĀ").columns()), [("codes", DType::I32, vec![4]), count]);
        let Space::Box(codes) = text("az").columns()[0].1.clone() else { panic!("no box") };
        assert_eq!((codes.low, codes.high), (Bounds::all(0.0, 4), Bounds::all(122.0, 4)));
    }

    #[test]
    fn sequences_have_an_axis_in_front_of_their_items_and_zero_within_their_bounds() {
        let items = |item: Space| {
            let space = SequenceSpace::new(item, 3, false).unwrap();
            let [(_, items), (_, count)] = space.columns();
            assert_eq!(*count, Space::discrete(4));
            let Space::Box(items) = items.clone() else { panic!("no box") };
            items
        };
        let boxed = items(Space::f32_box(&[1.0, 2.0], &[3.0, 9.0]));
        assert_eq!((boxed.shape, boxed.dtype), (vec![3, 2], DType::F32));
        assert_eq!((boxed.low, boxed.high), (Bounds::all(0.0, 6), Bounds::all(9.0, 6)));
        let choices = items(Space::Discrete(DiscreteSpace { n: 3, start: -5, own: None }));
        assert_eq!((choices.shape, choices.dtype, choices.choices), (vec![3], DType::I64, false));
        assert_eq!((choices.low, choices.high), (Bounds::all(-5.0, 3), Bounds::all(0.0, 3)));
        let (low, high) = (Bounds::all(0.0, 2), Bounds::all(1.0, 2));
        let bits =
            BoxSpace { low, high, shape: vec![2], dtype: DType::U8, choices: true, parts: None, own: None };
        assert!(items(Space::Box(bits)).choices);
    }

    #[test]
    fn columns_stand_below_the_part_and_at_the_root_by_their_own_names() {
        let space = nested();
        let paths: Vec<_> = space.columns().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["says/0/codes", "says/0/count", "says/1/items", "says/1/count", "n"]);
        let root = ObservationSpace::from(CompositeSpace::from(text("ab")));
        let paths: Vec<_> = root.columns().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["codes", "count"]);
        assert_eq!(space.counted().len(), 2);
    }

    #[test]
    fn they_come_back_from_messages_and_earlier_versions_read_their_columns() {
        let space = nested();
        for bytes in [rmp_serde::to_vec_named(&space).unwrap(), rmp_serde::to_vec(&space).unwrap()] {
            assert_eq!(crate::msgpack::decode::<ObservationSpace>(&bytes, 1 << 12).unwrap(), space);
        }
        let text = serde_json::to_string(&space).unwrap();
        assert_eq!(serde_json::from_str::<ObservationSpace>(&text).unwrap(), space);
        let earlier = text.replace("\"counted\":", "\"unheard\":");
        let earlier = serde_json::from_str::<ObservationSpace>(&earlier).unwrap();
        assert_eq!(earlier.columns(), space.columns());
        assert!(earlier.counted().is_empty());
    }

    #[test]
    fn columns_that_are_not_those_of_their_text_are_refused() {
        let space = ObservationSpace::from(CompositeSpace::from(text("ab")));
        let written = serde_json::to_string(&space).unwrap();
        for (from, to, wrong) in [
            ("\"max_length\":4", "\"max_length\":5", "not those of"),
            ("\"count\"", "\"counts\"", "not those of"),
            ("\"min_length\":1", "\"min_length\":9", "texts of 9 to 4 characters"),
            ("\"characters\":\"ab\"", "\"characters\":\"aĀ\"", "not those of"),
        ] {
            assert!(written.contains(from), "{written}");
            let error = serde_json::from_str::<ObservationSpace>(&written.replacen(from, to, 1)).unwrap_err();
            assert!(error.to_string().contains(wrong), "{from}: {error}");
        }
    }

    #[test]
    fn lengths_are_refused_before_anything_is_as_long() {
        let sequence = |maximum| SequenceSpace::new(Space::f32_box(&[0.0; 3], &[1.0; 3]), maximum, false);
        for maximum in [0, MAX_ROW_ELEMENTS / 3 + 1, usize::MAX] {
            assert_eq!(sequence(maximum), Err(BadCounted::Maximum { maximum, elements: 3 }));
        }
        assert!(sequence(MAX_ROW_ELEMENTS / 3).is_ok());
        assert!(matches!(TextSpace::new(0, 0, "a".into()), Err(BadCounted::Maximum { .. })));
        assert!(matches!(TextSpace::new(0, usize::MAX, "a".into()), Err(BadCounted::Maximum { .. })));
        let many = "a".repeat(MAX_CHARACTERS + 1);
        assert!(matches!(TextSpace::new(0, 1, many), Err(BadCounted::Characters { .. })));
    }

    fn carrier(spaces: Vec<(String, ObservationSpace)>) -> Space {
        Space::Box(BoxSpace::of_parts(CompositeSpace::Dict { spaces }).unwrap())
    }

    #[test]
    fn items_of_several_columns_are_rows_of_the_box_that_carries_them() {
        let unit = || {
            let push = Space::f32_box(&[-1.0, -2.0], &[1.0, 2.0]);
            carrier(vec![("kind".into(), Space::discrete(3).into()), ("push".into(), push.into())])
        };
        let space = SequenceSpace::new(unit(), 4, true).unwrap();
        let [(_, items), (_, count)] = space.columns();
        assert_eq!((items.dtype(), items.shape(), count), (DType::F64, &[4, 3][..], &Space::discrete(5)));
        assert_eq!((items.parts(), space.item()), (None, &unit()));
        let space = ObservationSpace::from(CompositeSpace::from(space));
        let paths: Vec<_> = space.columns().into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["items", "count"]);
        for bytes in [rmp_serde::to_vec_named(&space).unwrap(), rmp_serde::to_vec(&space).unwrap()] {
            assert_eq!(crate::msgpack::decode::<ObservationSpace>(&bytes, 1 << 12).unwrap(), space);
        }
        let text = serde_json::to_string(&space).unwrap();
        assert_eq!(serde_json::from_str::<ObservationSpace>(&text).unwrap(), space);
        let counted = carrier(vec![(
            "says".into(),
            CompositeSpace::from(TextSpace::new(0, 3, "ab".into()).unwrap()).into(),
        )]);
        assert_eq!(SequenceSpace::new(counted, 2, false), Err(BadCounted::Items));
    }
}

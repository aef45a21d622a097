//! Actions of several columns, which are carried as one.

use std::ops::Range;

use crate::limits::MAX_ELEMENT_NAMES;
use crate::{BoxSpace, ColumnData, CompositeSpace, DType, Space};

/// Error of a part whose integers a column of float64 does not have, which it would share with numbers that are not whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: integers beyond 2^53 cannot be carried beside numbers that are not whole")]
pub struct InexactPart {
    path: String,
}

impl BoxSpace {
    /// Returns the box that carries values of several columns as one: the elements of all columns, one after the other in
    /// the space's own order, as int64 where all are integers, as float32 where all are, and else as float64, which has each of
    /// them exactly.
    ///
    /// # Errors
    /// If float64 does not.
    pub fn of_parts(parts: CompositeSpace) -> Result<Self, InexactPart> {
        let columns = parts.columns();
        let every = |are: fn(&Space) -> bool| columns.iter().all(|(_, space)| are(space));
        let (whole, single) = (every(is_whole), every(|space| space.dtype() == DType::F32));
        let dtype = match (whole, single) {
            (true, _) => DType::I64,
            (_, true) => DType::F32,
            _ => DType::F64,
        };
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for (path, space) in &columns {
            let first = low.len();
            space.each_bound(|least, most| {
                low.push(least);
                high.push(most);
            });
            let far = |bound: &f64| bound.abs() > EXACT;
            if !whole && is_whole(space) && low[first..].iter().chain(&high[first..]).any(far) {
                return Err(InexactPart { path: path.clone() });
            }
        }
        let shape = vec![low.len()];
        let choices = parts.counted().is_empty() && every(|space| space.choices().is_some());
        Ok(Self {
            low: low.into(),
            high: high.into(),
            shape,
            dtype,
            choices,
            parts: Some(Box::new(parts)),
            own: None,
        })
    }

    /// Returns a name for each element of a box of parts: the part's path, and the element's number where a part has
    /// several. The list is empty for other boxes, and where it would be longer than lists of names are.
    pub fn part_names(&self) -> Vec<String> {
        let columns = self.parts.as_ref().map(|parts| parts.columns()).unwrap_or_default();
        if self.low.len() > MAX_ELEMENT_NAMES {
            return Vec::new();
        }
        let names = columns.iter().flat_map(|(path, space)| {
            let scalar = space.shape().is_empty();
            let name = move |element| if scalar { path.clone() } else { format!("{path}[{element}]") };
            (0..space.elements()).map(name)
        });
        names.collect()
    }

    /// Returns rows of this box as rows of each of its parts, of their own types; `None` for a box without parts, and for
    /// rows of another type. What is left at the end is no row.
    pub fn split(&self, rows: &ColumnData) -> Option<Vec<ColumnData>> {
        let columns = self.parts.as_ref()?.columns();
        let (width, mut first) = (self.low.len().max(1), 0);
        let column = |(_, space): &(String, &Space)| {
            let place = first..first + space.elements();
            first = place.end;
            match rows {
                ColumnData::I64(rows) => Some(taken(rows, width, place, space.dtype())),
                ColumnData::F32(rows) => Some(taken(rows, width, place, space.dtype())),
                ColumnData::F64(rows) => Some(taken(rows, width, place, space.dtype())),
                _ => None,
            }
        };
        columns.iter().map(column).collect()
    }

    /// Returns whether parts that were read are those of this box: none has parts of its own, and they have its elements.
    pub(crate) fn is_of(&self, parts: &CompositeSpace) -> bool {
        let columns = parts.columns();
        let plain = |space: &Space| !matches!(space, Space::Box(space) if space.parts.is_some());
        columns.iter().all(|(_, space)| plain(space))
            && columns.iter().map(|(_, space)| space.elements()).sum::<usize>() == self.low.len()
    }
}

impl Space {
    /// Calls `take` with the least and the greatest value of each element.
    pub(crate) fn each_bound(&self, mut take: impl FnMut(f64, f64)) {
        match self {
            Self::Discrete(space) => take(space.start as f64, space.start as f64 + (space.n as f64 - 1.0)),
            Self::Box(space) => {
                space.low.iter().zip(space.high.iter()).for_each(|(low, high)| take(low, high));
            }
        }
    }
}

/// A number of a column that carries parts.
pub(crate) trait Carried: Copy {
    fn of(number: i64) -> Self;
    fn whole(self) -> i64;
    fn single(self) -> f32;
    fn double(self) -> f64;
}

impl Carried for i64 {
    fn of(number: i64) -> Self {
        number
    }

    fn whole(self) -> i64 {
        self
    }

    fn single(self) -> f32 {
        self as f32
    }

    fn double(self) -> f64 {
        self as f64
    }
}

impl Carried for f32 {
    fn of(number: i64) -> Self {
        number as f32
    }

    fn whole(self) -> i64 {
        self.round_ties_even() as i64
    }

    fn single(self) -> f32 {
        self
    }

    fn double(self) -> f64 {
        self.into()
    }
}

impl Carried for f64 {
    fn of(number: i64) -> Self {
        number as f64
    }

    fn whole(self) -> i64 {
        self.round_ties_even() as i64
    }

    fn single(self) -> f32 {
        self as f32
    }

    fn double(self) -> f64 {
        self
    }
}

/// Returns the elements at `place` of every row of `width`, as a column of that type.
fn taken<T: Carried>(rows: &[T], width: usize, place: Range<usize>, dtype: DType) -> ColumnData {
    let elements = rows.chunks_exact(width).flat_map(|row| &row[place.clone()]).copied();
    match dtype {
        DType::Bool | DType::U8 => ColumnData::U8(elements.map(|value| value.whole() as u8).collect()),
        DType::I32 => ColumnData::I32(elements.map(|value| value.whole() as i32).collect()),
        DType::I64 => ColumnData::I64(elements.map(Carried::whole).collect()),
        DType::F32 => ColumnData::F32(elements.map(Carried::single).collect()),
        DType::F64 => ColumnData::F64(elements.map(Carried::double).collect()),
    }
}

pub(crate) fn is_whole(space: &Space) -> bool {
    !matches!(space.dtype(), DType::F32 | DType::F64)
}

/// Number up to which float64 has every integer.
const EXACT: f64 = (1_u64 << 53) as f64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bounds, DiscreteSpace, ObservationSpace, SequenceSpace, TextSpace};

    fn dict(parts: &[(&str, Space)]) -> CompositeSpace {
        let spaces = parts.iter().map(|(name, space)| ((*name).to_owned(), space.clone().into())).collect();
        CompositeSpace::Dict { spaces }
    }

    fn moves() -> Space {
        Space::Discrete(DiscreteSpace { n: 3, start: 5, own: None })
    }

    #[test]
    fn parts_are_carried_one_after_the_other_in_a_type_that_has_them_exactly() {
        let push = Space::f32_box(&[-1.0, -2.0], &[1.0, 2.0]);
        for (parts, dtype, choices) in [
            (dict(&[("hare", moves()), ("snail", moves())]), DType::I64, true),
            (dict(&[("a", push.clone()), ("b", push.clone())]), DType::F32, false),
            (dict(&[("hare", moves()), ("cart", push.clone())]), DType::F64, false),
        ] {
            let carrier = BoxSpace::of_parts(parts.clone()).unwrap();
            assert_eq!((carrier.dtype, carrier.choices), (dtype, choices), "{parts:?}");
            assert_eq!(carrier.parts.as_deref(), Some(&parts));
            assert_eq!(carrier.shape, [carrier.low.len()]);
        }
        let mixed = BoxSpace::of_parts(dict(&[("hare", moves()), ("cart", push)])).unwrap();
        assert_eq!(mixed.low.iter().collect::<Vec<_>>(), [5.0, -1.0, -2.0]);
        assert_eq!(mixed.high.iter().collect::<Vec<_>>(), [7.0, 1.0, 2.0]);
        assert_eq!(mixed.part_names(), ["hare", "cart[0]", "cart[1]"]);
        let whole: Vec<_> = crate::Drawing::of(&mixed).elements.iter().map(|range| range.whole).collect();
        assert_eq!(whole, [true, false, false]);
    }

    #[test]
    fn texts_and_sequences_are_carried_as_their_columns_and_come_back_from_messages() {
        let text = TextSpace::new(0, 3, "aβ".to_owned()).unwrap();
        let bits = BoxSpace { choices: true, ..bits() };
        let bits = SequenceSpace::new(Space::Box(bits), 2, true).unwrap();
        let said = CompositeSpace::from(text);
        for (parts, names) in [
            (said.clone(), &["codes[0]", "codes[1]", "codes[2]", "count"][..]),
            (bits.clone().into(), &["items[0]", "items[1]", "items[2]", "items[3]", "count"]),
            (CompositeSpace::Dict { spaces: vec![("a".into(), said.into())] }, &["a/codes[0]"]),
        ] {
            let carrier = BoxSpace::of_parts(parts.clone()).unwrap();
            assert_eq!((carrier.dtype, carrier.choices), (DType::I64, false));
            assert_eq!(&carrier.part_names()[..names.len()], names);
            let space = Space::Box(carrier);
            for bytes in [rmp_serde::to_vec_named(&space).unwrap(), rmp_serde::to_vec(&space).unwrap()] {
                assert_eq!(crate::msgpack::decode::<Space>(&bytes, 1 << 10).unwrap(), space);
            }
            let text = serde_json::to_string(&space).unwrap();
            assert_eq!(serde_json::from_str::<Space>(&text).unwrap(), space);
            // Versions that know nothing of `counted` read the columns.
            let earlier = serde_json::from_str::<Space>(&text.replace("\"counted\"", "\"unheard\"")).unwrap();
            assert_eq!(earlier.parts().unwrap().columns(), parts.columns());
        }
        let carrier = BoxSpace::of_parts(bits.into()).unwrap();
        let wanted = vec![ColumnData::U8(vec![1, 0, 0, 0]), ColumnData::I64(vec![1])];
        assert_eq!(carrier.split(&ColumnData::I64(vec![1, 0, 0, 0, 1])), Some(wanted));
    }

    fn bits() -> BoxSpace {
        let (low, high) = (Bounds::all(0.0, 2), Bounds::all(1.0, 2));
        BoxSpace { low, high, shape: vec![2], dtype: DType::U8, choices: false, parts: None, own: None }
    }

    #[test]
    fn rows_come_apart_into_the_parts_types() {
        let push = Space::f32_box(&[-1.0, -2.0], &[1.0, 2.0]);
        let mixed = BoxSpace::of_parts(dict(&[("hare", moves()), ("cart", push)])).unwrap();
        let rows = ColumnData::F64(vec![5.0, 0.5, -2.0, 7.0, 0.1_f32.into(), 1.5, 6.0]);
        let wanted = vec![ColumnData::I64(vec![5, 7]), ColumnData::F32(vec![0.5, -2.0, 0.1, 1.5])];
        assert_eq!(mixed.split(&rows), Some(wanted));
        assert_eq!(mixed.split(&ColumnData::U8(vec![0; 24])), None);
        let far = Space::Discrete(DiscreteSpace { n: 3, start: i64::MAX - 3, own: None });
        let whole = BoxSpace::of_parts(dict(&[("far", far), ("near", moves())])).unwrap();
        let rows = ColumnData::I64(vec![i64::MAX - 1, 6]);
        let wanted = vec![ColumnData::I64(vec![i64::MAX - 1]), ColumnData::I64(vec![6])];
        assert_eq!(whole.split(&rows), Some(wanted));
    }

    #[test]
    fn integers_that_would_be_rounded_are_refused_by_the_path_of_their_part() {
        let far = Space::Discrete(DiscreteSpace { n: 3, start: 1 << 60, own: None });
        let push = Space::f32_box(&[-1.0], &[1.0]);
        let error = BoxSpace::of_parts(dict(&[("near", push), ("far", far.clone())])).unwrap_err();
        assert!(error.to_string().starts_with("far: integers beyond 2^53"), "{error}");
        assert!(BoxSpace::of_parts(dict(&[("near", moves()), ("far", far)])).is_ok(), "int64 has them");
    }

    #[test]
    fn a_box_of_parts_comes_back_from_messages_and_one_with_other_parts_is_refused() {
        let parts = dict(&[("hare", moves()), ("cart", Space::f32_box(&[0.0], &[1.0]))]);
        for parts in [parts, dict(&[("hare", moves()), ("snail", moves())])] {
            let space = Space::Box(BoxSpace::of_parts(parts).unwrap());
            for bytes in [rmp_serde::to_vec_named(&space).unwrap(), rmp_serde::to_vec(&space).unwrap()] {
                assert_eq!(crate::msgpack::decode::<Space>(&bytes, 1 << 10).unwrap(), space);
            }
            let text = serde_json::to_string(&space).unwrap();
            assert_eq!(serde_json::from_str::<Space>(&text).unwrap(), space);
            let Space::Box(mut other) = space else { panic!("it is carried by a box") };
            (other.low, other.high, other.shape) = (Bounds::all(0.0, 3), Bounds::all(1.0, 3), vec![3]);
            let text = serde_json::to_string(&Space::Box(other)).unwrap();
            let error = serde_json::from_str::<ObservationSpace>(&text).unwrap_err().to_string();
            assert!(error.contains("parts of a box are not those of its elements"), "{error}");
        }
    }
}

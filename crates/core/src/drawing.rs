//! How values of a box are drawn element by element.

use std::ops::Range;

use crate::parts::{Carried, is_whole};
use crate::{
    BoxSpace, ColumnMut, ColumnRef, CompositeSpace, ObservationSpace, SequenceSpace, Space, TextSpace,
};

/// What whoever draws a value of a box has to know: between which numbers each element lies, and what then makes a value of
/// the row, if not every row of such numbers is one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Drawing {
    /// Range of each element.
    pub elements: Vec<ElementRange>,
    /// What makes a value of a drawn row.
    pub settling: Settling,
}

/// Numbers of which an element is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ElementRange {
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// Whether it is whole, whatever the type of the box.
    pub whole: bool,
}

/// The places of texts and sequences in a row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settling {
    width: usize,
    counted: Vec<Items>,
}

/// The items of a text or a sequence in a row; their number stands behind them.
#[derive(Debug, Clone, PartialEq)]
struct Items {
    place: Range<usize>,
    /// Number of elements of one.
    width: usize,
    /// Code points of a text's characters, which are drawn by their place.
    codes: Option<Vec<u32>>,
}

impl Drawing {
    /// Returns how values of a box are drawn.
    pub fn of(space: &BoxSpace) -> Self {
        let mut drawing = Self::default();
        match &space.parts {
            None => drawing.add(space.low.iter().zip(space.high.iter()), space.choices),
            Some(parts) => drawing.composite(parts),
        }
        drawing.settling.width = drawing.elements.len();
        drawing
    }

    /// Returns how values of a space are drawn that has texts or sequences; `None` for any other.
    pub fn of_counted(space: &Space) -> Option<Self> {
        let Space::Box(space) = space else { return None };
        let parts = space.parts.as_ref()?;
        (!parts.counted().is_empty()).then(|| Self::of(space))
    }

    fn add(&mut self, bounds: impl Iterator<Item = (f64, f64)>, whole: bool) {
        self.elements.extend(bounds.map(|(low, high)| ElementRange { low, high, whole }));
    }

    fn space(&mut self, space: &ObservationSpace) {
        match space {
            ObservationSpace::Composite(parts) => self.composite(parts),
            ObservationSpace::Plain(space) => {
                let whole = space.choices().is_some();
                space.each_bound(|low, high| self.add([(low, high)].into_iter(), whole));
            }
        }
    }

    fn composite(&mut self, space: &CompositeSpace) {
        match space {
            CompositeSpace::Dict { spaces } => spaces.iter().for_each(|(_, space)| self.space(space)),
            CompositeSpace::Tuple { spaces } => spaces.iter().for_each(|space| self.space(space)),
            CompositeSpace::Text(text) => self.text(text),
            CompositeSpace::Sequence(sequence) => self.sequence(sequence),
        }
    }

    fn text(&mut self, text: &TextSpace) {
        let (first, most) = (self.elements.len(), text.max_length());
        let codes: Vec<u32> = text.characters().chars().map(u32::from).collect();
        let last = codes.len().saturating_sub(1) as f64;
        self.add(std::iter::repeat_n((0.0, last), most), true);
        // Of no characters there is the empty text alone.
        let most = if codes.is_empty() { 0 } else { most };
        self.items(first, 1, Some(codes), (text.min_length(), most));
    }

    fn sequence(&mut self, sequence: &SequenceSpace) {
        let (first, item) = (self.elements.len(), sequence.item());
        let columns = item.parts().map(CompositeSpace::columns);
        let columns = columns.unwrap_or_else(|| vec![(String::new(), item)]);
        for (_, column) in std::iter::repeat_n(&columns, sequence.maximum()).flatten() {
            column.each_bound(|low, high| self.add([(low, high)].into_iter(), is_whole(column)));
        }
        self.items(first, item.elements(), None, (0, sequence.maximum()));
    }

    /// Adds the number of items that stand from `first` on, of which there are `least` to `most`.
    fn items(&mut self, first: usize, width: usize, codes: Option<Vec<u32>>, (least, most): (usize, usize)) {
        let place = first..self.elements.len();
        self.settling.counted.push(Items { place, width: width.max(1), codes });
        self.add([(least as f64, most as f64)].into_iter(), true);
    }
}

impl Drawing {
    /// Returns the first element by which a row is none of its texts and sequences, and what is wanted in its place: a number
    /// of items that there may be, characters of a text, integers of an item's, and zeros behind the last item.
    pub fn miscounted(&self, row: ColumnRef<'_>) -> Option<(usize, String)> {
        let each = self.settling.counted.iter();
        match row {
            ColumnRef::I64(row) => each.filter_map(|items| items.fault(row, &self.elements)).next(),
            ColumnRef::F64(row) => each.filter_map(|items| items.fault(row, &self.elements)).next(),
            // No box of another type carries a number of items.
            _ => None,
        }
    }
}

impl Settling {
    /// Makes values of drawn rows: code points of the characters of texts, and zeros behind the last item of texts and
    /// sequences. Does not allocate.
    pub fn settle(&self, rows: ColumnMut<'_>) {
        match rows {
            ColumnMut::I64(rows) => self.each(rows),
            ColumnMut::F64(rows) => self.each(rows),
            // No box of another type carries a number of items.
            ColumnMut::U8(_) | ColumnMut::I32(_) | ColumnMut::F32(_) => {}
        }
    }

    fn each<T: Carried>(&self, rows: &mut [T]) {
        if self.counted.is_empty() {
            return;
        }
        for row in rows.chunks_exact_mut(self.width) {
            self.counted.iter().for_each(|items| items.settle(row));
        }
    }
}

impl Items {
    fn fault<T: Carried>(&self, row: &[T], elements: &[ElementRange]) -> Option<(usize, String)> {
        let (ElementRange { low, high, .. }, at) = (*elements.get(self.place.end)?, self.place.end);
        let count = row.get(at)?.double().round_ties_even();
        if !(low..=high).contains(&count) {
            return Some((at, format!("a number of items from {low} to {high}")));
        }
        self.place.clone().zip(row.get(self.place.clone())?).find_map(|(at, value)| {
            let (number, ElementRange { low, high, whole }) = (value.double(), *elements.get(at)?);
            if (at - self.place.start) / self.width >= count as usize {
                return (number != 0.0).then(|| (at, "0 behind the last item".to_owned()));
            }
            let nearest = number.round_ties_even();
            match &self.codes {
                Some(codes) if codes.iter().any(|&code| f64::from(code) == nearest) => None,
                Some(_) => Some((at, "the code point of a character of the text's".to_owned())),
                None if !whole || (low..=high).contains(&nearest) => None,
                None => Some((at, format!("an integer from {low} to {high}"))),
            }
        })
    }

    fn settle<T: Carried>(&self, row: &mut [T]) {
        let count = usize::try_from(row[self.place.end].whole()).unwrap_or_default();
        for (at, value) in row[self.place.clone()].iter_mut().enumerate() {
            if at / self.width >= count {
                *value = T::of(0);
            } else if let Some(codes) = &self.codes {
                let code = usize::try_from(value.whole()).ok().and_then(|place| codes.get(place));
                *value = T::of(code.copied().unwrap_or_default().into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn ranges(drawing: &Drawing) -> Vec<(f64, f64, bool)> {
        drawing.elements.iter().map(|range| (range.low, range.high, range.whole)).collect()
    }

    #[test]
    fn texts_are_drawn_by_the_place_of_their_characters_and_items_within_their_own_bounds() {
        let text = TextSpace::new(1, 3, "az".to_owned()).unwrap();
        let moves = SequenceSpace::new(Space::f32_box(&[1.0, 2.0], &[3.0, 4.0]), 2, false).unwrap();
        let spaces = vec![
            CompositeSpace::from(text).into(),
            Space::discrete(2).into(),
            CompositeSpace::from(moves).into(),
        ];
        let carrier = BoxSpace::of_parts(CompositeSpace::Tuple { spaces }).unwrap();
        assert_eq!(carrier.dtype, DType::F64);
        let drawing = Drawing::of(&carrier);
        let item = [(1.0, 3.0, false), (2.0, 4.0, false)];
        let wanted = [&[(0.0, 1.0, true); 3][..], &[(1.0, 3.0, true), (0.0, 1.0, true)], &item, &item];
        assert_eq!(ranges(&drawing), [&wanted.concat()[..], &[(0.0, 2.0, true)]].concat());
        let mut rows = [1.0, 0.0, 1.0, 2.0, 1.0, 1.5, 2.5, 3.0, 4.0, 1.0].repeat(2);
        rows[13] = 0.0;
        drawing.settling.settle(ColumnMut::F64(&mut rows));
        let end = [1.0, 1.5, 2.5, 0.0, 0.0, 1.0];
        assert_eq!(rows, [&[122.0, 97.0, 0.0, 2.0][..], &end, &[0.0; 4], &end].concat());
    }

    #[test]
    fn items_of_several_columns_are_drawn_and_refused_by_the_bounds_of_each() {
        let parts = vec![Space::discrete(3).into(), Space::f32_box(&[0.5], &[2.0]).into()];
        let unit = Space::Box(BoxSpace::of_parts(CompositeSpace::Tuple { spaces: parts }).unwrap());
        let units = SequenceSpace::new(unit, 2, false).unwrap();
        let drawing = Drawing::of(&BoxSpace::of_parts(units.into()).unwrap());
        let item = [(0.0, 2.0, true), (0.5, 2.0, false)];
        assert_eq!(ranges(&drawing), [&item[..], &item, &[(0.0, 2.0, true)]].concat());
        let mut row = [1.0, 0.75, 2.0, 1.5, 1.0];
        drawing.settling.settle(ColumnMut::F64(&mut row));
        assert_eq!(row, [1.0, 0.75, 0.0, 0.0, 1.0]);
        assert_eq!(drawing.miscounted(ColumnRef::F64(&row)), None);
        let wrong = [1.0, 0.75, 3.0, 1.5, 2.0];
        let found = drawing.miscounted(ColumnRef::F64(&wrong));
        assert_eq!(found, Some((2, "an integer from 0 to 2".to_owned())));
    }

    #[test]
    fn a_row_is_refused_by_the_element_that_makes_it_no_text_or_sequence() {
        let text = TextSpace::new(1, 3, "az".to_owned()).unwrap();
        let moves = SequenceSpace::new(Space::discrete(4), 2, false).unwrap();
        let spaces = vec![CompositeSpace::from(text).into(), CompositeSpace::from(moves).into()];
        let drawing = Drawing::of(&BoxSpace::of_parts(CompositeSpace::Tuple { spaces }).unwrap());
        let good = [97, 122, 0, 2, 3, 0, 1];
        assert_eq!(drawing.miscounted(ColumnRef::I64(&good)), None);
        for (at, value, wanted) in [
            (0, 98, "the code point of a character of the text's"),
            (2, 97, "0 behind the last item"),
            (3, 0, "a number of items from 1 to 3"),
            (3, i64::MAX, "a number of items from 1 to 3"),
            (4, 4, "an integer from 0 to 3"),
            (5, -1, "0 behind the last item"),
            (6, 3, "a number of items from 0 to 2"),
        ] {
            let mut row = good;
            row[at] = value;
            let found = drawing.miscounted(ColumnRef::I64(&row));
            assert_eq!(found, Some((at, wanted.to_owned())), "{value} in element {at}");
        }
    }

    #[test]
    fn numbers_that_none_has_drawn_settle_as_well() {
        let text = TextSpace::new(0, 2, String::new()).unwrap();
        let drawing = Drawing::of(&BoxSpace::of_parts(text.into()).unwrap());
        assert_eq!(ranges(&drawing), [(0.0, 0.0, true), (0.0, 0.0, true), (0.0, 0.0, true)]);
        for lie in [i64::MIN, -1, 7, i64::MAX] {
            let mut row = [lie; 3];
            drawing.settling.settle(ColumnMut::I64(&mut row));
            assert_eq!(row, [0, 0, lie], "{lie}");
        }
        let plain = Space::f32_box(&[0.0], &[1.0]);
        let Space::Box(plain) = plain else { panic!("no box") };
        let mut row = [0.5];
        Drawing::of(&plain).settling.settle(ColumnMut::F64(&mut row));
        assert_eq!((row, Drawing::of(&plain).elements.len()), ([0.5], 1));
    }
}

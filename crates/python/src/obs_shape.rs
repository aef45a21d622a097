//! The shape of observations: one array, or a dict or tuple of them, with texts and sequences among them.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use rollhouse_core::{
    BoxSpace, ColumnData, ColumnRef, CompositeSpace, ObservationSpace, SequenceSpace, Space, TextSpace,
};

use crate::arrays::RowShape;
use crate::dict_key::DictKey;

/// The rows of an observation's columns for NumPy, and the nesting in which Python sees them.
#[derive(Debug)]
pub(crate) struct ObsShape {
    nest: Nest,
    columns: Vec<RowShape>,
}

/// The place of columns in a value. A leaf is the index of its column.
#[derive(Debug)]
enum Nest {
    Leaf(usize),
    Counted(Counted),
    Dict(Vec<(DictKey, Nest)>),
    Tuple(Vec<Nest>),
}

/// What gives the parts of a value, by the place of their columns.
trait Parts<'py> {
    fn array(&mut self, index: usize) -> PyResult<Bound<'py, PyAny>>;
    fn counted(&mut self, part: &Counted) -> PyResult<Bound<'py, PyAny>>;
}

impl ObsShape {
    /// Describes the observations of a space; `row` gives the shape of a column.
    pub(crate) fn new(
        space: &ObservationSpace,
        mut row: impl FnMut(&Space) -> PyResult<RowShape>,
    ) -> PyResult<Self> {
        Self::of(space, &mut row)
    }

    fn of(space: &ObservationSpace, row: &mut dyn FnMut(&Space) -> PyResult<RowShape>) -> PyResult<Self> {
        let mut columns = Vec::new();
        let nest = Nest::of(space, &mut columns, row)?;
        Ok(Self { nest, columns })
    }

    /// Returns the rows, if an observation is one array.
    #[inline]
    pub(crate) fn plain(&self) -> Option<&RowShape> {
        match (&self.nest, &self.columns[..]) {
            (Nest::Leaf(_), [row]) => Some(row),
            _ => None,
        }
    }

    /// Iterates over the rows of the columns, in the space's own order.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &RowShape> {
        self.columns.iter()
    }

    /// Makes a value of `rows` rows out of what `array` gives for each column; texts and sequences are made of what `column`
    /// gives.
    pub(crate) fn batch<'py, 'a>(
        &self,
        py: Python<'py>,
        rows: usize,
        column: impl Fn(usize) -> ColumnRef<'a>,
        array: impl FnMut(usize, &RowShape) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.nest.value(py, &mut Batch { py, shape: self, rows, column, array })
    }

    /// Makes a value of fresh arrays with `rows` rows of each column that `column` gives.
    #[inline]
    pub(crate) fn copy<'py, 'a>(
        &self,
        py: Python<'py>,
        column: impl Fn(usize) -> ColumnRef<'a>,
        rows: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.plain() {
            Some(row) => row.copy(py, column(0), rows),
            None => self.batch(py, rows, &column, |index, row| row.copy(py, column(index), rows)),
        }
    }

    /// Makes the value of one row out of the columns.
    pub(crate) fn copy_row<'py>(
        &self,
        py: Python<'py>,
        columns: &[ColumnRef<'_>],
        row: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.nest.value(py, &mut Row { py, shape: self, columns, row })
    }
}

/// The parts of a batch.
struct Batch<'a, 'py, C, A> {
    py: Python<'py>,
    shape: &'a ObsShape,
    rows: usize,
    column: C,
    array: A,
}

impl<'py, 'c, C, A> Parts<'py> for Batch<'_, 'py, C, A>
where
    C: Fn(usize) -> ColumnRef<'c>,
    A: FnMut(usize, &RowShape) -> PyResult<Bound<'py, PyAny>>,
{
    fn array(&mut self, index: usize) -> PyResult<Bound<'py, PyAny>> {
        (self.array)(index, &self.shape.columns[index])
    }

    fn counted(&mut self, part: &Counted) -> PyResult<Bound<'py, PyAny>> {
        let columns = part.columns().map(&self.column);
        let rows = (0..self.rows).map(|row| part.value(self.py, columns, row));
        Ok(PyTuple::new(self.py, rows.collect::<PyResult<Vec<_>>>()?)?.into_any())
    }
}

/// The parts of one row.
struct Row<'a, 'py> {
    py: Python<'py>,
    shape: &'a ObsShape,
    columns: &'a [ColumnRef<'a>],
    row: usize,
}

impl<'py> Parts<'py> for Row<'_, 'py> {
    fn array(&mut self, index: usize) -> PyResult<Bound<'py, PyAny>> {
        let shape = &self.shape.columns[index];
        let elements = shape.elements();
        let (start, end) = (self.row * elements, (self.row + 1) * elements);
        shape.copy_row(self.py, self.columns[index].slice(start, end))
    }

    fn counted(&mut self, part: &Counted) -> PyResult<Bound<'py, PyAny>> {
        part.value(self.py, part.columns().map(|index| self.columns[index]), self.row)
    }
}

impl Nest {
    fn of(
        space: &ObservationSpace,
        columns: &mut Vec<RowShape>,
        row: &mut dyn FnMut(&Space) -> PyResult<RowShape>,
    ) -> PyResult<Self> {
        let first = columns.len();
        Ok(match space {
            ObservationSpace::Plain(space) => {
                columns.push(row(space)?);
                Self::Leaf(first)
            }
            ObservationSpace::Composite(CompositeSpace::Dict { spaces }) => {
                let part = |(name, space): &(String, _)| {
                    Ok((DictKey::of_name(name), Self::of(space, columns, row)?))
                };
                Self::Dict(spaces.iter().map(part).collect::<PyResult<_>>()?)
            }
            ObservationSpace::Composite(CompositeSpace::Tuple { spaces }) => {
                let parts = spaces.iter().map(|space| Self::of(space, columns, row));
                Self::Tuple(parts.collect::<PyResult<_>>()?)
            }
            ObservationSpace::Composite(CompositeSpace::Text(text)) => {
                for (_, space) in text.columns() {
                    columns.push(row(space)?);
                }
                Self::Counted(Counted::text(first, text))
            }
            ObservationSpace::Composite(CompositeSpace::Sequence(sequence)) => {
                for (_, space) in sequence.columns() {
                    columns.push(row(space)?);
                }
                let item = match sequence.item() {
                    Space::Box(carrier) if let Some(parts) = &carrier.parts => {
                        let parts = ObservationSpace::Composite((**parts).clone());
                        Item::Parts(Box::new(carrier.clone()), Box::new(ObsShape::of(&parts, row)?))
                    }
                    item => Item::Plain(row(item)?),
                };
                Self::Counted(Counted::sequence(first, sequence, item))
            }
        })
    }

    fn value<'py>(&self, py: Python<'py>, from: &mut impl Parts<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Leaf(index) => from.array(*index),
            Self::Counted(part) => from.counted(part),
            Self::Dict(parts) => {
                let dict = PyDict::new(py);
                for (key, part) in parts {
                    dict.set_item(key.to_python(py)?, part.value(py, from)?)?;
                }
                Ok(dict.into_any())
            }
            Self::Tuple(parts) => {
                let parts = parts.iter().map(|part| part.value(py, from));
                Ok(PyTuple::new(py, parts.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
        }
    }
}

/// A text or a sequence among the columns of an observation.
#[derive(Debug)]
struct Counted {
    /// The index of the column of its items; the next one is that of their number.
    first: usize,
    maximum: usize,
    items: Items,
}

/// What the items are to Python.
#[derive(Debug)]
enum Items {
    Characters,
    /// The items of a tuple.
    Apart(Item),
    /// The rows of an array, or of those of which an item consists.
    Stacked(Item),
}

/// One item of a sequence.
#[derive(Debug)]
enum Item {
    /// It is one array.
    Plain(RowShape),
    /// It is several, which a row of the box carries.
    Parts(Box<BoxSpace>, Box<ObsShape>),
}

impl Item {
    fn elements(&self) -> usize {
        match self {
            Self::Plain(row) => row.elements(),
            Self::Parts(carrier, _) => carrier.shape.iter().product(),
        }
    }

    /// Makes the value of `rows` items: of each in a list, or of all together where they are `stacked`.
    fn values<'py>(
        &self,
        py: Python<'py>,
        there: ColumnRef<'_>,
        rows: usize,
        stacked: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let width = self.elements();
        let values = match self {
            Self::Plain(row) if stacked => return row.copy(py, there, rows),
            Self::Plain(row) => (0..rows)
                .map(|at| row.copy_row(py, there.slice(at * width, (at + 1) * width)))
                .collect::<PyResult<Vec<_>>>(),
            Self::Parts(carrier, shape) => {
                let mut items = ColumnData::zeros(there.dtype(), 0);
                let extended = items.extend(there);
                debug_assert!(extended, "columns of one type");
                let columns = carrier.split(&items).unwrap_or_default();
                let columns: Vec<_> = columns.iter().map(ColumnData::as_ref).collect();
                if stacked {
                    return shape.copy(py, |index| columns[index], rows);
                }
                (0..rows).map(|at| shape.copy_row(py, &columns, at)).collect::<PyResult<Vec<_>>>()
            }
        };
        Ok(PyTuple::new(py, values?)?.into_any())
    }
}

impl Counted {
    /// Describes a text whose columns begin with number `first`.
    const fn text(first: usize, space: &TextSpace) -> Self {
        Self { first, maximum: space.max_length(), items: Items::Characters }
    }

    /// Describes a sequence of such items whose columns begin with number `first`.
    const fn sequence(first: usize, space: &SequenceSpace, item: Item) -> Self {
        let items = if space.stack() { Items::Stacked(item) } else { Items::Apart(item) };
        Self { first, maximum: space.maximum(), items }
    }

    /// Returns the indices of its columns.
    const fn columns(&self) -> [usize; 2] {
        [self.first, self.first + 1]
    }

    /// Makes the value of a row of its columns. A number of items that cannot be counts as the nearest that can.
    fn value<'py>(
        &self,
        py: Python<'py>,
        [items, counts]: [ColumnRef<'_>; 2],
        row: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let count = counts.as_i64().map_or(0, |counts| counts[row]);
        let count = usize::try_from(count).unwrap_or_default().min(self.maximum);
        let width = match &self.items {
            Items::Characters => 1,
            Items::Apart(item) | Items::Stacked(item) => item.elements(),
        };
        let first = row * self.maximum * width;
        let there = items.slice(first, first + count * width);
        match &self.items {
            Items::Characters => Ok(PyString::new(py, &text(there)).into_any()),
            Items::Apart(item) => item.values(py, there, count, false),
            Items::Stacked(item) => item.values(py, there, count, true),
        }
    }
}

/// Returns the text of these code points. A number that is no character's, which a worker has not written, counts as U+FFFD.
fn text(codes: ColumnRef<'_>) -> String {
    match codes {
        ColumnRef::U8(codes) => codes.iter().copied().map(char::from).collect(),
        ColumnRef::I32(codes) => {
            let character = |&code: &i32| u32::try_from(code).ok().and_then(char::from_u32);
            codes.iter().map(|code| character(code).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        _ => String::new(),
    }
}

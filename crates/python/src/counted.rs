//! Texts and sequences, which are made anew of their two columns for each value.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use rollhouse_core::{ColumnRef, SequenceSpace, TextSpace};

use crate::arrays::RowShape;

/// A text or a sequence among the columns of an observation.
#[derive(Debug)]
pub(crate) struct Counted {
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
    Apart(RowShape),
    /// The rows of an array.
    Stacked(RowShape),
}

impl Counted {
    /// Describes a text whose columns begin with number `first`.
    pub(crate) const fn text(first: usize, space: &TextSpace) -> Self {
        Self { first, maximum: space.max_length(), items: Items::Characters }
    }

    /// Describes a sequence whose columns begin with number `first`, and whose items have that shape.
    pub(crate) const fn sequence(first: usize, space: &SequenceSpace, item: RowShape) -> Self {
        let items = if space.stack() { Items::Stacked(item) } else { Items::Apart(item) };
        Self { first, maximum: space.maximum(), items }
    }

    /// Returns the indices of its columns.
    pub(crate) const fn columns(&self) -> [usize; 2] {
        [self.first, self.first + 1]
    }

    /// Makes the value of a row of its columns. A number of items that cannot be counts as the nearest that can.
    pub(crate) fn value<'py>(
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
            Items::Apart(item) => {
                let items = (0..count).map(|at| item.copy_row(py, there.slice(at * width, (at + 1) * width)));
                Ok(PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
            Items::Stacked(item) => item.copy(py, there, count),
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

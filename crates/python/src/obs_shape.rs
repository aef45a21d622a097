//! The shape of observations: one array, or a dict or tuple of them.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rollhouse_core::{ColumnRef, CompositeSpace, ObservationSpace, Space};

use crate::arrays::RowShape;

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
    Dict(Vec<(String, Nest)>),
    Tuple(Vec<Nest>),
}

impl ObsShape {
    /// Describes the observations of a space; `row` gives the shape of a column.
    pub(crate) fn new(
        space: &ObservationSpace,
        mut row: impl FnMut(&Space) -> PyResult<RowShape>,
    ) -> PyResult<Self> {
        let mut columns = Vec::new();
        let nest = Nest::of(space, &mut |space| {
            columns.push(row(space)?);
            Ok(columns.len() - 1)
        })?;
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

    /// Makes a value out of what `array` gives for each column.
    pub(crate) fn value<'py>(
        &self,
        py: Python<'py>,
        mut array: impl FnMut(usize, &RowShape) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.nest.value(py, &mut |index| array(index, &self.columns[index]))
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
            None => self.value(py, |index, row| row.copy(py, column(index), rows)),
        }
    }

    /// Makes the value of one row out of the columns.
    pub(crate) fn copy_row<'py>(
        &self,
        py: Python<'py>,
        columns: &[ColumnRef<'_>],
        row: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.value(py, |index, shape| {
            let elements = shape.elements();
            shape.copy_row(py, columns[index].slice(row * elements, (row + 1) * elements))
        })
    }
}

impl Nest {
    fn of(space: &ObservationSpace, leaf: &mut impl FnMut(&Space) -> PyResult<usize>) -> PyResult<Self> {
        Ok(match space {
            ObservationSpace::Plain(space) => Self::Leaf(leaf(space)?),
            ObservationSpace::Composite(CompositeSpace::Dict { spaces }) => {
                let part = |(name, space): &(String, _)| Ok((name.clone(), Self::of(space, leaf)?));
                Self::Dict(spaces.iter().map(part).collect::<PyResult<_>>()?)
            }
            ObservationSpace::Composite(CompositeSpace::Tuple { spaces }) => {
                Self::Tuple(spaces.iter().map(|space| Self::of(space, leaf)).collect::<PyResult<_>>()?)
            }
        })
    }

    fn value<'py>(
        &self,
        py: Python<'py>,
        array: &mut impl FnMut(usize) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Leaf(index) => array(*index),
            Self::Dict(parts) => {
                let dict = PyDict::new(py);
                for (name, part) in parts {
                    dict.set_item(name, part.value(py, array)?)?;
                }
                Ok(dict.into_any())
            }
            Self::Tuple(parts) => {
                let parts = parts.iter().map(|part| part.value(py, array));
                Ok(PyTuple::new(py, parts.collect::<PyResult<Vec<_>>>()?)?.into_any())
            }
        }
    }
}

//! Arrays of the rows of lanes in worker processes.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use rollhouse_core::{ColumnRef, DType};
use rollhouse_engine::{Frame, Received};

use crate::arrays::{KeepAlive, RowShape};

/// Makes read-only views of a frame.
pub(crate) fn views<'py>(
    base: &Bound<'py, KeepAlive>,
    frame: Frame<'_>,
    obs: &[RowShape],
) -> PyResult<Bound<'py, PyTuple>> {
    let (py, lanes) = (base.py(), frame.lanes());
    let (double, flag) = (RowShape::scalar(DType::F64), RowShape::scalar(DType::Bool));
    // SAFETY: a frame's columns lie in its arena's memory, which `base` was made from, and have one row of their
    // space's shape per lane.
    let view = |shape: &RowShape, column| unsafe { shape.view(column, lanes, base) };
    let columns = obs.iter().enumerate().map(|(index, shape)| view(shape, frame.obs(index)));
    let columns = PyList::new(py, columns.collect::<PyResult<Vec<_>>>()?)?;
    PyTuple::new(
        py,
        [
            columns.into_any(),
            view(&double, ColumnRef::F64(frame.rewards()))?,
            view(&flag, ColumnRef::U8(frame.terminated()))?,
            view(&flag, ColumnRef::U8(frame.truncated()))?,
            view(&flag, ColumnRef::U8(frame.reset()))?,
        ],
    )
}

/// Makes arrays of rows that were received.
pub(crate) fn received_rows<'py>(
    py: Python<'py>,
    rows: &Received,
    obs: &[RowShape],
) -> PyResult<Bound<'py, PyTuple>> {
    let count = rows.lanes.len();
    let flag = RowShape::scalar(DType::Bool);
    let columns = obs.iter().zip(&rows.obs).map(|(shape, column)| shape.copy(py, column.as_ref(), count));
    let columns = PyList::new(py, columns.collect::<PyResult<Vec<_>>>()?)?;
    let lanes: Vec<i64> = rows.lanes.iter().map(|&lane| i64::from(lane)).collect();
    PyTuple::new(
        py,
        [
            PyArray1::from_vec(py, lanes).into_any(),
            columns.into_any(),
            PyArray1::from_slice(py, &rows.rewards).into_any(),
            flag.copy(py, ColumnRef::U8(&rows.terminated), count)?,
            flag.copy(py, ColumnRef::U8(&rows.truncated), count)?,
            flag.copy(py, ColumnRef::U8(&rows.reset), count)?,
        ],
    )
}

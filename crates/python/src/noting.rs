//! Step columns: what those who choose the actions note of each step.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rollhouse_core::{ColumnData, DType, StepColumn, StepColumns};
use rollhouse_engine::Engine;

use crate::actions::column_data;
use crate::failure::of_step;

/// A declared column: its name, NumPy's name of its dtype, and the shape of one row.
pub(crate) type Declared = (String, String, Vec<usize>);

/// Values of a column: its place among those declared, and an array of its dtype with a row per lane.
pub(crate) type Noted<'py> = (usize, Bound<'py, PyAny>);

/// Takes declared columns.
pub(crate) fn step_columns(declared: Vec<Declared>) -> PyResult<StepColumns> {
    let column = |(name, dtype, shape): Declared| {
        let known = DTYPES.into_iter().find(|known| known.name() == dtype);
        let unknown = || PyValueError::new_err(format!("step_columns: {name:?} has the dtype {dtype}"));
        known.map(|dtype| StepColumn { name: name.clone(), dtype, shape }).ok_or_else(unknown)
    };
    let columns = declared.into_iter().map(column).collect::<PyResult<_>>()?;
    StepColumns::new(columns).map_err(|error| PyValueError::new_err(format!("step_columns: {error}")))
}

const DTYPES: [DType; 6] = [DType::Bool, DType::U8, DType::I32, DType::I64, DType::F32, DType::F64];

/// Notes values for the next steps of `lanes`, or of all lanes.
pub(crate) fn note(
    py: Python<'_>,
    engine: &mut Engine,
    lanes: Option<&[u32]>,
    columns: Vec<Noted<'_>>,
) -> PyResult<()> {
    for (column, values) in rows_of(engine.step_columns(), columns)? {
        let noted = engine.note(column, lanes, values.as_ref());
        noted.map_err(|error| of_step(py, &error.into()))?;
    }
    Ok(())
}

/// Returns the rows that are noted; arrays of columns that do not exist are taken as doubles.
pub(crate) fn rows_of(known: &StepColumns, columns: Vec<Noted<'_>>) -> PyResult<Vec<(usize, ColumnData)>> {
    let rows = |(column, values): Noted<'_>| {
        let dtype = known.specs().get(column).map_or(DType::F64, |spec| spec.dtype);
        Ok((column, column_data(&values, dtype)?))
    };
    columns.into_iter().map(rows).collect()
}

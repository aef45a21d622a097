//! Actions that come from NumPy.

use numpy::{Element, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use rollhouse_core::{ColumnData, ColumnMut, DType};

use crate::arrays::RowShape;

/// Copies actions of `lanes` lanes of exactly that shape and type to the column that `column` gives. Returns false if they
/// are anything else.
#[inline]
pub(crate) fn put_actions<'a>(
    shape: &RowShape,
    lanes: usize,
    actions: &Bound<'_, PyAny>,
    column: impl FnOnce() -> PyResult<ColumnMut<'a>>,
) -> PyResult<bool> {
    match shape.dtype {
        DType::Bool => put::<bool>(shape, lanes, actions, column),
        DType::U8 => put::<u8>(shape, lanes, actions, column),
        DType::I32 => put::<i32>(shape, lanes, actions, column),
        DType::I64 => put::<i64>(shape, lanes, actions, column),
        DType::F32 => put::<f32>(shape, lanes, actions, column),
        DType::F64 => put::<f64>(shape, lanes, actions, column),
    }
}

#[inline]
fn put<'a, T: ActionElement>(
    shape: &RowShape,
    lanes: usize,
    actions: &Bound<'_, PyAny>,
    column: impl FnOnce() -> PyResult<ColumnMut<'a>>,
) -> PyResult<bool> {
    let Ok(array) = actions.cast::<PyArrayDyn<T>>() else { return Ok(false) };
    let fits = array.shape().split_first() == Some((&lanes, shape.shape.as_slice()));
    if !fits || !array.is_c_contiguous() || !array.is_aligned() {
        return Ok(false);
    }
    let Some(to) = T::values(column()?).filter(|to| to.len() == array.len()) else { return Ok(false) };
    let from = array.data().cast::<T::Kept>().cast_const();
    if !std::ptr::eq(from, to.as_ptr()) {
        // SAFETY: contiguous and aligned, checked above; nothing else runs while it is copied, as the interpreter lock is
        // held. Only an array over the column itself lies in its memory.
        to.copy_from_slice(unsafe { std::slice::from_raw_parts(from, array.len()) });
    }
    Ok(true)
}

/// Copies an array of exactly that type, whatever its shape.
///
/// # Errors
/// If it is of another type, or not contiguous.
pub(crate) fn column_data(array: &Bound<'_, PyAny>, dtype: DType) -> PyResult<ColumnData> {
    Ok(match dtype {
        DType::Bool => {
            let flags = array.cast::<PyArrayDyn<bool>>()?.to_vec()?;
            ColumnData::U8(flags.into_iter().map(u8::from).collect())
        }
        DType::U8 => ColumnData::U8(array.cast::<PyArrayDyn<u8>>()?.to_vec()?),
        DType::I32 => ColumnData::I32(array.cast::<PyArrayDyn<i32>>()?.to_vec()?),
        DType::I64 => ColumnData::I64(array.cast::<PyArrayDyn<i64>>()?.to_vec()?),
        DType::F32 => ColumnData::F32(array.cast::<PyArrayDyn<f32>>()?.to_vec()?),
        DType::F64 => ColumnData::F64(array.cast::<PyArrayDyn<f64>>()?.to_vec()?),
    })
}

/// An element type of NumPy's that actions may have.
trait ActionElement: Element {
    /// The type of the same size as which a column keeps it; every value of the one is a value of the other.
    type Kept: Copy;

    /// Returns the elements of a column of that type.
    fn values(column: ColumnMut<'_>) -> Option<&mut [Self::Kept]>;
}

macro_rules! action_elements {
    ($($type:ty as $kept:ty: $variant:ident),*) => {$(
        impl ActionElement for $type {
            type Kept = $kept;

            #[inline]
            fn values(column: ColumnMut<'_>) -> Option<&mut [$kept]> {
                match column {
                    ColumnMut::$variant(values) => Some(values),
                    _ => None,
                }
            }
        }
    )*};
}

action_elements!(bool as u8: U8, u8 as u8: U8, i32 as i32: I32, i64 as i64: I64, f32 as f32: F32, f64 as f64: F64);

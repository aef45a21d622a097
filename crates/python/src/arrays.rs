//! NumPy arrays of columns: views of an engine's memory, and fresh ones.
//!
//! A view shows memory that later steps write. What makes that sound:
//!
//! - the memory stays where it is and is freed only when the last view is gone: each view's base object is a
//!   [`KeepAlive`], which holds the memory itself, so closing or dropping the engine does not free it;
//! - Rust holds references into the memory only during a call of the engine. A Python thread that reads
//!   meanwhile, which needs the interpreter lock that long batches release, may read a view of the frame before
//!   the one being written: that slot is not written. A view that has expired (its slot is being written) shows
//!   unspecified numbers then; every bit pattern is a value of these types, and nothing in Rust depends on them;
//! - views are flagged read-only, so NumPy does not write to them, but for the view of an attached session's actions:
//!   that memory is another process's to read, which copies it and checks the copy, and no Rust reference into it
//!   lives while the interpreter lock is released.
//!
//! What a column carries in a wider type than the env's own is copied into fresh arrays of that; there is no view of it.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use numpy::npyffi::{
    self, NPY_ARRAY_CARRAY, NPY_ARRAY_CARRAY_RO, NPY_TYPES, NpyTypes, PY_ARRAY_API, npy_intp,
};
use numpy::{Element, PyArrayDescr, PyArrayDescrMethods, dtype};
use pyo3::ffi;
use pyo3::prelude::*;
use rollhouse_core::{ColumnMut, ColumnRef, DType, OwnDType};

/// Base object of views: holds the memory they show.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct KeepAlive {
    _memory: Arc<dyn Any + Send + Sync>,
}

impl KeepAlive {
    pub(crate) fn new(py: Python<'_>, memory: Arc<dyn Any + Send + Sync>) -> PyResult<Py<Self>> {
        Py::new(py, Self { _memory: memory })
    }
}

/// The shape and the type of a column's rows for NumPy.
#[derive(Debug, Clone)]
pub(crate) struct RowShape {
    pub(crate) dtype: DType,
    /// The type of which NumPy is shown the elements, if it is another: the env's own, which the column carries in a wider
    /// one, or int8 for bytes that are bits, as Gymnasium has them.
    own: Option<OwnDType>,
    /// One row; empty for a scalar.
    pub(crate) shape: ArrayVec<usize, { MAX_AXES - 1 }>,
}

/// Most axes of a batch; older versions of NumPy have at most 32.
const MAX_AXES: usize = 16;

impl RowShape {
    /// Describes the rows; `None` if a row has too many axes.
    pub(crate) fn new(dtype: DType, shape: &[usize]) -> Option<Self> {
        Some(Self { dtype, own: None, shape: shape.try_into().ok()? })
    }

    /// Returns the rows with elements of int8, if they are `bits` of one byte each.
    pub(crate) fn of_bits(self, bits: bool) -> Self {
        Self { own: (bits && self.dtype.size() == 1).then_some(OwnDType::I8), ..self }
    }

    /// Returns the rows with elements of the env's own type, if that is another than the column's.
    pub(crate) fn of_own(self, own: Option<OwnDType>) -> Self {
        Self { own: own.or(self.own), ..self }
    }

    /// Describes rows of one element each.
    pub(crate) const fn scalar(dtype: DType) -> Self {
        Self { dtype, own: None, shape: ArrayVec::new_const() }
    }

    /// Describes the rows of so many lanes as one; `None` if it has too many axes.
    pub(crate) fn of_lanes(&self, lanes: usize) -> Option<Self> {
        let mut shape: ArrayVec<_, _> = ArrayVec::new();
        shape.push(lanes);
        shape.try_extend_from_slice(&self.shape).ok()?;
        Some(Self { shape, ..self.clone() })
    }

    /// Returns whether NumPy is shown elements of another type than the column's.
    pub(crate) const fn is_of_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns whether an element takes other bytes in NumPy than in the column, so that there is no view of it.
    pub(crate) fn is_converted(&self) -> bool {
        self.own.is_some_and(|own| own.size() != self.dtype.size())
    }

    fn descr<'py>(&self, py: Python<'py>) -> Bound<'py, PyArrayDescr> {
        self.own.map_or_else(|| descr(py, self.dtype), |own| own_descr(py, own))
    }

    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the extents of `rows` rows, or of a single value.
    pub(crate) fn dims(&self, rows: Option<usize>) -> ArrayVec<npy_intp, MAX_AXES> {
        rows.iter().chain(&self.shape).map(|&extent| extent as npy_intp).collect()
    }

    /// Makes a read-only view of `column`, whose memory `base` keeps.
    ///
    /// # Safety
    /// `column` lies in the memory that `base` holds, and has `rows` rows of this shape and type.
    pub(crate) unsafe fn view<'py>(
        &self,
        column: ColumnRef<'_>,
        rows: usize,
        base: &Bound<'py, KeepAlive>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: by contract; flagged CARRAY_RO, the array is never written through.
        unsafe { self.view_as(NPY_ARRAY_CARRAY_RO, address(column), rows, base) }
    }

    /// Makes a view of `column` that Python may write to.
    ///
    /// # Safety
    /// As [`RowShape::view`]; and no Rust reference into the column lives while Python runs.
    pub(crate) unsafe fn view_mut<'py>(
        &self,
        column: ColumnMut<'_>,
        rows: usize,
        base: &Bound<'py, KeepAlive>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: by contract.
        unsafe { self.view_as(NPY_ARRAY_CARRAY, address(column.as_ref()), rows, base) }
    }

    /// # Safety
    /// `data` has `rows` rows of this shape and type, valid for what `flags` allow for as long as `base` lives.
    unsafe fn view_as<'py>(
        &self,
        flags: c_int,
        data: *const c_void,
        rows: usize,
        base: &Bound<'py, KeepAlive>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = base.py();
        let mut dims = self.dims(Some(rows));
        // SAFETY: by contract; the array takes a reference to `base`.
        unsafe {
            let array = new_array_of(py, self.descr(py), &mut dims, data, flags)?;
            let base = base.clone().into_any().into_ptr();
            if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base) != 0 {
                return Err(PyErr::fetch(py));
            }
            Ok(array)
        }
    }

    /// Makes a fresh array with the rows of `column`.
    pub(crate) fn copy<'py>(
        &self,
        py: Python<'py>,
        column: ColumnRef<'_>,
        rows: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.copy_into(py, column, &mut self.dims(Some(rows)))
    }

    /// Makes a fresh array with one row of the shape of a single value, from `column` of one row.
    pub(crate) fn copy_row<'py>(
        &self,
        py: Python<'py>,
        column: ColumnRef<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.shape.is_empty() {
            // A NumPy scalar, as indexing an array of scalars gives.
            return self.copy(py, column, 1)?.get_item(0);
        }
        self.copy_into(py, column, &mut self.dims(None))
    }

    fn copy_into<'py>(
        &self,
        py: Python<'py>,
        column: ColumnRef<'_>,
        dims: &mut [npy_intp],
    ) -> PyResult<Bound<'py, PyAny>> {
        let bytes = column.len() * self.dtype.size();
        let wanted: npy_intp = dims.iter().product();
        assert_eq!(wanted as usize, column.len(), "a column has the rows its shape says");
        if self.is_converted() {
            return self.convert_into(py, column, dims);
        }
        // SAFETY: a new C-contiguous array of as many elements of the same type as the column has; nobody else
        // knows it yet.
        unsafe {
            let array = new_array_of(py, self.descr(py), dims, ptr::null(), 0)?;
            let data = (*array.as_ptr().cast::<npyffi::PyArrayObject>()).fields.data;
            ptr::copy_nonoverlapping(address(column).cast::<u8>(), data.cast::<u8>(), bytes);
            Ok(array)
        }
    }

    /// Makes a fresh array with the elements of `column`, as many as `dims` say, as elements of the env's own type.
    #[cold]
    fn convert_into<'py>(
        &self,
        py: Python<'py>,
        column: ColumnRef<'_>,
        dims: &mut [npy_intp],
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: `column` has as many elements of its type, and lives and is not written while it is borrowed here; the
        // array over it ends with this call and is only read. The other is a new one that nobody else knows yet.
        unsafe {
            let carried = new_array(py, self.dtype, dims, address(column), NPY_ARRAY_CARRAY_RO)?;
            let array = new_array_of(py, self.descr(py), dims, ptr::null(), 0)?;
            if PY_ARRAY_API.PyArray_CopyInto(py, array.as_ptr().cast(), carried.as_ptr().cast()) != 0 {
                return Err(PyErr::fetch(py));
            }
            Ok(array)
        }
    }
}

/// Makes a fresh array with the rows of `column` where `mask` says so, and zeros elsewhere.
pub(crate) fn copy_masked<'py>(
    py: Python<'py>,
    shape: &RowShape,
    column: ColumnRef<'_>,
    mask: &[bool],
) -> PyResult<Bound<'py, PyAny>> {
    let array = shape.copy(py, column, mask.len())?;
    let row_bytes = shape.elements() * shape.dtype.size();
    for row in (0..mask.len()).filter(|&row| !mask[row]) {
        // SAFETY: `copy` made a C-contiguous array of `mask.len()` such rows that nobody else knows yet; zero
        // bytes are a value of every element type.
        unsafe {
            let data = (*array.as_ptr().cast::<npyffi::PyArrayObject>()).fields.data.cast::<u8>();
            ptr::write_bytes(data.add(row * row_bytes), 0, row_bytes);
        }
    }
    Ok(array)
}

/// Makes a bool array that Python cannot change, for [`fill_flags`].
pub(crate) fn constant_flags(py: Python<'_>, rows: usize) -> PyResult<Bound<'_, PyAny>> {
    let array = new_flags(py, rows)?;
    fill_flags(&array, rows, |flags| flags.fill(0));
    // SAFETY: a new array that nobody else knows yet.
    unsafe { (*array.as_ptr().cast::<npyffi::PyArrayObject>()).fields.flags &= !npyffi::NPY_ARRAY_WRITEABLE };
    Ok(array)
}

/// Makes a fresh bool array for [`fill_flags`], which is to write every row.
#[inline]
fn new_flags(py: Python<'_>, rows: usize) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: memory of its own.
    unsafe { new_array(py, DType::Bool, &mut [rows as npy_intp], ptr::null(), 0) }
}

/// Makes a fresh bool array whose rows `fill` writes: 0 or 1, every one.
#[inline]
pub(crate) fn flags(py: Python<'_>, rows: usize, fill: impl FnOnce(&mut [u8])) -> PyResult<Bound<'_, PyAny>> {
    let array = new_flags(py, rows)?;
    fill_flags(&array, rows, fill);
    Ok(array)
}

/// Makes a fresh bool array with the rows of `mask`.
pub(crate) fn mask<'py>(py: Python<'py>, mask: &[bool]) -> PyResult<Bound<'py, PyAny>> {
    flags(py, mask.len(), |flags| flags.iter_mut().zip(mask).for_each(|(flag, &set)| *flag = u8::from(set)))
}

/// Has `fill` write 0 or 1 to the rows of an array that [`constant_flags`] or [`flags`] made with `rows` rows.
#[inline]
pub(crate) fn fill_flags(array: &Bound<'_, PyAny>, rows: usize, fill: impl FnOnce(&mut [u8])) {
    // SAFETY: `new_flags` made it C-contiguous, of `rows` bytes, and NumPy never moves an array's data; with the
    // interpreter lock held nobody reads or writes it meanwhile. `fill` cannot reach Python.
    let bytes = unsafe {
        let data = (*array.as_ptr().cast::<npyffi::PyArrayObject>()).fields.data.cast::<u8>();
        std::slice::from_raw_parts_mut(data, rows)
    };
    fill(bytes);
}

/// Makes an object array with None in every row but those of `values`.
pub(crate) fn objects<'py>(
    py: Python<'py>,
    rows: usize,
    values: impl Iterator<Item = PyResult<(usize, Bound<'py, PyAny>)>>,
) -> PyResult<Bound<'py, PyAny>> {
    let array = no_objects(py, rows)?;
    for value in values {
        let (row, value) = value?;
        assert!(row < rows, "row {row} of {rows}");
        set_object(&array, row, value);
    }
    Ok(array)
}

/// Makes a fresh object array of None.
pub(crate) fn no_objects(py: Python<'_>, rows: usize) -> PyResult<Bound<'_, PyAny>> {
    let mut dims = [rows as npy_intp];
    // SAFETY: `PyArray_Empty` takes over the reference to the descriptor and fills object arrays with None.
    unsafe {
        let descr = dtype::<Py<PyAny>>(py).into_dtype_ptr();
        Bound::from_owned_ptr_or_err(py, PY_ARRAY_API.PyArray_Empty(py, 1, dims.as_mut_ptr(), descr, 0))
    }
}

/// Returns a pointer to the references of an object array.
pub(crate) fn objects_of(array: &Bound<'_, PyAny>) -> *mut *mut ffi::PyObject {
    // SAFETY: only called with object arrays made here.
    unsafe { (*array.as_ptr().cast::<npyffi::PyArrayObject>()).fields.data.cast() }
}

/// Puts a value into a row, which the caller has checked, of an object array that nobody else has a reference to.
pub(crate) fn set_object(array: &Bound<'_, PyAny>, row: usize, value: Bound<'_, PyAny>) {
    // SAFETY: a C-contiguous array of references with such a row; the old one is given up and the new one handed over.
    unsafe {
        let old = objects_of(array).add(row).replace(value.into_ptr());
        drop(Bound::from_owned_ptr_or_opt(array.py(), old));
    }
}

/// # Safety
/// `data` is null (memory is allocated then), or valid for what `dims` and the type say.
pub(crate) unsafe fn new_array<'py>(
    py: Python<'py>,
    dtype: DType,
    dims: &mut [npy_intp],
    data: *const c_void,
    flags: c_int,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: by contract.
    unsafe { new_array_of(py, descr(py, dtype), dims, data, flags) }
}

/// # Safety
/// As [`new_array`].
unsafe fn new_array_of<'py>(
    py: Python<'py>,
    descr: Bound<'py, PyArrayDescr>,
    dims: &mut [npy_intp],
    data: *const c_void,
    flags: c_int,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: by contract; the call takes over the reference to the descriptor.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            npyffi::get_type_object(py, NpyTypes::PyArray_Type),
            descr.into_dtype_ptr(),
            dims.len() as c_int,
            dims.as_mut_ptr(),
            ptr::null_mut(),
            data.cast_mut(),
            flags,
            ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)
    }
}

/// Returns NumPy's descriptor of an element type.
pub(crate) fn descr(py: Python<'_>, dtype: DType) -> Bound<'_, PyArrayDescr> {
    match dtype {
        DType::Bool => bool::get_dtype(py),
        DType::U8 => u8::get_dtype(py),
        DType::I32 => i32::get_dtype(py),
        DType::I64 => i64::get_dtype(py),
        DType::F32 => f32::get_dtype(py),
        DType::F64 => f64::get_dtype(py),
    }
}

/// Returns NumPy's descriptor of an env's own type.
pub(crate) fn own_descr(py: Python<'_>, own: OwnDType) -> Bound<'_, PyArrayDescr> {
    match own {
        OwnDType::I8 => i8::get_dtype(py),
        OwnDType::U8 => u8::get_dtype(py),
        OwnDType::I16 => i16::get_dtype(py),
        OwnDType::U16 => u16::get_dtype(py),
        OwnDType::I32 => i32::get_dtype(py),
        OwnDType::U32 => u32::get_dtype(py),
        OwnDType::F16 => {
            // SAFETY: NumPy has this type, of which the call returns a new reference.
            unsafe {
                let descr = PY_ARRAY_API.PyArray_DescrFromType(py, NPY_TYPES::NPY_HALF as c_int);
                Bound::from_owned_ptr(py, descr.cast()).cast_into_unchecked()
            }
        }
    }
}

pub(crate) fn address(column: ColumnRef<'_>) -> *const c_void {
    match column {
        ColumnRef::U8(values) => values.as_ptr().cast(),
        ColumnRef::I32(values) => values.as_ptr().cast(),
        ColumnRef::I64(values) => values.as_ptr().cast(),
        ColumnRef::F32(values) => values.as_ptr().cast(),
        ColumnRef::F64(values) => values.as_ptr().cast(),
    }
}

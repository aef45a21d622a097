//! Arrays and dicts that are handed out again once nobody holds them any more, which their reference counts tell.
//!
//! Each is used again only if it is still as it was made: a holder may have changed its shape, type or flags, or put
//! something else into it.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use arrayvec::ArrayVec;
use numpy::npyffi::{self, NPY_ARRAY_CARRAY, npy_intp};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rollhouse_core::{ColumnRef, DType};

use crate::arrays::{RowShape, address, new_array, no_objects, objects_of, set_object};

/// An array of numbers or flags, to be handed out again.
#[derive(Default)]
pub(crate) struct Spare(Option<Made>);

/// An object array whose rows are None or arrays of their own, to be handed out again.
#[derive(Default)]
pub(crate) struct SpareRows {
    objects: Option<Made>,
    /// The row arrays: as many as any step has needed so far.
    rows: Vec<Spare>,
}

/// A dict, and the keys and values that it had when it was kept. The dict holds the values, so they live while it is
/// kept.
#[derive(Default)]
pub(crate) struct SpareDict(Option<(Py<PyDict>, ArrayVec<Item, MAX_KEYS>)>);

/// The addresses of a key and its value.
type Item = (usize, usize);

/// An array that was made here.
struct Made {
    array: Py<PyAny>,
    /// Address of its descriptor, which belongs to NumPy and lives as long as that.
    descr: usize,
    dtype: DType,
    elements: usize,
}

/// A type of number that arrays are made of.
pub(crate) trait Number: Copy + Default {
    const DTYPE: DType;
}

impl Number for f64 {
    const DTYPE: DType = DType::F64;
}

impl Number for i64 {
    const DTYPE: DType = DType::I64;
}

impl Spare {
    /// Returns a C-contiguous array of `rows` rows (or of a single value), to which nobody but `self` has a reference.
    /// It holds whatever it held before.
    pub(crate) fn take<'py>(
        &mut self,
        py: Python<'py>,
        shape: &RowShape,
        rows: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.take_of(py, shape.dtype, &shape.dims(rows))
    }

    #[inline]
    fn take_of<'py>(
        &mut self,
        py: Python<'py>,
        dtype: DType,
        dims: &[npy_intp],
    ) -> PyResult<Bound<'py, PyAny>> {
        match &self.0 {
            Some(made) if made.is_free(1, dims) => Ok(made.array.bind(py).clone()),
            _ => self.make(py, dtype, dims),
        }
    }

    #[cold]
    fn make<'py>(&mut self, py: Python<'py>, dtype: DType, dims: &[npy_intp]) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: memory of its own.
        let array = unsafe { new_array(py, dtype, &mut dims.to_vec(), ptr::null(), 0)? };
        self.0 = Some(Made::of(&array, dtype, dims.iter().product::<npy_intp>() as usize));
        Ok(array)
    }

    /// Returns whether it has `rows` values, and nobody but `self` and as many `others` has a reference to it.
    pub(crate) fn is_free(&self, rows: usize, others: usize) -> bool {
        self.0.as_ref().is_some_and(|made| made.is_free(others + 1, &[rows as npy_intp]))
    }

    /// Has `fill` write the flags of the array that [`Spare::take`] returned last, 0 or 1 each.
    ///
    /// # Panics
    /// If that array does not have `rows` flags.
    pub(crate) fn write_flags(&mut self, _py: Python<'_>, rows: usize, fill: impl FnOnce(&mut [u8])) {
        let data = self.data(DType::Bool, rows).cast();
        // SAFETY: an array of so many bytes; nobody else reads or writes it while the interpreter lock is held here.
        // `fill` cannot reach Python.
        fill(unsafe { std::slice::from_raw_parts_mut(data, rows) });
    }

    /// Has `fill` write the numbers of the array that [`Spare::take`] returned last. Numbers that `fill` does not write
    /// are 0.
    ///
    /// # Panics
    /// If that array does not have `rows` such numbers.
    pub(crate) fn write_numbers<T: Number>(
        &mut self,
        _py: Python<'_>,
        rows: usize,
        fill: impl FnOnce(&mut [T]),
    ) {
        let data = self.data(T::DTYPE, rows).cast::<T>();
        // SAFETY: as above, aligned for its type; zero bytes are a value of `T`.
        fill(unsafe {
            ptr::write_bytes(data, 0, rows);
            std::slice::from_raw_parts_mut(data, rows)
        });
    }

    /// Returns a pointer to the array's elements.
    fn data(&self, dtype: DType, elements: usize) -> *mut c_void {
        let made = self.0.as_ref().filter(|made| (made.dtype, made.elements) == (dtype, elements));
        let made = made.expect("only what was taken is filled");
        data_of(&made.array)
    }
}

impl SpareRows {
    /// Returns an array of `rows` objects, to which nobody but `self` has a reference.
    pub(crate) fn take<'py>(&mut self, py: Python<'py>, rows: usize) -> PyResult<Bound<'py, PyAny>> {
        if let Some(made) = self.objects.as_ref().filter(|made| made.is_free(1, &[rows as npy_intp])) {
            return Ok(made.array.bind(py).clone());
        }
        let array = no_objects(py, rows)?;
        self.objects = Some(Made::of(&array, DType::U8, rows));
        Ok(array)
    }

    /// Returns whether it has `rows` objects, and nobody but `self` and as many `others` has a reference to it.
    pub(crate) fn is_free(&self, rows: usize, others: usize) -> bool {
        self.objects.as_ref().is_some_and(|made| made.is_free(others + 1, &[rows as npy_intp]))
    }

    /// Puts copies of some rows of `column` into the array that [`SpareRows::take`] returned last, and None into all
    /// others.
    ///
    /// # Panics
    /// If there is no such row.
    pub(crate) fn fill(
        &mut self,
        py: Python<'_>,
        column: ColumnRef<'_>,
        shape: &RowShape,
        rows: &[usize],
    ) -> PyResult<()> {
        let made = cleared(&self.objects, py);
        let objects = made.array.bind(py);
        self.rows.resize_with(self.rows.len().max(rows.len()), Spare::default);
        let (dims, elements) = (shape.dims(None), shape.elements());
        let (bytes, first) = (elements * shape.dtype.size(), address(column).cast::<u8>());
        for (&row, spare) in rows.iter().zip(&mut self.rows) {
            assert!(row < made.elements && (row + 1) * elements <= column.len(), "row {row}");
            let value = match dims.as_slice() {
                [] => shape.copy_row(py, column.slice(row * elements, (row + 1) * elements))?,
                dims => {
                    let array = spare.take_of(py, shape.dtype, dims)?;
                    // SAFETY: a C-contiguous array of one row; the column has the row and its type. Nobody else reads
                    // or writes the array while the interpreter lock is held here.
                    unsafe {
                        ptr::copy_nonoverlapping(
                            first.add(row * bytes),
                            data_of(array.as_unbound()).cast(),
                            bytes,
                        )
                    };
                    array
                }
            };
            set_object(objects, row, value);
        }
        Ok(())
    }

    /// Puts what `value` makes of some rows into the array that [`SpareRows::take`] returned last, and None into all
    /// others.
    ///
    /// # Panics
    /// If there is no such row.
    pub(crate) fn fill_with<'py>(
        &mut self,
        py: Python<'py>,
        rows: &[usize],
        value: impl Fn(usize) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let made = cleared(&self.objects, py);
        for &row in rows {
            assert!(row < made.elements, "row {row}");
            set_object(made.array.bind(py), row, value(row)?);
        }
        Ok(())
    }
}

/// Returns the array that was taken, with None in all of its rows.
fn cleared<'a>(objects: &'a Option<Made>, py: Python<'_>) -> &'a Made {
    let made = objects.as_ref().expect("only what was taken is filled");
    clear(made.array.bind(py), made.elements);
    made
}

/// Puts None into each of the `elements` rows of an object array.
fn clear(objects: &Bound<'_, PyAny>, elements: usize) {
    let none = objects.py().None();
    let nothing = none.as_ptr() as usize;
    // SAFETY: a C-contiguous array of so many references, which nobody else reads or writes meanwhile.
    let cells: &[Cell<usize>] = unsafe { std::slice::from_raw_parts(objects_of(objects).cast(), elements) };
    // Most are None, so that some are looked at together.
    let (groups, rest) = cells.as_chunks::<GROUP>();
    let set_none = |cells: &[Cell<usize>], first: usize| {
        for (at, _) in cells.iter().enumerate().filter(|(_, cell)| cell.get() != nothing) {
            set_object(objects, first + at, none.bind(objects.py()).clone());
        }
    };
    for (nth, group) in groups.iter().enumerate() {
        if group.iter().fold(0, |bits, cell| bits | (cell.get() ^ nothing)) != 0 {
            set_none(group, nth * GROUP);
        }
    }
    set_none(rest, groups.len() * GROUP);
}

/// Number of rows that are looked at together.
const GROUP: usize = 8;

impl SpareDict {
    /// Keeps a dict, with its present contents. A dict with more than [`MAX_KEYS`] keys is not kept.
    pub(crate) fn keep(&mut self, dict: &Bound<'_, PyDict>) {
        let mut items = ArrayVec::new();
        let whole = items_of(dict).all(|item| items.try_push(item).is_ok());
        self.0 = whole.then(|| (dict.clone().unbind(), items));
    }

    /// Drops the dict.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    /// Returns the dict, if nobody but `self` and as many `others` has a reference to it, and nothing was changed in
    /// it.
    pub(crate) fn held<'py>(&self, py: Python<'py>, others: usize) -> Option<Bound<'py, PyDict>> {
        let (dict, items) = self.0.as_ref()?;
        // SAFETY: an object that is held here; the interpreter lock is held.
        let holders = unsafe { ffi::Py_REFCNT(dict.as_ptr()) };
        let dict = dict.bind(py);
        let is_free = holders == others as ffi::Py_ssize_t + 1
            && dict.len() == items.len()
            && items.iter().zip(items_of(dict)).all(|(kept, item)| item == *kept);
        is_free.then(|| dict.clone())
    }
}

/// Returns the keys and values of a dict in order. It must not change meanwhile.
fn items_of<'a>(dict: &'a Bound<'_, PyDict>) -> impl Iterator<Item = Item> + 'a {
    let (mut at, mut key, mut value) = (0, ptr::null_mut(), ptr::null_mut());
    std::iter::from_fn(move || {
        // SAFETY: what the call gives is borrowed and only its address is kept.
        let found = unsafe { ffi::PyDict_Next(dict.as_ptr(), &mut at, &mut key, &mut value) != 0 };
        found.then_some((key as usize, value as usize))
    })
}

impl Made {
    fn of(array: &Bound<'_, PyAny>, dtype: DType, elements: usize) -> Self {
        // SAFETY: an array.
        let descr = unsafe { (*array.as_ptr().cast::<npyffi::PyArrayObject>()).fields.descr } as usize;
        Self { array: array.clone().unbind(), descr, dtype, elements }
    }

    /// Returns whether exactly `holders` references to it exist, this one included and none weak, and it is as it was
    /// made.
    #[inline]
    fn is_free(&self, holders: usize, dims: &[npy_intp]) -> bool {
        // SAFETY: an array; NumPy keeps `nd` extents.
        unsafe {
            let fields = &(*self.array.as_ptr().cast::<npyffi::PyArrayObject>()).fields;
            ffi::Py_REFCNT(self.array.as_ptr()) == holders as ffi::Py_ssize_t
                && fields.flags & OWN == OWN
                && fields.descr as usize == self.descr
                // Whoever knows of it weakly could see it come back.
                && fields.weakreflist.is_null()
                && fields.nd as usize == dims.len()
                // Not as slices, which calls a function for what is mostly one number.
                && dims.iter().enumerate().all(|(axis, &extent)| *fields.dimensions.add(axis) == extent)
        }
    }
}

/// Returns a pointer to an array's elements.
fn data_of(array: &Py<PyAny>) -> *mut c_void {
    // SAFETY: only called with arrays made here.
    unsafe { (*array.as_ptr().cast::<npyffi::PyArrayObject>()).fields.data.cast() }
}

/// The flags of an array with memory of its own, in order, aligned and writable.
const OWN: c_int = NPY_ARRAY_CARRAY | npyffi::NPY_ARRAY_OWNDATA;
/// Most keys of a dict that is handed out again.
const MAX_KEYS: usize = 8;

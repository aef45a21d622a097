//! The arrays that a step returns: views of one slot of the engine's memory, or copies of it.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use rollhouse_core::{ColumnRef, DType};
use rollhouse_engine::Frame;

use crate::arrays::{KeepAlive, RowShape, constant_flags, fill_flags, flags};
use crate::obs_shape::ObsShape;

/// The views of one slot, made once. They show the frame that was written to it last.
pub(crate) struct Views {
    /// The columns of the observations; `None` for those whose elements are converted, of which there is no view.
    obs: Vec<Option<Py<PyAny>>>,
    rewards: Py<PyAny>,
    terminated: Py<PyAny>,
    truncated: Py<PyAny>,
    reset: Py<PyAny>,
    /// The mask of the rows that are transitions, in memory of its own. [`Views::show`] brings it up to date.
    valid: Py<PyAny>,
}

/// The arrays of one frame.
pub(crate) struct Arrays<'py> {
    pub(crate) obs: Bound<'py, PyAny>,
    pub(crate) rewards: Bound<'py, PyAny>,
    pub(crate) terminated: Bound<'py, PyAny>,
    pub(crate) truncated: Bound<'py, PyAny>,
    /// The mask of transitions; `None` unless asked for.
    pub(crate) valid: Option<Bound<'py, PyAny>>,
}

impl Views {
    /// Makes the views of the slot that `frame` lies in, whose memory `base` holds.
    pub(crate) fn new(base: &Bound<'_, KeepAlive>, frame: Frame<'_>, obs: &ObsShape) -> PyResult<Self> {
        let (py, lanes) = (base.py(), frame.lanes());
        let (double, flag) = (RowShape::scalar(DType::F64), RowShape::scalar(DType::Bool));
        // SAFETY: a frame's columns lie in its arena's memory, which `base` was made from, and have one row of
        // their space's shape per lane.
        let view = |shape: &RowShape, column| unsafe { shape.view(column, lanes, base).map(Bound::unbind) };
        Ok(Self {
            obs: obs
                .columns()
                .enumerate()
                .map(|(at, row)| (!row.is_converted()).then(|| view(row, frame.obs(at))).transpose())
                .collect::<PyResult<_>>()?,
            rewards: view(&double, ColumnRef::F64(frame.rewards()))?,
            terminated: view(&flag, ColumnRef::U8(frame.terminated()))?,
            truncated: view(&flag, ColumnRef::U8(frame.truncated()))?,
            reset: view(&flag, ColumnRef::U8(frame.reset()))?,
            valid: constant_flags(py, lanes)?.unbind(),
        })
    }

    /// Returns the views of `frame`, which lies in this slot.
    #[inline]
    pub(crate) fn show<'py>(
        &self,
        py: Python<'py>,
        frame: Frame<'_>,
        obs: &ObsShape,
        lost: &[bool],
        with_valid: bool,
    ) -> PyResult<Arrays<'py>> {
        let of = |view: &Py<PyAny>| view.bind(py).clone();
        Ok(Arrays {
            obs: self.obs(py, frame, obs)?,
            rewards: of(&self.rewards),
            terminated: of(&self.terminated),
            truncated: of(&self.truncated),
            valid: with_valid.then(|| {
                let valid = of(&self.valid);
                fill_flags(&valid, frame.lanes(), |flags| write_valid(flags, frame, lost));
                valid
            }),
        })
    }

    /// Returns the views as they are: a list of the observation's columns, rewards and flags.
    pub(crate) fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let obs = PyList::new(py, self.obs.iter().flatten())?.into_any().unbind();
        let rest = [&self.rewards, &self.terminated, &self.truncated, &self.reset];
        PyTuple::new(py, std::iter::once(&obs).chain(rest).collect::<Vec<_>>())
    }

    /// Returns the view of the observations of `frame`, which lies in this slot; a dict of several is a fresh one, and so are
    /// texts, sequences and what is converted.
    #[inline]
    pub(crate) fn obs<'py>(
        &self,
        py: Python<'py>,
        frame: Frame<'_>,
        shape: &ObsShape,
    ) -> PyResult<Bound<'py, PyAny>> {
        match (&self.obs[..], shape.plain()) {
            ([Some(view)], Some(_)) => Ok(view.bind(py).clone()),
            (views, _) => {
                let lanes = frame.lanes();
                let array = |index: usize, row: &RowShape| match &views[index] {
                    Some(view) => Ok(view.bind(py).clone()),
                    None => row.copy(py, frame.obs(index), lanes),
                };
                shape.batch(py, lanes, |index| frame.obs(index), array)
            }
        }
    }
}

impl<'py> Arrays<'py> {
    /// Makes fresh arrays with copies.
    pub(crate) fn copied(
        py: Python<'py>,
        frame: Frame<'_>,
        obs: &ObsShape,
        lost: &[bool],
        with_valid: bool,
    ) -> PyResult<Self> {
        let lanes = frame.lanes();
        let (double, flag) = (RowShape::scalar(DType::F64), RowShape::scalar(DType::Bool));
        let valid = with_valid.then(|| flags(py, lanes, |flags| write_valid(flags, frame, lost)));
        Ok(Self {
            obs: obs.copy(py, |index| frame.obs(index), lanes)?,
            rewards: double.copy(py, ColumnRef::F64(frame.rewards()), lanes)?,
            terminated: flag.copy(py, ColumnRef::U8(frame.terminated()), lanes)?,
            truncated: flag.copy(py, ColumnRef::U8(frame.truncated()), lanes)?,
            valid: valid.transpose()?,
        })
    }
}

#[inline]
fn write_valid(flags: &mut [u8], frame: Frame<'_>, lost: &[bool]) {
    for (flag, &reset) in flags.iter_mut().zip(frame.reset()) {
        *flag = reset ^ 1;
    }
    for (flag, &lost) in flags.iter_mut().zip(lost) {
        *flag &= u8::from(!lost);
    }
}

//! Infos in Gymnasium's layout: for each key an array over the rows and, under `_key`, a mask.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rollhouse_core::{ColumnRef, Role};

use crate::arrays::{RowShape, copy_masked, mask, objects};
use crate::obs_shape::ObsShape;
use crate::statistics::any;

/// Some rows of one step, from which infos are made.
pub(crate) struct Rows<'a> {
    pub(crate) count: usize,
    pub(crate) infos: Vec<ColumnRef<'a>>,
    pub(crate) terminated: &'a [u8],
    pub(crate) truncated: &'a [u8],
    pub(crate) reset: &'a [u8],
    /// Rows whose env has failed and is not back; empty when there is none.
    pub(crate) lost: &'a [bool],
    /// The word for how each of them was lost, until it has been told.
    pub(crate) losses: &'a [Option<&'static str>],
}

/// The steps whose infos have `valid`, which tells for each row whether it is a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShowValid {
    /// All steps.
    Always,
    /// Steps with a row that is not a transition.
    Needed,
    /// Steps with a lost lane: rows that NEXT_STEP resets follow from the step before.
    Lost,
}

impl ShowValid {
    /// Parses the word that `VectorEnv` has for it.
    pub(crate) fn of(word: &str) -> PyResult<Self> {
        match word {
            "always" => Ok(Self::Always),
            "needed" => Ok(Self::Needed),
            "lost" => Ok(Self::Lost),
            other => Err(PyValueError::new_err(format!("show_valid: `{other}` is unknown"))),
        }
    }

    /// Returns whether it is in the infos of a step, `reset` being the rows that were reset.
    #[inline]
    pub(crate) fn is_in(self, reset: &[u8], any_lost: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Needed => any_lost || any(reset),
            Self::Lost => any_lost,
        }
    }
}

/// The observations of an env, and the columns of its own infos, beside those that every env has.
#[derive(Debug)]
pub(crate) struct Shapes {
    pub(crate) obs: ObsShape,
    pub(crate) channels: Vec<Channel>,
}

/// A column of an env's own infos.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) shape: RowShape,
    pub(crate) role: Role,
}

impl Rows<'_> {
    fn is_over(&self, row: usize) -> bool {
        (self.terminated[row] | self.truncated[row]) != 0
    }

    fn is_lost(&self, row: usize) -> bool {
        self.lost.get(row).copied().unwrap_or(false)
    }

    /// Returns whether a row is a transition.
    pub(crate) fn is_valid(&self, row: usize) -> bool {
        self.reset[row] == 0 && !self.is_lost(row)
    }

    /// Returns whether an episode ended in one of the rows.
    pub(crate) fn has_ended(&self) -> bool {
        any(self.terminated) || any(self.truncated)
    }

    /// Adds the env's own infos, which most envs do not have, and which lanes are lost. The infos of an episode's last
    /// step go into `final_info` if that is there, as in SAME_STEP.
    pub(crate) fn add_to(&self, infos: &Bound<'_, PyDict>, shapes: &Shapes) -> PyResult<()> {
        if !self.infos.is_empty() {
            let nested = infos.get_item(intern!(infos.py(), "final_info"))?;
            if let Some(nested) = &nested {
                let nested = nested.cast::<PyDict>()?;
                self.add_channels(nested, shapes, |channel, row| {
                    !channel.role.is_in_first_rows() && self.is_over(row)
                })?;
            }
            // A reset has none, but for those that are there in first rows; these are of the episode that has begun, also
            // where one has ended in the same step.
            self.add_channels(infos, shapes, |channel, row| {
                if channel.role.is_in_first_rows() {
                    return !self.is_lost(row);
                }
                self.is_valid(row) && !(nested.is_some() && self.is_over(row))
            })?;
        }
        self.add_lost(infos)
    }

    /// Adds what a reset tells: the infos that are there in rows which began an episode, and which lanes are lost.
    pub(crate) fn add_first_to(&self, infos: &Bound<'_, PyDict>, shapes: &Shapes) -> PyResult<()> {
        self.add_channels(infos, shapes, |channel, row| {
            channel.role.is_in_first_rows() && self.reset[row] != 0
        })?;
        self.add_lost(infos)
    }

    fn add_channels(
        &self,
        infos: &Bound<'_, PyDict>,
        shapes: &Shapes,
        is_shown: impl Fn(&Channel, usize) -> bool,
    ) -> PyResult<()> {
        let py = infos.py();
        for (channel, &column) in shapes.channels.iter().zip(&self.infos) {
            let shown: Vec<bool> = (0..self.count).map(|row| is_shown(channel, row)).collect();
            if !shown.contains(&true) {
                continue;
            }
            let Channel { name, shape, .. } = channel;
            infos.set_item(name, copy_masked(py, shape, column, &shown)?)?;
            infos.set_item(format!("_{name}"), mask(py, &shown)?)?;
        }
        Ok(())
    }

    /// Adds how lanes were lost, in the row in which each was.
    fn add_lost(&self, infos: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = infos.py();
        let new: Vec<bool> = self.losses.iter().map(Option::is_some).collect();
        if !new.contains(&true) {
            return Ok(());
        }
        let words = self.losses.iter().enumerate().filter_map(|(row, word)| Some((row, (*word)?)));
        let words = words.map(|(row, word)| Ok((row, PyString::intern(py, word).into_any())));
        let array = objects(py, self.count, words)?;
        infos.set_item(intern!(py, "lost"), array)?;
        infos.set_item(intern!(py, "_lost"), mask(py, &new)?)
    }
}

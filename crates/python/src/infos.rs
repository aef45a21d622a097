//! Infos in Gymnasium's layout: for each key an array over the rows and, under `_key`, a mask.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rollhouse_core::{ColumnRef, ColumnSpec, Role};

use crate::arrays::{RowShape, copy_masked, mask, objects};
use crate::obs_shape::ObsShape;
use crate::statistics::any;
use crate::words::FurtherInfos;

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
    /// Why they were lost, of those of which it is known.
    pub(crate) reasons: &'a [(usize, String)],
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
    /// Where rows say that they have infos which no channel has.
    pub(crate) further: Option<FurtherInfos>,
}

/// A column of an env's own infos.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Keys on the way to it.
    keys: Vec<String>,
    shape: RowShape,
    role: Role,
    /// The column of booleans that say where it is there, and its place among them; `None` if it is everywhere.
    there: Option<(usize, usize)>,
}

impl Channel {
    /// Makes the channels of an env; `shape_of` makes the shape of a row.
    pub(crate) fn all(
        columns: &[ColumnSpec],
        shape_of: impl Fn(&ColumnSpec) -> PyResult<RowShape>,
    ) -> PyResult<Vec<Self>> {
        let says_there = columns.iter().position(|column| column.role == Role::RemarkMask);
        let mut bits = 0..;
        let channel = |column: &ColumnSpec| {
            let there = match column.role {
                Role::ActionMask | Role::RemarkMask | Role::GoneBy => None,
                _ => says_there.zip(bits.next()),
            };
            let keys = if there.is_some() { keys_of(&column.path) } else { vec![column.path.clone()] };
            Ok(Self { keys, shape: shape_of(column)?, role: column.role, there })
        };
        columns.iter().map(channel).collect()
    }

    /// Returns whether an env that need not say it has said it in a row.
    fn is_there(&self, columns: &[ColumnRef<'_>], row: usize, rows: usize) -> bool {
        let Some((column, place)) = self.there else { return self.role != Role::RemarkMask };
        let Some(ColumnRef::U8(said)) = columns.get(column) else { return false };
        said.get(row * (said.len() / rows.max(1)) + place).is_some_and(|&said| said != 0)
    }
}

/// Returns the keys on the way to a number, whose path is a JSON pointer without the first slash.
fn keys_of(path: &str) -> Vec<String> {
    path.split('/').map(|key| key.replace("~1", "/").replace("~0", "~")).collect()
}

impl Rows<'_> {
    fn is_over(&self, row: usize) -> bool {
        (self.terminated[row] | self.truncated[row]) != 0
    }

    fn is_lost(&self, row: usize) -> bool {
        self.lost.get(row).copied().unwrap_or(false)
    }

    /// Returns whether an episode has begun in a row: it was reset, or ended where the next begins in the `same_step`.
    pub(crate) fn has_begun(&self, row: usize, same_step: bool) -> bool {
        self.reset[row] != 0 || same_step && self.is_over(row)
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
            let begins = |row: usize| self.reset[row] != 0 || nested.is_some() && self.is_over(row);
            self.add_channels(infos, shapes, |channel, row| match channel.role {
                // Of the episode that has begun, also where one has ended in the same step.
                Role::ActionMask => !self.is_lost(row),
                Role::FirstRemark => !self.is_lost(row) && begins(row),
                _ => self.is_valid(row) && !begins(row),
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
            let is_there = |row: usize| channel.is_there(&self.infos, row, self.count);
            let shown: Vec<bool> =
                (0..self.count).map(|row| is_shown(channel, row) && is_there(row)).collect();
            if shown.contains(&true) {
                add(infos, &channel.keys, copy_masked(py, &channel.shape, column, &shown)?, &shown)?;
            }
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
        infos.set_item(intern!(py, "_lost"), mask(py, &new)?)?;
        if self.reasons.is_empty() {
            return Ok(());
        }
        let reasons = self.reasons.iter().map(|(row, why)| Ok((*row, PyString::new(py, why).into_any())));
        infos.set_item(intern!(py, "lost_reason"), objects(py, self.count, reasons)?)?;
        let known: Vec<bool> =
            (0..self.count).map(|row| self.reasons.iter().any(|(of, _)| *of == row)).collect();
        infos.set_item(intern!(py, "_lost_reason"), mask(py, &known)?)
    }
}

/// Adds rows of a number that lies under these keys, as Gymnasium does: each key has its mask beside it.
fn add<'py>(
    infos: &Bound<'py, PyDict>,
    keys: &[String],
    rows: Bound<'py, PyAny>,
    shown: &[bool],
) -> PyResult<()> {
    let py = infos.py();
    let Some((key, rest)) = keys.split_first() else { return Ok(()) };
    let (mask_key, mut there) = (format!("_{key}"), mask(py, shown)?);
    let before = infos.get_item(key)?;
    if let Some(earlier) = infos.get_item(&mask_key)?.filter(|_| before.is_some()) {
        there = there.bitor(earlier)?;
    }
    if !rest.is_empty() {
        let inner = match &before {
            None => PyDict::new(py),
            Some(before) => match before.cast::<PyDict>() {
                Ok(inner) => inner.clone(),
                // An env that gives a number here has given a dict elsewhere.
                Err(_) => return Ok(()),
            },
        };
        add(&inner, rest, rows, shown)?;
        infos.set_item(key, inner)?;
        return infos.set_item(mask_key, there);
    }
    let rows = match before {
        None => rows,
        Some(before) if before.is_instance_of::<PyDict>() => return Ok(()),
        Some(before) => {
            let (shape, earlier): (Vec<usize>, Vec<usize>) =
                (rows.getattr("shape")?.extract()?, before.getattr("shape")?.extract()?);
            if shape != earlier {
                // No array has both.
                return Ok(());
            }
            let mut axes = vec![1; shape.len()];
            axes[0] = shown.len();
            let chosen = mask(py, shown)?.call_method1("reshape", (axes,))?;
            py.import("numpy")?.call_method1("where", (chosen, rows, before))?
        }
    };
    infos.set_item(key, rows)?;
    infos.set_item(mask_key, there)
}

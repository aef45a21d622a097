//! What lanes on nodes say in words beside their rows: why they are lost, and infos that have no column.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rollhouse_client::MethodError;
use rollhouse_core::{ColumnRef, ColumnSpec, Role};
use rollhouse_engine::LaneWords;

use crate::failure::of_method;
use crate::lanes::Lanes;

/// Rows, each with what its lane says.
pub(crate) type Said = Vec<(usize, String)>;

/// The place of the boolean that says of a row whether there are infos that have no column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FurtherInfos {
    /// Column of booleans that say what is there.
    column: usize,
    /// Number of booleans of a row; the last is meant.
    width: usize,
}

impl FurtherInfos {
    /// Returns its place; `None` where none is said, as by earlier nodes and of envs that are no Python envs.
    pub(crate) fn of(channels: &[ColumnSpec]) -> Option<Self> {
        let column = channels.iter().position(|channel| channel.role == Role::RemarkMask)?;
        let width = channels[column].elements();
        let is_said = |channel: &&ColumnSpec| !matches!(channel.role, Role::ActionMask | Role::RemarkMask);
        (channels.iter().filter(is_said).count() + 1 == width).then_some(Self { column, width })
    }

    /// Returns the rows that have some; `info` returns an info column.
    #[inline]
    pub(crate) fn rows<'a>(self, info: impl FnOnce(usize) -> ColumnRef<'a>) -> Vec<u32> {
        let ColumnRef::U8(there) = info(self.column) else { return Vec::new() };
        let last = there.iter().skip(self.width - 1).step_by(self.width);
        (0..).zip(last).filter(|(_, there)| **there != 0).map(|(row, _)| row).collect()
    }
}

/// Returns what lanes say: of each that says something, its number and that. Nodes that cannot be asked say nothing: their rows
/// are there without it.
pub(crate) fn ask(
    py: Python<'_>,
    lanes: &mut Lanes,
    asked: &[u32],
    which: impl Fn(LaneWords) -> Option<String>,
) -> PyResult<Said> {
    let Lanes::Pool(pool) = lanes else { return Ok(Vec::new()) };
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let words = match py.detach(|| pool.words(asked)) {
        Ok(words) => words,
        Err(error @ MethodError::Interrupted) => return Err(of_method(py, &error)),
        Err(_) => return Ok(Vec::new()),
    };
    let said = asked.iter().zip(words).filter_map(|(&lane, words)| Some((lane as usize, which(words)?)));
    Ok(said.collect())
}

/// Adds infos that have no column; `begins` tells of a row whether an episode has begun in it.
pub(crate) fn add_further(
    infos: &Bound<'_, PyDict>,
    said: &Said,
    count: usize,
    begins: impl Fn(usize) -> bool,
) -> PyResult<()> {
    if said.is_empty() {
        return Ok(());
    }
    let py = infos.py();
    let rows = said.iter().map(|(row, text)| (*row, text.as_str(), begins(*row)));
    let rows = PyList::new(py, rows.collect::<Vec<_>>())?;
    py.import("rollhouse.remarks")?.getattr(intern!(py, "add_further"))?.call1((infos, rows, count)).map(drop)
}

//! The results of `reset`, `step` and `recv` in Python.

use numpy::PyArray1;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rollhouse_arena::ObsRefs;
use rollhouse_core::ColumnData;
use rollhouse_engine::{Frame, Received};

use crate::arrays::{KeepAlive, flags, mask};
use crate::endings::{Ended, Last, say_valid};
use crate::engine::NativeLanes;
use crate::engine::lanes_state::{LanesState, closed};
use crate::failure::of_step;
use crate::infos::Rows;
use crate::statistics::{Ends, any};
use crate::views::{Arrays, Views};
use crate::words::{self, Said};

impl NativeLanes {
    /// Returns the rows of a whole batch.
    fn rows_of<'a>(
        &self,
        frame: Frame<'a>,
        lost: &'a [bool],
        losses: &'a [Option<&'static str>],
        reasons: &'a [(usize, String)],
    ) -> Rows<'a> {
        Rows {
            count: self.lanes,
            infos: (0..self.shapes.channels.len()).map(|channel| frame.info(channel)).collect(),
            terminated: frame.terminated(),
            truncated: frame.truncated(),
            reset: frame.reset(),
            lost,
            losses,
            reasons,
        }
    }

    /// Returns infos that say to which lanes rows belong, and which rows are valid if that is shown.
    fn infos_of<'py>(
        &self,
        py: Python<'py>,
        received: &Received,
        rows: &Rows<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let count = rows.count;
        let infos = PyDict::new(py);
        let ids: Vec<i64> = received.lanes.iter().map(|&lane| i64::from(lane)).collect();
        infos.set_item(intern!(py, "env_id"), PyArray1::from_vec(py, ids))?;
        let every_row = || flags(py, count, |flags| flags.fill(1));
        infos.set_item(intern!(py, "_env_id"), every_row()?)?;
        if self.rules.show_valid.is_in(&received.reset, !rows.lost.is_empty()) {
            let valid: Vec<bool> = (0..count).map(|row| rows.is_valid(row)).collect();
            infos.set_item(intern!(py, "valid"), mask(py, &valid)?)?;
            infos.set_item(intern!(py, "_valid"), every_row()?)?;
        }
        Ok(infos)
    }

    /// Returns the result of `recv`.
    pub(crate) fn received<'py>(
        &self,
        py: Python<'py>,
        state: &mut LanesState,
        received: &Received,
        newly_lost: &[usize],
    ) -> PyResult<Bound<'py, PyTuple>> {
        let count = received.lanes.len();
        let is_lost = |lane: &u32| state.lost.get(*lane as usize).copied().unwrap_or(false);
        let lost: Vec<bool> = received.lanes.iter().map(is_lost).collect();
        let loss = |lane: &u32| state.losses.get(*lane as usize).copied().flatten();
        let losses: Vec<_> = received.lanes.iter().map(loss).collect();
        let reasons = state.reasons_of(&received.lanes);
        let said = state.further_of(py, self, received)?;
        let rows = Rows {
            count,
            infos: received.infos.iter().map(|column| column.as_ref()).collect(),
            terminated: &received.terminated,
            truncated: &received.truncated,
            reset: &received.reset,
            lost: if lost.contains(&true) { &lost } else { &[] },
            losses: &losses,
            reasons: &reasons,
        };
        let infos = self.infos_of(py, received, &rows)?;
        let ended = rows.has_ended();
        if let Some(statistics) = &mut state.statistics {
            let (lanes, rewards, reset) = (Some(&*received.lanes), &*received.rewards, &*received.reset);
            statistics.step(Ends { lanes, rewards, reset, ended });
        }
        let columns: Vec<_> = received.final_obs.iter().map(ColumnData::as_ref).collect();
        let last = (!columns.is_empty()).then_some(Last { columns: &columns, shape: &self.shapes.obs });
        if ended && (last.is_some() || state.statistics.is_some()) {
            let statistics = state.statistics.as_mut().map(|statistics| (statistics, Some(&*received.lanes)));
            let (terminated, truncated) = (&*received.terminated, &*received.truncated);
            state.endings.add_to(&infos, Ended { terminated, truncated, last, statistics })?;
        }
        rows.add_to(&infos, &self.shapes)?;
        words::add_further(&infos, &said, count, |row| rows.has_begun(row, self.rules.same_step))?;
        state.forget_losses(&received.lanes);
        let truncated = flags(py, count, |flags| {
            for ((flag, &truncated), &lane) in flags.iter_mut().zip(&received.truncated).zip(&received.lanes)
            {
                *flag = truncated | u8::from(newly_lost.contains(&(lane as usize)));
            }
        })?;
        PyTuple::new(
            py,
            [
                self.shapes.obs.copy(py, |index| received.obs[index].as_ref(), count)?,
                PyArray1::from_slice(py, &received.rewards).into_any(),
                flags(py, count, |flags| flags.copy_from_slice(&received.terminated))?,
                truncated,
                infos.into_any(),
            ],
        )
    }
}

impl NativeLanes {
    /// Returns rows that were received as they are: lanes, the columns of their observations, rewards and flags.
    pub(crate) fn columns_of<'py>(&self, py: Python<'py>, rows: &Received) -> PyResult<Bound<'py, PyTuple>> {
        let count = rows.lanes.len();
        let obs = self.shapes.obs.columns().zip(&rows.obs);
        let obs = obs.map(|(shape, column)| shape.copy(py, column.as_ref(), count));
        let lanes: Vec<i64> = rows.lanes.iter().map(|&lane| i64::from(lane)).collect();
        let copied = |from: &[u8]| flags(py, count, |flags| flags.copy_from_slice(from));
        PyTuple::new(
            py,
            [
                PyArray1::from_vec(py, lanes).into_any(),
                PyList::new(py, obs.collect::<PyResult<Vec<_>>>()?)?.into_any(),
                PyArray1::from_slice(py, &rows.rewards).into_any(),
                copied(&rows.terminated)?,
                copied(&rows.truncated)?,
                copied(&rows.reset)?,
            ],
        )
    }
}

impl LanesState {
    /// Returns views of the newest frame as it is.
    pub(crate) fn columns<'py>(
        &mut self,
        py: Python<'py>,
        owner: &NativeLanes,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let Some(inner) = &mut self.inner else { return Err(closed(py)) };
        let frame = inner.frame().map_err(|error| of_step(py, &error))?;
        views_of(&mut self.views, &self.memory, py, frame, owner)?.columns(py)
    }

    /// Returns why received lanes were lost, by their rows, of those of which it is known.
    fn reasons_of(&self, lanes: &[u32]) -> Said {
        let reason = |(row, lane): (usize, &u32)| {
            let (_, why) = self.reasons.iter().find(|(of, _)| *of == *lane as usize)?;
            Some((row, why.clone()))
        };
        lanes.iter().enumerate().filter_map(reason).collect()
    }

    /// Returns what received lanes say of infos that have no column, by their rows. Nothing is asked while others are under way.
    fn further_of(&mut self, py: Python<'_>, owner: &NativeLanes, received: &Received) -> PyResult<Said> {
        let (Some(further), 0) = (owner.shapes.further, self.outstanding()) else { return Ok(Vec::new()) };
        let rows = further.rows(|column| received.infos[column].as_ref());
        let asked: Vec<u32> = rows.iter().map(|&row| received.lanes[row as usize]).collect();
        let said = words::ask(py, self.inner(py)?, &asked, |words| words.infos)?;
        let row_of = |lane: usize| received.lanes.iter().position(|&of| of as usize == lane);
        Ok(said.into_iter().filter_map(|(lane, text)| Some((row_of(lane)?, text))).collect())
    }

    /// Returns what lanes say of infos that have no column, by their rows of the whole batch.
    #[inline]
    fn further(&mut self, py: Python<'_>, owner: &NativeLanes) -> PyResult<Said> {
        let (Some(further), Some(inner)) = (owner.shapes.further, &mut self.inner) else {
            return Ok(Vec::new());
        };
        let frame = inner.frame().map_err(|error| of_step(py, &error))?;
        let mut asked = further.rows(|column| frame.info(column));
        asked.retain(|&lane| !self.lost.get(lane as usize).copied().unwrap_or(false));
        words::ask(py, inner, &asked, |words| words.infos)
    }

    /// Returns the result of `step`.
    #[inline]
    pub(crate) fn result<'py>(
        &mut self,
        py: Python<'py>,
        owner: &NativeLanes,
        copy: bool,
        newly_lost: &[usize],
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.look_where(py)?;
        let further = self.further(py, owner)?;
        let Some(inner) = &mut self.inner else { return Err(closed(py)) };
        let frame = inner.frame().map_err(|error| of_step(py, &error))?;
        let (terminated, truncated, reset) = (frame.terminated(), frame.truncated(), frame.reset());
        let with_valid = owner.rules.show_valid.is_in(reset, !self.lost.is_empty());
        let mut arrays = if copy {
            Arrays::copied(py, frame, &owner.shapes.obs, &self.lost, with_valid)?
        } else {
            let views = views_of(&mut self.views, &self.memory, py, frame, owner)?;
            views.show(py, frame, &owner.shapes.obs, &self.lost, with_valid)?
        };
        if !newly_lost.is_empty() {
            arrays.truncated = flags(py, owner.lanes, |flags| {
                flags.copy_from_slice(truncated);
                newly_lost.iter().for_each(|&lane| flags[lane] = 1);
            })?;
        }
        let rules = owner.rules;
        let tells_ends = rules.same_step || rules.statistics;
        let ended = tells_ends && (any(terminated) || any(truncated));
        if let Some(statistics) = &mut self.statistics {
            statistics.step(Ends { lanes: None, rewards: frame.rewards(), reset, ended });
        }
        let valid = arrays.valid.map(|valid| (valid, &self.every_row));
        let infos = if ended {
            let shape = &owner.shapes.obs;
            let count = if rules.same_step { shape.columns().count() } else { 0 };
            let columns: ObsRefs<'_> = (0..count).map(|index| frame.final_obs(index)).collect();
            let last = rules.same_step.then_some(Last { columns: &columns, shape });
            let statistics = self.statistics.as_mut().map(|statistics| (statistics, None));
            self.endings.infos(py, Ended { terminated, truncated, last, statistics }, valid)?
        } else {
            let infos = PyDict::new(py);
            if let Some((valid, every_row)) = valid {
                say_valid(&infos, valid, every_row)?;
            }
            infos
        };
        if !owner.shapes.channels.is_empty() || !self.lost.is_empty() {
            let rows = owner.rows_of(frame, &self.lost, &self.losses, &self.reasons);
            rows.add_to(&infos, &owner.shapes)?;
            words::add_further(&infos, &further, owner.lanes, |row| rows.has_begun(row, rules.same_step))?;
            self.losses.fill(None);
            self.reasons.clear();
        }
        (arrays.obs, arrays.rewards, arrays.terminated, arrays.truncated, infos).into_pyobject(py)
    }

    /// Returns the result of `reset`.
    pub(crate) fn reset_result<'py>(
        &mut self,
        py: Python<'py>,
        owner: &NativeLanes,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.look_where(py)?;
        let further = self.further(py, owner)?;
        let Some(inner) = &mut self.inner else { return Err(closed(py)) };
        let frame = inner.frame().map_err(|error| of_step(py, &error))?;
        let obs = if owner.rules.copy {
            owner.shapes.obs.copy(py, |index| frame.obs(index), owner.lanes)?
        } else {
            views_of(&mut self.views, &self.memory, py, frame, owner)?.obs(py, frame, &owner.shapes.obs)?
        };
        let infos = PyDict::new(py);
        if !owner.shapes.channels.is_empty() || !self.lost.is_empty() {
            let rows = owner.rows_of(frame, &self.lost, &self.losses, &self.reasons);
            rows.add_first_to(&infos, &owner.shapes)?;
            let further = further.into_iter().filter(|(row, _)| frame.reset()[*row] != 0).collect();
            words::add_further(&infos, &further, owner.lanes, |_| true)?;
            self.losses.fill(None);
            self.reasons.clear();
        }
        (obs, infos).into_pyobject(py)
    }
}

/// Returns the views of the slot that `frame` lies in.
#[inline]
fn views_of<'a>(
    views: &'a mut [Option<Views>; 2],
    memory: &Py<KeepAlive>,
    py: Python<'_>,
    frame: Frame<'_>,
    owner: &NativeLanes,
) -> PyResult<&'a Views> {
    match &mut views[frame.slot_index()] {
        Some(views) => Ok(views),
        none => Ok(none.insert(Views::new(memory.bind(py), frame, &owner.shapes.obs)?)),
    }
}

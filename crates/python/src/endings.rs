//! The infos of a step in which episodes ended: their last observations, as SAME_STEP tells them, and their returns and
//! lengths, as `statistics` does.
//!
//! A batch of short episodes has such a step almost every time, and making an array, or a dict and its keys, costs as
//! much as stepping dozens of lanes. So the objects that were handed out earlier, the dict of infos included, are
//! filled anew once nobody holds them any more, which their reference counts tell. An object that is held keeps its
//! contents.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rollhouse_core::{ColumnRef, DType};

use crate::arrays::RowShape;
use crate::obs_shape::ObsShape;
use crate::spares::{Spare, SpareDict, SpareRows};
use crate::statistics::{EpisodeStatistics, set_rows};

/// Some rows of a step, in which at least one episode ended.
pub(crate) struct Ended<'a> {
    pub(crate) terminated: &'a [u8],
    pub(crate) truncated: &'a [u8],
    /// The last observations of the episodes that ended; only in SAME_STEP.
    pub(crate) last: Option<Last<'a>>,
    /// The statistics that have taken note of the step, if they are to be told, and the lane of each row; no lanes mean
    /// all in order.
    pub(crate) statistics: Option<(&'a mut EpisodeStatistics, Option<&'a [u32]>)>,
}

/// The columns of last observations, and the shape of one.
pub(crate) struct Last<'a> {
    pub(crate) columns: &'a [ColumnRef<'a>],
    pub(crate) shape: &'a ObsShape,
}

/// The objects that are handed out in turns, so that one step's may still be held while the next one's are made.
#[derive(Default)]
pub(crate) struct Endings {
    turns: [Turn; 2],
    newest: usize,
    /// Rows in which an episode ended.
    rows: Vec<usize>,
}

/// The objects that were handed out for a step; without a part that was not asked for.
#[derive(Default)]
struct Turn {
    /// The dict of infos, which holds all that follows.
    infos: SpareDict,
    /// The mask that it has as `valid`, if it has one.
    valid: Option<Py<PyAny>>,
    over: Spare,
    last: SpareRows,
    final_info: SpareDict,
    /// The dict of an episode, which holds `figures`.
    episode: SpareDict,
    figures: Figures,
}

/// The figures of the episodes that ended: returns, lengths and seconds.
#[derive(Default)]
struct Figures {
    returns: Spare,
    lengths: Spare,
    times: Spare,
}

/// The parts of infos, to which nobody but their [`Turn`] has a reference.
struct Parts<'py> {
    over: Bound<'py, PyAny>,
    finals: Option<(Bound<'py, PyAny>, Bound<'py, PyDict>)>,
    episode: Option<Bound<'py, PyDict>>,
}

impl Endings {
    /// Returns a dict with what there is to say of the step, and with its mask as `valid` if that is given. More may be
    /// added to it.
    pub(crate) fn infos<'py>(
        &mut self,
        py: Python<'py>,
        ended: Ended<'_>,
        valid: Option<(Bound<'py, PyAny>, &Py<PyAny>)>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.newest ^= 1;
        let turn = &mut self.turns[self.newest];
        let kept = turn.whole(py, &ended);
        let infos = match &kept {
            Some(infos) => infos.clone(),
            None => {
                let infos = PyDict::new(py);
                turn.make(py, &ended)?.add_to(&infos)?;
                infos
            }
        };
        turn.fill(py, ended, &mut self.rows)?;
        let had = turn.valid.take().filter(|_| kept.is_some());
        // Views of a slot are the same in each of its steps: nothing is to be changed then.
        let says_so = had.as_ref().map(Py::as_ptr) == valid.as_ref().map(|(valid, _)| valid.as_ptr());
        turn.valid = valid.as_ref().map(|(valid, _)| valid.clone().unbind());
        match valid {
            _ if says_so => {}
            Some((valid, every_row)) => say_valid(&infos, valid, every_row)?,
            None => {
                infos.del_item(intern!(py, "valid"))?;
                infos.del_item(intern!(py, "_valid"))?;
            }
        }
        if kept.is_none() || !says_so {
            turn.infos.keep(&infos);
        }
        Ok(infos)
    }

    /// Adds the same to a dict that has other infos.
    pub(crate) fn add_to(&mut self, infos: &Bound<'_, PyDict>, ended: Ended<'_>) -> PyResult<()> {
        self.newest ^= 1;
        let turn = &mut self.turns[self.newest];
        turn.make(infos.py(), &ended)?.add_to(infos)?;
        turn.fill(infos.py(), ended, &mut self.rows)
    }
}

impl Turn {
    /// Returns the dict of infos, if nobody holds anything of it any more and nothing was changed in it.
    fn whole<'py>(&self, py: Python<'py>, ended: &Ended<'_>) -> Option<Bound<'py, PyDict>> {
        let infos = self.infos.held(py, 0)?;
        let rows = ended.terminated.len();
        let (finals, told) = (ended.last.is_some(), ended.statistics.is_some());
        let masks = if finals { 2 } else { 0 } + usize::from(told);
        let whole = self.over.is_free(rows, masks)
            && (!finals || (self.last.is_free(rows, 1) && self.final_info.held(py, 1).is_some()))
            && (!told || (self.episode.held(py, 1).is_some() && self.figures.are_free(rows)));
        whole.then_some(infos)
    }

    /// Returns the parts of infos. Parts of an earlier step that nobody holds any more are used again.
    fn make<'py>(&mut self, py: Python<'py>, ended: &Ended<'_>) -> PyResult<Parts<'py>> {
        // It holds the others.
        self.infos.forget();
        let rows = ended.terminated.len();
        let over = self.over.take(py, &RowShape::scalar(DType::Bool), Some(rows))?;
        let finals = match ended.last {
            Some(_) => Some((self.last.take(py, rows)?, self.final_info(py))),
            None => None,
        };
        let episode = ended.statistics.is_some().then(|| self.episode(py, rows)).transpose()?;
        Ok(Parts { over, finals, episode })
    }

    fn final_info<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.final_info.held(py, 0).unwrap_or_else(|| {
            let dict = PyDict::new(py);
            self.final_info.keep(&dict);
            dict
        })
    }

    fn episode<'py>(&mut self, py: Python<'py>, rows: usize) -> PyResult<Bound<'py, PyDict>> {
        if let Some(episode) = self.episode.held(py, 0)
            && self.figures.are_free(rows)
        {
            return Ok(episode);
        }
        // It holds the arrays.
        self.episode.forget();
        let episode = PyDict::new(py);
        let Figures { returns, lengths, times } = &mut self.figures;
        let (double, long) = (RowShape::scalar(DType::F64), RowShape::scalar(DType::I64));
        episode.set_item(intern!(py, "r"), returns.take(py, &double, Some(rows))?)?;
        episode.set_item(intern!(py, "l"), lengths.take(py, &long, Some(rows))?)?;
        episode.set_item(intern!(py, "t"), times.take(py, &double, Some(rows))?)?;
        self.episode.keep(&episode);
        Ok(episode)
    }

    /// Writes what there is to say into the parts.
    fn fill(&mut self, py: Python<'_>, ended: Ended<'_>, over_rows: &mut Vec<usize>) -> PyResult<()> {
        let rows = ended.terminated.len();
        self.over.write_flags(py, rows, |flags| {
            let over = ended.terminated.iter().zip(ended.truncated);
            flags.iter_mut().zip(over).for_each(|(flag, (a, b))| *flag = a | b);
            set_rows(flags, over_rows);
        });
        if let Some(Last { columns, shape }) = ended.last {
            match shape.plain() {
                Some(row) if !row.is_of_own() => self.last.fill(py, columns[0], row, over_rows)?,
                _ => self.last.fill_with(py, over_rows, |row| shape.copy_row(py, columns, row))?,
            }
        }
        if let Some((statistics, lanes)) = ended.statistics {
            self.figures.fill(py, rows, over_rows, statistics, lanes);
        }
        Ok(())
    }
}

impl Figures {
    /// Returns whether nobody but the episode's dict holds them.
    fn are_free(&self, rows: usize) -> bool {
        [&self.returns, &self.lengths, &self.times].iter().all(|figure| figure.is_free(rows, 1))
    }

    fn fill(
        &mut self,
        py: Python<'_>,
        rows: usize,
        over_rows: &[usize],
        statistics: &mut EpisodeStatistics,
        lanes: Option<&[u32]>,
    ) {
        let Self { returns, lengths, times } = self;
        let ended = || over_rows.iter().map(|&row| (row, lanes.map_or(row, |lanes| lanes[row] as usize)));
        returns.write_numbers(py, rows, |to: &mut [f64]| {
            ended().for_each(|(row, lane)| to[row] = statistics.episode_return(lane));
        });
        lengths.write_numbers(py, rows, |to: &mut [i64]| {
            ended().for_each(|(row, lane)| to[row] = statistics.episode_length(lane));
        });
        times.write_numbers(py, rows, |to: &mut [f64]| {
            ended().for_each(|(row, lane)| to[row] = statistics.episode_seconds(lane));
        });
        ended().for_each(|(_, lane)| statistics.begin_lane(lane));
    }
}

impl Parts<'_> {
    fn add_to(self, infos: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = infos.py();
        if let Some((last, final_info)) = self.finals {
            infos.set_item(intern!(py, "final_obs"), last)?;
            infos.set_item(intern!(py, "_final_obs"), &self.over)?;
            infos.set_item(intern!(py, "final_info"), final_info)?;
            infos.set_item(intern!(py, "_final_info"), &self.over)?;
        }
        if let Some(episode) = self.episode {
            infos.set_item(intern!(py, "episode"), episode)?;
            infos.set_item(intern!(py, "_episode"), self.over)?;
        }
        Ok(())
    }
}

/// Adds to infos which rows are transitions; `every_row` is the mask of an info that all rows have.
pub(crate) fn say_valid(
    infos: &Bound<'_, PyDict>,
    valid: Bound<'_, PyAny>,
    every_row: &Py<PyAny>,
) -> PyResult<()> {
    let py = infos.py();
    infos.set_item(intern!(py, "valid"), valid)?;
    infos.set_item(intern!(py, "_valid"), every_row)
}

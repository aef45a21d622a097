//! Return, length and time of episodes, as Gymnasium's `RecordEpisodeStatistics` tells them in `infos["episode"]`.

use std::time::Instant;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rollhouse_core::DType;

use crate::arrays::{RowShape, Spare, fill_flags, fill_numbers, holds_exactly, read_flags};
use crate::finals::{set_rows, write_over};

/// What the open episode of every lane has come to.
///
/// A step adds its rewards and looks for flags, which costs tens of nanoseconds; what else there is to do it does for
/// lanes whose episode ends or begins. What nobody holds any more is filled anew, as in [`crate::finals`].
///
/// Python's side of it is for lanes in worker processes.
#[pyclass(module = "rollhouse._native")]
pub(crate) struct EpisodeStatistics {
    returns: Vec<f64>,
    /// The count of steps at which the lane's episode has none.
    began: Vec<u64>,
    /// Seconds since `clock` at which it began.
    since: Vec<f64>,
    steps: u64,
    clock: Instant,
    turns: [Made; 2],
    newest: usize,
    /// Rows that are looked at in a step.
    rows: Vec<usize>,
}

/// What was told of a step.
#[derive(Default)]
struct Made {
    over: Spare,
    returns: Spare,
    lengths: Spare,
    times: Spare,
    /// Holds the last three.
    episode: Option<Py<PyDict>>,
}

/// The same, of which nobody else knows.
struct Ours<'py> {
    over: Bound<'py, PyAny>,
    returns: Bound<'py, PyAny>,
    lengths: Bound<'py, PyAny>,
    times: Bound<'py, PyAny>,
    episode: Bound<'py, PyDict>,
}

/// Rows of a step.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    /// The lane of each row; `None` for all lanes in order.
    pub(crate) lanes: Option<&'a [u32]>,
    pub(crate) rewards: &'a [f64],
    pub(crate) terminated: &'a [u8],
    pub(crate) truncated: &'a [u8],
    /// 1 where the row began an episode instead of stepping.
    pub(crate) reset: &'a [u8],
}

#[pymethods]
impl EpisodeStatistics {
    #[new]
    fn new(lanes: usize) -> Self {
        Self::of(lanes)
    }

    /// Lanes begin an episode.
    #[pyo3(name = "begin")]
    fn begin_lanes(&mut self, lanes: Vec<u32>) -> PyResult<()> {
        let mut mask = vec![false; self.returns.len()];
        for lane in self.checked(&lanes)? {
            mask[*lane as usize] = true;
        }
        self.begin(&mask);
        Ok(())
    }

    /// Takes note of a step of some lanes, and adds `episode` to `infos` if one ended in it; one row per lane.
    #[pyo3(name = "step")]
    fn step_lanes(
        &mut self,
        infos: &Bound<'_, PyDict>,
        lanes: Vec<u32>,
        rewards: PyReadonlyArray1<'_, f64>,
        terminated: PyReadonlyArray1<'_, bool>,
        truncated: PyReadonlyArray1<'_, bool>,
        reset: PyReadonlyArray1<'_, bool>,
    ) -> PyResult<()> {
        self.checked(&lanes)?;
        let bytes = |flags: PyReadonlyArray1<'_, bool>| -> Vec<u8> {
            flags.as_array().iter().map(|&flag| u8::from(flag)).collect()
        };
        let (terminated, truncated, reset) = (bytes(terminated), bytes(truncated), bytes(reset));
        let rewards = rewards.as_array().to_vec();
        if [rewards.len(), terminated.len(), truncated.len(), reset.len()]
            .iter()
            .any(|&rows| rows != lanes.len())
        {
            return Err(PyValueError::new_err(format!("a step of {} lanes has as many rows", lanes.len())));
        }
        let lanes = Some(&*lanes);
        let (terminated, truncated, reset) = (&*terminated, &*truncated, &*reset);
        self.step(infos, Ends { lanes, rewards: &rewards, terminated, truncated, reset })
    }
}

impl EpisodeStatistics {
    fn checked<'a>(&self, lanes: &'a [u32]) -> PyResult<&'a [u32]> {
        match lanes.iter().find(|&&lane| lane as usize >= self.returns.len()) {
            Some(lane) => Err(PyValueError::new_err(format!("lane {lane} of {} lanes", self.returns.len()))),
            None => Ok(lanes),
        }
    }

    pub(crate) fn of(lanes: usize) -> Self {
        Self {
            returns: vec![0.0; lanes],
            began: vec![0; lanes],
            since: vec![0.0; lanes],
            steps: 0,
            clock: Instant::now(),
            turns: Default::default(),
            newest: 0,
            rows: Vec::new(),
        }
    }

    /// Lanes begin an episode: those of which `mask` says so, all of them if it is empty.
    pub(crate) fn begin(&mut self, mask: &[bool]) {
        let now = self.clock.elapsed().as_secs_f64();
        for lane in (0..self.returns.len()).filter(|&lane| mask.get(lane).copied().unwrap_or(true)) {
            self.begin_lane(lane, now);
        }
    }

    fn begin_lane(&mut self, lane: usize, now: f64) {
        (self.returns[lane], self.began[lane], self.since[lane]) = (0.0, self.steps, now);
    }

    /// Takes note of a step, and says in `infos` of the episodes that ended in it what they came to.
    pub(crate) fn step(&mut self, infos: &Bound<'_, PyDict>, ends: Ends<'_>) -> PyResult<()> {
        let lane_of = |row: usize| ends.lanes.map_or(row, |lanes| lanes[row] as usize);
        match ends.lanes {
            None => {
                self.steps += 1;
                self.returns.iter_mut().zip(ends.rewards).for_each(|(sum, reward)| *sum += reward);
            }
            Some(lanes) => {
                for (&lane, reward) in lanes.iter().zip(ends.rewards) {
                    self.returns[lane as usize] += reward;
                    // One step more than the lanes that did not move.
                    self.began[lane as usize] = self.began[lane as usize].wrapping_sub(1);
                }
            }
        }
        let any = |flags: &[u8]| flags.iter().fold(0, |any, flag| any | flag) != 0;
        let (begins, ended) = (any(ends.reset), any(ends.terminated) || any(ends.truncated));
        if begins || ended {
            let now = self.clock.elapsed().as_secs_f64();
            if begins {
                let mut rows = std::mem::take(&mut self.rows);
                set_rows(ends.reset, &mut rows);
                rows.iter().for_each(|&row| self.begin_lane(lane_of(row), now));
                self.rows = rows;
            }
            if ended {
                self.tell(infos, ends, now, lane_of)?;
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn tell(
        &mut self,
        infos: &Bound<'_, PyDict>,
        ends: Ends<'_>,
        now: f64,
        lane_of: impl Fn(usize) -> usize,
    ) -> PyResult<()> {
        let (py, rows) = (infos.py(), ends.rewards.len());
        self.newest ^= 1;
        let Ours { over, returns, lengths, times, episode } = self.turns[self.newest].take(py, rows)?;
        fill_flags(&over, rows, |flags| write_over(flags, ends.terminated, ends.truncated));
        let mut over_rows = std::mem::take(&mut self.rows);
        set_rows(read_flags(&over, rows), &mut over_rows);
        fill_numbers(&returns, rows, |to: &mut [f64]| {
            over_rows.iter().for_each(|&row| to[row] = self.returns[lane_of(row)]);
        });
        fill_numbers(&lengths, rows, |to: &mut [i64]| {
            over_rows
                .iter()
                .for_each(|&row| to[row] = self.steps.wrapping_sub(self.began[lane_of(row)]) as i64);
        });
        fill_numbers(&times, rows, |to: &mut [f64]| {
            let seconds = |row| ((now - self.since[lane_of(row)]) * 1e6).round() / 1e6;
            over_rows.iter().for_each(|&row| to[row] = seconds(row));
        });
        over_rows.iter().for_each(|&row| self.begin_lane(lane_of(row), now));
        self.rows = over_rows;
        infos.set_item(intern!(py, "episode"), episode)?;
        infos.set_item(intern!(py, "_episode"), over)
    }
}

impl Made {
    /// What was told earlier, to be told anew, if nobody has it any more and nobody has changed it; else new ones.
    fn take<'py>(&mut self, py: Python<'py>, rows: usize) -> PyResult<Ours<'py>> {
        if let Some(ours) = self.whole(py, rows) {
            return Ok(ours);
        }
        // It holds the arrays.
        self.episode = None;
        let over = self.over.take(py, &RowShape::scalar(DType::Bool), Some(rows))?;
        let returns = self.returns.take_numbers::<f64>(py, rows)?;
        let lengths = self.lengths.take_numbers::<i64>(py, rows)?;
        let times = self.times.take_numbers::<f64>(py, rows)?;
        let episode = PyDict::new(py);
        episode.set_item(intern!(py, "r"), &returns)?;
        episode.set_item(intern!(py, "l"), &lengths)?;
        episode.set_item(intern!(py, "t"), &times)?;
        self.episode = Some(episode.clone().unbind());
        Ok(Ours { over, returns, lengths, times, episode })
    }

    fn whole<'py>(&self, py: Python<'py>, rows: usize) -> Option<Ours<'py>> {
        // SAFETY: a dict that is kept here; the interpreter lock is held.
        let alone = |dict: &&Py<PyDict>| unsafe { ffi::Py_REFCNT(dict.as_ptr()) } == 1;
        let episode = self.episode.as_ref().filter(alone)?;
        let over = self.over.held(py, rows, 0)?;
        let returns = self.returns.held(py, rows, 1)?;
        let lengths = self.lengths.held(py, rows, 1)?;
        let times = self.times.held(py, rows, 1)?;
        let held = [
            (intern!(py, "r").as_ptr(), returns.as_ptr()),
            (intern!(py, "l").as_ptr(), lengths.as_ptr()),
            (intern!(py, "t").as_ptr(), times.as_ptr()),
        ];
        let episode = episode.bind(py).clone();
        holds_exactly(&episode, &held).then_some(Ours { over, returns, lengths, times, episode })
    }
}

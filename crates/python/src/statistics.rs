//! Return, length and time of episodes, as Gymnasium's `RecordEpisodeStatistics` tells them in `infos["episode"]`.

use std::time::Instant;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rollhouse_core::DType;

use crate::arrays::{RowShape, Spare, fill_flags, read_flags};
use crate::finals::{set_rows, write_over};

/// What the open episode of every lane has come to.
///
/// A step adds its rewards and looks for flags, which costs tens of nanoseconds; what else there is to do it does for
/// lanes whose episode ends or begins. Arrays that nobody holds any more are filled anew, as in [`crate::finals`].
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

#[derive(Default)]
struct Made {
    returns: Spare,
    lengths: Spare,
    times: Spare,
    over: Spare,
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
        let made = &mut self.turns[self.newest];
        let over = made.over.take(py, &RowShape::scalar(DType::Bool), Some(rows))?;
        fill_flags(&over, rows, |flags| write_over(flags, ends.terminated, ends.truncated));
        let mut over_rows = std::mem::take(&mut self.rows);
        set_rows(read_flags(&over, rows), &mut over_rows);
        let returns = made.returns.numbers(py, rows, |to: &mut [f64]| {
            over_rows.iter().for_each(|&row| to[row] = self.returns[lane_of(row)]);
        })?;
        let lengths = made.lengths.numbers(py, rows, |to: &mut [i64]| {
            over_rows
                .iter()
                .for_each(|&row| to[row] = self.steps.wrapping_sub(self.began[lane_of(row)]) as i64);
        })?;
        let times = made.times.numbers(py, rows, |to: &mut [f64]| {
            let seconds = |row| ((now - self.since[lane_of(row)]) * 1e6).round() / 1e6;
            over_rows.iter().for_each(|&row| to[row] = seconds(row));
        })?;
        over_rows.iter().for_each(|&row| self.begin_lane(lane_of(row), now));
        self.rows = over_rows;
        let episode = PyDict::new(py);
        episode.set_item(intern!(py, "r"), returns)?;
        episode.set_item(intern!(py, "l"), lengths)?;
        episode.set_item(intern!(py, "t"), times)?;
        infos.set_item(intern!(py, "episode"), episode)?;
        infos.set_item(intern!(py, "_episode"), over)
    }
}

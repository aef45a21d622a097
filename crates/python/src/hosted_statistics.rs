//! Episode statistics of lanes in worker processes.

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::endings::{Ended, Endings};
use crate::statistics::{Ends, EpisodeStatistics, any};

/// The statistics of lanes in worker processes, whose steps Python hands in.
#[pyclass(name = "EpisodeStatistics", module = "rollhouse._native")]
pub(crate) struct HostedStatistics {
    statistics: EpisodeStatistics,
    endings: Endings,
}

#[pymethods]
impl HostedStatistics {
    #[new]
    fn new(lanes: usize) -> Self {
        Self { statistics: EpisodeStatistics::of(lanes), endings: Endings::default() }
    }

    /// Begins an episode in each of the lanes.
    fn begin(&mut self, lanes: Vec<u32>) -> PyResult<()> {
        let mut mask = vec![false; self.statistics.lanes()];
        for lane in self.checked(&lanes)? {
            mask[*lane as usize] = true;
        }
        self.statistics.begin(&mask);
        Ok(())
    }

    /// Takes note of a step of some lanes, one row per lane. Adds `episode` to `infos` if an episode ended in it.
    fn step(
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
        let (terminated, truncated) = (&*terminated, &*truncated);
        let ended = any(terminated) || any(truncated);
        self.statistics.step(Ends { lanes: Some(&lanes), rewards: &rewards, reset: &reset, ended });
        if ended {
            let statistics = Some((&mut self.statistics, Some(&*lanes)));
            self.endings.add_to(infos, Ended { terminated, truncated, last: None, statistics })?;
        }
        Ok(())
    }
}

impl HostedStatistics {
    fn checked<'a>(&self, lanes: &'a [u32]) -> PyResult<&'a [u32]> {
        let count = self.statistics.lanes();
        match lanes.iter().find(|&&lane| lane as usize >= count) {
            Some(lane) => Err(PyValueError::new_err(format!("lane {lane} of {count} lanes"))),
            None => Ok(lanes),
        }
    }
}

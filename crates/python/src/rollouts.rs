//! Rollouts as a Python object, behind `rollhouse.Rollouts`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rollhouse_client::{
    Difference, EmbeddedLanes, PlayedBatch, PlayedEpisode, Rollouts, RolloutsError, RolloutsOptions,
    StepError, Update,
};
use rollhouse_core::{ColumnRef, ColumnSpec, DType, Role};
use rollhouse_engine::{Fragment, FragmentColumns, PlayError};
use rollhouse_host::OwnWorkers;
use rollhouse_policy::{Dialect, GivenNet, Sampling, UnknownDialect};
use rollhouse_wire::{PolicyGiven, RefusalCode};

use crate::arrays::{KeepAlive, RowShape};
use crate::engine::NativeLanes;
use crate::envs::known_env;
use crate::failure::{exception, of_step, one_at_a_time};
use crate::fork::Home;
use crate::keywords::keywords;
use crate::lanes::Lanes;

/// Fragments that a policy plays in lanes of this process or of a cluster.
///
/// One thread at a time may use it. In a forked child every method raises.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct NativeRollouts {
    home: Home,
    /// The lanes, as the arrays need them.
    lanes: Py<NativeLanes>,
    /// The rollouts; `None` after they were closed.
    inner: Mutex<Option<Rollouts>>,
}

/// An update that is under way.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct NativeUpdate(Mutex<Update>);

/// Worker processes that step the lanes of rollouts. They end with these.
struct AtWork(Option<OwnWorkers>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.iter().for_each(|workers| workers.end(Some(ENVS_CLOSE_WITHIN)));
    }
}

keywords! {
    /// What is to be played.
    struct Playing {
        steps: usize,
        staleness: usize,
        seed: u64,
        group: usize,
        whole: bool,
        policy: GivenPolicy,
    }
}

/// A policy: its name, version and seed, how it draws actions (deterministic, temperature, epsilon), and its file.
type GivenPolicy = (String, u64, u64, Option<(bool, f64, f64)>, Vec<u8>);

#[pymethods]
impl NativeRollouts {
    /// Begins episodes in these lanes, which are the rollouts' from then on.
    #[new]
    #[pyo3(signature = (lanes, **keywords))]
    fn new(py: Python<'_>, lanes: Py<NativeLanes>, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let Playing { steps, staleness, seed, group, whole, policy } = Playing::of(keywords)?;
        let (policy, file) = given(policy);
        let options = RolloutsOptions { steps, staleness, seed, group, whole, policy, file };
        let taken = lanes.get().take_lanes(py)?;
        let begun = py.detach(|| match taken {
            Lanes::Engine(engine, workers) => {
                Rollouts::begin(EmbeddedLanes::new(*engine).keeping(AtWork(workers)), options)
            }
            Lanes::Pool(pool) => Rollouts::begin(pool.unlooked(), options),
        });
        let inner = begun.map_err(|error| of_rollouts(py, &error))?;
        Ok(Self { home: Home::here(), lanes, inner: Mutex::new(Some(inner)) })
    }

    /// Returns the next batch as a dict of arrays. `timeout` is in seconds.
    fn next<'py>(&self, py: Python<'py>, timeout: f64) -> PyResult<Bound<'py, PyDict>> {
        let mut slot = one_at_a_time(self.inner.try_lock())?;
        let rollouts = self.of(py, &mut slot)?;
        let mut left = timeout;
        loop {
            let patience = Duration::from_secs_f64(left.clamp(0.0, LOOK_FOR_SIGNALS));
            let next = py.detach(|| rollouts.next(patience)).map_err(|error| of_rollouts(py, &error))?;
            if let Some(batch) = next {
                return self.dict(py, batch, rollouts.columns());
            }
            py.check_signals()?;
            left -= LOOK_FOR_SIGNALS;
            if left <= 0.0 {
                let message = format!("no batch within timeout={timeout} s; the next call goes on to wait");
                return Err(PyTimeoutError::new_err(message));
            }
        }
    }

    /// Has the lanes play by another policy.
    fn update(&self, py: Python<'_>, policy: GivenPolicy) -> PyResult<NativeUpdate> {
        let mut slot = one_at_a_time(self.inner.try_lock())?;
        let rollouts = self.of(py, &mut slot)?;
        let (policy, file) = given(policy);
        let update = py.detach(|| rollouts.update(policy, file)).map_err(|error| of_rollouts(py, &error))?;
        Ok(NativeUpdate(Mutex::new(update)))
    }

    /// Returns the version of the newest policy.
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<u64> {
        let mut slot = one_at_a_time(self.inner.try_lock())?;
        Ok(self.of(py, &mut slot)?.version())
    }

    /// Ends the lanes, after what they play now. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.home.is_here() {
            return Ok(());
        }
        let inner = one_at_a_time(self.inner.try_lock())?.take();
        py.detach(|| drop(inner));
        Ok(())
    }
}

/// Returns what the first returns have beyond the second: mean, low and high ends, and pairs; None of fewer than two pairs. NaN
/// stands for an episode that was lost.
#[pyfunction]
pub(crate) fn difference(better: Vec<f64>, than: Vec<f64>) -> Option<(f64, f64, f64, usize)> {
    let ended = |returns: Vec<f64>| -> Vec<Option<f64>> {
        returns.into_iter().map(|of| Some(of).filter(|of| !of.is_nan())).collect()
    };
    let Difference { mean, low, high, pairs } = Difference::of(&ended(better), &ended(than))?;
    Some((mean, low, high, pairs))
}

/// Returns the bytes of a net's file in a dialect, for an env of this process.
#[pyfunction]
pub(crate) fn policy_in_dialect(
    py: Python<'_>,
    file: Vec<u8>,
    dialect: &str,
    env: &str,
) -> PyResult<Vec<u8>> {
    let refused = |error: &dyn std::error::Error| exception(py, "PolicyError", error.to_string());
    let dialect: Dialect =
        dialect.parse().map_err(|error: UnknownDialect| PyValueError::new_err(error.to_string()))?;
    let env = known_env(py, env)?;
    let net = GivenNet::of_bytes("policy", &file).map_err(|error| refused(&error))?;
    net.in_dialect(dialect, env.spec()).map_err(|error| refused(&error))
}

#[pymethods]
impl NativeUpdate {
    /// Waits until all nodes have it, at most so many seconds. Returns whether they have.
    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let mut update = one_at_a_time(self.0.try_lock())?;
        let update = &mut *update;
        let mut left = timeout;
        while left > 0.0 {
            let patience = Duration::from_secs_f64(left.min(LOOK_FOR_SIGNALS));
            if py.detach(|| update.wait(patience)).map_err(|error| of_rollouts(py, &error))? {
                return Ok(true);
            }
            py.check_signals()?;
            left -= LOOK_FOR_SIGNALS;
        }
        Ok(false)
    }
}

impl NativeRollouts {
    fn of<'a>(&self, py: Python<'_>, slot: &'a mut Option<Rollouts>) -> PyResult<&'a mut Rollouts> {
        if !self.home.is_here() {
            let message = "these rollouts were begun in another process, of which this is a forked child";
            return Err(exception(py, "ForkedError", message.to_owned()));
        }
        slot.as_mut().ok_or_else(|| exception(py, "ClosedError", "these rollouts are closed".to_owned()))
    }

    fn dict<'py>(
        &self,
        py: Python<'py>,
        batch: PlayedBatch,
        columns: &FragmentColumns,
    ) -> PyResult<Bound<'py, PyDict>> {
        let PlayedBatch { fragment, episodes, lost, lag } = batch;
        let base = KeepAlive::new(py, Arc::clone(&fragment) as Arc<_>)?;
        let arrays = Arrays { of: &fragment, lanes: self.lanes.get(), columns, base: base.bind(py) };
        let dict = arrays.dict()?;
        let episodes = episodes.iter().map(|episode| {
            let PlayedEpisode { step, lane, total, length, terminated } = *episode;
            (step, lane, total, length, terminated)
        });
        dict.set_item("episodes", PyList::new(py, episodes.collect::<Vec<_>>())?)?;
        dict.set_item("lost_episodes", lost)?;
        dict.set_item("lag", lag)?;
        Ok(dict)
    }
}

/// The arrays of a batch, which are views of its memory and keep it.
struct Arrays<'a, 'py> {
    of: &'a Fragment,
    lanes: &'a NativeLanes,
    columns: &'a FragmentColumns,
    base: &'a Bound<'py, KeepAlive>,
}

impl<'py> Arrays<'_, 'py> {
    fn dict(&self) -> PyResult<Bound<'py, PyDict>> {
        let Self { of, lanes, columns, base } = *self;
        let (py, steps, frames) = (base.py(), of.steps(), of.steps() + 1);
        let scalar = RowShape::scalar;
        let dict = PyDict::new(py);
        let obs = &lanes.shapes.obs;
        let observations =
            obs.batch(py, frames, |at| of.obs(at), |at, row| self.shown(row, of.obs(at), frames))?;
        dict.set_item("observations", observations)?;
        dict.set_item("actions", self.shown(lanes.action(), of.actions(), steps)?)?;
        dict.set_item("rewards", self.shown(&scalar(DType::F64), ColumnRef::F64(of.rewards()), steps)?)?;
        for (name, flags) in [
            ("terminations", of.terminated()),
            ("truncations", of.truncated()),
            ("resets", of.reset()),
            ("lost", of.lost()),
        ] {
            dict.set_item(name, self.shown(&scalar(DType::Bool), ColumnRef::U8(flags), steps)?)?;
        }
        let versions: Vec<i64> = of.versions().iter().map(|&version| version.cast_signed()).collect();
        let shape = scalar(DType::I64).of_lanes(lanes.lanes).ok_or_else(too_many_axes)?;
        dict.set_item("versions", shape.copy(py, ColumnRef::I64(&versions), steps)?)?;
        let noted = PyDict::new(py);
        for (at, spec) in columns.notes.iter().enumerate() {
            noted.set_item(&spec.path, self.shown(&row_of(spec)?, of.note(at), steps)?)?;
        }
        dict.set_item("notes", noted)?;
        let states = PyDict::new(py);
        for (at, spec) in columns.states.iter().flatten().enumerate() {
            states.set_item(&spec.path, self.shown(&row_of(spec)?, of.state(at), 1)?)?;
        }
        dict.set_item("states", states)?;
        self.put_infos(&dict)?;
        self.put_finals(&dict)?;
        Ok(dict)
    }

    fn put_infos(&self, dict: &Bound<'py, PyDict>) -> PyResult<()> {
        let (infos, mut mask) = (PyDict::new(dict.py()), None);
        for (at, spec) in self.columns.batch.infos.iter().enumerate() {
            let shown = self.shown(&row_of(spec)?, self.of.info(at), self.of.steps() + 1)?;
            if spec.role == Role::ActionMask {
                mask = Some(shown.clone());
            }
            infos.set_item(&spec.path, shown)?;
        }
        dict.set_item("infos", infos)?;
        dict.set_item("masks", mask)
    }

    fn put_finals(&self, dict: &Bound<'py, PyDict>) -> PyResult<()> {
        let (py, finals) = (dict.py(), self.of.finals());
        let count = finals.rows.len();
        let places: Vec<i64> = finals.rows.iter().map(|&row| row.cast_signed()).collect();
        let rows = RowShape::scalar(DType::I64).copy(py, ColumnRef::I64(&places), count)?;
        dict.set_item("final_rows", rows)?;
        let last = self.lanes.shapes.obs.copy(py, |at| finals.obs[at].as_ref(), count)?;
        dict.set_item("final_observations", last)
    }

    /// Returns so many frames of the rows of all lanes: a view, or a copy where the env's own type is another.
    fn shown(&self, row: &RowShape, column: ColumnRef<'_>, frames: usize) -> PyResult<Bound<'py, PyAny>> {
        let shape = row.of_lanes(self.lanes.lanes).ok_or_else(too_many_axes)?;
        if shape.is_converted() {
            return shape.copy(self.base.py(), column, frames);
        }
        // SAFETY: the column lies in the fragment, which `base` holds and nobody writes to while somebody does; it has as many
        // rows of that shape.
        unsafe { shape.view(column, frames, self.base) }
    }
}

fn row_of(spec: &ColumnSpec) -> PyResult<RowShape> {
    RowShape::new(spec.dtype, &spec.shape).ok_or_else(too_many_axes)
}

fn given((name, version, seed, sampling, file): GivenPolicy) -> (PolicyGiven, bytes::Bytes) {
    let sampling = sampling.map(|(deterministic, temperature, epsilon)| Sampling {
        deterministic,
        temperature,
        epsilon,
    });
    (PolicyGiven { name, version, seed, sampling, keeps_states: false }, file.into())
}

fn too_many_axes() -> PyErr {
    PyValueError::new_err("a batch of these rows has more axes than an array may have")
}

/// Turns the error of rollouts into an exception.
fn of_rollouts(py: Python<'_>, error: &RolloutsError) -> PyErr {
    match error {
        // What a node has against a policy is what this process would have.
        RolloutsError::Pool(StepError::Refused { refusal, .. })
            if refusal.code == RefusalCode::BadRequest =>
        {
            exception(py, "PolicyError", error.to_string())
        }
        RolloutsError::Pool(error) => of_step(py, error),
        RolloutsError::Play(PlayError::Step(error)) => of_step(py, &error.clone().into()),
        RolloutsError::Play(PlayError::Act(error)) => exception(py, "PolicyError", error.to_string()),
        RolloutsError::Options { .. } | RolloutsError::Version { .. } | RolloutsError::Group { .. } => {
            PyValueError::new_err(error.to_string())
        }
        RolloutsError::Ended => exception(py, "ClosedError", error.to_string()),
        error => exception(py, "PolicyError", error.to_string()),
    }
}

/// Time that the envs of workers have to close themselves.
const ENVS_CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Seconds between two looks for signals.
const LOOK_FOR_SIGNALS: f64 = 0.05;

//! Episodes for `rollhouse.replays`: their entries in a listing, and reading them as NumPy arrays.
//!
//! The interpreter lock is released while files are read and while episodes are recomputed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use rollhouse_client::run_named;
use rollhouse_core::{ColumnData, ColumnSpec, DType, EnvSpec, EpisodeName, OwnDType, Space};
use rollhouse_replay::{CalledAt, Episode, LibraryEpisode, ReadError, RecordKind, Steps};

use crate::arrays::own_descr;
use crate::envs;
use crate::envs::{plain, registry};
use crate::read_failure::Failure;

/// The entry of an episode in a listing. The fields are those of `rollhouse replay ls --json` and `replay show --json`;
/// `return` is called `return_`.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct EpisodeInfo(pub(crate) LibraryEpisode);

#[pymethods]
impl EpisodeInfo {
    /// The episode's name: run, lane and number, like `k3f9q2tz-17-203`.
    #[getter]
    fn id(&self) -> String {
        self.0.info.name.to_string()
    }

    /// The env's id.
    #[getter]
    fn env(&self) -> &str {
        self.0.info.env()
    }

    /// The number with which `reset(seed)` alone gives the first state, or None if there is none.
    #[getter]
    fn seed(&self) -> Option<u64> {
        self.0.info.seed()
    }

    /// Number of steps.
    #[getter]
    fn length(&self) -> u64 {
        self.0.info.length
    }

    /// Sum of rewards; None if the episode's end was never recorded.
    #[getter]
    fn return_(&self) -> Option<f64> {
        self.0.info.total_reward
    }

    /// `terminated`, `truncated`, or how it was interrupted: `crashed`, `hung`, `node_lost`, `evicted`,
    /// `cancelled`, `disconnected`, `policy`.
    #[getter]
    fn outcome(&self) -> &'static str {
        self.0.info.outcome.word()
    }

    /// `win`, `lose` or `draw`, or `None` if its env gave it no result.
    #[getter]
    fn result(&self) -> Option<&'static str> {
        self.0.info.result.word()
    }

    /// The score that its env gave it, or `None`.
    #[getter]
    fn score(&self) -> Option<f64> {
        self.0.info.score
    }

    /// Sum of each agent's rewards by its name; empty of an env of one agent, and where it was not recorded.
    #[getter]
    fn agent_returns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.0.info.agent_returns().collect::<Vec<_>>().into_py_dict(py)
    }

    /// Whether the env itself reached its end; may hold together with `truncated`.
    #[getter]
    fn terminated(&self) -> bool {
        self.0.info.outcome.flags().0
    }

    /// Whether a limit cut it.
    #[getter]
    fn truncated(&self) -> bool {
        self.0.info.outcome.flags().1
    }

    /// Whether it was terminated or truncated, and not interrupted.
    #[getter]
    fn finished(&self) -> bool {
        self.0.info.outcome.is_finished()
    }

    /// The time at which it began, to 100 ms: an aware `datetime` in UTC.
    #[getter]
    fn started<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let datetime = py.import("datetime")?;
        let utc = datetime.getattr("timezone")?.getattr("utc")?;
        let seconds = self.0.info.started_ms as f64 / 1000.0;
        datetime.getattr("datetime")?.call_method1("fromtimestamp", (seconds, utc))
    }

    /// Name of the policy that chose its actions.
    #[getter]
    fn policy(&self) -> &str {
        &self.0.info.policy().name
    }

    /// Version of that policy when the run began; `policy_versions` has those of the steps.
    #[getter]
    fn policy_version(&self) -> u64 {
        self.0.info.policy().version
    }

    /// Reads which version of the policy chose each action: uint64 `[T]`, 0 where nobody had said it.
    fn policy_versions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        let load = || self.0.folder.load(&self.0.info).map_err(Failure::from);
        let episode = py.detach(load).map_err(|failure| failure.into_py(py))?;
        let versions = (0..episode.info.length).map(|step| episode.policy_versions.of_step(step));
        Ok(PyArray1::from_iter(py, versions))
    }

    /// Reads what was noted of each step by those who chose the actions: {name: `[T, ...]`}.
    fn step_columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let load = || self.0.folder.load(&self.0.info).map_err(Failure::from);
        let episode = py.detach(load).map_err(|failure| failure.into_py(py))?;
        let specs = self.0.info.run.step_columns.specs().iter();
        let rows = episode.info.length as usize;
        let arrays = specs
            .zip(episode.step_columns)
            .map(|(spec, column)| Ok((&spec.path, array(py, spec, None, column, rows)?)));
        arrays.collect::<PyResult<Vec<_>>>()?.into_py_dict(py)
    }

    /// Reads the calls that changed its lane: a list of (step, method, payload), of which `step` is the number of steps before
    /// it and `payload` a text of JSON.
    fn calls(&self, py: Python<'_>) -> PyResult<Vec<(u64, String, String)>> {
        let load = || self.0.folder.load(&self.0.info).map_err(Failure::from);
        let episode = py.detach(load).map_err(|failure| failure.into_py(py))?;
        let calls = episode.calls.into_iter();
        Ok(calls.map(|CalledAt { step, call }| (step, call.method, call.payload)).collect())
    }

    /// Hash of the env's dynamics when it was recorded, 16 hexadecimal digits.
    #[getter]
    fn dynamics(&self) -> String {
        format!("{:016x}", self.0.info.dynamics())
    }

    /// Its share of the bytes on disk, estimated.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.info.bytes
    }

    /// The full id of its run.
    #[getter]
    fn run(&self) -> String {
        self.0.info.run_id().to_string()
    }

    /// Its row in the run's batch.
    #[getter]
    fn lane(&self) -> u32 {
        self.0.info.name.lane
    }

    /// The number of the episode in its lane, counted from 0.
    #[getter]
    fn number(&self) -> u64 {
        self.0.info.name.number
    }

    /// The options that it had: of those that are drawn, what it drew.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.0.info.options().iter() {
            dict.set_item(name, plain(py, value)?)?;
        }
        Ok(dict)
    }

    /// The time limit that applied, in steps.
    #[getter]
    fn max_episode_steps(&self) -> Option<u32> {
        self.0.info.run.max_episode_steps
    }

    /// The extent of its recording: `action_log` (recomputed when read), `trace` or `full`.
    #[getter]
    fn recorded(&self) -> &'static str {
        self.0.info.recorded().word()
    }

    /// Steps between two recorded pictures; None if none was recorded.
    #[getter]
    fn record_frames(&self) -> Option<u64> {
        Some(self.0.info.run.frames_every).filter(|&every| every > 0)
    }

    /// Name and version of the program that recorded it.
    #[getter]
    fn program(&self) -> &str {
        &self.0.info.run.program
    }

    /// Name of the episode that it was forked from, and the step up to which both are the same; None if it was not.
    #[getter]
    fn parent(&self) -> Option<(String, u64)> {
        self.0.info.parent().map(|parent| (parent.name().to_string(), parent.step))
    }

    /// The folder it is in.
    #[getter]
    fn folder(&self) -> PathBuf {
        self.0.folder.dir().to_path_buf()
    }

    /// The space of one observation.
    #[getter]
    fn observation_space<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        make_space(envs::observation(py, &self.0.info.run.spec.observation_space)?)
    }

    /// The space of one action.
    #[getter]
    fn action_space<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        make_space(envs::space(py, &self.0.info.run.spec.action_space)?)
    }

    fn __repr__(&self) -> String {
        let total = self.return_().map_or_else(|| "None".to_owned(), |total| format!("{total:?}"));
        format!(
            "EpisodeInfo(id='{}', env='{}', return_={total}, length={}, outcome='{}')",
            self.0.info.name,
            self.env(),
            self.0.info.length,
            self.outcome()
        )
    }

    /// Nothing of it changes: a copy is itself.
    fn __copy__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf.clone()
    }

    /// Another process finds it in its folder again.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (PathBuf, String))> {
        let find = py.import("rollhouse.replays")?.getattr("_find")?;
        Ok((find, (self.folder(), self.0.info.name.to_string())))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().key() == self.key())
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut hasher = std::hash::DefaultHasher::new();
        self.key().hash(&mut hasher);
        hasher.finish()
    }
}

impl EpisodeInfo {
    fn key(&self) -> (u128, EpisodeName, &Path) {
        (self.0.info.run_id().as_u128(), self.0.info.name, self.0.folder.dir())
    }
}

/// Returns the steps of an episode, recomputed where they are not recorded.
fn steps_of(episode: &mut Episode) -> Result<Steps, Failure> {
    match episode.steps.take() {
        Some(steps) => Ok(steps),
        None if episode.info.recorded() == RecordKind::ActionLog => Ok(episode.recompute(registry())?),
        None => {
            let what = "its observations are missing".to_owned();
            Err(ReadError::Malformed { name: episode.info.name, what }.into())
        }
    }
}

/// Returns the name of an episode of a run.
#[pyfunction]
pub(crate) fn episode_name(run: &str, lane: u32, number: u64) -> PyResult<String> {
    let run =
        run_named(run).ok_or_else(|| PyValueError::new_err(format!("run={run:?} is not the id of a run")))?;
    Ok(EpisodeName { run: run.short(), lane, number }.to_string())
}

/// Returns the episodes in the order in which reading them costs least.
#[pyfunction]
pub(crate) fn in_reading_order(mut infos: Vec<Py<EpisodeInfo>>) -> Vec<Py<EpisodeInfo>> {
    infos.sort_by(|a, b| a.get().0.compare_places(&b.get().0));
    infos
}

/// Rows of several episodes of one env, one after another.
#[derive(Debug)]
struct Rows {
    lengths: Vec<i64>,
    /// Observations: length + 1 rows of each episode.
    obs: Vec<ColumnData>,
    actions: ColumnData,
    rewards: Vec<f64>,
    infos: Vec<ColumnData>,
    step_columns: Vec<ColumnData>,
}

/// The lengths, observations, actions, rewards, infos and step columns of episodes.
type Columns<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyDict>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyDict>,
    Bound<'py, PyDict>,
);

/// Reads episodes of one env as columns, one after another: (lengths int64 [E], observation columns as
/// {path: [sum of (T + 1), ...]}, actions [sum of T, ...], rewards float64 [sum of T], info columns as {path:
/// [sum of T, ...]}, step columns likewise). Observations and actions have the env's own types where all of the recordings
/// tell them, and else those of their columns. All of it is held in memory.
#[pyfunction]
pub(crate) fn read_episodes<'py>(py: Python<'py>, infos: Vec<Py<EpisodeInfo>>) -> PyResult<Columns<'py>> {
    let first = infos.first().ok_or_else(|| PyValueError::new_err("infos: no episode to read"))?.get();
    let (spec, noted) = (&first.0.info.run.spec, &first.0.info.run.step_columns);
    // Recordings of earlier versions may have columns that a dict would lose.
    spec.check_paths().map_err(|error| PyValueError::new_err(format!("infos: {}: {error}", spec.id)))?;
    let (obs, action) = (spec.obs_columns(), spec.action_column());
    if let Some(other) = infos.iter().map(|info| &info.get().0.info.run).find(|other| {
        other.spec.obs_columns() != obs
            || other.spec.action_column() != action
            || other.spec.info_channels != spec.info_channels
            || other.step_columns != *noted
    }) {
        return Err(PyTypeError::new_err(format!(
            "infos: episodes of {} and {} have different columns and cannot be read together",
            spec.id, other.spec.id
        )));
    }
    let rows = py.detach(|| Rows::read(&infos)).map_err(|failure| failure.into_py(py))?;
    let mut own = own_types(infos.iter().map(|info| &info.get().0.info.run.spec));
    let own_action = own.pop().flatten();
    let steps = rows.rewards.len();
    let dict = |specs: &[ColumnSpec], own: &[Option<OwnDType>], columns: Vec<ColumnData>, rows: usize| {
        let own = own.iter().copied().chain(std::iter::repeat(None));
        let arrays = specs.iter().zip(own).zip(columns);
        let arrays =
            arrays.map(|((spec, own), column)| Ok((&spec.path, array(py, spec, own, column, rows)?)));
        arrays.collect::<PyResult<Vec<_>>>()?.into_py_dict(py)
    };
    Ok((
        PyArray1::from_vec(py, rows.lengths).into_any(),
        // Each episode has one observation more than steps.
        dict(&obs, &own, rows.obs, steps + infos.len())?,
        array(py, &action, own_action, rows.actions, steps)?,
        PyArray1::from_vec(py, rows.rewards).into_any(),
        dict(&spec.info_channels, &[], rows.infos, steps)?,
        dict(noted.specs(), &[], rows.step_columns, steps)?,
    ))
}

/// Returns the own type of each observation column, and last of the action, on which all specs agree; they have the same
/// columns.
fn own_types<'a>(specs: impl Iterator<Item = &'a EnvSpec>) -> Vec<Option<OwnDType>> {
    let types = specs.map(|spec| -> Vec<_> {
        let columns = spec.observation_space.columns();
        let spaces = columns.into_iter().map(|(_, space)| space).chain([&spec.action_space]);
        spaces.map(Space::own).collect()
    });
    let agreed = types.reduce(|mut agreed, types| {
        agreed
            .iter_mut()
            .zip(types)
            .filter(|(agreed, own)| **agreed != *own)
            .for_each(|(own, _)| *own = None);
        agreed
    });
    agreed.unwrap_or_default()
}

impl Rows {
    /// Reads the episodes folder by folder, as they stand on the disk, and puts them in the order asked for.
    fn read(infos: &[Py<EpisodeInfo>]) -> Result<Self, Failure> {
        let mut order: Vec<usize> = (0..infos.len()).collect();
        order.sort_by(|&a, &b| infos[a].get().0.compare_places(&infos[b].get().0));
        let mut loaded: Vec<Option<(Episode, Steps)>> = infos.iter().map(|_| None).collect();
        let folder_of = |at: usize| &infos[at].get().0.folder;
        for folder in order.chunk_by(|&a, &b| Arc::ptr_eq(folder_of(a), folder_of(b))) {
            let Some(&first) = folder.first() else { continue };
            let episodes = folder_of(first).load_many(folder.iter().map(|&at| &infos[at].get().0.info));
            for (&at, episode) in folder.iter().zip(episodes) {
                let mut episode = episode?;
                let steps = steps_of(&mut episode)?;
                loaded[at] = Some((episode, steps));
            }
        }
        let mut rows: Option<Self> = None;
        for (episode, steps) in loaded.into_iter().flatten() {
            rows.get_or_insert_with(|| Self::new(&episode, &steps)).push(&episode, &steps);
        }
        rows.ok_or(Failure::Nothing)
    }

    fn new(episode: &Episode, steps: &Steps) -> Self {
        Self {
            lengths: Vec::new(),
            obs: steps.first_obs.iter().map(empty).collect(),
            actions: empty(&episode.actions),
            rewards: Vec::new(),
            infos: steps.infos.iter().map(empty).collect(),
            step_columns: episode.step_columns.iter().map(empty).collect(),
        }
    }

    fn push(&mut self, episode: &Episode, steps: &Steps) {
        self.lengths.push(episode.info.length as i64);
        for ((to, first), rest) in self.obs.iter_mut().zip(&steps.first_obs).zip(&steps.obs) {
            append(to, first);
            append(to, rest);
        }
        append(&mut self.actions, &episode.actions);
        self.rewards.extend_from_slice(&steps.rewards);
        let noted = self.step_columns.iter_mut().zip(&episode.step_columns);
        for (to, from) in self.infos.iter_mut().zip(&steps.infos).chain(noted) {
            append(to, from);
        }
    }
}

fn empty(like: &ColumnData) -> ColumnData {
    match like {
        ColumnData::U8(_) => ColumnData::U8(Vec::new()),
        ColumnData::I32(_) => ColumnData::I32(Vec::new()),
        ColumnData::I64(_) => ColumnData::I64(Vec::new()),
        ColumnData::F32(_) => ColumnData::F32(Vec::new()),
        ColumnData::F64(_) => ColumnData::F64(Vec::new()),
    }
}

/// Appends the rows of `from`. Columns of one spec have one type: `read_episodes` compares the specs.
fn append(to: &mut ColumnData, from: &ColumnData) {
    match (to, from) {
        (ColumnData::U8(to), ColumnData::U8(from)) => to.extend_from_slice(from),
        (ColumnData::I32(to), ColumnData::I32(from)) => to.extend_from_slice(from),
        (ColumnData::I64(to), ColumnData::I64(from)) => to.extend_from_slice(from),
        (ColumnData::F32(to), ColumnData::F32(from)) => to.extend_from_slice(from),
        (ColumnData::F64(to), ColumnData::F64(from)) => to.extend_from_slice(from),
        (to, from) => debug_assert!(false, "{to:?} and {from:?} are columns of one spec"),
    }
}

/// Makes a NumPy array of `rows` rows over the memory of a column, or of its elements as those of the env's own type.
fn array<'py>(
    py: Python<'py>,
    spec: &ColumnSpec,
    own: Option<OwnDType>,
    column: ColumnData,
    rows: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let shape: Vec<usize> = std::iter::once(rows).chain(spec.shape.iter().copied()).collect();
    let array = match column {
        ColumnData::U8(values) => {
            let bytes = PyArray1::from_vec(py, values).reshape(shape)?.into_any();
            if spec.dtype == DType::Bool { bytes.call_method1("view", ("bool",))? } else { bytes }
        }
        ColumnData::I32(values) => PyArray1::from_vec(py, values).reshape(shape)?.into_any(),
        ColumnData::I64(values) => PyArray1::from_vec(py, values).reshape(shape)?.into_any(),
        ColumnData::F32(values) => PyArray1::from_vec(py, values).reshape(shape)?.into_any(),
        ColumnData::F64(values) => PyArray1::from_vec(py, values).reshape(shape)?.into_any(),
    };
    match own {
        Some(own) => array.call_method1("astype", (own_descr(py, own),)),
        None => Ok(array),
    }
}

/// Makes Gymnasium's space from a described one.
fn make_space(described: Bound<'_, PyDict>) -> PyResult<Bound<'_, PyAny>> {
    described.py().import("rollhouse.embedded")?.getattr("make_space")?.call1((described,))
}

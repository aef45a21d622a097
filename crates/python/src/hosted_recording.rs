//! Records lanes that Python envs play: in full, since nothing here can recompute them.

use std::path::PathBuf;

use arrayvec::ArrayVec;
use numpy::{
    PyArrayDescrMethods, PyReadonlyArray1, PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods, dtype,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rollhouse_core::limits::{BLOCK_LANES, MAX_ENV_ID_BYTES, MAX_OBS_COLUMNS, MAX_SPACE_DEPTH};
use rollhouse_core::{
    BoxSpace, ColumnRef, CompositeSpace, DType, Determinism, DiscreteSpace, EnvSpec, GameResult,
    Interruption, LaneSet, ObservationSpace, Outcome, Space, Start,
};
use rollhouse_replay::{BlockRecorder, End, Frame, Row};

use crate::failure::exception;
use crate::recording::{Recording, figures, wall_ms};

/// The recording of one hosted vector env.
#[pyclass(module = "rollhouse._native")]
pub(crate) struct HostedRecording {
    open: Option<Open>,
    path: PathBuf,
    run: String,
}

struct Open {
    // Handed over before the recording ends.
    blocks: Vec<BlockRecorder>,
    recording: Recording,
    returns: Vec<f64>,
    observation: Vec<(DType, usize)>,
    action: (DType, usize),
}

#[pymethods]
impl HostedRecording {
    /// Begins a recording. A plain space is (kind, dtype, shape, low, high): "box" with all bounds, or "discrete" with
    /// low = [start], high = [n]. An observation may also be ("dict", [(name, space), ...]) or ("tuple", [space, ...]).
    #[new]
    #[allow(clippy::too_many_arguments, reason = "what a run is")]
    /// Pictures are recorded of every `frames_every`-th step, of none if it is 0.
    #[pyo3(signature = (data, id, lanes, autoreset, max_episode_steps, observation, action, frames_every))]
    fn new(
        py: Python<'_>,
        data: PathBuf,
        id: String,
        lanes: usize,
        autoreset: &str,
        max_episode_steps: Option<u32>,
        observation: &Bound<'_, PyAny>,
        action: PlainSpace,
        frames_every: u64,
    ) -> PyResult<Self> {
        if id.len() > MAX_ENV_ID_BYTES {
            let message = format!("the env id {id:?} is longer than {MAX_ENV_ID_BYTES} bytes");
            return Err(PyValueError::new_err(message));
        }
        let (observation_space, action_space) = (observation_space(observation, 0)?, space(action)?);
        let column = |space: &Space| (space.dtype(), space.elements());
        let observation: Vec<_> =
            observation_space.columns().iter().map(|(_, space)| column(space)).collect();
        if observation.len() > MAX_OBS_COLUMNS {
            let message = format!(
                "observations of {} columns, at most {MAX_OBS_COLUMNS} are recorded",
                observation.len()
            );
            return Err(PyValueError::new_err(message));
        }
        let action = column(&action_space);
        let spec = EnvSpec {
            id,
            summary: "a Python env".to_owned(),
            observation_space,
            action_space,
            observation_names: Vec::new(),
            action_names: Vec::new(),
            max_episode_steps,
            determinism: Determinism::NonDeterministic,
            options: Vec::new(),
            info_channels: Vec::new(),
            // Of an env whose dynamics nobody hashes.
            dynamics_hash: 0,
        };
        let recording = Recording::begin_run(
            py,
            &data,
            false,
            &spec,
            lanes,
            autoreset,
            &[],
            max_episode_steps,
            frames_every,
        )?;
        let firsts = (0..lanes).step_by(BLOCK_LANES);
        let blocks = firsts.map(|first| recording.run().block(first as u32, BLOCK_LANES.min(lanes - first)));
        let (path, run) = (recording.path().to_owned(), recording.id.to_string());
        let open =
            Open { blocks: blocks.collect(), recording, returns: vec![0.0; lanes], observation, action };
        Ok(Self { open: Some(open), path, run })
    }

    /// Returns the folder into which it records, and the run's UUID.
    #[getter]
    fn place(&self) -> (PathBuf, String) {
        (self.path.clone(), self.run.clone())
    }

    /// Begins episodes in lanes; `seeds` has the seeds of those resets that were given one. Each lane's rows of
    /// `observations`, one array per column, are its first observation.
    fn begin(
        &mut self,
        lanes: Vec<usize>,
        seeds: Vec<Option<u64>>,
        observations: Vec<Bound<'_, PyUntypedArray>>,
    ) -> PyResult<()> {
        let open = self.open()?;
        let observations = open.columns_of(&observations)?;
        for (&lane, seed) in lanes.iter().zip(seeds) {
            let (block, first) = open.block(lane)?;
            let count = BLOCK_LANES.min(open.returns.len() - first);
            let rows = rows_of(&observations, first, count)?;
            open.blocks[block].begin(lane - first, seed.map_or(UNKNOWN_START, Start::seeded), &rows);
            open.returns[lane] = 0.0;
        }
        Ok(())
    }

    /// Records packed pictures of first observations, by lane; called after the lanes' episodes began.
    fn first_frames(&mut self, frames: Vec<(usize, Vec<u8>)>) -> PyResult<()> {
        let open = self.open()?;
        frames.into_iter().try_for_each(|(lane, packed)| open.frame(lane, true, packed))
    }

    /// Records a step of lanes, as arrays of N rows. Observations, one array per column, are those after the step,
    /// terminal ones included. `frames` has packed pictures of them, by lane.
    #[allow(clippy::too_many_arguments, reason = "the columns of a step")]
    fn step(
        &mut self,
        stepped: PyReadonlyArray1<'_, bool>,
        actions: &Bound<'_, PyUntypedArray>,
        observations: Vec<Bound<'_, PyUntypedArray>>,
        rewards: PyReadonlyArray1<'_, f64>,
        terminations: PyReadonlyArray1<'_, bool>,
        truncations: PyReadonlyArray1<'_, bool>,
        frames: Vec<(usize, Vec<u8>)>,
    ) -> PyResult<()> {
        let open = self.open()?;
        let lanes = open.returns.len();
        let observations = open.columns_of(&observations)?;
        let actions = Column::of(actions, open.action, lanes, "actions")?;
        let [stepped, terminations, truncations] =
            [stepped.as_slice()?, terminations.as_slice()?, truncations.as_slice()?];
        let rewards = rewards.as_slice()?;
        for slice in [stepped.len(), terminations.len(), truncations.len(), rewards.len()] {
            if slice != lanes {
                return Err(PyValueError::new_err(format!("{slice} rows for {lanes} lanes")));
            }
        }
        let now_ms = wall_ms();
        for (block, recorder) in open.blocks.iter_mut().enumerate() {
            let first = block * BLOCK_LANES;
            let range = first..lanes.min(first + BLOCK_LANES);
            let count = range.len();
            recorder.row(Row {
                stepped: (0..count).filter(|&lane| stepped[first + lane]).collect(),
                begun: LaneSet::NONE,
                actions: actions.rows(first, count)?,
                obs: &rows_of(&observations, first, count)?,
                rewards: &rewards[range.clone()],
                infos: &[],
                now_ms,
            });
        }
        frames.into_iter().try_for_each(|(lane, packed)| open.frame(lane, false, packed))?;
        for (block, recorder) in open.blocks.iter_mut().enumerate() {
            let first = block * BLOCK_LANES;
            for lane in (first..lanes.min(first + BLOCK_LANES)).filter(|&lane| stepped[lane]) {
                open.returns[lane] += rewards[lane];
                let (terminated, truncated) = (terminations[lane], truncations[lane]);
                if terminated || truncated {
                    let outcome = Outcome::Finished { terminated, truncated };
                    recorder.end(lane - first, end(outcome, open.returns[lane]));
                }
            }
        }
        Ok(())
    }

    /// Says which version of the policy chooses the actions from now on.
    fn policy_version(&mut self, version: u64) -> PyResult<()> {
        self.open()?.blocks.iter_mut().for_each(|block| block.policy_version(version));
        Ok(())
    }

    /// Notes that the episode of a lane was interrupted: "crashed" or "hung".
    fn interrupt(&mut self, lane: usize, outcome: &str) -> PyResult<()> {
        let open = self.open()?;
        let (block, first) = open.block(lane)?;
        let cause = if outcome == "hung" { Interruption::Hung } else { Interruption::Crashed };
        let total = open.returns[lane];
        open.blocks[block].end(lane - first, end(Outcome::Interrupted(cause), total));
        Ok(())
    }

    /// Ends open episodes as cancelled and waits until all is durable. Returns what was recorded.
    fn close<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(mut open) = self.open.take() else { return Ok(None) };
        for lane in 0..open.returns.len() {
            let (block, first) = open.block(lane)?;
            let cancelled = Outcome::Interrupted(Interruption::Cancelled);
            open.blocks[block].end(lane - first, end(cancelled, open.returns[lane]));
        }
        let Open { blocks, recording, .. } = open;
        let recorded = py.detach(|| {
            drop(blocks);
            recording.finish()
        });
        let recorded =
            recorded.map_err(|error| exception(py, "RecordingError", crate::failure::chain(&error)))?;
        figures(py, &recorded).map(Some)
    }
}

impl HostedRecording {
    fn open(&mut self) -> PyResult<&mut Open> {
        self.open.as_mut().ok_or_else(|| PyValueError::new_err("the recording is closed"))
    }
}

impl Open {
    /// Checks and takes the columns of observations.
    fn columns_of<'py>(&self, arrays: &[Bound<'py, PyUntypedArray>]) -> PyResult<Vec<Column<'py>>> {
        if arrays.len() != self.observation.len() {
            let message = format!("observations of {} columns, not {}", self.observation.len(), arrays.len());
            return Err(PyValueError::new_err(message));
        }
        let of = |(array, wanted): (_, &(DType, usize))| {
            Column::of(array, *wanted, self.returns.len(), "observations")
        };
        arrays.iter().zip(&self.observation).map(of).collect()
    }

    /// Records a picture of a lane as it is now.
    fn frame(&mut self, lane: usize, is_first: bool, packed: Vec<u8>) -> PyResult<()> {
        let (block, first) = self.block(lane)?;
        let frame = Frame::of_bytes(packed).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.blocks[block].frame(lane - first, is_first, frame);
        Ok(())
    }

    /// Returns the block of a lane, and its first lane.
    fn block(&self, lane: usize) -> PyResult<(usize, usize)> {
        if lane >= self.returns.len() {
            return Err(PyValueError::new_err(format!("lane {lane} of {} lanes", self.returns.len())));
        }
        Ok((lane / BLOCK_LANES, lane / BLOCK_LANES * BLOCK_LANES))
    }
}

/// Returns the rows of lanes `first .. first + count` of each column.
fn rows_of<'a>(
    columns: &'a [Column<'_>],
    first: usize,
    count: usize,
) -> PyResult<ArrayVec<ColumnRef<'a>, MAX_OBS_COLUMNS>> {
    columns.iter().map(|column| column.rows(first, count)).collect()
}

/// A plain space: (kind, dtype, shape, low, high).
type PlainSpace = (String, String, Vec<usize>, Vec<f64>, Vec<f64>);

/// Reads a plain space, or several that lie at most `depth` levels down.
fn observation_space(given: &Bound<'_, PyAny>, depth: usize) -> PyResult<ObservationSpace> {
    if depth > MAX_SPACE_DEPTH {
        let message = format!("observation spaces nested more than {MAX_SPACE_DEPTH} deep are not recorded");
        return Err(PyValueError::new_err(message));
    }
    let kind: String = given.get_item(0)?.extract()?;
    let parts = || given.get_item(1)?.try_iter();
    Ok(match kind.as_str() {
        "dict" => {
            let part = |part: PyResult<Bound<'_, PyAny>>| {
                let (name, space): (String, Bound<'_, PyAny>) = part?.extract()?;
                Ok((name, observation_space(&space, depth + 1)?))
            };
            CompositeSpace::Dict { spaces: parts()?.map(part).collect::<PyResult<_>>()? }.into()
        }
        "tuple" => {
            let part = |part: PyResult<Bound<'_, PyAny>>| observation_space(&part?, depth + 1);
            CompositeSpace::Tuple { spaces: parts()?.map(part).collect::<PyResult<_>>()? }.into()
        }
        _ => space(given.extract()?)?.into(),
    })
}

fn space((kind, dtype, shape, low, high): PlainSpace) -> PyResult<Space> {
    if kind == "discrete" {
        let (start, n) = (low.first().copied().unwrap_or(0.0), high.first().copied().unwrap_or(1.0));
        return Ok(Space::Discrete(DiscreteSpace { n: n as u64, start: start as i64 }));
    }
    let known = [DType::Bool, DType::U8, DType::I32, DType::I64, DType::F32, DType::F64];
    let dtype = known.into_iter().find(|known| known.name() == dtype).ok_or_else(|| {
        PyTypeError::new_err(format!("columns of dtype {dtype} cannot be recorded, those of {known:?} can"))
    })?;
    Ok(Space::Box(BoxSpace { low, high, shape, dtype }))
}

/// An array of N rows that lies in one piece.
struct Column<'py> {
    /// Elements of one row.
    elements: usize,
    array: Array<'py>,
}

enum Array<'py> {
    U8(PyReadonlyArrayDyn<'py, u8>),
    I32(PyReadonlyArrayDyn<'py, i32>),
    I64(PyReadonlyArrayDyn<'py, i64>),
    F32(PyReadonlyArrayDyn<'py, f32>),
    F64(PyReadonlyArrayDyn<'py, f64>),
}

impl<'py> Column<'py> {
    /// Takes an array. Booleans come as bytes.
    fn of(
        array: &Bound<'py, PyUntypedArray>,
        (wanted, elements): (DType, usize),
        lanes: usize,
        what: &str,
    ) -> PyResult<Self> {
        if array.len() != lanes * elements {
            let message = format!("{what}: {} elements for {lanes} rows of {elements}", array.len());
            return Err(PyValueError::new_err(message));
        }
        let py = array.py();
        let found = array.dtype();
        let array = match wanted {
            DType::Bool | DType::U8 if found.is_equiv_to(&dtype::<u8>(py)) => Array::U8(array.extract()?),
            DType::I32 if found.is_equiv_to(&dtype::<i32>(py)) => Array::I32(array.extract()?),
            DType::I64 if found.is_equiv_to(&dtype::<i64>(py)) => Array::I64(array.extract()?),
            DType::F32 if found.is_equiv_to(&dtype::<f32>(py)) => Array::F32(array.extract()?),
            DType::F64 if found.is_equiv_to(&dtype::<f64>(py)) => Array::F64(array.extract()?),
            _ => {
                return Err(PyTypeError::new_err(format!(
                    "{what} of dtype {found} where {wanted} is wanted"
                )));
            }
        };
        Ok(Self { elements, array })
    }

    fn rows(&self, first: usize, count: usize) -> PyResult<ColumnRef<'_>> {
        let range = first * self.elements..(first + count) * self.elements;
        Ok(match &self.array {
            Array::U8(array) => ColumnRef::U8(&array.as_slice()?[range]),
            Array::I32(array) => ColumnRef::I32(&array.as_slice()?[range]),
            Array::I64(array) => ColumnRef::I64(&array.as_slice()?[range]),
            Array::F32(array) => ColumnRef::F32(&array.as_slice()?[range]),
            Array::F64(array) => ColumnRef::F64(&array.as_slice()?[range]),
        })
    }
}

fn end(outcome: Outcome, total_reward: f64) -> End {
    End { outcome, total_reward, hash: 0, result: GameResult::None, score: None }
}

/// The start of an episode whose reset was given no seed: no number repeats it.
const UNKNOWN_START: Start = Start { seed: 0, words: u64::MAX, half: None };

//! How lanes are made: of an env of this process, or over lanes that are there already.

use std::path::PathBuf;
use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rollhouse_core::{AutoresetMode, ColumnSpec, EnvSpec, Role, Space};
use rollhouse_engine::{Engine, EngineConfig};

use crate::arrays::RowShape;
use crate::attended::Attended;
use crate::engine::lanes_state::LanesState;
use crate::engine::{NativeLanes, Rules};
use crate::envs::{checked_options, known_env};
use crate::failure::of_config;
use crate::fork::Home;
use crate::infos::{Channel, Shapes, ShowValid};
use crate::keywords::keywords;
use crate::lanes::Lanes;
use crate::noting::{Declared, step_columns};
use crate::obs_shape::ObsShape;
use crate::recording::{Recording, rule_of};
use crate::words::FurtherInfos;

keywords! {
    /// The lanes that are asked for.
    pub(super) struct LanesKeywords {
        lanes: usize,
        /// Number of threads that step, the caller's included; None for one per core.
        threads: Option<usize>,
        autoreset: String,
        max_episode_steps: Option<u32>,
        /// One dict for all lanes or one per lane.
        options: Vec<Py<PyDict>>,
        copy: bool,
        show_valid: String,
        raise_on_loss: bool,
        statistics: bool,
        convert: Py<PyAny>,
        /// The folder to record into.
        data: Option<PathBuf>,
        /// Which episodes are recorded, in the words of the command line.
        record: String,
        /// What is noted of each step beside that.
        step_columns: Vec<Declared>,
    }
}

impl LanesKeywords {
    /// Makes the lanes, without resetting them.
    pub(super) fn make(self, py: Python<'_>, id: &str) -> PyResult<NativeLanes> {
        let entry = known_env(py, id)?;
        let spec = entry.spec();
        let autoreset = autoreset_of(&self.autoreset)?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let config = EngineConfig {
            threads: self.threads.unwrap_or_else(|| cores().min(rollhouse_core::limits::MAX_THREADS)),
            autoreset,
            max_episode_steps: self.max_episode_steps,
            options: checked_options(py, spec, &self.options)?,
            ..EngineConfig::new(self.lanes)
        };
        let columns = step_columns(self.step_columns)?;
        let recording = match &self.data {
            Some(data) => Some(Recording::begin(py, data, rule_of(&self.record)?, spec, &config, columns)?),
            None => None,
        };
        let made = py.detach(|| Engine::new(&entry, config, recording.as_ref().map(Recording::run)));
        let engine = made.map_err(|error| of_config(py, &error))?;
        let same_step = autoreset == AutoresetMode::SameStep;
        let show_valid = ShowValid::of(&self.show_valid)?;
        let LanesKeywords { copy, raise_on_loss, statistics, convert, .. } = self;
        let rules = Rules { same_step, copy, show_valid, raise_on_loss, statistics };
        NativeLanes::of(py, spec, Lanes::Engine(Box::new(engine), None), rules, Some(convert), recording)
    }
}

/// Reads an autoreset mode.
pub(crate) fn autoreset_of(word: &str) -> PyResult<AutoresetMode> {
    word.parse().map_err(|error| PyValueError::new_err(format!("autoreset_mode: {error}")))
}

impl NativeLanes {
    /// Makes the arrays over the memory of lanes, which are those of `spec`.
    pub(crate) fn of(
        py: Python<'_>,
        spec: &EnvSpec,
        inner: Lanes,
        rules: Rules,
        convert: Option<Py<PyAny>>,
        recording: Option<Recording>,
    ) -> PyResult<Self> {
        let lanes = inner.count();
        // What workers' columns mean is the caller's: they are shown as they are.
        let as_columns = inner.has_workers();
        let infos = if as_columns { &[][..] } else { &spec.info_channels[..] };
        let row_shape = |dtype, shape: &[usize]| {
            let what = || format!("env {} has columns of {} axes", spec.id, shape.len());
            RowShape::new(dtype, shape).ok_or_else(|| PyValueError::new_err(what()))
        };
        let of_space = |space: &Space| {
            let bits = matches!(space, Space::Box(space) if space.choices);
            let row = row_shape(space.dtype(), space.shape())?;
            Ok(if as_columns { row } else { row.of_bits(bits).of_own(space.own()) })
        };
        let channels = Channel::all(infos, |ColumnSpec { dtype, shape, role, .. }| {
            // As Gymnasium's own envs give masks.
            Ok(row_shape(*dtype, shape)?.of_bits(*role == Role::ActionMask))
        })?;
        let made = Self {
            lanes,
            action: row_shape(spec.action_space.dtype(), spec.action_space.shape())?,
            narrow: matches!(
                &spec.action_space,
                Space::Box(space) if space.own.is_some() || space.parts.is_some()
            ),
            convert,
            rules,
            shapes: Shapes {
                obs: ObsShape::new(&spec.observation_space, of_space)?,
                channels,
                further: FurtherInfos::of(infos),
            },
            home: Home::here(),
            report: OnceLock::new(),
            attended: Attended::new(LanesState::of(py, inner, rules, recording)?),
        };
        if let Some(recording) = &made.attended.lock_last().recording {
            recording.attend(&made.attended);
        }
        Ok(made)
    }
}

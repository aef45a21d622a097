//! Folders of recordings for `rollhouse.replays`: opening, listing, verifying.
//!
//! The interpreter lock is released while files are read and while episodes are recomputed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods};
use rollhouse_core::EpisodeName;
use rollhouse_core::limits::LAUNCH_DEADLINE;
use rollhouse_host::{Connect, EnvProviders, Launcher, MAX_WORKERS, PythonHost, RecordedEnvs};
use rollhouse_replay::{
    Disk, Divergence, Envs, EpisodeKey, LabelChange, LabelError, Library, LibraryEpisode, Query, RealDisk,
    RunInfo, Value, Verification,
};

use crate::envs::{option_value, registry};
use crate::episodes::EpisodeInfo;
use crate::failure::{chain, exception};
use crate::read_failure::Failure;

/// The recordings of a folder and of the folders in it, or of a cluster's store, as they were when opened.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct Recordings {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    library: Library,
}

/// What episodes are listed: those of that env, outcome, result and least return, as far as each is given, with those values of
/// options, and with those least returns of agents.
#[derive(FromPyObject)]
struct Filter<'py>(
    Option<String>,
    Option<String>,
    Option<String>,
    Option<f64>,
    Option<Bound<'py, PyDict>>,
    Option<BTreeMap<String, f64>>,
);

/// How Python envs are hosted: interpreter, packages that may be imported beside gymnasium, most processes, and bytes of
/// memory that each may have.
#[derive(FromPyObject)]
struct Hosting(OsString, Vec<String>, Option<usize>, Option<u64>);

impl Hosting {
    /// Returns the envs that can be hosted so. Starts nothing.
    fn envs(self) -> PyResult<RecordedEnvs> {
        let Self(interpreter, allow, workers, memory) = self;
        if workers.is_some_and(|workers| workers == 0 || workers > MAX_WORKERS) {
            return Err(PyValueError::new_err(format!("workers must be 1 to {MAX_WORKERS}")));
        }
        if memory == Some(0) {
            return Err(PyValueError::new_err("worker_memory must be at least 1 byte"));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(RecordedEnvs::new(EnvProviders::from(PythonHost {
            interpreter,
            allow: std::iter::once("gymnasium".to_owned()).chain(allow).collect(),
            workers,
            launch_deadline: LAUNCH_DEADLINE,
            lane_deadlines: rollhouse_core::LaneDeadlines::default(),
            connect: Connect::default(),
            launcher: Launcher::new(cores.max(2)),
            memory,
            census: None,
            draw: false,
        })))
    }
}

#[pymethods]
impl Recordings {
    /// Opens `path` and the folders directly in it that hold recordings.
    #[new]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Self::on(py, Arc::new(RealDisk), path)
    }

    /// Returns whether a process was writing to any of the folders.
    #[getter]
    fn is_writing(&self) -> bool {
        self.library.is_writing()
    }

    /// Returns the folders, beginning with the one that was opened.
    #[getter]
    fn folders(&self) -> Vec<PathBuf> {
        self.library.folders().iter().map(|folder| folder.dir().to_path_buf()).collect()
    }

    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.library.count()).map_err(|error| Failure::from(error).into_py(py))
    }

    /// Returns the episodes that fit a filter, in the order of `sort`, whose words are those of `rollhouse replay ls`.
    #[pyo3(signature = (filter, all_outcomes, sort, limit))]
    fn list(
        &self,
        py: Python<'_>,
        filter: Filter<'_>,
        all_outcomes: bool,
        sort: &str,
        limit: Option<usize>,
    ) -> PyResult<Vec<EpisodeInfo>> {
        let bad = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
        let Filter(env, outcome, result, min_return, options, min_agent_returns) = filter;
        let options = options.iter().flat_map(PyDictMethods::iter).map(|(name, value)| {
            let name: String = name.extract()?;
            Ok((name.clone(), option_value(py, &name, &value)?))
        });
        let options = options.collect::<PyResult<Vec<_>>>()?;
        let outcome = outcome.as_deref().map(str::parse).transpose().map_err(|error| bad(&error))?;
        let result = result.as_deref().map(str::parse).transpose().map_err(|error| bad(&error))?;
        let query = Query {
            env,
            outcome,
            result,
            all_outcomes,
            min_return,
            min_agent_returns: min_agent_returns.into_iter().flatten().collect(),
            options,
            sort: sort.parse().map_err(|error| bad(&error))?,
            limit,
            ..Query::default()
        };
        let listed = py.detach(|| self.library.list(&query));
        let listed = listed.map_err(|error| Failure::from(error).into_py(py))?;
        Ok(listed.into_iter().map(EpisodeInfo).collect())
    }

    /// Returns the episode of that name.
    fn find(&self, py: Python<'_>, name: &str) -> PyResult<EpisodeInfo> {
        let name = name_of(name)?;
        let found = py.detach(|| self.library.find(name));
        found.map(EpisodeInfo).map_err(|error| Failure::from(error).into_py(py))
    }

    /// Pins an episode of the folder, or takes that back.
    fn pin(&self, py: Python<'_>, name: &str, pinned: bool) -> PyResult<()> {
        let name = name_of(name)?;
        let labelled = py.detach(|| self.library.label(name, &LabelChange::Pin(pinned)));
        labelled.map(drop).map_err(|error| match error {
            LabelError::Read(error) => Failure::from(error).into_py(py),
            LabelError::Disk(error) => exception(py, "ReplayDiskError", error.to_string()),
            error => exception(py, "ReplayError", error.to_string()),
        })
    }

    /// Recomputes episodes and compares, those of Python envs if it is said how they are hosted. Returns (how many, their
    /// steps, those that are not as recorded or could not be recomputed, damaged stretches). If `infos` is `None`, it takes
    /// all episodes and reads every byte.
    fn verify(
        &self,
        py: Python<'_>,
        infos: Option<Vec<Py<EpisodeInfo>>>,
        hosting: Option<Hosting>,
    ) -> PyResult<Verified> {
        let infos = infos.as_deref();
        let hosted = hosting.map(Hosting::envs).transpose()?;
        let verified = py.detach(|| {
            let learn = hosted.as_ref().map(|hosted| {
                move |run: &RunInfo| hosted.entry(&run.spec, &run.arguments).map_err(|error| chain(&*error))
            });
            let envs = match &learn {
                Some(learn) => Envs::learning(registry(), learn),
                None => Envs::from(registry()),
            };
            match infos {
                None => self.verify_all(envs),
                Some(infos) => verify_each(infos, envs),
            }
        });
        verified.map_err(|failure| failure.into_py(py))
    }
}

/// Reads the name of an episode.
fn name_of(name: &str) -> PyResult<EpisodeName> {
    name.parse().map_err(|error| PyValueError::new_err(format!("episode {name:?}: {error}")))
}

impl Recordings {
    /// Opens a folder of a disk; the root of a cluster's store is the empty path.
    pub(crate) fn on(py: Python<'_>, disk: Arc<dyn Disk>, path: PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| Library::open(Arc::clone(&disk), &path));
        let library = opened.map_err(|error| Failure::from(error).into_py(py))?;
        Ok(Self { disk, path, library })
    }

    /// Returns the key of the episode of that name.
    pub(crate) fn key(&self, py: Python<'_>, name: &str) -> PyResult<EpisodeKey> {
        Ok(EpisodeKey::of(&self.find(py, name)?.0.info))
    }

    fn verify_all(&self, envs: Envs<'_>) -> Result<Verified, Failure> {
        let mut tally = Verified::default();
        // Trusts no catalogue: what is damaged is to be found.
        let library = Library::open_scanning(Arc::clone(&self.disk), &self.path)?;
        library.verify_all(envs, |found| tally.take(found))?;
        let damage = library.damage().map(|(folder, d)| {
            let segment = folder.path(d.segment);
            format!("{}: bytes {} to {}: {}", segment.display(), d.from, d.to, d.cause.word())
        });
        tally.damage.extend(damage);
        Ok(tally)
    }
}

fn verify_each(infos: &[Py<EpisodeInfo>], envs: Envs<'_>) -> Result<Verified, Failure> {
    let mut tally = Verified::default();
    let mut episodes: Vec<_> = infos.iter().map(|info| info.get().0.clone()).collect();
    episodes.sort_by(LibraryEpisode::compare_places);
    LibraryEpisode::verify(episodes, envs, |found| tally.take(found))?;
    Ok(tally)
}

/// The result of verifying.
#[derive(Debug, Default)]
struct Verified {
    episodes: u64,
    steps: u64,
    /// The episodes that differ, and those that could not be recomputed.
    noted: Vec<Verification>,
    damage: Vec<String>,
}

impl Verified {
    fn take(&mut self, found: Verification) {
        self.episodes += 1;
        self.steps += found.steps;
        if !found.ok || found.note.is_some() {
            self.noted.push(found);
        }
    }
}

impl<'py> IntoPyObject<'py> for Verified {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut noted = Vec::with_capacity(self.noted.len());
        for found in self.noted {
            let divergence =
                found.first_divergence.map(|divergence| divergence_of(py, &divergence)).transpose()?;
            noted.push((found.name.to_string(), found.ok, found.steps, divergence, found.note));
        }
        Ok((self.episodes, self.steps, noted, self.damage).into_pyobject(py)?.into_any())
    }
}

type DivergenceFields<'py> = (u64, u64, String, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

fn divergence_of<'py>(py: Python<'py>, divergence: &Divergence) -> PyResult<DivergenceFields<'py>> {
    let value = |value: &Value| -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match value {
            Value::Nothing => None,
            Value::Flag(flag) => Some(flag.into_pyobject(py)?.to_owned().into_any()),
            Value::Hash(hash) => Some(hash.into_pyobject(py)?.into_any()),
            Value::Number(number) => Some(number.into_pyobject(py)?.into_any()),
            Value::Text(text) => Some(text.into_pyobject(py)?.into_any()),
        })
    };
    let Divergence { from, to, field, recorded, replayed } = divergence;
    Ok((*from, *to, field.clone(), value(recorded)?, value(replayed)?))
}

//! Folders of recordings for `rollhouse.replays`: opening, listing, verifying.
//!
//! The interpreter lock is released while files are read and while episodes are recomputed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rollhouse_core::EpisodeName;
use rollhouse_env::Registry;
use rollhouse_replay::{
    Divergence, Query, ReadError, RealDisk, RecomputeError, Replays, Value, Verification,
};

use crate::episodes::EpisodeInfo;
use crate::failure::{chain, exception};

/// Folders of recordings that are opened as one, at most.
const MAX_FOLDERS: usize = 4096;

/// The recordings of a folder and of the folders in it, as they were when opened.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct Recordings {
    folders: Vec<Arc<Folder>>,
}

/// One folder of recordings.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) replays: Replays,
}

#[pymethods]
impl Recordings {
    /// Opens `path` and the folders directly in it that hold recordings.
    #[new]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| open_all(&path, Replays::open))
            .map_err(|failure| failure.into_py(py))
            .map(|folders| Self { folders })
    }

    /// Whether a process was writing to any of the folders.
    #[getter]
    fn is_writing(&self) -> bool {
        self.folders.iter().any(|folder| folder.replays.is_writing())
    }

    /// The folders, the one that was opened first.
    #[getter]
    fn folders(&self) -> Vec<PathBuf> {
        self.folders.iter().map(|folder| folder.path.clone()).collect()
    }

    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        let counted: Result<u64, Failure> =
            py.detach(|| self.folders.iter().try_fold(0, |sum, folder| Ok(sum + folder.replays.count()?)));
        counted.map_err(|failure| failure.into_py(py))
    }

    /// The episodes of a query in its order. Word and sort are those of `rollhouse replay ls`.
    #[pyo3(signature = (env, outcome, min_return, sort, limit))]
    fn list(
        &self,
        py: Python<'_>,
        env: Option<String>,
        outcome: Option<&str>,
        min_return: Option<f64>,
        sort: &str,
        limit: Option<usize>,
    ) -> PyResult<Vec<EpisodeInfo>> {
        let bad = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
        let outcome = outcome.map(str::parse).transpose().map_err(|error| bad(&error))?;
        let query =
            Query { env, outcome, min_return, sort: sort.parse().map_err(|error| bad(&error))?, limit };
        py.detach(|| self.list_all(&query)).map_err(|failure| failure.into_py(py))
    }

    /// The episode of that name.
    fn find(&self, py: Python<'_>, name: &str) -> PyResult<EpisodeInfo> {
        let name =
            name.parse().map_err(|error| PyValueError::new_err(format!("episode {name:?}: {error}")))?;
        py.detach(|| self.find_in_all(name)).map_err(|failure| failure.into_py(py))
    }

    /// Lives through episodes again and compares: (how many, their steps, those that are not as recorded or
    /// could not be recomputed, damaged stretches). All episodes, every byte read, if `infos` is `None`.
    fn verify(&self, py: Python<'_>, infos: Option<Vec<Py<EpisodeInfo>>>) -> PyResult<Verified> {
        let infos = infos.as_deref();
        let verified = py.detach(|| match infos {
            None => self.verify_all(),
            Some(infos) => verify_each(infos),
        });
        verified.map_err(|failure| failure.into_py(py))
    }
}

impl Recordings {
    fn list_all(&self, query: &Query) -> Result<Vec<EpisodeInfo>, Failure> {
        let mut all = Vec::new();
        for folder in &self.folders {
            let infos = folder.replays.list(query)?;
            all.extend(infos.into_iter().map(|info| EpisodeInfo { info, folder: folder.clone() }));
        }
        all.sort_by(|a, b| query.sort.compare(&a.info, &b.info));
        all.truncate(query.limit.unwrap_or(usize::MAX));
        Ok(all)
    }

    fn find_in_all(&self, name: EpisodeName) -> Result<EpisodeInfo, Failure> {
        let mut found: Vec<EpisodeInfo> = Vec::new();
        for folder in &self.folders {
            match folder.replays.find(name) {
                Ok(info) => found.push(EpisodeInfo { info, folder: folder.clone() }),
                Err(ReadError::NoEpisode(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if found.len() > 1 {
            let runs = found.iter().map(|found| found.info.run_id().to_string()).collect();
            return Err(ReadError::Ambiguous { name, runs }.into());
        }
        found.pop().ok_or_else(|| ReadError::NoEpisode(name).into())
    }

    fn verify_all(&self) -> Result<Verified, Failure> {
        let mut tally = Verified::default();
        for folder in &self.folders {
            // Trusts no catalogue: what is damaged is to be found.
            let replays = Replays::open_scanning(Arc::new(RealDisk), &folder.path)?;
            replays.verify_all(registry(), |found| tally.take(found))?;
            let damage = replays.damage();
            tally.damage.extend(damage.map(|d| {
                let segment = folder.path.join("segments").join(format!("{:010}.seg", d.segment));
                format!("{}: bytes {} to {}: {}", segment.display(), d.from, d.to, d.cause.word())
            }));
        }
        Ok(tally)
    }
}

fn verify_each(infos: &[Py<EpisodeInfo>]) -> Result<Verified, Failure> {
    let mut tally = Verified::default();
    let mut infos: Vec<&EpisodeInfo> = infos.iter().map(Py::get).collect();
    infos.sort_by(|a, b| a.compare_places(b));
    for folder in infos.chunk_by(|a, b| Arc::ptr_eq(&a.folder, &b.folder)) {
        let Some(first) = folder.first() else { continue };
        let infos: Vec<_> = folder.iter().map(|info| info.info.clone()).collect();
        first.folder.replays.verify(&infos, registry(), |found| tally.take(found))?;
    }
    Ok(tally)
}

/// What verifying found.
#[derive(Debug, Default)]
struct Verified {
    episodes: u64,
    steps: u64,
    /// Those that differ, and those that could not be recomputed.
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

/// The folders of recordings at `path`: itself, and those directly in it that have segments.
fn open_all(
    path: &Path,
    open: impl Fn(Arc<dyn rollhouse_replay::Disk>, &Path) -> Result<Replays, ReadError>,
) -> Result<Vec<Arc<Folder>>, Failure> {
    let mut paths = vec![path.to_path_buf()];
    if let Ok(entries) = std::fs::read_dir(path) {
        let inside = entries.filter_map(|entry| Some(entry.ok()?.path()));
        paths.extend(inside.filter(|path| path.join("segments").is_dir()).take(MAX_FOLDERS));
    }
    if paths.len() > MAX_FOLDERS {
        return Err(Failure::Folders(path.to_path_buf()));
    }
    paths[1..].sort_unstable();
    let open_one = |path: PathBuf| Ok(Arc::new(Folder { replays: open(Arc::new(RealDisk), &path)?, path }));
    paths.into_iter().map(open_one).collect()
}

/// The envs that action logs are recomputed with.
pub(crate) fn registry() -> &'static Registry {
    static BUILTIN: OnceLock<Registry> = OnceLock::new();
    BUILTIN.get_or_init(Registry::builtin)
}

/// Why recordings could not be read.
#[derive(Debug)]
pub(crate) enum Failure {
    Read(ReadError),
    Recompute(RecomputeError),
    Folders(PathBuf),
    Nothing,
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<RecomputeError> for Failure {
    fn from(error: RecomputeError) -> Self {
        Self::Recompute(error)
    }
}

impl Failure {
    /// The class of `rollhouse.errors` that says it.
    const fn class(&self) -> &'static str {
        match self {
            Self::Read(ReadError::NoFolder(_)) => "RecordingsNotFoundError",
            Self::Read(ReadError::NoEpisode(_)) => "EpisodeNotFoundError",
            Self::Read(ReadError::Ambiguous { .. }) => "AmbiguousEpisodeError",
            Self::Read(ReadError::Incomplete { .. } | ReadError::Malformed { .. }) => "DamagedRecordingError",
            Self::Read(ReadError::Disk(_)) => "ReplayDiskError",
            Self::Recompute(_) => "RecomputeError",
            Self::Folders(_) | Self::Nothing => "ReplayError",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Read(error) => chain(error),
            Self::Recompute(error) => chain(error),
            Self::Folders(path) => {
                format!("{} holds more than {MAX_FOLDERS} folders of recordings", path.display())
            }
            Self::Nothing => "no episode to read".to_owned(),
        }
    }

    pub(crate) fn into_py(self, py: Python<'_>) -> PyErr {
        exception(py, self.class(), self.message())
    }
}

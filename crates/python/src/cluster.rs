//! A cluster as a Python object, behind `rollhouse.Cluster`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use rollhouse_cli::json::{NodeObject, OfferedObject, PolicyObject, PoolObject, SessionObject, StatusObject};
use rollhouse_client::{
    Address, Cluster, ConnectError, ConnectOptions, OnLoss, PoolRequest, RemoteDisk, RequestError, Transport,
    run_named, trust_of,
};
use rollhouse_core::{AutoresetMode, Determinism, OptionValue, Pace, UnknownAutoreset};
use rollhouse_replay::LabelChange;
use rollhouse_wire::{CertificateFiles, InfoSettings, Spread};
use serde::{Deserialize, Serialize};

use crate::described::info_channel;
use crate::engine::{NativeLanes, Rules};
use crate::envs::{option_value, spec_dict};
use crate::failure::{exception, look, of_connect, of_open, of_request};
use crate::fork::Home;
use crate::infos::ShowValid;
use crate::keywords::keywords;
use crate::lanes::Lanes;
use crate::noting::{Declared, step_columns};
use crate::recording::rule_of;
use crate::replay_session::NativeReplay;
use crate::replays::Recordings;

/// A connection to a cluster's coordinator, with the requests to it.
///
/// Any number of threads may use it. In a forked child every method raises.
#[pyclass(frozen, module = "rollhouse._native")]
pub(crate) struct NativeCluster {
    home: Home,
    /// The cluster; `None` after it was closed.
    cluster: Mutex<Option<Cluster>>,
}

#[pymethods]
impl NativeCluster {
    /// Connects and is admitted.
    #[new]
    #[pyo3(signature = (url, **keywords))]
    fn new(py: Python<'_>, url: &str, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let given = Connecting::of(keywords)?;
        let of = |error| of_connect(py, &error);
        let address: Address = url.parse().map_err(ConnectError::Address).map_err(of)?;
        let ca = given.ca.as_deref().map(trust_of).transpose();
        let ca = ca.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let options = ConnectOptions {
            token: given.token,
            ca,
            certificate: given.certificate.map(|(certificate, key)| CertificateFiles { certificate, key }),
            transport: given.transport.as_deref().map(transport_of).transpose()?,
            attach: given.attach,
            connect_timeout: Duration::from_secs_f64(given.timeout),
            timeout: Duration::from_secs_f64(given.timeout),
            ..ConnectOptions::default()
        };
        let connected = py.detach(|| Cluster::connect(&address, options, Some(Arc::new(look))));
        let cluster = connected.map_err(of)?;
        Ok(Self { home: Home::here(), cluster: Mutex::new(Some(cluster)) })
    }

    /// Returns an overview of the cluster, as JSON.
    fn status(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, Cluster::status, |status| as_json(&StatusObject::from(status)))
    }

    /// Returns the nodes, as JSON.
    fn nodes(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, Cluster::nodes, |list| as_json(&objects::<_, NodeObject<'_>>(&list.nodes)))
    }

    /// Returns the envs of which pools can be opened, as JSON.
    fn envs(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, Cluster::envs, |list| as_json(&objects::<_, OfferedObject<'_>>(&list.envs)))
    }

    /// Returns the open sessions, as JSON.
    fn sessions(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, Cluster::sessions, |list| as_json(&objects::<_, SessionObject<'_>>(&list.sessions)))
    }

    /// Stores a file as a version of a policy, and returns the version.
    fn put_policy(&self, py: Python<'_>, name: &str, version: Option<u64>, file: Vec<u8>) -> PyResult<u64> {
        let file = Bytes::from(file);
        Ok(self.answer(py, |cluster| cluster.put_policy(name, version, file))?.version)
    }

    /// Returns the versions of all policies, as JSON.
    fn policies(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, Cluster::policies, |list| as_json(&objects::<_, PolicyObject<'_>>(list)))
    }

    /// Returns the version and the file of a policy, of its newest version if none is named.
    fn fetch_policy<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        version: Option<u64>,
    ) -> PyResult<(u64, Bound<'py, PyBytes>)> {
        let fetched = self.answer(py, |cluster| cluster.fetch_policy(name, version))?;
        Ok((fetched.info.policy.version, PyBytes::new(py, &fetched.file)))
    }

    /// Removes a version of a policy, or all, and returns how many went.
    fn remove_policy(&self, py: Python<'_>, name: &str, version: Option<u64>) -> PyResult<u64> {
        Ok(self.answer(py, |cluster| cluster.remove_policy(name, version))?.versions)
    }

    /// Pins an episode of the store, or takes that back.
    fn pin(&self, py: Python<'_>, name: &str, pinned: bool) -> PyResult<()> {
        let recordings = self.recordings(py)?;
        let key = recordings.key(py, name)?;
        self.answer(py, move |cluster| cluster.label(&key, &LabelChange::Pin(pinned))).map(drop)
    }

    /// Returns the recordings of the cluster's store, read through the coordinator.
    fn recordings(&self, py: Python<'_>) -> PyResult<Recordings> {
        let disk = RemoteDisk::new(self.cluster(py)?);
        Recordings::on(py, Arc::new(disk), PathBuf::new())
    }

    /// Opens a recorded episode as a session. Returns it, the session's name, and the env's spec.
    fn open_replay<'py>(
        &self,
        py: Python<'py>,
        name: &str,
    ) -> PyResult<(NativeReplay, String, Bound<'py, PyDict>)> {
        NativeReplay::of(py, self.cluster(py)?, name)
    }

    /// Ends a pool and waits for so many seconds at most until the store has what it recorded. Returns its last state, as
    /// JSON.
    fn close_pool(&self, py: Python<'_>, run: &str, timeout: f64) -> PyResult<String> {
        let pool = run_named(run).ok_or_else(|| {
            PyValueError::new_err(format!(
                "run={run:?} is not the id of a run: 32 hexadecimal digits, with hyphens or without"
            ))
        })?;
        let timeout = Duration::try_from_secs_f64(timeout)
            .map_err(|error| PyValueError::new_err(format!("timeout={timeout}: {error}")))?;
        let closed = |cluster: &Cluster| cluster.close_and_store_pool(pool, timeout);
        self.ask(py, closed, |status| as_json(&PoolObject::of(pool, status)))
    }

    /// Asks for lanes by the JSON of `PoolOptions.request`; `convert` makes what converts actions, of the env's spec. Returns
    /// the pool's run, the spec, and the lanes.
    fn make<'py>(
        &self,
        py: Python<'py>,
        id: &str,
        asked: &str,
        options: &Bound<'py, PyDict>,
        convert: &Bound<'py, PyAny>,
    ) -> PyResult<Made<'py>> {
        let asked: PoolOptions =
            serde_json::from_str(asked).map_err(|error| PyTypeError::new_err(error.to_string()))?;
        let PoolOptions { copy, statistics, .. } = asked;
        let show_valid = ShowValid::of(&asked.show_valid)?;
        let raise_on_loss = asked.on_loss.as_deref().map(|on_loss| on_loss == "raise");
        let is_live = asked.pace.is_some();
        let request = asked.request(id, options_of(py, options)?)?;
        let same_step = request.settings.autoreset == AutoresetMode::SameStep;
        let cluster = self.cluster(py)?;
        let opened = py.detach(|| cluster.open_pool(request));
        let pool = opened.map_err(|error| of_open(py, &error))?;
        let spec = pool.spec().clone();
        let deterministic = spec.determinism == Determinism::Deterministic;
        let raise_on_loss = raise_on_loss.unwrap_or(!deterministic || is_live);
        let rules = Rules { same_step, copy, show_valid, raise_on_loss, statistics };
        let dict = spec_dict(py, &spec)?;
        let convert = convert.call1((&dict,))?.unbind();
        let run = pool.id().to_string();
        let lanes = Lanes::Pool(Box::new(pool));
        Ok((run, dict, NativeLanes::of(py, &spec, lanes, rules, Some(convert), None)?))
    }

    /// Closes the connections. Closing again does nothing.
    fn close(&self, py: Python<'_>) {
        let cluster = if self.home.is_here() { self.slot().take() } else { None };
        if let Some(cluster) = cluster {
            py.detach(|| cluster.close());
        }
    }
}

keywords! {
    /// How to connect.
    struct Connecting {
        token: Option<String>,
        ca: Option<String>,
        certificate: Option<(PathBuf, PathBuf)>,
        transport: Option<String>,
        attach: Option<PathBuf>,
        /// Timeout of this and of every later request, in seconds.
        timeout: f64,
    }
}

/// The pool that is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolOptions {
    lanes: u32,
    python: PythonOptions,
    autoreset: String,
    max_episode_steps: Option<u32>,
    /// Which episodes are recorded, in the words of the command line.
    record: String,
    labels: BTreeMap<String, String>,
    spread: Spread,
    transport: Option<String>,
    on_loss: Option<String>,
    /// What is noted of each step, for recordings.
    step_columns: Vec<Declared>,
    copy: bool,
    show_valid: String,
    statistics: bool,
    /// How the lanes' worlds tick, if they are live.
    pace: Option<Pace>,
}

/// What is asked of a Python env.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PythonOptions {
    /// Its arguments: a JSON object as text, empty for none.
    arguments: String,
    /// Whether it is declared deterministic.
    deterministic: Option<bool>,
    /// Infos that are recorded with each step.
    record: Vec<Declared>,
    /// Of every how many-th step a picture is recorded; 0 for none.
    frames_every: u64,
}

impl PoolOptions {
    fn request(self, id: &str, options: BTreeMap<String, OptionValue>) -> PyResult<PoolRequest> {
        let PythonOptions { arguments, deterministic, record, frames_every } = self.python;
        let record = record.into_iter().map(info_channel).collect::<PyResult<_>>()?;
        let mut request = PoolRequest::new(id, self.lanes);
        let settings = &mut request.settings;
        (settings.env_kwargs, settings.deterministic, settings.options) = (arguments, deterministic, options);
        settings.infos = InfoSettings { numbers: settings.env.source().is_learned(), record, frames_every };
        let mode = self.autoreset.parse();
        settings.autoreset =
            mode.map_err(|error: UnknownAutoreset| PyValueError::new_err(error.to_string()))?;
        settings.max_episode_steps = self.max_episode_steps;
        settings.record = rule_of(&self.record)?;
        settings.step_columns = step_columns(self.step_columns)?;
        settings.pace = self.pace;
        (request.labels, request.spread) = (self.labels, self.spread);
        request.transport = self.transport.as_deref().map(transport_of).transpose()?;
        let on_loss = |word: String| if word == "resume" { OnLoss::Resume } else { OnLoss::Report };
        request.on_loss = self.on_loss.map(on_loss);
        Ok(request)
    }
}

/// A pool for Python: its run, the env's spec, and the lanes.
type Made<'py> = (String, Bound<'py, PyDict>, NativeLanes);

fn transport_of(word: &str) -> PyResult<Transport> {
    word.parse().map_err(|error: rollhouse_client::UnknownTransport| PyValueError::new_err(error.to_string()))
}

impl NativeCluster {
    fn slot(&self) -> MutexGuard<'_, Option<Cluster>> {
        self.cluster.lock()
    }

    fn cluster(&self, py: Python<'_>) -> PyResult<Cluster> {
        if !self.home.is_here() {
            let message = "connected in another process, of which this is a forked child; connect here again";
            return Err(exception(py, "ForkedError", message.to_owned()));
        }
        let closed = || exception(py, "ClosedError", "this cluster is closed".to_owned());
        self.slot().clone().ok_or_else(closed)
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&Cluster) -> Result<T, RequestError> + Send,
        shown: impl FnOnce(&T) -> serde_json::Result<String>,
    ) -> PyResult<String> {
        shown(&self.answer(py, question)?).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn answer<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&Cluster) -> Result<T, RequestError> + Send,
    ) -> PyResult<T> {
        let cluster = self.cluster(py)?;
        py.detach(|| question(&cluster)).map_err(|error| of_request(py, &error))
    }
}

fn as_json(object: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(object)
}

/// Returns the objects that commands print of such things.
fn objects<'a, T, O: From<&'a T>>(things: &'a [T]) -> Vec<O> {
    things.iter().map(O::from).collect()
}

impl Drop for NativeCluster {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // Its thread and sockets are the parent's.
            std::mem::forget(self.slot().take());
        }
    }
}

/// Converts the options of an env without checking them: the nodes do that.
fn options_of(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<BTreeMap<String, OptionValue>> {
    let pairs = options.iter().map(|(name, value)| {
        let name: String = name.extract()?;
        Ok((name.clone(), option_value(py, &name, &value)?))
    });
    pairs.collect()
}

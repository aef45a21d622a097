//! The envs of this process for Python: the built-in ones and those of plug-ins.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use rollhouse_core::limits::LAUNCH_DEADLINE;
use rollhouse_core::{
    ColumnSpec, CompositeSpace, Determinism, Distribution, EnvSpec, LaneDeadlines, MethodSpec,
    ObservationSpace, OptionValue, Options, Plugin, Space,
};
use rollhouse_env::{EnvEntry, ImageSize, Registry};
use rollhouse_host::{Launcher, PluginHost};

use crate::dict_key::DictKey;
use crate::failure::exception;

/// Returns the envs of this process: the built-in ones and those of the plug-ins that it has loaded.
pub(crate) fn registry() -> &'static Registry {
    static KNOWN: OnceLock<Registry> = OnceLock::new();
    KNOWN.get_or_init(Registry::builtin)
}

/// Returns the env `id`.
///
/// # Errors
/// `UnknownEnvError`, which names the nearest ids.
pub(crate) fn known_env(py: Python<'_>, id: &str) -> PyResult<Arc<EnvEntry>> {
    let way = "an env of a plug-in needs rollhouse.load_plugin(path)";
    registry().get(id).map_err(|error| exception(py, "UnknownEnvError", format!("{error}; {way}")))
}

/// Loads a plug-in and returns the ids of its envs. `command` begins the command line by which worker processes of one that
/// is not trusted run the `rollhouse` command.
#[pyfunction]
pub(crate) fn load_plugin(
    py: Python<'_>,
    path: PathBuf,
    trusted: bool,
    command: Option<Vec<OsString>>,
) -> PyResult<Vec<String>> {
    // No process is started for one that is trusted.
    let command = command.unwrap_or_default().into_iter().chain(["plugin-worker".into()]);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let host = PluginHost {
        command: command.collect(),
        workers: None,
        launch_deadline: LAUNCH_DEADLINE,
        lane_deadlines: LaneDeadlines::default(),
        launcher: Launcher::new(cores.max(2)),
        census: None,
    };
    let plugin = Plugin { path, trusted };
    py.detach(|| host.register(registry(), &[plugin]))
        .map_err(|error| exception(py, "PluginError", error.to_string()))
}

/// Returns the ids of the envs that are shown to users, sorted.
#[pyfunction]
pub(crate) fn env_ids() -> Vec<String> {
    registry().shown_ids()
}

/// Returns the spec of the env `id`, as plain Python values.
#[pyfunction]
pub(crate) fn env_spec<'py>(py: Python<'py>, id: &str) -> PyResult<Bound<'py, PyDict>> {
    let entry = known_env(py, id)?;
    let dict = spec_dict(py, entry.spec())?;
    dict.set_item("renders", entry.renders())?;
    dict.set_item("render_size", entry.render_size().map(|size| (size.width(), size.height())))?;
    dict.set_item("render_fps", entry.render_fps())?;
    let constants = PyDict::new(py);
    for (name, value) in entry.constants() {
        constants.set_item(name, value)?;
    }
    dict.set_item("constants", constants)?;
    Ok(dict)
}

/// Raises `OptionsError` unless an image can have that size.
#[pyfunction]
pub(crate) fn check_render_size(py: Python<'_>, width: usize, height: usize) -> PyResult<()> {
    image_size(py, (width, height)).map(drop)
}

/// Converts the size of an image, width first.
pub(crate) fn image_size(py: Python<'_>, (width, height): (usize, usize)) -> PyResult<ImageSize> {
    ImageSize::new(width, height).map_err(|error| exception(py, "OptionsError", error.to_string()))
}

/// Converts an env's spec to plain Python values.
pub(crate) fn spec_dict<'py>(py: Python<'py>, spec: &EnvSpec) -> PyResult<Bound<'py, PyDict>> {
    let EnvSpec {
        id,
        source: _,
        summary,
        observation_space,
        action_space,
        observation_names,
        action_names,
        max_episode_steps,
        determinism,
        methods,
        options,
        info_channels,
        dynamics_hash,
    } = spec;
    let dict = PyDict::new(py);
    dict.set_item("id", id)?;
    dict.set_item("summary", summary)?;
    dict.set_item("observation_space", observation(py, observation_space)?)?;
    dict.set_item("action_space", space(py, action_space)?)?;
    dict.set_item("observation_names", observation_names)?;
    dict.set_item("action_names", action_names)?;
    dict.set_item("max_episode_steps", max_episode_steps)?;
    dict.set_item("deterministic", *determinism == Determinism::Deterministic)?;
    let schema = PyDict::new(py);
    for option in options {
        schema.set_item(&option.name, (plain(py, &option.default)?, &option.summary))?;
    }
    dict.set_item("options", schema)?;
    let listed = PyDict::new(py);
    for MethodSpec { name, summary, params, changes, max_per_second } in methods {
        let method = PyDict::new(py);
        method.set_item("summary", summary)?;
        method.set_item("params", Some(params).filter(|schema| !schema.is_empty()))?;
        method.set_item("changes", changes)?;
        method.set_item("max_per_second", max_per_second.map(NonZeroU32::get))?;
        listed.set_item(name, method)?;
    }
    dict.set_item("methods", listed)?;
    let channels = PyList::empty(py);
    for ColumnSpec { path, dtype, shape, .. } in info_channels {
        channels.append((path, dtype.name(), shape.clone()))?;
    }
    dict.set_item("info_channels", channels)?;
    dict.set_item("dynamics_hash", dynamics_hash)?;
    Ok(dict)
}

/// Converts a space to `{"kind": "dict", "spaces": [(key, space), ...]}`, `{"kind": "tuple", "spaces": [space, ...]}`,
/// `{"kind": "text", "min_length", "max_length", "characters"}`, `{"kind": "sequence", "item": space, "maximum", "stack"}`,
/// or a plain one.
pub(crate) fn observation<'py>(py: Python<'py>, space: &ObservationSpace) -> PyResult<Bound<'py, PyDict>> {
    match space {
        ObservationSpace::Plain(plain) => self::space(py, plain),
        ObservationSpace::Composite(parts) => composite(py, parts),
    }
}

/// Converts a space of several columns, as [`observation`] does.
fn composite<'py>(py: Python<'py>, space: &CompositeSpace) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    match space {
        CompositeSpace::Dict { spaces } => {
            let part = |(name, space): &(String, _)| {
                Ok((DictKey::of_name(name).to_python(py)?, observation(py, space)?))
            };
            let parts = spaces.iter().map(part);
            dict.set_item("kind", "dict")?;
            dict.set_item("spaces", parts.collect::<PyResult<Vec<_>>>()?)?;
        }
        CompositeSpace::Tuple { spaces } => {
            let parts = spaces.iter().map(|space| observation(py, space));
            dict.set_item("kind", "tuple")?;
            dict.set_item("spaces", parts.collect::<PyResult<Vec<_>>>()?)?;
        }
        CompositeSpace::Text(text) => {
            dict.set_item("kind", "text")?;
            dict.set_item("min_length", text.min_length())?;
            dict.set_item("max_length", text.max_length())?;
            dict.set_item("characters", text.characters())?;
        }
        CompositeSpace::Sequence(sequence) => {
            dict.set_item("kind", "sequence")?;
            dict.set_item("item", self::space(py, sequence.item())?)?;
            dict.set_item("maximum", sequence.maximum())?;
            dict.set_item("stack", sequence.stack())?;
        }
    }
    Ok(dict)
}

/// Converts a space to `{"kind": "box", "low", "high", "shape", "dtype"}`, of kind `multi_discrete` or `multi_binary` too,
/// or `{"kind": "discrete", "n", "start"}`. A box that carries an action of several columns has their space as `parts`; one
/// whose elements have a type of their own, which `dtype` carries, or a discrete one, has its name as `own`.
pub(crate) fn space<'py>(py: Python<'py>, space: &Space) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    match space {
        Space::Box(space) => {
            dict.set_item("kind", space.kind())?;
            dict.set_item("low", space.low.iter().collect::<Vec<_>>())?;
            dict.set_item("high", space.high.iter().collect::<Vec<_>>())?;
            dict.set_item("shape", &space.shape)?;
            dict.set_item("dtype", space.dtype.name())?;
            if let Some(parts) = &space.parts {
                dict.set_item("parts", composite(py, parts)?)?;
            }
        }
        Space::Discrete(space) => {
            dict.set_item("kind", "discrete")?;
            dict.set_item("n", space.n)?;
            dict.set_item("start", space.start)?;
        }
    }
    if let Some(own) = space.own() {
        dict.set_item("own", own.name())?;
    }
    Ok(dict)
}

/// Converts an option's value for Python: bool, int, float, str, list of floats, or a distribution as it was given.
pub(crate) fn plain<'py>(py: Python<'py>, value: &OptionValue) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        OptionValue::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        OptionValue::Int(value) => value.into_pyobject(py)?.into_any(),
        OptionValue::Float(value) => value.into_pyobject(py)?.into_any(),
        OptionValue::Text(value) => value.into_pyobject(py)?.into_any(),
        OptionValue::List(values) => values.into_pyobject(py)?.into_any(),
        OptionValue::Drawn(distribution) => {
            let (name, values) = match distribution {
                Distribution::Uniform(ends) => ("uniform", ends.into_pyobject(py)?.into_any()),
                Distribution::Integers(ends) => ("integers", ends.into_pyobject(py)?.into_any()),
                Distribution::Choice(choices) => {
                    let choices = choices.iter().map(|choice| plain(py, choice));
                    ("choice", choices.collect::<PyResult<Vec<_>>>()?.into_pyobject(py)?)
                }
            };
            let dict = PyDict::new(py);
            dict.set_item(name, values)?;
            dict.into_any()
        }
    })
}

/// Converts options from Python, checked against the env's schema.
pub(crate) fn checked_options(
    py: Python<'_>,
    spec: &EnvSpec,
    lanes: &[Py<PyDict>],
) -> PyResult<Vec<Options>> {
    lanes
        .iter()
        .map(|given| {
            let given = given
                .bind(py)
                .iter()
                .map(|(name, value)| {
                    let name: String = name.extract()?;
                    Ok((option_value(py, &name, &value)?, name))
                })
                .map(|pair: PyResult<_>| pair.map(|(value, name)| (name, value)))
                .collect::<PyResult<Vec<_>>>()?;
            Options::check(&spec.options, &given)
                .map_err(|error| exception(py, "OptionsError", format!("env {}: {error}", spec.id)))
        })
        .collect()
}

/// Converts an option's value from Python: a bool, an int, a float, a str, a sequence of floats, or a dict that names a
/// distribution.
pub(crate) fn option_value(py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
    let refused = |what: String| exception(py, "OptionsError", format!("option `{name}`: {what}"));
    if let Ok(dict) = value.cast::<PyDict>() {
        return distribution(py, name, dict).map(OptionValue::Drawn);
    }
    if let Ok(value) = value.extract::<bool>() {
        Ok(OptionValue::Bool(value))
    } else if let Ok(value) = value.extract::<i64>() {
        Ok(OptionValue::Int(value))
    } else if let Ok(value) = value.extract::<f64>() {
        Ok(OptionValue::Float(value))
    } else if let Ok(text) = value.cast::<PyString>() {
        Ok(OptionValue::Text(
            text.to_str().map_err(|_| refused("the text is no Unicode".to_owned()))?.to_owned(),
        ))
    } else if let Ok(values) = value.extract::<Vec<f64>>() {
        Ok(OptionValue::List(values))
    } else {
        let given = value.repr().map_or_else(|_| "?".to_owned(), |repr| repr.to_string());
        let message = format!(
            "option `{name}` is {given}, must be a bool, an integer, a float, a text, a list of floats or a distribution"
        );
        Err(exception(py, "OptionsError", message))
    }
}

/// Converts a distribution: a dict of one name.
fn distribution(py: Python<'_>, name: &str, dict: &Bound<'_, PyDict>) -> PyResult<Distribution> {
    let refused = || {
        let given = dict.repr().map_or_else(|_| "?".to_owned(), |repr| repr.to_string());
        let message = format!(
            "option `{name}` is {given}, a distribution is {{\"uniform\": [low, high]}}, {{\"integers\": [low, high]}} \
             or {{\"choice\": [value, ...]}}"
        );
        exception(py, "OptionsError", message)
    };
    let mut items = dict.iter();
    let (Some((kind, values)), None) = (items.next(), items.next()) else { return Err(refused()) };
    match kind.extract::<String>().ok().as_deref() {
        Some("uniform") => values.extract().map(Distribution::Uniform).map_err(|_| refused()),
        Some("integers") => values.extract().map(Distribution::Integers).map_err(|_| refused()),
        Some("choice") => {
            let choices: Vec<Bound<'_, PyAny>> = values.extract().map_err(|_| refused())?;
            let choices = choices.iter().map(|choice| option_value(py, name, choice));
            choices.collect::<PyResult<_>>().map(Distribution::Choice)
        }
        _ => Err(refused()),
    }
}

//! The commands of Python to lanes between two steps.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rollhouse_core::OptionValue;
use rollhouse_engine::{
    AttributeValue, CallLane, CallParams, CommandError, CommandLanes, GetAttributes, GetParams, LaneOptions,
    LaneRange, Method, Nothing, SchemaAnswer, SetAttributes, SetParams, Statistics, StatisticsAnswer,
};

use rollhouse_client::MethodError;
use rollhouse_env::{Image, ImageSize};

use crate::envs::{option_value, plain};
use crate::lanes::Lanes;

impl Lanes {
    pub(crate) fn get_attr(&mut self, name: &str) -> Result<Vec<AttributeValue>, MethodError> {
        match self {
            Self::Engine(engine, _) => {
                let params = GetParams { name: name.to_owned(), lanes: all_of(engine.lanes()) };
                Ok(GetAttributes::run(&mut CommandLanes::of(engine), params)?.values)
            }
            Self::Pool(pool) => pool.get_attr(name),
        }
    }

    pub(crate) fn set_attr(&mut self, name: &str, values: Vec<AttributeValue>) -> Result<(), MethodError> {
        match self {
            Self::Engine(engine, _) => {
                let params = SetParams { name: name.to_owned(), lanes: all_of(engine.lanes()), values };
                SetAttributes::run(&mut CommandLanes::of(engine), params)?;
                Ok(())
            }
            Self::Pool(pool) => pool.set_attr(name, &values),
        }
    }

    /// Calls a method of the env on a lane.
    pub(crate) fn call(&mut self, lane: usize, method: &str, payload: &str) -> Result<String, MethodError> {
        match self {
            Self::Engine(engine, _) => {
                let params =
                    CallParams { lane: lane as u32, method: method.to_owned(), payload: payload.to_owned() };
                Ok(CallLane::run(&mut CommandLanes::of(engine), params)?.answer)
            }
            Self::Pool(pool) => pool.call_method(lane, method, payload),
        }
    }

    /// Says which version of the policy chooses the actions from now on.
    pub(crate) fn set_policy_version(&mut self, version: u64) -> Result<(), MethodError> {
        match self {
            Self::Engine(engine, _) => {
                engine.set_policy_version(version);
                Ok(())
            }
            Self::Pool(pool) => pool.set_policy_version(version),
        }
    }

    /// Returns an image of every lane, of that size or of the env's own.
    pub(crate) fn render(&mut self, size: Option<ImageSize>) -> Result<Vec<Image>, MethodError> {
        match self {
            Self::Engine(engine, _) => {
                let lanes = 0..engine.lanes();
                let draw = |lane| engine.render(lane, size).map_err(CommandError::Step);
                Ok(lanes.map(draw).collect::<Result<_, _>>()?)
            }
            Self::Pool(pool) => {
                let size = size.map(|size| (size.width() as u32, size.height() as u32));
                pool.render(0..pool.lanes(), size)
            }
        }
    }

    /// Returns one set of statistics per session; the engine of this process counts as one.
    pub(crate) fn statistics(&mut self) -> Result<Vec<StatisticsAnswer>, MethodError> {
        match self {
            Self::Engine(engine, _) => Ok(vec![Statistics::run(&mut CommandLanes::of(engine), Nothing {})?]),
            Self::Pool(pool) => pool.statistics(),
        }
    }

    pub(crate) fn schema(&mut self) -> Result<SchemaAnswer, MethodError> {
        match self {
            Self::Engine(engine, _) => {
                Ok(rollhouse_engine::Schema::run(&mut CommandLanes::of(engine), Nothing {})?)
            }
            Self::Pool(pool) => pool.schema(),
        }
    }
}

fn all_of(lanes: usize) -> LaneRange {
    // Lanes are at most 65,536.
    LaneRange { first: 0, count: lanes as u32 }
}

/// Converts an attribute's values for Python: bool, int, float, or a float64 array.
pub(crate) fn attribute_list<'py>(
    py: Python<'py>,
    values: Vec<AttributeValue>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for value in values {
        match value {
            AttributeValue::Scalar(value) => list.append(plain(py, &value)?)?,
            AttributeValue::Vector(values) => list.append(PyArray1::from_vec(py, values))?,
        }
    }
    Ok(list)
}

/// Converts an attribute's value from Python: a bool, an int, a float or a sequence of floats.
pub(crate) fn attribute_value(
    py: Python<'_>,
    name: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<AttributeValue> {
    match value.extract::<Vec<f64>>() {
        Ok(values) => Ok(AttributeValue::Vector(values)),
        Err(_) => Ok(AttributeValue::Scalar(option_value(py, name, value)?)),
    }
}

/// Converts the options of a reset: by name a list of one value, or one per lane.
pub(crate) fn lane_options(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<LaneOptions> {
    let read = |(name, values): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let values: Vec<Bound<'_, PyAny>> = values.extract()?;
        let values = values.iter().map(|value| option_value(py, &name, value));
        Ok((name.clone(), values.collect::<PyResult<Vec<OptionValue>>>()?))
    };
    options.iter().map(read).collect()
}

/// Converts an image to a uint8 array `[height, width, 3]`.
pub(crate) fn image<'py>(py: Python<'py>, image: Image) -> PyResult<Bound<'py, PyAny>> {
    let shape = [image.height(), image.width(), 3];
    let array = PyArray1::from_vec(py, image.into_pixels()).reshape(shape);
    array.map(Bound::into_any).map_err(|error| PyValueError::new_err(error.to_string()))
}

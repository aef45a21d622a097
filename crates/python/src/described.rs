//! Spaces of columns as Python describes them.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use rollhouse_core::limits::MAX_SPACE_DEPTH;
use rollhouse_core::{
    Bounds, BoxSpace, ColumnSpec, CompositeSpace, DType, DiscreteSpace, ObservationSpace, OwnDType, Role,
    Space,
};

/// A space of one column of "box" or "choices", whose elements are choices among whole numbers: (kind, dtype, shape, low, high,
/// own), with all bounds, or one that is that of all; `own` is the elements' own dtype, if the column has a wider one.
type PlainSpace = (String, String, Vec<usize>, Vec<f64>, Vec<f64>, Option<String>);

/// Reads a plain space, ("discrete", start, n, own), or ("dict", [(name, space), ...]) or ("tuple", [space, ...]), at most `depth` levels down.
pub(crate) fn observation_space(given: &Bound<'_, PyAny>, depth: usize) -> PyResult<ObservationSpace> {
    if depth > MAX_SPACE_DEPTH {
        let message = format!("observation spaces nested more than {MAX_SPACE_DEPTH} deep are not hosted");
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
        "discrete" => {
            let (_, start, n, own): (String, i64, u64, Option<String>) = given.extract()?;
            with_own(Space::Discrete(DiscreteSpace { n, start, own: None }), own)?.into()
        }
        _ => space(given.extract()?)?.into(),
    })
}

/// Reads the space of an action: a plain one, or one of several columns, which a box carries.
pub(crate) fn action_space(given: &Bound<'_, PyAny>) -> PyResult<Space> {
    match observation_space(given, 1)? {
        ObservationSpace::Plain(space) => Ok(space),
        ObservationSpace::Composite(parts) => {
            let carrier = BoxSpace::of_parts(parts);
            carrier.map(Space::Box).map_err(|error| PyValueError::new_err(error.to_string()))
        }
    }
}

/// Reads an info channel: its name, dtype and shape.
pub(crate) fn info_channel((path, dtype, shape): (String, String, Vec<usize>)) -> PyResult<ColumnSpec> {
    Ok(ColumnSpec { path, dtype: dtype_of(&dtype)?, shape, names: Vec::new(), role: Role::Info })
}

fn dtype_of(name: &str) -> PyResult<DType> {
    let known = [DType::Bool, DType::U8, DType::I32, DType::I64, DType::F32, DType::F64];
    let none = || {
        let known = known.map(DType::name).join(", ");
        PyTypeError::new_err(format!("there are no columns of dtype {name}; there are those of {known}"))
    };
    known.into_iter().find(|known| known.name() == name).ok_or_else(none)
}

/// Reads a plain space.
fn space((kind, dtype, shape, low, high, own): PlainSpace) -> PyResult<Space> {
    let dtype = dtype_of(&dtype)?;
    let elements = shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent));
    let elements = elements.ok_or_else(|| PyValueError::new_err(format!("a shape of {shape:?}")))?;
    let bounds = |given: Vec<f64>| match given[..] {
        [bound] => Bounds::all(bound, elements),
        _ => given.into(),
    };
    let (low, high, choices) = (bounds(low), bounds(high), kind == "choices");
    with_own(Space::Box(BoxSpace { low, high, shape, dtype, choices, parts: None, own: None }), own)
}

/// Returns the space of elements that have that type of their own.
fn with_own(space: Space, own: Option<String>) -> PyResult<Space> {
    let Some(own) = own else { return Ok(space) };
    let space = OwnDType::of_name(&own).and_then(|own| space.with_own(own));
    space.map_err(|error| PyValueError::new_err(error.to_string()))
}

//! Keyword arguments of the native methods that have many: a struct of them, in place of as many parameters.

use std::collections::BTreeMap;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Declares a struct of keyword arguments, each of which has to be given by the field's name.
macro_rules! keywords {
    ($(#[$of_struct:meta])* $vis:vis struct $name:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$of_struct])*
        $vis struct $name {
            $($(#[$of_field])* $field: $type,)*
        }

        impl $name {
            $vis fn of(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
                let given = crate::keywords::Keywords::of(given, &[$(stringify!($field)),*])?;
                Ok(Self { $($field: given.value(stringify!($field))?,)* })
            }
        }
    };
}

pub(crate) use keywords;

/// The keyword arguments of a call.
pub(crate) struct Keywords<'py>(BTreeMap<String, Bound<'py, PyAny>>);

impl<'py> Keywords<'py> {
    /// Takes what was given. Raises a `TypeError` for any name that is not one of `names`, and for any of them that is missing.
    pub(crate) fn of(given: Option<&Bound<'py, PyDict>>, names: &[&str]) -> PyResult<Self> {
        let given = given.into_iter().flatten().map(|(name, value)| Ok((name.extract()?, value)));
        let given: BTreeMap<String, _> = given.collect::<PyResult<_>>()?;
        if let Some(name) = given.keys().find(|name| !names.contains(&name.as_str())) {
            return Err(PyTypeError::new_err(format!("got an unexpected keyword argument '{name}'")));
        }
        if let Some(name) = names.iter().find(|name| !given.contains_key(**name)) {
            return Err(PyTypeError::new_err(format!("missing required keyword argument '{name}'")));
        }
        Ok(Self(given))
    }

    /// Returns the argument of that name, which is one of those that were asked for. Raises a `TypeError` that names it.
    pub(crate) fn value<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<T> {
        let value = &self.0[name];
        let py = value.py();
        value.extract::<T>().map_err(|error| {
            let error: PyErr = error.into();
            if !error.is_instance_of::<PyTypeError>(py) {
                return error;
            }
            PyTypeError::new_err(format!("argument '{name}': {}", error.value(py)))
        })
    }
}

//! Keyword arguments of the native methods that have many: a struct of them, in place of as many parameters.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Declares a struct of keyword arguments, each of which has to be given by the field's name.
macro_rules! keywords {
    ($(#[$of_struct:meta])* struct $name:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$of_struct])*
        struct $name {
            $($(#[$of_field])* $field: $type,)*
        }

        impl $name {
            fn of(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
                let given = crate::keywords::Keywords::of(given, &[$(stringify!($field)),*])?;
                Ok(Self { $($field: given.take(stringify!($field))?,)* })
            }
        }
    };
}

pub(crate) use keywords;

/// The keyword arguments of a call, all of which have known names.
pub(crate) struct Keywords<'a, 'py>(Option<&'a Bound<'py, PyDict>>);

impl<'a, 'py> Keywords<'a, 'py> {
    /// Takes what was given, and raises a `TypeError` for any name that is not one of `names`.
    pub(crate) fn of(given: Option<&'a Bound<'py, PyDict>>, names: &[&str]) -> PyResult<Self> {
        for (name, _) in given.into_iter().flatten() {
            let name: String = name.extract()?;
            if !names.contains(&&*name) {
                return Err(PyTypeError::new_err(format!("got an unexpected keyword argument '{name}'")));
            }
        }
        Ok(Self(given))
    }

    /// Returns the argument of that name, or raises a `TypeError` that names it.
    pub(crate) fn take<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<T> {
        let given = self.0.map(|given| given.get_item(name)).transpose()?.flatten();
        let missing = || PyTypeError::new_err(format!("missing required keyword argument '{name}'"));
        let value = given.ok_or_else(missing)?;
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

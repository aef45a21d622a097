//! The keys of Gymnasium's Dict spaces, which columns have as names: `rollhouse/dict_keys.py` writes these.

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyString};

/// A key of a Dict.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DictKey {
    Text(String),
    Whole(i64),
    /// A whole number beyond `i64`, in digits.
    Large(String),
    Real(f64),
}

impl DictKey {
    /// Reads the name of a part: a number stands in brackets, and so does a text that stands in brackets itself.
    pub(crate) fn of_name(name: &str) -> Self {
        let text = || Self::Text(name.to_owned());
        let Some(inner) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) else {
            return text();
        };
        let digits = inner.strip_prefix('-').unwrap_or(inner);
        if inner.starts_with('[') && inner.ends_with(']') {
            Self::Text(inner.to_owned())
        } else if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            inner.parse().map_or_else(|_| Self::Large(inner.to_owned()), Self::Whole)
        } else if digits.starts_with(|first: char| first.is_ascii_digit()) {
            inner.parse().map_or_else(|_| text(), Self::Real)
        } else {
            text()
        }
    }

    pub(crate) fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Text(text) => Ok(PyString::new(py, text).into_any()),
            Self::Whole(number) => Ok(number.into_pyobject(py)?.into_any()),
            Self::Large(digits) => py.get_type::<PyInt>().call1((digits,)),
            Self::Real(number) => Ok(PyFloat::new(py, *number).into_any()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_that_look_like_them_are_told_apart() {
        let text = |text: &str| DictKey::Text(text.to_owned());
        for (name, key) in [
            ("a", text("a")),
            ("1", text("1")),
            ("[1]", DictKey::Whole(1)),
            ("[-7]", DictKey::Whole(-7)),
            ("[[1]]", text("[1]")),
            ("[[]]", text("[]")),
            ("[0.5]", DictKey::Real(0.5)),
            ("[-1e+16]", DictKey::Real(-1e16)),
            ("[9223372036854775808]", DictKey::Large("9223372036854775808".to_owned())),
            ("[a]", text("[a]")),
            ("[1 2]", text("[1 2]")),
            ("[]", text("[]")),
            ("[", text("[")),
            ("", text("")),
        ] {
            assert_eq!(DictKey::of_name(name), key, "{name}");
        }
    }
}

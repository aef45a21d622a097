//! Names of the elements of columns, for forms in which each element has a place of its own.

use std::collections::BTreeSet;

#[cfg(any(feature = "mcap", feature = "parquet"))]
use rollhouse_core::ColumnSpec;

use crate::error::ExportError;

/// Number of elements of a row up to which each has a place of its own.
#[cfg(any(feature = "mcap", feature = "parquet"))]
pub(crate) const MAX_NAMED_ELEMENTS: usize = 64;

/// Returns the names of a column's elements below `root`: `root/PATH/NAME`, without empty parts. An element without a
/// name of its own, or whose name is not unique, is called by its index. A scalar has one name, without NAME.
#[cfg(any(feature = "mcap", feature = "parquet"))]
pub(crate) fn element_names(root: &str, column: &ColumnSpec) -> Vec<String> {
    let base = column_name(root, column);
    let elements = column.elements();
    if column.shape.is_empty() {
        return vec![base];
    }
    let different: BTreeSet<_> = column.names.iter().collect();
    let named = column.names.len() == elements && different.len() == elements;
    let name = |at: usize| if named { column.names[at].clone() } else { at.to_string() };
    (0..elements).map(|at| if base.is_empty() { name(at) } else { format!("{base}/{}", name(at)) }).collect()
}

/// Returns the name of a whole column: `root/PATH`, without empty parts.
#[cfg(any(feature = "mcap", feature = "parquet"))]
pub(crate) fn column_name(root: &str, column: &ColumnSpec) -> String {
    match (root, &*column.path) {
        (root, "") => root.to_owned(),
        ("", path) => path.to_owned(),
        (root, path) => format!("{root}/{path}"),
    }
}

/// Checks that names are different. They are joined of others, so that different columns may come to have one name; forms of
/// exports have no word for such columns, and readers would find one of them.
///
/// # Errors
/// [`ExportError::SameName`] otherwise.
pub(crate) fn check_different(names: impl IntoIterator<Item = impl Into<String>>) -> Result<(), ExportError> {
    let mut known = BTreeSet::new();
    for name in names {
        let name = name.into();
        if known.contains(&name) {
            return Err(ExportError::SameName(name));
        }
        known.insert(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rollhouse_core::{DType, Role};

    use super::*;

    #[test]
    fn elements_are_called_by_path_and_name_and_by_place_where_names_do_not_tell_them_apart() {
        let column = |path: &str, shape: &[usize], names: &[&str]| ColumnSpec {
            path: path.into(),
            dtype: DType::F32,
            shape: shape.to_vec(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
            role: Role::Obs,
        };
        assert_eq!(element_names("obs", &column("", &[2], &["x", "v"])), ["obs/x", "obs/v"]);
        assert_eq!(element_names("obs", &column("arm", &[2], &["x", "x"])), ["obs/arm/0", "obs/arm/1"]);
        assert_eq!(element_names("", &column("", &[2], &[])), ["0", "1"]);
        assert_eq!(element_names("action", &column("", &[], &[])), ["action"]);
    }
}

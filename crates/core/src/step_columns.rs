//! The columns in which those who choose actions note something of each step.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::{MAX_STEP_COLUMN_BYTES, MAX_STEP_COLUMN_NAME_BYTES, MAX_STEP_COLUMNS};
use crate::{ColumnData, ColumnSpec, DType, EnvSpec, Role, bounded_list};

/// Columns of a run in which whoever chooses the actions notes something of each step: a log-probability, a value,
/// anything of its own. They are recorded beside the actions and do not change what a lane does.
///
/// Names differ, rows together have at most [`MAX_STEP_COLUMN_BYTES`], and there are at most [`MAX_STEP_COLUMNS`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepColumns(Vec<ColumnSpec>);

/// Declaration of one step column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepColumn {
    /// Name of the column: a letter, then letters, digits and `_`.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extent of each axis of one row; empty for a scalar.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::space_reader::shape")]
    pub shape: Vec<usize>,
}

impl StepColumns {
    /// Takes declared columns.
    ///
    /// # Errors
    /// If there are too many, their rows are too long, or a name is used twice or is none.
    pub fn new(columns: Vec<StepColumn>) -> Result<Self, StepColumnsError> {
        if columns.len() > MAX_STEP_COLUMNS {
            return Err(StepColumnsError::TooMany { given: columns.len() });
        }
        let mut bytes = 0usize;
        for (index, StepColumn { name, dtype, shape }) in columns.iter().enumerate() {
            if !is_name(name) {
                return Err(StepColumnsError::Name { name: name.chars().take(MAX_ECHOED_CHARS).collect() });
            }
            if columns[..index].iter().any(|other| other.name == *name) {
                return Err(StepColumnsError::Twice { name: name.clone() });
            }
            let row = shape.iter().try_fold(dtype.size(), |bytes, &extent| bytes.checked_mul(extent));
            match row {
                Some(0) => return Err(StepColumnsError::Empty { name: name.clone() }),
                row => bytes = bytes.saturating_add(row.unwrap_or(usize::MAX)),
            }
        }
        if bytes > MAX_STEP_COLUMN_BYTES {
            return Err(StepColumnsError::RowTooLong { bytes });
        }
        let spec = |StepColumn { name, dtype, shape }| ColumnSpec {
            path: name,
            dtype,
            shape,
            names: Vec::new(),
            role: Role::Info,
        };
        Ok(Self(columns.into_iter().map(spec).collect()))
    }

    /// Returns the columns with those that an env notes by itself. A column that both declare alike is one.
    ///
    /// # Errors
    /// As [`StepColumns::new`].
    pub fn and_of(&self, env: &EnvSpec) -> Result<Self, StepColumnsError> {
        let own = env.info_channels.iter().filter(|channel| channel.role == Role::StepColumn);
        let own = own.map(|channel| ColumnSpec { role: Role::Info, ..channel.clone() });
        let own = own.filter(|column| !self.0.contains(column));
        let declared = self.0.iter().cloned().chain(own).map(|column| StepColumn {
            name: column.path,
            dtype: column.dtype,
            shape: column.shape,
        });
        Self::new(declared.collect())
    }

    /// Returns the columns with those that live lanes note by themselves, last: how many milliseconds the world stood still before
    /// the step, and why ([`Marks`](crate::Marks)).
    ///
    /// # Errors
    /// As [`StepColumns::new`].
    pub fn and_of_pace(&self) -> Result<Self, StepColumnsError> {
        let declared = self.0.iter().cloned().map(|column| StepColumn {
            name: column.path,
            dtype: column.dtype,
            shape: column.shape,
        });
        let ours = [(STOOD_MS, DType::I64), (CONTROLS, DType::U8)];
        let ours = ours.map(|(name, dtype)| StepColumn { name: name.to_owned(), dtype, shape: Vec::new() });
        Self::new(declared.chain(ours).collect())
    }

    /// Returns whether none is declared.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the columns as those of a batch, in the order in which they were declared. The path is the name.
    pub fn specs(&self) -> &[ColumnSpec] {
        &self.0
    }

    /// Returns bytes of one lane's row over all columns.
    pub fn row_bytes(&self) -> usize {
        self.0.iter().map(ColumnSpec::row_bytes).sum()
    }

    /// Returns the place of the column of that name.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|column| column.path == name)
    }

    /// Returns `lanes` rows of each column of which nobody has noted anything: NaN in columns of floats, else 0.
    pub fn unknown(&self, lanes: usize) -> Vec<ColumnData> {
        let unknown = |column: &ColumnSpec| {
            let elements = lanes * column.elements();
            match column.dtype {
                DType::F32 => ColumnData::F32(vec![f32::NAN; elements]),
                DType::F64 => ColumnData::F64(vec![f64::NAN; elements]),
                dtype => ColumnData::zeros(dtype, elements),
            }
        };
        self.0.iter().map(unknown).collect()
    }
}

impl Serialize for StepColumns {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(|ColumnSpec { path, dtype, shape, .. }| StepColumn {
            name: path.clone(),
            dtype: *dtype,
            shape: shape.clone(),
        }))
    }
}

impl<'de> Deserialize<'de> for StepColumns {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(bounded_list::<_, MAX_STEP_COLUMNS, _>(from)?).map_err(D::Error::custom)
    }
}

/// Returns whether it can be a column's name: files and programs of many kinds have to take it as it is.
fn is_name(name: &str) -> bool {
    name.len() <= MAX_STEP_COLUMN_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Maximum number of characters of a bad name that an error repeats.
const MAX_ECHOED_CHARS: usize = 128;

/// Reason for which columns cannot be declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepColumnsError {
    /// There are more than [`MAX_STEP_COLUMNS`].
    TooMany {
        /// Number of columns that were declared.
        given: usize,
    },
    /// The rows of all together have more than [`MAX_STEP_COLUMN_BYTES`].
    RowTooLong {
        /// Bytes of one lane's row.
        bytes: usize,
    },
    /// It is no name of a column.
    Name {
        /// Name that was given, or its beginning.
        name: String,
    },
    /// Two columns have one name.
    Twice {
        /// Name of both.
        name: String,
    },
    /// A row of the column has no element.
    Empty {
        /// Name of the column.
        name: String,
    },
}

impl fmt::Display for StepColumnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { given } => {
                write!(f, "{given} step columns declared; a run has at most {MAX_STEP_COLUMNS}")
            }
            Self::RowTooLong { bytes } => write!(
                f,
                "a row of the step columns has {bytes} bytes; it may have at most {MAX_STEP_COLUMN_BYTES}"
            ),
            Self::Name { name } => write!(
                f,
                "step column {name:?}: a name is a letter and at most {} letters, digits and '_'",
                MAX_STEP_COLUMN_NAME_BYTES - 1
            ),
            Self::Twice { name } => write!(f, "step column {name:?} is declared twice"),
            Self::Empty { name } => write!(f, "a row of step column {name:?} has no element"),
        }
    }
}

impl std::error::Error for StepColumnsError {}

/// Name of the step column with the milliseconds for which a live lane's world stood still before a step.
pub const STOOD_MS: &str = "stood_ms";

/// Name of the step column with what happened to a live lane's clock before a step.
pub const CONTROLS: &str = "controls";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msgpack;

    fn column(name: &str, dtype: DType, shape: &[usize]) -> StepColumn {
        StepColumn { name: name.to_owned(), dtype, shape: shape.to_vec() }
    }

    #[test]
    fn columns_are_refused_by_number_name_and_bytes() {
        let many = (0..17).map(|index| column(&format!("c{index}"), DType::U8, &[])).collect();
        assert_eq!(StepColumns::new(many), Err(StepColumnsError::TooMany { given: 17 }));
        for name in ["", "1st", "a/b", "a b", "_a", "\u{e9}", &"a".repeat(65)] {
            let refused = StepColumns::new(vec![column(name, DType::F32, &[])]);
            assert!(matches!(refused, Err(StepColumnsError::Name { .. })), "{name}: {refused:?}");
        }
        let twice = vec![column("a", DType::F32, &[]), column("a", DType::F64, &[])];
        assert_eq!(StepColumns::new(twice), Err(StepColumnsError::Twice { name: "a".to_owned() }));
        let empty = vec![column("a", DType::F32, &[3, 0])];
        assert_eq!(StepColumns::new(empty), Err(StepColumnsError::Empty { name: "a".to_owned() }));
        let most = vec![column("a", DType::F32, &[16_000]), column("b", DType::U8, &[1536])];
        assert_eq!(StepColumns::new(most.clone()).map(|columns| columns.row_bytes()), Ok(65_536));
        let longer = [most, vec![column("c", DType::Bool, &[])]].concat();
        assert_eq!(StepColumns::new(longer), Err(StepColumnsError::RowTooLong { bytes: 65_537 }));
        let endless = vec![column("a", DType::F64, &[usize::MAX, 2])];
        assert_eq!(StepColumns::new(endless), Err(StepColumnsError::RowTooLong { bytes: usize::MAX }));
    }

    #[test]
    fn what_is_written_is_read_and_checked_again() {
        let columns = StepColumns::new(vec![
            column("log_prob", DType::F32, &[]),
            column("logits", DType::F64, &[2, 3]),
            column("explored", DType::Bool, &[]),
        ])
        .expect("they are well");
        let bytes = rmp_serde::to_vec_named(&columns).expect("they are written");
        assert_eq!(msgpack::decode::<StepColumns>(&bytes, 1000).expect("they are read"), columns);
        assert_eq!((columns.place("logits"), columns.place("value")), (Some(1), None));
        let twice = rmp_serde::to_vec_named(&[column("a", DType::U8, &[]), column("a", DType::U8, &[])]);
        assert!(msgpack::decode::<StepColumns>(&twice.expect("it is written"), 1000).is_err());
    }
}

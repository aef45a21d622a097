//! Columns: the typed regions a batch consists of.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bounded_list;
use crate::limits::MAX_ELEMENT_NAMES;

/// Element type of a column. All are little-endian in files and frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned byte.
    U8,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 => 1,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// NumPy's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "uint8",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a column is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Part of the observation.
    Obs,
    /// The action.
    Action,
    /// The reward.
    Reward,
    /// The terminated flag.
    Terminated,
    /// The truncated flag.
    Truncated,
    /// Marks a row that began an episode instead of stepping.
    Reset,
    /// The last observation of an episode that ended in this row (SAME_STEP only).
    FinalObs,
    /// A per-step info channel.
    Info,
}

/// One column: N rows of `shape` elements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnSpec {
    /// Where it stands in its space: empty for a plain Box or Discrete, else keys joined by `/`.
    pub path: String,
    /// Element type.
    pub dtype: DType,
    /// Extent of each axis of one row; empty for a scalar.
    #[serde(deserialize_with = "crate::space_reader::shape")]
    pub shape: Vec<usize>,
    /// A name per element in row-major order, or empty.
    #[serde(deserialize_with = "bounded_list::<_, MAX_ELEMENT_NAMES, _>")]
    pub names: Vec<String>,
    /// What it is for.
    pub role: Role,
}

impl ColumnSpec {
    /// Elements of one row.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }

    /// What to call element `index` of a row in messages: its name, else `path[index]`.
    pub fn element_name(&self, index: usize) -> String {
        match self.names.get(index) {
            Some(name) => name.clone(),
            None if self.shape.is_empty() && !self.path.is_empty() => self.path.clone(),
            None => format!("{}[{index}]", if self.path.is_empty() { "value" } else { &self.path }),
        }
    }
}

/// A run of rows of one column to read, row-major.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ColumnRef<'a> {
    /// Booleans and unsigned bytes.
    U8(&'a [u8]),
    /// 32-bit integers.
    I32(&'a [i32]),
    /// 64-bit integers.
    I64(&'a [i64]),
    /// Singles.
    F32(&'a [f32]),
    /// Doubles.
    F64(&'a [f64]),
}

/// A run of rows of one column to write, row-major.
#[derive(Debug, PartialEq)]
pub enum ColumnMut<'a> {
    /// Booleans and unsigned bytes.
    U8(&'a mut [u8]),
    /// 32-bit integers.
    I32(&'a mut [i32]),
    /// 64-bit integers.
    I64(&'a mut [i64]),
    /// Singles.
    F32(&'a mut [f32]),
    /// Doubles.
    F64(&'a mut [f64]),
}

macro_rules! typed_access {
    ($($variant:ident $read:ident $write:ident $type:ty;)*) => {
        impl<'a> ColumnRef<'a> {
            $(
                /// The elements, if the column has this type.
                #[inline]
                pub const fn $read(self) -> Option<&'a [$type]> {
                    match self { Self::$variant(values) => Some(values), _ => None }
                }
            )*

            /// The type of its elements; booleans count as unsigned bytes.
            pub const fn dtype(self) -> DType {
                match self { $(Self::$variant(_) => DType::$variant,)* }
            }

            /// Elements in this run of rows.
            pub const fn len(self) -> usize {
                match self { $(Self::$variant(values) => values.len(),)* }
            }

            /// The elements from `start` to `end`.
            ///
            /// # Panics
            /// If the range does not lie in the run.
            #[inline]
            pub fn slice(self, start: usize, end: usize) -> Self {
                match self { $(Self::$variant(values) => Self::$variant(&values[start..end]),)* }
            }
        }

        impl ColumnMut<'_> {
            $(
                /// The elements, if the column has this type.
                #[inline]
                pub const fn $write(&mut self) -> Option<&mut [$type]> {
                    match self { Self::$variant(values) => Some(values), _ => None }
                }
            )*

            /// The same run of rows to read.
            #[inline]
            pub const fn as_ref(&self) -> ColumnRef<'_> {
                match self { $(Self::$variant(values) => ColumnRef::$variant(values),)* }
            }

            /// The elements from `start` to `end`, to write.
            ///
            /// # Panics
            /// If the range does not lie in the run.
            #[inline]
            pub fn slice(&mut self, start: usize, end: usize) -> ColumnMut<'_> {
                match self { $(Self::$variant(values) => ColumnMut::$variant(&mut values[start..end]),)* }
            }

            /// Overwrites all elements; false, and nothing is written, if type or number differ.
            #[inline]
            #[must_use]
            pub fn copy_from(&mut self, from: ColumnRef<'_>) -> bool {
                match (self, from) {
                    $((Self::$variant(to), ColumnRef::$variant(from)) if to.len() == from.len() => {
                        to.copy_from_slice(from);
                        true
                    })*
                    _ => false,
                }
            }

            /// The same run of rows for a shorter time.
            #[inline]
            pub const fn reborrow(&mut self) -> ColumnMut<'_> {
                match self { $(Self::$variant(values) => ColumnMut::$variant(values),)* }
            }
        }
    };
}

typed_access! {
    U8 as_u8 as_u8_mut u8;
    I32 as_i32 as_i32_mut i32;
    I64 as_i64 as_i64_mut i64;
    F32 as_f32 as_f32_mut f32;
    F64 as_f64 as_f64_mut f64;
}

impl ColumnRef<'_> {
    /// Whether the run has no element.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

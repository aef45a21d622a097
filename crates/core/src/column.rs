//! Columns are the typed regions that a batch consists of.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bounded_list;
use crate::limits::MAX_ELEMENT_NAMES;

/// Element type of a column. All types are little-endian in files and frames.
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
    /// IEEE 754 single, 32 bits.
    F32,
    /// IEEE 754 double, 64 bits.
    F64,
}

impl DType {
    /// Returns bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 => 1,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// Returns NumPy's name for the type.
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

/// Purpose of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The column is a part of the observation.
    Obs,
    /// The column holds the action.
    Action,
    /// The column holds the reward.
    Reward,
    /// The column holds the terminated flag.
    Terminated,
    /// The column holds the truncated flag.
    Truncated,
    /// The column marks rows that began an episode instead of stepping.
    Reset,
    /// The column is a part of the last observation of an episode that ended in this row (SAME_STEP only).
    FinalObs,
    /// The column is an info channel, written at every step.
    Info,
    /// The column is an info channel that says which actions the lane may take next, as booleans: one for each value of a
    /// Discrete action, or for each value of each element of a MultiDiscrete one in turn. It is written in every row, also in
    /// one that began an episode.
    ActionMask,
    /// The column is a number that an env says of a step beside what it does. It is shown to whoever steps the lane where the
    /// column of [`Role::RemarkMask`] says that it is there, and it is neither recorded nor part of the dynamics.
    Remark,
    /// The column is a remark on the reset with which the lane's episode began. It is written in rows that began an episode,
    /// and stays in those that follow.
    FirstRemark,
    /// The column is booleans that say which numbers are there: one for each info channel of the other roles but the action
    /// mask, in their order.
    RemarkMask,
    /// The column is the action that a late lane took, which may be another than it was given. It has type and shape of
    /// the action, and is recorded as that.
    ActionTaken,
    /// The column is the version of the policy that chose the action, an i64; 0 leaves the one that the owner has set. It
    /// does not go back in a lane.
    PolicyVersion,
    /// The column is what the env notes of a step, and is recorded as the step column of its path.
    StepColumn,
    /// The column says what went by of a live lane since its owner was answered last. It is in the answers to owners of live
    /// lanes alone, and behind all others.
    GoneBy,
}

impl Role {
    /// Returns whether an info channel is written in rows that began an episode, too.
    pub const fn is_in_first_rows(self) -> bool {
        matches!(self, Self::ActionMask | Self::FirstRemark | Self::RemarkMask)
    }

    /// Returns whether an info channel of that role is what an env says beside what it does.
    pub const fn is_remark(self) -> bool {
        matches!(self, Self::Remark | Self::FirstRemark | Self::RemarkMask)
    }

    /// Returns whether an info channel of that role reports what was done in a step. It is recorded as what it reports.
    pub const fn is_report(self) -> bool {
        matches!(self, Self::ActionTaken | Self::PolicyVersion | Self::StepColumn)
    }
}

/// Description of one column, which has N rows of `shape` elements each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnSpec {
    /// Place of the column in its space: empty for a plain Box or Discrete, else the keys on the way to it, joined by
    /// `/`.
    pub path: String,
    /// Element type.
    pub dtype: DType,
    /// Extent of each axis of one row; empty for a scalar.
    #[serde(deserialize_with = "crate::space_reader::shape")]
    pub shape: Vec<usize>,
    /// A name per element in row-major order, or empty.
    #[serde(deserialize_with = "bounded_list::<_, MAX_ELEMENT_NAMES, _>")]
    pub names: Vec<String>,
    /// Purpose of the column.
    pub role: Role,
}

impl ColumnSpec {
    /// Returns elements of one row.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }

    /// Returns the number of the channel among `infos` with the action that was taken, where this is the column of actions;
    /// `None` if none has its type and shape.
    pub fn place_taken(&self, infos: &[Self]) -> Option<usize> {
        let of = |info: &Self| {
            (info.role, info.dtype, &info.shape) == (Role::ActionTaken, self.dtype, &self.shape)
        };
        infos.iter().position(of)
    }

    /// Returns what messages call element `index` of a row: its name, else `path[index]`.
    pub fn element_name(&self, index: usize) -> String {
        match self.names.get(index) {
            Some(name) => name.clone(),
            None if self.shape.is_empty() && !self.path.is_empty() => self.path.clone(),
            None => format!("{}[{index}]", if self.path.is_empty() { "value" } else { &self.path }),
        }
    }
}

/// Read access to consecutive rows of one column, row-major.
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

/// Write access to consecutive rows of one column, row-major.
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
                /// Returns the elements, if the column has this type.
                #[inline]
                pub const fn $read(self) -> Option<&'a [$type]> {
                    match self { Self::$variant(values) => Some(values), _ => None }
                }
            )*

            /// Returns the type of its elements; booleans count as unsigned bytes.
            pub const fn dtype(self) -> DType {
                match self { $(Self::$variant(_) => DType::$variant,)* }
            }

            /// Returns elements in this run of rows.
            pub const fn len(self) -> usize {
                match self { $(Self::$variant(values) => values.len(),)* }
            }

            /// Returns the elements as bytes, as they lie in memory.
            #[inline]
            pub fn bytes(self) -> &'a [u8] {
                match self { $(Self::$variant(values) => bytemuck::cast_slice(values),)* }
            }

            /// Returns the elements from `start` to `end`.
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
                /// Returns the elements, if the column has this type.
                #[inline]
                pub const fn $write(&mut self) -> Option<&mut [$type]> {
                    match self { Self::$variant(values) => Some(values), _ => None }
                }
            )*

            /// Returns the same run of rows to read.
            #[inline]
            pub const fn as_ref(&self) -> ColumnRef<'_> {
                match self { $(Self::$variant(values) => ColumnRef::$variant(values),)* }
            }

            /// Returns the elements as bytes, as they lie in memory, to write.
            #[inline]
            pub fn bytes_mut(&mut self) -> &mut [u8] {
                match self { $(Self::$variant(values) => bytemuck::cast_slice_mut(values),)* }
            }

            /// Returns the elements from `start` to `end`, to write.
            ///
            /// # Panics
            /// If the range does not lie in the run.
            #[inline]
            pub fn slice(&mut self, start: usize, end: usize) -> ColumnMut<'_> {
                match self { $(Self::$variant(values) => ColumnMut::$variant(&mut values[start..end]),)* }
            }

            /// Overwrites all elements and returns true. Returns false and writes nothing if `from` has another type or
            /// number of elements.
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

            /// Returns the same rows for a shorter lifetime.
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
    /// Returns whether the run has no element.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

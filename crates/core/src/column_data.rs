//! Rows of a column that own their memory.

use serde::Serialize;

use crate::{ColumnMut, ColumnRef, DType};

/// Owned rows of one column, row-major.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ColumnData {
    /// Booleans and unsigned bytes.
    U8(Vec<u8>),
    /// 32-bit integers.
    I32(Vec<i32>),
    /// 64-bit integers.
    I64(Vec<i64>),
    /// Singles.
    F32(Vec<f32>),
    /// Doubles.
    F64(Vec<f64>),
}

macro_rules! each {
    ($self:expr, $values:ident => $body:expr) => {
        match $self {
            ColumnData::U8($values) => $body,
            ColumnData::I32($values) => $body,
            ColumnData::I64($values) => $body,
            ColumnData::F32($values) => $body,
            ColumnData::F64($values) => $body,
        }
    };
}

impl ColumnData {
    /// Returns `elements` zeros of the type `dtype`.
    pub fn zeros(dtype: DType, elements: usize) -> Self {
        match dtype {
            DType::Bool | DType::U8 => Self::U8(vec![0; elements]),
            DType::I32 => Self::I32(vec![0; elements]),
            DType::I64 => Self::I64(vec![0; elements]),
            DType::F32 => Self::F32(vec![0.0; elements]),
            DType::F64 => Self::F64(vec![0.0; elements]),
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns read access to all rows.
    pub fn as_ref(&self) -> ColumnRef<'_> {
        match self {
            Self::U8(values) => ColumnRef::U8(values),
            Self::I32(values) => ColumnRef::I32(values),
            Self::I64(values) => ColumnRef::I64(values),
            Self::F32(values) => ColumnRef::F32(values),
            Self::F64(values) => ColumnRef::F64(values),
        }
    }

    /// Returns write access to all rows.
    pub fn as_mut(&mut self) -> ColumnMut<'_> {
        match self {
            Self::U8(values) => ColumnMut::U8(values),
            Self::I32(values) => ColumnMut::I32(values),
            Self::I64(values) => ColumnMut::I64(values),
            Self::F32(values) => ColumnMut::F32(values),
            Self::F64(values) => ColumnMut::F64(values),
        }
    }

    /// Returns row `row`, counted in rows of `elements` elements; `None` past the end.
    pub fn row(&self, row: usize, elements: usize) -> Option<ColumnRef<'_>> {
        let (start, end) = (row * elements, (row + 1) * elements);
        (end <= self.len()).then(|| self.as_ref().slice(start, end))
    }

    /// Returns the first element of `row` whose bits differ from those of `other_row` in `other`. NaNs with equal bits
    /// are equal.
    pub fn first_difference(
        &self,
        row: usize,
        other: &Self,
        other_row: usize,
        elements: usize,
    ) -> Option<usize> {
        macro_rules! find {
            ($a:expr, $b:expr, $bits:expr) => {{
                let bits = $bits;
                let a = $a.get(row * elements..(row + 1) * elements);
                let b = $b.get(other_row * elements..(other_row + 1) * elements);
                match (a, b) {
                    (Some(a), Some(b)) => a.iter().zip(b).position(|(a, b)| bits(a) != bits(b)),
                    _ => Some(0),
                }
            }};
        }
        match (self, other) {
            (Self::U8(a), Self::U8(b)) => find!(a, b, |v: &u8| *v),
            (Self::I32(a), Self::I32(b)) => find!(a, b, |v: &i32| *v),
            (Self::I64(a), Self::I64(b)) => find!(a, b, |v: &i64| *v),
            (Self::F32(a), Self::F32(b)) => find!(a, b, |v: &f32| v.to_bits()),
            (Self::F64(a), Self::F64(b)) => find!(a, b, |v: &f64| v.to_bits()),
            _ => Some(0),
        }
    }

    /// Returns whether both have the same type and the same bits. NaNs with equal bits are equal.
    pub fn has_bits_of(&self, other: &Self) -> bool {
        self.len() == other.len() && self.first_difference(0, other, 0, self.len()).is_none()
    }

    /// Returns element `index` as a double; 0 past the end.
    pub fn number(&self, index: usize) -> f64 {
        match self {
            Self::U8(values) => values.get(index).copied().map_or(0.0, f64::from),
            Self::I32(values) => values.get(index).copied().map_or(0.0, f64::from),
            Self::I64(values) => values.get(index).copied().unwrap_or(0) as f64,
            Self::F32(values) => values.get(index).copied().map_or(0.0, f64::from),
            Self::F64(values) => values.get(index).copied().unwrap_or(0.0),
        }
    }

    /// Overwrites row `row`, counted in rows of `elements` elements, and returns true. Returns false and writes nothing
    /// if there is no such row or `from` has another type or length.
    #[inline]
    #[must_use]
    pub fn set_row(&mut self, row: usize, elements: usize, from: ColumnRef<'_>) -> bool {
        let (start, end) = (row * elements, (row + 1) * elements);
        end <= self.len() && self.as_mut().slice(start, end).copy_from(from)
    }

    /// Copies row `from_row` of `other` over row `to_row` and returns true. Returns false and writes nothing if the
    /// types differ or there is no such row.
    #[inline]
    pub fn copy_row(&mut self, to_row: usize, other: &Self, from_row: usize, elements: usize) -> bool {
        other.row(from_row, elements).is_some_and(|row| self.set_row(to_row, elements, row))
    }

    /// Returns whether the elements are of type `dtype`; booleans count as unsigned bytes.
    pub fn is_of(&self, dtype: DType) -> bool {
        let dtype = if dtype == DType::Bool { DType::U8 } else { dtype };
        self.as_ref().dtype() == dtype
    }

    /// Sets the number of elements; new ones are 0. The memory is kept.
    pub fn resize(&mut self, elements: usize) {
        each!(self, values => values.resize(elements, Default::default()));
    }

    /// Removes all elements; the memory is kept.
    pub fn clear(&mut self) {
        each!(self, values => values.clear());
    }

    /// Appends elements of the same type and returns true. Returns false and appends nothing if `from` has another
    /// type.
    #[must_use]
    pub fn extend(&mut self, from: ColumnRef<'_>) -> bool {
        match (self, from) {
            (Self::U8(to), ColumnRef::U8(from)) => to.extend_from_slice(from),
            (Self::I32(to), ColumnRef::I32(from)) => to.extend_from_slice(from),
            (Self::I64(to), ColumnRef::I64(from)) => to.extend_from_slice(from),
            (Self::F32(to), ColumnRef::F32(from)) => to.extend_from_slice(from),
            (Self::F64(to), ColumnRef::F64(from)) => to.extend_from_slice(from),
            _ => return false,
        }
        true
    }

    /// Appends elements from little-endian bytes and returns true. Returns false and appends nothing if the bytes are
    /// no whole number of elements.
    #[must_use]
    pub fn extend_le(&mut self, bytes: &[u8]) -> bool {
        macro_rules! read {
            ($values:expr, $type:ty) => {{
                let (chunks, rest) = bytes.as_chunks();
                if !rest.is_empty() {
                    return false;
                }
                $values.extend(chunks.iter().map(|chunk| <$type>::from_le_bytes(*chunk)));
            }};
        }
        match self {
            Self::U8(values) => values.extend_from_slice(bytes),
            Self::I32(values) => read!(values, i32),
            Self::I64(values) => read!(values, i64),
            Self::F32(values) => read!(values, f32),
            Self::F64(values) => read!(values, f64),
        }
        true
    }
}

impl From<ColumnRef<'_>> for ColumnData {
    /// Copies the rows.
    fn from(rows: ColumnRef<'_>) -> Self {
        match rows {
            ColumnRef::U8(rows) => Self::U8(rows.to_vec()),
            ColumnRef::I32(rows) => Self::I32(rows.to_vec()),
            ColumnRef::I64(rows) => Self::I64(rows.to_vec()),
            ColumnRef::F32(rows) => Self::F32(rows.to_vec()),
            ColumnRef::F64(rows) => Self::F64(rows.to_vec()),
        }
    }
}
